//! Extensions that no caller asks for by its lease: the engine keeps leases alive, and a caller
//! adopts a lock by key and token.
//!
//! # Invariants
//!
//! - The engine's own extensions obey all rules of a caller's extension: one at a time, never after
//!   the deadline, never behind a release. Only a quorum moves the deadline on.

use super::core::Locks;
use super::fences::Fencing;
use super::op::{OpId, OpKind};
use super::slot::Mark;
use crate::engine::event::LostCause;
use crate::engine::happenings::Happening;
use crate::error::ExtendError;
use crate::node::Now;
use crate::options::LockOptions;
use crate::rules;
use crate::slab::{KeepIndex, OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;

use std::borrow::Cow;
use std::time::Duration;

impl Locks {
    /// Does what is due for a lease in the engine's care.
    #[cold]
    pub(in crate::engine) fn keep_due(&mut self, index: KeepIndex, now: Now) {
        let keep = self.keeps.at(index);
        let (Some(slot_index), extend_at) = (keep.slot, keep.extend_at) else { return };
        let is_over = self.slots.at(slot_index).ends <= now.real;
        if rules::is_end_told(is_over) {
            self.lose_lease(slot_index, LostCause::Expired, now);
        } else if extend_at <= now.real {
            self.begin_keep_alive(index, now);
        } else if !is_over {
            self.schedule_keep(index);
        }
    }

    /// Another client may have deleted a lease. If the engine keeps it alive, and no extension is
    /// under way, the engine extends it now.
    pub(in crate::engine) fn extend_soon(&mut self, slot_index: SlotIndex, now: Now) {
        let Some(index) = self.keep_of(slot_index) else { return };
        let keep = self.keeps.at(index);
        let is_idle = keep.is_held && !keep.is_lost && keep.extend_at < Instant::MAX;
        if is_idle {
            self.begin_keep_alive(index, now);
        }
    }

    /// Extends a lease that is due, within its limits.
    fn begin_keep_alive(&mut self, index: KeepIndex, now: Now) {
        let keep = self.keeps.at_mut(index);
        keep.extend_at = Instant::MAX;
        let Some(slot_index) = keep.slot else { return };
        let slot = self.slots.at(slot_index);
        let ttl_ms = slot.ttl_ms;
        if slot.op.is_some() {
            // The caller extends the lease; the end of that extension sets the next time.
            return self.schedule_keep(index);
        }
        if rules::is_past_extending(slot.ends, now.real)
            || self.is_at_limit(slot_index, self.deadline_from(now.real, ttl_ms))
        {
            return self.schedule_keep(index);
        }
        let Some(op) = self.ops.open_own_extension() else {
            self.extend_again(index, now.real, now);
            return self.schedule_keep(index);
        };
        self.keeps.at_mut(index).began = now.real;
        self.begin_extension(op, slot_index, ttl_ms, now.real);
        // The extension may be decided already, but the engine concludes it only when its timer is
        // due.
        self.note_change(slot_index);
        self.schedule_keep(index);
    }

    /// An extension by the engine itself is decided.
    pub(in crate::engine) fn keep_alive_ended(&mut self, op_index: OpIndex, now: Now) {
        let op = self.ops.at(op_index);
        let (slot_index, outcome) = (op.slot(), op.outcome);
        self.observe(Happening::KeptAlive { op: op_index, outcome });
        self.close_own_extension(op_index);
        let slot = self.slots.at_mut(slot_index);
        if slot.op == Some(op_index) {
            slot.op = None;
        }
        self.slots.free_if_unnamed(slot_index);
        self.plan_extension(slot_index, outcome, now);
    }

    // ---- adoption ----

    /// As [`Engine::adopt`](crate::Engine::adopt).
    pub(in crate::engine) fn adopt(
        &mut self,
        key: &[u8],
        token: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, ExtendError> {
        let (ttl_ms, token, wire_key) = self.checked_adoption(key, token, options.ttl)?;
        let index = self.ops.open(OpKind::Adopt).ok_or(ExtendError::Full)?;
        let slot_index = self.open_foreign(&wire_key, token);
        if let Some(fence) = options.fence {
            self.slots.at_mut(slot_index).set(Mark::FENCED, true);
            self.slots.fences.put(slot_index, Fencing::carried(fence));
        }
        if options.keep_alive {
            self.open_keep(index, options.is_announced);
            self.bind_keep(index, slot_index);
        }
        self.slots.at_mut(slot_index).began = now;
        self.recall_unsettled(slot_index, ttl_ms);
        self.begin_extension(index, slot_index, ttl_ms, now);
        Ok(self.ops.id(index))
    }

    /// Marks the nodes that may still run earlier commands of this client for the adopted lock.
    fn recall_unsettled(&mut self, slot_index: SlotIndex, ttl_ms: u32) {
        let slot = self.slots.at_mut(slot_index);
        if !self.led_back.is_empty() {
            slot.tainted = slot.tainted.union(self.led_back);
            slot.set(Mark::DOUBTED, true);
        }
        for left in &self.unsettled {
            if left.key != slot.key || left.token != slot.token {
                continue;
            }
            slot.tainted = slot.tainted.union(rules::nodes_unsettled(left.nodes));
            if ttl_ms > left.ttl_ms {
                slot.set(Mark::DOUBTED, true);
            }
        }
    }

    /// Checks an adoption. Returns the TTL in milliseconds, the token, and the key as the nodes
    /// know it.
    pub(in crate::engine) fn checked_adoption<'key>(
        &self,
        key: &'key [u8],
        token: &[u8],
        ttl: Duration,
    ) -> Result<(u32, TokenBytes, Cow<'key, [u8]>), ExtendError> {
        let ttl_ms = self.extension_ttl(ttl)?;
        let token = TokenBytes::from_wire(token).ok_or(ExtendError::InvalidName)?;
        let key = self.prefix.wire_key(key).map_err(|_| ExtendError::InvalidName)?;
        // A delete that the client owes would end the lease. So would the release of a lease that
        // it already has on this lock.
        if rules::is_in_hand(self.slot_in_hand(&key, &token).is_some()) {
            return Err(ExtendError::Busy);
        }
        Ok((ttl_ms, token, key))
    }
}

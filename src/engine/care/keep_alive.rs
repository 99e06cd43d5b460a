//! Leases that are kept alive: the engine extends each in time, by itself.
//!
//! # Invariants
//!
//! - The engine's own extensions obey all rules of a caller's extension: one at a time, never after
//!   the deadline, never behind a release. Only a quorum moves the deadline on.

use crate::engine::event::LostCause;
use crate::engine::happenings::Happening;
use crate::engine::locks::core::Locks;
use crate::engine::locks::op::OpKind;
use crate::node::Now;
use crate::rules;
use crate::slab::{KeepIndex, OpIndex, SlotIndex};
use crate::time::Instant;

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
        if self.is_at_limit(slot_index, self.deadline_from(now.real, ttl_ms)) {
            return self.schedule_keep(index);
        }
        let Some(op) = self.ops.open(OpKind::Keep) else {
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
        self.close_op(op_index);
        let slot = self.slots.at_mut(slot_index);
        if slot.op == Some(op_index) {
            slot.op = None;
        }
        self.slots.free_if_unnamed(slot_index);
        self.plan_extension(slot_index, outcome, now);
    }
}

//! Leases that the engine looks after: extends them in time, and tells when one is lost.
//!
//! # Invariants
//!
//! - The engine's own extensions keep all rules of a caller's: one at a time, never past the
//!   deadline, never behind a release, and nothing but a quorum moves the deadline on.
//! - A lease that is lost stays lost: its deadline is not later than its loss, and no extension
//!   moves it any more.
//! - The loss is told by the deadline, whatever the nodes do, and at once when fewer than a quorum
//!   can hold the key.

use super::event::{Event, LostCause};
use super::keep::{Loss, NO_KEEP, third};
use super::op::{OpKind, Outcome};
use super::slot::{CHANGED, LeaseId, NO_OP, SlotState};
use super::trace::traced;
use super::{Engine, LOSS};
use crate::error::{Cause, ExtendError};
use crate::mutant::{self, Mutant};
use crate::node::Now;
use crate::options::LockOptions;
use crate::quorum::NodeMask;
use crate::time::Instant;

/// Between two extensions that missed their quorum: a `node_timeout` and up to this part of it.
const JITTER_PARTS: u32 = 4;

impl Engine {
    /// A lease was handed over whose acquisition wanted it kept.
    #[cold]
    pub(super) fn begin_keeping(&mut self, slot_index: u32, keep_index: u32, now: Now) {
        let slot = self.slots.at_mut(slot_index);
        slot.set_kept(true);
        let (began, ttl_ms) = (slot.began, slot.ttl_ms);
        self.keeps.bind(keep_index, slot_index);
        let keep = self.keeps.at_mut(keep_index);
        keep.is_held = true;
        keep.began = began;
        if keep.options.is_some() {
            keep.extend_at = began + third(ttl_ms);
        }
        self.schedule_keep(keep_index);
        self.check_holders(slot_index, now);
    }

    /// The lease is released or given away: nothing of it is looked after any more.
    #[cold]
    pub(super) fn end_keeping(&mut self, slot_index: u32) {
        if mutant::is(Mutant::KeepAliveAfterRelease) {
            return;
        }
        self.slots.at_mut(slot_index).set_kept(false);
        let index = self.keeps.of_slot(slot_index);
        // An attempt that failed leaves it to the next one.
        if self.keeps.at(index).is_held {
            self.keeps.close(index);
        }
    }

    fn schedule_keep(&mut self, index: u32) {
        let keep = self.keeps.at(index);
        let deadline = self.slots.at(keep.slot).ends;
        let at = keep.extend_at.min(deadline);
        self.keeps.schedule(index, at);
    }

    /// Does what is due of the leases that are looked after.
    #[cold]
    pub(super) fn handle_keeps(&mut self, now: Now) {
        loop {
            while let Some(id) = self.keeps.pop_ended() {
                if let Some(index) = self.ops.find(id) {
                    self.keep_alive_ended(index, now);
                }
            }
            let Some(index) = self.keeps.due(now.real) else { return };
            let keep = self.keeps.at(index);
            let (slot_index, extend_at) = (keep.slot, keep.extend_at);
            let is_over = self.slots.at(slot_index).ends <= now.real;
            if is_over && !mutant::is(Mutant::LossNotTold) {
                self.keeps.unschedule(index);
                self.lose_lease(slot_index, LostCause::Expired, now);
            } else if extend_at <= now.real {
                self.begin_keep_alive(index, now);
            } else if is_over {
                self.keeps.unschedule(index);
            } else {
                self.schedule_keep(index);
            }
        }
    }

    /// Extends a lease that is due, as far as its limits allow.
    fn begin_keep_alive(&mut self, index: u32, now: Now) {
        let keep = self.keeps.at_mut(index);
        keep.extend_at = Instant::MAX;
        let (slot_index, extensions) = (keep.slot, keep.extensions);
        let options = keep.options.unwrap_or_default();
        let slot = self.slots.at(slot_index);
        let ttl_ms = slot.ttl_ms;
        if slot.op != NO_OP {
            // The caller extends it; the end of that says when to go on.
            return self.schedule_keep(index);
        }
        let ends = self.deadline_from(now.real, ttl_ms);
        let is_at_limit = self.is_at_limit(slot_index, ends)
            || options.extensions.is_some_and(|most| extensions >= most)
            || options.hold.is_some_and(|hold| ends > slot.began + hold);
        if is_at_limit {
            self.keeps.at_mut(index).is_at_limit = true;
            return self.schedule_keep(index);
        }
        let Some(op) = self.ops.open(OpKind::Keep) else {
            self.extend_again(index, now.real, now);
            return self.schedule_keep(index);
        };
        self.keeps.at_mut(index).began = now.real;
        self.begin_extension(op, slot_index, ttl_ms, now.real);
        // It may be decided already, but nothing concludes it before `handle_keeps` goes on.
        self.note_change(slot_index);
        self.schedule_keep(index);
    }

    /// The next try at an extension that `began` then and missed its quorum.
    fn extend_again(&mut self, index: u32, began: Instant, now: Now) {
        let timeout = self.settings.node_timeout;
        let random = self.random_share();
        let earliest = (began + timeout).max(now.real);
        self.keeps.at_mut(index).extend_at = earliest + (timeout / JITTER_PARTS).mul_f64(random);
    }

    /// An extension by the engine itself is decided.
    fn keep_alive_ended(&mut self, op_index: u32, now: Now) {
        let op = self.ops.at(op_index);
        let (slot_index, outcome) = (op.slot, op.outcome);
        self.counts.keeps.note(outcome);
        traced!(DEBUG: self.trace_extended(op_index, outcome == Outcome::Won));
        self.ops.close(op_index);
        let slot = self.slots.at_mut(slot_index);
        if slot.op == op_index {
            slot.op = NO_OP;
        }
        let keep_index = self.keep_of(slot_index);
        if outcome == Outcome::Won && keep_index != NO_KEEP {
            let keep = self.keeps.at_mut(keep_index);
            keep.extensions = keep.extensions.saturating_add(1);
        }
        self.slots.free_if_unnamed(slot_index);
        self.plan_extension(slot_index, outcome, now);
    }

    /// An extension of a lease ended, whoever began it: when does the next one begin?
    pub(super) fn plan_extension(&mut self, slot_index: u32, outcome: Outcome, now: Now) {
        let slot = self.slots.at(slot_index);
        let (index, ttl_ms) = (self.keep_of(slot_index), slot.ttl_ms);
        if index == NO_KEEP || slot.state != SlotState::Held {
            return;
        }
        let keep = self.keeps.at_mut(index);
        if !keep.is_held || keep.is_lost {
            return;
        }
        if keep.options.is_some() {
            let began = keep.began;
            if outcome == Outcome::Won {
                keep.extend_at = began + third(ttl_ms);
            } else {
                self.extend_again(index, began, now);
            }
        }
        self.note_change(slot_index);
        self.schedule_keep(index);
    }

    /// A caller extends the lease from `now` on: its own TTL counts from then on.
    pub(super) fn caller_extends(&mut self, slot_index: u32, now: Instant) {
        let index = self.keep_of(slot_index);
        if index != NO_KEEP {
            let keep = self.keeps.at_mut(index);
            keep.began = now;
            keep.extend_at = Instant::MAX;
            self.schedule_keep(index);
        }
    }

    /// Ends an extension of the engine's own that is under way, for something that the caller wants.
    pub(super) fn end_keep_alive(&mut self, slot_index: u32) {
        let slot = self.slots.at_mut(slot_index);
        let op = slot.op;
        if op != NO_OP && self.ops.at(op).kind == OpKind::Keep {
            slot.op = NO_OP;
            self.ops.close(op);
        }
    }

    /// Fewer than a quorum can hold the key, or its time is over: the lease is lost for good.
    #[cold]
    pub(super) fn lose_lease(&mut self, slot_index: u32, cause: LostCause, now: Now) {
        let lease = self.slots.lease_id(slot_index);
        let slot = self.slots.at_mut(slot_index);
        if slot.state != SlotState::Held {
            return;
        }
        if slot.ends > now.real {
            slot.ends = now.real;
            self.note_change(slot_index);
        }
        let op = self.slots.at(slot_index).op;
        let keep_index = self.keep_of(slot_index);
        if op != NO_OP && self.ops.at(op).outcome == Outcome::Open {
            match self.ops.at(op).kind {
                OpKind::Keep => self.end_keep_alive(slot_index),
                OpKind::Extend => {
                    let is_gone = cause == LostCause::Gone;
                    self.finish(op, if is_gone { Outcome::Lost } else { Outcome::Expired });
                }
                OpKind::Free
                | OpKind::Acquire
                | OpKind::Adopt
                | OpKind::Release
                | OpKind::Query => {}
            }
        }
        if keep_index == NO_KEEP {
            return;
        }
        self.keeps.unschedule(keep_index);
        let keep = self.keeps.at_mut(keep_index);
        if !std::mem::replace(&mut keep.is_lost, true) {
            let op = keep.op;
            match cause {
                LostCause::Expired => self.counts.lost_expired.up(),
                LostCause::Gone => self.counts.lost_gone.up(),
            }
            traced!(WARN: self.trace_lost(slot_index, cause));
            self.keeps.losses.push_back(Loss { lease, op, cause });
            self.done.push_back(LOSS);
            self.note_change(slot_index);
        }
    }

    /// A node turned out to be without the key.
    pub(super) fn check_holders(&mut self, slot_index: u32, now: Now) {
        let slot = self.slots.at(slot_index);
        if slot.state == SlotState::Held
            && (slot.op == NO_OP || self.ops.at(slot.op).kind != OpKind::Adopt)
            && !self.holders(slot_index).has_at_least(self.settings.quorum)
        {
            self.lose_lease(slot_index, LostCause::Gone, now);
        }
    }

    /// Whoever shows the lease's deadline is to look at it again.
    fn note_change(&mut self, slot_index: u32) {
        if self.slots.at_mut(slot_index).enter(CHANGED) {
            self.keeps.changed.push_back(slot_index);
        }
    }

    /// The next lease whose deadline the engine moved by itself: it extended the lease, began to, or
    /// lost it. Each is there once, so a list that nobody reads does not grow beyond the leases.
    pub fn poll_change(&mut self) -> Option<LeaseId> {
        while let Some(slot_index) = self.keeps.changed.pop_front() {
            let slot = self.slots.at_mut(slot_index);
            slot.leave(CHANGED);
            if slot.state == SlotState::Held {
                return Some(self.slots.lease_id(slot_index));
            }
        }
        None
    }

    /// The next loss in the list of results; none if its lease was released meanwhile.
    #[cold]
    pub(super) fn next_loss(&mut self) -> Option<Event> {
        let Loss { lease, op, cause } = self.keeps.losses.pop_front()?;
        self.slots.held(lease)?;
        Some(Event::Lost { op, lease, cause })
    }

    // ---- state ----

    /// Whether a lease was lost: known to be over, by its deadline or because no quorum can hold
    /// its key. True for one that is not held any more.
    #[must_use]
    pub fn is_lost(&self, lease: LeaseId) -> bool {
        self.slots.held(lease).is_none_or(|slot| {
            slot.is_kept() && self.keeps.at(self.keeps.of_slot(lease.slot)).is_lost
                || !slot.holds.has_at_least(self.settings.quorum)
        })
    }

    /// Whether an extension of the lease is under way.
    #[must_use]
    pub(crate) fn is_extending(&self, lease: LeaseId) -> bool {
        self.slots.held(lease).is_some_and(|slot| slot.op != NO_OP)
    }

    /// Why a lease is not kept: it is over, or a limit is reached. `None` while it is.
    #[must_use]
    pub(crate) fn keep_error(&self, lease: LeaseId, now: Instant) -> Option<ExtendError> {
        let Some(slot) = self.slots.held(lease) else { return Some(ExtendError::NotOurs) };
        let holders = self.holders(lease.slot);
        if !holders.has_at_least(self.settings.quorum) {
            let all = NodeMask::first(self.nodes.len());
            let gone = all.without(holders);
            let causes = [Cause::None; crate::quorum::NODES_MAX];
            return Some(ExtendError::Lost(self.ballot_of(
                (NodeMask::EMPTY, gone, holders),
                causes,
                now,
            )));
        }
        if slot.ends <= now || self.is_lost(lease) {
            return Some(ExtendError::Expired);
        }
        let is_at_limit =
            slot.is_kept() && self.keeps.at(self.keeps.of_slot(lease.slot)).is_at_limit;
        is_at_limit.then_some(ExtendError::LimitReached)
    }

    /// The entry of what is looked after of a slot's lease.
    pub(super) fn keep_of(&self, slot_index: u32) -> u32 {
        let is_kept = self.slots.at(slot_index).is_kept();
        if is_kept { self.keeps.of_slot(slot_index) } else { NO_KEEP }
    }

    /// An entry for an acquisition or adoption that wants its lease kept.
    #[cold]
    pub(super) fn open_keep(&mut self, index: u32, key: &[u8], acquire: &LockOptions) {
        let keep = self.keeps.open(self.ops.id(index), acquire.keep_alive);
        self.ops.at_mut(index).keep = keep;
        if acquire.is_watched
            && let Ok(key) = self.wire_key(key)
        {
            self.keeps.watch(keep, &key);
        }
    }
}

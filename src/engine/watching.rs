//! Leases whose nodes are asked to tell when their key is changed by somebody else.
//!
//! # Invariants
//!
//! - What a node tells makes nothing of a lease, it only takes away: a node that told is no holder
//!   until a genuine extension shows that it is.
//! - Who tells, and what of, rests on the order of one connection: a push read behind the answer to
//!   the lease's own SET is about the lease.

use super::Engine;
use super::keep::NO_KEEP;
use super::op::Outcome;
use super::slot::{LeaseId, SlotState};
use super::trace::traced;
use crate::command::Answer;
use crate::error::Cause;
use crate::mutant::{self, Mutant};
use crate::node::{Now, Request, changed_keys};
use crate::quorum::{NodeId, NodeMask};
use crate::resp::{Decoder, Limits, Reply};

impl Engine {
    /// What is looked after of an operation's lease is in this slot for now.
    #[cold]
    pub(super) fn bind_keep(&mut self, index: u32, slot_index: u32) {
        let keep = self.ops.at(index).keep;
        self.keeps.bind(keep, slot_index);
        self.slots.at_mut(slot_index).set_kept(true);
        let keep = self.keeps.at_mut(keep);
        (keep.tracked, keep.doubted) = (NodeMask::EMPTY, NodeMask::EMPTY);
    }

    /// Behind the SETs of an attempt: the keys are tracked where they may be written now.
    #[cold]
    pub(super) fn track_sets(&mut self, index: u32, slot_index: u32, now: Now) {
        if self.ops.at(index).keep == NO_KEEP {
            return;
        }
        if !self.slots.at(slot_index).is_kept() {
            self.bind_keep(index, slot_index);
        }
        for id in self.slots.at(slot_index).unanswered {
            self.track(id, slot_index, now);
        }
    }

    /// Behind an attempt that has just begun, and may have ended.
    #[cold]
    pub(super) fn track_attempt(&mut self, index: u32, now: Now) {
        let slot_index = self.ops.at(index).slot;
        let slot = self.slots.at(slot_index);
        if slot.state == SlotState::Acquiring && slot.op == index {
            self.track_sets(index, slot_index, now);
        }
    }

    /// Behind an extension.
    pub(super) fn track_extension(&mut self, id: NodeId, slot_index: u32, now: Now) {
        if self.slots.at(slot_index).is_kept() {
            self.track(id, slot_index, now);
        }
    }

    fn track(&mut self, id: NodeId, slot_index: u32, now: Now) {
        let keep = self.keep_of(slot_index);
        if keep == NO_KEEP || self.keeps.at(keep).watched.is_none() {
            return;
        }
        let slot = self.slots.at_mut(slot_index);
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        if node.track(&slot.key, (Request::Tracked, slot_index), now.attended) {
            slot.refs += 1;
            self.with_output.insert(id);
        }
    }

    /// A node was greeted: whatever it tracked for an earlier connection is forgotten.
    pub(super) fn track_all(&mut self, id: NodeId, now: Now) {
        for index in self.keeps.all_watchers() {
            let keep = self.keeps.at_mut(index);
            keep.tracked.remove(id);
            let slot_index = keep.slot;
            if keep.is_held && self.slots.at(slot_index).holds.contains(id) {
                self.track(id, slot_index, now);
            }
        }
        self.wait_untracked(id, now);
    }

    /// The read behind a SET or an extension was answered: from here on the node tells.
    pub(super) fn tracked(&mut self, id: NodeId, slot_index: u32, answer: Answer, now: Now) {
        let keep = self.keep_of(slot_index);
        if keep == NO_KEEP {
            return;
        }
        match answer {
            Answer::Ok | Answer::Zero | Answer::One if self.node(id).is_tracking() => {
                self.keeps.at_mut(keep).tracked.insert(id);
            }
            Answer::Null => self.doubt(id, keep, now),
            Answer::Ok
            | Answer::Zero
            | Answer::One
            | Answer::NoScript
            | Answer::Refused(_)
            | Answer::Odd => {}
        }
    }

    /// The connection ended before that.
    pub(super) fn untracked(&mut self, id: NodeId, slot_index: u32) {
        let keep = self.keep_of(slot_index);
        if keep != NO_KEEP {
            self.keeps.at_mut(keep).tracked.remove(id);
        }
    }

    /// A node tells that keys were changed.
    pub(super) fn keys_changed(&mut self, id: NodeId, now: Now) {
        let push = self.take_frame(id);
        let frame = Decoder::new(Limits::default()).frame(&push);
        if let Some(Reply::Push(items)) = frame.ok().flatten().map(|frame| frame.reply()) {
            match changed_keys(&items) {
                Some(keys) => {
                    for key in keys.filter_map(|key| key.text()) {
                        for keep in self.keeps.watchers(key) {
                            self.doubt(id, keep, now);
                        }
                        self.waited_key_changed(id, Some(key), now);
                    }
                }
                None => {
                    for keep in self.keeps.all_watchers() {
                        self.doubt(id, keep, now);
                    }
                    self.waited_key_changed(id, None, now);
                }
            }
        }
        self.frame = push;
    }

    /// The node may not hold the key any more.
    fn doubt(&mut self, id: NodeId, index: u32, now: Now) {
        let slot_index = self.keeps.at(index).slot;
        let Some(slot) = self.slots.get(slot_index) else { return };
        // Between two attempts the slot of the one before may be another's already.
        if self.keep_of(slot_index) != index {
            return;
        }
        // What was there before its SET, or without it, is none of the lease's.
        let is_early = slot.unanswered.contains(id) && !mutant::is(Mutant::ChangeBelievedTooSoon);
        if is_early || !slot.holds.contains(id) || mutant::is(Mutant::ChangeUnheard) {
            return;
        }
        let state = slot.state;
        let keep = self.keeps.at_mut(index);
        keep.tracked.remove(id);
        keep.doubted.insert(id);
        match state {
            SlotState::Acquiring => self.withdraw_vote(id, slot_index, now),
            SlotState::Held => self.check_holders(slot_index, now),
            SlotState::Gated | SlotState::Released | SlotState::Free => {}
        }
    }

    /// The node granted, and told before the lease was handed over that its key is gone. What was won
    /// with this vote is no lease any more; nobody is told that it was.
    fn withdraw_vote(&mut self, id: NodeId, slot_index: u32, now: Now) {
        let index = self.slots.at(slot_index).op;
        let quorum = self.settings.quorum;
        let op = self.ops.at_mut(index);
        // What was not believed in the first place has its own reason.
        if !op.round.withdraw(id) {
            return;
        }
        op.blame(id, Cause::Gone);
        self.node_mut(id).counts.unknown.up(Cause::Gone);
        traced!(TRACE: self.trace_vote(id, slot_index, crate::error::Vote::Unknown(Cause::Gone)));
        let op = self.ops.at_mut(index);
        if op.outcome != Outcome::Won {
            self.decide(slot_index, now);
        } else if !op.round.granted.has_at_least(quorum) && !mutant::is(Mutant::GoneBeforeHandOver)
        {
            op.outcome = Outcome::Open;
            self.done.retain(|&done| done != index);
            self.attempt_failed(index, Outcome::Expired, now);
        }
    }

    /// A node extended the key: it holds it, whatever it told before.
    pub(super) fn key_confirmed(&mut self, id: NodeId, slot_index: u32) {
        let keep = self.keep_of(slot_index);
        if keep != NO_KEEP {
            self.keeps.at_mut(keep).doubted.remove(id);
        }
    }

    /// The nodes that may hold a slot's key, as far as they have told.
    pub(super) fn holders(&self, slot_index: u32) -> NodeMask {
        let (holds, keep) = (self.slots.at(slot_index).holds, self.keep_of(slot_index));
        if keep == NO_KEEP { holds } else { holds.without(self.keeps.at(keep).doubted) }
    }

    /// The nodes that will tell at once when somebody else changes the key of `lease`, which is one
    /// to be watched.
    #[must_use]
    pub fn watched_by(&self, lease: LeaseId) -> NodeMask {
        let keep = self.slots.held(lease).map_or(NO_KEEP, |_| self.keep_of(lease.slot));
        if keep == NO_KEEP { NodeMask::EMPTY } else { self.keeps.at(keep).tracked }
    }
}

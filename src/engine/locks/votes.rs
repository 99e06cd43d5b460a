//! The votes of one attempt: which nodes it asks, and the decision that their votes give.
//!
//! # Invariants
//!
//! - A node that may not vote gets no request: its vote fails at once.

use super::core::{Failed, Locks};
use super::op::Verdict;
use super::slot::{Mark, TokenState};
use crate::command::append_set;
use crate::engine::happenings::Happening;
use crate::error::{Cause, Vote};
use crate::node::{Now, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::round::Decision;
use crate::slab::{OpIndex, SlotIndex};

impl Locks {
    /// Encodes the SET of an attempt, or the command in its place.
    pub(in crate::engine) fn encode_set(&mut self, slot_index: SlotIndex) {
        if self.slots.at(slot_index).has(Mark::FENCED) {
            self.encode_fenced_set(slot_index);
        } else {
            self.encode_plain_set(slot_index);
        }
    }

    #[inline]
    pub(super) fn encode_plain_set(&mut self, slot_index: SlotIndex) {
        let slot = self.slots.at(slot_index);
        self.scratch.clear();
        let (key, options) = (&slot.key, &mut self.set_options);
        append_set(&mut self.scratch, key, &slot.token, slot.ttl_ms, options);
    }

    /// Writes the encoded SET to the voters of the cohort. Returns the nodes that it went to.
    #[inline]
    pub(super) fn write_sets(
        &mut self,
        index: OpIndex,
        slot_index: SlotIndex,
        (voters, request): (NodeMask, Request),
        now: Now,
    ) -> NodeMask {
        let written = self.write_cohort(voters, request, now);
        self.ops.at_mut(index).round.written = written;
        let slot = self.slots.at_mut(slot_index);
        slot.holds = written;
        slot.unanswered = written;
        written
    }

    /// Writes the encoded SET to one node.
    #[inline]
    pub(in crate::engine) fn send_set(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        let request = self.set_request(slot_index);
        if self.may_be_asked(id, slot_index) && self.write(id, request, now) {
            let slot = self.slots.at_mut(slot_index);
            slot.holds.insert(id);
            slot.unanswered.insert(id);
            if let Some(op) = slot.op {
                self.ops.at_mut(op).round.written.insert(id);
            }
        } else {
            self.fail_vote(id, slot_index);
        }
    }

    #[inline]
    fn set_request(&self, slot_index: SlotIndex) -> Request {
        if self.slots.at(slot_index).has(Mark::FENCED) {
            Request::FencedSet(slot_index)
        } else {
            Request::Set(slot_index)
        }
    }

    #[inline]
    fn may_be_asked(&self, id: NodeId, slot_index: SlotIndex) -> bool {
        !self.slots.at(slot_index).has(Mark::FENCED) || self.does_clock_agree(id)
    }

    /// The attempt does not ask the node: it wrote nothing there.
    pub(in crate::engine) fn fail_vote(&mut self, id: NodeId, slot_index: SlotIndex) {
        let is_off = self.nodes.voters().contains(id) && !self.may_be_asked(id, slot_index);
        let cause = if is_off { Cause::ClockOff } else { self.nodes.at(id).cause() };
        let vote = Vote::Failed(cause);
        if let Some(op) = self.slots.at(slot_index).op {
            let op = self.ops.at_mut(op);
            op.round.enter(id, vote);
            op.blame(id, cause);
        }
        self.observe(Happening::Vote { node: id, slot: slot_index, vote });
    }

    /// Decides the attempt if its votes suffice.
    #[inline]
    #[must_use]
    pub(in crate::engine) fn decide(&mut self, slot_index: SlotIndex) -> Option<Failed> {
        let slot = self.slots.at(slot_index);
        let index = slot.op.filter(|_| slot.state() == TokenState::Asking)?;
        let op = self.ops.at(index);
        match op.round.decide(self.settings.electorate_of(slot)) {
            Decision::Open => None,
            Decision::Won if slot.has(Mark::FENCED) => {
                self.decide_fence(slot_index, self.both_clocks(self.last_call))
            }
            Decision::Won => {
                self.win(index, slot_index);
                None
            }
            Decision::Lost => Some(Failed { op: index, outcome: self.loss(index) }),
        }
    }

    /// How the call fails if this attempt was its last. The end of a call may cut an attempt before the
    /// nodes could answer. Then the denials of the attempts before count, or their lateness.
    #[cold]
    pub(in crate::engine) fn weigh_denials(
        &mut self,
        index: OpIndex,
        outcome: Verdict,
        now: Now,
    ) -> Verdict {
        let op = self.ops.at(index);
        let began = self.slots.at(op.slot()).began;
        let is_cut = op.plan.deadline <= now.real
            && began.until(op.plan.deadline) < self.settings.node_timeout;
        let op = self.ops.at_mut(index);
        if outcome == Verdict::Expired {
            op.late = op.round.granted;
        }
        op.note_denials(is_cut);
        let denied = op.denials();
        let mut round = op.round;
        round.failed = round.failed.without(denied);
        round.unknown = round.unknown.without(denied);
        round.awaited = round.awaited.without(denied);
        round.denied = denied;
        let was_late = op.failed == Verdict::Expired;
        let electorate = self.settings.electorate_of(self.slots.at(self.ops.at(index).slot()));
        if outcome != Verdict::NoQuorum || !is_cut {
            outcome
        } else if was_late {
            Verdict::Expired
        } else if round.is_taken(electorate) {
            Verdict::Taken
        } else {
            outcome
        }
    }

    /// Why an attempt has no lease, by its votes.
    fn loss(&self, index: OpIndex) -> Verdict {
        let op = self.ops.at(index);
        let (round, slot) = (&op.round, self.slots.at(op.slot()));
        let electorate = self.settings.electorate_of(slot);
        if electorate.has_quorum(round.granted) {
            Verdict::Expired
        } else if round.is_taken(electorate) {
            Verdict::Taken
        } else {
            Verdict::NoQuorum
        }
    }
}

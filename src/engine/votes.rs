//! The votes of an attempt: what each node's answer, or its want of one, says to it.

use super::Engine;
use super::op::OpKind;
use super::slot::{LATE_VOTE, LeaseId, SlotState};
use super::trace::traced;
use crate::command::Answer;
use crate::error::{Cause, Vote};
use crate::mutant::{self, Mutant};
use crate::node::Now;
use crate::quorum::NodeId;
use crate::slab::SlotIndex;
use crate::time::Instant;

impl Engine {
    /// The node is not asked: nothing was written there.
    pub(super) fn fail_vote(&mut self, id: NodeId, slot_index: SlotIndex) {
        let cause = self.node(id).cause();
        let vote = Vote::Failed(cause);
        if let Some(op) = self.slots.at(slot_index).op {
            let op = self.ops.at_mut(op);
            op.round.enter(id, vote);
            op.blame(id, cause);
        }
        self.node_mut(id).counts.failed.up(cause);
        traced!(TRACE: self.trace_vote(id, slot_index, vote));
    }

    /// A node in good standing granted.
    #[inline(always)]
    pub(super) fn set_granted(&mut self, id: NodeId, slot_index: SlotIndex, now: Instant) {
        let slot = self.slots.at_mut(slot_index);
        if slot.state != SlotState::Acquiring {
            return self.set_read(id, slot_index, Answer::Ok, now);
        }
        slot.unanswered.remove(id);
        slot.refs -= u16::from(!mutant::is(Mutant::SlotLeaked));
        let quorum = self.settings.quorum - u32::from(mutant::is(Mutant::QuorumOffByOne));
        let Some(op) = slot.op else { return };
        traced!(TRACE: self.trace_vote(id, slot_index, Vote::Granted));
        let round = &mut self.ops.at_mut(op).round;
        // Nothing but the end of its connection, or of the round, makes a vote unknown before its answer.
        round.grant(id);
        if round.is_quorum_just_met(quorum) {
            self.decide(slot_index, self.both_clocks(now));
        }
    }

    /// The answer to a SET was read; it names its slot no more.
    #[inline(never)]
    pub(super) fn set_read(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Answer,
        now: Instant,
    ) {
        self.set_answered(id, slot_index, answer, self.both_clocks(now));
        self.answer_taken(slot_index);
    }

    /// A node answered the SET of an attempt.
    #[inline]
    pub(super) fn set_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Answer,
        now: Now,
    ) {
        // Who was told meanwhile that the node is no master believes no grant behind that.
        let is_believed = self.node(id).is_plain()
            || self.is_believed_in_trouble(id, answer, now)
            || mutant::is(Mutant::DistrustedGrantCounts);
        let vote = match answer {
            Answer::Ok if !is_believed => Vote::Unknown(Cause::Quarantined),
            Answer::Ok => Vote::Granted,
            Answer::Null => Vote::Denied,
            Answer::Refused(cause) => Vote::Failed(cause),
            Answer::Zero | Answer::One | Answer::NoScript | Answer::Odd => {
                Vote::Unknown(Cause::OddReply)
            }
        };
        if let Some(node) = self.nodes.get_mut(id.index()) {
            match vote {
                // Counted where it was read.
                Vote::Granted => {}
                Vote::Denied => node.counts.denied.up(),
                Vote::Failed(cause) => node.counts.failed.up(cause),
                Vote::Unknown(cause) => node.counts.unknown.up(cause),
            }
        }
        traced!(TRACE: self.trace_vote(id, slot_index, vote));
        let slot = self.slots.at_mut(slot_index);
        if vote == Vote::Granted {
            slot.granted.insert(id);
        }
        slot.unanswered.remove(id);
        if matches!(vote, Vote::Denied | Vote::Failed(_)) {
            // Nothing was written, unless a release already went to it and will say so itself.
            slot.holds.remove(id);
        }
        if let Some(op) = slot.op {
            let op = self.ops.at_mut(op);
            if op.kind == OpKind::Acquire {
                op.round.enter(id, vote);
            }
        }
        match slot.state {
            SlotState::Acquiring => {
                if let (Vote::Failed(cause) | Vote::Unknown(cause), Some(op)) = (vote, slot.op) {
                    self.ops.at_mut(op).blame(id, cause);
                }
                self.decide(slot_index, now);
            }
            SlotState::Gated => {
                if let (Vote::Failed(cause) | Vote::Unknown(cause), Some(op)) = (vote, slot.op) {
                    self.ops.at_mut(op).blame(id, cause);
                }
                self.gate_answered(slot_index, now);
            }
            SlotState::Held if vote == Vote::Granted => self.note_late_vote(slot_index),
            SlotState::Released => {
                // Its TTL may have begun only now.
                let gone_at = now.real.plus_millis(slot.ttl_longest_ms);
                if !mutant::is(Mutant::DebtEndsTooSoon) {
                    slot.ends = slot.ends.max(gone_at);
                }
                if let (Vote::Denied, Some(op)) = (vote, slot.op) {
                    self.waiting.denied_late(op, id);
                }
            }
            SlotState::Held => self.check_holders(slot_index, now),
            SlotState::Free => {}
        }
    }

    /// Whoever shows the lease's votes is to look at them again.
    pub(super) fn note_late_vote(&mut self, slot_index: SlotIndex) {
        if self.slots.at_mut(slot_index).enter(LATE_VOTE) {
            self.late_votes.push_back(slot_index);
        }
    }

    /// The next lease that a late answer gave another vote. Each is there once, so a list that
    /// nobody reads does not grow beyond the leases.
    pub fn poll_late_vote(&mut self) -> Option<LeaseId> {
        let slot = self.late_votes.pop_front()?;
        self.slots.at_mut(slot).leave(LATE_VOTE);
        Some(self.slots.lease_id(slot))
    }

    /// Whether the answer of a node counts that is not admitted, or in trouble: and perhaps no more.
    #[cold]
    fn is_believed_in_trouble(&mut self, id: NodeId, answer: Answer, now: Now) -> bool {
        let node = self.node_mut(id);
        if answer == Answer::Ok {
            node.granted_in_trouble(now.real);
        }
        node.is_admitted()
    }

    /// The connection ended before the SET was answered.
    pub(super) fn set_lost(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        let slot = self.slots.at_mut(slot_index);
        let vote = Vote::Unknown(Cause::ConnectionLost);
        if slot.state != SlotState::Released {
            self.node_mut(id).counts.unknown.up(Cause::ConnectionLost);
            traced!(TRACE: self.trace_vote(id, slot_index, vote));
        }
        let slot = self.slots.at_mut(slot_index);
        if matches!(slot.state, SlotState::Acquiring | SlotState::Gated) {
            let is_gated = slot.state == SlotState::Gated;
            if let Some(op) = slot.op {
                let op = self.ops.at_mut(op);
                op.round.enter(id, vote);
                op.blame(id, Cause::ConnectionLost);
            }
            if is_gated {
                self.gate_answered(slot_index, now);
            } else {
                self.decide(slot_index, now);
            }
        }
    }
}

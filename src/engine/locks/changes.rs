//! What the nodes say about the keys of leases.
//!
//! # Invariants
//!
//! - A push only takes votes from a lease, it never adds any: a node that told of a change does not
//!   count as holding the key until a genuine extension shows that it does.

use super::observe::Happening;
use super::op::Outcome;
use super::slot::SlotState;
use super::state::{Done, Failed, Locks};
use crate::command::Answer;
use crate::error::{Cause, Vote};
use crate::node::Now;
use crate::quorum::NodeId;
use crate::rules;
use crate::slab::{KeepIndex, SlotIndex};

impl Locks {
    /// The read behind a SET or an extension was answered: from here on the node tells of changes.
    pub(in crate::engine) fn tracked(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Answer,
        now: Now,
    ) {
        let Some(keep) = self.keep_of(slot_index) else { return };
        match answer {
            Answer::Ok | Answer::Zero | Answer::One if self.nodes.at(id).is_tracking() => {
                self.keeps.at_mut(keep).tracked.insert(id);
            }
            Answer::Null => self.doubt(id, keep, now),
            Answer::Ok
            | Answer::Zero
            | Answer::One
            | Answer::NoScript
            | Answer::Refused(_)
            | Answer::Number
            | Answer::Odd => {}
        }
    }

    /// The node may not hold the key any more.
    pub(in crate::engine) fn doubt(&mut self, id: NodeId, index: KeepIndex, now: Now) {
        let Some(slot_index) = self.keeps.at(index).slot else { return };
        let slot = self.slots.at(slot_index);
        // Between two attempts another call may already have the slot of the last one.
        if self.keep_of(slot_index) != Some(index) {
            return;
        }
        // A key that was there before its SET, or without it, is not the lease's.
        let is_early = rules::is_change_before_set(slot.unanswered.contains(id));
        if is_early || !rules::is_change_to_lease(slot.holds.contains(id)) {
            return;
        }
        let state = slot.state;
        let keep = self.keeps.at_mut(index);
        keep.tracked.remove(id);
        keep.doubted.insert(id);
        match state {
            SlotState::Acquiring => self.withdraw_vote(id, slot_index),
            SlotState::Held => self.check_holders(slot_index, now),
            SlotState::Gated
            | SlotState::Offered
            | SlotState::Released
            | SlotState::Detached
            | SlotState::Free => {}
        }
    }

    /// The node granted, and then told before the hand-over that its key is gone. A lock won by
    /// this vote is no longer won, and its loss is not reported, because the caller never had it.
    fn withdraw_vote(&mut self, id: NodeId, slot_index: SlotIndex) {
        let Some(index) = self.slots.at(slot_index).op else { return };
        let quorum = self.settings.quorum;
        let op = self.ops.at_mut(index);
        // A vote that did not count in the first place keeps its own cause.
        if !op.round.withdraw(id) {
            return;
        }
        op.blame(id, Cause::Gone);
        let vote = Vote::Unknown(Cause::Gone);
        self.observe(Happening::Vote { node: id, slot: slot_index, vote });
        let op = self.ops.at_mut(index);
        if op.outcome != Outcome::Won {
            self.decide(slot_index);
        } else if !rules::is_still_won(op.round.granted.has_at_least(quorum)) {
            op.outcome = Outcome::Open;
            self.done.retain(|&done| done != Done::Op(index));
            let outcome = Outcome::Expired;
            self.failed.push_back(Failed { op: index, outcome });
        }
    }
}

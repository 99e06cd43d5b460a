//! The nodes' answers to the two rounds of a fenced attempt.
//!
//! # Invariants
//!
//! - An accept counts only where a grant of the node would: it was read from an admitted node.

use super::core::{Failed, Locks};
use super::slot::TokenState;
use crate::command::Answer;
use crate::error::{Cause, Vote};
use crate::node::Now;
use crate::quorum::NodeId;
use crate::rules;
use crate::slab::SlotIndex;

impl Locks {
    /// A node answered the command of a fenced attempt.
    #[must_use]
    pub(in crate::engine) fn fenced_set_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Answer,
        now: Now,
    ) -> Option<Failed> {
        let vote = match answer {
            Answer::One | Answer::Number => self.vote_of_grant(id, now),
            Answer::Zero => Vote::Denied,
            Answer::Refused(Cause::Unsupported) => Vote::Failed(Cause::NoScripts),
            Answer::Refused(Cause::NoPermission) => Vote::Unknown(Cause::NoScripts),
            Answer::Refused(cause) => Vote::Unknown(cause),
            Answer::Ok | Answer::Null | Answer::Odd => Vote::Unknown(Cause::OddReply),
        };
        if rules::is_accept_trusted(vote == Vote::Granted)
            && let Some(fencing) = self.slots.fences.of_mut(slot_index)
        {
            if answer == Answer::Number {
                fencing.refuse(self.nodes.at(id).number());
            } else if answer == Answer::One {
                fencing.accept(id);
            }
        }
        self.see_counter(id, slot_index, answer, now);
        if vote == Vote::Granted {
            self.send_raise(id, slot_index, now);
        }
        self.voted(id, slot_index, vote, now)
    }

    fn see_counter(&mut self, id: NodeId, slot_index: SlotIndex, answer: Answer, now: Now) {
        if answer == Answer::Number {
            self.see_fence(slot_index, self.nodes.at(id).number(), now);
        }
    }

    /// A node answered the second round.
    #[must_use]
    pub(in crate::engine) fn raise_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Answer,
        now: Now,
    ) -> Option<Failed> {
        self.see_counter(id, slot_index, answer, now);
        // An accept does not count if it was read after the node said that it is not a master.
        let is_accepted = answer == Answer::One
            && rules::is_accept_trusted(self.vote_of_grant(id, now) == Vote::Granted);
        self.raise_ended(id, slot_index, is_accepted);
        if answer == Answer::Zero && self.slots.at(slot_index).state() == TokenState::Asking {
            // The node no longer holds the key for this client.
            if let Some(op) = self.slots.at(slot_index).op {
                self.ops.at_mut(op).round.withdraw(id);
                self.ops.at_mut(op).blame(id, Cause::Gone);
            }
        }
        self.decide(slot_index)
    }

    /// The connection ended before the second round was answered.
    #[must_use]
    pub(in crate::engine) fn raise_lost(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
    ) -> Option<Failed> {
        self.raise_ended(id, slot_index, false);
        self.decide(slot_index)
    }

    fn raise_ended(&mut self, id: NodeId, slot_index: SlotIndex, is_accepted: bool) {
        if self.slots.at(slot_index).state() == TokenState::Asking
            && let Some(fencing) = self.slots.fences.of_mut(slot_index)
        {
            fencing.raised(id, is_accepted);
        }
    }
}

//! Batches: one command that takes the place of a SET for each of several attempts.
//!
//! A node answers which of the SETs it has carried out. Each attempt has its own key, token and
//! votes, as if its SET had been sent alone.
//!
//! # Invariants
//!
//! - Until a node has answered, it may hold the key of each attempt of the batch.
//! - A batch lives until each node that it was written to has answered, or its connection has ended.

use super::core::{Failed, Locks};
use crate::command::{Answer, append_first_free};
use crate::error::Cause;
use crate::node::{Now, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::{BatchIndex, OpIndex, SlotIndex};

/// One command for several attempts, in the order of its keys.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Batch {
    slots: Vec<SlotIndex>,
    /// The nodes whose answer the client awaits.
    awaited: NodeMask,
}

impl Locks {
    /// The voters that run scripts; `None` if they are fewer than a quorum.
    pub(in crate::engine) fn voters_with_scripts(&self) -> Option<NodeMask> {
        let mut able = NodeMask::EMPTY;
        for id in self.nodes.voters().into_iter().filter(|id| self.nodes.at(*id).runs_scripts()) {
            able.insert(id);
        }
        able.has_at_least(self.settings.quorum).then_some(able)
    }

    /// Asks `nodes` for the first of these keys that is free. Each attempt has been
    /// [prepared](Self::prepare_attempt).
    pub(in crate::engine) fn ask_for_first_free(
        &mut self,
        attempts: &[(OpIndex, SlotIndex)],
        nodes: NodeMask,
        now: Now,
    ) -> Vec<Failed> {
        let slots: Vec<SlotIndex> = attempts.iter().map(|(_, slot)| *slot).collect();
        let names = slots.iter().map(|slot| self.slots.at(*slot));
        let ttl_ms = names.clone().map(|slot| slot.ttl_ms).next().unwrap_or_default();
        self.scratch.clear();
        append_first_free(&mut self.scratch, names.map(|slot| (&slot.key, &slot.token)), ttl_ms);
        let batch = self.batches.insert(Batch { slots, awaited: NodeMask::EMPTY });
        let written = batch.map_or(NodeMask::EMPTY, |batch| self.write_batch(batch, nodes, now));
        let mut failed = Vec::new();
        for &(op, slot_index) in attempts {
            self.ops.at_mut(op).round.written = written;
            let slot = self.slots.at_mut(slot_index);
            (slot.holds, slot.unanswered) = (written, written);
            slot.refs += u16::try_from(written.count()).unwrap_or(u16::MAX);
            for node in self.nodes.all().without(written) {
                self.fail_vote(node, slot_index);
            }
            self.begin_round(op, now);
            self.judge_by_call(op, self.ops.at(op).plan.deadline, now);
            failed.extend(self.decide(slot_index));
        }
        failed
    }

    /// Writes the encoded batch. Returns the nodes that it went to.
    fn write_batch(&mut self, index: BatchIndex, nodes: NodeMask, now: Now) -> NodeMask {
        let mut written = NodeMask::EMPTY;
        for id in nodes {
            if self.nodes.request(id, Request::Batch(index), &self.scratch, now.attended) {
                written.insert(id);
            }
        }
        self.batches.at_mut(index).awaited = written;
        if written.is_empty() {
            self.batches.give_back(index);
        }
        written
    }

    /// A node answered a batch.
    pub(in crate::engine) fn batch_answered(
        &mut self,
        id: NodeId,
        index: BatchIndex,
        answer: Answer,
        now: Now,
    ) -> Vec<Failed> {
        let slots = self.batch_ended(index, id);
        let number = usize::try_from(self.nodes.at(id).number()).unwrap_or(usize::MAX);
        let granted = match answer {
            Answer::Zero => None,
            Answer::Number => number.checked_sub(1).filter(|place| *place < slots.len()),
            Answer::Ok
            | Answer::Null
            | Answer::One
            | Answer::NoScript
            | Answer::Refused(_)
            | Answer::Odd => None,
        };
        let is_understood = answer == Answer::Zero || granted.is_some();
        let mut failed = Vec::new();
        for (place, slot) in slots.into_iter().enumerate() {
            let answer = match answer {
                _ if rules::is_granted_in_batch(granted, place) => Answer::Ok,
                _ if is_understood => Answer::Null,
                Answer::Refused(Cause::Unsupported | Cause::NoPermission) => {
                    Answer::Refused(Cause::NoScripts)
                }
                Answer::Refused(cause) => Answer::Refused(cause),
                Answer::Ok
                | Answer::Null
                | Answer::Zero
                | Answer::One
                | Answer::Number
                | Answer::NoScript
                | Answer::Odd => Answer::Odd,
            };
            failed.extend(self.set_answered(id, slot, answer, now));
            self.slots.unref(slot);
        }
        failed
    }

    /// The connection ended before a batch was answered.
    pub(in crate::engine) fn batch_lost(
        &mut self,
        id: NodeId,
        index: BatchIndex,
        now: Now,
    ) -> Vec<Failed> {
        let mut failed = Vec::new();
        for slot in self.batch_ended(index, id) {
            failed.extend(self.set_lost(id, slot, now));
            self.slots.unref(slot);
        }
        failed
    }

    /// No more is to come from this node. Returns the attempts of the batch.
    fn batch_ended(&mut self, index: BatchIndex, id: NodeId) -> Vec<SlotIndex> {
        let batch = self.batches.at_mut(index);
        batch.awaited.remove(id);
        if !batch.awaited.is_empty() {
            return batch.slots.clone();
        }
        let slots = std::mem::take(&mut batch.slots);
        self.batches.give_back(index);
        slots
    }
}

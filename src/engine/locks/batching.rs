//! How a batch asks the nodes, and what their answers mean for each of its attempts.
//!
//! A node answers which of the SETs it has carried out. Each attempt has its own key, token and
//! votes, as if its SET had been sent alone.
//!
//! # Invariants
//!
//! - Until a node has answered, it may hold the key of each attempt of the batch.

use super::batch::BatchKind;
use super::core::{Failed, Locks};
use crate::command::{Answer, append_first_free, append_set_all};
use crate::error::{Cause, Vote};
use crate::node::{Now, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::{BatchIndex, OpIndex, SlotIndex};

impl Locks {
    /// The nodes that a batch can ask; `None` if the client must send SETs instead.
    pub(in crate::engine) fn able_to_batch(&self, kind: BatchKind) -> Option<NodeMask> {
        let voters = self.nodes.voters();
        let is_able = |id: &NodeId| match kind {
            BatchKind::FirstFree => self.nodes.at(*id).runs_scripts(),
            BatchKind::All => self.nodes.at(*id).dialect.sets_several,
        };
        let able: NodeMask = voters.into_iter().filter(is_able).collect();
        // All nodes can be asked by SETs, but a SET cannot ask for the first free key.
        let is_enough = kind == BatchKind::FirstFree || able == voters;
        (is_enough && self.settings.electorate.has_quorum(able)).then_some(able)
    }

    /// Asks `nodes` by one command. Each attempt has been [prepared](Self::prepare_attempt).
    pub(in crate::engine) fn ask_in_batch(
        &mut self,
        kind: BatchKind,
        attempts: &[(OpIndex, SlotIndex)],
        nodes: NodeMask,
        now: Now,
    ) -> Vec<Failed> {
        if attempts.is_empty() {
            return Vec::new();
        }
        let slots: Vec<SlotIndex> = attempts.iter().map(|(_, slot)| *slot).collect();
        let locks = slots.iter().map(|slot| self.slots.at(*slot));
        let ttl_ms = locks.clone().map(|slot| slot.ttl_ms).next().unwrap_or_default();
        let locks = locks.map(|slot| (&slot.key, &slot.token));
        self.scratch.clear();
        match kind {
            BatchKind::FirstFree => append_first_free(&mut self.scratch, locks, ttl_ms),
            BatchKind::All => append_set_all(&mut self.scratch, locks, ttl_ms),
        }
        let batch = self.batches.open(kind, slots);
        let written = batch.map_or(NodeMask::EMPTY, |batch| self.write_batch(batch, nodes, now));
        let mut failed = Vec::new();
        for &(op, slot_index) in attempts {
            self.ops.at_mut(op).round.written = written;
            let slot = self.slots.at_mut(slot_index);
            (slot.holds, slot.unanswered) = (written, written);
            slot.refs += u16::try_from(written.count()).unwrap_or(u16::MAX);
            for node in self.nodes.all().without(written) {
                self.fail_vote(node, slot_index);
                if self.nodes.voters().contains(node) && !nodes.contains(node) {
                    self.ops.at_mut(op).blame(node, Cause::NoScripts);
                }
            }
            self.begin_round(op, now);
            self.judge_by_call(op, self.ops.at(op).plan.deadline, now);
            if written != self.nodes.all() {
                failed.extend(self.decide(slot_index));
            }
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
        self.batches.written(index, written);
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
        let kind = self.batches.at(index).kind;
        let slots = self.batches.ended(index, id);
        let number = usize::try_from(self.nodes.at(id).number()).unwrap_or(usize::MAX);
        let named = number.checked_sub(1).filter(|place| *place < slots.len());
        let mut failed = Vec::new();
        for (place, slot) in slots.into_iter().enumerate() {
            let is_granted = match (kind, answer) {
                (_, Answer::Zero) => Some(false),
                (BatchKind::All, Answer::One) => Some(true),
                (BatchKind::FirstFree, Answer::Number) if named.is_some() => {
                    Some(rules::is_granted_in_batch(named, place))
                }
                _ => None,
            };
            let answer = match (is_granted, answer) {
                (Some(true), _) => Answer::Ok,
                (Some(false), _) => Answer::Null,
                (None, Answer::Refused(Cause::Unsupported | Cause::NoPermission))
                    if kind == BatchKind::FirstFree =>
                {
                    Answer::Refused(Cause::NoScripts)
                }
                (None, Answer::Refused(cause)) => Answer::Refused(cause),
                (None, _) => Answer::Odd,
            };
            // With two lists, the number of grants does not decide.
            let counts = answer == Answer::Ok && self.settings.electorate.takes_any();
            let is_vote = counts && self.vote_of_grant(id, now) == Vote::Granted;
            if is_vote && self.set_granted(id, slot) {
                continue;
            }
            failed.extend(self.set_answered(id, slot, answer, now));
            self.slots.unref(slot);
        }
        self.learn_from_batch(id, kind, answer, now);
        failed
    }

    /// A missing right to the command says nothing else about the node.
    fn learn_from_batch(&mut self, id: NodeId, kind: BatchKind, answer: Answer, now: Now) {
        let Answer::Refused(cause) = answer else { return };
        match (kind, cause) {
            (BatchKind::All, Cause::NoPermission | Cause::Unsupported) => {
                self.nodes.at_mut(id).dialect.sets_several = false;
            }
            (BatchKind::FirstFree, Cause::NoPermission | Cause::Unsupported) => {
                self.nodes.at_mut(id).script_refused(answer, now);
            }
            (BatchKind::All | BatchKind::FirstFree, cause) => {
                self.nodes.note_refusal(id, cause, now.real);
            }
        }
    }

    /// The connection ended before a batch was answered.
    pub(in crate::engine) fn batch_lost(
        &mut self,
        id: NodeId,
        index: BatchIndex,
        now: Now,
    ) -> Vec<Failed> {
        let mut failed = Vec::new();
        for slot in self.batches.ended(index, id) {
            failed.extend(self.set_lost(id, slot, now));
            self.slots.unref(slot);
        }
        failed
    }
}

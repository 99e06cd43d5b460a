//! How a batch asks the nodes, and what their answers mean for each of its keys.
//!
//! A node answers which of the SETs it has carried out. Each key has its own slot and token, as if its
//! SET had been sent alone. Where a node takes the first free key, each key has an attempt of its own.
//! Where it takes all, they have one: the first slot names its operation, and has its votes.
//!
//! # Invariants
//!
//! - Until a node has answered, it may hold each key of the batch.

use std::sync::Arc;

use super::batch::BatchKind;
use super::core::{Failed, Locks};
use super::op::Verdict;
use super::slot::Slot;
use crate::command::{Answer, append_first_free, append_set_all};
use crate::engine::happenings::Happening;
use crate::error::{Cause, Vote};
use crate::node::{Now, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::{BatchIndex, OpIndex, SlotIndex};

impl Locks {
    /// The nodes that a batch can ask; `None` if SETs have to.
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

    /// Prepares one attempt at the keys of all these slots.
    pub(in crate::engine) fn prepare_all(
        &mut self,
        index: OpIndex,
        slots: &Arc<Vec<SlotIndex>>,
        now: Now,
    ) {
        let Some((&first, others)) = slots.split_first() else { return };
        self.prepare_attempt(index, first, now);
        let Slot { ttl_ms, ends, began, .. } = *self.slots.at(first);
        for &other in others {
            let slot = self.slots.at_mut(other);
            (slot.ttl_ms, slot.ttl_longest_ms, slot.ends, slot.began) =
                (ttl_ms, ttl_ms, ends, began);
        }
        let op = self.ops.at_mut(index);
        (op.all, op.failed) = (Some(Arc::clone(slots)), Verdict::Open);
    }

    /// Asks `nodes` by one command. Each attempt has been [prepared](Self::prepare_attempt), or all
    /// keys have [one](Self::prepare_all).
    pub(in crate::engine) fn ask_in_batch(
        &mut self,
        kind: BatchKind,
        slots: &Arc<Vec<SlotIndex>>,
        nodes: NodeMask,
        now: Now,
    ) -> Vec<Failed> {
        if slots.is_empty() {
            return Vec::new();
        }
        let locks = slots.iter().map(|slot| self.slots.at(*slot));
        let ttl_ms = locks.clone().map(|slot| slot.ttl_ms).next().unwrap_or_default();
        let locks = locks.map(|slot| (&slot.key, &slot.token));
        self.scratch.clear();
        match kind {
            BatchKind::FirstFree => append_first_free(&mut self.scratch, locks, ttl_ms),
            BatchKind::All => append_set_all(&mut self.scratch, locks, ttl_ms),
        }
        let batch = self.batches.open(kind, Arc::clone(slots));
        let written = batch.map_or(NodeMask::EMPTY, |batch| self.write_batch(batch, nodes, now));
        let mut failed = Vec::new();
        let count = u16::try_from(written.count()).unwrap_or(u16::MAX);
        for &slot_index in slots.iter() {
            let slot = self.slots.at_mut(slot_index);
            (slot.holds, slot.unanswered) = (written, written);
            slot.refs += count;
            let op = slot.op;
            if let Some(op) = op {
                self.ops.at_mut(op).round.written = written;
            }
            for node in self.nodes.all().without(written) {
                self.fail_vote(node, slot_index);
                if let Some(op) =
                    op.filter(|_| self.nodes.voters().contains(node) && !nodes.contains(node))
                {
                    self.ops.at_mut(op).blame(node, Cause::NoScripts);
                }
            }
            // Of an attempt at all keys, the first slot names the operation.
            let Some(op) = op else { continue };
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
        for (place, &slot) in slots.iter().enumerate() {
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
            // Of two lists, the number of grants does not decide.
            let counts = self.nodes.at(id).is_plain() && self.settings.electorate.takes_any();
            if answer == Answer::Ok && counts && self.set_granted(id, slot) {
                if kind == BatchKind::All {
                    self.others_granted(id, slots.get(1..).unwrap_or_default());
                    break;
                }
                continue;
            }
            failed.extend(self.set_answered(id, slot, answer, now));
            self.slots.unref(slot);
        }
        self.learn_from_batch(id, kind, answer, now);
        failed
    }

    /// The first key of an attempt at all has counted a grant, which is for these, too.
    fn others_granted(&mut self, id: NodeId, others: &[SlotIndex]) {
        for &slot_index in others {
            let slot = self.slots.at_mut(slot_index);
            slot.unanswered.remove(id);
            slot.refs = rules::names_left(slot.refs);
            self.observe(Happening::Vote { node: id, slot: slot_index, vote: Vote::Granted });
        }
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
        for &slot in self.batches.ended(index, id).iter() {
            failed.extend(self.set_lost(id, slot, now));
            self.slots.unref(slot);
        }
        failed
    }
}

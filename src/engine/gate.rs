//! Attempts that do not ask all nodes at once: one node first where many may try for a key that
//! they saw end, so that they do not split the votes; and those on their way where they are needed.

use super::Engine;
use super::op::{OpKind, Outcome};
use super::slot::SlotState;
use crate::error::{Cause, Vote};
use crate::mutant::{self, Mutant};
use crate::node::Now;
use crate::quorum::NodeId;
use crate::slab::{OpIndex, SlotIndex};
use crate::witness::{Sight, saw};

impl Engine {
    /// Writes the encoded SET to one node first, the others being asked once it has granted. Whether
    /// there are enough of them.
    #[cold]
    pub(super) fn try_gate(
        &mut self,
        gate: NodeId,
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) -> bool {
        let mut gated = self.nodes.voters();
        gated.remove(gate);
        let is_use = self.nodes.voters().contains(gate) && !gated.is_empty();
        if !is_use || gated.count() + 1 < self.settings.quorum {
            return false;
        }
        saw(Sight::Gated);
        self.slots.at_mut(slot_index).state = SlotState::Gated;
        self.send_set(gate, slot_index, now);
        self.track_sets(index, slot_index, now);
        self.ops.at_mut(index).gated = gated;
        let absent = self.nodes.all().without(self.nodes.voters());
        for node in absent {
            self.fail_vote(node, slot_index);
        }
        self.begin_gated_round(index, now);
        // The gate may have had no room for it.
        self.gate_answered(slot_index, now);
        true
    }

    fn begin_gated_round(&mut self, index: OpIndex, now: Now) {
        self.begin_round(index, now);
        self.limit_attempt(index, now);
    }

    /// What follows from the votes of an attempt that has asked one node only.
    pub(super) fn gate_answered(&mut self, slot_index: SlotIndex, now: Now) {
        let slot = self.slots.at_mut(slot_index);
        let Some(index) = slot.op else { return };
        let round = self.ops.at(index).round;
        if !round.granted.is_empty() {
            slot.state = SlotState::Acquiring;
            // The answer may be the first thing that was read for a while.
            let now = self.now(now.real);
            let gated = std::mem::take(&mut self.ops.at_mut(index).gated);
            self.encode_set(slot_index);
            for node in gated {
                // It may have left since.
                if self.nodes.voters().contains(node) {
                    self.send_set(node, slot_index, now);
                } else {
                    self.fail_vote(node, slot_index);
                }
            }
            self.track_sets(index, slot_index, now);
            self.begin_gated_round(index, now);
            self.decide(slot_index, now);
        } else if round.open().is_empty() {
            let is_taken = !round.denied.is_empty();
            let outcome = if is_taken { Outcome::Taken } else { Outcome::NoQuorum };
            let gated = std::mem::take(&mut self.ops.at_mut(index).gated);
            for node in gated {
                let round = &mut self.ops.at_mut(index).round;
                round.enter(node, Vote::Failed(Cause::Gated));
                self.ops.at_mut(index).blame(node, Cause::Gated);
                self.nodes.counts(node).failed.up(Cause::Gated);
            }
            self.attempt_failed(index, outcome, now);
        }
    }

    /// A node that acquisitions wait for may vote now, or will not.
    pub(super) fn settle_awaiting(&mut self, id: NodeId, now: Now) {
        let can_vote = self.nodes.voters().contains(id);
        let waiting = std::mem::take(&mut self.awaiting);
        for index in waiting {
            let op = self.ops.at(index);
            if op.outcome != Outcome::Open || op.kind == OpKind::Query {
                continue;
            }
            let (slot_index, kind) = (op.slot(), op.kind);
            let slot = self.slots.at_mut(slot_index);
            // The place of the operation may be another's by now, and the attempt decided.
            let is_waiting = match kind {
                OpKind::Acquire => slot.state == SlotState::Acquiring,
                OpKind::Extend | OpKind::Adopt | OpKind::Keep => slot.state == SlotState::Held,
                OpKind::Release | OpKind::Query | OpKind::Free => false,
            };
            if !is_waiting && !mutant::is(Mutant::DecidedAttemptStillWaits) {
                continue;
            }
            let round = &mut self.ops.at_mut(index).round;
            if round.awaited.contains(id) && slot.op == Some(index) {
                round.awaited.remove(id);
                if kind != OpKind::Acquire {
                    self.settle_awaited_extension(id, index, slot_index, now);
                } else if can_vote {
                    self.send_awaited_set(id, index, slot_index, now);
                    self.decide(slot_index, now);
                } else {
                    self.fail_vote(id, slot_index);
                    self.decide(slot_index, now);
                }
            }
            let is_waiting = !self.ops.at(index).round.awaited.is_empty();
            let op = self.ops.at(index);
            if is_waiting && op.slot() == slot_index && op.outcome == Outcome::Open {
                self.awaiting.push(index);
            }
        }
    }

    fn send_awaited_set(&mut self, id: NodeId, index: OpIndex, slot_index: SlotIndex, now: Now) {
        let deadline = self.deadline_from(now.real, self.ops.at(index).plan.ttl_ms);
        let is_first = self.ops.at(index).round.written.is_empty();
        if is_first || mutant::is(Mutant::AwaitedSetMovesT0) {
            // `t0` is the time of the first byte.
            self.slots.at_mut(slot_index).ends = deadline;
        }
        self.encode_set(slot_index);
        self.send_set(id, slot_index, now);
        self.track_sets(index, slot_index, now);
        let round = &self.ops.at(index).round;
        if round.written.count() >= self.settings.quorum {
            let timeout = self.ops.at(index).plan.own_timeout();
            if let Some(timeout) = timeout {
                self.ops.judge_apart(index, now.attended + timeout);
            }
            self.judge_at(index, now.real + timeout.unwrap_or(self.settings.node_timeout));
        }
    }
}

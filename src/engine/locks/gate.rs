//! Attempts that ask one node, the gate, before the others. If many clients saw a key end, they then
//! do not split the votes. The gate of a lock with slots is a key: see `sets/slots.rs`.

use super::core::{Failed, Locks};
use super::op::Verdict;
use super::slot::TokenInput;
use crate::engine::happenings::Happening;
use crate::error::{Cause, Vote};
use crate::node::Now;
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};

impl Locks {
    /// The nodes that an attempt asks once the gate has granted; `None` if there are too few.
    #[cold]
    pub(super) fn gated_by(&self, gate: NodeId, voters: NodeMask) -> Option<NodeMask> {
        let mut gated = voters;
        gated.remove(gate);
        let is_use = voters.contains(gate) && !gated.is_empty();
        (is_use && self.settings.electorate.has_quorum(voters)).then_some(gated)
    }

    /// Writes the encoded SET to the gate first. The attempt asks the others once the gate has
    /// granted.
    #[cold]
    #[must_use]
    pub(super) fn try_gate(
        &mut self,
        (gate, gated): (NodeId, NodeMask),
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) -> Option<Failed> {
        let mut voters = gated;
        voters.insert(gate);
        self.observe(Happening::Gated);
        self.slots.at_mut(slot_index).step(TokenInput::Gate);
        self.send_set(gate, slot_index, now);
        self.ops.at_mut(index).gated = gated;
        let absent = self.nodes.all().without(voters);
        for node in absent {
            self.fail_vote(node, slot_index);
        }
        self.begin_round(index, now);
        // The gate may have had no room for the SET.
        self.gate_answered(slot_index, now)
    }

    /// Continues an attempt that has asked one node only, by that node's vote.
    #[must_use]
    pub(super) fn gate_answered(&mut self, slot_index: SlotIndex, now: Now) -> Option<Failed> {
        let slot = self.slots.at_mut(slot_index);
        let index = slot.op?;
        let round = self.ops.at(index).round;
        if !round.granted.is_empty() {
            slot.step(TokenInput::Open);
            // The engine may have read nothing for a while before this answer.
            let now = self.now(now.real);
            let gated = std::mem::take(&mut self.ops.at_mut(index).gated);
            self.encode_set(slot_index);
            for node in gated {
                // The node may have lost its vote since.
                if rules::may_be_asked(self.nodes.voters().contains(node)) {
                    self.send_set(node, slot_index, now);
                } else {
                    self.fail_vote(node, slot_index);
                }
            }
            self.begin_round(index, now);
            self.decide(slot_index)
        } else if round.open().is_empty() {
            let is_taken = !round.denied.is_empty();
            let outcome = if is_taken { Verdict::Taken } else { Verdict::NoQuorum };
            let gated = std::mem::take(&mut self.ops.at_mut(index).gated);
            for node in gated {
                let round = &mut self.ops.at_mut(index).round;
                round.enter(node, Vote::Failed(Cause::Gated));
                self.ops.at_mut(index).blame(node, Cause::Gated);
                self.observe(Happening::NotAsked { node });
            }
            Some(Failed { op: index, outcome })
        } else {
            None
        }
    }
}

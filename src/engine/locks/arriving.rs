//! Operations that wait for nodes on their way, if a quorum needs them.

use super::core::{Failed, Locks};
use super::op::{OpKind, Verdict};
use super::slot::TokenState;
use crate::node::Now;
use crate::quorum::NodeId;
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};

impl Locks {
    /// A node for which the operation may wait can vote now, or never will. Returns the operation's
    /// slot if it may still wait for other nodes, and whether its attempt has failed.
    #[must_use]
    pub(in crate::engine) fn settle_awaiting(
        &mut self,
        id: NodeId,
        index: OpIndex,
        now: Now,
    ) -> Option<(SlotIndex, Option<Failed>)> {
        let can_vote = self.nodes.voters().contains(id);
        let op = self.ops.at(index);
        if op.outcome != Verdict::Open || matches!(op.kind, OpKind::Query | OpKind::Set) {
            return None;
        }
        let (slot_index, kind) = (op.slot(), op.kind);
        let slot = self.slots.at_mut(slot_index);
        // By now another operation may have the place, and the attempt may be decided.
        let is_waiting = match kind {
            OpKind::Acquire => slot.state() == TokenState::Asking,
            OpKind::Extend | OpKind::Adopt | OpKind::Keep => slot.state() == TokenState::Held,
            OpKind::Release | OpKind::Query | OpKind::Set | OpKind::Free => false,
        };
        if !rules::may_still_wait(is_waiting) {
            return None;
        }
        let mut failed = None;
        let round = &mut self.ops.at_mut(index).round;
        if round.awaited.contains(id) && slot.op == Some(index) {
            round.awaited.remove(id);
            if kind != OpKind::Acquire {
                self.settle_awaited_extension(id, index, slot_index, now);
            } else {
                if can_vote {
                    self.send_awaited_set(id, index, slot_index, now);
                } else {
                    self.fail_vote(id, slot_index);
                }
                failed = self.decide(slot_index);
            }
        }
        Some((slot_index, failed))
    }

    /// The operation goes on waiting, if its slot still needs that.
    pub(in crate::engine) fn await_on(&mut self, index: OpIndex, slot_index: SlotIndex) {
        let op = self.ops.at(index);
        let is_waiting = !op.round.awaited.is_empty() && op.outcome == Verdict::Open;
        if is_waiting && op.slot() == slot_index {
            self.awaiting.push(index);
        }
    }

    fn send_awaited_set(&mut self, id: NodeId, index: OpIndex, slot_index: SlotIndex, now: Now) {
        let t0 = rules::validity_begins(now.real);
        let deadline = self.deadline_from(t0, self.ops.at(index).plan.ttl_ms);
        let is_first = self.ops.at(index).round.written.is_empty();
        if rules::begins_validity(is_first) {
            // `t0` is the time of the first byte.
            self.slots.at_mut(slot_index).ends = deadline;
        }
        self.encode_set(slot_index);
        self.send_set(id, slot_index, now);
        let round = &self.ops.at(index).round;
        if self.settings.electorate.has_quorum(round.written) {
            self.judge_at(index, now.real + self.settings.node_timeout);
        }
    }
}

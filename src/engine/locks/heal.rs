//! Nodes that have forgotten a lease get its token again, with its next extension.
//!
//! # Invariants
//!
//! - If a node that held the key answers that the key is gone, a client deleted the key there. The
//!   node never gets the token again, unless it restarted, was a replica, or was silent for a TTL.
//! - Only a node that may vote gets the token. One that has restarted gives nobody a vote until all
//!   that it may have forgotten is over.
//! - Such a SET is a SET: the release goes behind it, and its node may hold the key meanwhile.

use super::core::Locks;
use super::op::OpKind;
use super::slot::{Mark, TokenState};
use crate::engine::happenings::Happening;
use crate::node::{Now, Process, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};

use std::time::Duration;

impl Locks {
    /// Those of the nodes `absent`, which lack the key, that get the token again with this extension.
    /// An adoption heals none: the client does not know yet whether a quorum holds the lease.
    pub(super) fn nodes_to_heal(
        &self,
        absent: NodeMask,
        index: OpIndex,
        slot_index: SlotIndex,
    ) -> NodeMask {
        let slot = self.slots.at(slot_index);
        if absent.is_empty() || !rules::may_heal(self.ops.at(index).kind != OpKind::Adopt) {
            return NodeMask::EMPTY;
        }
        let forgetful = rules::nodes_that_forgot(absent, slot.granted);
        // The client asks no tainted node of a doubted lease, and a second SET taints its node.
        let twice = if slot.has(Mark::DOUBTED) { slot.unanswered } else { NodeMask::EMPTY };
        let sure = rules::nodes_to_heal(forgetful, slot.doubted().union(twice));
        rules::nodes_healed(sure, self.nodes.voters())
    }

    /// Writes the SETs of an extension.
    pub(super) fn heal(
        &mut self,
        nodes: NodeMask,
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) {
        if nodes.is_empty() {
            return;
        }
        self.encode_plain_set(slot_index);
        for id in nodes {
            // As for an extension: half of the count of references is left for the release.
            let has_room = self.slots.at(slot_index).refs <= u16::MAX / 2;
            if !has_room || !self.write(id, Request::Set(slot_index), now) {
                let cause = self.nodes.at(id).cause();
                let op = self.ops.at_mut(index);
                op.tally.no(id);
                op.blame(id, cause);
                continue;
            }
            self.observe(Happening::Healed { node: id, slot: slot_index });
            let slot = self.slots.at_mut(slot_index);
            if slot.unanswered.contains(id) {
                // The answer to this SET says nothing of the first, which may still run.
                slot.tainted.insert(id);
            }
            slot.holds = rules::with_healed(slot.holds, NodeMask::of(id));
            slot.unanswered.insert(id);
            let op = self.ops.at_mut(index);
            op.round.written.insert(id);
            op.tally.open.insert(id);
        }
    }

    /// A node answers again after this silence. A new process runs no command that was sent to the
    /// process before. But the address may lead back to that process.
    #[cold]
    pub(in crate::engine) fn node_is_back(
        &mut self,
        id: NodeId,
        silence: Duration,
        process: Process,
    ) {
        let least_ttl = Duration::from_millis(self.settings.least_ttl_ms.into());
        let is_reborn = process == Process::New;
        let may_be_first = rules::may_be_first(process == Process::Other, self.reborn.contains(id));
        if !is_reborn && !may_be_first && silence < least_ttl {
            return;
        }
        if is_reborn {
            self.reborn.insert(id);
            self.led_back.remove(id);
            self.unsettled.iter_mut().for_each(|left| left.nodes.remove(id));
        } else if may_be_first {
            self.led_back.insert(id);
        }
        let held = |place: &SlotIndex| self.slots.at(*place).state() == TokenState::Held;
        let leases: Vec<SlotIndex> =
            self.slots.iter().map(|(index, _)| index).filter(held).collect();
        for index in leases {
            let slot = self.slots.at_mut(index);
            if is_reborn {
                slot.tainted.remove(id);
                slot.unanswered.remove(id);
            } else if may_be_first {
                // The client has forgotten whether that process has answered its SET.
                slot.tainted.insert(id);
                slot.unanswered.insert(id);
                slot.holds.insert(id);
            }
            // The key's time there is over, unless another command has extended it.
            if silence >= Duration::from_millis(slot.ttl_longest_ms.into())
                && slot.holds.contains(id)
            {
                slot.granted.remove(id);
                self.note_change(index);
            }
        }
    }
}

//! Tracking on the nodes: they tell when another client changes the key of a lease.
//!
//! # Invariants
//!
//! - What a push is about follows from the order on its connection: a push read behind the answer
//!   to the lease's own SET is about the lease.

use super::slot::{LeaseId, SlotState};
use super::state::Locks;
use crate::node::{Now, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::slab::{OpIndex, SlotIndex};

impl Locks {
    /// For now the entry of the operation's lease belongs to this slot.
    #[cold]
    pub(in crate::engine) fn bind_keep(&mut self, index: OpIndex, slot_index: SlotIndex) {
        let Some(keep) = self.ops.at(index).keep else { return };
        self.keeps.bind(keep, slot_index);
        self.slots.at_mut(slot_index).set_kept(true);
        let keep = self.keeps.at_mut(keep);
        (keep.tracked, keep.doubted) = (NodeMask::EMPTY, NodeMask::EMPTY);
    }

    /// Behind the SETs of an attempt: tracks the keys on the nodes that may now have them.
    #[cold]
    pub(in crate::engine) fn track_sets(
        &mut self,
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) {
        if self.ops.at(index).keep.is_none() {
            return;
        }
        if !self.slots.at(slot_index).is_kept() {
            self.bind_keep(index, slot_index);
        }
        for id in self.slots.at(slot_index).unanswered {
            self.track(id, slot_index, now);
        }
    }

    /// Behind an attempt that has just begun, and may already have ended.
    #[cold]
    pub(in crate::engine) fn track_attempt(&mut self, index: OpIndex, now: Now) {
        let slot_index = self.ops.at(index).slot();
        let slot = self.slots.at(slot_index);
        if slot.state == SlotState::Acquiring && slot.op == Some(index) {
            self.track_sets(index, slot_index, now);
        }
    }

    /// Behind an extension.
    pub(in crate::engine) fn track_extension(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        now: Now,
    ) {
        if self.slots.at(slot_index).is_kept() {
            self.track(id, slot_index, now);
        }
    }

    fn track(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        let keep = self.keep_of(slot_index);
        if keep.is_none_or(|keep| self.keeps.at(keep).watched.is_none()) {
            return;
        }
        let slot = self.slots.at_mut(slot_index);
        let request = Request::Tracked(slot_index);
        if self.nodes.track(id, &slot.key, request, now.attended) {
            slot.refs += 1;
        }
    }

    /// A node was greeted: it has forgotten what it tracked for an earlier connection.
    pub(in crate::engine) fn track_all(&mut self, id: NodeId, now: Now) {
        for index in self.keeps.all_watchers() {
            let keep = self.keeps.at_mut(index);
            keep.tracked.remove(id);
            let Some(slot_index) = keep.slot.filter(|_| keep.is_held) else { continue };
            if self.slots.at(slot_index).holds.contains(id) {
                self.track(id, slot_index, now);
            }
        }
    }

    /// The connection ended before the key was tracked.
    pub(in crate::engine) fn untracked(&mut self, id: NodeId, slot_index: SlotIndex) {
        if let Some(keep) = self.keep_of(slot_index) {
            self.keeps.at_mut(keep).tracked.remove(id);
        }
    }

    /// A node extended the key: it holds the key, whatever it told before.
    pub(in crate::engine) fn key_confirmed(&mut self, id: NodeId, slot_index: SlotIndex) {
        if let Some(keep) = self.keep_of(slot_index) {
            self.keeps.at_mut(keep).doubted.remove(id);
        }
    }

    /// The nodes that will tell at once when another client changes the key of `lease`, if it is
    /// watched.
    #[must_use]
    pub(in crate::engine) fn watched(&self, lease: LeaseId) -> NodeMask {
        let keep = self.slots.held(lease).and_then(|_| self.keep_of(lease.slot));
        keep.map_or(NodeMask::EMPTY, |keep| self.keeps.at(keep).tracked)
    }
}

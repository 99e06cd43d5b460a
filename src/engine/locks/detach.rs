//! Leases that are given away.
//!
//! # Invariants
//!
//! - From then on the client writes no command that changes a key by the token: it forgets the
//!   token.
//! - A caller gives a lease away only while no node may still run an earlier delete or extension of
//!   it. A later run would come behind the commands of the client that adopts the lease.
//! - A client adopts no lock that it has, or of which it owes a delete: its own commands would end
//!   the lease.
//! - An adoption that fails may leave an extension on a connection that ends. The client remembers the
//!   node: it does not count in a longer adoption of the same lock, unless it surely restarted since.
//! - A node whose address has led back to an older process counts in no adoption until it restarts.

use super::core::Locks;
use super::handover::Unsettled;
use super::slot::{LeaseId, Mark};
use super::steps::TokenInput;
use crate::error::DetachError;
use crate::node::Request;
use crate::quorum::NodeMask;
use crate::rules;
use crate::slab::SlotIndex;
use crate::token::TokenBytes;

/// The client remembers so many locks, and forgets the oldest first.
const UNSETTLED_MAX: usize = 1024;

impl Locks {
    /// Leaves a lease to its TTL, or to another client with its token.
    pub(in crate::engine) fn give_up(&mut self, slot_index: SlotIndex) {
        self.end_keep_alive(slot_index);
        self.leave_slot(slot_index);
    }

    /// Whether the lease may be given away now.
    pub(in crate::engine) fn may_detach(&self, lease: LeaseId) -> Result<(), DetachError> {
        self.slots.held(lease).ok_or(DetachError::NotOurs)?;
        let unsettled = self.nodes_unsettled(lease.slot);
        if !rules::is_settled(unsettled.is_empty()) {
            let names = self.nodes.names().iter().zip(self.nodes.every());
            let names = names.filter(|&(_, id)| unsettled.contains(id)).map(|(name, _)| &**name);
            let nodes = names.collect::<Vec<_>>().join(", ");
            return Err(DetachError::Unsettled { nodes });
        }
        Ok(())
    }

    /// The nodes that may still run a command which deletes or extends the slot's keys.
    fn nodes_unsettled(&self, slot_index: SlotIndex) -> NodeMask {
        let slot = self.slots.at(slot_index);
        let mut unsettled = slot.tainted;
        if let Some(op) = slot.op {
            unsettled = unsettled.union(self.ops.at(op).round.awaited);
        }
        // A SET of an extension gives the token again. The adopter could not know of it.
        let is_extended = slot.extensions > 0;
        for (id, node) in self.nodes.every().into_iter().zip(self.nodes.iter()) {
            let is_changing = |request| {
                matches!(request, Request::Release { slot, .. }
                    | Request::Debt { slot, .. }
                    | Request::Extend { slot, .. }
                    | Request::Transfer(slot) if slot == slot_index)
                    || is_extended && matches!(request, Request::Set(slot) if slot == slot_index)
            };
            if node.pending().any(|pending| is_changing(pending.request)) {
                unsettled.insert(id);
            }
        }
        unsettled
    }

    /// The client is about to leave a lock. It remembers the lock if an extension may still run later
    /// than a command over another connection.
    fn remember_unsettled(&mut self, slot_index: SlotIndex) {
        let (open, slot) = (self.nodes_unsettled(slot_index), self.slots.at(slot_index));
        let (nodes, ttl_ms) = (slot.tainted, slot.ttl_ms);
        let is_same = |left: &Unsettled| left.key == slot.key && left.token == slot.token;
        let is_known =
            |left: &Unsettled| is_same(left) && (left.nodes, left.ttl_ms) == (nodes, ttl_ms);
        if open.is_empty() || open == nodes && self.unsettled.iter().any(is_known) {
            return;
        }
        let (key, token, lease) =
            (slot.key.clone(), slot.token.clone(), self.slots.lease_id(slot_index));
        let slots = &self.slots;
        // Of a slot that is free, no extension is on its way.
        self.unsettled
            .retain(|it| !it.nodes.is_empty() || slots.lease_id(it.lease.slot) == it.lease);
        if self.unsettled.len() >= UNSETTLED_MAX {
            self.unsettled.pop_front();
        }
        self.unsettled.push_back(Unsettled { key, token, ttl_ms, nodes, lease });
    }

    /// Ends a slot without deleting its keys: the client forgets the token.
    pub(in crate::engine) fn leave_slot(&mut self, slot_index: SlotIndex) {
        if rules::is_forgotten(true) {
            self.remember_unsettled(slot_index);
            self.forget_offer(slot_index);
            let slot = self.slots.at_mut(slot_index);
            slot.step(TokenInput::GiveAway);
            slot.token = TokenBytes::Drawn([0; 20]);
        } else {
            self.slots.at_mut(slot_index).step(TokenInput::Release);
        }
        let slot = self.slots.at_mut(slot_index);
        slot.holds = NodeMask::EMPTY;
        if slot.has(Mark::KEPT) {
            self.end_keeping(slot_index);
        }
        self.slots.free_if_unnamed(slot_index);
    }
}

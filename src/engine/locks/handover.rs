//! The records of locks that change hands, by a script or by their token.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::slot::LeaseId;
use crate::beside::Beside;
use crate::key::Key;
use crate::quorum::{NodeId, NodeMask};
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;

/// The waiter to which a release hands its lock over.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Heir {
    pub(in crate::engine) token: [u8; 20],
    pub(in crate::engine) ttl_ms: u32,
    /// The nodes that run the script; the others get the plain release.
    pub(in crate::engine) nodes: NodeMask,
    /// The node for later messages: there they come behind the hand-over.
    pub(in crate::engine) near: NodeId,
    /// The place in the waiter's message where each script names its node.
    pub(in crate::engine) mark_at: usize,
}

/// All offers of an engine. Each counts as a reference to its slot.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Offers {
    /// The offers that have not ended, each with the call that would take a lock over by it.
    pub(super) open: Beside<SlotIndex, OpIndex>,
    /// The offers that have ended, in this order.
    pub(super) past: VecDeque<Past>,
}

/// An offer that has ended.
#[derive(Clone, Debug)]
pub(super) struct Past {
    pub(super) slot: SlotIndex,
    /// Until when the client remembers it.
    pub(super) until: Instant,
    /// The token that the key had before a holder last handed it over to the offer.
    pub(super) from: Option<[u8; 20]>,
}

impl Offers {
    /// The open offers of one call, the oldest first.
    pub(super) fn of(&self, op: OpIndex) -> SmallVec<[SlotIndex; 4]> {
        self.open.iter().filter(|(_, of)| **of == op).map(|(slot, _)| slot).collect()
    }

    /// All offers, even those that have ended.
    pub(super) fn all(&self) -> SmallVec<[SlotIndex; 8]> {
        let past = self.past.iter().map(|past| past.slot);
        self.open.iter().map(|(slot, _)| slot).chain(past).collect()
    }
}

/// A lock that the client has left while nodes might still run an extension of it.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Unsettled {
    pub(super) key: Key,
    pub(super) token: TokenBytes,
    pub(super) ttl_ms: u32,
    /// The nodes whose connection ended before they answered.
    pub(in crate::engine) nodes: NodeMask,
    /// The slot of which answers may still come.
    pub(super) lease: LeaseId,
}

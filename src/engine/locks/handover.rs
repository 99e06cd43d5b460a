//! What is kept of locks that change hands by a script.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::beside::Beside;
use crate::quorum::{NodeId, NodeMask};
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;

/// The waiter to which a release hands its lock over.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Heir {
    pub(in crate::engine) token: [u8; 20],
    pub(in crate::engine) ttl_ms: u32,
    /// The nodes that run the script; the others get the plain release.
    pub(in crate::engine) nodes: NodeMask,
    /// The node by which later messages come behind the hand-over.
    pub(in crate::engine) near: NodeId,
    /// Where what the waiter is told names the node by which it goes.
    pub(in crate::engine) mark_at: usize,
}

/// All offers of an engine. Each is counted among what names its slot.
#[derive(Debug, Default)]
pub(in crate::engine) struct Offers {
    /// The calls that would take a lock over by them.
    pub(super) open: Beside<SlotIndex, OpIndex>,
    /// Those that have ended, in this order.
    pub(super) past: VecDeque<Past>,
}

/// An offer that has ended.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) slot: SlotIndex,
    /// Until when it is remembered.
    pub(super) until: Instant,
    /// The token that the key had before it was last handed over to the offer.
    pub(super) from: Option<[u8; 20]>,
}

impl Offers {
    /// Those of one call that have not ended, the oldest first.
    pub(super) fn of(&self, op: OpIndex) -> SmallVec<[SlotIndex; 4]> {
        self.open.iter().filter(|(_, of)| **of == op).map(|(slot, _)| slot).collect()
    }

    /// Those that have ended too.
    pub(super) fn all(&self) -> SmallVec<[SlotIndex; 8]> {
        let past = self.past.iter().map(|past| past.slot);
        self.open.iter().map(|(slot, _)| slot).chain(past).collect()
    }
}

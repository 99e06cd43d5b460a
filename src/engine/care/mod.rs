//! The engine's care for a lease: its next extension, its end.
//!
//! # Invariants
//!
//! - A lease that is not kept alive has no entry here, and no timer.

mod claims;
mod keep_alive;

use std::collections::VecDeque;
use std::time::Duration;

use crate::engine::locks::op::OpId;
use crate::quorum::NodeMask;
use crate::slab::{Index, KeepIndex, Slab, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;

/// The engine's care for one lease, from its acquisition on.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Keep {
    /// The slot of the attempt, or of the lease.
    pub(in crate::engine) slot: Option<SlotIndex>,
    /// The acquisition or adoption from which the lease came.
    pub(in crate::engine) op: OpId,
    /// The holder writes its name beside the lock.
    pub(in crate::engine) is_announced: bool,
    /// Its claim, once the lease has begun.
    pub(in crate::engine) claim: Option<Claimed>,
    /// The caller has the lease; until then the entry belongs to the acquisition.
    pub(in crate::engine) is_held: bool,
    pub(in crate::engine) is_lost: bool,
    /// When the last extension began.
    pub(in crate::engine) began: Instant,
    /// When the next extension begins; [`Instant::MAX`] while one is under way, or if none will
    /// follow.
    pub(in crate::engine) extend_at: Instant,
}

/// The claim of a holder beside the lock of its lease.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Claimed {
    pub(in crate::engine) value: TokenBytes,
    /// The nodes to which it was written.
    pub(in crate::engine) nodes: NodeMask,
}

/// All entries of an engine.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Keeps {
    keeps: Slab<KeepIndex, Keep>,
    /// The entry of each slot that has one.
    by_slot: Vec<Option<KeepIndex>>,
    /// Slots of leases whose deadline the engine has moved.
    pub(in crate::engine) changed: VecDeque<SlotIndex>,
}

impl Keeps {
    /// An entry for an acquisition that is about to begin.
    pub(in crate::engine) fn open(&mut self, op: OpId) -> Option<KeepIndex> {
        let keep = Keep {
            slot: None,
            op,
            is_announced: false,
            claim: None,
            is_held: false,
            is_lost: false,
            began: Instant::default(),
            extend_at: Instant::MAX,
        };
        self.keeps.insert(keep)
    }

    /// The lease is over, or there was none.
    pub(in crate::engine) fn close(&mut self, index: KeepIndex) {
        self.keeps.give_back(index);
    }

    pub(in crate::engine) fn at(&self, index: KeepIndex) -> &Keep {
        self.keeps.at(index)
    }

    pub(in crate::engine) fn at_mut(&mut self, index: KeepIndex) -> &mut Keep {
        self.keeps.at_mut(index)
    }

    /// From now on the entry belongs to the attempt or the lease in this slot.
    pub(in crate::engine) fn bind(&mut self, index: KeepIndex, slot: SlotIndex) {
        let place = slot.place();
        if place >= self.by_slot.len() {
            self.by_slot.resize(place + 1, None);
        }
        if let Some(entry) = self.by_slot.get_mut(place) {
            *entry = Some(index);
        }
        self.at_mut(index).slot = Some(slot);
    }

    /// The entry of a slot that is kept. Of another slot it may be an entry that is closed.
    pub(in crate::engine) fn of_slot(&self, slot: SlotIndex) -> Option<KeepIndex> {
        self.by_slot.get(slot.place()).copied().flatten()
    }
}

/// A third of a TTL.
pub(in crate::engine) fn third(ttl_ms: u32) -> Duration {
    Duration::from_millis(ttl_ms.into()) / 3
}

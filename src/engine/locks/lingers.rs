//! What is kept of leases that may linger.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::slab::{Index as _, SlotIndex};
use crate::time::Instant;

/// What is kept of a lease that may linger.
#[derive(Debug)]
pub(super) struct Linger {
    /// How long its caller allows; zero for not at all.
    pub(super) limit: Duration,
    /// How many turns there were, and the deadline of the lease for which they count.
    pub(super) turns: u8,
    pub(super) ends: Instant,
    /// When its timer is due, if it has one.
    pub(super) due: Option<Instant>,
}

/// All leases of an engine that may linger.
#[derive(Debug, Default)]
pub(in crate::engine) struct Lingers {
    /// By the place of the slot.
    pub(super) entries: Vec<Option<Linger>>,
    /// Those that have lingered, until they are released, by the hash of the key. Of two keys with one hash the
    /// second does not linger.
    by_key: BTreeMap<u64, SlotIndex>,
}

impl Lingers {
    /// Whether no lease lingers, nor has lingered.
    #[inline]
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The lease that lingers, or has, for a key with this hash.
    pub(super) fn of(&self, hash: u64) -> Option<SlotIndex> {
        self.by_key.get(&hash).copied()
    }

    /// Notes a lease that lingers, unless another one does.
    pub(super) fn keep(&mut self, hash: u64, slot: SlotIndex) -> bool {
        *self.by_key.entry(hash).or_insert(slot) == slot
    }

    pub(super) fn forget(&mut self, hash: u64, slot: SlotIndex) {
        if self.of(hash) == Some(slot) {
            self.by_key.remove(&hash);
        }
    }

    /// The lease will not linger: its user has seen the token, or an extension failed.
    #[cold]
    pub(in crate::engine) fn forbid(&mut self, slot: SlotIndex) {
        if let Some(linger) = self.get_mut(slot) {
            linger.limit = Duration::ZERO;
        }
    }

    /// The slots of those that linger, or have.
    pub(in crate::engine) fn slots(&self) -> Vec<SlotIndex> {
        self.by_key.values().copied().collect()
    }

    pub(super) fn get(&self, slot: SlotIndex) -> Option<&Linger> {
        self.entries.get(slot.place())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: SlotIndex) -> Option<&mut Linger> {
        self.entries.get_mut(slot.place())?.as_mut()
    }
}

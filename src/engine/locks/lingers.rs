//! What is kept of leases that may linger.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
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
    /// Those that linger, by the hash of the key. Of two keys with one hash the second does not.
    pub(super) by_key: HashMap<u64, SlotIndex, BuildHasherDefault<DefaultHasher>>,
}

impl Lingers {
    /// Whether no lease lingers.
    #[inline]
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The slots of those that linger.
    pub(in crate::engine) fn slots(&self) -> Vec<SlotIndex> {
        let mut slots: Vec<_> = self.by_key.values().copied().collect();
        slots.sort_unstable_by_key(|slot| slot.place());
        slots
    }

    pub(super) fn get(&self, slot: SlotIndex) -> Option<&Linger> {
        self.entries.get(slot.place())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: SlotIndex) -> Option<&mut Linger> {
        self.entries.get_mut(slot.place())?.as_mut()
    }
}

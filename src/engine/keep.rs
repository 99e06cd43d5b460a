//! What the engine itself looks after of a lease: its next extension, its end.
//!
//! # Invariants
//!
//! - A lease that nobody wants kept has no entry here, and no timer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::event::LostCause;
use super::op::OpId;
use super::schedule::Schedule;
use super::slot::LeaseId;
use crate::acquire::KeepAlive;
use crate::quorum::NodeMask;
use crate::slab::{Index, Slab, SlotIndex, index_type};
use crate::time::Instant;

index_type! {
    /// What is looked after of a lease.
    pub(super) KeepIndex
}

/// What is looked after of one lease, from its acquisition on.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    /// The slot of the attempt, or of the lease.
    pub(super) slot: Option<SlotIndex>,
    /// The acquisition or adoption that the lease came from.
    pub(super) op: OpId,
    pub(super) options: Option<KeepAlive>,
    /// The key, if the nodes are to tell when it is changed.
    pub(super) watched: Option<Box<[u8]>>,
    /// The nodes that will tell.
    pub(super) tracked: NodeMask,
    /// The nodes that told, or turned out to be without the key. An extension may show otherwise.
    pub(super) doubted: NodeMask,
    /// The lease was handed over; until then the entry is the acquisition's.
    pub(super) is_held: bool,
    pub(super) is_lost: bool,
    /// A limit ended the extensions.
    pub(super) is_at_limit: bool,
    /// Extensions by the engine that won.
    pub(super) extensions: u32,
    /// When the last of them was begun.
    pub(super) began: Instant,
    /// When the next one begins; [`Instant::MAX`] while one is under way, or none is to come.
    pub(super) extend_at: Instant,
}

/// The loss of a lease that nobody was told of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) lease: LeaseId,
    pub(super) op: OpId,
    pub(super) cause: LostCause,
}

/// All entries of an engine.
#[derive(Debug)]
pub(super) struct Keeps {
    keeps: Slab<KeepIndex, Keep>,
    /// The entry of each slot that has one.
    by_slot: Vec<Option<KeepIndex>>,
    /// The entries of each key that is watched.
    by_key: BTreeMap<Box<[u8]>, Vec<KeepIndex>>,
    schedule: Schedule<KeepIndex>,
    /// The engine's own extensions that are decided.
    ended: Vec<OpId>,
    /// Slots of leases whose deadline the engine has moved.
    pub(super) changed: VecDeque<SlotIndex>,
    pub(super) losses: VecDeque<Loss>,
    /// When something is to be done; kept in step with the rest.
    next: Instant,
}

impl Default for Keeps {
    fn default() -> Self {
        Self {
            keeps: Slab::default(),
            by_slot: Vec::new(),
            by_key: BTreeMap::new(),
            schedule: Schedule::default(),
            ended: Vec::new(),
            changed: VecDeque::new(),
            losses: VecDeque::new(),
            next: Instant::MAX,
        }
    }
}

impl Keeps {
    /// An entry for an acquisition that is about to begin.
    pub(super) fn open(&mut self, op: OpId, options: Option<KeepAlive>) -> Option<KeepIndex> {
        let keep = Keep {
            slot: None,
            op,
            options,
            watched: None,
            tracked: NodeMask::EMPTY,
            doubted: NodeMask::EMPTY,
            is_held: false,
            is_lost: false,
            is_at_limit: false,
            extensions: 0,
            began: Instant::default(),
            extend_at: Instant::MAX,
        };
        self.keeps.insert(keep)
    }

    /// The lease is over, or there was none.
    pub(super) fn close(&mut self, index: KeepIndex) {
        self.unschedule(index);
        self.keeps.give_back(index);
        if let Some(key) = self.at_mut(index).watched.take()
            && let Some(entries) = self.by_key.get_mut(&key)
        {
            entries.retain(|&entry| entry != index);
            if entries.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// The key of the entry is watched.
    pub(super) fn watch(&mut self, index: KeepIndex, key: &[u8]) {
        self.at_mut(index).watched = Some(key.into());
        self.by_key.entry(key.into()).or_default().push(index);
    }

    /// The entries that watch `key`.
    pub(super) fn watchers(&self, key: &[u8]) -> Vec<KeepIndex> {
        self.by_key.get(key).cloned().unwrap_or_default()
    }

    /// All entries that watch.
    pub(super) fn all_watchers(&self) -> Vec<KeepIndex> {
        self.by_key.values().flatten().copied().collect()
    }

    pub(super) fn at(&self, index: KeepIndex) -> &Keep {
        self.keeps.at(index)
    }

    pub(super) fn at_mut(&mut self, index: KeepIndex) -> &mut Keep {
        self.keeps.at_mut(index)
    }

    /// The entry is that of the lease in this slot from now on.
    pub(super) fn bind(&mut self, index: KeepIndex, slot: SlotIndex) {
        let place = slot.place();
        if place >= self.by_slot.len() {
            self.by_slot.resize(place + 1, None);
        }
        if let Some(entry) = self.by_slot.get_mut(place) {
            *entry = Some(index);
        }
        self.at_mut(index).slot = Some(slot);
    }

    /// The entry of the slot, which must be one that is kept.
    pub(super) fn of_slot(&self, slot: SlotIndex) -> Option<KeepIndex> {
        self.by_slot.get(slot.place()).copied().flatten()
    }

    /// When something is to be done; [`Instant::MAX`] for never.
    #[inline]
    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    /// An extension by the engine is decided.
    pub(super) fn note_ended(&mut self, op: OpId) {
        self.ended.push(op);
        self.refresh();
    }

    pub(super) fn pop_ended(&mut self) -> Option<OpId> {
        let op = self.ended.pop();
        self.refresh();
        op
    }

    /// The entry that is due by `now`.
    pub(super) fn due(&self, now: Instant) -> Option<KeepIndex> {
        self.schedule.due(now)
    }

    /// The entry is due at `at`.
    pub(super) fn schedule(&mut self, index: KeepIndex, at: Instant) {
        self.schedule.set(index, at);
        self.refresh();
    }

    /// Nothing of the entry is due any more.
    pub(super) fn unschedule(&mut self, index: KeepIndex) {
        self.schedule.remove(index);
        self.refresh();
    }

    fn refresh(&mut self) {
        self.next = if self.ended.is_empty() { self.schedule.next() } else { Instant::default() };
    }
}

/// A third of a TTL.
pub(super) fn third(ttl_ms: u32) -> Duration {
    Duration::from_millis(ttl_ms.into()) / 3
}

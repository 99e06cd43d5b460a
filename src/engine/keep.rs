//! What the engine itself looks after of a lease: its next extension, its end.
//!
//! # Invariants
//!
//! - A lease that nobody wants kept has no entry here, and no timer.
//! - Entries are in a heap by the time they are due, and know their place in it: setting, moving and
//!   removing one costs the logarithm of their number, and nothing that has ended is left behind.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::event::LostCause;
use super::op::OpId;
use super::slot::LeaseId;
use crate::options::KeepAlive;
use crate::quorum::NodeMask;
use crate::time::Instant;

/// No entry.
pub(super) const NO_KEEP: u32 = u32::MAX;

const NOWHERE: u32 = u32::MAX;

/// Children of a place in the heap: four keep the heap flat, and siblings together in memory.
const ARITY: usize = 4;

/// What is looked after of one lease, from its acquisition on.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    pub(super) slot: u32,
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
    place: u32,
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
    keeps: Vec<Keep>,
    free: Vec<u32>,
    /// The entry of each slot that has one.
    by_slot: Vec<u32>,
    /// The entries of each key that is watched.
    by_key: BTreeMap<Box<[u8]>, Vec<u32>>,
    heap: Vec<(Instant, u32)>,
    /// The engine's own extensions that are decided.
    ended: Vec<OpId>,
    /// Slots of leases whose deadline the engine has moved.
    pub(super) changed: VecDeque<u32>,
    pub(super) losses: VecDeque<Loss>,
    /// When something is to be done; kept in step with the rest.
    next: Instant,
}

impl Default for Keeps {
    fn default() -> Self {
        Self {
            keeps: Vec::new(),
            free: Vec::new(),
            by_slot: Vec::new(),
            by_key: BTreeMap::new(),
            heap: Vec::new(),
            ended: Vec::new(),
            changed: VecDeque::new(),
            losses: VecDeque::new(),
            next: Instant::MAX,
        }
    }
}

impl Keeps {
    /// An entry for an acquisition that is about to begin.
    pub(super) fn open(&mut self, op: OpId, options: Option<KeepAlive>) -> u32 {
        let keep = Keep {
            slot: u32::MAX,
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
            place: NOWHERE,
        };
        if let Some(index) = self.free.pop() {
            *self.at_mut(index) = keep;
            return index;
        }
        self.keeps.push(keep);
        u32::try_from(self.keeps.len() - 1).unwrap_or(NO_KEEP)
    }

    /// The lease is over, or there was none.
    pub(super) fn close(&mut self, index: u32) {
        self.unschedule(index);
        self.free.push(index);
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
    pub(super) fn watch(&mut self, index: u32, key: &[u8]) {
        self.at_mut(index).watched = Some(key.into());
        self.by_key.entry(key.into()).or_default().push(index);
    }

    /// The entries that watch `key`.
    pub(super) fn watchers(&self, key: &[u8]) -> Vec<u32> {
        self.by_key.get(key).cloned().unwrap_or_default()
    }

    /// All entries that watch.
    pub(super) fn all_watchers(&self) -> Vec<u32> {
        self.by_key.values().flatten().copied().collect()
    }

    #[expect(clippy::indexing_slicing, reason = "whoever names an entry keeps it in the table")]
    pub(super) fn at(&self, index: u32) -> &Keep {
        &self.keeps[index as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "whoever names an entry keeps it in the table")]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Keep {
        &mut self.keeps[index as usize]
    }

    /// The entry is that of the lease in this slot from now on.
    pub(super) fn bind(&mut self, index: u32, slot: u32) {
        let place = slot as usize;
        if place >= self.by_slot.len() {
            self.by_slot.resize(place + 1, NO_KEEP);
        }
        if let Some(entry) = self.by_slot.get_mut(place) {
            *entry = index;
        }
        self.at_mut(index).slot = slot;
    }

    /// The entry of the slot, which must be one that is kept.
    pub(super) fn of_slot(&self, slot: u32) -> u32 {
        self.by_slot.get(slot as usize).copied().unwrap_or(NO_KEEP)
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
    pub(super) fn due(&self, now: Instant) -> Option<u32> {
        self.heap.first().filter(|(at, _)| *at <= now).map(|&(_, index)| index)
    }

    /// The entry is due at `at`.
    pub(super) fn schedule(&mut self, index: u32, at: Instant) {
        let place = self.at(index).place;
        if place == NOWHERE {
            self.heap.push((at, index));
            self.rise(self.heap.len() - 1);
        } else if let Some(entry) = self.heap.get_mut(place as usize) {
            let was = std::mem::replace(&mut entry.0, at);
            if at < was {
                self.rise(place as usize);
            } else {
                self.sink(place as usize);
            }
        }
        self.refresh();
    }

    /// Nothing of the entry is due any more.
    pub(super) fn unschedule(&mut self, index: u32) {
        let place = std::mem::replace(&mut self.at_mut(index).place, NOWHERE) as usize;
        if place >= self.heap.len() {
            return;
        }
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            // What came here from the end may belong above or below.
            self.sink(place);
            self.rise(place);
        }
        self.refresh();
    }

    fn refresh(&mut self) {
        let first = self.heap.first().map_or(Instant::MAX, |(at, _)| *at);
        self.next = if self.ended.is_empty() { first } else { Instant::default() };
    }

    /// Moves what is at `place` up to where it belongs.
    fn rise(&mut self, mut place: usize) {
        let Some(&entry) = self.heap.get(place) else { return };
        while place > 0 {
            let above = (place - 1) / ARITY;
            let Some(&other) = self.heap.get(above).filter(|other| entry.0 < other.0) else {
                break;
            };
            self.put(place, other);
            place = above;
        }
        self.put(place, entry);
    }

    /// Moves what is at `place` down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        let Some(&entry) = self.heap.get(place) else { return };
        loop {
            let first = place * ARITY + 1;
            let last = (first + ARITY).min(self.heap.len());
            let below = self.heap.get(first..last).unwrap_or_default();
            let least = below.iter().enumerate().min_by_key(|(_, (at, _))| *at);
            let Some((nth, &other)) = least.filter(|(_, (at, _))| *at < entry.0) else { break };
            self.put(place, other);
            place = first + nth;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: (Instant, u32)) {
        if let Some(free) = self.heap.get_mut(place) {
            *free = entry;
        }
        self.at_mut(entry.1).place = u32::try_from(place).unwrap_or(NOWHERE);
    }
}

/// A third of a TTL.
pub(super) fn third(ttl_ms: u32) -> Duration {
    Duration::from_millis(ttl_ms.into()) / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_due_in_order_however_they_were_moved_and_removed() {
        let mut keeps = Keeps::default();
        let op = OpId { op: 0, generation: 0 };
        let mut times = Vec::new();
        let mut random = 7_u64;
        let mut draw = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Instant::from_nanos(random >> 40)
        };
        for _ in 0..500 {
            let index = keeps.open(op, None);
            times.push(Some(draw()));
            keeps.schedule(index, draw());
        }
        for index in 0..500 {
            let place = &mut times[index as usize];
            if index % 5 == 0 {
                keeps.unschedule(index);
                *place = None;
            } else {
                *place = Some(draw());
                keeps.schedule(index, place.unwrap());
            }
        }
        let mut expected: Vec<_> = times.iter().flatten().copied().collect();
        expected.sort();
        for at in expected {
            assert_eq!(keeps.next(), at);
            assert_eq!(keeps.due(Instant::from_nanos(at.as_nanos() - 1)), None);
            let index = keeps.due(at).unwrap();
            assert_eq!(times[index as usize], Some(at));
            keeps.close(index);
        }
        assert_eq!(keeps.next(), Instant::MAX);
    }
}

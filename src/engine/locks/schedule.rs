//! When each entry of a table is due: a heap in which each entry knows its place.
//!
//! # Invariants
//!
//! - An entry is in the heap once or not at all: adding, moving and removing it takes logarithmic
//!   time, and an entry that has ended leaves nothing behind.

use crate::slab::{Index, index_type};
use crate::time::Instant;

index_type! {
    /// A place in the heap.
    HeapPlace
}

/// Children of a place in the heap: four keep the heap flat, and siblings together in memory.
const ARITY: usize = 4;

/// See the [module](self).
#[derive(Debug)]
pub(in crate::engine) struct Schedule<I> {
    heap: Vec<(Instant, I)>,
    /// Where each entry is in the heap, by its index.
    places: Vec<Option<HeapPlace>>,
}

impl<I> Default for Schedule<I> {
    fn default() -> Self {
        Self { heap: Vec::new(), places: Vec::new() }
    }
}

impl<I: Index> Schedule<I> {
    /// When the first entry is due; [`Instant::MAX`] for never.
    pub(in crate::engine) fn next(&self) -> Instant {
        self.heap.first().map_or(Instant::MAX, |(at, _)| *at)
    }

    /// The first entry, if due by `now`. It stays in the heap.
    pub(in crate::engine) fn due(&self, now: Instant) -> Option<I> {
        self.heap.first().filter(|(at, _)| *at <= now).map(|&(_, index)| index)
    }

    /// Makes the entry due at `at`, and at no other time.
    pub(in crate::engine) fn set(&mut self, index: I, at: Instant) {
        let Some(place) = self.place(index) else {
            self.heap.push((at, index));
            return self.rise(self.heap.len() - 1);
        };
        if let Some(entry) = self.heap.get_mut(place) {
            let was = std::mem::replace(&mut entry.0, at);
            if at < was {
                self.rise(place);
            } else {
                self.sink(place);
            }
        }
    }

    /// Removes the entry.
    pub(in crate::engine) fn remove(&mut self, index: I) {
        let Some(place) = self.place(index) else { return };
        self.note(index, None);
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            // The entry moved here from the end may belong above or below.
            self.sink(place);
            self.rise(place);
        }
    }

    fn place(&self, index: I) -> Option<usize> {
        self.places.get(index.place()).copied().flatten().map(Index::place)
    }

    fn note(&mut self, index: I, place: Option<HeapPlace>) {
        if index.place() >= self.places.len() {
            self.places.resize(index.place() + 1, None);
        }
        if let Some(known) = self.places.get_mut(index.place()) {
            *known = place;
        }
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

    fn put(&mut self, place: usize, entry: (Instant, I)) {
        if let Some(free) = self.heap.get_mut(place) {
            *free = entry;
        }
        self.note(entry.1, HeapPlace::at(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::OpIndex;

    #[test]
    fn entries_come_due_in_order_however_they_were_moved_and_removed() {
        let mut schedule = Schedule::default();
        let mut times = Vec::new();
        let mut random = 7_u64;
        let mut draw = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Instant::from_nanos(random >> 40)
        };
        let index = |place| OpIndex::at(place).unwrap();
        for place in 0..500 {
            times.push(None);
            schedule.set(index(place), draw());
        }
        for (place, time) in times.iter_mut().enumerate() {
            if place % 5 == 0 {
                schedule.remove(index(place));
            } else {
                let at = draw();
                *time = Some(at);
                schedule.set(index(place), at);
            }
        }
        let mut expected: Vec<_> = times.iter().flatten().copied().collect();
        expected.sort();
        for at in expected {
            assert_eq!(schedule.next(), at);
            assert_eq!(schedule.due(Instant::from_nanos(at.as_nanos() - 1)), None);
            let due = schedule.due(at).unwrap();
            assert_eq!(times[due.place()], Some(at));
            schedule.remove(due);
        }
        assert_eq!(schedule.next(), Instant::MAX);
    }
}

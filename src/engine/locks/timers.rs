//! All that is due outside the rounds, in one heap: calls, waits, leases, offers and lists. A table
//! has the place of each timer in the heap.
//!
//! # Invariants
//!
//! - A timer is in the heap once or not at all. Setting, moving and removing it takes logarithmic
//!   time, and a timer that has ended leaves nothing behind.

use crate::slab::{Index as _, KeepIndex, OpIndex, index_type};
use crate::time::Instant;

index_type! {
    /// A place in the heap.
    HeapPlace
}

/// The event that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Timer {
    /// The next attempt of a call.
    Retry(OpIndex),
    /// The timer of a wait.
    Wait(OpIndex),
    /// The end of a call, or of its wait for nodes: nodes without an answer are counted out.
    Judge(OpIndex),
    /// The result of an extension that the engine began by itself.
    Extended(OpIndex),
    /// The next extension of a lease, or its end.
    Keep(KeepIndex),
    /// The client forgets offers that have ended.
    Offers,
    /// The lists of nodes may change again, and nodes that have left them are given up.
    Lists,
}

impl Timer {
    const KINDS: usize = 5;

    /// A number that no other timer has.
    fn number(self) -> usize {
        let (place, kind) = match self {
            Self::Retry(op) => (op.place(), 0),
            Self::Wait(op) => (op.place(), 1),
            Self::Judge(op) => (op.place(), 2),
            Self::Extended(op) => (op.place(), 3),
            Self::Keep(keep) => (keep.place(), 4),
            Self::Offers => return 0,
            Self::Lists => return 1,
        };
        2 + place * Self::KINDS + kind
    }
}

/// Children of a place in the heap: four keep the heap flat, and siblings together in memory.
const ARITY: usize = 4;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Timers {
    heap: Vec<(Instant, Timer)>,
    /// The place of each timer in the heap, by its number.
    places: Vec<Option<HeapPlace>>,
}

impl Timers {
    /// When the first timer is due; [`Instant::MAX`] for never.
    #[inline]
    pub(in crate::engine) fn next(&self) -> Instant {
        self.heap.first().map_or(Instant::MAX, |(at, _)| *at)
    }

    /// How many timers are of an operation or a lease.
    #[cfg(feature = "sim")]
    pub(in crate::engine) fn of_work(&self) -> usize {
        let is_of_work = |timer: Timer| !matches!(timer, Timer::Offers | Timer::Lists);
        self.heap.iter().filter(|(_, timer)| is_of_work(*timer)).count()
    }

    #[cfg(test)]
    pub(in crate::engine) const fn len(&self) -> usize {
        self.heap.len()
    }

    /// Takes a timer that is due by `now`.
    pub(in crate::engine) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let timer = self.heap.first().filter(|(at, _)| *at <= now).map(|(_, timer)| *timer)?;
        self.remove(timer);
        Some(timer)
    }

    /// Makes the timer due at `at`, and at no other time.
    pub(in crate::engine) fn set(&mut self, timer: Timer, at: Instant) {
        let Some(place) = self.place(timer) else {
            self.heap.push((at, timer));
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

    pub(in crate::engine) fn remove(&mut self, timer: Timer) {
        let Some(place) = self.place(timer) else { return };
        self.note(timer, None);
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            // The entry that moved here from the end may belong above or below.
            self.sink(place);
            self.rise(place);
        }
    }

    /// The operation has ended.
    #[cold]
    pub(in crate::engine) fn remove_all_of(&mut self, op: OpIndex) {
        for timer in [Timer::Retry(op), Timer::Wait(op), Timer::Judge(op), Timer::Extended(op)] {
            self.remove(timer);
        }
    }

    /// Whether the timer will be due.
    pub(in crate::engine) fn is_set(&self, timer: Timer) -> bool {
        self.place(timer).is_some()
    }

    fn place(&self, timer: Timer) -> Option<usize> {
        self.places.get(timer.number()).copied().flatten().map(HeapPlace::place)
    }

    fn note(&mut self, timer: Timer, place: Option<HeapPlace>) {
        let number = timer.number();
        if number >= self.places.len() {
            self.places.resize(number + 1, None);
        }
        if let Some(known) = self.places.get_mut(number) {
            *known = place;
        }
    }

    /// Moves the entry at `place` up to where it belongs.
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

    /// Moves the entry at `place` down to where it belongs.
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

    fn put(&mut self, place: usize, entry: (Instant, Timer)) {
        if let Some(free) = self.heap.get_mut(place) {
            *free = entry;
        }
        self.note(entry.1, HeapPlace::at(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(number: usize) -> Timer {
        let place = number / Timer::KINDS;
        let (op, keep) = (OpIndex::at(place).unwrap(), KeepIndex::at(place).unwrap());
        let kinds = [
            Timer::Retry(op),
            Timer::Wait(op),
            Timer::Judge(op),
            Timer::Extended(op),
            Timer::Keep(keep),
        ];
        kinds[number % Timer::KINDS]
    }

    #[test]
    fn timers_come_due_in_order_however_they_were_moved_and_removed() {
        let mut timers = Timers::default();
        let mut times = Vec::new();
        let mut random = 7_u64;
        let mut draw = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Instant::from_nanos(random >> 40)
        };
        for number in 0..500 {
            assert_eq!(timer(number).number(), 2 + number);
            times.push(None);
            timers.set(timer(number), draw());
        }
        for (number, time) in times.iter_mut().enumerate() {
            if number % 7 == 0 {
                timers.remove(timer(number));
            } else {
                let at = draw();
                *time = Some(at);
                timers.set(timer(number), at);
            }
        }
        let mut expected: Vec<_> = times.iter().flatten().copied().collect();
        expected.sort();
        for at in expected {
            assert_eq!(timers.next(), at);
            assert_eq!(timers.pop_due(Instant::from_nanos(at.as_nanos() - 1)), None);
            let due = timers.pop_due(at).unwrap();
            assert_eq!(times[due.number() - 2], Some(at));
        }
        assert_eq!(timers.next(), Instant::MAX);
    }

    #[test]
    fn an_operation_that_has_ended_leaves_no_timer() {
        let mut timers = Timers::default();
        for number in 0..2 * Timer::KINDS {
            timers.set(timer(number), Instant::from_nanos(number as u64));
        }
        timers.remove_all_of(OpIndex::at(0).unwrap());
        let left: Vec<_> = std::iter::from_fn(|| timers.pop_due(Instant::MAX)).collect();
        let expected: Vec<_> = (Timer::KINDS - 1..2 * Timer::KINDS).map(timer).collect();
        assert_eq!(left, expected);
    }
}

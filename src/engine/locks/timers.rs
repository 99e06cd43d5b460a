//! The times at which something is due beside the rounds: for calls, waits and leases.
//!
//! # Invariants
//!
//! - A timer has one time or none. Setting, moving and removing it takes logarithmic time, and a
//!   timer that has ended leaves nothing behind.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::slab::{KeepIndex, OpIndex};
use crate::time::Instant;

/// The event that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Timers {
    in_order: BTreeSet<(Instant, Timer)>,
    /// The time of each timer.
    times: FxHashMap<Timer, Instant>,
}

impl Timers {
    /// When the first timer is due; [`Instant::MAX`] for never.
    #[inline]
    pub(in crate::engine) fn next(&self) -> Instant {
        self.in_order.first().map_or(Instant::MAX, |(at, _)| *at)
    }

    #[cfg(test)]
    pub(in crate::engine) fn len(&self) -> usize {
        self.in_order.len()
    }

    /// Takes a timer that is due by `now`.
    pub(in crate::engine) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let &(_, timer) = self.in_order.first().filter(|(at, _)| *at <= now)?;
        self.remove(timer);
        Some(timer)
    }

    /// Makes the timer due at `at`, and at no other time.
    pub(in crate::engine) fn set(&mut self, timer: Timer, at: Instant) {
        self.remove(timer);
        self.times.insert(timer, at);
        self.in_order.insert((at, timer));
    }

    pub(in crate::engine) fn remove(&mut self, timer: Timer) {
        if let Some(at) = self.times.remove(&timer) {
            self.in_order.remove(&(at, timer));
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
        self.times.contains_key(&timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Index as _;

    #[test]
    fn a_timer_that_was_moved_is_due_once_and_at_its_last_time() {
        let (mut timers, at) = (Timers::default(), Instant::from_nanos);
        let op = |place| OpIndex::at(place).unwrap();
        for (timer, nanos) in [
            (Timer::Retry(op(0)), 3),
            (Timer::Wait(op(0)), 1),
            (Timer::Wait(op(1)), 2),
            (Timer::Retry(op(0)), 4),
            (Timer::Offers, 5),
            (Timer::Wait(op(1)), 1),
        ] {
            timers.set(timer, at(nanos));
        }
        timers.remove(Timer::Offers);
        assert_eq!((timers.next(), timers.pop_due(at(0))), (at(1), None));
        let due: Vec<_> = std::iter::from_fn(|| timers.pop_due(at(9))).collect();
        assert_eq!(due, [Timer::Wait(op(0)), Timer::Wait(op(1)), Timer::Retry(op(0))]);
        assert_eq!((timers.next(), timers.len()), (Instant::MAX, 0));
    }

    #[test]
    fn an_operation_that_has_ended_leaves_no_timer() {
        let mut timers = Timers::default();
        let (one, other) = (OpIndex::at(0).unwrap(), OpIndex::at(1).unwrap());
        for op in [one, other] {
            for timer in [Timer::Retry(op), Timer::Wait(op), Timer::Judge(op), Timer::Extended(op)]
            {
                timers.set(timer, Instant::default());
            }
        }
        timers.remove_all_of(one);
        let left: Vec<_> = std::iter::from_fn(|| timers.pop_due(Instant::MAX)).collect();
        let [retry, wait, judge] = [Timer::Retry(other), Timer::Wait(other), Timer::Judge(other)];
        assert_eq!(left, [retry, wait, judge, Timer::Extended(other)]);
    }
}

//! How locks changed hands: in which way, and in what time from the release to the next holder.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use redbolt::engine::LeaseCounts;
use redbolt::{Instant, now};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::output::short;
use crate::times::{at, histogram, percentiles, record};

/// The way by which a lock came to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The previous holder handed it over.
    Transfer,
    /// By an attempt that began with a wake.
    Wake,
    /// By a later attempt that began without a wake.
    Poll,
    /// By the first attempt: no worker held the lock.
    First,
}

impl Way {
    /// The way of a lock that a client took between the two counts.
    pub(super) const fn between(before: LeaseCounts, after: LeaseCounts) -> Self {
        if after.transfer > before.transfer {
            Self::Transfer
        } else if after.wake > before.wake {
            Self::Wake
        } else if after.poll > before.poll {
            Self::Poll
        } else {
            Self::First
        }
    }
}

#[derive(Debug)]
pub(crate) struct Hands {
    /// When the last holder of each shelf's lock began to release it, in nanoseconds; 0 for none.
    released_at: Vec<AtomicU64>,
    seen: Mutex<Seen>,
}

/// The hand-overs so far.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Counts in the order of the ways; `First` counts nothing, because that lock had no holder.
    by: [u64; 4],
    times: Histogram<u64>,
}

impl Hands {
    pub(super) fn of(shelf_count: u32) -> Result<Self, Failure> {
        let seen = Mutex::new(Seen { by: [0; 4], times: histogram()? });
        Ok(Self { released_at: (0..shelf_count).map(|_| AtomicU64::new(0)).collect(), seen })
    }

    /// A holder begins to release the lock of its shelf.
    pub(super) fn released(&self, shelf: usize) {
        if let Some(at) = self.released_at.get(shelf) {
            at.store(now().as_nanos(), Ordering::SeqCst);
        }
    }

    /// A worker has the lock of a shelf.
    pub(super) fn taken(&self, shelf: usize, by: Way) {
        let time = now();
        let released = self.released_at.get(shelf).map_or(0, |at| at.load(Ordering::SeqCst));
        if by == Way::First || released == 0 {
            return;
        }
        // A panic can leave no half-changed counts behind.
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        record(&mut seen.times, Instant::from_nanos(released).until(time));
        if let Some(count) = seen.by.get_mut(by as usize) {
            *count += 1;
        }
    }

    /// The hand-overs so far; `None` if no lock has changed hands.
    pub(super) fn seen(&self) -> Option<Seen> {
        let seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (!seen.times.is_empty()).then(|| seen.clone())
    }
}

impl Seen {
    pub(super) fn json(&self) -> Value {
        let [transfer, wake, poll, _] = self.by;
        let us = percentiles(&self.times);
        json!({"transfer": transfer, "wake": wake, "poll": poll, "us": us})
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99] = [0.5, 0.99].map(|quantile| short(at(&self.times, quantile)));
        let [transfer, wake, poll, _] = self.by;
        write!(f, "p50 {p50}, p99 {p99}; {transfer} by transfer, {wake} by wake, {poll} by poll")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lock_that_was_waited_for_has_changed_hands() {
        let hands = Hands::of(2).unwrap();
        hands.taken(0, Way::Poll);
        hands.released(0);
        hands.taken(0, Way::First);
        assert!(hands.seen().is_none());
        hands.taken(0, Way::Transfer);
        hands.taken(1, Way::Transfer);
        let seen = hands.seen().unwrap();
        assert_eq!((seen.by, seen.times.len()), ([1, 0, 0, 0], 1));
        assert!(seen.to_string().ends_with("; 1 by transfer, 0 by wake, 0 by poll"), "{seen}");
    }
}

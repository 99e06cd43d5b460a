//! Counts of events and durations; compiles to nothing without the feature `metrics`.
//!
//! Layer: bottom, plain values. A count is one addition; the exporter reads the counts elsewhere.

use crate::error::Cause;
#[cfg(feature = "metrics")]
use crate::histogram::Histogram;
use crate::time::Instant;

/// How often something happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    #[cfg(feature = "metrics")]
    value: u64,
}

/// How often something happened, by its cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct CauseCounts {
    /// A short list: a node fails in few ways.
    #[cfg(feature = "metrics")]
    counts: Vec<(Cause, u64)>,
}

/// The fate of one node's votes, connections and debts; its grants are counted apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeCounts {
    pub(crate) denied: Count,
    pub(crate) failed: CauseCounts,
    pub(crate) unknown: CauseCounts,
    /// Connections, and attempts at one, that ended.
    pub(crate) lost: CauseCounts,
    /// Debts that arose.
    pub(crate) debts: Count,
    /// Releases still unanswered when the client ended.
    pub(crate) left: Count,
}

/// How long things took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    #[cfg(feature = "metrics")]
    histogram: Histogram,
}

/// When an event worth counting began; most have none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Began {
    /// Zero for none.
    #[cfg(feature = "metrics")]
    at: Instant,
}

#[cfg(not(feature = "metrics"))]
#[expect(clippy::needless_pass_by_ref_mut, reason = "it is counted with the feature only")]
mod off {
    //! Without the feature.

    use super::{Began, Cause, CauseCounts, Count, Instant, Times};

    impl Count {
        #[inline(always)]
        pub(crate) const fn up(&mut self) {}

        #[inline(always)]
        pub(crate) const fn add(&mut self, _: usize) {}
    }

    impl CauseCounts {
        #[inline(always)]
        pub(crate) const fn up(&mut self, _: Cause) {}
    }

    impl Times {
        #[inline(always)]
        pub(crate) const fn note(&mut self, _: Instant, _: Instant) {}
    }

    impl Began {
        #[inline(always)]
        pub(crate) const fn note(&mut self, _: Instant) {}

        #[inline(always)]
        pub(crate) const fn take(&mut self) -> Option<Instant> {
            None
        }
    }
}

#[cfg(feature = "metrics")]
mod on {
    //! With it.

    use super::{Began, Cause, CauseCounts, Count, Histogram, Instant, Times};

    impl Count {
        #[inline(always)]
        pub(crate) const fn up(&mut self) {
            self.value = self.value.wrapping_add(1);
        }

        pub(crate) const fn add(&mut self, count: usize) {
            self.value = self.value.wrapping_add(count as u64);
        }

        pub(crate) const fn value(self) -> u64 {
            self.value
        }
    }

    impl CauseCounts {
        #[cold]
        pub(crate) fn up(&mut self, cause: Cause) {
            match self.counts.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, count)) => *count = count.wrapping_add(1),
                None => self.counts.push((cause, 1)),
            }
        }

        pub(crate) fn iter(&self) -> impl Iterator<Item = (Cause, u64)> {
            self.counts.iter().copied()
        }
    }

    impl Times {
        /// The event began at `began` and ended at `now`.
        #[inline]
        pub(crate) fn note(&mut self, began: Instant, now: Instant) {
            self.histogram.add(now.nanos_since(began));
        }

        pub(crate) const fn histogram(&self) -> &Histogram {
            &self.histogram
        }
    }

    impl Began {
        /// The event began at `at`, unless it had begun before.
        pub(crate) const fn note(&mut self, at: Instant) {
            if self.at.as_nanos() == 0 {
                self.at = at;
            }
        }

        #[inline(always)]
        pub(crate) const fn take(&mut self) -> Option<Instant> {
            let at = std::mem::replace(&mut self.at, Instant::from_nanos(0));
            if at.as_nanos() == 0 { None } else { Some(at) }
        }
    }
}

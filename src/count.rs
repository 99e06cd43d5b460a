//! Counts of events and durations, for the feature `metrics`.
//!
//! Layer: bottom, plain values. A count is one addition; the exporter reads the counts elsewhere.

use crate::error::{Cause, Vote};
use crate::histogram::Histogram;
use crate::time::Instant;

/// How often something happened, by its cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct CauseCounts {
    /// A short list: a node fails in few ways.
    counts: Vec<(Cause, u64)>,
}

/// The fate of one node's votes, connections and debts.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeCounts {
    pub(crate) granted: u64,
    pub(crate) denied: u64,
    pub(crate) failed: CauseCounts,
    pub(crate) unknown: CauseCounts,
    /// Connections, and attempts at one, that ended.
    pub(crate) lost: CauseCounts,
    /// Debts that arose.
    pub(crate) debts: u64,
    /// Releases still unanswered when the client ended.
    pub(crate) left: u64,
}

/// How long things took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    histogram: Histogram,
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

impl NodeCounts {
    /// The node voted, or its vote became known without it.
    #[inline(always)]
    pub(crate) fn vote(&mut self, vote: Vote) {
        match vote {
            Vote::Granted => self.granted += 1,
            Vote::Denied => self.denied += 1,
            Vote::Failed(cause) => self.failed.up(cause),
            Vote::Unknown(cause) => self.unknown.up(cause),
        }
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

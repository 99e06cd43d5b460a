//! Counts of events and durations, for the feature `metrics`.
//!
//! Layer: bottom, plain values. A count is one addition; the exporter reads the counts elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Cause, LockError, Vote};
use crate::histogram::Histogram;
use crate::time::Instant;

/// How often something happened, by its cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct CauseCounts {
    /// A list, not a table: a node fails in few ways.
    counts: Vec<(Cause, u64)>,
}

/// How one node's votes, connections and debts ended.
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

/// How a call for a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    Won,
    /// Another client held the lock, and the call was not to wait.
    Taken,
    /// Another client held the lock until the time of the call was over.
    TimedOut,
    NoQuorum,
    Expired,
    /// The caller gave the call up, or the client ended.
    Cancelled,
    /// The call did not begin: too many were under way.
    Full,
    /// The call did not begin: no lock can have what it asked for.
    Invalid,
}

impl CallEnd {
    pub(crate) const ALL: [Self; 8] = [
        Self::Won,
        Self::Taken,
        Self::TimedOut,
        Self::NoQuorum,
        Self::Expired,
        Self::Cancelled,
        Self::Full,
        Self::Invalid,
    ];

    /// How a call that got no lock ended. `waits` says whether the call was to wait for the lock.
    pub(crate) const fn of(error: &LockError, waits: bool) -> Self {
        match error {
            LockError::Taken(_) if waits => Self::TimedOut,
            LockError::Taken(_) => Self::Taken,
            LockError::NoQuorum(_) => Self::NoQuorum,
            LockError::Expired(_) | LockError::Lost => Self::Expired,
            LockError::Cancelled | LockError::Closed => Self::Cancelled,
            LockError::Full => Self::Full,
            LockError::InvalidTtl { .. }
            | LockError::NoFences { .. }
            | LockError::NoLinger { .. }
            | LockError::ReservedKey
            | LockError::InvalidKey { .. }
            | LockError::InvalidKeys { .. } => Self::Invalid,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Taken => "taken",
            Self::TimedOut => "timed_out",
            Self::NoQuorum => "no_quorum",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Full => "full",
            Self::Invalid => "invalid",
        }
    }

    /// Whether the call had begun, so that its caller waited for its end.
    pub(crate) const fn has_begun(self) -> bool {
        !matches!(self, Self::Full | Self::Invalid)
    }
}

/// How a client's calls for locks ended, and how long their leases were held, as the callers see
/// it. The threads of a `Client`'s callers count its calls.
#[derive(Debug, Default)]
pub(crate) struct CallCounts {
    /// From the beginning of a call to its end, by how it ended.
    waits: [Histogram; CallEnd::ALL.len()],
    /// From the hand-over of a lease to its unlock or drop.
    holds: Histogram,
    /// Leases that one caller of a process handed on to the next.
    turns: AtomicU64,
    /// Leases that a caller of a client took again while they lingered.
    again: AtomicU64,
    /// Calls that wait behind others of their process.
    queued: AtomicU64,
}

/// When the oldest call under way began, and since when the oldest lease is held. Campaigns and
/// terms of elections are left out: they last for as long as their callers want.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Oldest {
    pub(crate) call: Option<Instant>,
    pub(crate) hold: Option<Instant>,
}

impl Oldest {
    /// A call is under way since `began`.
    pub(crate) fn note_call(&mut self, began: Instant) {
        self.call = Some(self.call.map_or(began, |call| call.min(began)));
    }

    /// A lease is held since `began`.
    pub(crate) fn note_hold(&mut self, began: Instant) {
        self.hold = Some(self.hold.map_or(began, |hold| hold.min(began)));
    }

    pub(crate) const fn is_any(&self) -> bool {
        self.call.is_some() || self.hold.is_some()
    }
}

impl CallCounts {
    /// A call ended that had begun `nanos` nanoseconds before.
    #[inline]
    pub(crate) fn ended(&mut self, end: CallEnd, nanos: u64) {
        if let Some(waits) = self.waits.get_mut(end as usize) {
            waits.add(nanos);
        }
    }

    /// A lease was held for `nanos` nanoseconds.
    #[inline]
    pub(crate) fn held(&mut self, nanos: u64) {
        self.holds.add(nanos);
    }

    /// How often calls ended in each way, and after how long.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (CallEnd, &Histogram)> {
        CallEnd::ALL.into_iter().zip(&self.waits)
    }

    pub(crate) const fn holds(&self) -> &Histogram {
        &self.holds
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(crate) fn again(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }

    pub(crate) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }
}

/// Counts from any thread.
impl CallCounts {
    pub(crate) fn ended_shared(&self, end: CallEnd, nanos: u64) {
        if let Some(waits) = self.waits.get(end as usize) {
            waits.add_shared(nanos);
        }
    }

    pub(crate) fn held_shared(&self, nanos: u64) {
        self.holds.add_shared(nanos);
    }

    pub(crate) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn taken_again(&self) {
        self.again.fetch_add(1, Ordering::Relaxed);
    }

    /// A call begins to queue behind others, or ceases to.
    pub(crate) fn queues(&self, does_it: bool) {
        let more = if does_it { 1 } else { u64::MAX };
        // Wraps around: adding the maximum subtracts one.
        self.queued.fetch_add(more, Ordering::Relaxed);
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

impl NodeCounts {
    /// The node voted, or the client settled its vote without an answer.
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

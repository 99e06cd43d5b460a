//! Counts of a client's calls for locks, and of the locks that its callers hold: the feature
//! `metrics`. Without it the client keeps no counts, and reads no clock for them.
//!
//! # Invariants
//!
//! - A call is counted once, on the thread that takes its result or gives it up.

#[cfg(feature = "metrics")]
use std::sync::Arc;

#[cfg(feature = "metrics")]
use crate::count::{CallCounts, CallEnd};
#[cfg(feature = "metrics")]
use crate::driver::clock::now;
use crate::error::LockError;
use crate::time::Instant;

/// Evaluates an expression that is only for the counts.
#[cfg(feature = "metrics")]
macro_rules! count {
    ($count:expr) => {
        $count
    };
}
#[cfg(not(feature = "metrics"))]
macro_rules! count {
    ($count:expr) => {{}};
}

/// The counts of a client.
#[derive(Clone, Default)]
pub(super) struct Counting {
    #[cfg(feature = "metrics")]
    counts: Arc<CallCounts>,
}

#[cfg_attr(
    not(feature = "metrics"),
    expect(unused_variables, clippy::unused_self, reason = "each is for the counts")
)]
impl Counting {
    #[cfg(feature = "metrics")]
    pub(super) fn counts(&self) -> Arc<CallCounts> {
        Arc::clone(&self.counts)
    }

    /// A lease went from one caller to the next.
    pub(super) fn turn(&self) {
        count!(self.counts.turn());
    }

    /// A caller took a lease that lingered.
    pub(super) fn taken_again(&self) {
        count!(self.counts.taken_again());
    }

    /// A call enters a queue behind others of this client, or leaves it.
    pub(super) fn queues(&self, does_it: bool) {
        count!(self.counts.queues(does_it));
    }

    /// The client refused a call at its beginning.
    pub(super) fn refused(&self, error: &LockError, waits: bool) {
        count!(self.counts.ended_shared(CallEnd::of(error, waits), 0));
    }

    /// A call began. `waits`: it waits for the lock if need be.
    pub(super) fn call(&self, began: Instant, waits: bool) -> CountedCall {
        CountedCall {
            #[cfg(feature = "metrics")]
            counts: self.counts(),
            #[cfg(feature = "metrics")]
            began,
            #[cfg(feature = "metrics")]
            waits,
            #[cfg(feature = "metrics")]
            end: CallEnd::Cancelled,
        }
    }

    /// A caller gives a lease back that it has had since `hold` began.
    pub(super) fn held(&self, hold: &Hold) {
        count!(self.counts.held_shared(now().nanos_since(hold.began)));
    }
}

/// A call under way. If this is dropped before the call's end, the caller has given the call up.
pub(super) struct CountedCall {
    #[cfg(feature = "metrics")]
    counts: Arc<CallCounts>,
    #[cfg(feature = "metrics")]
    began: Instant,
    #[cfg(feature = "metrics")]
    waits: bool,
    #[cfg(feature = "metrics")]
    end: CallEnd,
}

impl CountedCall {
    /// The call has its lock, or this error.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, unused_mut, reason = "each is for the counts")
    )]
    pub(super) fn ends(mut self, error: Option<&LockError>) {
        count!(self.end = error.map_or(CallEnd::Won, |error| CallEnd::of(error, self.waits)));
    }
}

#[cfg(feature = "metrics")]
impl Drop for CountedCall {
    fn drop(&mut self) {
        self.counts.ended_shared(self.end, now().nanos_since(self.began));
    }
}

/// A moment that only the counts need.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    #[cfg(feature = "metrics")]
    at: Option<Instant>,
}

#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "it is for the counts"))]
impl Moment {
    pub(super) const fn of(at: Instant) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            at: Some(at),
        }
    }

    /// The moment. If none is known, it is `now` from here on.
    #[cfg(feature = "metrics")]
    pub(super) fn or(&mut self, now: Instant) -> Instant {
        *self.at.get_or_insert(now)
    }
}

/// Since when a caller has its lease.
pub(super) struct Hold {
    #[cfg(feature = "metrics")]
    began: Instant,
}

impl Hold {
    pub(super) fn begins() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            began: now(),
        }
    }
}

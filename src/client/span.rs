//! [`CallSpan`] carries the span of a caller to the driving thread. Without the feature `tracing`
//! it is empty.
//!
//! # Invariants
//!
//! - No thread makes, clones or drops a span under the table's mutex: each of these calls the
//!   subscriber.

use std::time::Duration;

#[cfg(feature = "tracing")]
use tracing::{Level, Span, dispatcher, span::Id};

#[cfg(feature = "tracing")]
use crate::key;

/// A subscriber may never come to the end of the spans: stop at this many.
#[cfg(feature = "tracing")]
const DEPTH_MAX: usize = 256;

/// The span of a call.
#[derive(Clone, Debug)]
pub(super) struct CallSpan {
    #[cfg(feature = "tracing")]
    span: Span,
}

impl Default for CallSpan {
    fn default() -> Self {
        Self::none()
    }
}

impl CallSpan {
    /// For work that belongs to no caller.
    pub(super) const fn none() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: Span::none(),
        }
    }

    /// The span in which this thread is.
    pub(super) fn current() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            span: Span::current(),
        }
    }

    /// The span of a call for a lock or a set, inside the span in which this thread is. It lasts
    /// until the call's result, so it includes the time in the client's queue.
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "for the span"))]
    pub(super) fn of_lock(key: &[u8], ttl: Duration) -> Self {
        #[cfg(feature = "tracing")]
        {
            let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            let key = || match key::split(key) {
                Some(keys) => keys.join(&b", "[..]).escape_ascii().to_string(),
                None => key.escape_ascii().to_string(),
            };
            let span =
                tracing::span!(target: "redbolt::lock", Level::DEBUG, "lock", key = key(), ttl_ms);
            Self { span }
        }
        #[cfg(not(feature = "tracing"))]
        Self::none()
    }

    /// Runs `work` in the span.
    pub(super) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        return self.span.in_scope(work);
        #[cfg(not(feature = "tracing"))]
        work()
    }

    /// Takes the span out, and leaves none.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

/// Runs `work` outside all spans of this thread, because most of the work may be for other callers.
pub(super) fn outside<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(feature = "tracing")]
    let _outside = Outside::begin();
    work()
}

/// The spans to enter again, the innermost first.
#[cfg(feature = "tracing")]
struct Outside(Vec<Id>);

#[cfg(feature = "tracing")]
impl Outside {
    fn begin() -> Self {
        let mut left = Vec::new();
        dispatcher::get_default(|subscriber| {
            while left.len() < DEPTH_MAX
                && let Some(span) = subscriber.current_span().id()
            {
                subscriber.exit(span);
                left.push(span.clone());
            }
        });
        Self(left)
    }
}

#[cfg(feature = "tracing")]
impl Drop for Outside {
    fn drop(&mut self) {
        dispatcher::get_default(|subscriber| {
            self.0.iter().rev().for_each(|span| subscriber.enter(span));
        });
    }
}

//! [`Retry`]: how a call goes on after a failed attempt.
//!
//! Layer: bottom, plain values.

use std::time::Duration;

/// How a call tries again for a lock that it did not win.
///
/// When the lock becomes free, its last holder's client wakes a waiting call: see
/// [`Config::direct_wake`](crate::Config::direct_wake). If no client can wake the call, it tries
/// again after `delay` and a random part of `jitter`, at least 1 ms. Each attempt uses a new token
/// and follows the release of the attempt before.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Retry {
    /// The shortest wait between two attempts.
    pub delay: Duration,
    /// The random part of the wait is up to this long.
    pub jitter: Duration,
    /// How long the whole call may take; `None` for no limit.
    pub timeout: Option<Duration>,
}

impl Retry {
    /// An attempt every `delay` and up to `jitter` more, until the call's timeout. Without
    /// [`timeout`](Self::timeout) or [`LockOptions::timeout`](crate::LockOptions::timeout) the call
    /// waits for ever.
    #[must_use]
    pub const fn every(delay: Duration, jitter: Duration) -> Self {
        Self { delay, jitter, timeout: None }
    }

    /// The call ends at the latest `timeout` after its start. Zero: one attempt, which ends by
    /// itself. 10 s in [`Retry::default`], otherwise no timeout.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl Default for Retry {
    /// 200 ms and up to 200 ms more between attempts, for 10 s.
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(200),
            jitter: Duration::from_millis(200),
            timeout: Some(Duration::from_secs(10)),
        }
    }
}

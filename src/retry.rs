//! [`Retry`]: how a call goes on after a failed attempt.
//!
//! Layer: bottom, plain values.

use std::time::Duration;

/// How a call tries again for a lock that it did not win.
///
/// After each failed attempt but the last, the call waits `delay` and a random part of `jitter`, at
/// least 1 ms. Each attempt uses a new token and is sent behind the release of the one before.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Retry {
    /// Attempts at most, the first one included; `None` for as many as the timeout allows.
    pub attempts: Option<u32>,
    /// The shortest wait between two attempts.
    pub delay: Duration,
    /// The random part of the wait is up to this long.
    pub jitter: Duration,
    /// The wait after each attempt, given the attempt's number from 1; instead of `delay` and
    /// `jitter`.
    pub wait_after: Option<fn(u32) -> Duration>,
    /// How long the whole call may take; `None` for no limit.
    pub timeout: Option<Duration>,
}

impl Retry {
    /// One attempt.
    pub const ONCE: Self = Self::every(Duration::ZERO, Duration::ZERO).attempts(1);

    /// An attempt every `delay` and up to `jitter` more, until the call's timeout. Without
    /// [`timeout`](Self::timeout) or [`LockOptions::timeout`](crate::LockOptions::timeout) there is
    /// none: the call then waits for ever, or until its [`attempts`](Self::attempts) are used up.
    #[must_use]
    pub const fn every(delay: Duration, jitter: Duration) -> Self {
        Self { attempts: None, delay, jitter, wait_after: None, timeout: None }
    }

    /// Attempts with your own backoff: `wait_after` gets the number of the failed attempt, from 1.
    /// This turns wake-ups ([`Config::direct_wake`](crate::Config::direct_wake)) off; the call then polls. As with
    /// [`every`](Self::every) there is no timeout unless you set one: the call then waits for ever.
    ///
    /// ```
    /// use redbolt::Retry;
    /// use std::time::Duration;
    ///
    /// let doubling = Retry::custom(|attempt| Duration::from_millis(10 << attempt.min(6)));
    /// # let _ = doubling;
    /// ```
    #[must_use]
    pub const fn custom(wait_after: fn(u32) -> Duration) -> Self {
        Self { wait_after: Some(wait_after), ..Self::every(Duration::ZERO, Duration::ZERO) }
    }

    /// At most `attempts` attempts, at least one. This turns wake-ups ([`Config::direct_wake`](crate::Config::direct_wake))
    /// off; the call then polls.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(if attempts == 0 { 1 } else { attempts });
        self
    }

    /// The call ends at the latest `timeout` after its start. 10 s in [`Retry::default`], else
    /// none.
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
            attempts: None,
            delay: Duration::from_millis(200),
            jitter: Duration::from_millis(200),
            wait_after: None,
            timeout: Some(Duration::from_secs(10)),
        }
    }
}

//! [`Acquire`]: what one acquisition wants beyond its key. [`KeepAlive`]: how a lease is kept.
//!
//! Layer: bottom, plain values.

use std::time::Duration;

use crate::config::Retry;
use crate::token::TokenBytes;

/// How one lock is to be acquired.
///
/// ```
/// use redbolt::Acquire;
/// use std::time::Duration;
///
/// let acquire = Acquire::new(Duration::from_secs(10)).min_validity(Duration::from_secs(8));
/// # let _ = acquire;
/// ```
#[derive(Clone, Debug)]
pub struct Acquire {
    pub(crate) ttl: Duration,
    pub(crate) min_validity: Duration,
    pub(crate) token: Option<Result<TokenBytes, usize>>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) keep_alive: Option<KeepAlive>,
}

/// A lease is extended by the engine itself, at each third of its TTL.
///
/// An extension that misses its quorum is tried again while the lease is valid, a `node_timeout` and
/// a random part more after the last one began. It ends with the release of the lease, when the
/// lease is given away or lost, or at one of these limits; those of the
/// [`Config`](crate::Config::max_extensions) bind as well. At a limit the lease goes on until its
/// deadline.
///
/// Whoever drives the sockets drives this too: a [`Client`](crate::Client) only during its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeepAlive {
    pub(crate) extensions: Option<u32>,
    pub(crate) hold: Option<Duration>,
}

impl KeepAlive {
    /// For as long as the lease is held.
    #[must_use]
    pub const fn new() -> Self {
        Self { extensions: None, hold: None }
    }

    /// At most so many extensions that win.
    #[must_use]
    pub const fn max_extensions(mut self, extensions: u32) -> Self {
        self.extensions = Some(extensions);
        self
    }

    /// The lease is held no longer than this in all, counted from the attempt that won it.
    #[must_use]
    pub const fn max_hold(mut self, hold: Duration) -> Self {
        self.hold = Some(hold);
        self
    }
}

impl Acquire {
    /// A lock that its nodes drop `ttl` after they granted it. Whole milliseconds, rounded down,
    /// from 4 ms to `max_ttl`.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            min_validity: Duration::ZERO,
            token: None,
            deadline: None,
            retry: None,
            keep_alive: None,
        }
    }

    /// Less remaining validity than this at hand-over counts as failure
    /// ([`LockError::Expired`](crate::LockError::Expired)).
    #[must_use]
    pub const fn min_validity(mut self, validity: Duration) -> Self {
        self.min_validity = validity;
        self
    }

    /// The value to write instead of a drawn token, 1 to 255 bytes. It must be new for every
    /// attempt, which is the caller's to see to; such an acquisition is not retried.
    #[must_use]
    pub fn token(mut self, token: impl AsRef<[u8]>) -> Self {
        let token = token.as_ref();
        self.token = Some(TokenBytes::from_wire(token).ok_or(token.len()));
        self
    }

    /// The call ends so long after its begin. Zero is one attempt, which ends by itself.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How to try again, instead of what the configuration says.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The lease is extended by itself while it is held, and its loss is told: see [`KeepAlive`].
    #[must_use]
    pub const fn keep_alive(mut self, keep_alive: KeepAlive) -> Self {
        self.keep_alive = Some(keep_alive);
        self
    }
}

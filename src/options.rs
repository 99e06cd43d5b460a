//! [`LockOptions`]: what one call wants of its lock. [`KeepAlive`]: how a lease is kept.
//!
//! Layer: bottom, plain values.

use std::time::Duration;

use crate::config::Retry;
use crate::token::TokenBytes;

const NODE_TIMEOUT_MS_MAX: u16 = 60_000;

/// How one lock is to be taken, and how its lease is kept.
///
/// Every call that takes a lock takes these; a [`Duration`] alone is its TTL. A call has its own TTL, least validity, patience (timeout, retry, `node_timeout`), way of
/// waiting, token, and how its lease is kept; what it does not say is as the
/// [`Config`](crate::Config) says. What all clients of a lock must agree on is no call's to change:
/// two quorums of different size need not share a node, a smaller drift or a longer TTL than
/// `max_ttl` outlives what the nodes hold or remember, and a restarted node that one call believed
/// could have forgotten the lock of another. So `quorum`, `drift_factor`, `max_ttl`,
/// `restart_guard` and `admission` belong to the configuration alone.
///
/// ```
/// use redbolt::LockOptions;
/// use std::time::Duration;
///
/// let options = LockOptions::new(Duration::from_secs(10)).min_validity(Duration::from_secs(8));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct LockOptions {
    pub(crate) ttl: Duration,
    pub(crate) min_validity: Duration,
    pub(crate) token: Option<Result<TokenBytes, usize>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<Retry>,
    pub(crate) keep_alive: Option<KeepAlive>,
    pub(crate) is_watched: bool,
    /// Zero for what the configuration says.
    pub(crate) node_timeout_ms: u16,
    /// It is watched or has a `node_timeout` of its own: one look for what hardly any call wants.
    pub(crate) is_special: bool,
    pub(crate) is_woken: bool,
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

impl From<Duration> for LockOptions {
    /// The TTL, and all else as the configuration says.
    #[inline]
    fn from(ttl: Duration) -> Self {
        Self::new(ttl)
    }
}

impl LockOptions {
    /// A lock that its nodes drop `ttl` after they granted it. Whole milliseconds, rounded down,
    /// from 4 ms to `max_ttl`.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            min_validity: Duration::ZERO,
            token: None,
            timeout: None,
            retry: None,
            keep_alive: None,
            is_watched: false,
            node_timeout_ms: 0,
            is_special: false,
            is_woken: true,
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

    /// The call ends at the latest so long after its begin, also where its [`Retry`] allows more.
    /// Zero is one attempt, which ends by itself.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How `lock` tries again, instead of what the configuration says. `try_lock` never does.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// How long each attempt of this call waits for nodes that do not answer, instead of the
    /// configuration's [`node_timeout`](crate::Config::node_timeout): whole milliseconds from 1 ms to
    /// a minute, others count as the nearest of these. Longer for a call that has the time, shorter
    /// for one that has not. When a node counts as stalled, and all else, goes by the configuration.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "within the bound")]
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        let ms = timeout.as_millis();
        self.node_timeout_ms = if ms < 1 {
            1
        } else if ms > NODE_TIMEOUT_MS_MAX as u128 {
            NODE_TIMEOUT_MS_MAX
        } else {
            ms as u16
        };
        self.is_special = true;
        self
    }

    /// Whether the call, where it waits for a held lock, is woken by its release: on by default
    /// where the configuration's [`direct_wake`](crate::Config::direct_wake) is, which alone can
    /// switch it on. Off, the call looks again after `delay` and `jitter` of its [`Retry`].
    #[must_use]
    pub const fn direct_wake(mut self, on: bool) -> Self {
        self.is_woken = on;
        self
    }

    /// The lease is extended by itself while it is held, and its loss is told: see [`KeepAlive`].
    #[must_use]
    pub const fn keep_alive(mut self, keep_alive: KeepAlive) -> Self {
        self.keep_alive = Some(keep_alive);
        self
    }

    /// The nodes are asked to tell at once when anybody else changes, deletes or evicts the key of
    /// the lease. When fewer than a quorum can still hold it, the lease is lost there and then, and
    /// its loss is told as with [`keep_alive`](Self::keep_alive).
    ///
    /// It costs two small commands a node behind each acquisition and extension, in the same write,
    /// and takes RESP3 and the right to CLIENT TRACKING: a node without them tells nothing, and
    /// its part of the loss is known at the next extension or the deadline, as without this
    /// ([`Driver::watched_by`](crate::driver::Driver::watched_by) says which nodes do tell). Whatever
    /// changes the key counts: an extension by another process with the same token, FLUSHDB of
    /// another database, the same key in another database. The next extension by this client sets
    /// it right, if a quorum was left; an attempt that is still under way counts such a node's vote no
    /// more ([`Cause::Gone`](crate::Cause::Gone)).
    #[must_use]
    pub const fn watch(mut self, is_watched: bool) -> Self {
        self.is_watched = is_watched;
        self.is_special = is_watched || self.node_timeout_ms > 0;
        self
    }

    /// One attempt.
    #[inline]
    pub(crate) fn once(mut self) -> Self {
        self.retry = None;
        self
    }

    /// Tried again as they say, or else as `retry` says.
    #[inline]
    pub(crate) fn patient(mut self, retry: Retry) -> Self {
        self.retry.get_or_insert(retry);
        self
    }

    /// With a lease that is kept alive in any case.
    pub(crate) fn kept_alive(mut self) -> Self {
        self.keep_alive.get_or_insert(KeepAlive::new());
        self
    }

    /// Whether the engine has anything to do for the lease by itself.
    #[inline]
    pub(crate) const fn is_looked_after(&self) -> bool {
        self.keep_alive.is_some() || self.is_watched
    }
}

//! [`Guard`]: a lease as its caller has it, and its way back. The calls of a guard are in `call`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::calls::QueueIndex;
use super::counting::Hold;
use super::driving::Owner;
use crate::driver::Lease;
use crate::engine::LeaseId;
use crate::quorum::NodeMask;
use crate::rules;
use crate::time::Instant;
use crate::token::LockToken;

/// A lock that a [`Client`](crate::Client) has won, valid until [`deadline`](Self::deadline).
///
/// Dropping it releases the lock without blocking, from any thread or task. The client hands the
/// lease to its next waiter if it [may](crate::Client#waiters-of-one-client), or lets it
/// [linger](crate::LockOptions::linger). Otherwise the dropping thread writes the release at once,
/// unless another thread drives. To learn how the release ended, use [`unlock`](Self::unlock).
///
/// The lock is held until the deadline and no longer, whatever the process does. Check
/// [`remaining`](Self::remaining) right before each effect that needs the lock.
#[must_use = "dropping a guard releases its lock"]
pub struct Guard {
    /// Present until the lease has gone back or away.
    lease: Option<Lease>,
    pub(super) owner: Arc<Owner>,
    pub(super) queue: QueueIndex,
    pub(super) ttl: Duration,
    /// An extension that moves the deadline may be under way, or the caller is giving the lease
    /// away.
    pub(super) is_busy: bool,
    hold: Hold,
}

impl Guard {
    /// How long the lock is still certainly held; zero when it is over. Costs one clock read; no
    /// system call.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.as_ref().map_or(Duration::ZERO, Lease::remaining)
    }

    /// Whether the lock is still certainly held.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// As [`Lease::is_lost`]: whether the client knows that the lock is over. It works even when
    /// every node is silent. [`lost`](Self::lost) waits for it.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease.as_ref().is_none_or(Lease::is_lost)
    }

    /// The end of the lease on the clock of [`redbolt::now`](crate::now).
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.lease.as_ref().map_or_else(Instant::default, Lease::deadline)
    }

    /// The key; of several, the first in the order of their bytes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.lease.as_ref().map_or(&[], Lease::key)
    }

    /// As [`Lease::slot`].
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        self.lease.as_ref().and_then(Lease::slot)
    }

    /// The value that the nodes hold, for a resource that can compare it. Once you have read the
    /// token, the client never hands the lease to another of its waiters: it releases the lease
    /// with its guard.
    #[must_use]
    pub fn token(&self) -> Option<LockToken> {
        self.lease.as_ref().map(Lease::token)
    }

    /// As [`Lease::keys`].
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.lease.iter().flat_map(Lease::keys)
    }

    /// As [`Lease::token_of`].
    #[must_use]
    pub fn token_of(&self, key: impl AsRef<[u8]>) -> Option<LockToken> {
        self.lease.as_ref()?.token_of(key)
    }

    /// As [`Lease::fence_of`].
    #[must_use]
    pub fn fence_of(&self, key: impl AsRef<[u8]>) -> Option<u64> {
        self.lease.as_ref()?.fence_of(key)
    }

    /// As [`Lease::votes`]: the nodes that hold the lock.
    #[must_use]
    pub fn votes(&self) -> NodeMask {
        self.lease.as_ref().map_or(NodeMask::EMPTY, Lease::votes)
    }

    /// The fence, if the caller asked for one: see [`Lease::fence`].
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.lease.as_ref().and_then(Lease::fence)
    }

    // ---- inside ----

    pub(super) fn new(lease: Lease, owner: Arc<Owner>, queue: QueueIndex, ttl: Duration) -> Self {
        Self { lease: Some(lease), owner, queue, ttl, is_busy: false, hold: Hold::begins() }
    }

    pub(super) fn id(&self) -> Option<LeaseId> {
        self.lease.as_ref().map(Lease::id)
    }

    /// Takes the lease back from its caller, and says whether it may go to another waiter instead of
    /// being released.
    pub(super) fn take_lease(&mut self) -> Option<(Lease, bool)> {
        let lease = self.lease.take()?;
        self.owner.inner.counting.held(&self.hold);
        Some((lease, rules::is_idle(!self.is_busy)))
    }

    /// The caller gave the lock away. Its drop releases nothing.
    pub(super) fn give_away(&mut self) -> Option<LockToken> {
        let lease = self.lease.take()?;
        lease.end();
        self.owner.inner.with(|table| table.vacate(self.queue, lease.id()));
        Some(lease.token())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some((lease, may_pass)) = self.take_lease() else { return };
        self.owner.inner.give_back(self.queue, lease, may_pass);
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.key().escape_ascii().to_string())
            .field("deadline", &self.deadline())
            .field("votes", &self.votes())
            .finish_non_exhaustive()
    }
}

//! [`SharedGuard`]: a lock that was won through a [`Shared`](super::Shared).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::counting::Hold;
use super::inner::{Inner, Owner};
use super::queues::QueueIndex;
use super::{Shared, calls};
use crate::driver::Lease;
use crate::engine::LeaseId;
use crate::error::ExtendError;
use crate::quorum::NodeMask;
use crate::rules;
use crate::time::Instant;
use crate::token::LockToken;

/// A lock that was won through a [`Shared`], valid until [`deadline`](Self::deadline).
///
/// Dropping it releases the lock without blocking, from any thread or task: the lease goes to the
/// first waiter of this process for the same key; without one, the I/O thread sends the release. To
/// know that the lock is free, pass the guard to [`Shared::unlock`].
///
/// The lock is held until the deadline and no longer, whatever the process does: check
/// [`remaining`](Self::remaining) right before each effect that needs the lock.
#[must_use = "dropping a guard releases its lock"]
pub struct SharedGuard {
    /// Present until the guard is given away.
    lease: Option<Lease>,
    owner: Arc<Owner>,
    queue: QueueIndex,
    ttl: Duration,
    /// An extension may be under way, which moves the deadline, or the lease is being given away.
    is_busy: bool,
    hold: Hold,
}

impl SharedGuard {
    pub(super) fn new(lease: Lease, owner: Arc<Owner>, queue: QueueIndex, ttl: Duration) -> Self {
        let hold = Hold::begins();
        Self { lease: Some(lease), owner, queue, ttl, is_busy: false, hold }
    }

    /// How long the lock is still certainly held; zero when it is over. About 25 ns.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.as_ref().map_or(Duration::ZERO, Lease::remaining)
    }

    /// Whether the lock is still certainly held.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Whether the I/O thread knows that the lock is over (see also
    /// [`wait_lost`](Self::wait_lost)): no quorum can hold it any more, or it is kept alive and its
    /// deadline has come. An atomic load; it works even when every node is silent.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease.as_ref().is_none_or(Lease::is_lost)
    }

    /// The end of the lease on the clock of [`redbolt::now`](crate::now).
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.lease.as_ref().map_or_else(Instant::default, Lease::deadline)
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.lease.as_ref().map_or(&[], Lease::key)
    }

    /// The value that the nodes hold, for a resource that can compare it. Once you have read the
    /// token, the lease is never handed to another waiter of this process: it is released with its
    /// guard.
    #[must_use]
    pub fn token(&self) -> Option<LockToken> {
        self.lease.as_ref().map(Lease::token)
    }

    /// The nodes that granted the lock. Late answers add nodes.
    #[must_use]
    pub fn votes(&self) -> NodeMask {
        self.lease.as_ref().map_or(NodeMask::EMPTY, Lease::votes)
    }

    /// The fence, if the lock was asked for with one: see [`Lease::fence`].
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.lease.as_ref().and_then(Lease::fence)
    }

    /// Extends the lock by the TTL of its call if a third of that TTL has passed; otherwise costs a
    /// clock read. Call it between the steps of long work.
    ///
    /// # Errors
    ///
    /// As [`Shared::extend`], except that a missed quorum is no error while the lock is still held:
    /// the next call tries again.
    pub fn extend_if_due(&mut self) -> Result<(), ExtendError> {
        if self.is_fresh() {
            return Ok(());
        }
        let (shared, ttl) = (self.handle(), self.ttl);
        let result = shared.extend(self, ttl);
        self.unless_still_held(result)
    }

    /// As [`extend_if_due`](Self::extend_if_due), without blocking.
    ///
    /// # Errors
    ///
    /// As [`extend_if_due`](Self::extend_if_due).
    pub async fn extend_if_due_async(&mut self) -> Result<(), ExtendError> {
        if self.is_fresh() {
            return Ok(());
        }
        let (shared, ttl) = (self.handle(), self.ttl);
        let result = shared.extend_async(self, ttl).await;
        self.unless_still_held(result)
    }

    // ---- for the handle ----

    pub(super) fn is_of(&self, owner: &Arc<Owner>) -> bool {
        Arc::ptr_eq(&self.owner, owner)
    }

    pub(super) fn id(&self) -> Option<LeaseId> {
        self.lease.as_ref().map(Lease::id)
    }

    pub(super) const fn queue(&self) -> QueueIndex {
        self.queue
    }

    pub(super) const fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// Whether the lease may go to another waiter instead of being released.
    pub(super) fn may_pass(&self) -> bool {
        let is_exposed = self.lease.as_ref().is_some_and(Lease::is_token_seen);
        rules::is_idle(!self.is_busy) && !rules::is_known_elsewhere(is_exposed)
    }

    /// Takes the lease back from its caller.
    pub(super) fn take_lease(&mut self) -> Option<Lease> {
        let lease = self.lease.take()?;
        self.owner.inner.counting.held(&self.hold);
        Some(lease)
    }

    /// The lock was given away. Its drop releases nothing.
    pub(super) fn give_away(&mut self) -> Option<LockToken> {
        let lease = self.lease.take()?;
        lease.end();
        self.owner.inner.with(|table| table.vacate(self.queue, lease.id()));
        Some(lease.token())
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.owner.inner
    }

    fn handle(&self) -> Shared {
        Shared { owner: Arc::clone(&self.owner) }
    }

    fn is_fresh(&self) -> bool {
        self.remaining() > self.ttl / 3 * 2
    }

    fn unless_still_held(&self, result: Result<(), ExtendError>) -> Result<(), ExtendError> {
        match result {
            // Busy: the lease is kept alive, and an extension is under way.
            Err(ExtendError::NoQuorum(_) | ExtendError::Busy) if self.is_valid() => Ok(()),
            result => result,
        }
    }
}

impl Drop for SharedGuard {
    fn drop(&mut self) {
        let may_pass = self.may_pass();
        let Some(lease) = self.take_lease() else { return };
        let queue = self.queue;
        let next: calls::Listener =
            self.owner.inner.with(|table| table.give_back(queue, lease, may_pass));
        next.notify();
    }
}

impl fmt::Debug for SharedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedGuard")
            .field("key", &self.key().escape_ascii().to_string())
            .field("deadline", &self.deadline())
            .field("votes", &self.votes())
            .finish_non_exhaustive()
    }
}

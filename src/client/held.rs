//! [`Held`]: a lease as its caller has it, and its way back.

use std::sync::Arc;
use std::time::Duration;

use super::calls::Listener;
use super::counting::Hold;
use super::driving::Owner;
use super::indices::QueueIndex;
use crate::driver::Lease;
use crate::driver::clock::now;
use crate::engine::LeaseId;
use crate::quorum::NodeMask;
use crate::rules;
use crate::time::Instant;
use crate::token::LockToken;

/// The content of a guard. Dropping it gives the lease back.
pub(super) struct Held {
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

impl Held {
    pub(super) fn new(lease: Lease, owner: Arc<Owner>, queue: QueueIndex, ttl: Duration) -> Self {
        let hold = Hold::begins();
        Self { lease: Some(lease), owner, queue, ttl, is_busy: false, hold }
    }

    pub(super) const fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    pub(super) fn remaining(&self) -> Duration {
        self.lease.as_ref().map_or(Duration::ZERO, Lease::remaining)
    }

    pub(super) fn deadline(&self) -> Instant {
        self.lease.as_ref().map_or_else(Instant::default, Lease::deadline)
    }

    pub(super) fn votes(&self) -> NodeMask {
        self.lease.as_ref().map_or(NodeMask::EMPTY, Lease::votes)
    }

    pub(super) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    pub(super) fn id(&self) -> Option<LeaseId> {
        self.lease.as_ref().map(Lease::id)
    }

    /// Whether the lease may go to another waiter instead of being released.
    pub(super) fn may_pass(&self) -> bool {
        rules::is_idle(!self.is_busy)
    }

    /// Takes the lease back from its caller.
    pub(super) fn take_lease(&mut self) -> Option<Lease> {
        let lease = self.lease.take()?;
        self.owner.inner.counting.held(&self.hold);
        Some(lease)
    }

    /// The caller gave the lock away. Its drop releases nothing.
    pub(super) fn give_away(&mut self) -> Option<LockToken> {
        let lease = self.lease.take()?;
        lease.end();
        self.owner.inner.with(|table| table.vacate(self.queue, lease.id()));
        Some(lease.token())
    }
}
impl Drop for Held {
    fn drop(&mut self) {
        let may_pass = self.may_pass();
        let Some(lease) = self.take_lease() else { return };
        let queue = self.queue;
        let next: Listener =
            self.owner.inner.with_writing(|table| table.give_back(queue, lease, may_pass, now));
        next.notify();
    }
}

//! [`Held`]: the lock inside [`Client::with_lock`](super::Client::with_lock).

use std::time::Duration;

use super::Client;
use crate::driver::Lease;
use crate::driver::clock::now;
use crate::error::{ExtendError, UnlockError};
use crate::time::Instant;
use crate::token::LockToken;

/// A lock for as long as the work under it lasts.
#[derive(Debug)]
pub struct Held<'client> {
    client: &'client mut Client,
    lease: Option<Lease>,
    ttl: Duration,
}

impl<'client> Held<'client> {
    pub(super) const fn new(client: &'client mut Client, lease: Lease, ttl: Duration) -> Self {
        Self { client, lease: Some(lease), ttl }
    }

    /// How long the lock is still certainly held. Check it right before each effect.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.as_ref().map_or(Duration::ZERO, Lease::remaining)
    }

    /// Whether the lock is still certainly held.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// The end of the lease.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.lease.as_ref().map_or_else(Instant::default, Lease::deadline)
    }

    /// The lock's token: see [`Lease::token`].
    #[must_use]
    pub fn token(&self) -> Option<LockToken> {
        self.lease.as_ref().map(Lease::token)
    }

    /// The fence, if the lock was asked for with one: see [`Lease::fence`].
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.lease.as_ref().and_then(Lease::fence)
    }

    /// Extends the lock by its TTL if a third of the TTL has passed, and waits for the result;
    /// otherwise costs a clock read. Call it between the steps of long work.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`] and [`ExtendError::Expired`]: the lock is over, stop the work.
    /// [`ExtendError::LimitReached`]: the lock is held until [`deadline`](Self::deadline) and no
    /// longer. A missed quorum is no error while the lock is still held: the next call tries again.
    pub fn extend_if_due(&mut self) -> Result<(), ExtendError> {
        let Some(lease) = &self.lease else { return Err(ExtendError::NotOurs) };
        if lease.remaining() > self.ttl / 3 * 2 {
            return Ok(());
        }
        self.client.keep_lease(lease)
    }

    /// Reads what the nodes sent, begins an extension if one is due, and waits for nothing. Costs one
    /// poll of the operating system.
    ///
    /// # Errors
    ///
    /// As [`extend_if_due`](Self::extend_if_due).
    pub fn check(&mut self) -> Result<(), ExtendError> {
        let Some(lease) = &self.lease else { return Err(ExtendError::NotOurs) };
        self.client.drive().map_err(|error| ExtendError::System(error.kind()))?;
        self.client.driver.engine().keep_error(lease.id(), now()).map_or(Ok(()), Err)
    }

    /// Releases the lock. False if the lease was over before.
    pub(super) fn release(mut self) -> bool {
        let Some(lease) = self.lease.take() else { return false };
        let was_valid = lease.is_valid();
        match self.client.unlock(lease) {
            Err(UnlockError::NotHeld) => false,
            Ok(_) | Err(_) => was_valid,
        }
    }
}

impl Drop for Held<'_> {
    /// The work ended early or panicked: sends the release without waiting.
    fn drop(&mut self) {
        if self.lease.take().is_some() {
            self.client.driver.drive();
        }
    }
}

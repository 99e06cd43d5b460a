//! [`Batch`]: many operations of a [`Client`] at once, written together. The caller takes results
//! as they come.

use std::io;
use std::time::Duration;

use super::Client;
use crate::driver::{Completion, Lease, Outcome};
use crate::engine::{Notice, OpId};
use crate::error::{ExtendError, LockError, UnlockError};
use crate::options::LockOptions;

/// Many operations at once; made by [`Client::batch`].
///
/// Submitting writes nothing. [`flush`](Self::flush), or [`wait_completion`](Self::wait_completion)
/// when it has no result left to give, writes everything that was submitted, one write per node. A
/// lock and its release may follow one another in the same batch, and a batch may go on for ever:
/// submit more as results come.
///
/// Dropping the batch cancels its locks under way and releases what they may have written.
/// Extensions and releases that are already written go on, unreported. Leases that the caller has
/// taken live on.
///
/// ```no_run
/// use redbolt::driver::Outcome;
/// use redbolt::Client;
/// use std::time::Duration;
///
/// # fn take(client: &mut Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut batch = client.batch();
/// for sku in ["sku:1", "sku:2", "sku:3"] {
///     batch.try_lock(sku, Duration::from_secs(10))?;
/// }
/// let mut leases = Vec::new();
/// while let Some(done) = batch.wait_completion()? {
///     if let Outcome::Lock(Ok(lease)) = done.result {
///         leases.push(lease);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Batch<'client> {
    client: &'client mut Client,
    /// Operations whose result the caller has not taken.
    in_flight: usize,
}

impl<'client> Batch<'client> {
    pub(super) fn new(client: &'client mut Client) -> Self {
        // A batch that was forgotten instead of dropped has left operations that belong to no
        // batch.
        client.submitted.clear();
        Self { client, in_flight: 0 }
    }

    /// As [`Client::notice`].
    pub fn notice(&mut self) -> Option<Notice> {
        self.client.notice()
    }

    /// Submits one attempt at the lock `key`. Its result is an
    /// [`Outcome::Lock`](crate::driver::Outcome::Lock).
    ///
    /// # Errors
    ///
    /// [`LockError::Full`] at `in_flight_max`, and those that concern key, TTL and token; then
    /// nothing was begun.
    pub fn try_lock(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<OpId, LockError> {
        let now = self.client.catch_up()?;
        let op = self.client.driver.begin_lock(key.as_ref(), &options.into().once(), now)?;
        Ok(self.note(op))
    }

    /// Submits attempts at the lock `key` until one wins, as the `retry` of the options or of the
    /// configuration says. Otherwise like [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub fn lock(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<OpId, LockError> {
        let now = self.client.catch_up()?;
        let options = options.into().patient(self.client.driver.engine().default_retry());
        let op = self.client.driver.begin_lock(key.as_ref(), &options, now)?;
        Ok(self.note(op))
    }

    /// Submits an extension of `lease` to `ttl` from now. Its result is an
    /// [`Outcome::Extend`](crate::driver::Outcome::Extend); the lease itself shows its deadline.
    ///
    /// # Errors
    ///
    /// Those of [`ExtendError`] that concern the call itself.
    pub fn extend(&mut self, lease: &Lease, ttl: Duration) -> Result<OpId, ExtendError> {
        self.client.catch_up()?;
        let op = self.client.driver.extend(lease, ttl)?;
        Ok(self.note(op))
    }

    /// Submits the release of `lease`. Its result is an
    /// [`Outcome::Unlock`](crate::driver::Outcome::Unlock). To have none, drop the lease.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotOurs`] for a lease of another client, [`UnlockError::Full`] at
    /// `in_flight_max`; the lease is released all the same.
    pub fn unlock(&mut self, lease: Lease) -> Result<OpId, UnlockError> {
        if !self.client.driver.is_ours(&lease) {
            return Err(UnlockError::NotOurs);
        }
        let now = self.client.catch_up()?;
        let op = self.client.driver.unlock_at(lease, now)?;
        Ok(self.note(op))
    }

    /// Gives one operation up. An acquisition ends as [`LockError::Cancelled`], and what it may
    /// have written is released.
    pub fn cancel(&mut self, op: OpId) {
        self.client.driver.cancel(op);
    }

    /// Writes what was submitted, one write a node, and waits for nothing.
    pub fn flush(&mut self) {
        self.client.driver.flush();
    }

    /// The next result that is already there, without waiting or reading. A lease's remaining time
    /// is checked again just before you get it.
    pub fn completion(&mut self) -> Option<Completion> {
        loop {
            let done = self.client.driver.completion()?;
            if matches!(done.result, Outcome::Lost(_)) {
                self.client.note_loss();
                continue;
            }
            // A result of another batch has no taker.
            if self.client.submitted.get(done.id.index()) == Some(&done.id) {
                self.in_flight = self.in_flight.saturating_sub(1);
                return Some(done);
            }
        }
    }

    /// The next result, in the order in which they are decided; `None` when nothing is under way.
    /// Writes and reads only when there is no result yet.
    ///
    /// Waits no longer than the operations take: `node_timeout`, or what a `retry` allows.
    ///
    /// # Errors
    ///
    /// The error of the operating system's poll; no operation is lost.
    pub fn wait_completion(&mut self) -> io::Result<Option<Completion>> {
        loop {
            if let Some(done) = self.completion() {
                return Ok(Some(done));
            }
            if self.in_flight == 0 {
                return Ok(None);
            }
            self.client.driver.flush();
            self.client.pass(None)?;
        }
    }

    /// Operations whose result the caller has not taken.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Remembers that the operation is this batch's. Places are reused with those of the
    /// operations, so that nothing is allocated once warm.
    fn note(&mut self, op: OpId) -> OpId {
        let submitted = &mut self.client.submitted;
        match submitted.get_mut(op.index()) {
            Some(place) => *place = op,
            None => submitted.resize(op.index() + 1, op),
        }
        self.in_flight += 1;
        op
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            self.client.driver.cancel_all();
            self.client.discard();
        } else if !self.client.driver.engine().takes_transfers() {
            return;
        }
        self.client.leave_transfers();
        self.client.driver.drive();
    }
}

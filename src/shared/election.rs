//! Elections on a shared handle: as [`Client::campaign`](crate::Client::campaign) and its siblings,
//! blocking and as futures.

use std::fmt;
use std::time::Duration;

use super::begin::answers;
use super::pending::Pending;
use super::{Shared, SharedGuard};
use crate::driver::clock::now;
use crate::error::{LockError, UnlockError, Unlocked};
use crate::leader::{Led, Sighting};
use crate::options::LockOptions;
use crate::query::{NodeAnswers, Query};
use crate::time::Instant;

impl Shared {
    /// As [`Client::campaign`](crate::Client::campaign). The I/O thread keeps the term alive;
    /// [`SharedGuard::wait_lost`] waits for its end. Calls of one process for one name are
    /// candidates like any others: each has a term of its own.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    pub fn campaign(
        &self,
        name: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<SharedGuard, LockError> {
        self.lock(name, self.campaigning(options.into()))
    }

    /// As [`campaign`](Self::campaign), without blocking.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_async(
        &self,
        name: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<SharedGuard, LockError> {
        self.lock_async(name, self.campaigning(options.into())).await
    }

    fn campaigning(&self, options: LockOptions) -> LockOptions {
        options.campaigning(self.owner.inner.with(|table| table.rules.retry))
    }

    /// As [`Client::resign`](crate::Client::resign).
    ///
    /// # Errors
    ///
    /// As [`unlock`](Self::unlock).
    pub fn resign(&self, term: SharedGuard) -> Result<Unlocked, UnlockError> {
        self.unlock(term)
    }

    /// As [`resign`](Self::resign), without blocking.
    ///
    /// # Errors
    ///
    /// As [`resign`](Self::resign).
    pub async fn resign_async(&self, term: SharedGuard) -> Result<Unlocked, UnlockError> {
        self.unlock_async(term).await
    }

    /// As [`Client::leader`](crate::Client::leader).
    ///
    /// # Errors
    ///
    /// As [`Client::leader`](crate::Client::leader), and those of [`query`](Self::query).
    pub fn leader(&self, name: impl AsRef<[u8]>) -> Result<Led, LockError> {
        let pending = self.begin_look(name.as_ref(), Instant::default())?;
        Ok(self.led(&answers(pending.wait())?))
    }

    /// As [`leader`](Self::leader), without blocking.
    ///
    /// # Errors
    ///
    /// As [`leader`](Self::leader).
    pub async fn leader_async(&self, name: impl AsRef<[u8]>) -> Result<Led, LockError> {
        let pending = self.begin_look(name.as_ref(), Instant::default())?;
        Ok(self.led(&answers(pending.await)?))
    }

    /// As [`Client::observe`](crate::Client::observe).
    #[must_use]
    pub fn observe(&self, name: impl AsRef<[u8]>, pace: Duration) -> SharedObserver {
        SharedObserver { shared: self.clone(), sighting: Sighting::new(name.as_ref(), pace) }
    }

    /// Asks for the leader once `at` has come.
    fn begin_look(&self, key: &[u8], at: Instant) -> Result<Pending, LockError> {
        self.begin_ask_at(Query::leader(&self.wire_key(key)?), at)
    }

    fn led(&self, answers: &[NodeAnswers]) -> Led {
        Led::read(answers, 0, self.quorum())
    }
}

/// Who leads an election, change by change: see [`Shared::observe`].
pub struct SharedObserver {
    shared: Shared,
    sighting: Sighting,
}

impl SharedObserver {
    /// As [`Observer::next`](crate::Observer::next).
    ///
    /// # Errors
    ///
    /// As [`Shared::leader`].
    pub fn next(&mut self, limit: Duration) -> Result<Option<Led>, LockError> {
        let end = now() + limit;
        loop {
            let due = self.sighting.due;
            if due > end {
                std::thread::sleep(now().until(end));
                return Ok(None);
            }
            let pending = self.shared.begin_look(&self.sighting.key, due)?;
            if let Some(news) = self.take(&answers(pending.wait())?) {
                return Ok(Some(news));
            }
        }
    }

    /// Completes at the next change; the first time at once. Dropping the future loses nothing: the
    /// next one tells the change.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub async fn next_async(&mut self) -> Result<Led, LockError> {
        loop {
            let pending = self.shared.begin_look(&self.sighting.key, self.sighting.due)?;
            if let Some(news) = self.take(&answers(pending.await)?) {
                return Ok(news);
            }
        }
    }

    fn take(&mut self, answers: &[NodeAnswers]) -> Option<Led> {
        self.sighting.begin(now());
        self.sighting.take(self.shared.led(answers))
    }
}

impl fmt::Debug for SharedObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedObserver").field("sighting", &self.sighting).finish_non_exhaustive()
    }
}

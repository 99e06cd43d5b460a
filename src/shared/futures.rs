//! The calls of a [`Shared`] as plain futures: no runtime is needed, and any will do.

use std::time::Duration;

use super::begin::{answers, connected, detached, extended, nodes, owed, unlocked};
use super::calls::Kind;
use super::inner::Caller;
use super::table::Task;
use super::{Shared, SharedGuard};
use crate::config::Config;
use crate::engine::NodeHealth;
use crate::error::{ConnectError, DetachError, ExtendError, LockError, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::query::{NodeAnswers, Query};
use crate::token::LockToken;

impl Shared {
    /// As [`connect`](Self::connect), without blocking. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_async(config: Config) -> Result<Self, ConnectError> {
        let (shared, pending) = Self::begin_connect(config)?;
        connected(pending.await).map(|()| shared)
    }

    /// As [`try_lock`](Self::try_lock), without blocking.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub async fn try_lock_async(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<SharedGuard, LockError> {
        let (pending, asked) =
            self.begin_lock(key.as_ref(), options.into().once(), Caller::GoesOn)?;
        self.won(pending.await, asked)
    }

    /// As [`lock`](Self::lock), without blocking.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_async(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<SharedGuard, LockError> {
        let (pending, asked) =
            self.begin_lock(key.as_ref(), self.patient(options.into()), Caller::GoesOn)?;
        self.won(pending.await, asked)
    }

    /// As [`with_lock`](Self::with_lock), without blocking.
    ///
    /// # Errors
    ///
    /// As [`with_lock`](Self::with_lock).
    pub async fn with_lock_async<T, E>(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
        work: impl AsyncFnOnce(&mut SharedGuard) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<LockError>,
    {
        let mut guard = self.lock_async(key, options.into().kept_alive()).await?;
        let value = work(&mut guard).await?;
        let was_valid = guard.is_valid();
        let is_gone = matches!(self.unlock_async(guard).await, Err(UnlockError::NotHeld));
        if was_valid && !is_gone { Ok(value) } else { Err(LockError::Lost.into()) }
    }

    /// As [`extend`](Self::extend), without blocking. If the future is dropped, the extension may
    /// still happen; the guard then keeps the earlier of the two deadlines.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend).
    pub async fn extend_async(
        &self,
        guard: &mut SharedGuard,
        ttl: Duration,
    ) -> Result<(), ExtendError> {
        let pending = self.begin_extend(guard, ttl, Caller::GoesOn)?;
        extended(guard, pending.await)
    }

    /// As [`detach`](Self::detach), without blocking. If the future is dropped, the lock may have been
    /// given away: then it lasts until its TTL ends, whatever becomes of the guard.
    ///
    /// # Errors
    ///
    /// As [`detach`](Self::detach).
    pub async fn detach_async(&self, guard: &mut SharedGuard) -> Result<LockToken, DetachError> {
        let pending = self.begin_detach(guard, Caller::GoesOn)?;
        detached(guard, pending.await)
    }

    /// As [`unlock`](Self::unlock), without blocking. If the future is dropped, the release goes
    /// on.
    ///
    /// # Errors
    ///
    /// As [`unlock`](Self::unlock).
    pub async fn unlock_async(&self, guard: SharedGuard) -> Result<Unlocked, UnlockError> {
        match self.begin_unlock(guard, Caller::GoesOn)? {
            Some(pending) => unlocked(pending.await),
            None => Ok(Unlocked::Released),
        }
    }

    /// As [`unlock_token`](Self::unlock_token), without blocking.
    ///
    /// # Errors
    ///
    /// As [`unlock_token`](Self::unlock_token).
    pub async fn unlock_token_async(
        &self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
    ) -> Result<Unlocked, UnlockError> {
        unlocked(self.begin_unlock_token(key.as_ref(), token.as_ref())?.await)
    }

    /// As [`adopt`](Self::adopt), without blocking.
    ///
    /// # Errors
    ///
    /// As [`adopt`](Self::adopt).
    pub async fn adopt_async(
        &self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<SharedGuard, ExtendError> {
        let options = options.into();
        let ttl = options.ttl;
        let pending = self.begin_adopt(key.as_ref(), token.as_ref(), options)?;
        self.adopted(pending.await, ttl)
    }

    /// As [`query`](Self::query), without blocking.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    pub async fn query_async(&self, query: &Query) -> Result<Vec<NodeAnswers>, LockError> {
        answers(self.begin_ask(query.clone())?.await)
    }

    /// As [`nodes`](Self::nodes), without blocking.
    pub async fn nodes_async(&self) -> Vec<NodeHealth> {
        match self.begin(Kind::Nodes, Task::Nodes) {
            Ok(pending) => nodes(pending.await),
            Err(_) => Vec::new(),
        }
    }

    /// As [`wait_ready`](Self::wait_ready), without blocking. Dropping the future ends the wait.
    ///
    /// # Errors
    ///
    /// As [`wait_ready`](Self::wait_ready).
    pub async fn wait_ready_async(&self, limit: Duration) -> Result<(), ConnectError> {
        connected(self.begin_wait_ready(limit)?.await)
    }

    /// As [`shutdown`](Self::shutdown), without blocking.
    pub async fn shutdown_async(&self, limit: Duration) -> usize {
        match self.begin_shutdown(limit) {
            Ok(pending) => owed(pending.await),
            Err(owed) => owed,
        }
    }
}

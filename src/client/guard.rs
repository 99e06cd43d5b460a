//! [`Guard`]: a lock that a [`Client`](super::Client) has won.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::call::Call;
use super::calls::CallResult;
use super::held::Held;
use super::request::{self, CallRequest, Done};
use crate::driver::Lease;
use crate::error::{DetachError, ExtendError, LockError, UnlockError, Unlocked};
use crate::quorum::NodeMask;
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
    pub(super) held: Held,
}

impl Guard {
    // ---- state ----

    /// How long the lock is still certainly held; zero when it is over. Costs one clock
    /// read; no system call.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether the lock is still certainly held.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Whether the client knows that the lock is over (see also [`lost`](Self::lost)). Either no
    /// quorum can hold it any more, or it is kept alive and its deadline has come. Costs an atomic
    /// load; it works even when every node is silent.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.held.lease().is_none_or(Lease::is_lost)
    }

    /// The end of the lease on the clock of [`redbolt::now`](crate::now).
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.held.deadline()
    }

    /// The key; of several, the first in the order of their bytes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.held.lease().map_or(&[], Lease::key)
    }

    /// Which [slot](crate::LockOptions::slots) of its lock the guard holds, from 0 on; `None` for a
    /// lock without slots, and for all slots together.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        self.held.lease().and_then(Lease::slot)
    }

    /// The value that the nodes hold, for a resource that can compare it. Once you have read the
    /// token, the client never hands the lease to another waiter of this process: it releases the
    /// lease with its guard.
    #[must_use]
    pub fn token(&self) -> Option<LockToken> {
        self.held.lease().map(Lease::token)
    }

    /// All keys, in the order of their bytes: several if the lock was taken with
    /// [`lock_all`](crate::Client::lock_all), or to [write](crate::LockOptions::write).
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.held.lease().into_iter().flat_map(Lease::keys)
    }

    /// The [token](Self::token) of one of the keys; `None` for a key that the guard does not hold.
    #[must_use]
    pub fn token_of(&self, key: impl AsRef<[u8]>) -> Option<LockToken> {
        self.held.lease()?.token_of(key)
    }

    /// The [fence](Self::fence) of one of the keys. Each key has its own.
    #[must_use]
    pub fn fence_of(&self, key: impl AsRef<[u8]>) -> Option<u64> {
        self.held.lease()?.fence_of(key)
    }

    /// The nodes that granted the lock and still hold it; for several keys, the nodes that hold all
    /// of them. Late answers add nodes, and take away nodes that lost a key.
    #[must_use]
    pub fn votes(&self) -> NodeMask {
        self.held.votes()
    }

    /// The fence, if the caller asked for one: see [`Lease::fence`].
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.held.lease().and_then(Lease::fence)
    }

    // ---- calls ----

    /// Moves the end of the lock to `ttl` from now, on a quorum of nodes. A node that forgot the
    /// key gets it again, and counts. Costs one round trip to the slowest node of the fastest
    /// quorum, at most `node_timeout`, or `connect_timeout` if a quorum needs nodes that still
    /// connect.
    ///
    /// A dropped call may still extend the lock; the guard then keeps the earlier of the two
    /// deadlines.
    ///
    /// # Errors
    ///
    /// A failed extension deletes nothing. On [`ExtendError::Lost`] and [`ExtendError::Expired`]
    /// the lock is over: stop the work. On [`ExtendError::NoQuorum`] try again until
    /// [`deadline`](Self::deadline), which is now the earlier of the old and the new one.
    /// [`ExtendError::InvalidTtl`], [`ExtendError::LimitReached`], [`ExtendError::Busy`] (a dropped
    /// call still runs), [`ExtendError::Full`] and [`ExtendError::Closed`] leave the lock as it is.
    pub fn extend(&mut self, ttl: Duration) -> Call<'_, Result<(), ExtendError>> {
        let owner = Arc::clone(&self.held.owner);
        Call::new(owner, CallRequest::Extend { held: &mut self.held, ttl }, request::extended)
    }

    /// Moves the end of the lock to the TTL of its call from now, if at most two thirds of that TTL
    /// are left. Otherwise it costs a clock read. Call it between the steps of long work.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend). While the lock is held, [`ExtendError::NoQuorum`] and
    /// [`ExtendError::Busy`] count as success: the next call tries again.
    pub fn extend_if_due(&mut self) -> Call<'_, Result<(), ExtendError>> {
        let (owner, ttl) = (Arc::clone(&self.held.owner), self.held.ttl);
        let is_due = self.remaining() <= ttl / 3 * 2;
        let request = if is_due {
            CallRequest::Extend { held: &mut self.held, ttl }
        } else {
            CallRequest::Ended(Some(CallResult::Extend(Ok(()))))
        };
        Call::new(owner, request, request::kept)
    }

    /// Releases the lock. The call is done when a quorum has confirmed the release, or when no
    /// quorum can: one round trip to the quorum, at most `node_timeout`. It is done at once, with
    /// [`Unlocked::Released`], if the lease goes to the next waiter of this client or
    /// [lingers](crate::LockOptions::linger). Then the nodes still hold the key.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotHeld`]: the lock was over before, so another holder may have been at work
    /// at the same time. If you know that already, drop the guard instead. [`UnlockError::Full`]:
    /// the client still releases the lock, without a result. [`UnlockError::Closed`].
    pub fn unlock(self) -> Call<'static, Result<Unlocked, UnlockError>> {
        let owner = Arc::clone(&self.held.owner);
        Call::new(owner, CallRequest::Unlock(Some(self.held)), request::unlocked)
    }

    /// Gives the lock away and returns its token; for several keys, the token of the first. Ask
    /// [`token_of`](Self::token_of) for the other tokens before you detach. The lock stays until
    /// its TTL ends, or until a client with key and token releases or adopts it
    /// ([`unlock_token`](crate::Client::unlock_token), [`adopt_all`](crate::Client::adopt_all)).
    /// The guard is over. From then on this client writes no command that changes a key by that
    /// token. Costs no round trip.
    ///
    /// A dropped call may have given the lock away.
    ///
    /// # Errors
    ///
    /// The errors of [`Driver::detach`](crate::driver::Driver::detach), [`DetachError::Full`] and
    /// [`DetachError::Closed`]. The guard stays as it is.
    pub fn detach(&mut self) -> Call<'_, Result<LockToken, DetachError>> {
        let owner = Arc::clone(&self.held.owner);
        Call::new(owner, CallRequest::Detach { held: &mut self.held }, request::detached)
    }

    /// Done when the lock is over: as soon as the client knows of the loss, and at the lock's
    /// deadline at the latest, even when every node is silent. It is also done when the client is
    /// shut down, because the client can report no loss after that.
    ///
    /// Await it in a `select!` beside the work, or wait for it in a thread of its own. You can drop
    /// the call and make it again at any time.
    pub fn lost(&self) -> Call<'_, ()> {
        Call::new(Arc::clone(&self.held.owner), CallRequest::Loss(&self.held), request::lost)
    }
}

pub(super) fn locked(done: Done<'_, '_>) -> Option<Result<Guard, LockError>> {
    Some(request::locked(done)?.map(|held| Guard { held }))
}

pub(super) fn adopted(done: Done<'_, '_>) -> Option<Result<Guard, ExtendError>> {
    Some(request::adopted(done)?.map(|held| Guard { held }))
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

//! [`Shared`]: one handle for many threads and tasks, over one I/O thread that owns the driver.
//!
//! Layer: above [`crate::driver`]. Holds no protocol: it queues, hands over and wakes.
//!
//! # Contract
//!
//! - A call ends by its own deadline, with an error if the I/O thread is gone; none hangs.
//! - A call that is given up at any point holds nothing afterwards.
//!
//! # Invariants
//!
//! - The lock around the [`table`] is held across nothing slow and no foreign code.
//! - One lease has one guard: handing it on moves it, so the one before can do nothing to it.

mod begin;
mod calls;
mod futures;
mod guard;
mod inner;
mod loss;
mod pending;
mod queues;
mod rules;
#[cfg(test)]
mod schedules;
mod sync;
mod table;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mio::{Token, Waker};

pub use guard::SharedGuard;

use crate::config::{Config, IdleStrategy};
use crate::driver::Poller;
use crate::engine::NodeHealth;
use crate::error::{ConnectError, ExtendError, LockError, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::quorum::NodeMask;
use crate::status::NodeKey;
use begin::{connected, extended, nodes, owed, status, unlocked};
use calls::Kind;
use inner::{Inner, Owner};
use rules::Rules;
use table::{Table, Task};
use worker::Worker;

/// The end of a list, or no call.
const NONE: u32 = u32::MAX;

/// Redlock for many threads and tasks: a handle to one I/O thread, to be cloned freely.
///
/// Each call exists twice: blocking (`lock`), and as a plain future (`lock_async`) that needs no
/// runtime and runs on any. A future does nothing before it is first polled; dropping it at any
/// point gives the call up, and what it may have won is released.
///
/// ```no_run
/// use redbolt::{Config, Shared};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379", "redis://10.0.0.3:6379"];
/// let shared = Shared::connect(Config::new(nodes)?)?;
/// let workers = (0..8).map(|_| {
///     let shared = shared.clone();
///     std::thread::spawn(move || {
///         let guard = shared.lock("sku:42", Duration::from_secs(10))?;
///         if guard.remaining() > Duration::from_millis(100) {
///             // ...
///         }
///         Ok::<_, redbolt::LockError>(()) // the guard's drop releases the lock
///     })
/// });
/// for worker in workers.collect::<Vec<_>>() {
///     worker.join().unwrap()?;
/// }
/// shared.shutdown(Duration::from_secs(1));
/// # Ok(())
/// # }
/// ```
///
/// # Waiters of one process
///
/// Calls for one key that may wait stand in a queue, first-in first-out, and the first of them
/// competes on the network for all: a thousand waiters cost the nodes what one does. Each wait
/// still ends at its own deadline; a call whose [`Retry`](crate::Retry) allows so many attempts
/// waits behind others no longer than these could have taken, and one that tries once
/// ([`try_lock`](Self::try_lock)) never does.
///
/// A guard that is dropped or unlocked hands its lease to the next of the queue, without a word to
/// any node, if
///
/// - what is left of it is at least the `min_validity` that the next asked for, and half of what a
///   new lease of the next one's TTL would have had. [`SharedGuard::remaining`] says the truth;
/// - it is [kept alive](LockOptions::keep_alive) as the next one wants it: not at all, or without
///   limits; and [watched](LockOptions::watch) if that one wants it so;
/// - its token was neither given, nor read, nor handed on: whoever knows it would be able to
///   release the lock under its next holder;
/// - it was handed on less than [`Config::local_turns`] times in a row, 8 times where somebody
///   elsewhere is known to wait: other processes want their chance.
///
/// Else it is released, and the next of the queue competes.
///
/// # Costs
///
/// An uncontended call is that of [`Client`](crate::Client) and two hand-overs between threads: one to the I/O
/// thread (a write to an eventfd, unless it is at work), one back. Calls that come at once go out together,
/// one write a node. With [`IdleStrategy::Spin`] the I/O thread never sleeps, for as long as any handle
/// lives, and a blocking call spins for up to `node_timeout` before it sleeps;
/// [`IdleStrategy::SpinThenPark`] bounds both. Once warm nothing is allocated for keys of up to 32 bytes.
///
/// Up to `in_flight_max` calls, waiting ones included, may be under way; one more ends at once as
/// [`LockError::Full`].
///
/// # The end
///
/// Once the last handle, guard and call is gone the I/O thread sends what is owed, for at most
/// `node_timeout`, and ends; nobody waits for it. At the end of a program call
/// [`shutdown`](Self::shutdown), which does.
#[derive(Clone)]
pub struct Shared {
    owner: Arc<Owner>,
}

impl Shared {
    /// Starts the I/O thread and connects, as [`Client::connect`](crate::Client::connect) does.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`](crate::Client::connect), and [`ConnectError::System`] if no thread can be
    /// started.
    pub fn connect(config: Config) -> Result<Self, ConnectError> {
        let (shared, pending) = Self::begin_connect(config)?;
        connected(pending.wait()).map(|()| shared)
    }

    /// As [`connect`](Self::connect), without waiting for any node. The first calls do, as far as
    /// they need to.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] and [`ConnectError::System`].
    pub fn open(config: Config) -> Result<Self, ConnectError> {
        let rules = Rules::new(&config)?;
        let calls_max = config.in_flight_max;
        let spin = match config.idle_strategy {
            IdleStrategy::Park => Duration::ZERO,
            IdleStrategy::Spin => config.node_timeout,
            IdleStrategy::SpinThenPark(spin) => spin,
        };
        // Behind those of the driver.
        let token = Token(config.nodes.len() + 1);
        let (driver, poller) = Poller::open(config)?;
        let waker = Waker::new(poller.registry(), token)?;
        // An eventfd that is full has woken it already.
        let wake = move || drop(waker.wake());
        let inner = Arc::new(Inner::new(Table::new(rules, calls_max), wake, spin));
        let worker = Worker::new(driver, poller, Arc::clone(&inner));
        thread::Builder::new().name("redbolt".to_owned()).spawn(move || worker.run())?;
        Ok(Self { owner: Arc::new(Owner { inner }) })
    }

    // ---- locks ----

    /// One attempt at the lock `key`. Costs one round trip; none where a guard of this process
    /// surely holds it.
    ///
    /// # Errors
    ///
    /// As [`Client::try_lock`](crate::Client::try_lock), [`LockError::Full`] and
    /// [`LockError::Closed`].
    pub fn try_lock(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<SharedGuard, LockError> {
        let (pending, asked) = self.begin_lock(key.as_ref(), options.into().once())?;
        self.won(pending.wait(), asked)
    }

    /// Waits for the lock `key` as the `retry` of the options or of the configuration says: behind
    /// those of this process who came before, then by competing for it.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock): those of the last attempt.
    pub fn lock(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<SharedGuard, LockError> {
        let (pending, asked) = self.begin_lock(key.as_ref(), self.patient(options.into()))?;
        self.won(pending.wait(), asked)
    }

    /// Takes the lock `key` as [`lock`](Self::lock) does, runs `work`, and releases the lock on
    /// return, early return and panic.
    ///
    /// The lock is kept alive by the I/O thread; [`SharedGuard::is_lost`] says if that came to
    /// nothing. The error or panic of `work` comes before everything else.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock) and of `work`, and [`LockError::Lost`] if the lease was over
    /// before the work was.
    pub fn with_lock<T, E>(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
        work: impl FnOnce(&mut SharedGuard) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<LockError>,
    {
        let mut guard = self.lock(key, options.into().kept_alive())?;
        let value = work(&mut guard)?;
        let was_valid = guard.is_valid();
        let is_gone = matches!(self.unlock(guard), Err(UnlockError::NotHeld));
        if was_valid && !is_gone { Ok(value) } else { Err(LockError::Lost.into()) }
    }

    /// Moves the end of the lock to `ttl` from now, on a quorum of nodes that still hold it.
    ///
    /// # Errors
    ///
    /// As [`Client::extend`](crate::Client::extend), [`ExtendError::Full`] and [`ExtendError::Closed`].
    pub fn extend(&self, guard: &mut SharedGuard, ttl: Duration) -> Result<(), ExtendError> {
        let pending = self.begin_extend(guard, ttl)?;
        extended(guard, pending.wait())
    }

    /// Releases the lock and returns when a quorum has confirmed it, or cannot; at once, as
    /// [`Unlocked::Released`], where it went to the next waiter of this process.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotHeld`]: the lock was over before; where that is known already, drop the guard
    /// instead. [`UnlockError::NotOurs`] for a guard of another handle, which is dropped and thereby
    /// released there. [`UnlockError::Full`]: it is released all the same, without a result.
    pub fn unlock(&self, guard: SharedGuard) -> Result<Unlocked, UnlockError> {
        self.begin_unlock(guard)?.map_or(Ok(Unlocked::Released), |pending| unlocked(pending.wait()))
    }

    /// As [`Client::unlock_token`](crate::Client::unlock_token).
    ///
    /// # Errors
    ///
    /// As [`Client::unlock_token`](crate::Client::unlock_token), [`UnlockError::Full`] and [`UnlockError::Closed`].
    pub fn unlock_token(
        &self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
    ) -> Result<Unlocked, UnlockError> {
        unlocked(self.begin_unlock_token(key.as_ref(), token.as_ref())?.wait())
    }

    /// As [`Client::adopt`](crate::Client::adopt). The guard's lease is never handed on to another waiter: its token is
    /// known elsewhere.
    ///
    /// # Errors
    ///
    /// As [`Client::adopt`](crate::Client::adopt), [`ExtendError::Full`] and [`ExtendError::Closed`].
    pub fn adopt(
        &self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<SharedGuard, ExtendError> {
        let options = options.into();
        let ttl = options.ttl;
        let pending = self.begin_adopt(key.as_ref(), token.as_ref(), options)?;
        self.adopted(pending.wait(), ttl)
    }

    // ---- state ----

    /// As [`Client::status`](crate::Client::status): what each node holds for `key`.
    ///
    /// # Errors
    ///
    /// [`LockError::Full`] and [`LockError::Closed`].
    pub fn status(&self, key: impl AsRef<[u8]>) -> Result<Vec<NodeKey>, LockError> {
        status(self.begin_status(key.as_ref())?.wait())
    }

    /// How each node is, as the I/O thread sees it just now; no node is asked. Empty once the
    /// handle is shut down, or with `in_flight_max` calls under way.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHealth> {
        let begun = self.begin(Kind::Nodes, Task::Nodes);
        begun.map_or_else(|_| Vec::new(), |pending| nodes(pending.wait()))
    }

    /// The nodes that may vote, as the I/O thread last saw; none once the handle is shut down.
    #[must_use]
    pub fn voters(&self) -> NodeMask {
        self.owner.inner.with(|table| if table.is_closed { NodeMask::EMPTY } else { table.voters })
    }

    /// How many votes make a quorum.
    #[must_use]
    pub fn quorum(&self) -> u32 {
        self.owner.inner.with(|table| table.rules.quorum)
    }

    /// Whether a quorum may vote: what a readiness endpoint asks. No thread is woken for it, and it
    /// is answered whatever else is under way. [`nodes`](Self::nodes) says why not.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.voters().count() >= self.quorum()
    }

    // ---- the end ----

    /// Ends the handle and all its clones: no call begins any more, those under way end with an
    /// error, and what is owed to nodes that can answer is sent and waited for, at most `limit`.
    /// Returns how many releases are still owed then; their keys end with their TTL, and so do
    /// those of guards that still live.
    pub fn shutdown(&self, limit: Duration) -> usize {
        self.begin_shutdown(limit).map_or_else(|owed| owed, |pending| owed(pending.wait()))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (names, calls, keys, losses) = self.owner.inner.with(|table| {
            let (calls, keys) = (table.calls.in_use(), table.queues.in_use());
            (Arc::clone(&table.rules.names), calls, keys, table.losses.len())
        });
        f.debug_struct("Shared")
            .field("nodes", &names)
            .field("calls", &calls)
            .field("keys", &keys)
            .field("losses", &losses)
            .finish_non_exhaustive()
    }
}

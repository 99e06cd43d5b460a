//! [`Shared`]: one handle for many threads and tasks, over one I/O thread that owns the driver.
//!
//! Layer: above [`crate::driver`]. Holds no protocol: it queues, hands over and wakes.
//!
//! # Contract
//!
//! - A call ends by its own deadline, with an error if the I/O thread is gone; none hangs.
//! - A call that the caller gives up, at any point, holds nothing afterwards.
//!
//! # Invariants
//!
//! - No slow work and no foreign code runs under the mutex of the [`table`].
//! - One lease has one guard: handing the lease on moves it, so the previous guard cannot touch it.

mod begin;
#[cfg(all(test, feature = "sim"))]
mod broken;
mod calls;
mod counting;
mod election;
mod futures;
mod guard;
mod inner;
mod lead;
mod linger;
mod loss;
mod pending;
mod queues;
mod refused;
mod rules;
#[cfg(test)]
mod schedules;
mod sleeping;
mod span;
mod sync;
mod table;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mio::{Token, Waker};

pub use election::SharedObserver;
pub use guard::SharedGuard;

use crate::config::{Config, IdleStrategy};
use crate::driver::Poller;
use crate::engine::NodeHealth;
use crate::error::{ConnectError, DetachError, ExtendError, LockError, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::query::{NodeAnswers, Query};
use crate::quorum::NodeMask;
use crate::token::LockToken;
use begin::{answers, connected, detached, extended, nodes, owed, unlocked};
use calls::Kind;
use inner::{Caller, Inner, Owner, Threads};
use lead::Loop;
use rules::Rules;
use table::{Table, Task};
use worker::Worker;

/// Redlock for many threads and tasks: a handle to one I/O thread. Clone it freely.
///
/// Each call exists twice: blocking (`lock`), and as a plain future (`lock_async`) that needs no
/// runtime and runs on any. A future does nothing before its first poll. Dropping it at any point
/// gives the call up and releases what it may have won.
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
/// Calls that wait for one key stand in a queue, first-in first-out, and only the first of them
/// competes on the network: a thousand waiters cost the nodes no more than one. Each wait still
/// ends at its own deadline. A call whose [`Retry`](crate::Retry) limits the attempts waits in the
/// queue no longer than those attempts could have taken; [`try_lock`](Self::try_lock) never waits.
///
/// A guard that is dropped or unlocked hands its lease to the next waiter in the queue, without
/// asking any node, if
///
/// - the validity that is left is at least the `min_validity` of the next waiter, and half of what
///   a new lease of that waiter's TTL would have. [`SharedGuard::remaining`] shows what is left;
/// - it is [kept alive](LockOptions::keep_alive) as the next waiter asked: not at all, or without
///   limits;
/// - no caller read its token or gave it away: with the token, that caller could release
///   the lock of the next holder;
/// - it was handed on less than [`Config::local_turns`] times in a row, or 8 times while another
///   process is known to wait: other processes get their chance.
///
/// Otherwise the lease is released, and the next waiter competes.
///
/// # Costs
///
/// A call that blocks while nobody else waits for anything costs as much as that of
/// [`Client`](crate::Client): it leads, which is to say that it writes, waits at the sockets and reads
/// in the place of the I/O thread until it is done, also for the calls that come meanwhile. Each other
/// call costs two hand-overs between threads more: who works with the sockets is woken (a write to an
/// eventfd, unless it is awake), and then the caller. Calls made at the same time go out together, one
/// write per node.
///
/// With [`IdleStrategy::Spin`] the I/O thread never sleeps, for as long as any handle lives, and nobody
/// leads; a blocking call spins for up to `node_timeout` before it sleeps.
/// [`IdleStrategy::SpinThenPark`] bounds both. Once warm nothing is allocated for keys of up to 32 bytes.
///
/// The code of an executor that is woken (a [`Waker`](std::task::Waker)) runs on the I/O thread, or on the
/// thread that drops a guard or gives a call up, and must not block. Where it panics, its own task is not
/// woken.
///
/// Use a handle in one process: in the child of a fork its I/O thread is missing.
///
/// Up to `in_flight_max` calls, waiting ones included, may be under way; one more fails at once
/// with [`LockError::Full`].
///
/// # The end
///
/// Once the last handle, guard and call is gone, the I/O thread sends the releases that it owes,
/// for at most `node_timeout`, and ends. No call waits for that; at the end of a program call
/// [`shutdown`](Self::shutdown), which waits.
#[derive(Clone)]
pub struct Shared {
    owner: Arc<Owner>,
}

impl Shared {
    /// Starts the I/O thread and connects, as [`Client::connect`](crate::Client::connect) does.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`](crate::Client::connect), and [`ConnectError::System`] if no thread
    /// can be started.
    pub fn connect(config: Config) -> Result<Self, ConnectError> {
        let (shared, pending) = Self::begin_connect(config)?;
        connected(pending.wait()).map(|()| shared)
    }

    /// Like [`connect`](Self::connect), without waiting for any node. The first calls wait for the
    /// nodes that they need, and [`wait_ready`](Self::wait_ready) waits for a quorum.
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
        // Behind the driver's tokens.
        let token = Token(config.nodes.len() + 1);
        #[cfg_attr(not(feature = "metrics"), expect(unused_mut, reason = "for the counts"))]
        let (mut driver, poller) = Poller::open(config)?;
        let waker = Waker::new(poller.registry(), token)?;
        let (threads, gate) = Loop::new(poller.registry(), waker)?;
        let threads = Arc::new(threads);
        let table = Table::new(rules, calls_max, spin.is_zero());
        let inner = Arc::new(Inner::new(table, Arc::clone(&threads) as Arc<dyn Threads>, spin));
        #[cfg(feature = "metrics")]
        {
            let table = Arc::clone(&inner);
            let oldest = move |now| table.with(|table| table.oldest(now));
            driver.export_calls(inner.counting.counts(), Box::new(oldest));
        }
        threads.begin(Worker::new(driver, poller, Arc::clone(&inner)));
        let (works, table) = (Arc::clone(&threads), Arc::clone(&inner));
        let thread = thread::Builder::new().name("redbolt".to_owned());
        thread.spawn(move || works.run(gate, &table)).inspect_err(|_| drop(threads.end()))?;
        Ok(Self { owner: Arc::new(Owner { inner }) })
    }

    // ---- locks ----

    /// One attempt at the lock `key`. Costs one round trip; none where a guard of this process
    /// certainly holds the lock.
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
        let (pending, asked) =
            self.begin_lock(key.as_ref(), options.into().once(), Caller::Blocks)?;
        self.won(pending.wait(), asked)
    }

    /// Waits for the lock `key` as the `retry` of the options or of the configuration says: first
    /// behind earlier calls of this process, then by competing for the lock.
    ///
    /// # Errors
    ///
    /// Those of [`try_lock`](Self::try_lock), from the last attempt.
    pub fn lock(
        &self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<SharedGuard, LockError> {
        let (pending, asked) =
            self.begin_lock(key.as_ref(), self.patient(options.into()), Caller::Blocks)?;
        self.won(pending.wait(), asked)
    }

    /// Takes the lock `key` as [`lock`](Self::lock) does, runs `work`, and releases the lock on
    /// return, early return and panic.
    ///
    /// The I/O thread keeps the lock alive; [`SharedGuard::is_lost`] says whether it is lost. An
    /// error or panic of `work` comes before every other.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock) and of `work`, and [`LockError::Lost`] if the lease ended
    /// before the work.
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

    /// Moves the end of the lock to `ttl` from now, on a quorum of nodes that still hold its key.
    ///
    /// # Errors
    ///
    /// As [`Client::extend`](crate::Client::extend), [`ExtendError::Full`] and
    /// [`ExtendError::Closed`].
    pub fn extend(&self, guard: &mut SharedGuard, ttl: Duration) -> Result<(), ExtendError> {
        let pending = self.begin_extend(guard, ttl, Caller::Blocks)?;
        extended(guard, pending.wait())
    }

    /// Gives the lock of a guard away and returns its token: the lock stays until its TTL ends, or
    /// until a client with key and token releases or adopts it ([`unlock_token`](Self::unlock_token),
    /// [`adopt`](Self::adopt)). The guard is over. From then on this handle writes no command that
    /// changes a key by that token. Costs no round trip.
    ///
    /// # Errors
    ///
    /// As [`Driver::detach`](crate::driver::Driver::detach), [`DetachError::Full`] and [`DetachError::Closed`].
    /// The guard stays as it is.
    pub fn detach(&self, guard: &mut SharedGuard) -> Result<LockToken, DetachError> {
        let pending = self.begin_detach(guard, Caller::Blocks)?;
        detached(guard, pending.wait())
    }

    /// Releases the lock. Returns when a quorum has confirmed the release, or cannot; at once, with
    /// [`Unlocked::Released`], where the lease went to the next waiter of this process.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotHeld`]: the lock was over before; where you know that already, drop the
    /// guard instead. [`UnlockError::NotOurs`] for a guard of another handle; dropping it here
    /// makes that handle release it. [`UnlockError::Full`]: the lock is released all the same,
    /// without a result.
    pub fn unlock(&self, guard: SharedGuard) -> Result<Unlocked, UnlockError> {
        self.begin_unlock(guard, Caller::Blocks)?
            .map_or(Ok(Unlocked::Released), |pending| unlocked(pending.wait()))
    }

    /// As [`Client::unlock_token`](crate::Client::unlock_token).
    ///
    /// # Errors
    ///
    /// As [`Client::unlock_token`](crate::Client::unlock_token), [`UnlockError::Full`] and
    /// [`UnlockError::Closed`].
    pub fn unlock_token(
        &self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
    ) -> Result<Unlocked, UnlockError> {
        unlocked(self.begin_unlock_token(key.as_ref(), token.as_ref())?.wait())
    }

    /// As [`Client::adopt`](crate::Client::adopt). The guard's lease is never handed to another
    /// waiter: others know its token.
    ///
    /// # Errors
    ///
    /// As [`Client::adopt`](crate::Client::adopt), [`ExtendError::Full`] and
    /// [`ExtendError::Closed`].
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

    /// As [`Client::query`](crate::Client::query).
    ///
    /// # Errors
    ///
    /// As [`Client::query`](crate::Client::query), [`LockError::Full`] and [`LockError::Closed`].
    pub fn query(&self, query: &Query) -> Result<Vec<NodeAnswers>, LockError> {
        answers(self.begin_ask(query.clone())?.wait())
    }

    /// As [`Driver::wire_key`](crate::driver::Driver::wire_key).
    ///
    /// # Errors
    ///
    /// As [`Driver::wire_key`](crate::driver::Driver::wire_key).
    pub fn wire_key(&self, key: impl AsRef<[u8]>) -> Result<Vec<u8>, LockError> {
        self.owner.inner.with(|table| table.rules.wire_key(key.as_ref()))
    }

    /// The state of each node, as the I/O thread knows it now; no node is asked. Empty once the
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

    /// Whether a quorum may vote: for a readiness endpoint. It wakes no thread, and returns at once
    /// whatever else is under way. [`nodes`](Self::nodes) says why not.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.voters().count() >= self.quorum()
    }

    /// Waits until a quorum may vote, at most `limit`; returns at once where one may now. It counts
    /// as one call under way. Nodes that are away may come back meanwhile: unlike
    /// [`connect`](Self::connect), it waits for them until `limit`.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoQuorum`] at `limit`: it says why for each node. [`ConnectError::System`]
    /// with `in_flight_max` calls under way, or once the handle is shut down.
    pub fn wait_ready(&self, limit: Duration) -> Result<(), ConnectError> {
        connected(self.begin_wait_ready(limit)?.wait())
    }

    // ---- the end ----

    /// Ends the handle and all its clones: no further call begins, calls under way end with an
    /// error, and the I/O thread sends the releases it owes and waits at most `limit` for the
    /// answers. Returns how many releases it still owes; their keys end with their TTL, and so do
    /// the keys of guards that still live.
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

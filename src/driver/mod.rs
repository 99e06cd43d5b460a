//! Sockets and the clock around an [`Engine`], inside any mio loop.
//!
//! Layer: above the sans-IO line; the only place that opens, reads and writes sockets to nodes.
//!
//! # Contract
//!
//! - [`Driver::drive`] never blocks. When nothing is ready, owed or due, it makes no system call; a
//!   [`standalone`](Driver::standalone) driver makes one, the poll of its sockets.
//! - The driver registers its sockets edge-triggered with the given registry and tokens. The caller
//!   hands every event to [`Driver::ready`].
//!
//! # Invariants
//!
//! - Each pass reads everything that the sockets hold before it judges anything by time.
//! - One write per node and pass, however many requests it carries.

pub(crate) mod clock;
mod connecting;
mod connections;
mod core;
#[cfg(feature = "metrics")]
mod export;
pub(crate) mod lease;
mod link;
mod poller;
mod process;
mod resolve;
mod shutdown;
mod socket;
mod state;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use mio::event::Event as Readiness;
use mio::{Events, Poll, Registry};

pub use self::core::Driver;
pub(crate) use connecting::Connecting;
pub use lease::{Completion, Outcome};
pub(crate) use lease::{Lease, LeasePool};
pub use mio;
pub(crate) use poller::Poller;

use crate::config::Config;
use crate::engine::{Engine, LeaseId, OpId};
use crate::error::{ConfigError, ConnectError, DetachError, ExtendError, LockError, UnlockError};
use crate::options::LockOptions;
use crate::query::Query;
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::time::Instant;
use crate::token::LockToken;
use link::links_of;

/// Bytes read from a socket at a time.
const READ_LEN: usize = 16 << 10;

impl Driver {
    /// A driver for the nodes of `config`, in the loop of `registry`. It needs `tokens` for itself:
    /// one per node, those of [later lists](Self::set_nodes) included, and one more. It begins to
    /// connect with the first [`drive`](Self::drive).
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] for a configuration that cannot work, or a range of tokens that is
    /// too small. [`ConnectError::System`] if the operating system gives no randomness or
    /// descriptor.
    pub fn new(
        mut config: Config,
        registry: &Registry,
        tokens: Range<usize>,
    ) -> Result<Self, ConnectError> {
        config.process = process::this_process();
        let needed = config.nodes.len() + 1;
        if tokens.len() < needed {
            return Err(ConfigError::TokenRange { given: tokens.len(), needed }.into());
        }
        let engine = Engine::new(&config, process::fresh_seed()?, clock::now())?;
        Ok(Self {
            engine,
            links: links_of(&config)?,
            tokens,
            registry: registry.try_clone()?,
            own_poll: None,
            resolver: None,
            pool: LeasePool::new(),
            readable: NodeMask::EMPTY,
            connecting: NodeMask::EMPTY,
            blocked: NodeMask::EMPTY,
            #[cfg(feature = "tracing")]
            logged: NodeMask::EMPTY,
            #[cfg(feature = "metrics")]
            exporter: export::Exporter::new(config.client_name),
            fork: forkguard::new(),
            buffer: vec![0; READ_LEN].into_boxed_slice(),
        })
    }

    /// A driver with a poll of its own, for loops other than mio's. Watch [`as_fd`](AsFd::as_fd)
    /// for reading, and call [`drive`](Self::drive) when it is readable and at
    /// [`next_deadline`](Self::next_deadline).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn standalone(config: Config) -> Result<Self, ConnectError> {
        let poll = Poll::new()?;
        let mut driver = Self::new(config, poll.registry(), 0..NODES_MAX + 1)?;
        driver.own_poll = Some((poll, Events::with_capacity(64)));
        Ok(driver)
    }

    // ---- operations ----

    /// Begins one attempt at the lock `key`; its [`Outcome::Lock`] follows. The driver writes
    /// nothing before the next [`drive`](Self::drive) or [`flush`](Self::flush).
    ///
    /// # Errors
    ///
    /// [`LockError::Full`] at `in_flight_max`, [`LockError::Closed`] after
    /// [`shutdown`](Self::shutdown), and the errors that concern key, TTL and token. Then the attempt
    /// did not begin.
    pub fn try_lock(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<OpId, LockError> {
        self.begin_lock(key.as_ref(), &options.into().once(), clock::now())
    }

    /// Begins attempts at the lock `key` until one wins, as the `retry` of the options or of the
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
        let options = options.into().patient(self.engine.default_retry());
        self.begin_lock(key.as_ref(), &options, clock::now())
    }

    /// Begins one attempt at the locks of all `keys`, 1 to 64 in any order: all are won, or none.
    /// Its [`Outcome::Lock`] follows, with one lease for all of them. The lease ends with the first
    /// of its keys to end; extension, keep-alive, unlock and drop concern all.
    ///
    /// It costs one write per node: `MSETEX` where all nodes have it (Redis 8.4, Valkey 9.1), and
    /// otherwise one SET per key. Each key has its own votes, so several keys and single keys
    /// exclude each other, whatever client takes them.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock). [`LockError::InvalidKeys`] for no key, more than 64, or a
    /// key that appears twice. [`LockError::Full`] if `in_flight_max` leaves no room for one
    /// operation per key and one more.
    pub fn try_lock_all<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        options: impl Into<LockOptions>,
    ) -> Result<OpId, LockError> {
        self.begin_lock_all(keys, options.into().once(), clock::now())
    }

    /// Begins attempts at the locks of all `keys` until all are won, as the `retry` of the options
    /// or of the configuration says. Otherwise like [`try_lock_all`](Self::try_lock_all).
    ///
    /// A denied call waits as [`Client::lock_all`](crate::Client::lock_all) says, so no calls
    /// deadlock.
    ///
    /// # Errors
    ///
    /// As [`try_lock_all`](Self::try_lock_all).
    pub fn lock_all<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        options: impl Into<LockOptions>,
    ) -> Result<OpId, LockError> {
        let options = options.into().patient(self.engine.default_retry());
        self.begin_lock_all(keys, options, clock::now())
    }

    pub(crate) fn begin_lock_all<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        options: LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if !self.prepare(&options, now) {
            return Err(LockError::Closed);
        }
        self.engine.acquire_all(keys, options, now)
    }

    /// As [`try_lock`](Self::try_lock), or [`lock`](Self::lock) if the options have a `retry`; the
    /// caller has just read the clock.
    pub(crate) fn begin_lock(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if !self.prepare(options, now) {
            return Err(LockError::Closed);
        }
        self.engine.acquire(key, options, now)
    }

    /// Before a call for locks: its commands go behind the releases of dropped leases. Returns whether
    /// the driver still takes locks.
    #[inline]
    fn prepare(&mut self, options: &LockOptions, now: Instant) -> bool {
        self.collect_dropped(now);
        if options.is_fenced || options.is_announced {
            self.set_wall_clock(now);
        }
        !self.engine.is_closing()
    }

    /// Begins to move the end of `lease` to `ttl` from now.
    ///
    /// # Errors
    ///
    /// The errors of [`ExtendError`] that concern the call itself.
    pub fn extend(&mut self, lease: &Lease, ttl: Duration) -> Result<OpId, ExtendError> {
        if !lease.is_of(&self.pool) {
            return Err(ExtendError::NotOurs);
        }
        self.extend_id(lease.id(), ttl)
    }

    /// As [`extend`](Self::extend), for a lease of this driver of which the caller has only the id.
    pub(crate) fn extend_id(&mut self, lease: LeaseId, ttl: Duration) -> Result<OpId, ExtendError> {
        let op = self.engine.extend(lease, ttl, clock::now());
        self.pool.copy_change(&self.engine, lease);
        op
    }

    /// Begins to release `lease`; its [`Outcome::Unlock`] follows.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotOurs`] for a lease of another driver. [`UnlockError::Full`] at
    /// `in_flight_max`; the driver still releases the lease.
    pub fn unlock(&mut self, lease: Lease) -> Result<OpId, UnlockError> {
        if !lease.is_of(&self.pool) {
            return Err(UnlockError::NotOurs);
        }
        self.unlock_at(lease, clock::now())
    }

    /// As [`unlock`](Self::unlock), for a lease of this driver; the caller has just read the clock.
    pub(crate) fn unlock_at(&mut self, lease: Lease, now: Instant) -> Result<OpId, UnlockError> {
        let result = self.engine.unlock(lease.id(), now);
        self.pool.reclaim(lease);
        // The releases of dropped leases go out with this one.
        self.collect_dropped(now);
        result
    }

    /// Gives a lease away and returns its token. The lock stays until its TTL ends, or until a
    /// client with key and token releases or adopts it ([`unlock_token`](Self::unlock_token),
    /// [`adopt`](Self::adopt)). The lease is over here. From then on this driver writes no command
    /// that changes a key by that token. Costs no round trip.
    ///
    /// A node that has not answered the first SET yet may run it behind the other client's delete.
    /// The key then stays there until its TTL ends. Such nodes are a minority, so the lock is free.
    ///
    /// # Errors
    ///
    /// [`DetachError::Unsettled`] while a node may still run an earlier delete or extension of the
    /// lock. [`DetachError::NotOurs`] for a lease of another driver. The lease stays as it is.
    pub fn detach(&mut self, lease: &Lease) -> Result<LockToken, DetachError> {
        if !lease.is_of(&self.pool) {
            return Err(DetachError::NotOurs);
        }
        self.detach_id(lease.id())?;
        lease.end();
        Ok(lease.token())
    }

    pub(crate) fn detach_id(&mut self, lease: LeaseId) -> Result<(), DetachError> {
        let place = self.engine.word(lease);
        self.engine.detach(lease)?;
        if let Some(place) = place {
            // Another process may have the lock now, even if the caller never takes the result.
            self.pool.set_lost(place, lease);
        }
        Ok(())
    }

    /// Begins to delete `key` on every node where it holds `token`.
    ///
    /// # Errors
    ///
    /// The errors of [`UnlockError`] that concern the call itself.
    pub fn unlock_token(
        &mut self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
    ) -> Result<OpId, UnlockError> {
        let op = self.engine.unlock_token(key.as_ref(), token.as_ref(), clock::now());
        // A lease of this driver is over before a node gets the delete.
        self.copy_changes();
        op
    }

    /// Begins to take over the lock of a key and token, by extending it to the TTL of `options`
    /// from now. Of the other options only keep-alive, announced and fence apply: they concern
    /// the lease itself.
    ///
    /// # Errors
    ///
    /// The errors of [`ExtendError`] that concern the call itself.
    pub fn adopt(
        &mut self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<OpId, ExtendError> {
        let (options, now) = (options.into(), clock::now());
        if !self.prepare(&options, now) {
            return Err(ExtendError::Closed);
        }
        self.engine.adopt(key.as_ref(), token.as_ref(), &options, now)
    }

    /// Begins to take over the locks of several keys, each by its token. The lease has no fence.
    /// Otherwise like [`adopt`](Self::adopt).
    ///
    /// # Errors
    ///
    /// As [`adopt`](Self::adopt). [`ExtendError::InvalidName`] also for no key, more than 64, or a
    /// key that appears twice.
    pub fn adopt_all<K: AsRef<[u8]>, T: AsRef<[u8]>>(
        &mut self,
        locks: &[(K, T)],
        options: impl Into<LockOptions>,
    ) -> Result<OpId, ExtendError> {
        let (options, now) = (options.into(), clock::now());
        if !self.prepare(&options, now) {
            return Err(ExtendError::Closed);
        }
        self.engine.adopt_all(locks, &options, now)
    }

    /// Sends read-only commands to every connected node; their [`Outcome::Query`] follows within a
    /// `node_timeout`.
    ///
    /// # Errors
    ///
    /// [`LockError::Full`] at `in_flight_max`, and for more than 255 commands to one node.
    pub fn query(&mut self, query: &Query) -> Result<OpId, LockError> {
        self.engine.query(query, clock::now())
    }

    /// Cancels an operation. A call that takes a lock ends as [`LockError::Cancelled`], and the
    /// driver releases every key that the call may have written.
    pub fn cancel(&mut self, op: OpId) {
        self.engine.cancel(op, clock::now());
    }

    /// The next result. The engine checks a lease's remaining time again just before you get the
    /// lease.
    pub fn completion(&mut self) -> Option<Completion> {
        if !self.engine.has_event() {
            return None;
        }
        let event = self.engine.poll_event(clock::now())?;
        Some(self.pool.complete(&mut self.engine, event))
    }

    // ---- the loop ----

    /// Takes a readiness event. Returns false if the event does not belong to this driver.
    pub fn ready(&mut self, event: &Readiness) -> bool {
        let token = event.token().0;
        let Some(place) = token.checked_sub(self.tokens.start).filter(|_| token < self.tokens.end)
        else {
            return false;
        };
        let Some(id) = NodeId::new(place).filter(|_| place < self.links.len()) else {
            self.take_addresses();
            return true;
        };
        let Some(link) = self.links.get_mut(place) else { return true };
        if !link.is_open {
            self.connecting.insert(id);
            return true;
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.readable.insert(id);
            link.reads_to_end |= event.is_read_closed() || event.is_error();
        }
        if event.is_writable() && self.blocked.contains(id) {
            self.blocked.remove(id);
            self.watch_writable(id, false);
        }
        true
    }

    /// One pass: reads the sockets that are ready, does the work that is due, then writes the bytes
    /// that wait.
    pub fn drive(&mut self) {
        self.poll_own();
        // Reading the clock before the sockets gives a node a little more time, never less.
        let now = clock::now();
        if self.engine.uses_wall_clock() {
            self.set_wall_clock(now);
        }
        self.read();
        self.collect_dropped(now);
        self.engine.handle_timeout(now);
        self.copy_changes();
        self.update_connections();
        self.flush();
        #[cfg(feature = "tracing")]
        self.log_notices();
        #[cfg(feature = "metrics")]
        self.exporter.export_if_due(&self.engine, now);
    }

    /// Writes the bytes that wait, one write per node. [`drive`](Self::drive) does it too.
    pub fn flush(&mut self) {
        for nodes in self.engine.poll_writes() {
            for id in nodes.without(self.blocked) {
                self.write_to(id);
            }
        }
    }

    /// When to call [`drive`](Self::drive) at the latest, on the clock of
    /// [`redbolt::now`](crate::now).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        // An edge-triggered socket gives no further event until the driver has read it to its end.
        if !self.readable.is_empty()
            || self.pool.has_dropped()
            || !self.engine.nodes_with_output().without(self.blocked).is_empty()
        {
            return Some(Instant::default());
        }
        let due = self.engine.next_deadline();
        #[cfg(feature = "metrics")]
        let due =
            due.into_iter().chain(Some(self.exporter.due()).filter(|at| *at < Instant::MAX)).min();
        due
    }

    /// How long a poll may sleep: until [`next_deadline`](Self::next_deadline).
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.next_deadline().map(|deadline| clock::now().until(deadline))
    }

    // ---- inside ----

    /// Releases the leases that their holders dropped.
    pub(crate) fn collect_dropped(&mut self, now: Instant) {
        if !self.pool.has_dropped() {
            return;
        }
        let engine = &mut self.engine;
        self.pool.take_dropped(|dropped, is_left| {
            if is_left {
                engine.leave(dropped, now);
            } else {
                engine.release(dropped, now);
            }
        });
    }

    /// Shows the holders of leases what has changed.
    fn copy_changes(&mut self) {
        while let Some(changed) = self.engine.poll_change() {
            self.pool.copy_change(&self.engine, changed);
        }
    }

    /// Tells the engine the wall clock. Each pass does so, because a person may set the clock while
    /// a call waits.
    #[cold]
    fn set_wall_clock(&mut self, now: Instant) {
        let wall = clock::wall;
        #[cfg(feature = "sim")]
        let wall = self.engine.config().wall_clock.unwrap_or(wall);
        self.engine.set_wall_clock(u64::try_from(wall().as_micros()).unwrap_or(u64::MAX), now);
    }

    fn poll_own(&mut self) {
        let Some((mut poll, mut events)) = self.own_poll.take() else { return };
        // An interrupted poll has no events; the next pass sees them.
        let _ = poll.poll(&mut events, Some(Duration::ZERO));
        for event in &events {
            self.ready(event);
        }
        self.own_poll = Some((poll, events));
    }

    fn read(&mut self) {
        for id in std::mem::take(&mut self.connecting) {
            self.check_connect(id, clock::now());
        }
        for id in std::mem::take(&mut self.readable) {
            self.read_from(id);
        }
    }
}

impl AsFd for Driver {
    /// A descriptor that is readable when a socket of the driver has an event. Work that is due by
    /// time does not make it readable: see [`Driver::next_deadline`]. It is useful for a
    /// [`standalone`](Driver::standalone) driver; for others it is the poll of the registry's
    /// owner.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registry.as_fd()
    }
}

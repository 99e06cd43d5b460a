//! [`Client`]: blocking calls; the caller's thread is the event loop while a call lasts.
//!
//! Layer: above [`crate::driver`]. Holds no protocol and no votes.
//!
//! # Invariants
//!
//! - No call outlives its own deadline by more than a scheduling delay, whatever the nodes do.
//! - A call that follows a long silence reads the sockets once before it begins: what a node sent
//!   meanwhile is not held against it.

mod batch;
mod drive;
mod held;
mod inspect;
mod permissions;

use std::io;
use std::time::Duration;

use mio::{Events, Poll};

pub use batch::Batch;
pub use held::Held;
pub use inspect::{KeyState, NodeKey, NodeReport};
pub use permissions::NodePermissions;

use crate::config::{Config, IdleStrategy};
use crate::driver::clock::now;
use crate::driver::{Driver, Lease, Outcome};
use crate::engine::{NodeHealth, Notice, OpId};
use crate::error::{ConnectError, ExtendError, LockError, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::time::Instant;

/// Blocking Redlock client.
///
/// Its calls drive the connections: between calls nothing is read, sent or reconnected. It is
/// `Send`, so it may move between threads, and each call needs it alone. It must not be used on
/// both sides of a fork.
pub struct Client {
    pub(crate) driver: Driver,
    pub(crate) poll: Poll,
    events: Events,
    idle: IdleStrategy,
    pub(crate) node_timeout: Duration,
    /// The last operation of a batch in each place: nobody takes the results of another's.
    submitted: Vec<OpId>,
    /// A lease was lost since somebody asked.
    has_lost: bool,
}

/// Readiness taken in at once; more comes with the next poll.
const EVENTS_MAX: usize = 64;

/// Polls without sleeping between two looks at the clock: about a microsecond.
const SPINS: u32 = 6;

impl Client {
    /// Connects, and returns when every node is admitted or known not to be, or when a quorum is
    /// and `node_timeout` has passed since.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoQuorum`] if too few nodes may vote within `connect_timeout`: it says for
    /// each why, and how long a quarantine still lasts. [`ConnectError::Config`] and
    /// [`ConnectError::System`] as they say.
    pub fn connect(config: Config) -> Result<Self, ConnectError> {
        let connect_timeout = config.connect_timeout;
        let mut client = Self::open(config)?;
        // Not before the nodes have had that time: it says why each of them did not connect.
        let deadline = now() + connect_timeout;
        let mut quorum_since = None;
        loop {
            let time = now();
            let engine = client.driver.engine();
            let error = engine.connect_error(time);
            if error.is_none() {
                let since = *quorum_since.get_or_insert(time);
                if engine.is_settled() || since + client.node_timeout <= time {
                    return Ok(client);
                }
            } else if engine.is_settled() || deadline <= time {
                return error.map_or(Ok(client), Err);
            }
            let until = quorum_since.map_or(deadline, |since| since + client.node_timeout);
            client.pass(Some(until.min(deadline)))?;
        }
    }

    /// A client that begins to connect and does not wait. Its first call does, as far as it needs
    /// to.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] and [`ConnectError::System`].
    pub fn open(config: Config) -> Result<Self, ConnectError> {
        let poll = Poll::new()?;
        let tokens = 0..config.nodes.len() + 1;
        let (idle, node_timeout) = (config.idle_strategy, config.node_timeout);
        let mut driver = Driver::new(config, poll.registry(), tokens)?;
        driver.drive();
        let events = Events::with_capacity(EVENTS_MAX);
        Ok(Self {
            driver,
            poll,
            events,
            idle,
            node_timeout,
            submitted: Vec::new(),
            has_lost: false,
        })
    }

    // ---- locks ----

    /// One attempt at the lock `key`.
    ///
    /// Costs one round trip to the slowest node of the fastest quorum. Returns at the quorum, or as
    /// soon as none is possible, and in any case after `node_timeout`.
    ///
    /// # Errors
    ///
    /// [`LockError::Taken`], [`LockError::NoQuorum`] and [`LockError::Expired`] with each node's
    /// vote; in every case nothing is held.
    pub fn try_lock(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<Lease, LockError> {
        let now = self.catch_up()?;
        let op = self.driver.begin_lock(key.as_ref(), &options.into().once(), now)?;
        self.wait_lock(op)
    }

    /// Tries for the lock `key` until it is won, as the `retry` of the options or of the
    /// configuration says: by default for 10 s. Between attempts the call sleeps until the holder's
    /// release wakes it.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock): those of the last attempt.
    pub fn lock(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<Lease, LockError> {
        let now = self.catch_up()?;
        let options = options.into().patient(self.driver.engine().default_retry());
        let op = self.driver.begin_lock(key.as_ref(), &options, now)?;
        self.wait_lock(op)
    }

    /// Moves the end of `lease` to `ttl` from now, on a quorum of nodes that still hold it.
    ///
    /// # Errors
    ///
    /// Nothing is removed in any case. [`ExtendError::Lost`] and [`ExtendError::Expired`]: the
    /// lock is over, stop the work. [`ExtendError::NoQuorum`]: it may be tried again until
    /// [`Lease::deadline`], which is now the earlier of the old and the new one.
    pub fn extend(&mut self, lease: &mut Lease, ttl: Duration) -> Result<(), ExtendError> {
        self.catch_up()?;
        let op = self.driver.extend(lease, ttl)?;
        let Outcome::Extend(result) = self.wait_for(op)? else {
            return Err(ExtendError::Cancelled);
        };
        result
    }

    /// Releases `lease` and returns when a quorum has confirmed it, or cannot. Costs one round trip to
    /// the quorum, at most `node_timeout`.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotHeld`]: the lock was over before, so what was done under it may not have been
    /// alone. Where that is known already ([`Lease::is_valid`] is false) drop the lease instead.
    /// [`UnlockError::NotOurs`] for a lease of another client, which is dropped and thereby
    /// released by that one.
    pub fn unlock(&mut self, lease: Lease) -> Result<Unlocked, UnlockError> {
        if !self.driver.is_ours(&lease) {
            return Err(UnlockError::NotOurs);
        }
        let time = now();
        let now = if self.driver.engine().may_have_word(time) {
            self.read_up()?
        } else {
            self.catch_up()?
        };
        let op = self.driver.unlock_at(lease, now)?;
        self.wait_unlock(op)
    }

    /// Deletes `key` wherever it holds `token`: releases a lock that another process holds or
    /// [detached](Lease::detach).
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotHeld`] if no quorum holds the token, [`UnlockError::InvalidName`] for a key or
    /// token of impossible length.
    pub fn unlock_token(
        &mut self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
    ) -> Result<Unlocked, UnlockError> {
        self.catch_up()?;
        let op = self.driver.unlock_token(key, token)?;
        self.wait_unlock(op)
    }

    /// Takes over a lock that another process holds or [detached](Lease::detach), by extending it
    /// to the TTL of `options` from now; the lease is then kept as they say. What they say beyond
    /// that is for locking.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`] if no quorum holds it, [`ExtendError::NoQuorum`] if too few nodes
    /// answered. The lock is left as it is.
    pub fn adopt(
        &mut self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<Lease, ExtendError> {
        self.catch_up()?;
        let op = self.driver.adopt(key, token, options)?;
        let Outcome::Adopt(result) = self.wait_for(op)? else {
            return Err(ExtendError::Cancelled);
        };
        result
    }

    /// Takes the lock `key` as [`lock`](Self::lock) does, runs `work`, and releases the lock on
    /// return, early return and panic.
    ///
    /// The lock is kept alive as far as the client is driven: `work` must end, or
    /// [extend](Held::extend_if_due) the lock, before [`Held::remaining`] is zero. Its own error or panic
    /// comes before everything else.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock) and of `work`, and [`LockError::Lost`] if the lease was over
    /// before the work was.
    pub fn with_lock<T, E>(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
        work: impl FnOnce(&mut Held<'_>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<LockError>,
    {
        let options = options.into().kept_alive();
        let ttl = options.ttl;
        let lease = self.lock(key, options)?;
        let mut held = Held::new(self, lease, ttl);
        let value = work(&mut held)?;
        if held.release() { Ok(value) } else { Err(LockError::Lost.into()) }
    }

    /// Waits until every node is admitted or known not to be, at most `limit`; between calls of the
    /// client nothing is connected. Of use after [`open`](Self::open), or where each vote beyond
    /// the quorum is wanted.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoQuorum`] if too few nodes may vote then; [`ConnectError::System`].
    pub fn wait_settled(&mut self, limit: Duration) -> Result<(), ConnectError> {
        let deadline = now() + limit;
        self.poll_for(Some(Duration::ZERO))?;
        self.driver.drive();
        while !self.driver.is_settled() && now() < deadline {
            self.discard();
            self.pass(Some(deadline))?;
        }
        self.driver.engine().connect_error(now()).map_or(Ok(()), Err)
    }

    /// Many operations at once: submitted, written together, their results taken as they come.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch::new(self)
    }

    // ---- state ----

    /// How each node is, without asking it.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHealth> {
        self.driver.nodes()
    }

    /// The next thing that people should hear of a node, each told once: see [`Driver::notice`].
    pub fn notice(&mut self) -> Option<Notice> {
        self.driver.notice()
    }

    /// Whether a quorum may vote, as far as the last call saw: call [`drive`](Self::drive) before where
    /// the client may have been idle.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.driver.is_ready()
    }

    /// Hands what was counted since the last time to the recorder of the `metrics` facade: see
    /// [`Driver::export_metrics`]. Calls do so by themselves at most once a second.
    #[cfg(feature = "metrics")]
    pub fn export_metrics(&mut self) {
        self.driver.export_metrics();
    }

    /// The driver inside, for what else can be seen of it.
    #[must_use]
    pub const fn driver(&self) -> &Driver {
        &self.driver
    }

    // ---- the loop ----

    /// Reads once without waiting, if nobody has for a `node_timeout` or a quorum is missing.
    /// Returns the time after it.
    fn catch_up(&mut self) -> Result<Instant, io::ErrorKind> {
        let time = now();
        if !self.driver.engine().needs_pass(time) {
            return Ok(time);
        }
        self.read_up()
    }

    /// Reads what the sockets hold.
    fn read_up(&mut self) -> Result<Instant, io::ErrorKind> {
        self.poll_for(Some(Duration::ZERO))?;
        self.driver.drive();
        Ok(now())
    }

    /// Drives the loop until `op` has ended.
    fn wait_for(&mut self, op: OpId) -> Result<Outcome, io::ErrorKind> {
        self.driver.flush();
        loop {
            while let Some(done) = self.driver.completion() {
                if matches!(done.result, Outcome::Lost(_)) {
                    self.note_loss();
                } else if done.id == op {
                    self.driver.flush();
                    return Ok(done.result);
                }
            }
            if let Err(error) = self.pass(None) {
                // The lock is not known to be held, so it must not be.
                self.driver.cancel(op);
                return Err(error);
            }
        }
    }

    fn wait_lock(&mut self, op: OpId) -> Result<Lease, LockError> {
        let Outcome::Lock(result) = self.wait_for(op)? else { return Err(LockError::Cancelled) };
        result
    }

    fn wait_unlock(&mut self, op: OpId) -> Result<Unlocked, UnlockError> {
        let Outcome::Unlock(result) = self.wait_for(op)? else { return Ok(Unlocked::Unknown) };
        result
    }

    /// One pass of the loop: waits for readiness or a deadline, at most until `until`, and acts.
    pub(crate) fn pass(&mut self, until: Option<Instant>) -> Result<(), io::ErrorKind> {
        let deadline = [until, self.driver.next_deadline()].into_iter().flatten().min();
        match self.idle {
            IdleStrategy::Park => self.poll_until(deadline)?,
            IdleStrategy::Spin => {
                self.spin_until(deadline.unwrap_or(Instant::MAX), false)?;
            }
            IdleStrategy::SpinThenPark(spin) => {
                let end = now() + spin;
                let end = deadline.map_or(end, |deadline| deadline.min(end));
                let is_ready = self.spin_until(end, true)?;
                if !is_ready && deadline.is_none_or(|deadline| deadline > end) {
                    self.poll_until(deadline)?;
                }
            }
        }
        self.driver.drive();
        Ok(())
    }

    /// Polls without sleeping until something is ready or `end` has come: true for the first.
    /// `is_polite` lets others have the core in between, who may keep it for some time: on a machine of
    /// the nodes' own they are what is waited for.
    fn spin_until(&mut self, end: Instant, is_polite: bool) -> Result<bool, io::ErrorKind> {
        let polls = if is_polite { 1 } else { SPINS };
        loop {
            for _ in 0..polls {
                self.poll_for(Some(Duration::ZERO))?;
                if !self.events.is_empty() {
                    return Ok(true);
                }
            }
            if is_polite {
                std::thread::yield_now();
            }
            if end <= now() {
                return Ok(false);
            }
        }
    }

    fn poll_until(&mut self, deadline: Option<Instant>) -> Result<(), io::ErrorKind> {
        self.poll_for(deadline.map(|deadline| now().until(deadline)))
    }

    fn poll_for(&mut self, timeout: Option<Duration>) -> Result<(), io::ErrorKind> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            // A signal: whoever waits goes on waiting.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            Err(error) => return Err(error.kind()),
        }
        for event in &self.events {
            self.driver.ready(event);
        }
        Ok(())
    }

    /// Sends the releases of leases that were dropped, and waits at most `limit` until the nodes have
    /// answered all that is owed to them. Returns how many releases are owed then, one per key and
    /// node: they are sent as nodes come back, while the client is driven.
    pub fn wait_released(&mut self, limit: Duration) -> usize {
        let owed = self.driver.wait_released(limit);
        self.discard();
        owed
    }

    /// Ends the client: sends the releases of leases that were dropped, and waits at most `limit` for
    /// the answers. Returns how many releases are owed then, one per key and node: those keys end
    /// with their TTL, and so do those of leases that are still held.
    ///
    /// Dropping the client does this with `node_timeout`.
    pub fn shutdown(&mut self, limit: Duration) -> usize {
        self.driver.shutdown(limit)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.shutdown(self.node_timeout);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("driver", &self.driver).finish_non_exhaustive()
    }
}

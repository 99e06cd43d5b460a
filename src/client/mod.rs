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

pub use batch::Batch;
pub use held::Held;
pub use inspect::{NodeReport, examine};
pub use permissions::{NodePermissions, permissions};

use crate::config::Config;
use crate::driver::clock::now;
use crate::driver::{Connecting, Driver, Lease, Outcome, Poller};
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
    driver: Driver,
    poller: Poller,
    node_timeout: Duration,
    /// The last operation of a batch in each place: nobody takes the results of another's.
    submitted: Vec<OpId>,
    /// A lease was lost since somebody asked.
    has_lost: bool,
}

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
        let mut connecting = Connecting::new(&config, now());
        let mut client = Self::open(config)?;
        while let Some(until) = connecting.goes_on_until(&client.driver, now())? {
            client.pass(Some(until))?;
        }
        Ok(client)
    }

    /// A client that begins to connect and does not wait. Its first call does, as far as it needs
    /// to.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] and [`ConnectError::System`].
    pub fn open(config: Config) -> Result<Self, ConnectError> {
        let node_timeout = config.node_timeout;
        let (driver, poller) = Poller::open(config)?;
        Ok(Self { driver, poller, node_timeout, submitted: Vec::new(), has_lost: false })
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
        self.read()?;
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
        self.read()?;
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
    fn pass(&mut self, until: Option<Instant>) -> Result<(), io::ErrorKind> {
        self.poller.pass(&mut self.driver, until)
    }

    /// One pass that waits for nothing.
    fn read(&mut self) -> Result<(), io::ErrorKind> {
        self.poller.read(&mut self.driver)
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

//! [`Client`]: blocking calls; the caller's thread is the event loop while a call lasts.
//!
//! Layer: above [`crate::driver`]. Holds no protocol and no votes.
//!
//! # Invariants
//!
//! - No call outlives its own deadline by more than a scheduling delay, whatever the nodes do.
//! - A call that follows a long pause reads the sockets once before it begins: no node is blamed
//!   for what nobody read.

mod batch;
mod drive;
mod election;
mod held;

use std::io;
use std::time::Duration;

pub use batch::Batch;
pub use election::Observer;
pub use held::Held;

use crate::config::Config;
use crate::driver::clock::now;
use crate::driver::{Connecting, Driver, Lease, Outcome, Poller};
use crate::engine::{NodeHealth, Notice, OpId};
use crate::error::{ConnectError, DetachError, ExtendError, LockError, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::query::{NodeAnswers, Query};
use crate::time::Instant;
use crate::token::LockToken;

/// Blocking Redlock client.
///
/// Its calls drive the connections: between calls the client reads, sends and reconnects nothing.
/// It is `Send`, so it may move between threads; each call needs `&mut`. It must not be used on
/// both sides of a fork.
pub struct Client {
    driver: Driver,
    poller: Poller,
    node_timeout: Duration,
    /// The last operation of a batch in each place: no batch takes the results of another.
    submitted: Vec<OpId>,
    /// A lease was lost since the caller last asked.
    has_lost: bool,
}

impl Client {
    /// Connects. Returns when every node is settled (admitted, or known not to be), or
    /// `node_timeout` after a quorum is ready.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NoQuorum`] if too few nodes may vote within `connect_timeout`: it says why
    /// for each node, and how long a quarantine still lasts. [`ConnectError::Config`];
    /// [`ConnectError::System`].
    pub fn connect(config: Config) -> Result<Self, ConnectError> {
        let mut connecting = Connecting::new(&config, now());
        let mut client = Self::open(config)?;
        while let Some(until) = connecting.goes_on_until(&client.driver, now())? {
            client.pass(Some(until))?;
        }
        Ok(client)
    }

    /// A client that begins to connect and does not wait. Its first call waits for the nodes that
    /// it needs.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Config`] and [`ConnectError::System`].
    pub fn open(config: Config) -> Result<Self, ConnectError> {
        let node_timeout = config.node_timeout;
        let (mut driver, poller) = Poller::open(config)?;
        driver.set_blocking();
        Ok(Self { driver, poller, node_timeout, submitted: Vec::new(), has_lost: false })
    }

    // ---- locks ----

    /// One attempt at the lock `key`.
    ///
    /// Costs one round trip to the slowest node of the fastest quorum. Returns at the quorum, or as
    /// soon as no quorum is possible, and in any case after `node_timeout`.
    ///
    /// # Errors
    ///
    /// [`LockError::Taken`], [`LockError::NoQuorum`] and [`LockError::Expired`], each with the
    /// votes of the nodes; in every case the caller holds nothing.
    pub fn try_lock(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<Lease, LockError> {
        let now = self.catch_up()?;
        let op = self.driver.begin_lock(key.as_ref(), &options.into().once(), now)?;
        self.wait_lock(op)
    }

    /// Tries to take the lock `key` until an attempt wins, as the `retry` of the options or of the
    /// configuration says: by default for 10 s. Between attempts the call sleeps until the holder's
    /// release wakes it.
    ///
    /// # Errors
    ///
    /// Those of [`try_lock`](Self::try_lock), from the last attempt.
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

    /// Moves the end of `lease` to `ttl` from now, on a quorum of nodes that still hold its key.
    ///
    /// # Errors
    ///
    /// A failed extension deletes nothing. [`ExtendError::Lost`] and [`ExtendError::Expired`]: the
    /// lock is over, stop the work. [`ExtendError::NoQuorum`]: try again until [`Lease::deadline`],
    /// which is now the earlier of the old and the new one.
    pub fn extend(&mut self, lease: &mut Lease, ttl: Duration) -> Result<(), ExtendError> {
        self.catch_up()?;
        let op = self.driver.extend(lease, ttl)?;
        let Outcome::Extend(result) = self.wait_for(op)? else {
            return Err(ExtendError::Cancelled);
        };
        result
    }

    /// Releases `lease`. Returns when a quorum has confirmed the release, or cannot. Costs one
    /// round trip to the quorum, at most `node_timeout`.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotHeld`]: the lock was over before, so another holder may have been at work
    /// at the same time. Where you know that already ([`Lease::is_valid`] is false) drop the lease
    /// instead. [`UnlockError::NotOurs`] for a lease of another client; dropping it here makes that
    /// client release it.
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

    /// Gives a lease away: see [`Driver::detach`].
    ///
    /// # Errors
    ///
    /// Those of [`Driver::detach`].
    pub fn detach(&mut self, lease: &Lease) -> Result<LockToken, DetachError> {
        self.read_up()?;
        self.driver.detach(lease)
    }

    /// Deletes `key` on every node where it holds `token`: releases a lock that another process
    /// holds or [detached](Self::detach).
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotHeld`] if no quorum holds the token, [`UnlockError::InvalidName`] for a
    /// key or token of impossible length.
    pub fn unlock_token(
        &mut self,
        key: impl AsRef<[u8]>,
        token: impl AsRef<[u8]>,
    ) -> Result<Unlocked, UnlockError> {
        self.catch_up()?;
        let op = self.driver.unlock_token(key, token)?;
        self.wait_unlock(op)
    }

    /// Takes over a lock that another process holds or [detached](Self::detach), by extending it
    /// to the TTL of `options` from now. Of the other options only those for the lease itself
    /// (keep-alive, fence) apply.
    ///
    /// # Errors
    ///
    /// [`ExtendError::Lost`] if no quorum holds the lock, [`ExtendError::NoQuorum`] if too few
    /// nodes answered. The lock stays as it is.
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
    /// While `work` runs, only its calls on [`Held`] drive the client: `work` must end, or
    /// [extend](Held::extend_if_due) the lock, before [`Held::remaining`] is zero. An error or
    /// panic of `work` comes before every other.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock) and of `work`, and [`LockError::Lost`] if the lease ended
    /// before the work.
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

    /// Waits until every node is settled (admitted, or known not to be), at most `limit`; between
    /// calls the client connects to no node. Useful after [`open`](Self::open), or if you want
    /// every vote beyond the quorum.
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

    /// Many operations at once, written together. Take the results as they come.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch::new(self)
    }

    // ---- state ----

    /// Puts commands that only read to every connected node, and returns what each node answered, in
    /// the order of the configuration. Takes one round trip to the slowest node, at most
    /// `node_timeout`.
    ///
    /// # Errors
    ///
    /// [`LockError::Full`] for more than 255 commands to one node; [`LockError::System`].
    pub fn query(&mut self, query: &Query) -> Result<Vec<NodeAnswers>, LockError> {
        self.catch_up()?;
        let op = self.driver.query(query)?;
        let Outcome::Query(answers) = self.wait_for(op)? else { return Err(LockError::Cancelled) };
        Ok(answers)
    }

    /// The state of each node, as the client knows it; no node is asked.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHealth> {
        self.driver.nodes()
    }

    /// The next thing that people should know of a node, each reported once: see
    /// [`Driver::notice`].
    pub fn notice(&mut self) -> Option<Notice> {
        self.driver.notice()
    }

    /// Whether a quorum may vote, as the last call saw it. After a time without calls, call
    /// [`drive`](Self::drive) first.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.driver.is_ready()
    }

    /// Hands the counts since the last time to the recorder of the `metrics` facade: see
    /// [`Driver::export_metrics`]. Calls do so by themselves at most once per second.
    #[cfg(feature = "metrics")]
    pub fn export_metrics(&mut self) {
        self.driver.export_metrics();
    }

    /// The driver inside, for everything else that can be observed.
    #[must_use]
    pub const fn driver(&self) -> &Driver {
        &self.driver
    }

    // ---- the loop ----

    /// Reads once without waiting, if no call has read for a `node_timeout` or a quorum is missing.
    /// Returns the time afterwards.
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
                    self.leave_transfers();
                    self.driver.flush();
                    return Ok(done.result);
                }
            }
            if let Err(error) = self.pass(None) {
                // The caller will not know of the lock, so the client must not hold it.
                self.driver.cancel(op);
                self.leave_transfers();
                return Err(error);
            }
        }
    }

    /// Between calls nobody reads what holders hand over.
    fn leave_transfers(&mut self) {
        if self.driver.engine().takes_transfers() {
            self.driver.leave_transfers();
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

    /// Sends the releases of dropped leases and of debts, and waits at most `limit` for the
    /// answers. Returns how many releases the client still owes, one per key and node: it sends
    /// them as nodes come back, while it is driven.
    pub fn wait_released(&mut self, limit: Duration) -> usize {
        let owed = self.driver.wait_released(limit);
        self.discard();
        owed
    }

    /// Ends the client: sends the releases of dropped leases, and waits at most `limit` for the
    /// answers. Returns how many releases the client still owes, one per key and node: those keys
    /// end with their TTL, and so do the keys of leases that are still held.
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

//! [`Session`]: the event loop of the commands that lock: a driver, its poll, and signals.
//!
//! # Contract
//!
//! - Every wait ends: at a result, at its limit, or at a signal.
//! - [`Session::close`] waits at most `node_timeout` for outstanding answers.

use std::io;
use std::iter;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use redbolt::Instant;
use redbolt::driver::mio::{Events, Poll, Token, Waker};
use redbolt::driver::{Driver, Outcome};
use redbolt::engine::OpId;
use redbolt::inspect::{NodeHealth, NodeState, Query};
use redbolt::{Cause, Config, Lease, LockError, LockOptions, Retry, now};

use crate::alarm::Alarm;
use crate::args::Global;
use crate::exit::Failure;
use crate::inspect::SeenLock;
use crate::output::tell;
use crate::reload::Reload;
use crate::settings;
use crate::signals::{ENDING, Signal, Signals};

/// How long connecting may take before a command continues with the nodes that it has.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// How long a client that ends waits for the answers to the releases that it owes.
pub(crate) const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);

/// The wait between two attempts at a taken lock: this, and up to as much again at random.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The tokens of a driver, for as many nodes as it can have.
pub(crate) const TOKENS: usize = 33;

const NODE_TIMEOUT: Duration = Duration::from_millis(50);

pub(crate) struct Session {
    pub(crate) driver: Driver,
    pub(crate) signals: Signals,
    /// Whether the session prints notices about nodes on stderr as they come.
    pub(crate) is_telling: bool,
    pub(crate) config: Config,
    reload: Option<Reload>,
    /// Why the next [`pass`](Self::pass) fails: the file shares no list of nodes with those in use.
    pub(crate) stale: Option<Failure>,
    node_timeout: Duration,
    alarm: Alarm,
    poll: Poll,
    events: Events,
    is_closed: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

impl Session {
    /// Begins to connect. Takes `signals` from the process.
    pub(crate) fn open(global: &Global, signals: &[Signal]) -> Result<Self, Failure> {
        Self::open_with(global, signals, |config| config)
    }

    /// As [`open`](Self::open), with a change to the options' configuration.
    pub(crate) fn open_with(
        global: &Global,
        signals: &[Signal],
        change: impl FnOnce(Config) -> Config,
    ) -> Result<Self, Failure> {
        let config = change(settings::config(global)?);
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), Token(TOKENS))?);
        let signals = Signals::watch(signals, move || {
            // A poll that cannot be woken still ends at its next deadline.
            let _ = waker.wake();
        })?;
        let mut driver = Driver::new(config.clone(), poll.registry(), 0..TOKENS)?;
        driver.drive();
        Ok(Self {
            driver,
            signals,
            is_telling: false,
            config,
            reload: Reload::of(global)?,
            stale: None,
            node_timeout: node_timeout(global),
            alarm: Alarm::new()?,
            poll,
            events: Events::with_capacity(64),
            is_closed: false,
        })
    }

    /// One pass of the loop: waits for the nodes, a signal, or `until`, and drives.
    pub(crate) fn pass(&mut self, until: Option<Instant>) -> Result<(), Failure> {
        self.wait(until)?;
        self.drive()?;
        self.stale.take().map_or(Ok(()), Err)
    }

    /// Waits for the nodes, a signal, or `until`, without driving.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Result<(), Failure> {
        let look = self.reload.as_ref().map(|reload| reload.due);
        let deadline = [until, self.driver.next_deadline(), look].into_iter().flatten().min();
        Ok(self.alarm.wait(self.poll.registry().as_fd(), deadline)?)
    }

    /// Reads what the nodes sent, and does what is due.
    pub(crate) fn drive(&mut self) -> Result<(), Failure> {
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            self.driver.ready(event);
        }
        if let Some(reload) = &mut self.reload {
            self.stale = reload.look(&mut self.driver).err().or_else(|| self.stale.take());
        }
        self.driver.drive();
        if self.is_telling {
            tell(iter::from_fn(|| self.driver.notice()));
        }
        Ok(())
    }

    /// Waits until every node is settled, or until `node_timeout` after a quorum is ready; at most
    /// `limit`.
    pub(crate) fn wait_settled(&mut self, limit: Duration) -> Result<(), Failure> {
        let end = now() + limit;
        let mut known = vec![false; self.driver.nodes().len()];
        let mut quorum_since = None;
        loop {
            let nodes = self.driver.nodes();
            for (known, node) in known.iter_mut().zip(&nodes) {
                *known |= is_known(node);
            }
            let time = now();
            let mut until = end;
            if self.driver.is_ready() {
                until = until.min(*quorum_since.get_or_insert(time) + self.node_timeout);
            }
            if known.iter().all(|&known| known) || until <= time {
                return Ok(());
            }
            self.pass(Some(until))?;
            self.end_at_signal()?;
        }
    }

    /// Waits for the result of `op`. A signal cancels the operation and deletes the keys that it has
    /// written.
    pub(crate) fn finish(&mut self, op: OpId) -> Result<Outcome, Failure> {
        self.driver.flush();
        loop {
            while let Some(done) = self.driver.completion() {
                if done.id == op {
                    self.driver.flush();
                    return Ok(done.result);
                }
            }
            if let Err(failure) = self.end_at_signal() {
                self.driver.cancel(op);
                return Err(failure);
            }
            self.pass(None)?;
        }
    }

    /// Takes the locks of all keys as `acquire` says: one attempt, or as many as fit into `wait`.
    /// The wait begins after the nodes' time to connect.
    pub(crate) fn lock(
        &mut self,
        keys: &[&[u8]],
        acquire: LockOptions,
        wait: Option<Duration>,
    ) -> Result<Lease, Failure> {
        // Refuses a wrong TTL before any wait; nothing is written yet.
        if self.voters() == 0 {
            let probe = self.begin(keys, acquire.clone(), false);
            self.driver.cancel(probe?);
        }
        // An untaken result would keep the loop from sleeping.
        while self.driver.completion().is_some() {}
        self.wait_settled(CONNECT_LIMIT)?;
        let op = match wait.filter(|wait| !wait.is_zero()) {
            Some(wait) => {
                let retry = Retry::every(RETRY_DELAY, RETRY_DELAY);
                self.begin(keys, acquire.retry(retry).timeout(wait), true)?
            }
            // The session has waited for connections: the attempt need not wait again.
            None if !self.driver.is_ready() => self.begin(keys, acquire.timeout(MOMENT), false)?,
            None => self.begin(keys, acquire, false)?,
        };
        let Outcome::Lock(result) = self.finish(op)? else {
            return Err(LockError::Cancelled.into());
        };
        Ok(result?)
    }

    fn begin(
        &mut self,
        keys: &[&[u8]],
        acquire: LockOptions,
        is_patient: bool,
    ) -> Result<OpId, LockError> {
        match (keys, is_patient) {
            ([key], true) => self.driver.lock(key, acquire),
            ([key], false) => self.driver.try_lock(key, acquire),
            (keys, true) => self.driver.lock_all(keys, acquire),
            (keys, false) => self.driver.try_lock_all(keys, acquire),
        }
    }

    /// The holder of the lock `key`, as far as one round trip says.
    pub(crate) fn look_at(&mut self, key: &[u8]) -> Option<SeenLock> {
        let query = Query::leader(&self.driver.wire_key(key).ok()?);
        let op = self.driver.query(&query).ok()?;
        let Outcome::Query(answers) = self.finish(op).ok()? else { return None };
        let has_quorum = |nodes| self.driver.has_quorum(nodes);
        Some(SeenLock::of(key, &self.driver.nodes(), &answers, &has_quorum))
    }

    /// Waits until every node that votes has granted `lease` or `node_timeout` has passed.
    pub(crate) fn gather_votes(&mut self, lease: &Lease) -> Result<(), Failure> {
        let end = now() + self.node_timeout;
        while usize::try_from(lease.votes().count()).is_ok_and(|votes| votes < self.voters())
            && now() < end
        {
            self.pass(Some(end))?;
        }
        Ok(())
    }

    /// How many nodes may vote now.
    pub(crate) fn voters(&self) -> usize {
        let nodes = self.driver.nodes();
        nodes.iter().filter(|node| node.state == NodeState::Admitted).count()
    }

    /// Ends the session: releases the dropped leases, and waits for outstanding answers.
    pub(crate) fn close(&mut self) {
        if !std::mem::replace(&mut self.is_closed, true) {
            self.driver.shutdown(self.node_timeout);
        }
    }

    fn end_at_signal(&self) -> Result<(), Failure> {
        while let Some(signal) = self.signals.next() {
            if ENDING.contains(&signal) {
                return Err(Failure::signal(signal));
            }
        }
        Ok(())
    }
}

/// How long a node may take to answer.
pub(crate) fn node_timeout(global: &Global) -> Duration {
    global.node_timeout.unwrap_or(NODE_TIMEOUT)
}

/// Practically no time, for a call in which zero means something else.
const MOMENT: Duration = Duration::from_millis(1);

/// Whether the node is settled.
pub(crate) fn is_known(node: &NodeHealth) -> bool {
    if node.state == NodeState::Disconnected {
        return !matches!(node.cause, Cause::NotConnected | Cause::Connecting);
    }
    !matches!(node.state, NodeState::Connecting | NodeState::Greeting)
}

/// A result of the wrong kind; the driver never gives one.
pub(crate) fn odd_outcome() -> Failure {
    Failure::system("the event loop gave an odd result")
}

//! [`Server`]: one master, and the conditions into which a test can put it.
//!
//! Layer: sans-IO. `crate::server` drives a `Server` by real clocks, and a simulator drives it by a
//! virtual clock.

use std::fmt;
use std::time::Duration;

use super::channels::{Channels, Delivery};
use super::flavor::Flavor;
use super::keyspace::{Keyspace, Value};
use super::session::{Session, User};
use crate::Instant;

/// One master: a process with its keys.
#[derive(Clone)]
pub struct Server {
    pub(crate) flavor: Flavor,
    pub(crate) life: Life,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) named: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) keys: Keyspace,
    pub(crate) channels: Channels,
    pub(crate) state: State,
    pub(crate) stats: Stats,
    wall_step_ms: i64,
    next_id: u64,
}

/// The settings of a server, beyond one process life.
#[derive(Clone, Default)]
pub struct ServerOptions {
    flavor: Flavor,
    password: Option<Vec<u8>>,
    named: Option<(Vec<u8>, Vec<u8>)>,
}

/// One process life: its identity, its start and its clock.
#[derive(Clone, Debug)]
pub struct Life {
    pub(crate) run_id: [u8; 20],
    pub(crate) replid: [u8; 20],
    pub(crate) replid2: Option<[u8; 20]>,
    pub(crate) port: u16,
    started_at: Instant,
    wall_ms_at_start: i64,
    age: Duration,
}

impl fmt::Debug for Server {
    /// Without passwords, and without keys: their values are tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("flavor", &self.flavor)
            .field("life", &self.life)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerOptions {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions").field("flavor", &self.flavor).finish_non_exhaustive()
    }
}

/// Whether a restart brings the keys back.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// No persistence: the new process begins empty.
    Lost,
    /// As with an append-only file that lost nothing; ends of keys are absolute and still hold.
    Kept,
}

/// A condition of a server: a fault, or its end.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is a replica: it answers writes with `-READONLY`.
    Replica(bool),
    /// It is a replica that takes writes: `replica-read-only no`.
    WritableReplica(bool),
    /// It is a replica without its master that serves no stale data: `-MASTERDOWN`.
    MasterDown(bool),
    /// It was a replica of another master and is a master again: new `master_replid`, no keys.
    Promoted([u8; 20]),
    /// It has a replica, and `min-replicas-to-write` is set.
    Backed(bool),
    /// It has a replica, and `min-replicas-to-write` is not set.
    Unguarded(bool),
    /// It is loading its keys: `-LOADING`, except for HELLO, AUTH, INFO and the like.
    Loading(bool),
    /// It runs a script for long: `-BUSY`, except for HELLO, AUTH and the like. A restart ends it.
    Busy(bool),
    /// Its memory is full and nothing may be evicted: `-OOM` for commands that may need memory.
    OutOfMemory(bool),
    /// It cannot persist: it answers writes and PING with `-MISCONF`.
    Misconf(bool),
    /// It has fewer replicas than writes need: it answers writes with `-NOREPLICAS`.
    NoReplicas(bool),
    /// It is a node of a cluster, according to INFO and HELLO.
    Cluster(bool),
    /// Its eviction policy, such as `allkeys-lru`.
    MaxmemoryPolicy(String),
    /// The number of evicted keys that it reports.
    EvictedKeys(u64),
    /// Commands, in lower case (`get`, `client|id`), that no user may run: `-NOPERM`.
    Denied(Vec<String>),
    /// Commands, in lower case, that were renamed: the server does not know them under their own
    /// name.
    Renamed(Vec<String>),
}

/// The caller's next step for a session.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Every complete request has run.
    Idle,
    /// The output reached its limit first: write it, then call again without bytes.
    More,
    /// Write the output, then close the connection.
    Close,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) replica: bool,
    pub(crate) writable: bool,
    pub(crate) master_down: bool,
    pub(crate) backed: bool,
    pub(crate) unguarded: bool,
    pub(crate) loading: bool,
    pub(crate) busy: bool,
    pub(crate) oom: bool,
    pub(crate) misconf: bool,
    pub(crate) no_replicas: bool,
    pub(crate) cluster: bool,
    pub(crate) denied: Vec<String>,
    pub(crate) renamed: Vec<String>,
    pub(crate) policy: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) connections: u64,
    pub(crate) commands: u64,
    pub(crate) evicted: u64,
}

impl ServerOptions {
    /// A server that imitates `flavor` and asks for no password.
    #[must_use]
    pub const fn new(flavor: Flavor) -> Self {
        Self { flavor, password: None, named: None }
    }

    /// The password of the default user.
    #[must_use]
    pub fn password(mut self, password: impl Into<Vec<u8>>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// One more user, who may run everything.
    #[must_use]
    pub fn user(mut self, name: impl Into<Vec<u8>>, password: impl Into<Vec<u8>>) -> Self {
        self.named = Some((name.into(), password.into()));
        self
    }
}

impl Life {
    /// A process that starts at `started_at`, when its wall clock shows `wall_ms` milliseconds
    /// since 1970. `run_id` and `replid` are its random identities.
    #[must_use]
    pub const fn new(
        run_id: [u8; 20],
        replid: [u8; 20],
        started_at: Instant,
        wall_ms: i64,
    ) -> Self {
        let age = Duration::ZERO;
        Self { run_id, replid, replid2: None, port: 0, started_at, wall_ms_at_start: wall_ms, age }
    }

    /// The age that the process reports at its start.
    #[must_use]
    pub const fn age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// The port that it reports.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }
}

impl Server {
    /// A server without keys.
    #[must_use]
    pub fn new(options: &ServerOptions, life: Life) -> Self {
        Self {
            flavor: options.flavor,
            life,
            password: options.password.clone(),
            named: options.named.clone(),
            keys: Keyspace::default(),
            channels: Channels::default(),
            state: State::default(),
            stats: Stats::default(),
            wall_step_ms: 0,
            next_id: 1,
        }
    }

    /// Begins another process life. All sessions of the last life are void: drop them.
    ///
    /// Conditions stay, with three exceptions: a running script ends, the count of evicted keys is
    /// zero again, and a promotion no longer shows.
    pub fn restart(&mut self, life: Life, memory: Memory) {
        if let Memory::Lost = memory {
            self.keys = Keyspace::default();
        }
        self.life = life;
        self.state.busy = false;
        self.channels = Channels::default();
        self.stats = Stats::default();
        self.wall_step_ms = 0;
        self.next_id = 1;
    }

    /// Accepts a connection.
    pub fn connect(&mut self) -> Session {
        let id = self.next_id;
        self.next_id += 1;
        self.stats.connections += 1;
        Session::new(id, self.password.is_none().then_some(User::Default))
    }

    /// A connection has ended; its subscriptions end too.
    pub fn disconnect(&mut self, mut session: Session) {
        self.channels.leave(&mut session);
    }

    /// Messages since the last call, oldest first.
    pub fn deliveries(&mut self) -> std::vec::Drain<'_, Delivery> {
        self.channels.deliveries()
    }

    /// Puts the server into a condition, or out of it.
    pub fn set_condition(&mut self, condition: Condition) {
        match condition {
            Condition::Replica(is) => {
                self.state.replica = is;
                self.state.master_down &= is;
                self.state.writable = false;
            }
            Condition::WritableReplica(is) => (self.state.replica, self.state.writable) = (is, is),
            Condition::MasterDown(is) => (self.state.replica, self.state.master_down) = (is, is),
            Condition::Promoted(replid) => {
                self.life.replid2 = Some(std::mem::replace(&mut self.life.replid, replid));
                (self.state.replica, self.state.master_down) = (false, false);
                self.keys.clear();
            }
            Condition::Backed(is) => (self.state.backed, self.state.unguarded) = (is, false),
            Condition::Unguarded(is) => (self.state.backed, self.state.unguarded) = (is, is),
            Condition::Loading(is) => self.state.loading = is,
            Condition::Busy(is) => self.state.busy = is,
            Condition::OutOfMemory(is) => self.state.oom = is,
            Condition::Misconf(is) => self.state.misconf = is,
            Condition::NoReplicas(is) => self.state.no_replicas = is,
            Condition::Cluster(is) => self.state.cluster = is,
            Condition::MaxmemoryPolicy(policy) => self.state.policy = Some(policy),
            Condition::EvictedKeys(count) => self.stats.evicted = count,
            Condition::Denied(commands) => self.state.denied = commands,
            Condition::Renamed(commands) => self.state.renamed = commands,
        }
    }

    /// Takes the keys of `master`, as its replica does. The server drops its own keys.
    pub fn copy_keys(&mut self, master: &Self) {
        self.keys = master.keys.clone();
    }

    /// Moves the server's wall clock, and with it every key's end, by `step_ms` milliseconds.
    pub const fn step_wall_clock(&mut self, step_ms: i64) {
        self.wall_step_ms = self.wall_step_ms.saturating_add(step_ms);
    }

    /// The string that `key` of database 0 holds at `now`.
    pub fn value(&self, key: &[u8], now: Instant) -> Option<&[u8]> {
        match &self.keys.look(0, key, self.wall_ms(now))?.value {
            Value::Text(text) => Some(text),
            Value::List(_) => None,
        }
    }

    /// How many milliseconds `key` of database 0 has left at `now`; `None` if it has no end.
    pub fn ttl_ms(&self, key: &[u8], now: Instant) -> Option<i64> {
        let now_ms = self.wall_ms(now);
        Some(self.keys.look(0, key, now_ms)?.ends_at_ms? - now_ms)
    }

    /// Drops `key` of database 0 as eviction would. Returns whether it was there.
    pub fn evict(&mut self, key: &[u8]) -> bool {
        let was_there = self.keys.remove(0, key);
        self.stats.evicted += u64::from(was_there);
        was_there
    }

    /// Keys of all databases that live at `now`.
    pub fn key_count(&mut self, now: Instant) -> usize {
        let now_ms = self.wall_ms(now);
        (0..super::keyspace::DATABASES).map(|db| self.keys.count(db, now_ms).0).sum()
    }

    /// The names of the keys of the first database that live at `now`.
    pub fn key_names(&self, now: Instant) -> impl Iterator<Item = &[u8]> {
        self.keys.names(0, self.wall_ms(now))
    }

    /// Whether the server is loading its keys: see [`Condition::Loading`].
    #[must_use]
    pub const fn is_loading(&self) -> bool {
        self.state.loading
    }

    /// The age that this process life reports: `uptime_in_seconds`.
    #[must_use]
    pub fn uptime(&self, now: Instant) -> Duration {
        Duration::from_secs(self.uptime_s(self.wall_ms(now)))
    }

    /// The server's wall clock, in milliseconds since 1970.
    #[must_use]
    pub fn wall_ms(&self, now: Instant) -> i64 {
        let passed_ms = now.saturating_since(self.life.started_at).as_millis();
        let passed_ms = i64::try_from(passed_ms).unwrap_or(i64::MAX);
        self.life.wall_ms_at_start.saturating_add(self.wall_step_ms).saturating_add(passed_ms)
    }

    /// Counted as servers count: in whole seconds of the wall clock.
    pub(crate) fn uptime_s(&self, now_ms: i64) -> u64 {
        let passed_s = now_ms.div_euclid(1000) - self.life.wall_ms_at_start.div_euclid(1000);
        self.life.age.as_secs().saturating_add_signed(passed_s)
    }
}

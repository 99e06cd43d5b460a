//! [`Config`]: the nodes and the settings, parsed and checked.
//!
//! Layer: bottom, plain values.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "tls")]
use crate::address::Encryption;
use crate::address::{self, Address};
use crate::checked::Checked;
use crate::client_name::{self, Process};
use crate::error::ConfigError;
use crate::guards::{Admission, FailoverGuard, RestartGuard};
use crate::quorum::{Drift, NodeMask, Quorum};
use crate::retry::Retry;
#[cfg(feature = "tls")]
use crate::tls::Tls;

/// How a blocking call polls its sockets while there is nothing to read. The I/O thread of a
/// `Client` always sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IdleStrategy {
    /// Sleep in the operating system's poll. It uses no CPU; a wake-up takes some microseconds.
    #[default]
    Park,
    /// Poll without sleeping: the lowest latency, but one core is busy for as long as a call lasts.
    Spin,
    /// Poll without sleeping for this long, letting other threads use the core in between, then
    /// park. On a local network about 50 us spare most calls the wake-up.
    SpinThenPark(Duration),
}

/// The nodes and settings of a client.
///
/// All clients of the same locks must have the same nodes, `quorum`, `max_ttl`, `restart_guard`,
/// `failover_guard` and `key_prefix`. Otherwise two of them may hold the same lock. No client
/// refuses another for its settings; `redbolt doctor` names the clients that differ.
///
/// Each setter tells its default and its range. `docs/settings.md` (`guide::settings` in the
/// documentation) says when to change it.
#[derive(Clone)]
pub struct Config {
    /// The nodes of both lists.
    pub(crate) nodes: Vec<Address>,
    /// The nodes of the present list.
    pub(crate) list: NodeMask,
    /// The nodes of the list that is to replace the present one.
    pub(crate) next_list: Option<NodeMask>,
    pub(crate) quorum: Quorum,
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) drift_factor: f64,
    pub(crate) max_ttl: Duration,
    pub(crate) restart_guard: RestartGuard,
    pub(crate) failover_guard: FailoverGuard,
    pub(crate) admission: Admission,
    pub(crate) retry: Retry,
    pub(crate) idle_strategy: IdleStrategy,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) client_name: Option<String>,
    /// The driver sets it.
    pub(crate) process: Process,
    pub(crate) in_flight_max: usize,
    pub(crate) max_extensions: Option<u32>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) local_turns: u32,
    pub(crate) direct_wake: bool,
    /// 0 for none.
    pub(crate) transfers_in_row: u8,
    pub(crate) max_clock_skew: Duration,
    pub(crate) fence_ttl: Option<Duration>,
    /// A clock that lies, in place of the system's wall clock.
    #[cfg(feature = "sim")]
    pub(crate) wall_clock: Option<fn() -> Duration>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
    pub(crate) key_prefix: Vec<u8>,
}

impl Config {
    /// A configuration of these nodes, each an independent master. A node is
    /// `redis://[user[:password]@]host[:port][/database]`, `rediss://` for the same through TLS,
    /// `unix:///path` or `host:port`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for an empty list, for more than 32 nodes, for a node that is named twice,
    /// or for an address that cannot be read.
    pub fn new<I>(nodes: I) -> Result<Self, ConfigError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let nodes = address::parse_list(nodes)?;
        Ok(Self {
            list: NodeMask::first(nodes.len()),
            next_list: None,
            nodes,
            quorum: Quorum::Majority,
            node_timeout: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(1),
            drift_factor: 0.01,
            max_ttl: Duration::from_secs(30),
            restart_guard: RestartGuard::On,
            failover_guard: FailoverGuard::On,
            admission: Admission::Strict,
            retry: Retry::default(),
            idle_strategy: IdleStrategy::Park,
            username: None,
            password: None,
            client_name: None,
            process: Process::default(),
            in_flight_max: 4096,
            max_extensions: None,
            max_hold: None,
            local_turns: 64,
            direct_wake: true,
            transfers_in_row: 16,
            max_clock_skew: Duration::from_secs(1),
            fence_ttl: None,
            #[cfg(feature = "sim")]
            wall_clock: None,
            #[cfg(feature = "tls")]
            tls: None,
            key_prefix: Vec::new(),
        })
    }

    /// How many nodes of each list must grant a lock. All clients of the same locks must agree on it.
    /// By default a majority.
    #[must_use]
    pub const fn quorum(mut self, quorum: Quorum) -> Self {
        self.quorum = quorum;
        self
    }

    /// How long an attempt waits for nodes that do not answer. It delays no attempt that a quorum
    /// has decided. 50 ms by default, from 1 ms to 1 min. Where nodes answer only when a write is on
    /// disk (`appendfsync always`), take several times the worst fsync.
    #[must_use]
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// How long connecting and greeting a node may take.
    /// 1 s by default, from 1 ms to 10 min.
    #[must_use]
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The part of a TTL that the client gives up because clocks run at different rates. It must be
    /// at least the true difference between this machine and every node. 0.01 by default, from
    /// 0.0001 to 0.5; the client gives up another 2 ms on top of that part.
    #[must_use]
    pub const fn drift_factor(mut self, factor: f64) -> Self {
        self.drift_factor = factor;
        self
    }

    /// The longest TTL that any client of these locks uses. The client refuses longer TTLs. It
    /// gives a restarted node no vote for this long plus the drift. 30 s by default, from 4 ms to
    /// 24 days.
    #[must_use]
    pub const fn max_ttl(mut self, ttl: Duration) -> Self {
        self.max_ttl = ttl;
        self
    }

    /// Whether a restarted node must wait before it votes. See [`RestartGuard`]. On by default. All
    /// clients of the same locks must agree on it.
    #[must_use]
    pub const fn restart_guard(mut self, guard: RestartGuard) -> Self {
        self.restart_guard = guard;
        self
    }

    /// Whether masters with replicas must cease to grant when they are cut off. See
    /// [`FailoverGuard`]. On by default. All clients of the same locks must agree on it.
    #[must_use]
    pub const fn failover_guard(mut self, guard: FailoverGuard) -> Self {
        self.failover_guard = guard;
        self
    }

    /// Whether nodes that deny INFO may vote. See [`Admission`].
    /// Strict by default.
    #[must_use]
    pub const fn admission(mut self, admission: Admission) -> Self {
        self.admission = admission;
        self
    }

    /// How [`Client::lock`](crate::Client::lock) tries again.
    /// By default 200 ms and up to 200 ms more between attempts, for 10 s.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How blocking calls poll their sockets.
    /// Calls sleep by default: [`IdleStrategy::Park`].
    #[must_use]
    pub const fn idle_strategy(mut self, strategy: IdleStrategy) -> Self {
        self.idle_strategy = strategy;
        self
    }

    /// The ACL user for nodes whose URL names none. Such a node needs a password, too.
    #[must_use]
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// The password for nodes whose URL has none.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// TLS for nodes named `rediss://` and nodes named as a bare `host:port`. `redis://` stays
    /// plain. A fault in it is a [`ConfigError`] when a client is made.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether the connection to `node` goes through TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn is_tls(&self, node: &Address) -> bool {
        match node.encryption {
            Encryption::Plain => false,
            Encryption::Tls => true,
            Encryption::Open => self.tls.is_some(),
        }
    }

    /// The name of this client in the nodes' CLIENT LIST. `redbolt status` shows it beside the host
    /// and process id of a holder. By default the name of the program; 1 to 64 letters, digits and
    /// `.-_+@/`.
    ///
    /// The whole name is `redbolt:1:ID:HOST:PID:NAME`, where ID begins all tokens of the client.
    /// Behind another colon follow the settings on which all clients of its locks must agree
    /// ([`Agreement`](crate::inspect::Agreement)), for `redbolt doctor`. A client or a driver knows
    /// host and process id; an `Engine` alone leaves them empty.
    #[must_use]
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Whether a release wakes a call that waits for the lock. On by default.
    ///
    /// Each client has channels (`redbolt:3:` and the client's id) at the nodes that speak RESP3.
    /// Other clients send it messages there. This costs nothing while no call waits. While a call
    /// waits, a release hands the lock over to it (see
    /// [`transfers_in_row`](Self::transfers_in_row)), or wakes it by one more command.
    ///
    /// If this is off, or the nodes allow no channel, a waiting call tries again after `delay` and
    /// `jitter` of [`Retry`]. Since Redis 7 an ACL user has no channels by default; `&redbolt:*`
    /// allows them.
    #[must_use]
    pub const fn direct_wake(mut self, on: bool) -> Self {
        self.direct_wake = on;
        self
    }

    /// How many releases in a row may hand the lock over to the first waiter. Then the key is free
    /// for a moment. 16 by default.
    ///
    /// A hand-over takes one round trip. A wake takes two: one to the waiter, and one for its
    /// attempt. Clients of other libraries find the key taken all this time, and get their turn
    /// when it is free. The lease of a handed-over lock counts from the offer of the call that
    /// waited. So half of its TTL may be gone when the call returns. A waiter that dies or stops
    /// within 500 ms before its turn still gets the lock, and keeps it until the TTL ends.
    ///
    /// With 0 this client hands no lock over and takes none over. Its releases wake the first
    /// waiter, and its waiting calls make an attempt when they are woken. Without
    /// [`direct_wake`](Self::direct_wake) it hands no lock over either.
    #[must_use]
    pub const fn transfers_in_row(mut self, most: u8) -> Self {
        self.transfers_in_row = most;
        self
    }

    /// How far the client's wall clock and a node's may be apart for a fenced lock
    /// ([`LockOptions::fenced`](crate::LockOptions::fenced)). A node whose clock is further away
    /// does not vote for it. 1 s by default, from 1 ms to 1 h. A clock that is years ahead would
    /// raise the fences of all clients. Fences need a `max_ttl` longer than twice this time, twice
    /// `node_timeout` and `connect_timeout` together. Then a restarted node stays without a vote
    /// for long enough.
    #[must_use]
    pub const fn max_clock_skew(mut self, skew: Duration) -> Self {
        self.max_clock_skew = skew;
        self
    }

    /// How long the nodes keep the counter of a key's fences after a client last raised it. By
    /// default 24 h, and at least `max_ttl` and twice the skew. The range is from
    /// [`max_ttl`](Self::max_ttl) plus twice [`max_clock_skew`](Self::max_clock_skew) to 10 years.
    #[must_use]
    pub const fn fence_ttl(mut self, ttl: Duration) -> Self {
        self.fence_ttl = Some(ttl);
        self
    }

    /// A counter must not end before every clock has passed its number.
    fn fence_ttl_least(&self) -> Duration {
        self.max_ttl + self.max_clock_skew * 2
    }

    /// How long counters last.
    pub(crate) fn fence_ttl_or_default(&self) -> Duration {
        self.fence_ttl.unwrap_or_else(|| FENCE_TTL_DEFAULT.max(self.fence_ttl_least()))
    }

    fn why_no_fences(&self, guard_ms: u64) -> Option<&'static str> {
        let guard = Duration::from_millis(guard_ms);
        if self.restart_guard == RestartGuard::Off {
            return Some("the restart guard is off");
        }
        let needed = self.max_clock_skew * 2 + self.node_timeout * 2 + self.connect_timeout;
        (guard <= needed).then_some(
            "max_ttl must be longer than twice max_clock_skew, twice node_timeout and connect_timeout together",
        )
    }

    /// Bytes put in front of every key on the nodes, and nowhere else: callers, leases and errors
    /// have the key without it. Key and prefix together have at most 4,096 bytes. No prefix by
    /// default.
    ///
    /// Two clients mean the same lock if prefix and key, joined, are the same. An ACL of `~app1:*`
    /// limits a user to the locks with the prefix `app1:`.
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// How many operations may be under way at once, not counting the extensions that keep leases
    /// alive. 4,096 by default, from 1 to 1,048,576. The client refuses one more as `Full`.
    #[must_use]
    pub const fn in_flight_max(mut self, operations: usize) -> Self {
        self.in_flight_max = operations;
        self
    }

    /// How often a lease may be extended: a holder that extends for ever keeps every other client
    /// out. No limit by default, from 0 to 65,535. Each extension that begins counts, the engine's
    /// own ([`keep_alive`](crate::LockOptions::keep_alive)) included. Taking a lease over
    /// ([`Client::adopt`](crate::Client::adopt)) counts as one. While a call for several keys waits,
    /// the extensions of the keys that it keeps count too. If the limit is set, a client hands no
    /// lease on inside the process.
    #[must_use]
    pub const fn max_extensions(mut self, extensions: u32) -> Self {
        self.max_extensions = Some(extensions);
        self
    }

    /// How long a lease may be held in all: no extension reaches beyond it. For several keys, the time
    /// counts from when the call won each key. No limit by default. If it is set, a client hands no
    /// lease on inside the process.
    #[must_use]
    pub const fn max_hold(mut self, hold: Duration) -> Self {
        self.max_hold = Some(hold);
        self
    }

    /// How often in a row a client hands a lease to the next waiter of the same process without
    /// asking any node. Then it releases the lease, and other processes have their chance. While
    /// another process is known to wait, it hands a lease on at most 8 times. 0: never. 64 by
    /// default.
    #[must_use]
    pub const fn local_turns(mut self, turns: u32) -> Self {
        self.local_turns = turns;
        self
    }

    /// Checks what the setters could not. Every client passes its configuration through this check.
    pub(crate) fn check(&self) -> Result<Checked, ConfigError> {
        let range = |setting, value: Duration, least: Duration, most: Duration| {
            if value < least || value > most {
                Err(ConfigError::OutOfRange { setting, value, least, most })
            } else {
                Ok(())
            }
        };
        let ms = Duration::from_millis;
        range("node_timeout", self.node_timeout, ms(1), ms(60_000))?;
        range("connect_timeout", self.connect_timeout, ms(1), ms(600_000))?;
        range("max_ttl", self.max_ttl, ms(4), ms(TTL_MS_MAX))?;
        range("max_clock_skew", self.max_clock_skew, ms(1), ms(3_600_000))?;
        if let Some(ttl) = self.fence_ttl {
            range("fence_ttl", ttl, self.fence_ttl_least(), ms(FENCE_TTL_MS_MAX))?;
        }
        let most_extensions = self.max_extensions.unwrap_or(EXTENSIONS_LIMIT);
        let in_flight = 1..=IN_FLIGHT_LIMIT;
        let is_name = self.client_name.as_deref().is_none_or(client_name::is_name);
        for (is_fit, setting, must) in [
            (in_flight.contains(&self.in_flight_max), "in_flight_max", "from 1 to 1048576"),
            (most_extensions <= EXTENSIONS_LIMIT, "max_extensions", "from 0 to 65535"),
            (self.key_prefix.len() < KEY_LEN_MAX, "key_prefix", "shorter than 4096 bytes"),
            (is_name, "client_name", "1 to 64 letters, digits and .-_+@/"),
        ] {
            if !is_fit {
                return Err(ConfigError::Setting { setting, must });
            }
        }
        let drift = Drift::new(self.drift_factor)
            .ok_or(ConfigError::Setting { setting: "drift_factor", must: "from 0.0001 to 0.5" })?;
        // A server would take the client for its default user.
        let lacks_password = |node: &&Address| {
            (node.username.is_some() || self.username.is_some())
                && node.password.is_none()
                && self.password.is_none()
        };
        if let Some(node) = self.nodes.iter().find(lacks_password) {
            let why = "a user is named for it, and no password";
            return Err(ConfigError::Address { address: node.name().into(), why });
        }
        let votes = |list: NodeMask| {
            let nodes = usize::try_from(list.count()).unwrap_or(usize::MAX);
            Ok((list, self.quorum.votes(nodes)?))
        };
        let most_ttl_ms = u32::try_from(self.max_ttl.as_millis()).unwrap_or(u32::MAX);
        let outlives_drift = |&ttl: &u32| u64::from(ttl) > drift.of_ms(ttl.into());
        let least_ttl_ms = (1..=most_ttl_ms).find(outlives_drift).unwrap_or_default();
        if least_ttl_ms == 0 {
            return Err(ConfigError::Setting { setting: "max_ttl", must: "longer than its drift" });
        }
        let guard_ms = u64::from(most_ttl_ms) + drift.of_ms(most_ttl_ms.into());
        Ok(Checked {
            list: votes(self.list)?,
            next: self.next_list.map(votes).transpose()?,
            drift,
            least_ttl_ms,
            most_ttl_ms,
            guard_ms,
            no_fences: self.why_no_fences(guard_ms),
        })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("nodes", &self.nodes)
            .field("list", &self.list)
            .field("next_list", &self.next_list)
            .field("quorum", &self.quorum)
            .field("node_timeout", &self.node_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("drift_factor", &self.drift_factor)
            .field("max_ttl", &self.max_ttl)
            .field("restart_guard", &self.restart_guard)
            .field("failover_guard", &self.failover_guard)
            .field("admission", &self.admission)
            .field("retry", &self.retry)
            .field("idle_strategy", &self.idle_strategy)
            .finish_non_exhaustive()
    }
}

/// The longest key on the nodes, in bytes.
pub(crate) const KEY_LEN_MAX: usize = 4096;

/// A TTL and its drift must fit 32 bits of milliseconds.
const TTL_MS_MAX: u64 = 24 * 24 * 3600 * 1000;

const FENCE_TTL_DEFAULT: Duration = Duration::from_secs(24 * 3600);

/// Ten years of 365.25 days. Every server accepts such a time.
const FENCE_TTL_MS_MAX: u64 = 10 * 36_525 * 24 * 36 * 1000;

const IN_FLIGHT_LIMIT: usize = 1 << 20;

/// A lease counts its extensions in 16 bits.
const EXTENSIONS_LIMIT: u32 = u16::MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_nodes_is_refused_when_empty_too_long_or_doubled() {
        assert_eq!(Config::new(Vec::<String>::new()).unwrap_err(), ConfigError::NoNodes);
        let many = (1..=33).map(|port| format!("h:{port}"));
        assert_eq!(Config::new(many).unwrap_err(), ConfigError::TooManyNodes { nodes: 33 });
        let twice = Config::new(["redis://h:1", "h:2", "redis://u:p@h:1/3"]).unwrap_err();
        assert_eq!(twice, ConfigError::DuplicateNode { node: "h:1".into() });
    }

    #[test]
    fn a_user_without_a_password_is_refused() {
        let named = Config::new(["redis://ann@h:1", "h:2"]).unwrap();
        let message = named.check().unwrap_err().to_string();
        assert!(message.contains("h:1") && message.contains("no password"), "{message}");
        assert!(named.password("p").check().is_ok());
        assert!(Config::new(["redis://ann:p@h:1"]).unwrap().check().is_ok());
        assert!(Config::new(["h:1"]).unwrap().username("ann").check().is_err());
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let config = || Config::new(["h:1", "h:2", "h:3"]).unwrap();
        let table = [
            (config().node_timeout(Duration::ZERO), "node_timeout"),
            (config().connect_timeout(Duration::from_secs(601)), "connect_timeout"),
            (config().max_ttl(Duration::from_millis(3)), "max_ttl"),
            (config().max_ttl(Duration::from_millis(5)).drift_factor(0.5), "max_ttl"),
            (config().max_clock_skew(Duration::ZERO), "max_clock_skew"),
            (config().fence_ttl(Duration::from_secs(31)), "fence_ttl"),
            (config().drift_factor(f64::NAN), "drift_factor"),
            (config().drift_factor(0.0), "drift_factor"),
            (config().quorum(Quorum::AtLeast(1)), "quorum"),
            (config().in_flight_max(0), "in_flight_max"),
            (config().max_extensions(65_536), "max_extensions"),
            (config().client_name("a b"), "client_name"),
            (config().key_prefix([b'p'; 4096]), "key_prefix"),
        ];
        for (config, setting) in table {
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(setting), "{setting}: {message}");
        }
        assert!(config().check().is_ok());
        assert!(config().max_ttl(Duration::from_secs(3 * 24 * 3600)).check().is_ok());
    }

    #[test]
    fn a_password_is_never_printed() {
        let config = Config::new(["redis://u:hidden@h:1"]).unwrap().password("hidden");
        assert!(!format!("{config:?}").contains("hidden"));
    }
}

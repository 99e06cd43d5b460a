//! [`Cluster`]: the nodes of one lock, each a real server of its own; and how to wait for things
//! that take a while.

use std::thread;
use std::time::Duration;

use redbolt::{Ballot, Cause, Client, Config, Lease, LockError, RestartGuard, Unlocked, Vote};

use super::kind::{Kind, kind_or_skip};
use super::server::RealServer;

/// How long a test waits for what must come; reaching it is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What a loaded machine may add to the end of a call.
pub(crate) const SLACK: Duration = Duration::from_secs(2);

/// The TTL of locks that must not end during a test.
pub(crate) const TTL: Duration = Duration::from_secs(20);

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Real servers that are the nodes of one client.
#[derive(Debug)]
pub(crate) struct Cluster {
    servers: Vec<RealServer>,
}

impl Cluster {
    /// One server for each of `kinds`, started side by side; none if one of them is not installed.
    pub(crate) fn start(kinds: &[Kind], args: &[&str]) -> Option<Self> {
        for &kind in kinds {
            kind_or_skip(kind)?;
        }
        let servers = thread::scope(|scope| {
            let start = |&kind| scope.spawn(move || RealServer::start(kind, args));
            let starting: Vec<_> = kinds.iter().map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join();
            starting.into_iter().map(join).collect::<Result<Vec<_>, _>>()
        });
        Some(Self { servers: servers.expect("every server starts") })
    }

    /// `count` servers of all kinds in turn.
    pub(crate) fn mixed(count: usize) -> Option<Self> {
        // The newest first: the smallest clusters have both of the native dialects.
        let order = [Kind::Valkey91, Kind::Redis86, Kind::Redis70, Kind::Valkey81, Kind::Redis80];
        let kinds: Vec<_> = order.into_iter().cycle().take(count).collect();
        Self::start(&kinds, &[])
    }

    pub(crate) fn len(&self) -> usize {
        self.servers.len()
    }

    #[track_caller]
    pub(crate) fn node(&self, index: usize) -> &RealServer {
        self.servers.get(index).expect("a node of that number")
    }

    #[track_caller]
    pub(crate) fn node_mut(&mut self, index: usize) -> &mut RealServer {
        self.servers.get_mut(index).expect("a node of that number")
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &RealServer> {
        self.servers.iter()
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RealServer::url).collect()
    }

    /// A configuration for servers that have just been started, with a `node_timeout` that no
    /// answer of a healthy server needs.
    pub(crate) fn config(&self) -> Config {
        fresh_config(self.urls())
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.config()).expect("fresh servers are admitted")
    }

    /// A client that every node votes for: with a short `node_timeout` it may connect without one.
    #[track_caller]
    pub(crate) fn whole(&self, config: Config) -> Client {
        let mut client = Client::connect(config).expect("fresh servers are admitted");
        client.wait_settled(PATIENCE).expect("a quorum");
        assert_eq!(client.driver().voters().count() as usize, self.len(), "{:?}", client.nodes());
        client
    }

    /// What each node holds for a key.
    pub(crate) fn values(&self, key: &str) -> Vec<Option<Vec<u8>>> {
        self.servers.iter().map(|server| server.get(key)).collect()
    }

    /// How many nodes hold a key, whoever's.
    pub(crate) fn holders(&self, key: &str) -> usize {
        self.servers.iter().filter(|server| server.exists(key)).count()
    }

    /// Puts a key of somebody else's on one node.
    pub(crate) fn occupy(&self, index: usize, key: &str) {
        let reply = self.node(index).command(&["SET", key, FOREIGN, "PX", "60000"]);
        assert_eq!(reply, b"+OK\r\n");
    }

    /// How often a node ran SET since it started or was told `CONFIG RESETSTAT`.
    pub(crate) fn set_count(&self, index: usize) -> u64 {
        let info = self.node(index).command(&["INFO", "commandstats"]);
        let info = String::from_utf8(info).expect("INFO is text");
        let rest = info.split("cmdstat_set:calls=").nth(1);
        let digits = rest.and_then(|rest| rest.split(',').next());
        digits.map_or(0, |digits| digits.parse().expect("a count"))
    }
}

/// The value that [`Cluster::occupy`] writes.
pub(crate) const FOREIGN: &str = "somebody-else";

/// A configuration for servers that have just been started.
pub(crate) fn fresh_config(urls: Vec<String>) -> Config {
    Config::new(urls)
        .expect("addresses of servers")
        .restart_guard(RestartGuard::Off)
        .connect_timeout(PATIENCE)
        .node_timeout(ms(2_000))
}

/// Whether `condition` comes true within `limit`.
pub(crate) fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = redbolt::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if redbolt::now() >= end {
            return false;
        }
        thread::sleep(ms(5));
    }
}

/// The result of `call` and how long it took.
pub(crate) fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let begin = redbolt::now();
    let value = call();
    (value, begin.until(redbolt::now()))
}

/// Runs `call`, which must end by `deadline`, give or take what a loaded machine adds.
#[track_caller]
pub(crate) fn ends_within<T>(deadline: Duration, call: impl FnOnce() -> T) -> T {
    let (value, elapsed) = timed(call);
    assert!(elapsed <= deadline + SLACK, "a call of {deadline:?} took {elapsed:?}");
    value
}

/// One life of a lock, at the first try.
#[track_caller]
pub(crate) fn cycle(client: &mut Client, key: &str) {
    let mut lease = client.try_lock(key, TTL).expect("the lock is free");
    client.extend(&mut lease, TTL).expect("the lease is alive");
    assert_eq!(client.unlock(lease).expect("the lease is ours"), Unlocked::Released);
}

/// The votes of an attempt that failed because the lock is taken.
#[track_caller]
pub(crate) fn taken(result: Result<Lease, LockError>) -> Ballot {
    let Err(LockError::Taken(ballot)) = result else { panic!("not taken: {result:?}") };
    ballot
}

/// The votes of an attempt that failed for want of nodes.
#[track_caller]
pub(crate) fn no_quorum(result: Result<Lease, LockError>) -> Ballot {
    let Err(LockError::NoQuorum(ballot)) = result else { panic!("a quorum: {result:?}") };
    ballot
}

/// Why each node did not grant, in the order of the nodes; [`Cause::None`] where it did.
pub(crate) fn causes(ballot: &Ballot) -> Vec<Cause> {
    let cause = |vote| {
        if let Vote::Failed(cause) | Vote::Unknown(cause) = vote {
            cause
        } else if vote == Vote::Denied {
            Cause::Held
        } else {
            Cause::None
        }
    };
    ballot.votes().map(|(_, vote)| cause(vote)).collect()
}

//! [`Clients`]: clients of real servers, and what their calls come to.

use redbolt::{Ballot, Cause, Client, Config, Lease, LockError, RestartGuard, Unlocked, Vote};
use redbolt_rig::{Cluster, PATIENCE, TTL, ms};

/// Clients of servers that have just been started.
pub(crate) trait Clients {
    /// A configuration with a `node_timeout` that no answer of a healthy server needs.
    fn config(&self) -> Config;

    fn client(&self) -> Client {
        Client::connect(self.config()).expect("fresh servers are admitted")
    }

    /// A client that every node votes for: with a short `node_timeout` it may connect without one.
    #[track_caller]
    fn whole(&self, config: Config) -> Client;
}

impl Clients for Cluster {
    fn config(&self) -> Config {
        fresh_config(self.urls())
    }

    fn whole(&self, config: Config) -> Client {
        let mut client = Client::connect(config).expect("fresh servers are admitted");
        client.wait_settled(PATIENCE).expect("a quorum");
        assert_eq!(client.driver().voters().count() as usize, self.len(), "{:?}", client.nodes());
        client
    }
}

/// A configuration for servers that have just been started.
pub(crate) fn fresh_config(urls: Vec<String>) -> Config {
    Config::new(urls)
        .expect("addresses of servers")
        .restart_guard(RestartGuard::Off)
        .connect_timeout(PATIENCE)
        .node_timeout(ms(2_000))
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

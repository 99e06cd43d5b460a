//! [`Clients`]: clients of real servers, and the results of their calls.

use std::fmt;
use std::time::Duration;

use redbolt::inspect::{NodeHealth, NodeState};
use redbolt::{
    Ballot, Cause, Client, Config, DetachError, Guard, LockError, LockToken, RestartGuard,
    Unlocked, Vote,
};
use redbolt_rig::{Cluster, PATIENCE, TTL, eventually, ms};

/// Clients of servers that have just been started.
pub(crate) trait Clients {
    /// A configuration with a `node_timeout` that is longer than any answer of a healthy server
    /// takes.
    fn config(&self) -> Config;

    fn client(&self) -> Client {
        Client::connect(self.config()).expect("fresh servers are admitted")
    }

    /// A client for which every node votes: with a short `node_timeout` it may connect without one
    /// of them.
    #[track_caller]
    fn whole(&self, config: Config) -> Client;
}

impl Clients for Cluster {
    fn config(&self) -> Config {
        fresh_config(self.urls())
    }

    fn whole(&self, config: Config) -> Client {
        let client = Client::connect(config).expect("fresh servers are admitted");
        all_vote(&client, self.len());
        client
    }
}

/// Waits until this many nodes vote.
#[track_caller]
pub(crate) fn all_vote(client: &Client, nodes: usize) {
    let is_whole = eventually(PATIENCE, || client.voters().count() as usize == nodes);
    assert!(is_whole, "{:?}", client.nodes().wait());
}

/// A configuration for servers that have just been started.
pub(crate) fn fresh_config(urls: Vec<String>) -> Config {
    Config::new(urls)
        .expect("addresses of servers")
        .restart_guard(RestartGuard::Off)
        .connect_timeout(PATIENCE)
        .node_timeout(ms(2_000))
}

/// Key and token of a lock that is given away, once every node has answered every command for it.
#[track_caller]
pub(crate) fn given_away(mut guard: Guard) -> (Vec<u8>, LockToken) {
    let key = guard.key().to_vec();
    (key, settled(|| guard.detach().wait()))
}

#[track_caller]
fn settled(mut detach: impl FnMut() -> Result<LockToken, DetachError>) -> LockToken {
    let mut result = detach();
    eventually(PATIENCE, || {
        if matches!(result, Err(DetachError::Unsettled { .. })) {
            result = detach();
        }
        result.is_ok()
    });
    result.expect("every node has answered")
}

/// One life of a lock, at the first try.
#[track_caller]
pub(crate) fn cycle(client: &Client, key: &str) {
    let mut lease = client.try_lock(key, TTL).wait().expect("the lock is free");
    lease.extend(TTL).wait().expect("the lease is alive");
    assert_eq!(lease.unlock().wait().expect("the lease is ours"), Unlocked::Released);
}

/// The votes of an attempt that failed because the lock is taken.
#[track_caller]
pub(crate) fn taken<L: fmt::Debug>(result: Result<L, LockError>) -> Ballot {
    let Err(LockError::Taken(ballot)) = result else { panic!("not taken: {result:?}") };
    ballot
}

/// The votes of an attempt that failed for want of nodes.
#[track_caller]
pub(crate) fn no_quorum<L: fmt::Debug>(result: Result<L, LockError>) -> Ballot {
    let Err(LockError::NoQuorum(ballot)) = result else { panic!("a quorum: {result:?}") };
    ballot
}

/// Why each node did not grant, in the order of the nodes; [`Cause::None`] for a node that granted.
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

/// Waits, for at most `limit`, until no node owes an answer and none is owed a release. Returns how
/// many releases the nodes are still owed.
pub(crate) fn wait_released(client: &Client, limit: Duration) -> usize {
    let mut owed = 0;
    eventually(limit, || {
        let nodes = client.nodes().wait();
        owed = nodes.iter().map(|node| node.debts).sum();
        owed == 0 && nodes.iter().all(|node| node.unanswered == 0)
    });
    owed
}

/// Waits until each node votes, or the client knows why it does not.
#[track_caller]
pub(crate) fn settled_nodes(client: &Client) {
    let is_settled =
        |node: &NodeHealth| !matches!(node.state, NodeState::Connecting | NodeState::Greeting);
    assert!(eventually(PATIENCE, || client.nodes().wait().iter().all(is_settled)));
}

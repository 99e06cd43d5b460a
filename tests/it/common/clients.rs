//! [`Clients`]: clients of real servers, and what their calls come to.

use redbolt::{
    Ballot, Cause, Client, Config, DetachError, Lease, LockError, LockToken, RestartGuard,
    Unlocked, Vote,
};
#[cfg(feature = "shared")]
use redbolt::{Shared, SharedGuard};
use redbolt_rig::{Cluster, PATIENCE, TTL, eventually, ms};

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

/// Key and token of a lease that is given away, once every node has answered what was sent for it.
#[track_caller]
pub(crate) fn given_away(client: &mut Client, lease: Lease) -> (Vec<u8>, LockToken) {
    let token = settled(|| client.detach(&lease));
    (lease.key().to_vec(), token)
}

/// The same of a shared handle.
#[cfg(feature = "shared")]
#[track_caller]
pub(crate) fn shared_away(shared: &Shared, mut guard: SharedGuard) -> (Vec<u8>, LockToken) {
    let key = guard.key().to_vec();
    (key, settled(|| shared.detach(&mut guard)))
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

//! Fenced locks on real servers: numbers that grow from holder to holder, and the faults that may
//! stop them.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use redbolt::{Cause, Client, Config, LockError, LockOptions};

use super::common::{
    Cluster, Kind, PATIENCE, RealServer, all_vote, causes, eventually, given_away, ms,
    wait_released,
};

const TTL: Duration = Duration::from_secs(2);

/// Short times, so that servers that have just started are soon old enough for the restart guard. On a
/// busy machine answers are read late, and then the clocks of servers seem to be off.
pub(super) fn config(cluster: &Cluster) -> Config {
    Config::new(cluster.urls())
        .expect("addresses of servers")
        .max_ttl(TTL)
        .node_timeout(ms(200))
        .connect_timeout(ms(500))
        .max_clock_skew(ms(500))
}

/// A client for which every node votes.
pub(super) fn client_of(config: Config) -> Client {
    let nodes = config.nodes().len();
    let client = Client::open(config).expect("a poll");
    all_vote(&client, nodes);
    client
}

pub(super) fn fenced() -> LockOptions {
    LockOptions::new(TTL).fenced()
}

fn counters(cluster: &Cluster, key: &str) -> Vec<Option<Vec<u8>>> {
    cluster.values(&format!("{key}:fence"))
}

#[test]
fn each_holder_has_a_higher_fence_than_the_one_before() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let mut clients = [client_of(config(&cluster)), client_of(config(&cluster))];
    let mut last = 0;
    for turn in 0..40 {
        let client = &mut clients[turn % 2];
        let lease = client.lock("k", fenced()).wait().unwrap();
        let fence = lease.fence().expect("it was asked for");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        lease.unlock().wait().unwrap();
    }
    // A node that was slow in the last turn may lack it.
    let text = Some(last.to_string().into_bytes());
    let has_it = |counters: Vec<_>| counters.iter().filter(|it| **it == text).count() >= 3;
    assert!(eventually(PATIENCE, || has_it(counters(&cluster, "k"))));
    // The counter outlives the lock, but not for ever.
    for client in &clients {
        wait_released(client, PATIENCE);
    }
    assert_eq!(cluster.holders("k"), 0);
    let left = cluster.nodes().map(|node| node.pttl("k:fence")).max();
    assert!((86_000_000..=86_400_000).contains(&left.unwrap()), "{left:?} ms");
    // A lock that is asked for without a fence has none, and leaves the counter as it is.
    let lease = clients[0].lock("k", TTL).wait().unwrap();
    assert_eq!(lease.fence(), None);
}

#[test]
fn a_counter_that_is_ahead_costs_a_second_round() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = client_of(config(&cluster));
    let first = client.lock("k", fenced()).wait().unwrap();
    let fence = first.fence().unwrap();
    first.unlock().wait().unwrap();
    let ahead = fence + 60_000_000;
    for node in cluster.nodes().take(3) {
        node.command(&["SET", "k:fence", &ahead.to_string()]);
    }
    let second = client.lock("k", fenced()).wait().unwrap();
    let after = second.fence().unwrap();
    assert!(after > fence, "{after} after {fence}");
    second.unlock().wait().unwrap();
    // Once every counter is ahead, the fence is above all of them.
    for node in cluster.nodes() {
        node.command(&["SET", "k:fence", &(ahead + 9).to_string()]);
    }
    let third = client.lock("k", fenced()).wait().unwrap();
    assert_eq!(third.fence(), Some(ahead + 10));
}

#[test]
fn a_counter_that_is_none_leaves_nothing_behind_and_says_so() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = client_of(config(&cluster));
    for (index, node) in cluster.nodes().enumerate() {
        match index {
            0 => node.command(&["RPUSH", "k:fence", "x"]),
            1 => node.command(&["SET", "k:fence", "garbage"]),
            2 => node.command(&["SET", "k:fence", "-5"]),
            3 => node.command(&["SET", "k:fence", "inf"]),
            _ => node.command(&["SET", "k:fence", "9007199254740991"]),
        };
    }
    let error = client.try_lock("k", fenced()).wait().unwrap_err();
    let LockError::NoQuorum(ballot) = &error else { panic!("{error}") };
    let causes = causes(ballot);
    assert!(causes.contains(&Cause::FenceCounter), "{error}");
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("k"), 0, "{error}");
}

#[test]
fn a_user_without_scripts_gets_no_fence_and_plain_locks() {
    // Older servers release by scripts only, so they would not vote for any lock.
    let Some(cluster) = Cluster::start(&[Kind::Redis86, Kind::Valkey91, Kind::Valkey91], &[])
    else {
        return;
    };
    for node in cluster.nodes() {
        let rules = ["on", ">pw", "~*", "&*", "+@all", "-eval"];
        node.command(&[&["ACL", "SETUSER", "scriptless"][..], &rules[..]].concat());
    }
    let client = client_of(config(&cluster).username("scriptless").password("pw"));
    let error = client.try_lock("k", fenced()).wait().unwrap_err();
    assert!(error.to_string().contains("runs no scripts"), "{error}");
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
    let _plain = client.try_lock("k", TTL).wait().unwrap();
}

#[test]
fn a_fence_goes_with_its_lease_through_extensions_and_to_another_owner() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (one, two) = (client_of(config(&cluster)), client_of(config(&cluster)));
    let mut lease = one.lock("k", fenced()).wait().unwrap();
    let fence = lease.fence().unwrap();
    lease.extend(TTL).wait().unwrap();
    assert_eq!(lease.fence(), Some(fence));
    let (key, token) = given_away(lease);
    let adopted = two.adopt(&key, &token, LockOptions::new(TTL).fence(fence)).wait().unwrap();
    assert_eq!(adopted.fence(), Some(fence));
}

#[test]
fn counters_end_fence_ttl_after_the_last_holder() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let client = client_of(config(&cluster).fence_ttl(ms(3_200)));
    for key in ["a", "b", "c"] {
        let lease = client.lock(key, fenced()).wait().unwrap();
        lease.unlock().wait().unwrap();
    }
    let left =
        || ["a", "b", "c"].iter().any(|key| counters(&cluster, key).iter().any(Option::is_some));
    assert!(left(), "the counters outlive their leases");
    assert!(eventually(PATIENCE, || !left()), "no counter is left");
}

#[test]
fn the_holders_of_a_client_have_fences_of_their_own() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let shared = Client::open(config(&cluster)).unwrap();
    assert!(eventually(PATIENCE, || shared.try_lock("k", fenced()).wait().is_ok()));
    let (send, fences) = channel();
    thread::scope(|scope| {
        for _ in 0..8 {
            let (shared, send) = (shared.clone(), send.clone());
            scope.spawn(move || {
                for _ in 0..5 {
                    let guard = shared.lock("k", fenced()).wait().unwrap();
                    // The holder sends it while it holds the lock, so the numbers come in the order
                    // of the holders.
                    send.send(guard.fence().expect("it was asked for")).unwrap();
                    drop(guard);
                }
            });
        }
    });
    drop(send);
    let fences: Vec<_> = fences.iter().collect();
    assert_eq!(fences.len(), 40);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

#[test]
fn a_node_that_restarts_without_its_counter_does_not_vote_at_once() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    let client = client_of(config(&cluster));
    let lease = client.lock("k", fenced()).wait().unwrap();
    let fence = lease.fence().unwrap();
    lease.unlock().wait().unwrap();
    let restarted: &mut RealServer = cluster.node_mut(0);
    restarted.kill9();
    restarted.restart();
    let lease = client.lock("k", fenced()).wait().unwrap();
    assert!(lease.fence() > Some(fence));
    assert!(!lease.votes().contains(redbolt::inspect::NodeId::new(0).unwrap()));
}

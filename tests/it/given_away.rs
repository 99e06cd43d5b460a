//! Leases that are given away: no message takes them from the client that has key and token. A call
//! that waits behind one costs the nodes little.

use std::thread;
use std::time::Duration;

use redbolt::{Client, LockError, LockOptions, Retry};

use super::common::{Clients as _, Cluster, PATIENCE, eventually, given_away, ms, settled_nodes};

const LONG: Duration = Duration::from_secs(28);

fn patient(limit: Duration) -> LockOptions {
    LockOptions::new(LONG).retry(Retry::every(ms(50), ms(50)).timeout(limit))
}

/// The third node stands still while a lock is handed over. A lock service gives its lease away,
/// and many others. Then the node tells the service, which no longer knows the lease.
#[test]
fn a_late_word_of_a_node_deletes_no_lease_that_was_given_away() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    // A connection that is given up for its silence brings no late message.
    let connect = || Client::connect(cluster.config().node_timeout(PATIENCE / 4)).unwrap();
    let (holder, service, other) = (connect(), connect(), connect());
    let held = holder.lock("k", LONG).wait().unwrap();
    let guard = thread::scope(|scope| {
        let call = scope.spawn(|| service.lock("k", patient(PATIENCE)).wait().unwrap());
        assert!(
            eventually(PATIENCE, || cluster.calls("publish") > 0),
            "the call introduces itself"
        );
        // The answers come behind the messages in which the nodes told of the call.
        holder.leader("k").wait().unwrap();
        cluster.node(2).freeze();
        drop(held);
        call.join().unwrap()
    });
    assert_eq!(guard.votes().count(), 2, "two nodes have handed it over");
    let (key, token) = given_away(guard);
    for nth in 0..1_200 {
        let guard = service.lock(format!("k{nth}"), LONG).wait().unwrap();
        given_away(guard);
    }
    cluster.node(2).thaw();
    let has_it = |node: &redbolt_rig::RealServer| {
        node.get("k").is_some_and(|value| value == token.as_bytes())
    };
    assert!(eventually(PATIENCE, || has_it(cluster.node(2))), "the node hands it over too");
    service.leader("k").wait().unwrap();
    assert!(matches!(other.try_lock("k", LONG).wait(), Err(LockError::Taken(_))));
    assert!(cluster.nodes().all(has_it), "every node has it still");
    other.unlock_token(&key, &token).wait().unwrap();
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0));
}

/// How many commands the nodes have run so far.
fn commands(cluster: &Cluster) -> u64 {
    let count = |stats: Vec<u8>| {
        let text = String::from_utf8_lossy(&stats).into_owned();
        let line = text.lines().find_map(|it| it.strip_prefix("total_commands_processed:"));
        line.expect("a server counts its commands").trim().parse::<u64>().expect("a number")
    };
    cluster.nodes().map(|node| count(node.command(&["INFO", "stats"]))).sum()
}

/// Beside so long a wait the first attempt counts little: a server counts the commands in its
/// script, too.
const SECONDS: u64 = 8;

/// Only the client that drew the token can be told of waiters, and it has given the lock away.
#[test]
fn a_call_behind_a_lease_that_was_given_away_costs_each_node_six_commands_per_second_at_most() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    // Greetings count too, so a busy machine must cause none.
    let connect = || {
        let client = Client::connect(cluster.config().node_timeout(PATIENCE / 4)).unwrap();
        settled_nodes(&client);
        client
    };
    for mode in ["alive", "own", "adopted", "gone"] {
        let (giver, other, third) = (connect(), connect(), connect());
        let guard = giver.lock(mode, LONG).wait().unwrap();
        let (key, token) = given_away(guard);
        let adopted = (mode == "adopted").then(|| third.adopt(&key, &token, LONG).wait().unwrap());
        if mode == "gone" {
            giver.shutdown(PATIENCE).wait();
        }
        let waiter = if mode == "own" { &giver } else { &other };
        // One of three waits shows it: a busy machine may end a connection, and a greeting counts too.
        let mut counts = (0..3).map(|_| {
            let before = commands(&cluster);
            let result = waiter.lock(mode, patient(Duration::from_secs(SECONDS))).wait();
            assert!(matches!(result, Err(LockError::Taken(_))), "{mode}: {result:?}");
            // Each node counts the INFO of `before` too.
            commands(&cluster) - before - 3
        });
        let is_shown = counts.any(|count| count <= SECONDS * 3 * 6);
        assert!(is_shown, "{mode}: more than 6 commands per second and node, three times");
        thread::scope(|scope| {
            let call = scope.spawn(|| waiter.lock(mode, patient(PATIENCE)).wait());
            match adopted {
                Some(guard) => drop(guard),
                None => drop(third.unlock_token(&key, &token).wait().unwrap()),
            }
            drop(call.join().unwrap().expect("it is free"));
        });
    }
}

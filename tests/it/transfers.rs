//! Locks that change hands by a script, on real servers of every version, beside nodes that freeze
//! and die.

use std::sync::Mutex;
use std::thread;

use redbolt::{Client, LockOptions, Retry};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, TTL, available_kinds, eventually, ms, on_each_kind,
    wait_released,
};
use super::waiting::SELDOM;

/// Turns of each of two clients.
const TURNS: u64 = 20;

fn client(cluster: &Cluster) -> Client {
    let config = cluster.config().node_timeout(ms(500)).transfers_in_row(16);
    let config = config.retry(SELDOM.timeout(PATIENCE));
    Client::connect(config).expect("the nodes are there")
}

/// Two clients take their turns, and count them without a lock of their own. The test calls
/// `during` in some of the turns.
pub(super) fn take_turns(cluster: &Cluster, during: impl Fn(u64) + Sync) {
    let counter = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (client, counter, during) = (client(cluster), &counter, &during);
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let lease = client.lock("k", TTL).wait().expect("its turn comes");
                    let read = *counter.lock().expect("nobody panics");
                    // The other client has the time to queue.
                    thread::sleep(ms(10));
                    during(read);
                    assert!(lease.is_valid());
                    *counter.lock().expect("nobody panics") = read + 1;
                    lease.unlock().wait().expect("it is held");
                }
                wait_released(&client, ms(50));
            });
        }
    });
    assert_eq!(*counter.lock().expect("nobody panics"), 2 * TURNS, "no two at a time");
}

/// No client has a key that it does not hold: no node that can be asked has one.
fn assert_none_left(cluster: &Cluster) {
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0), "a key is left");
}

#[test]
fn a_lock_changes_hands_by_scripts_on_every_kind_of_server() {
    on_each_kind(|kind| {
        let Some(cluster) = Cluster::start(&[kind; 3], &[]) else { return };
        take_turns(&cluster, |_| {});
        // Where releases need scripts themselves, the client sends those by their hashes.
        let scripts = cluster.calls("eval");
        assert!(scripts >= TURNS * 3, "{}: {scripts} scripts", kind.name());
        assert_none_left(&cluster);
    });
}

#[test]
fn a_lock_changes_hands_by_scripts_on_servers_of_all_kinds_at_once() {
    let Some(cluster) = Cluster::mixed(available_kinds().len().max(3)) else { return };
    take_turns(&cluster, |_| {});
    assert!(cluster.calls("eval") >= TURNS);
    assert_none_left(&cluster);
}

#[test]
fn a_lock_that_is_not_to_be_handed_over_is_released_and_waited_for() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let config = cluster.config().transfers_in_row(0).retry(SELDOM.timeout(PATIENCE));
    let holder = Client::connect(config.clone()).expect("the nodes are there");
    let waiter = Client::connect(config).expect("the nodes are there");
    let lease = holder.try_lock("k", TTL).wait().expect("nobody has it");
    thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.lock("k", TTL).wait().is_ok());
        assert!(eventually(PATIENCE, || cluster.calls("publish") > 0));
        lease.unlock().wait().expect("it is held");
        assert!(eventually(PATIENCE, || {
            wait_released(&holder, ms(1));
            waits.is_finished()
        }));
        assert!(waits.join().expect("no panic"));
    });
    // A waiter introduces itself once more, to another node, where the first node is late.
    let scripts = cluster.calls("eval");
    assert!(
        (1..cluster.len() as u64).contains(&scripts),
        "by which the waiter introduced itself: {scripts}"
    );
}

/// The node freezes, or is killed, while a lock changes hands: the others are a quorum.
#[test]
fn a_node_that_freezes_or_dies_in_the_middle_keeps_no_lock_from_changing_hands() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 5], &[]) else { return };
    let cluster = Mutex::new(cluster);
    let plain = cluster.lock().expect("nobody panics").config().node_timeout(ms(500));
    let plain = plain.transfers_in_row(16).retry(SELDOM.timeout(PATIENCE));
    let counter = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            let client = Client::connect(plain.clone()).expect("the nodes are there");
            let (counter, cluster) = (&counter, &cluster);
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let lease = client.lock("k", TTL).wait().expect("its turn comes");
                    let read: u64 = *counter.lock().expect("nobody panics");
                    thread::sleep(ms(2));
                    let mut servers = cluster.lock().expect("nobody panics");
                    match read {
                        8 => servers.node(0).freeze(),
                        16 => servers.node(0).thaw(),
                        24 => servers.node_mut(1).kill9(),
                        32 => servers.restart(&[1]),
                        _ => {}
                    }
                    drop(servers);
                    assert!(lease.is_valid());
                    *counter.lock().expect("nobody panics") = read + 1;
                    lease.unlock().wait().expect("it is held");
                }
                wait_released(&client, ms(200));
            });
        }
    });
    assert_eq!(*counter.lock().expect("nobody panics"), 2 * TURNS, "no two at a time");
}

/// A client that waited in vain reads nothing between its calls: a holder that still knows of it
/// deletes the key.
#[test]
fn nothing_is_handed_over_to_a_client_between_its_calls() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let holder = client(&cluster);
    let waiter = client(&cluster);
    for _ in 0..10 {
        let lease = holder.try_lock("k", TTL).wait().expect("nobody has it");
        let retry = Retry::every(ms(60_000), ms(0)).timeout(ms(30));
        let options = LockOptions::new(TTL).retry(retry);
        waiter.lock("k", options).wait().expect_err("it is held");
        // The holder has not read yet that the waiter gave up.
        lease.unlock().wait().expect("it is held");
        wait_released(&holder, ms(50));
        assert_none_left(&cluster);
    }
}

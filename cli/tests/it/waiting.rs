//! The command as one of several that wait for a lock.

use std::thread;
use std::time::Duration;

use redbolt::{Client, Config, RestartGuard, Retry};
use redbolt_rig::{Cluster, Kind, PATIENCE, TTL, eventually, ms};

use super::cli::Running;

/// A client that polls so seldom that only messages wake it in time.
fn client(cluster: &Cluster) -> Client {
    let retry = Retry::every(Duration::from_secs(60), Duration::ZERO).timeout(PATIENCE);
    let config = Config::new(cluster.urls()).expect("addresses of servers").retry(retry);
    // On a busy machine nodes answer late, and an attempt without a quorum is not made again soon.
    let config = config.restart_guard(RestartGuard::Off).node_timeout(ms(500));
    Client::connect(config).expect("the nodes are there")
}

/// A killed waiter does not hear its wake, and the holder wakes the next at once. A waiter that
/// stands still keeps its wake. Then the safety poll of the next finds the lock free, long before
/// any key ends.
#[test]
fn a_waiter_that_was_killed_or_stands_still_keeps_nobody_from_the_lock() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 5], &[]) else { return };
    for signal in ["KILL", "STOP"] {
        let [holder, waiter] = [(); 2].map(|()| client(&cluster));
        let ttl = PATIENCE * 2;
        let lease = holder.try_lock("k", ttl).wait().expect("nobody has it");
        let words = cluster.calls("publish");
        let args = ["--restart-guard", "off", "lock", "k", "--ttl", "30s", "--wait", "60s"];
        let first = Running::start(&cluster.urls(), &args);
        assert!(eventually(PATIENCE, || cluster.calls("publish") > words), "it waits");
        thread::scope(|scope| {
            let words = cluster.calls("publish");
            let waits =
                scope.spawn(move || waiter.lock("k", TTL).wait().map(|lease| (waiter, lease)));
            assert!(eventually(PATIENCE, || cluster.calls("publish") > words), "it waits");
            first.signal(signal);
            // A holder hands a lock over only to a waiter of which it has heard within half a
            // second.
            thread::sleep(ms(700));
            lease.unlock().wait().expect("it is held");
            assert!(eventually(PATIENCE, || waits.is_finished()));
            let (_waiter, lease) = waits.join().expect("no panic").expect(signal);
            lease.unlock().wait().expect("it is held");
        });
    }
}

#[test]
fn a_command_that_waits_forever_has_the_lock_when_it_is_free() {
    let Some(cluster) = Cluster::start(&[Kind::Valkey91; 3], &[]) else { return };
    let holder = client(&cluster);
    let lease = holder.try_lock("k", PATIENCE * 2).wait().expect("nobody has it");
    let words = cluster.calls("publish");
    let args = ["--restart-guard", "off", "run", "k", "--wait", "forever", "--", "echo", "held"];
    let mut waiter = Running::start(&cluster.urls(), &args);
    assert!(eventually(PATIENCE, || cluster.calls("publish") > words), "it waits");
    lease.unlock().wait().expect("it is held");
    assert_eq!(waiter.line(), "held");
    waiter.end().expect(0);
}

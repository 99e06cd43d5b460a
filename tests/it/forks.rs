//! The child of a fork releases nothing of its parent's, and takes no lock that lingers there.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fork::{Fork, fork, waitpid};
use redbolt::{Client, LockError, LockOptions, Unlocked};
use redbolt_embedded::Nodes;

use super::common::{Looped, PATIENCE, TTL, eventually, fresh_config, ms, own_test};

/// A fork copies the thread that forks alone, so each test runs in a process of its own.
const ALONE: &str = "REDBOLT_FORKS_ALONE";

/// Whether this is the process of the test alone. If not, the function has run that process to its
/// end.
fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let output = own_test(name).env(ALONE, "1").output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// Runs `child` in the child of a fork. The child ends well if `child` is true.
fn in_child(child: impl FnOnce() -> bool) {
    match fork().expect("a process more") {
        Fork::Child => exit(i32::from(!child())),
        Fork::Parent(pid) => assert_eq!(waitpid(pid).expect("a child"), 0, "the child's status"),
    }
}

#[test]
fn the_child_of_a_fork_neither_releases_nor_retakes_a_lock_of_its_parents_client() {
    let name =
        "forks::the_child_of_a_fork_neither_releases_nor_retakes_a_lock_of_its_parents_client";
    if !is_alone(name) {
        return;
    }
    let nodes = Nodes::start(3).expect("ports are free");
    let client = Client::connect(fresh_config(nodes.urls())).expect("the nodes are fit");
    let lingering = LockOptions::new(TTL).linger(TTL / 2);
    drop(client.lock("lingers", lingering.clone()).wait().expect("it is free"));
    let guard = client.lock("k", TTL).wait().expect("it is free");
    let mut copied = Some(guard);
    in_child(|| {
        drop(copied.take());
        true
    });
    in_child(|| matches!(client.lock("lingers", lingering).wait(), Err(LockError::Closed)));
    // The answers come behind whatever the child has written.
    client.leader("k").wait().expect("the nodes answer");
    let has_both = |node| nodes.key_count(node).expect("it runs") == 2;
    assert!(eventually(PATIENCE, || (0..3).all(has_both)));
    let guard = copied.expect("the parent's own");
    assert_eq!(guard.unlock().wait().expect("it is held"), Unlocked::Released);
}

#[test]
fn the_child_of_a_fork_drops_the_lease_and_the_driver_of_its_parent_and_releases_nothing() {
    let name = "forks::the_child_of_a_fork_drops_the_lease_and_the_driver_of_its_parent_and_releases_nothing";
    if !is_alone(name) {
        return;
    }
    let nodes = Nodes::start(3).expect("ports are free");
    let mut looped = Looped::connect(fresh_config(nodes.urls()));
    let lease = looped.lock("k", TTL).expect("it is free");
    let mut both = Some((lease, looped));
    in_child(|| {
        let (lease, mut looped) = both.take().expect("the child's copy");
        drop(lease);
        let owed = looped.driver().shutdown(TTL);
        drop(looped);
        owed == 0
    });
    let (lease, mut looped) = both.expect("the parent's own");
    // The release goes behind whatever the child has written.
    assert_eq!(looped.unlock(lease).expect("it is held"), Unlocked::Released);
}

/// Another thread may be in the middle of its work on the client when this one forks.
#[test]
fn the_child_of_a_fork_ends_its_calls_whatever_other_threads_do_at_the_fork() {
    let name = "forks::the_child_of_a_fork_ends_its_calls_whatever_other_threads_do_at_the_fork";
    if !is_alone(name) {
        return;
    }
    let nodes = Nodes::start(3).expect("ports are free");
    let client = Client::connect(fresh_config(nodes.urls())).expect("the nodes are fit");
    let guard = client.lock("k", TTL).wait().expect("it is free");
    let mut waits = client.lock("k", TTL);
    assert!(waits.wait_for(ms(1)).is_none(), "the guard holds it");
    let mut copied = Some((guard, waits));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for key in ["a", "b"] {
            let (client, is_over) = (&client, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    drop(client.try_lock(key, TTL).wait());
                }
            });
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(client.quorum(), 2);
                }
            });
        }
        let mut ends = (0..300).map(|_| match fork().expect("a process more") {
            Fork::Child => {
                thread::spawn(|| {
                    thread::sleep(PATIENCE);
                    exit(3);
                });
                let (guard, waits) = copied.take().expect("the child's copy");
                drop(guard);
                assert_eq!(client.quorum(), 2);
                exit(i32::from(waits.wait().is_ok() || client.try_lock("c", TTL).wait().is_ok()))
            }
            Fork::Parent(pid) => waitpid(pid).expect("a child"),
        });
        let bad = ends.position(|end| end != 0);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(bad, None, "the child that did not end well");
    });
}

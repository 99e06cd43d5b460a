//! A task that waits for the end of a lock held through the client is told of it: at once where the
//! client knows it, and by the deadline in any case.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use redbolt::Instant;
use redbolt::{Client, ExtendError, Guard, LockOptions, Unlocked, now};
use redbolt_embedded::Nodes;

use super::client::{embedded, in_use, is_clean, patient};
use super::common::{PATIENCE, TTL, eventually, fresh_config, ms, soon_after};

/// The TTL of locks for whose end a task waits.
const SHORT: Duration = ms(1_200);

fn kept() -> LockOptions {
    LockOptions::new(SHORT).keep_alive()
}

/// How long after its deadline a lock is reported as over, where every node is silent.
fn told_late(acquire: LockOptions) -> Duration {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("k", acquire).wait().expect("a fresh key");
    (0..3).for_each(|node| nodes.pause(node).expect("it runs"));
    let deadline = guard.deadline();
    assert!(guard.lost().wait_for(PATIENCE).is_some());
    assert!(now() >= deadline && !guard.is_valid());
    let late = guard.deadline().until(now());
    smol::block_on(guard.lost());
    late
}

#[test]
fn a_lock_is_over_by_its_deadline_though_every_node_is_silent() {
    for acquire in [kept(), LockOptions::new(SHORT)] {
        soon_after(SHORT / 4, || told_late(acquire.clone()));
    }
}

#[test]
fn a_lock_that_is_kept_alive_is_not_over_at_the_deadline_it_had() {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("k", kept()).wait().unwrap();
    assert!(guard.lost().wait_for(SHORT * 3).is_none(), "three times its TTL");
    assert!(guard.is_valid());
    drop(guard);
    is_clean(&nodes, &shared);
}

#[test]
fn a_caller_that_no_longer_waits_for_the_end_is_forgotten() {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("k", TTL).wait().unwrap();
    for _ in 0..100 {
        let mut waits = Box::pin(guard.lost());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending, "polled again");
    }
    let left = format!("{shared:?}");
    assert!(left.contains("calls: 0"), "{left}");
    drop(guard);
    is_clean(&nodes, &shared);
}

#[test]
fn a_handle_that_is_shut_down_keeps_nobody_waiting() {
    let (_nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("k", TTL).wait().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| guard.lost().wait_for(TTL).is_some());
        assert!(eventually(PATIENCE, || format!("{shared:?}").contains("calls: 1")));
        shared.shutdown(PATIENCE).wait();
        assert!(waits.join().unwrap());
    });
}

/// Deletes the key on every node, as an operator would.
fn take_away(nodes: &Nodes, guard: &Guard) {
    let other = Client::connect(fresh_config(nodes.urls())).expect("nodes are fit");
    let token = guard.token().expect("a guard has a token");
    let unlocked = other.unlock_token("k", token).wait().expect("a good name");
    assert_eq!(unlocked, Unlocked::Released);
}

/// A lock of the client's own that is lost is no reason to wait, nor to return `Taken` without
/// asking the nodes.
#[track_caller]
fn is_free_at_once(shared: &Client, ends: Instant, waiter: ScopedJoinHandle<'_, Guard>) {
    drop(waiter.join().expect("the lock is free"));
    assert!(now() + TTL / 2 < ends, "the queue waited for the end of a lock that was lost");
    drop(shared.try_lock("k", TTL).wait().expect("the lock is free"));
}

#[test]
fn a_lost_lock_keeps_nobody_of_its_process_waiting() {
    for waits in [false, true] {
        let (nodes, shared) = embedded(|config| config);
        let guard = shared.try_lock("k", LockOptions::new(TTL).keep_alive()).wait().unwrap();
        let ends = guard.deadline();
        thread::scope(|scope| {
            let lock = || shared.lock("k", patient(TTL)).wait().unwrap();
            let waiter = waits.then(|| {
                let waiter = scope.spawn(lock);
                assert!(eventually(PATIENCE, || in_use(&shared).0 == 1));
                waiter
            });
            take_away(&nodes, &guard);
            assert!(guard.lost().wait_for(PATIENCE).is_some());
            is_free_at_once(&shared, ends, waiter.unwrap_or_else(|| scope.spawn(lock)));
        });
        drop(guard);
        is_clean(&nodes, &shared);
    }
}

/// No timer looks after this lock: an answer that comes after the end of its extension shows the
/// loss.
#[test]
fn a_plain_lock_that_a_late_answer_shows_to_be_lost_keeps_nobody_waiting() {
    let (nodes, shared) = embedded(|config| config.node_timeout(ms(500)));
    let mut guard = shared.try_lock("k", TTL).wait().unwrap();
    let ends = guard.deadline();
    take_away(&nodes, &guard);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| shared.lock("k", patient(TTL)).wait().unwrap());
        assert!(eventually(PATIENCE, || in_use(&shared).0 == 1));
        (1..3).for_each(|node| nodes.pause(node).unwrap());
        assert!(matches!(guard.extend(TTL).wait(), Err(ExtendError::NoQuorum(_))));
        assert!(guard.is_valid(), "one node of three is without it");
        (1..3).for_each(|node| nodes.resume(node).unwrap());
        assert!(guard.lost().wait_for(PATIENCE).is_some(), "told by the late answers");
        is_free_at_once(&shared, ends, waiter);
    });
    drop(guard);
    is_clean(&nodes, &shared);
}

//! Who waits for the end of a lock held through the shared handle is told of it: at once where it is
//! known, by the deadline in any case.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use redbolt::{Acquire, KeepAlive, Shared, now};

use super::common::{Cluster, PATIENCE, SLACK, TTL, eventually, ms};
use super::shared::{embedded, is_clean};

/// The TTL of locks whose end is waited for.
const SHORT: Duration = ms(1_200);

fn kept() -> Acquire {
    Acquire::new(SHORT).keep_alive(KeepAlive::new())
}

#[test]
fn a_lock_is_over_by_its_deadline_though_every_node_is_silent() {
    for acquire in [kept(), Acquire::new(SHORT)] {
        let (nodes, shared) = embedded(|config| config);
        let guard = shared.try_lock_with("k", acquire).unwrap();
        (0..3).for_each(|node| nodes.pause(node).unwrap());
        let deadline = guard.deadline();
        assert!(guard.wait_lost(PATIENCE));
        assert!(!guard.is_valid());
        assert!(now() >= deadline && now() <= guard.deadline() + SLACK);
        smol::block_on(guard.lost());
    }
}

#[test]
fn a_lock_that_is_kept_alive_is_not_over_at_the_deadline_it_had() {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock_with("k", kept()).unwrap();
    assert!(!guard.wait_lost(SHORT * 3), "three times its TTL");
    assert!(guard.is_valid());
    drop(guard);
    is_clean(&nodes, &shared);
}

#[test]
fn a_lock_that_is_taken_away_is_over_at_once() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let shared = Shared::connect(cluster.config()).unwrap();
    let guard = shared.try_lock_with("k", Acquire::new(TTL).watch(true)).unwrap();
    let ends = guard.deadline();
    let flush = |index| cluster.node(index).command(&["FLUSHALL"]);
    thread::scope(|scope| {
        let waits = [scope.spawn(|| guard.wait_lost(TTL)), scope.spawn(|| guard.wait_lost(TTL))];
        let told = scope.spawn(|| smol::block_on(guard.lost()));
        let tracked = |index: usize| {
            let stats = cluster.node(index).command(&["INFO", "stats"]);
            String::from_utf8_lossy(&stats).contains("tracking_total_keys:1\r\n")
        };
        assert!(eventually(PATIENCE, || (0..5).all(tracked)));
        assert!(!told.is_finished());
        (0..3).for_each(|index| drop(flush(index)));
        told.join().unwrap();
        assert!(waits.into_iter().all(|wait| wait.join().unwrap()));
    });
    assert!(now() + TTL / 2 < ends, "long before its end");
}

#[test]
fn who_no_longer_waits_for_the_end_is_forgotten() {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("k", TTL).unwrap();
    for _ in 0..100 {
        let mut waits = Box::pin(guard.lost());
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending, "polled again");
    }
    let left = format!("{shared:?}");
    assert!(left.contains("losses: 0"), "{left}");
    drop(guard);
    is_clean(&nodes, &shared);
}

#[test]
fn a_handle_that_is_shut_down_keeps_nobody_waiting() {
    let (_nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("k", TTL).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| guard.wait_lost(TTL));
        assert!(eventually(PATIENCE, || format!("{shared:?}").contains("losses: 1")));
        shared.shutdown(PATIENCE);
        assert!(waits.join().unwrap());
    });
}

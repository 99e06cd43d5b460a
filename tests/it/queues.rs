//! The queues of the client: every waiter in one is served, whatever became of the waiters before
//! it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::{Client, Guard, LockError, LockOptions, wait_all};

use super::client::{embedded, in_use, is_clean, patient};
use super::common::{PATIENCE, SLACK, TTL, eventually, fresh_config, ms, timed};

/// Less than an idle I/O thread takes until its next event of another kind.
const SOON: Duration = ms(800);

/// Options to wait without a deadline that could end the test's call.
fn endless(ttl: Duration) -> LockOptions {
    patient(ttl).timeout(Duration::from_secs(3600))
}

/// Begins to wait for `k`, and returns once `calls` are under way.
fn begin<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    shared: &'scope Client,
    acquire: LockOptions,
    calls: usize,
) -> thread::ScopedJoinHandle<'scope, Result<Guard, LockError>> {
    let call = scope.spawn(|| shared.lock("k", acquire).wait());
    assert!(eventually(PATIENCE, || in_use(shared).0 == calls), "{shared:?}");
    call
}

#[test]
fn a_call_that_queued_before_a_lock_was_won_does_not_wait_longer_than_its_lease() {
    let (nodes, shared) = embedded(|config| config);
    let other = &Client::connect(fresh_config(nodes.urls())).unwrap();
    let held = other.try_lock("k", TTL).wait().unwrap();
    thread::scope(|scope| {
        let first = begin(scope, &shared, endless(ms(1_000)), 1);
        let second = begin(scope, &shared, endless(TTL), 2);
        held.unlock().wait().unwrap();
        let guard = first.join().unwrap().expect("the lock was free");
        let deadline = guard.deadline();
        // The holder hangs, and never lets go.
        std::mem::forget(guard);
        assert!(eventually(PATIENCE, || second.is_finished()), "{shared:?}");
        assert!(second.join().unwrap().is_ok() && redbolt::now() >= deadline);
    });
}

#[test]
fn calls_of_two_clients_that_are_waited_for_together_are_under_way_together() {
    let (nodes, shared) = embedded(|config| config);
    let other = &Client::connect(fresh_config(nodes.urls())).unwrap();
    let held = other.try_lock("k", 2 * PATIENCE).wait().unwrap();
    let third = Client::connect(fresh_config(nodes.urls())).unwrap();
    thread::scope(|scope| {
        let are_both_set =
            || (0..3).all(|node| nodes.key_count(node).is_ok_and(|count| count == 2));
        let both = scope.spawn(move || {
            let are_set = eventually(PATIENCE, are_both_set);
            drop(held);
            are_set
        });
        let results = wait_all([shared.lock("k", endless(TTL)), third.lock("free", endless(TTL))]);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert!(both.join().unwrap(), "the second call waited for the first");
    });
    is_clean(&nodes, &shared);
}

#[test]
fn a_call_that_queued_behind_a_failed_call_is_next_though_an_old_guard_still_lives() {
    let (nodes, shared) = embedded(|config| config);
    let old = shared.try_lock("k", ms(1_000)).wait().unwrap();
    let other = &Client::connect(fresh_config(nodes.urls())).unwrap();
    assert!(eventually(PATIENCE, || !old.is_valid()));
    let held = other.lock("k", TTL).wait().unwrap();
    thread::scope(|scope| {
        let first = begin(scope, &shared, patient(TTL).timeout(ms(2_000)), 1);
        let second = begin(scope, &shared, endless(TTL), 2);
        assert!(matches!(first.join().unwrap(), Err(LockError::Taken(_))));
        held.unlock().wait().unwrap();
        assert!(eventually(PATIENCE, || second.is_finished()), "{shared:?}");
        assert!(second.join().unwrap().is_ok());
    });
    drop(old);
    is_clean(&nodes, &shared);
}

#[test]
fn what_is_given_back_while_the_handle_shuts_down_is_released_before_it_has() {
    // A busy machine is late now and then.
    assert!((0..5).any(|_| is_released_soon()), "it waits for the end");
}

/// Whether a guard that is dropped while its client shuts down is released at once.
fn is_released_soon() -> bool {
    let (nodes, shared) = embedded(|config| config);
    let first = shared.try_lock("first", TTL).wait().unwrap();
    let second = shared.try_lock("second", TTL).wait().unwrap();
    // The client owes the releases of this node until it goes on.
    nodes.pause(0).unwrap();
    thread::scope(|scope| {
        drop(first);
        let end = scope.spawn(|| shared.shutdown(PATIENCE).wait());
        assert!(eventually(PATIENCE, || {
            matches!(shared.try_lock("third", TTL).wait(), Err(LockError::Closed))
        }));
        drop(second);
        let gone = |node| nodes.key_count(node).is_ok_and(|keys| keys == 0);
        // No other event wakes the I/O thread so soon.
        let is_soon = eventually(SOON, || gone(1) && gone(2));
        nodes.resume(0).unwrap();
        assert_eq!(end.join().unwrap(), 0);
        assert!(gone(0));
        is_soon
    })
}

#[test]
fn the_nearer_of_two_limits_of_a_shutdown_counts() {
    let (nodes, shared) = embedded(|config| config);
    drop(shared.try_lock("k", TTL).wait().unwrap());
    let guard = shared.try_lock("k", TTL).wait().unwrap();
    nodes.pause(0).unwrap();
    drop(guard);
    thread::scope(|scope| {
        let patient = scope.spawn(|| shared.shutdown(PATIENCE).wait());
        assert!(eventually(PATIENCE, || {
            matches!(shared.try_lock("third", TTL).wait(), Err(LockError::Closed))
        }));
        let (owed, elapsed) = timed(|| shared.shutdown(Duration::ZERO).wait());
        assert!(owed >= 1 && elapsed <= SLACK, "{owed} {elapsed:?}");
        assert_eq!(patient.join().unwrap(), owed);
    });
}

/// Calls that a shutdown ends do not wait for the releases for which the shutdown waits.
#[test]
fn calls_end_by_their_own_time_while_the_handle_shuts_down() {
    let (nodes, shared) = embedded(|config| config);
    let other = &Client::connect(fresh_config(nodes.urls())).unwrap();
    let _held = other.try_lock("k", TTL).wait().unwrap();
    let owed = shared.try_lock("owed", TTL).wait().unwrap();
    let is_told = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiters = [1, 2, 3].map(|calls| begin(scope, &shared, endless(TTL), calls));
        let sees = scope.spawn(|| {
            let mut observer = shared.observe("k", PATIENCE);
            observer.next_change().wait().expect("the first is told at once");
            is_told.store(true, Ordering::Relaxed);
            observer.next_change().wait()
        });
        // The first look at the nodes must be over, because it would wait for the paused node.
        let waits = || is_told.load(Ordering::Relaxed) && in_use(&shared).0 == 4;
        assert!(eventually(PATIENCE, waits), "{shared:?}");
        nodes.pause(0).unwrap();
        drop(owed);
        let end = scope.spawn(|| shared.shutdown(2 * PATIENCE).wait());
        let are_over = || waiters.iter().all(|call| call.is_finished()) && sees.is_finished();
        assert!(eventually(SLACK, are_over), "{shared:?}");
        assert!(!end.is_finished());
        for call in waiters {
            assert!(matches!(call.join().unwrap(), Err(LockError::Closed)));
        }
        assert!(matches!(sees.join().unwrap(), Err(LockError::Closed)));
        nodes.resume(0).unwrap();
        assert_eq!(end.join().unwrap(), 0);
    });
}

#[test]
fn a_wait_for_a_quorum_ends_when_the_handle_shuts_down() {
    let (nodes, shared) = embedded(|config| config);
    let owed = shared.try_lock("owed", TTL).wait().unwrap();
    (1..3).for_each(|node| nodes.kill(node).unwrap());
    assert!(eventually(PATIENCE, || !shared.is_ready()), "{shared:?}");
    thread::scope(|scope| {
        let waits = scope.spawn(|| shared.ready(2 * PATIENCE).wait());
        assert!(eventually(PATIENCE, || in_use(&shared).0 == 1), "{shared:?}");
        nodes.pause(0).unwrap();
        drop(owed);
        let end = scope.spawn(|| shared.shutdown(2 * PATIENCE).wait());
        assert!(eventually(SLACK, || waits.is_finished()), "{shared:?}");
        assert!(!end.is_finished() && waits.join().unwrap().is_err());
        nodes.resume(0).unwrap();
        end.join().unwrap();
    });
}

#[test]
fn a_call_keeps_its_place_between_two_waits_and_leaves_it_when_it_is_dropped() {
    let (nodes, shared) = embedded(|config| config);
    let guard = shared.lock("k", TTL).wait().expect("it is free");
    let (mut first, mut second) = (shared.lock("k", endless(TTL)), shared.lock("k", endless(TTL)));
    for _ in 0..2 {
        assert!(first.wait_for(ms(20)).is_none(), "it is held");
        assert!(second.wait_for(ms(20)).is_none(), "it is held");
    }
    drop(guard);
    // The second call is still second in the queue, although the thread waits for it now.
    assert!(second.wait_for(ms(20)).is_none(), "the first call is the next");
    let guard = first.wait_for(PATIENCE).expect("its turn").expect("it is free");
    drop(second);
    drop(guard);
    is_clean(&nodes, &shared);
}

#[test]
#[should_panic(expected = "the call's result was returned")]
fn a_call_whose_result_was_returned_takes_no_second_lock() {
    let (_nodes, shared) = embedded(|config| config);
    let mut call = shared.try_lock("k", TTL);
    let guard = call.wait_for(PATIENCE).expect("an answer").expect("it is free");
    let _second = call.wait_for(PATIENCE);
    drop(guard);
}

#[test]
fn a_lock_that_its_own_process_unlocks_by_its_token_goes_to_the_next_caller_at_once() {
    let (_nodes, shared) = embedded(|config| config);
    let guard = shared.try_lock("k", PATIENCE * 2).wait().unwrap();
    thread::scope(|scope| {
        let next = begin(scope, &shared, patient(TTL).timeout(PATIENCE), 1);
        shared.unlock_token("k", guard.token().unwrap()).wait().unwrap();
        assert!(guard.lost().wait_for(PATIENCE).is_some() && !guard.is_valid());
        drop(next.join().unwrap().unwrap());
    });
}

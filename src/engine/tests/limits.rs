//! What one call may have of its own: its `node_timeout`, and its way of waiting.

use super::*;
use crate::retry::Retry;

fn patient(timeout: Duration) -> LockOptions {
    LockOptions::new(TTL).node_timeout(timeout)
}

/// How long after its begin an attempt that two nodes of three do not answer is over.
fn ends_after(rig: &mut Rig, acquire: LockOptions) -> Duration {
    let begun = rig.now;
    rig.acquire_with("a", acquire);
    rig.answer(0, "+OK\r\n");
    for _ in 0..1_000 {
        if let Some(result) = rig.lock_result() {
            let error = result.expect_err("two nodes are silent");
            assert_eq!(vote_of(&error, 1), Vote::Unknown(Cause::Timeout));
            return begun.until(rig.now);
        }
        rig.advance(MS);
    }
    panic!("it never ends");
}

#[test]
fn a_call_waits_for_silent_nodes_as_long_as_it_says_itself() {
    let near = |took: Duration, wanted: Duration| took >= wanted && took <= wanted + 2 * MS;
    for wanted in [5 * MS, 50 * MS, 140 * MS] {
        let mut rig = Rig::new(3);
        let took = ends_after(&mut rig, patient(wanted));
        assert!(near(took, wanted), "{wanted:?}: {took:?}");
    }
    let mut rig = Rig::new(3);
    let took = ends_after(&mut rig, patient(140 * MS).timeout(70 * MS));
    assert!(near(took, 70 * MS), "the call's own end comes first: {took:?}");
}

#[test]
fn what_one_call_says_is_not_the_next_ones() {
    let mut rig = Rig::new(3);
    ends_after(&mut rig, patient(5 * MS));
    for index in 0..3 {
        rig.lose(index);
        rig.connect(index);
    }
    let took = ends_after(&mut rig, LockOptions::new(TTL));
    assert!(took >= 50 * MS && took <= 52 * MS, "{took:?}");
}

/// The sockets were not read for a second: no node is blamed for what is beyond the configured
/// `node_timeout`.
#[test]
fn absence_is_held_against_no_node_by_a_call_with_a_timeout_of_its_own() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", patient(140 * MS));
    rig.collect();
    rig.now = rig.now + 1_000 * MS;
    rig.pass();
    assert!(rig.lock_result().is_none(), "judged by time in which nobody read");
    rig.advance(80 * MS);
    assert!(rig.lock_result().is_none(), "judged before its time");
    rig.advance(20 * MS);
    assert!(matches!(rig.refused(), LockError::NoQuorum(_)), "and never later");
}

#[test]
fn each_attempt_of_a_call_has_the_calls_own_timeout() {
    let mut rig = Rig::new(3);
    let begun = rig.now;
    let retry = Retry::every(10 * MS, Duration::ZERO).attempts(3);
    rig.acquire_with("a", patient(5 * MS).retry(retry));
    for _ in 0..1_000 {
        if let Some(result) = rig.lock_result() {
            assert!(matches!(result, Err(LockError::NoQuorum(_))));
            let took = begun.until(rig.now);
            // Three attempts of 5 ms, and two waits of 10 ms.
            assert!(took >= 35 * MS && took <= 41 * MS, "{took:?}");
            return;
        }
        rig.advance(MS);
    }
    panic!("it never ends");
}

#[test]
fn a_timeout_out_of_range_counts_as_the_nearest() {
    assert_eq!(patient(Duration::ZERO).node_timeout_ms, 1);
    assert_eq!(patient(Duration::MAX).node_timeout_ms, 60_000);
    assert_eq!(patient(7 * MS).node_timeout_ms, 7);
}

/// It tries again by its own delay, and asks nobody who holds the key.
#[test]
fn a_call_may_do_without_being_woken() {
    for is_woken in [true, false] {
        let mut rig = waking::rig(3);
        let retry = Retry::every(10 * MS, Duration::ZERO).timeout(TTL);
        rig.acquire_with("a", LockOptions::new(TTL).retry(retry).direct_wake(is_woken));
        rig.answer_all(0..3, "_\r\n");
        let asks = (0..3).any(|index| rig.waiting(index).contains(&"PTTL".to_owned()));
        assert_eq!(asks, is_woken);
        if !is_woken {
            rig.advance(11 * MS);
            for index in 0..3 {
                assert_eq!(rig.waiting(index).last().map(String::as_str), Some("SET"));
            }
        }
    }
}

#[test]
fn the_calls_own_deadline_ends_a_round_with_a_longer_timeout_of_its_own() {
    let mut rig = Rig::new(3);
    let begun = rig.now;
    let patient = LockOptions::new(TTL).node_timeout(5000 * MS).timeout(3000 * MS);
    rig.acquire_with("a", patient);
    while rig.engine.in_flight() > 0 && begun.until(rig.now) < 6000 * MS {
        rig.advance(10 * MS);
        if rig.lock_result().is_some() {
            break;
        }
    }
    assert!(begun.until(rig.now) < 3020 * MS, "{:?}", begun.until(rig.now));
}

#[test]
fn an_extension_has_no_node_timeout_of_the_call_that_had_its_place_before() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    let before = rig.acquire_with("b", patient(30_000 * MS));
    rig.answer_all(0..3, "+OK\r\n");
    rig.locked();
    let op = rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(op.index(), before.index());
    let op = rig.engine.locks.ops.find(op).unwrap();
    assert_eq!(rig.engine.locks.ops.at(op).plan.own_timeout(), None);
}

//! Leases whose nodes tell when another client changes the key.

use super::*;
use crate::options::KeepAlive;
use crate::retry::Retry;

const GONE: &str = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
const ALL_GONE: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

fn watched() -> LockOptions {
    LockOptions::new(TTL).watch(true)
}

/// Answers what stands behind a SET: TRACKING if it is asked for, CACHING and PTTL.
fn answer_tracking(rig: &mut Rig, index: usize) {
    while rig.waiting(index).first().is_some_and(|word| word == "CLIENT") {
        rig.answer(index, "+OK\r\n");
    }
    rig.answer(index, ":9999\r\n");
}

/// A lease that every node granted and tells of.
fn watched_lease(rig: &mut Rig, acquire: LockOptions) -> LeaseId {
    rig.acquire_with("a", acquire);
    for index in 0..rig.inbox.len() {
        rig.answer(index, "+OK\r\n");
        answer_tracking(rig, index);
    }
    rig.locked()
}

#[test]
fn tracking_is_asked_for_once_a_connection_behind_the_set() {
    let mut rig = Rig::new(1);
    rig.acquire_with("a", watched());
    let words: Vec<_> = rig.waiting(0);
    assert_eq!(words, ["SET", "CLIENT", "CLIENT", "PTTL"]);
    assert_eq!(rig.inbox[0][1][1..], ["TRACKING", "ON", "OPTIN", "NOLOOP"]);
    rig.answer(0, "+OK\r\n");
    let lease = rig.locked();
    answer_tracking(&mut rig, 0);
    assert_eq!(rig.engine.watched_by(lease).count(), 1);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(0), ["SET", "CLIENT", "PTTL"]);
    rig.answer(0, "+OK\r\n");
    answer_tracking(&mut rig, 0);
    assert!(rig.engine.poll_event(rig.now).is_some());
    rig.engine.release(lease, rig.now);
    rig.answer(0, ":1\r\n");
    assert_eq!((rig.engine.slots_in_use(), rig.engine.locks.timers.next()), (0, Instant::MAX));
    // A plain lease is not watched.
    rig.acquire("a");
    assert_eq!(rig.waiting(0), ["SET"]);
}

#[test]
fn pushes_of_too_many_nodes_lose_the_lease_at_once() {
    for push in [GONE, ALL_GONE] {
        let mut rig = Rig::new(5);
        let lease = watched_lease(&mut rig, watched());
        rig.receive(0, push);
        rig.receive(0, push);
        rig.receive(1, push);
        rig.pass();
        assert!(!rig.engine.is_lost(lease) && rig.engine.poll_event(rig.now).is_none());
        rig.receive(2, push);
        let event = rig.engine.poll_event(rig.now);
        assert!(
            matches!(event, Some(Event::Lost { cause: LostCause::Gone, .. })),
            "without a timer: {event:?}"
        );
        assert!(rig.engine.remaining_at(lease, rig.now).is_zero());
        // A node that told of a change may be wrong, so all are released.
        rig.engine.release(lease, rig.now);
        assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    }
}

/// A push is about the lease only behind the answer to its SET, and takes no answer's place.
#[test]
fn a_push_before_the_answer_to_the_set_is_about_somebody_elses_key() {
    let mut rig = Rig::new(1);
    rig.acquire_with("a", watched());
    rig.collect();
    rig.receive(0, GONE);
    rig.answer(0, "+OK\r\n");
    let lease = rig.locked();
    answer_tracking(&mut rig, 0);
    assert!(!rig.engine.is_lost(lease));
    rig.receive(0, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nb\r\n");
    assert!(!rig.engine.is_lost(lease), "another key");
    rig.receive(0, GONE);
    assert!(rig.engine.is_lost(lease));
}

#[test]
fn a_key_that_is_gone_before_it_is_tracked_is_noticed_by_the_read() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", watched());
    rig.answer_all(0..3, "+OK\r\n");
    let lease = rig.locked();
    for index in 0..2 {
        rig.answer(index, "+OK\r\n");
        rig.answer(index, "+OK\r\n");
        rig.answer(index, ":-2\r\n");
    }
    assert!(rig.engine.is_lost(lease));
}

/// An attempt for which no node is there leaves the call without a slot of its own, until the next:
/// what it is told then may stand in the slot that it had.
#[test]
fn what_a_call_without_a_slot_is_told_takes_no_vote_from_another() {
    let mut rig = Rig::new(1);
    let retry = Retry::every(200 * MS, Duration::ZERO).attempts(9);
    rig.acquire_with("a", watched().retry(retry));
    rig.answer(0, "_\r\n");
    answer_tracking(&mut rig, 0);
    rig.lose(0);
    let begun = rig.now;
    while begun.until(rig.now) < 201 * MS {
        if rig.engine.wants_connection(node(0)) {
            rig.engine.handle_lost(node(0), Cause::ConnectionRefused, rig.now);
        }
        rig.advance(MS);
    }
    rig.connect(0);
    assert_eq!(rig.waiting(0), Vec::<String>::new(), "the second attempt has failed");
    rig.acquire_with("b", watched());
    rig.answer(0, "+OK\r\n");
    rig.receive(0, GONE);
    rig.locked();
}

#[test]
pub(super) fn a_vote_that_is_taken_back_is_made_up_for_by_another() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", watched());
    rig.answer(0, "+OK\r\n");
    rig.receive(0, GONE);
    rig.answer(1, "+OK\r\n");
    assert!(rig.lock_result().is_none(), "one vote is no quorum");
    rig.answer(2, "+OK\r\n");
    rig.locked();
}

/// A caller that comes late to its result, as after a pause, reads the answers and the end of what
/// they granted at once.
#[test]
fn a_lock_that_is_gone_before_it_is_handed_over_is_no_lock() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", watched());
    rig.answer_all(0..2, "+OK\r\n");
    rig.receive(1, GONE);
    let event = rig.engine.poll_event(rig.now);
    let Some(Event::Lock { result: Err(LockError::Expired(ballot)), .. }) = event else {
        panic!("{event:?}")
    };
    let error = LockError::Expired(ballot);
    assert_eq!(vote_of(&error, 1), Vote::Unknown(Cause::Gone));
    assert!(rig.engine.poll_event(rig.now).is_none(), "nothing was held, so nothing is lost");
    // Whatever was written is released, also where it was told to be gone.
    for index in 0..3 {
        assert!(rig.waiting(index).contains(&"DELIFEQ".to_owned()), "{index}");
    }
}

#[test]
fn a_vote_for_a_key_that_is_gone_does_not_count() {
    let mut rig = Rig::new(5);
    rig.acquire_with("a", watched());
    rig.answer_all(0..2, "+OK\r\n");
    rig.receive(0, GONE);
    rig.answer(2, "+OK\r\n");
    assert!(rig.engine.poll_event(rig.now).is_none(), "two nodes hold it");
    rig.answer(3, "+OK\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.votes(lease).count(), 3);
    assert!(!rig.engine.is_lost(lease));
}

#[test]
fn nodes_without_tracking_are_not_asked_again_and_tell_nothing() {
    let denied = "-NOPERM this user has no permissions to run the 'client|tracking' command\r\n";
    let mut rig = Rig::new(1);
    rig.acquire_with("a", watched());
    rig.answer(0, "+OK\r\n");
    let lease = rig.locked();
    rig.answer(0, denied);
    rig.answer(0, "-ERR CLIENT CACHING can be called only when ..\r\n");
    rig.answer(0, ":9999\r\n");
    assert!(rig.engine.watched_by(lease).is_empty());
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(0), ["SET"]);
}

#[test]
fn an_extension_shows_that_the_node_that_told_holds_the_key_after_all() {
    let mut rig = Rig::new(3);
    let lease = watched_lease(&mut rig, watched().keep_alive(KeepAlive::new()));
    rig.receive(0, GONE);
    rig.advance(TTL / 3);
    for index in 0..3 {
        rig.answer(index, "+OK\r\n");
        answer_tracking(&mut rig, index);
    }
    rig.pass();
    rig.receive(1, GONE);
    assert!(!rig.engine.is_lost(lease));
    rig.receive(0, GONE);
    assert!(rig.engine.is_lost(lease));
}

#[test]
fn a_node_that_is_back_is_asked_for_the_key_at_once() {
    let mut rig = Rig::new(3);
    let lease = watched_lease(&mut rig, watched());
    for index in 0..2 {
        rig.lose(index);
        rig.connect(index);
        assert_eq!(rig.waiting(index), ["CLIENT", "CLIENT", "PTTL"]);
        rig.answer(index, "+OK\r\n");
        rig.answer(index, "+OK\r\n");
        assert!(!rig.engine.is_lost(lease));
        rig.answer(index, ":-2\r\n");
    }
    assert!(rig.engine.is_lost(lease), "they forgot it");
}

#[test]
fn a_retried_acquisition_is_watched_at_its_last_attempt() {
    let mut rig = Rig::new(1);
    let retry = Retry::every(MS, Duration::ZERO).attempts(2);
    rig.acquire_with("a", watched().retry(retry));
    rig.answer(0, "_\r\n");
    answer_tracking(&mut rig, 0);
    rig.receive(0, GONE);
    rig.advance(MS * 2);
    assert_eq!(rig.waiting(0), ["SET", "CLIENT", "PTTL"]);
    rig.answer(0, "+OK\r\n");
    let lease = rig.locked();
    answer_tracking(&mut rig, 0);
    assert!(!rig.engine.is_lost(lease));
    assert_eq!(rig.engine.watched_by(lease).count(), 1);
    rig.receive(0, ALL_GONE);
    assert!(rig.engine.is_lost(lease));
    rig.engine.release(lease, rig.now);
    rig.answer(0, ":0\r\n");
    assert_eq!(rig.engine.slots_in_use(), 0);
}

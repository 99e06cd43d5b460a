//! How calls for several keys end without them, and for which reason.

use super::sets::{
    Stores, every, hold_elsewhere, keys_of, left_by_another, let_go, run, serve, stores,
};
use super::*;

/// Time passes without answers until the call ends.
fn end_of(rig: &mut Rig, longest: Duration) -> LockError {
    let end = rig.now + longest;
    while rig.now < end {
        if let Some(result) = rig.lock_result() {
            return result.expect_err("no node answers");
        }
        rig.advance(MS);
    }
    panic!("the call does not end");
}

#[test]
fn a_set_whose_time_is_over_without_a_quorum_ends_for_that_reason() {
    // The call ends before its first round, in its second, and while it waits.
    for timeout in [30 * MS, 80 * MS, 400 * MS] {
        let mut rig = Rig::new(3);
        rig.engine.lock_all(&["a", "b"], &every(50 * MS).timeout(timeout), rig.now).unwrap();
        let error = end_of(&mut rig, TTL);
        assert!(matches!(error, LockError::NoQuorum(_)), "{timeout:?}: {error}");
        assert_eq!(rig.engine.in_flight(), 0);
    }
}

/// The nodes answer so many rounds of a call for several keys, of which another client holds `b`.
fn denied(rounds: usize, timeout: Duration) -> Rig {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    hold_elsewhere(&mut stores, "b");
    let options = every(50 * MS).timeout(timeout);
    rig.engine.lock_all(&["a", "b", "c"], &options, rig.now).unwrap();
    for _ in 0..rounds {
        serve(&mut rig, &mut stores);
        assert!(rig.engine.poll_event(rig.now).is_none());
    }
    rig
}

#[test]
fn a_set_whose_last_round_is_cut_ends_for_the_reason_of_the_round_before() {
    // The cut round asks for each key, then for the denied key alone.
    for (rounds, key) in [(1, None), (2, Some(&b"b"[..]))] {
        let mut rig = denied(rounds, 30 * MS);
        let error = end_of(&mut rig, TTL);
        assert!(error.is_taken(), "{rounds}: {error}");
        assert_eq!(error.ballot().expect("votes").key(), key);
    }
    // A node had the time to answer.
    for rounds in [1, 2] {
        let mut rig = denied(rounds, 400 * MS);
        let error = end_of(&mut rig, TTL);
        assert!(matches!(error, LockError::NoQuorum(_)), "{rounds}: {error}");
    }
}

#[test]
fn a_call_for_a_slot_whose_last_round_is_cut_ends_for_the_reason_of_the_round_before() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    for slot in 0..4 {
        hold_elsewhere(&mut stores, &format!("n:slot:{slot}"));
    }
    rig.engine.lock(b"n", &every(50 * MS).slots(4).timeout(30 * MS), rig.now).unwrap();
    serve(&mut rig, &mut stores);
    assert!(end_of(&mut rig, TTL).is_taken());
}

/// The client has won both keys of a set, and its caller looks only when the lease is over.
fn won_too_late(rig: &mut Rig, timeout: Duration) -> Stores {
    let mut stores = stores(3);
    rig.engine.try_lock(b"other", &LockOptions::new(TTL), rig.now).unwrap();
    rig.engine.lock_all(&["a", "b"], &every(50 * MS).timeout(timeout), rig.now).unwrap();
    serve(rig, &mut stores);
    // The result of the set stands behind this one.
    let other = rig.locked();
    rig.engine.release(other, rig.now);
    rig.now = rig.now + TTL;
    stores
}

#[test]
fn a_set_with_too_little_validity_is_not_handed_over_but_taken_again() {
    let mut rig = Rig::new(3);
    let mut stores = won_too_late(&mut rig, 3 * TTL);
    assert!(rig.engine.poll_event(rig.now).is_none());
    for _ in 0..5 {
        serve(&mut rig, &mut stores);
        if let Some(result) = rig.lock_result() {
            let lease = result.expect("both are free");
            assert!(rig.engine.remaining_at(lease, rig.now) > TTL / 2);
            return;
        }
        rig.advance(100 * MS);
    }
    panic!("it never ends");
}

#[test]
fn a_set_with_too_little_validity_and_no_time_for_another_round_is_expired() {
    // The time is over at once, and after the wait for the next round.
    for timeout in [TTL, TTL + 100 * MS] {
        let mut rig = Rig::new(3);
        let mut stores = won_too_late(&mut rig, timeout);
        let mut result = rig.lock_result();
        assert_eq!(result.is_some(), timeout == TTL);
        rig.now = rig.now + 100 * MS;
        rig.pass();
        result = result.or_else(|| rig.lock_result());
        let error = result.expect("an end").expect_err("the lease is over");
        assert!(matches!(error, LockError::Expired(_)), "{timeout:?}: {error}");
        assert_eq!(error.ballot().expect("votes").granted(), 3, "{error}");
        serve(&mut rig, &mut stores);
        assert!(keys_of(&stores).is_empty());
    }
}

/// Other calls take all the room that is left: they wait for a lock that another client holds.
fn fill(rig: &mut Rig, stores: &mut Stores) -> Vec<OpId> {
    hold_elsewhere(stores, "held");
    let begin = || rig.engine.lock(b"held", &every(TTL), rig.now).ok();
    std::iter::from_fn(begin).collect()
}

fn leave(rig: &mut Rig, ops: Vec<OpId>) {
    for op in ops {
        rig.engine.cancel(op, rig.now);
        assert!(matches!(rig.refused(), LockError::Cancelled));
    }
}

#[test]
fn no_other_call_takes_the_room_of_a_set_whose_nodes_refuse_its_one_command() {
    let mut rig = Rig::with(3, |config| config.in_flight_max(3));
    rig.engine.try_lock_all(&["a", "b"], &LockOptions::new(TTL), rig.now).unwrap();
    let other = rig.engine.try_lock(b"other", &LockOptions::new(TTL), rig.now);
    assert!(matches!(other, Err(LockError::Full)), "{other:?}");
    rig.answer_all(0..3, "-ERR unknown command 'MSETEX'\r\n");
    assert!(rig.engine.poll_event(rig.now).is_none());
    rig.answer_all([0, 0, 1, 1, 2, 2], "+OK\r\n");
    rig.locked();
    rig.acquire("other");
}

#[test]
fn a_set_that_finds_no_room_when_it_begins_anew_waits_for_room() {
    let mut rig = Rig::with(3, |config| config.in_flight_max(8));
    let mut stores = won_too_late(&mut rig, 3 * TTL);
    assert!(rig.engine.poll_event(rig.now).is_none());
    let ops = fill(&mut rig, &mut stores);
    assert!(run(&mut rig, &mut stores, 200 * MS).is_empty());
    leave(&mut rig, ops);
    let events = run(&mut rig, &mut stores, TTL / 10);
    assert!(matches!(events.as_slice(), [Event::Lock { result: Ok(_), .. }]), "{events:?}");
    assert_eq!(keys_of(&stores), ["a", "b", "held"]);
}

#[test]
fn a_writer_that_finds_no_room_to_wait_for_all_slots_at_once_waits_for_one_after_the_other() {
    let mut rig = Rig::with(3, |config| config.in_flight_max(8));
    let mut stores = stores(3);
    hold_elsewhere(&mut stores, "n:slot");
    rig.engine.lock(b"n", &every(50 * MS).write(3), rig.now).unwrap();
    assert!(run(&mut rig, &mut stores, 100 * MS).is_empty());
    fill(&mut rig, &mut stores);
    let_go(&mut stores, "n:slot");
    let events = run(&mut rig, &mut stores, TTL / 10);
    assert!(matches!(events.as_slice(), [Event::Lock { result: Ok(_), .. }]), "{events:?}");
    assert_eq!(keys_of(&stores), ["held", "n:slot", "n:slot:0", "n:slot:1", "n:slot:2"]);
}

#[test]
fn a_try_for_a_slot_that_has_no_room_to_ask_for_all_does_not_say_that_all_are_taken() {
    let mut rig = Rig::with(3, |config| config.in_flight_max(20));
    let mut stores = stores(3);
    for slot in 0..40 {
        hold_elsewhere(&mut stores, &format!("n:slot:{slot}"));
    }
    rig.engine.try_lock(b"n", &LockOptions::new(TTL).slots(40), rig.now).unwrap();
    let mut result = None;
    for _ in 0..4 {
        serve(&mut rig, &mut stores);
        result = result.or_else(|| rig.lock_result());
    }
    let error = result.expect("an end").expect_err("all are held");
    assert!(matches!(error, LockError::Full), "{error}");
    assert_eq!(rig.engine.in_flight(), 0);
}

#[test]
fn an_adoption_of_several_locks_that_fails_names_no_holder() {
    let (mut rig, mut stores) = (Rig::new(3), left_by_another(&["a"]));
    let locks = [("b", "token of b"), ("a", "token of a")];
    rig.engine.adopt_all(&locks, &LockOptions::new(TTL).announced(), rig.now).unwrap();
    serve(&mut rig, &mut stores);
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Adopt { result: Err(ExtendError::Lost(_)), .. })));
    serve(&mut rig, &mut stores);
    assert_eq!(keys_of(&stores), ["a"], "no claim stands beside it");
}

#[test]
fn each_key_of_an_adopted_set_names_its_holder() {
    let (mut rig, mut stores) = (Rig::new(3), left_by_another(&["a", "b"]));
    let locks = [("b", "token of b"), ("a", "token of a")];
    rig.engine.adopt_all(&locks, &LockOptions::new(TTL).announced(), rig.now).unwrap();
    serve(&mut rig, &mut stores);
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Adopt { result: Ok(_), .. })), "{event:?}");
    serve(&mut rig, &mut stores);
    assert_eq!(keys_of(&stores), ["a", "a:elected", "b", "b:elected"]);
}

#[test]
fn a_set_names_its_holder_only_once_it_is_won() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    hold_elsewhere(&mut stores, "b");
    rig.engine.lock_all(&["a", "b"], &every(50 * MS).announced(), rig.now).unwrap();
    assert!(run(&mut rig, &mut stores, TTL).is_empty());
    assert_eq!(keys_of(&stores), ["a", "b"]);
    let_go(&mut stores, "b");
    assert_eq!(run(&mut rig, &mut stores, TTL / 10).len(), 1);
    assert_eq!(keys_of(&stores), ["a", "a:elected", "b", "b:elected"]);
}

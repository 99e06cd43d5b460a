//! Attempts, section by section: how one is asked, counted and ended.

use super::*;

#[test]
fn the_set_goes_to_every_node_before_any_reply_is_read() {
    let mut rig = Rig::new(5);
    rig.acquire("a");
    for index in 0..5 {
        assert_eq!(rig.waiting(index), ["SET"]);
    }
    let sets: Vec<_> = rig.inbox.iter().map(|inbox| inbox[0].clone()).collect();
    assert!(sets.windows(2).all(|pair| pair[0] == pair[1]), "one token on all nodes");
    assert_eq!(sets[0][1], "a");
    assert_eq!(sets[0][2].len(), 40);
    assert_eq!(sets[0][3..], ["NX", "PX", "10000"]);
}

#[test]
fn the_quorum_decides_and_later_grants_add_votes() {
    let mut rig = Rig::new(5);
    rig.acquire("a");
    rig.answer_all(0..2, "+OK\r\n");
    assert!(rig.lock_result().is_none());
    rig.answer(2, "+OK\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.votes(lease).count(), 3);
    rig.answer(3, "+OK\r\n");
    rig.answer(4, "_\r\n");
    assert_eq!(rig.engine.poll_change(), Some(lease));
    assert_eq!(rig.engine.votes(lease).count(), 4);
}

#[test]
fn validity_counts_from_before_the_write_and_drift_is_taken_off() {
    let mut rig = Rig::new(3);
    let t0 = rig.now;
    rig.acquire("a");
    rig.now = rig.now + 30 * MS;
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.deadline(lease), Some(t0 + TTL - 102 * MS));
}

#[test]
fn a_quorum_that_can_no_longer_be_reached_fails_at_once() {
    let mut rig = Rig::new(5);
    rig.acquire("a");
    rig.answer(0, "+OK\r\n");
    rig.answer_all(1..3, "_\r\n");
    assert!(rig.lock_result().is_none());
    rig.answer(3, "_\r\n");
    let error = rig.refused();
    assert!(matches!(error, LockError::Taken(_)), "{error}");
    assert_eq!(vote_of(&error, 0), Vote::Granted);
    assert_eq!(vote_of(&error, 1), Vote::Denied);
    // If a node granted or may still hold the key, the client deletes the key behind its SET;
    // elsewhere it does not.
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    assert_eq!(rig.waiting(1), Vec::<String>::new());
    assert_eq!(rig.waiting(4), ["SET", "DELIFEQ"]);
}

#[test]
fn an_even_split_of_two_nodes_ends_at_once() {
    let mut rig = Rig::new(2);
    rig.acquire("a");
    rig.answer(0, "+OK\r\n");
    rig.answer(1, "_\r\n");
    assert!(matches!(rig.refused(), LockError::Taken(_)));
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

#[test]
fn silence_becomes_unknown_at_the_node_timeout_and_is_released() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer(0, "+OK\r\n");
    rig.advance(49 * MS);
    assert!(rig.lock_result().is_none());
    rig.advance(2 * MS);
    let error = rig.refused();
    assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    assert_eq!(vote_of(&error, 1), Vote::Unknown(Cause::Timeout));
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    assert_eq!(rig.waiting(1), ["SET", "DELIFEQ"]);
}

#[test]
fn an_unclear_error_counts_as_possibly_written() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer(0, "-PROXYERR upstream went away\r\n");
    rig.answer(1, "-OOM command not allowed\r\n");
    let error = rig.refused();
    assert_eq!(vote_of(&error, 0), Vote::Unknown(Cause::OddReply));
    assert_eq!(vote_of(&error, 1), Vote::Failed(Cause::OutOfMemory));
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    assert_eq!(rig.waiting(1), Vec::<String>::new());
}

#[test]
fn a_lock_whose_deadline_passed_before_hand_over_is_an_expired_failure() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", LockOptions::new(100 * MS));
    rig.answer_all(0..3, "+OK\r\n");
    rig.now = rig.now + 97 * MS;
    assert!(matches!(rig.refused(), LockError::Expired(_)));
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["DELIFEQ"]);
    }
}

#[test]
fn less_validity_than_asked_for_is_a_failure() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", LockOptions::new(100 * MS).min_validity(90 * MS));
    rig.now = rig.now + 8 * MS;
    rig.answer_all(0..3, "+OK\r\n");
    assert!(matches!(rig.refused(), LockError::Expired(_)));
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

#[test]
fn a_node_that_is_away_votes_failed_at_once() {
    let mut rig = Rig::new(3);
    rig.lose(2);
    rig.acquire("a");
    rig.answer(0, "+OK\r\n");
    rig.answer(1, "_\r\n");
    let error = rig.refused();
    assert_eq!(vote_of(&error, 2), Vote::Failed(Cause::Closed));
}

#[test]
fn a_late_answer_is_never_taken_for_another_attempts() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer(0, "_\r\n");
    rig.answer(1, "_\r\n");
    assert!(matches!(rig.refused(), LockError::Taken(_)));
    // Node 2 still owes the first SET and its release.
    rig.acquire("a");
    assert_eq!(rig.waiting(2), ["SET", "DELIFEQ", "SET"]);
    rig.answer(2, "+OK\r\n");
    rig.answer(2, ":1\r\n");
    assert!(rig.lock_result().is_none());
    rig.answer_all([0, 2], "+OK\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.votes(lease).bits(), 0b101);
}

#[test]
fn cancelling_releases_what_may_be_written() {
    let mut rig = Rig::new(3);
    let op = rig.acquire("a");
    rig.answer(0, "+OK\r\n");
    rig.engine.cancel(op, rig.now);
    assert!(matches!(rig.refused(), LockError::Cancelled));
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    assert_eq!(rig.waiting(1), ["SET", "DELIFEQ"]);
}

#[test]
fn a_won_lock_that_is_cancelled_before_hand_over_is_released() {
    let mut rig = Rig::new(3);
    let op = rig.acquire("a");
    rig.answer_all(0..3, "+OK\r\n");
    rig.engine.cancel(op, rig.now);
    assert!(matches!(rig.refused(), LockError::Cancelled));
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
}

#[test]
fn any_number_of_locks_go_on_at_once_up_to_the_bound() {
    let mut rig = Rig::with(3, |config| config.in_flight_max(100));
    for index in 0..100 {
        rig.acquire(&format!("k{index}"));
    }
    let full = rig.engine.acquire(b"one more", &LockOptions::new(TTL), rig.now);
    assert!(matches!(full, Err(LockError::Full)));
    for index in 0..3 {
        rig.answer_all(std::iter::repeat_n(index, 100), "+OK\r\n");
    }
    for _ in 0..100 {
        rig.locked();
    }
    assert_eq!(rig.engine.in_flight(), 0);
}

#[test]
fn keys_and_ttls_that_cannot_be_are_refused() {
    let mut rig = Rig::new(1);
    let mut refused = |key: &[u8], acquire: LockOptions| {
        rig.engine.acquire(key, &acquire, rig.now).expect_err("refused")
    };
    let acquire = || LockOptions::new(TTL);
    assert!(matches!(refused(b"", acquire()), LockError::InvalidKey { len: 0 }));
    assert!(matches!(refused(&[0; 4097], acquire()), LockError::InvalidKey { len: 4097 }));
    for ttl in [Duration::ZERO, Duration::from_micros(999), 3 * MS, Duration::from_secs(31)] {
        assert!(
            matches!(refused(b"k", LockOptions::new(ttl)), LockError::InvalidTtl { .. }),
            "{ttl:?}"
        );
    }
    assert!(rig.engine.acquire(&[0; 4096], &LockOptions::new(4 * MS), rig.now).is_ok());
}

#[test]
fn tokens_share_the_clients_id_and_never_repeat() {
    let mut rig = Rig::new(1);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        for _ in 0..50 {
            rig.acquire("a");
        }
        rig.collect();
        for set in std::mem::take(&mut rig.inbox[0]) {
            assert!(seen.insert(set[2].clone()));
            rig.receive(0, "_\r\n");
            rig.refused();
        }
        let count = u8::try_from(seen.len() / 50).unwrap();
        rig.engine.reseed([count; 32]);
    }
    let ids: std::collections::HashSet<_> = seen.iter().map(|token| &token[..16]).collect();
    assert_eq!((seen.len(), ids.len()), (1000, 1));
}

#[test]
fn what_nobody_takes_out_does_not_grow_with_the_locks() {
    let mut rig = Rig::new(5);
    let kept = || LockOptions::new(TTL).keep_alive();
    for _ in 0..100 {
        rig.acquire_with("a", kept());
        rig.answer_all(0..5, "+OK\r\n");
        let lease = rig.locked();
        rig.advance(TTL / 3 + MS);
        rig.answer_all(0..5, "+OK\r\n");
        rig.engine.release(lease, rig.now);
        rig.answer_all(0..5, ":1\r\n");
    }
    let changed = std::iter::from_fn(|| rig.engine.poll_change()).count();
    assert!(changed <= 2, "{changed} changes");
    assert!(rig.engine.locks.keeps.changed.capacity() < 100);
}

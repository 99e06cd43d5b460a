//! Releases, and the debts that they become.

use super::*;
use crate::error::UnlockError;

fn unlocked(rig: &mut Rig) -> Option<Result<Unlocked, UnlockError>> {
    let event = rig.engine.poll_event(rig.now)?;
    let Event::Unlock { result, .. } = event else { panic!("not an unlock: {event:?}") };
    Some(result)
}

#[test]
fn a_quorum_of_deletions_is_released() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer(0, ":1\r\n");
    assert_eq!(unlocked(&mut rig), None);
    rig.answer(1, ":1\r\n");
    assert_eq!(unlocked(&mut rig), Some(Ok(Unlocked::Released)));
    rig.answer(2, ":1\r\n");
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn a_release_of_keys_that_are_gone_is_not_held() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer_all(0..2, ":0\r\n");
    assert_eq!(unlocked(&mut rig), Some(Err(UnlockError::NotHeld)));
}

#[test]
fn silence_leaves_a_release_unknown() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer(0, ":1\r\n");
    rig.advance(51 * MS);
    assert_eq!(unlocked(&mut rig), Some(Ok(Unlocked::Unknown)));
}

/// The release may have run before its connection ended, or the node may have restarted empty.
#[test]
fn a_key_that_is_gone_behind_a_lost_connection_does_not_say_that_the_lock_was_over() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer(0, "_\r\n");
    rig.answer_all(1..3, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer(1, ":1\r\n");
    rig.lose(2);
    rig.advance(20 * MS);
    rig.connect(2);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    rig.answer(2, ":0\r\n");
    assert_eq!(unlocked(&mut rig), Some(Ok(Unlocked::Unknown)));
}

#[test]
fn a_second_release_is_refused_and_harmless() {
    let mut rig = Rig::new(1);
    let lease = rig.lease("a");
    rig.engine.unlock(lease, rig.now).unwrap();
    assert!(matches!(rig.engine.unlock(lease, rig.now), Err(UnlockError::NotOurs)));
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

#[test]
fn a_release_goes_to_nodes_whose_grant_is_not_yet_read() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(2), ["SET", "DELIFEQ"]);
}

#[test]
fn a_lost_connection_makes_releases_debts_that_are_paid_before_any_set() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.release(lease, rig.now);
    rig.lose(2);
    rig.acquire("b");
    assert_eq!(rig.engine.nodes(rig.now)[2].debts, 1);
    rig.advance(60 * MS);
    rig.connect(2);
    rig.acquire("c");
    assert_eq!(rig.waiting(2), ["DELIFEQ", "SET"]);
    rig.answer(2, ":1\r\n");
    // The node had answered its SET, so once is enough.
    rig.answer(2, "+OK\r\n");
    rig.advance(100 * MS);
    assert_eq!(rig.waiting(2), ["DELIFEQ"], "only the release of the failed attempt");
}

#[test]
fn a_node_that_is_away_gets_one_attempt_more_where_the_client_waits_for_its_debts() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.release(lease, rig.now);
    rig.answer_all(0..2, ":1\r\n");
    rig.lose(2);
    rig.until_wanted(2);
    rig.engine.handle_lost(node(2), Cause::ConnectionRefused, rig.now);
    rig.pass();
    let until = rig.now + TTL;
    assert_eq!(rig.engine.releases_open(until), 0, "its next attempt may be in vain too");
    assert!(!rig.engine.wants_connection(node(2)));
    rig.engine.reach_owed(rig.now);
    rig.pass();
    assert!(rig.engine.wants_connection(node(2)), "at once");
    assert_eq!(rig.engine.releases_open(until), 1);
    rig.engine.handle_lost(node(2), Cause::ConnectionRefused, rig.now);
    assert_eq!(rig.engine.releases_open(until), 0);
    rig.engine.reach_owed(rig.now);
    rig.connect(2);
    assert_eq!(rig.engine.releases_open(until), 1);
    rig.answer(2, ":1\r\n");
    assert_eq!(rig.engine.releases_open(until), 0);
}

#[test]
fn a_debt_whose_set_was_unanswered_is_paid_twice() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer_all(0..2, "_\r\n");
    rig.refused();
    assert_eq!(rig.waiting(2), ["SET", "DELIFEQ"]);
    rig.lose(2);
    rig.advance(60 * MS);
    rig.connect(2);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    rig.answer(2, ":0\r\n");
    rig.advance(49 * MS);
    assert_eq!(rig.waiting(2), Vec::<String>::new());
    rig.advance(2 * MS);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    rig.answer(2, ":1\r\n");
    rig.advance(500 * MS);
    assert_eq!(rig.waiting(2), Vec::<String>::new());
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn a_debt_outlives_two_losses_in_a_row() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer_all(0..2, "_\r\n");
    rig.refused();
    for _ in 0..2 {
        rig.lose(2);
        rig.advance(Duration::from_secs(6));
        rig.connect(2);
        assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    }
    // This is far beyond the TTL: the SET may still stand in the server's buffer.
    rig.lose(2);
    rig.advance(Duration::from_secs(60));
    rig.connect(2);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
}

#[test]
fn time_ends_a_debt_whose_set_was_answered() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.release(lease, rig.now);
    rig.answer_all(0..2, ":1\r\n");
    rig.lose(2);
    rig.advance(Duration::from_secs(11));
    rig.connect(2);
    assert_eq!(rig.waiting(2), Vec::<String>::new());
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
pub(super) fn a_debt_lives_a_ttl_from_the_late_answer_of_its_set() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer_all(0..2, "_\r\n");
    rig.refused();
    // Node 2 was frozen for almost the TTL. Its key lives from now on, and cannot be deleted yet.
    rig.advance(TTL - MS);
    rig.answer(2, "+OK\r\n");
    rig.advance(2 * MS);
    rig.answer(2, "-MISCONF cannot persist\r\n");
    rig.advance(Duration::from_secs(2));
    assert_eq!(rig.waiting(2), ["DELIFEQ"], "it is asked for again");
}

#[test]
pub(super) fn a_live_lease_owes_nothing_for_an_unanswered_set_until_it_is_released() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    rig.lose(2);
    rig.advance(60 * MS);
    rig.connect(2);
    assert_eq!(rig.waiting(2), Vec::<String>::new());
    rig.engine.release(lease, rig.now);
    // Over the new connection, and once more: the SET may run behind it.
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    rig.answer(2, ":0\r\n");
    rig.advance(51 * MS);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
}

/// The first SET may still run, behind the release. The answer to the second says nothing of it.
#[test]
fn a_release_is_repeated_behind_a_first_set_though_the_node_answers_a_second() {
    for answer in ["+OK\r\n", "_\r\n"] {
        let mut rig = Rig::new(3);
        rig.acquire("a");
        rig.answer_all(0..2, "+OK\r\n");
        let lease = rig.locked();
        rig.lose(2);
        rig.connect(2);
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        rig.answer(2, "_\r\n");
        assert_eq!(rig.waiting(2), ["SET"]);
        rig.engine.release(lease, rig.now);
        rig.answer(2, answer);
        rig.answer(2, ":1\r\n");
        rig.advance(51 * MS);
        assert_eq!(rig.waiting(2), ["DELIFEQ"], "once more, behind {answer:?}");
    }
}

#[test]
pub(super) fn an_unknown_command_steps_down_and_the_release_is_sent_again() {
    let mut rig = Rig::new(1);
    let lease = rig.lease("a");
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer(0, "-ERR unknown command 'DELIFEQ', with args beginning with: 'a'\r\n");
    assert_eq!(rig.waiting(0), ["DELEX"]);
    rig.answer(0, "-NOPERM this user has no permissions to run the 'delex' command\r\n");
    assert_eq!(rig.waiting(0), ["EVAL"]);
    assert_eq!(unlocked(&mut rig), None);
    rig.answer(0, ":1\r\n");
    assert_eq!(unlocked(&mut rig), Some(Ok(Unlocked::Released)));
}

#[test]
fn a_release_refused_for_the_moment_is_asked_for_again() {
    let mut rig = Rig::new(1);
    let lease = rig.lease("a");
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer(0, "-BUSY Redis is busy running a script\r\n");
    assert_eq!(unlocked(&mut rig), Some(Ok(Unlocked::Unknown)));
    rig.advance(1100 * MS);
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    rig.answer(0, ":1\r\n");
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn a_detached_lease_is_left_alone() {
    let mut rig = Rig::new(1);
    let lease = rig.lease("a");
    rig.engine.detach(lease).unwrap();
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0), Vec::<String>::new());
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn key_and_token_suffice_to_release() {
    let mut rig = Rig::new(3);
    rig.engine.unlock_token(b"a", b"tok", rig.now).unwrap();
    rig.collect();
    assert_eq!(rig.inbox[1][0], ["DELIFEQ", "a", "tok"]);
    rig.answer_all(0..2, ":1\r\n");
    assert_eq!(unlocked(&mut rig), Some(Ok(Unlocked::Released)));
}

#[test]
fn debts_are_bounded_and_the_oldest_are_dropped_and_counted() {
    let mut rig = Rig::with(1, |config| config.in_flight_max(1 << 17));
    let count = 65_536 + 10;
    let mut leases = Vec::new();
    for batch in 0..count / 1000 + 1 {
        let size = 1000.min(count - batch * 1000);
        for index in 0..size {
            rig.acquire(&format!("k{batch}-{index}"));
        }
        rig.collect();
        rig.inbox[0].clear();
        rig.receive(0, &"+OK\r\n".repeat(size));
        for _ in 0..size {
            leases.push(rig.locked());
        }
    }
    rig.lose(0);
    for lease in leases {
        rig.engine.release(lease, rig.now);
    }
    let health = &rig.engine.nodes(rig.now)[0];
    assert_eq!((health.debts, health.debts_dropped), (65_536, 10));
    assert_eq!(rig.engine.slots_in_use(), 65_536);
    // The client pays them all, in portions, after the next greeting.
    rig.until_wanted(0);
    rig.engine.handle_connected(node(0), rig.now);
    rig.collect();
    rig.receive(0, HELLO);
    let info = "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:9999";
    rig.receive(0, &format!("${}\r\n{info}\r\n", info.len()).repeat(4));
    let mut paid = 0;
    rig.inbox[0].clear();
    while rig.engine.nodes(rig.now)[0].debts > 0 || !rig.inbox[0].is_empty() {
        assert!(rig.engine.output(node(0)).len() < 300 << 10);
        rig.collect();
        let size = rig.inbox[0].len();
        assert!(size > 0, "stuck with {} debts", rig.engine.nodes(rig.now)[0].debts);
        paid += size;
        rig.inbox[0].clear();
        rig.receive(0, &":1\r\n".repeat(size));
        rig.collect();
    }
    assert_eq!(paid, 65_536);
    assert_eq!(rig.engine.slots_in_use(), 0);
}

/// By a clock that is slow by one per cent, a TTL of 10 s lasts for 100 ms more.
#[test]
fn a_debt_is_paid_as_long_as_a_node_with_a_slow_clock_may_have_the_key() {
    for (after, is_paid) in [(TTL + 101 * MS, true), (TTL + 103 * MS, false)] {
        let mut rig = Rig::new(3);
        let lease = rig.lease("a");
        rig.lose(0);
        rig.engine.release(lease, rig.now);
        rig.answer_all(1..3, ":1\r\n");
        rig.now = rig.now + after;
        rig.connect(0);
        assert_eq!(rig.waiting(0) == ["DELIFEQ"], is_paid, "{after:?}");
    }
}

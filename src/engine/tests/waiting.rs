//! Retries, nodes on their way, nodes that do not answer, and times in which the caller was absent.

use super::waking::{subscribed, waiting};
use super::*;
use crate::retry::Retry;

fn retrying() -> LockOptions {
    let retry = Retry::every(100 * MS, 50 * MS).timeout(310 * MS);
    LockOptions::new(TTL).retry(retry).direct_wake(false)
}

#[test]
fn retries_use_a_new_token_behind_the_release_and_end_with_the_last_attempt_in_time() {
    let mut rig = Rig::new(1);
    rig.acquire_with("a", retrying());
    let mut tokens = std::collections::HashSet::new();
    for attempt in 1..=3 {
        rig.collect();
        assert_eq!(rig.inbox[0].len(), 1, "attempt {attempt}");
        assert!(tokens.insert(rig.inbox[0][0][2].clone()));
        rig.answer(0, "_\r\n");
        if attempt < 3 {
            assert!(rig.lock_result().is_none());
            rig.advance(99 * MS);
            assert_eq!(rig.waiting(0), Vec::<String>::new(), "no sooner than the delay");
            rig.advance(52 * MS);
        }
    }
    assert!(matches!(rig.refused(), LockError::Taken(_)), "no wait after the last attempt");
}

#[test]
fn a_client_never_conflicts_with_its_own_earlier_attempt() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", retrying());
    rig.answer(0, "+OK\r\n");
    rig.answer_all(1..3, "_\r\n");
    rig.advance(160 * MS);
    assert_eq!(rig.waiting(0), ["DELIFEQ", "SET"]);
    rig.answer(0, ":1\r\n");
    rig.answer_all(0..2, "+OK\r\n");
    rig.locked();
}

#[test]
fn a_wait_that_would_pass_the_deadline_is_not_begun() {
    let mut rig = Rig::new(1);
    let started = rig.now;
    rig.acquire_with(
        "a",
        LockOptions::new(TTL).retry(Retry::every(100 * MS, MS).timeout(150 * MS)),
    );
    rig.answer(0, "_\r\n");
    assert!(rig.lock_result().is_none());
    rig.advance(102 * MS);
    rig.answer(0, "_\r\n");
    assert!(matches!(rig.refused(), LockError::Taken(_)));
    assert!(rig.now <= started + 150 * MS);
}

#[test]
fn the_calls_own_deadline_ends_a_round() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", LockOptions::new(TTL).timeout(10 * MS));
    rig.advance(11 * MS);
    let error = rig.refused();
    assert_eq!(vote_of(&error, 0), Vote::Unknown(Cause::Timeout));
    assert_eq!(rig.waiting(0), ["SET", "DELIFEQ"]);
}

#[test]
fn an_attempt_waits_for_nodes_on_their_way_only_where_a_quorum_needs_them() {
    let mut rig = Rig::unconnected(3, |config| config);
    let op = rig.acquire("a");
    assert!(rig.lock_result().is_none());
    rig.now = rig.now + 200 * MS;
    rig.connect(0);
    let t0 = rig.now;
    assert_eq!(rig.waiting(0), ["SET"]);
    rig.now = rig.now + 100 * MS;
    rig.connect(1);
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.deadline(lease), Some(t0 + TTL - 102 * MS), "t0 is the first write");
    let _ = op;
    // With a quorum connected, the call does not wait for the third node.
    rig.acquire("b");
    rig.answer(0, "+OK\r\n");
    rig.answer(1, "_\r\n");
    assert!(matches!(rig.refused(), LockError::Taken(_)));
}

#[test]
fn a_node_that_was_still_coming_when_the_attempt_was_decided_is_given_that_as_its_cause() {
    let mut rig = Rig::unconnected(3, |config| config);
    rig.acquire("a");
    rig.connect(0);
    rig.connect(1);
    rig.answer_all(0..2, "_\r\n");
    let error = rig.refused();
    assert_eq!(vote_of(&error, 2), Vote::Failed(Cause::NotAsked));
    let text = error.to_string();
    assert!(text.ends_with("n:3: not asked: it was still connecting"), "{text}");
}

#[test]
fn nodes_that_do_not_come_are_waited_for_no_longer_than_the_connect_timeout() {
    let mut rig = Rig::unconnected(3, |config| config);
    rig.acquire("a");
    rig.advance(999 * MS);
    assert!(rig.lock_result().is_none());
    rig.advance(2 * MS);
    assert!(matches!(rig.refused(), LockError::NoQuorum(_)));
}

#[test]
fn nothing_is_written_for_an_attempt_that_has_failed() {
    let mut rig = Rig::unconnected(3, |config| config);
    let retry = Retry::every(100 * MS, Duration::ZERO);
    rig.acquire_with("a", LockOptions::new(TTL).retry(retry));
    rig.connect(0);
    rig.connect(1);
    rig.answer_all(0..2, "_\r\n");
    // The attempt has lost, and the call waits for the next one. Now the node comes for which it
    // had waited.
    rig.connect(2);
    assert_eq!(rig.waiting(2), Vec::<String>::new());
    rig.advance(101 * MS);
    assert_eq!(rig.waiting(2), ["SET"]);
}

#[test]
fn nothing_is_written_for_a_lease_that_was_released() {
    let mut rig = Rig::unconnected(3, |config| config);
    rig.acquire("a");
    rig.connect(0);
    rig.connect(1);
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    // The release has the place of the acquisition, which had waited for node 2.
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.connect(2);
    assert_eq!(rig.waiting(2), Vec::<String>::new());
}

#[test]
fn a_refused_connection_ends_the_wait_at_once() {
    let mut rig = Rig::unconnected(3, |config| config);
    rig.acquire("a");
    rig.lose(0);
    assert!(rig.lock_result().is_none());
    rig.lose(1);
    let error = rig.refused();
    assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    assert_eq!(vote_of(&error, 1), Vote::Failed(Cause::Closed));
}

#[test]
fn a_stalled_node_gets_no_new_sets_until_it_has_answered_what_it_owes() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    rig.advance(151 * MS);
    assert_eq!(rig.engine.nodes(rig.now)[2].state, NodeState::Stalled);
    rig.acquire("b");
    assert_eq!(rig.waiting(2), ["SET"], "only the first");
    rig.answer_all(0..2, "+OK\r\n");
    let second = rig.locked();
    rig.engine.release(second, rig.now);
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(2), ["SET", "DELIFEQ"]);
    rig.answer(2, "+OK\r\n");
    assert_eq!(rig.engine.nodes(rig.now)[2].state, NodeState::Admitted);
    rig.acquire("c");
    assert_eq!(rig.waiting(2), ["DELIFEQ", "SET"]);
}

#[test]
fn a_silent_node_costs_bounded_memory() {
    let mut rig = Rig::new(3);
    for index in 0..3000 {
        rig.acquire(&format!("k{index}"));
        rig.answer_all(0..2, "+OK\r\n");
        let lease = rig.locked();
        rig.engine.release(lease, rig.now);
        rig.answer_all(0..2, ":1\r\n");
        rig.now = rig.now + MS;
        rig.pass();
    }
    rig.collect();
    assert!(rig.inbox[2].len() < 400, "{}", rig.inbox[2].len());
    assert!(rig.engine.slots_in_use() < 400);
}

#[test]
fn time_in_which_nobody_read_is_held_against_no_node() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer(0, "+OK\r\n");
    // The caller went away for a second with answers in the sockets.
    rig.now = rig.now + Duration::from_secs(1);
    rig.answer(1, "+OK\r\n");
    rig.pass();
    rig.locked();
    assert_eq!(rig.engine.nodes(rig.now)[2].state, NodeState::Admitted);
}

/// Waiters look for a lost lock once in a number of round trips.
#[test]
fn an_answer_to_a_greeting_that_nobody_read_for_a_while_makes_no_node_seem_far() {
    let mut rig = Rig::unconnected(3, |config| config.direct_wake(true));
    for index in 0..3 {
        rig.until_wanted(index);
        rig.engine.handle_connected(node(index), rig.now);
    }
    rig.collect();
    rig.now = rig.now + 40 * MS;
    for index in 0..3 {
        let info = format!("run_id:{index}\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
        rig.answer(index, HELLO);
        for _ in 0..4 {
            rig.answer(index, &format!("${}\r\n{info}\r\n", info.len()));
        }
    }
    (0..3).for_each(|index| subscribed(&mut rig, index));
    assert!(rig.engine.locks.round_trip() >= 40 * MS);
    rig.acquire_with("a", waiting());
    rig.now = rig.now + MS;
    rig.answer_all(0..3, "_\r\n");
    // The attempt did not wait for the last node: its SET is released.
    rig.answer(2, ":0\r\n");
    assert_eq!(rig.engine.locks.round_trip(), MS);
}

#[test]
fn a_loop_that_sleeps_as_long_as_it_was_told_is_not_absent() {
    let mut rig = Rig::unconnected(3, |config| config);
    let begin = rig.now;
    // Nothing answers, and the loop comes back only at the times that the engine names.
    while rig.engine.nodes(rig.now)[0].state == NodeState::Connecting {
        rig.now = rig.engine.next_deadline().unwrap();
        rig.pass();
    }
    assert_eq!(rig.engine.nodes(rig.now)[0].cause, Cause::ConnectTimeout);
    assert_eq!(rig.now.saturating_since(begin), Duration::from_secs(1));
}

#[test]
fn a_call_after_a_long_sleep_is_judged_in_time() {
    let mut rig = Rig::new(3);
    rig.pass();
    rig.now = rig.now + Duration::from_secs(100);
    rig.acquire("a");
    rig.pass();
    let asked = rig.now;
    while rig.lock_result().is_none() {
        rig.now = rig.engine.next_deadline().unwrap().max(rig.now);
        rig.pass();
    }
    assert!(rig.now.saturating_since(asked) <= 51 * MS, "{:?}", rig.now);
}

#[test]
fn a_debt_that_cannot_be_paid_wakes_nobody() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    // Node 2 goes away with the SET unanswered: the client pays its release twice.
    rig.lose(2);
    rig.engine.release(lease, rig.now);
    rig.answer_all(0..2, ":1\r\n");
    rig.pass();
    rig.connect(2);
    rig.acquire("b");
    rig.answer_all(0..2, "+OK\r\n");
    rig.locked();
    rig.advance(120 * MS);
    rig.answer(2, ":0\r\n");
    // The node stalls over the SET before the second payment is due.
    rig.advance(100 * MS);
    assert_eq!(rig.engine.nodes(rig.now)[2].state, NodeState::Stalled);
    assert!(rig.engine.next_deadline().is_none_or(|at| at > rig.now));
}

#[test]
fn an_answer_nobody_asked_for_ends_the_connection() {
    let mut rig = Rig::new(3);
    rig.receive(2, "+OK\r\n");
    assert_eq!(rig.engine.poll_connection(), Some((node(2), Connection::Close)));
    assert_eq!(rig.engine.nodes(rig.now)[2].state, NodeState::Disconnected);
    assert_eq!(rig.engine.nodes(rig.now)[2].cause, Cause::Protocol);
}

#[test]
fn a_push_takes_no_answers_place() {
    let mut rig = Rig::new(1);
    rig.acquire("a");
    rig.receive(0, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n");
    assert!(rig.lock_result().is_none());
    rig.answer(0, "+OK\r\n");
    rig.locked();
}

#[test]
fn answers_in_pieces_are_put_together() {
    let mut rig = Rig::new(1);
    rig.acquire("a");
    rig.acquire("b");
    for byte in ["+", "O", "K", "\r", "\n+OK\r", "\n"] {
        assert!(rig.engine.in_flight() == 2);
        rig.receive(0, byte);
    }
    rig.locked();
    rig.locked();
}

#[test]
fn a_node_that_says_it_is_no_master_is_distrusted_for_the_guards_time() {
    let mut rig = Rig::with(1, |config| config.restart_guard(RestartGuard::On).max_ttl(TTL));
    rig.acquire("a");
    rig.answer(0, "-READONLY You can't write against a read only replica.\r\n");
    rig.refused();
    let NodeState::Quarantined(wait) = rig.engine.nodes(rig.now)[0].state else {
        panic!("not quarantined")
    };
    assert_eq!(wait, TTL + 102 * MS);
    // It is the same process after a blip: the quarantine goes on.
    rig.lose(0);
    rig.advance(60 * MS);
    rig.connect(0);
    assert!(matches!(rig.engine.nodes(rig.now)[0].state, NodeState::Quarantined(_)));
    rig.acquire("a");
    let error = rig.refused();
    assert!(error.to_string().contains("may vote in"), "{error}");
}

#[test]
fn a_grant_behind_the_word_of_a_replica_does_not_count() {
    let mut rig = Rig::with(1, |config| config.restart_guard(RestartGuard::On).max_ttl(TTL));
    rig.acquire("a");
    rig.acquire("b");
    rig.answer(0, "-READONLY You can't write against a read only replica.\r\n");
    rig.refused();
    // The node became a master again, without its keys, before it read the second SET.
    rig.answer(0, "+OK\r\n");
    assert_eq!(vote_of(&rig.refused(), 0), Vote::Unknown(Cause::Quarantined));
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

#[test]
fn an_extension_waits_for_nodes_that_are_just_coming_back() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    for index in 0..3 {
        rig.lose(index);
    }
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert!(rig.engine.poll_event(rig.now).is_none());
    rig.advance(100 * MS);
    for index in 0..2 {
        rig.connect(index);
        rig.answer(index, "+OK\r\n");
    }
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
}

#[test]
fn an_extension_gives_up_when_the_nodes_do_not_come_back() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    for index in 0..3 {
        rig.lose(index);
    }
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.pass();
    rig.lose(0);
    assert!(rig.engine.poll_event(rig.now).is_none());
    rig.lose(1);
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Extend { result: Err(ExtendError::NoQuorum(_)), .. })),
        "{event:?}"
    );
}

#[test]
fn an_unlock_waits_for_nodes_that_are_just_coming_back() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    for index in 0..3 {
        rig.lose(index);
    }
    rig.engine.unlock(lease, rig.now).unwrap();
    assert!(rig.engine.poll_event(rig.now).is_none());
    rig.advance(10 * MS);
    for index in 0..2 {
        rig.connect(index);
        rig.answer(index, ":1\r\n");
    }
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })),
        "{event:?}"
    );
}

#[test]
fn what_is_said_of_a_node_that_there_is_not_changes_nothing() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    for index in [3, 31] {
        let foreign = node(index);
        assert!(!rig.engine.wants_connection(foreign) && !rig.engine.is_connected(foreign));
        rig.engine.handle_connected(foreign, rig.now);
        rig.engine.handle_bytes(foreign, b"+OK\r\n", rig.now);
        rig.engine.handle_sent(foreign, 1);
        rig.engine.handle_lost(foreign, Cause::Closed, rig.now);
        assert!(rig.engine.output(foreign).is_empty());
    }
    rig.pass();
    rig.answer_all(0..2, "+OK\r\n");
    rig.locked();
}

#[test]
fn a_connection_that_was_given_up_has_nothing_more_to_say() {
    let mut rig = Rig::new(1);
    rig.receive(0, "HTTP/1.1 400 Bad Request\r\n");
    rig.receive(0, "Connection: close\r\n\r\n");
    rig.engine.handle_lost(node(0), Cause::Closed, rig.now);
    assert!(!rig.engine.is_connected(node(0)));
    assert_eq!(rig.engine.nodes(rig.now)[0].cause, Cause::Protocol);
}

/// The state of a known node that comes back as another process, this long after its last answer.
fn comes_back(after: Duration, uptime: u32) -> NodeState {
    let mut rig = Rig::with(1, |config| config.restart_guard(RestartGuard::On));
    rig.lose(0);
    rig.advance(after);
    rig.greet(
        0,
        HELLO,
        &format!("run_id:other\r\nconnected_slaves:0\r\nuptime_in_seconds:{uptime}\r\n"),
    );
    rig.engine.nodes(rig.now)[0].state
}

#[test]
fn a_node_that_restarted_long_ago_votes_at_once_though_it_is_greeted_only_now() {
    assert_eq!(comes_back(60_000 * MS, 50), NodeState::Admitted);
    // The node's own clock does not matter: the older process answered ten seconds ago.
    assert!(matches!(comes_back(10_000 * MS, 9_999), NodeState::Quarantined(_)));
}

#[test]
fn a_node_that_was_loading_at_first_waits_no_longer_than_its_age_demands() {
    let mut rig = Rig::with(1, |config| config.restart_guard(RestartGuard::On));
    rig.lose(0);
    rig.advance(60_000 * MS);
    let info = |uptime: u32, loading: u32| {
        format!(
            "run_id:other\r\nconnected_slaves:0\r\nuptime_in_seconds:{uptime}\r\nloading:{loading}\r\n"
        )
    };
    rig.greet(0, HELLO, &info(20, 1));
    assert_eq!(rig.engine.nodes(rig.now)[0].cause, Cause::Loading);
    // The client greets it again after a while, and in the end it has loaded its data.
    rig.lose(0);
    rig.advance(20_000 * MS);
    rig.greet(0, HELLO, &info(40, 0));
    assert_eq!(rig.engine.nodes(rig.now)[0].state, NodeState::Admitted);
}

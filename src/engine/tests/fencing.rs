//! Fenced locks: the questions to the nodes, the numbers that count as a fence, and those that do
//! not.

use super::*;
use crate::quorum::NodeMask;
use crate::round::Round;

const WALL: u64 = 1_795_000_000_000_000;

/// Nodes whose clocks are `skews` microseconds ahead of the client's.
fn rig_with(skews: &[i64]) -> Rig {
    rig_of(skews, |config| config)
}

fn rig_of(skews: &[i64], change: impl FnOnce(Config) -> Config) -> Rig {
    rig_of_lists(skews.len(), skews, change)
}

/// Of these nodes, so many are in the first list.
fn rig_of_lists(first: usize, skews: &[i64], change: impl FnOnce(Config) -> Config) -> Rig {
    let mut rig =
        Rig::of(first, skews.len(), |config| change(config.restart_guard(RestartGuard::On)));
    rig.engine.set_wall_clock(WALL, rig.now);
    for (index, skew) in skews.iter().enumerate() {
        let time = WALL.checked_add_signed(*skew).unwrap();
        let info = format!(
            "run_id:{index}\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\nserver_time_usec:{time}\r\nrole:master\r\n"
        );
        rig.greet(index, HELLO, &info);
    }
    rig
}

fn rig() -> Rig {
    rig_with(&[0; 5])
}

fn begin(rig: &mut Rig) -> Vec<String> {
    rig.acquire_with("k", LockOptions::new(TTL).fenced());
    rig.collect();
    rig.inbox[0].last().expect("the node was asked").clone()
}

/// The number in the last command to a node.
fn number(rig: &mut Rig, index: usize) -> u64 {
    rig.collect();
    let command = rig.inbox[index].last().expect("the node was asked");
    command[command.len() - 2].parse().expect("a number")
}

#[test]
fn a_fenced_lock_is_one_script_with_the_lock_and_the_counter_beside_it() {
    let mut rig = rig();
    let command = begin(&mut rig);
    assert_eq!(command[0], "EVAL");
    assert_eq!(command[2..5], ["2", "k", "k:fence"]);
    assert_eq!(command[5].len(), 40);
    assert_eq!(command[6..], ["10000", &WALL.to_string(), "86400000"]);
}

#[test]
fn a_quorum_of_accepts_gives_the_fence_in_one_round() {
    let mut rig = rig();
    begin(&mut rig);
    rig.answer_all(0..2, ":1\r\n");
    assert!(rig.lock_result().is_none());
    rig.answer(2, ":1\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.fence(lease), Some(WALL));
}

#[test]
pub(super) fn of_two_lists_a_quorum_of_each_accepts_a_fence() {
    let next = |config: Config| config.next_nodes(["n:3", "n:4", "n:5"]).unwrap();
    let mut rig = rig_of_lists(3, &[0; 5], next);
    begin(&mut rig);
    rig.answer_all(0..2, ":1\r\n");
    let counter = (WALL + 7).to_string();
    for index in 3..5 {
        rig.answer(index, &format!("${}\r\n{counter}\r\n", counter.len()));
    }
    assert!(rig.lock_result().is_none(), "the next list has not accepted the number");
    rig.answer(2, ":1\r\n");
    for index in 0..5 {
        assert_eq!(number(&mut rig, index), WALL + 8);
    }
    rig.answer_all(1..4, ":1\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.fence(lease), Some(WALL + 8));
}

#[test]
fn a_lock_without_a_fence_has_none() {
    let mut rig = rig();
    let lease = rig.lease("k");
    assert_eq!(rig.engine.fence(lease), None);
}

#[test]
fn where_the_number_is_refused_a_second_round_is_above_every_counter() {
    let mut rig = rig();
    begin(&mut rig);
    let counter = (WALL + 7).to_string();
    rig.answer(0, ":1\r\n");
    rig.answer(1, &format!("${}\r\n{counter}\r\n", counter.len()));
    rig.answer(2, ":1\r\n");
    assert!(rig.lock_result().is_none(), "three votes, and two accepts");
    for index in 0..3 {
        assert_eq!(number(&mut rig, index), WALL + 8);
    }
    rig.answer_all(0..3, ":1\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.fence(lease), Some(WALL + 8));
}

/// Its own counter would refuse the number: a round trip for nothing.
#[test]
pub(super) fn the_next_number_is_above_the_clients_own_last_fence() {
    let mut rig = rig_with(&[0; 3]);
    begin(&mut rig);
    rig.answer_all(0..2, &format!("$16\r\n{}\r\n", WALL + 1_000));
    rig.answer_all([2, 0, 1], ":1\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.fence(lease), Some(WALL + 1_001));
    rig.engine.release(lease, rig.now);
    rig.acquire_with("k", LockOptions::new(TTL).fenced());
    assert_eq!(number(&mut rig, 2), WALL + 1_002);
}

#[test]
fn a_late_grant_is_asked_for_the_second_number_as_well() {
    let mut rig = rig();
    begin(&mut rig);
    let counter = format!("$16\r\n{}\r\n", WALL + 1);
    rig.answer_all(0..3, &counter);
    rig.answer(3, &counter);
    rig.answer_all([0, 1, 3], ":1\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.fence(lease), Some(WALL + 2));
}

#[test]
fn accepts_of_two_numbers_make_no_fence() {
    let mut rig = rig_with(&[0; 3]);
    begin(&mut rig);
    rig.answer(0, ":1\r\n");
    rig.answer(1, &format!("$16\r\n{}\r\n", WALL + 1));
    // One accept of the first number, and one of the second. Then the holder was too slow.
    rig.answer(0, &format!("$16\r\n{}\r\n", WALL + 9));
    rig.answer(1, ":1\r\n");
    rig.answer(2, ":0\r\n");
    let error = rig.refused();
    assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    // The client releases every key that may be written.
    rig.collect();
    assert!(rig.inbox[..2].iter().all(|inbox| inbox.iter().any(|it| it[0] == "DELIFEQ")));
}

#[test]
fn a_node_that_lost_the_key_before_the_second_round_has_no_vote() {
    let mut rig = rig_with(&[0; 3]);
    begin(&mut rig);
    let counter = format!("$16\r\n{}\r\n", WALL + 1);
    rig.answer_all(0..2, &counter);
    rig.answer(2, ":0\r\n");
    rig.answer(0, ":0\r\n");
    assert!(matches!(rig.refused(), LockError::Taken(_)));
}

#[test]
fn a_second_round_without_answers_ends_with_its_time() {
    let mut rig = rig_with(&[0; 3]);
    begin(&mut rig);
    let counter = format!("$16\r\n{}\r\n", WALL + 1);
    rig.answer_all(0..3, &counter);
    rig.advance(100 * MS);
    let error = rig.refused();
    assert!(error.to_string().contains("did not accept the fence"), "{error}");
}

/// The call outlasts one round, but not two.
#[test]
fn a_call_ends_by_its_own_time_also_in_its_second_round() {
    let mut rig = rig_of(&[0; 3], |config| config.connect_timeout(50 * MS));
    rig.acquire_with("k", LockOptions::new(TTL).fenced().timeout(60 * MS));
    rig.advance(40 * MS);
    rig.answer_all(0..2, &format!("$16\r\n{}\r\n", WALL + 50_000));
    rig.advance(20 * MS);
    assert!(matches!(rig.refused(), LockError::NoQuorum(_)));
}

#[test]
fn an_unclear_answer_is_an_unknown_vote_and_is_released() {
    let mut rig = rig_with(&[0; 3]);
    begin(&mut rig);
    rig.answer(0, "-ERR something inside script: x, on @user_script:1.\r\n");
    rig.answer(1, "-FENCE counter\r\n");
    let error = rig.refused();
    assert!(error.to_string().contains("the key of the fences holds something else"), "{error}");
    rig.collect();
    assert!(rig.inbox.iter().all(|inbox| inbox.iter().any(|it| it[0] == "DELIFEQ")));
}

#[test]
fn a_node_without_scripts_says_so_and_votes_for_plain_locks() {
    let mut rig = rig_with(&[0; 3]);
    begin(&mut rig);
    rig.answer_all(0..2, "-NOPERM this user has no permissions to run the 'eval' command\r\n");
    let error = rig.refused();
    assert!(error.to_string().contains("runs no scripts"), "{error}");
    assert_eq!(rig.engine.voters().count(), 3);
}

#[test]
pub(super) fn a_client_whose_clock_is_off_gets_no_fence() {
    let mut rig = rig_with(&[0, 5_000_000, -5_000_000]);
    rig.acquire_with("k", LockOptions::new(TTL).fenced());
    let error = rig.refused();
    assert!(error.to_string().contains("its clock differs too much"), "{error}");
    assert_eq!((rig.waiting(1), rig.waiting(2)), (vec!["TIME".into()], vec!["TIME".into()]));
}

#[test]
fn a_clock_that_was_set_right_votes_at_the_next_attempt() {
    let mut rig = rig_with(&[0, 5_000_000, -5_000_000]);
    rig.acquire_with("k", LockOptions::new(TTL).fenced());
    rig.refused();
    rig.answer_all(1..3, "*2\r\n$10\r\n1795000000\r\n$1\r\n0\r\n");
    rig.acquire_with("other", LockOptions::new(TTL).fenced());
    rig.answer_all(1..3, ":1\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.fence(lease), Some(WALL));
}

/// The client asked no node while its clock was wrong.
#[test]
fn a_client_whose_clock_was_years_ahead_proposes_by_the_right_time_again() {
    let mut rig = rig();
    rig.engine.set_wall_clock(2 * WALL, rig.now);
    rig.acquire_with("other", LockOptions::new(TTL).fenced());
    rig.refused();
    rig.clear();
    rig.engine.set_wall_clock(WALL, rig.now);
    begin(&mut rig);
    assert_eq!(number(&mut rig, 0), WALL);
}

/// The client stands still for as long as its clock is behind, between its question and the answer.
#[test]
fn an_answer_that_lay_unread_does_not_set_a_clock_right() {
    const BEHIND: Duration = Duration::from_secs(5);
    let mut rig = rig_with(&[5_000_000; 3]);
    rig.acquire_with("k", LockOptions::new(TTL).fenced());
    rig.refused();
    rig.collect();
    rig.now = rig.now + BEHIND;
    rig.answer_all(0..3, "*2\r\n$10\r\n1795000005\r\n$1\r\n0\r\n");
    rig.acquire_with("k", LockOptions::new(TTL).fenced());
    let error = rig.refused();
    assert!(error.to_string().contains("its clock differs too much"), "{error}");
    // The same in a greeting.
    rig.lose(0);
    rig.until_wanted(0);
    rig.engine.handle_connected(node(0), rig.now);
    rig.clear();
    rig.now = rig.now + BEHIND;
    rig.receive(0, HELLO);
    let info = "run_id:0\r\nconnected_slaves:0\r\nserver_time_usec:1795000010000000\r\n";
    for _ in 0..4 {
        rig.receive(0, &format!("${}\r\n{info}\r\n", info.len()));
    }
    rig.acquire_with("k", LockOptions::new(TTL).fenced());
    let error = rig.refused();
    assert_eq!(vote_of(&error, 0), Vote::Failed(Cause::ClockOff));
}

#[test]
fn a_minority_of_clocks_that_are_off_does_not_matter() {
    let mut rig = rig_with(&[0, 900_000, 3_600_000_000]);
    begin(&mut rig);
    rig.answer_all(0..2, ":1\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.fence(lease), Some(WALL));
}

#[test]
fn clocks_are_asked_for_again_once_a_minute() {
    let mut rig = rig_with(&[0; 3]);
    rig.advance(Duration::from_secs(61));
    rig.acquire_with("k", LockOptions::new(TTL).fenced());
    assert_eq!(rig.waiting(0), ["TIME", "EVAL"]);
    // Before the answer this node's clock was set back by an hour.
    rig.answer(0, "*2\r\n$10\r\n1794996461\r\n$1\r\n0\r\n");
    rig.answer_all(1..3, "*2\r\n$10\r\n1795000061\r\n$1\r\n0\r\n");
    rig.answer_all(0..3, ":1\r\n");
    rig.locked();
    rig.acquire_with("other", LockOptions::new(TTL).fenced());
    assert_eq!(rig.waiting(0), ["TIME"], "it does not vote, and is asked again");
    assert_eq!(rig.waiting(1), ["EVAL"]);
}

#[test]
fn a_retry_proposes_a_higher_number() {
    let mut rig = rig_with(&[0; 3]);
    let retry = crate::retry::Retry::every(MS, Duration::ZERO);
    rig.acquire_with("k", LockOptions::new(TTL).fenced().retry(retry).direct_wake(false));
    let first = number(&mut rig, 0);
    rig.answer_all(0..3, ":0\r\n");
    rig.advance(2 * MS);
    assert!(number(&mut rig, 0) > first);
}

#[test]
fn an_extension_keeps_the_fence_and_a_release_leaves_the_counter() {
    let mut rig = rig_with(&[0; 3]);
    begin(&mut rig);
    rig.answer_all(0..3, ":1\r\n");
    let lease = rig.locked();
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..3, "+OK\r\n");
    assert_eq!(rig.engine.fence(lease), Some(WALL));
    rig.engine.poll_event(rig.now);
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.collect();
    assert_eq!(rig.inbox[0], [["DELIFEQ", "k", &rig.inbox[0][0][2].clone()]]);
    rig.answer_all(0..3, ":1\r\n");
    assert_eq!(rig.engine.fence(lease), None);
}

#[test]
fn an_adopted_lock_keeps_the_fence_that_it_came_with() {
    let mut rig = rig_with(&[0; 3]);
    let options = LockOptions::new(TTL).fence(17);
    rig.engine.adopt(b"k", b"token", &options, rig.now).unwrap();
    rig.answer_all(0..3, "+OK\r\n");
    let Some(Event::Adopt { result: Ok(lease), .. }) = rig.engine.poll_event(rig.now) else {
        panic!("not adopted")
    };
    assert_eq!(rig.engine.fence(lease), Some(17));
}

#[test]
fn the_counters_keys_are_no_locks() {
    let mut rig = rig();
    let options = LockOptions::new(TTL);
    let error = rig.engine.try_lock(b"k:fence", &options, rig.now).unwrap_err();
    assert!(matches!(error, LockError::ReservedKey), "{error}");
}

/// Without a prefix the keys are a counter of fences, a leader's claim, a gate, and slots of a lock.
#[test]
fn a_prefix_and_a_key_make_no_key_of_another_kind() {
    for (prefix, key) in [
        ("p:fen", "ce"),
        ("p:", "fence"),
        ("p:elec", "ted"),
        ("p:sl", "ot"),
        ("p:slot:", "7"),
        ("p:slot", ":62"),
    ] {
        let mut rig = Rig::with(3, |config| config.key_prefix(prefix));
        let joined = format!("{prefix}{key}");
        assert!(crate::command::is_reserved(joined.as_bytes()), "{joined}");
        let lock = rig.engine.try_lock(key.as_bytes(), &LockOptions::new(TTL), rig.now);
        assert!(matches!(lock, Err(LockError::ReservedKey)), "{joined}: {lock:?}");
    }
    let mut rig = Rig::with(3, |config| config.key_prefix("p:slot:"));
    for key in ["63", "7a", "x:slo", "a key that is longer than each of the suffixes: 7"] {
        rig.engine.try_lock(key.as_bytes(), &LockOptions::new(TTL), rig.now).unwrap();
    }
    rig.engine.try_lock(b"7", &LockOptions::new(TTL).slots(3), rig.now).unwrap();
}

/// A client would take the TTL of the lock for the age of a node that has just been promoted.
#[test]
fn the_markers_of_nodes_are_no_locks() {
    for (prefix, key) in
        [("", "redbolt:since:1"), ("redbolt:", "since:1"), ("p", "redbolt:since:x")]
    {
        let mut rig = Rig::with(3, |config| config.key_prefix(prefix));
        let options = LockOptions::new(TTL);
        let lock = rig.engine.try_lock(key.as_bytes(), &options, rig.now).unwrap_err();
        assert!(matches!(lock, LockError::ReservedKey), "{lock}");
        let adoption = rig.engine.adopt(key.as_bytes(), b"token", &options, rig.now).unwrap_err();
        assert!(matches!(adoption, ExtendError::InvalidName), "{adoption}");
    }
    let mut rig = Rig::new(3);
    rig.engine.try_lock(b"redbolt:x", &LockOptions::new(TTL), rig.now).unwrap();
}

#[test]
fn without_the_restart_guard_there_are_no_fences() {
    let mut rig = Rig::new(3);
    let options = LockOptions::new(TTL).fenced();
    let error = rig.engine.try_lock(b"k", &options, rig.now).unwrap_err();
    assert_eq!(error.to_string(), "no lock can be fenced: the restart guard is off");
}

/// A node says between its grant and its accept, or before both, that it is no master. It may then
/// forget the number.
#[test]
pub(super) fn an_accept_of_a_node_that_is_no_master_does_not_count() {
    const READONLY: &str = "-READONLY You can't write against a read only replica.\r\n";
    let counter = format!("$16\r\n{}\r\n", WALL + 1);
    for is_second_round in [false, true] {
        let mut rig = rig_with(&[0; 3]);
        if is_second_round {
            begin(&mut rig);
            rig.acquire("other");
            rig.answer_all(0..2, &counter);
        } else {
            rig.acquire("other");
            begin(&mut rig);
        }
        rig.answer(0, READONLY);
        rig.answer(1, "+OK\r\n");
        rig.answer_all(0..2, ":1\r\n");
        if is_second_round {
            rig.answer(2, ":0\r\n");
            rig.answer(2, "+OK\r\n");
        } else {
            rig.answer(2, "_\r\n");
            rig.answer(2, &counter);
        }
        while let Some(Event::Lock { result, .. }) = rig.engine.poll_event(rig.now) {
            let fence = result.ok().and_then(|lease| rig.engine.fence(lease));
            assert_eq!(fence, None, "one node has accepted it; second round: {is_second_round}");
        }
    }
}

/// A node that granted may have lost the key when the second round asks it.
#[test]
pub(super) fn a_grant_that_is_taken_back_is_made_up_for_by_another() {
    let mut round = Round::default();
    round.written = NodeMask::first(3);
    round.grant(node(0));
    round.withdraw(node(0));
    round.grant(node(1));
    assert!(!round.is_quorum_just_met(2), "one node holds the key");
    round.grant(node(2));
    assert!(round.is_quorum_just_met(2));
}

//! How a waiting call ends that gets no lock: by its own deadline, and with a true error.

use super::waking::{
    ALIEN, ANNOUNCE, OTHER, THIRD, WAKE, answer_each, denied, introduced, listening, message,
    message_for, rig, token_of, waiting,
};
use super::*;
use crate::retry::Retry;

/// All nodes answer the engine's questions: a client that receives messages holds the key for long.
fn serve(rig: &mut Rig, holder: &str) {
    rig.collect();
    for index in 0..rig.inbox.len() {
        while let Some(command) = rig.inbox[index].first() {
            let answer = match command[0].as_str() {
                "SET" => "_\r\n".to_owned(),
                "GET" => holder.to_owned(),
                "PUBLISH" => ":1\r\n".to_owned(),
                "DELIFEQ" => ":0\r\n".to_owned(),
                "EVAL" => introduced(holder, holder != ALIEN).replace(":9000", ":60000"),
                other => panic!("{other}"),
            };
            rig.answer(index, &answer);
            rig.collect();
        }
    }
}

/// The end of a call that waits for five seconds from `begun` on.
fn end_of(rig: &mut Rig, begun: Instant, holder: &str) -> LockError {
    while begun.until(rig.now) < 7_000 * MS {
        serve(rig, holder);
        if let Some(result) = rig.lock_result() {
            let took = begun.until(rig.now);
            assert!(took <= 5_010 * MS, "after {took:?}");
            return result.expect_err("it is held all the time");
        }
        rig.advance(5 * MS);
    }
    panic!("it never ends");
}

#[test]
fn a_wait_that_others_joined_before_it_was_denied_ends_at_its_own_deadline() {
    for holder in [ALIEN, &token_of(THIRD)] {
        let mut rig = rig(3);
        let begun = rig.now;
        rig.acquire_with("a", waiting());
        rig.collect();
        let token = crate::token::unhex(rig.inbox[0][0][2].as_bytes()).unwrap();
        let joined = message_for(&rig, &token, ANNOUNCE, OTHER.as_bytes(), &[]);
        rig.receive(1, &joined);
        assert!(matches!(end_of(&mut rig, begun, holder), LockError::Taken(_)), "{holder}");
    }
}

#[test]
fn a_call_that_tried_one_node_first_in_vain_is_told_that_the_lock_is_taken() {
    let mut rig = rig(5);
    let begun = rig.now;
    let gate = denied(&mut rig);
    answer_each(&mut rig, gate, &["_\r\n", "_\r\n"]);
    let error = end_of(&mut rig, begun, &token_of(OTHER));
    assert!(matches!(error, LockError::Taken(_)), "{error}");
    let votes: Vec<_> = (0..5).map(|index| vote_of(&error, index)).collect();
    assert_eq!(votes[gate], Vote::Denied);
    // Of the others the call knows what the first attempt heard: two were not waited for.
    let spared = |vote: &&Vote| **vote == Vote::Failed(Cause::Gated);
    assert_eq!(votes.iter().filter(spared).count(), 2, "{votes:?}");
    let denied = |vote: &&Vote| **vote == Vote::Denied;
    assert_eq!(votes.iter().filter(denied).count(), 3, "{votes:?}");
}

/// A call that polls every 20 ms until `end`, and was denied once by the first three of five nodes.
fn denied_once(end: Duration) -> Rig {
    let mut rig = Rig::new(5);
    let retry = Retry::every(20 * MS, Duration::ZERO).timeout(end);
    rig.acquire_with("a", LockOptions::new(TTL).retry(retry));
    rig.answer_all(0..3, "_\r\n");
    rig
}

#[test]
fn an_attempt_that_the_end_of_the_call_cuts_does_not_hide_who_denied_the_one_before() {
    let mut rig = denied_once(30 * MS);
    rig.advance(31 * MS);
    let error = rig.refused();
    assert_eq!(rig.waiting(0), ["SET", "DELIFEQ"], "the second attempt");
    assert!(matches!(error, LockError::Taken(_)), "{error}");
    for index in 0..5 {
        let denied = vote_of(&error, index) == Vote::Denied;
        assert_eq!(denied, index < 3, "{error}");
    }
}

#[test]
fn an_attempt_that_the_end_of_the_call_cuts_does_not_hide_that_the_one_before_came_too_late() {
    let mut rig = Rig::new(3);
    let retry = Retry::every(20 * MS, Duration::ZERO);
    // An earlier call in the same place came too late as well.
    for (end, is_late) in [(40 * MS, true), (10 * MS, false)] {
        let choosy = LockOptions::new(100 * MS).min_validity(90 * MS);
        rig.acquire_with("a", choosy.retry(retry.timeout(end)));
        if is_late {
            rig.now = rig.now + 8 * MS;
            rig.answer_all(0..3, "+OK\r\n");
            assert!(rig.lock_result().is_none(), "the call goes on");
        }
        rig.advance(end);
        let error = rig.refused();
        assert_eq!(matches!(error, LockError::Expired(_)), is_late, "{error}");
        assert_eq!(error.ballot().map(|votes| votes.granted()), Some(if is_late { 3 } else { 0 }));
        rig.clear();
    }
}

#[test]
fn nodes_that_had_their_time_and_did_not_answer_are_not_said_to_hold_the_lock() {
    let mut rig = denied_once(150 * MS);
    rig.advance(151 * MS);
    let error = rig.refused();
    assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    assert_eq!(vote_of(&error, 0), Vote::Unknown(Cause::Timeout));
}

/// This client has just woken `THIRD`, and another call of an earlier kind has ended in the place.
fn queued_behind(rig: &mut Rig) {
    let node = listening(rig);
    let wake = message(rig, WAKE, OTHER, &[THIRD]);
    rig.receive(node, &wake);
    rig.answer_all(0..3, "+OK\r\n");
    let lease = rig.locked();
    rig.acquire("b");
    rig.answer_all([0, 1], "-ERR no\r\n");
    let error = rig.refused();
    assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    rig.engine.release(lease, rig.now);
    rig.acquire_with("a", waiting());
}

#[test]
fn a_call_that_queued_and_asked_nobody_says_so_and_nothing_of_an_earlier_one() {
    let mut rig = rig(3);
    queued_behind(&mut rig);
    let begun = rig.now;
    let error = end_of(&mut rig, begun, &token_of(THIRD));
    assert!(matches!(error, LockError::Taken(_)), "{error}");
    for index in 0..3 {
        assert_eq!(vote_of(&error, index), Vote::Failed(Cause::Queued));
    }
    // The same happens if the caller did not drive until the call was over.
    let mut rig = self::rig(3);
    queued_behind(&mut rig);
    rig.now = rig.now + 6_000 * MS;
    rig.pass();
    let error = rig.refused();
    assert!(matches!(error, LockError::Taken(_)), "{error}");
}

#[test]
pub(super) fn a_node_that_left_since_one_was_tried_first_is_not_written_to() {
    let mut rig = rig(3);
    let gate = denied(&mut rig);
    rig.answer(gate, "_\r\n");
    let (gone, other) = ((gate + 1) % 3, (gate + 2) % 3);
    rig.lose(gone);
    rig.answer(gate, "+OK\r\n");
    assert_eq!(rig.waiting(other), ["SET"]);
    assert_eq!(rig.waiting(gone), Vec::<String>::new());
    rig.answer(other, "-ERR no\r\n");
    // With no open vote the attempt is over, and waits for no node.
    assert_eq!(rig.waiting(gate), ["DELIFEQ"]);
}

/// The remains of an ended client: another token at each node, and no client that receives
/// messages.
#[test]
fn nodes_that_hold_different_locks_are_not_asked_in_turn_at_the_speed_of_the_network() {
    let mut rig = rig(3);
    let begun = rig.now;
    rig.acquire_with("a", waiting());
    let holders = [OTHER, THIRD, "12345678"].map(token_of);
    let mut answered = 0;
    while begun.until(rig.now) < 1_000 * MS {
        // Answers come at once, and so do the requests that follow from them.
        while let Some(index) = busy(&mut rig) {
            let answer = match rig.inbox[index][0][0].as_str() {
                "SET" => "_\r\n".to_owned(),
                "GET" => holders[index].clone(),
                "EVAL" => introduced(&holders[index], false).replace(":9000", ":60000"),
                "DELIFEQ" => ":0\r\n".to_owned(),
                other => panic!("{other}"),
            };
            rig.answer(index, &answer);
            answered += 1;
            assert!(answered < 2_000, "after {:?}", begun.until(rig.now));
        }
        rig.advance(5 * MS);
    }
}

/// A node that has a request to answer.
fn busy(rig: &mut Rig) -> Option<usize> {
    rig.collect();
    rig.inbox.iter().position(|inbox| !inbox.is_empty())
}

/// The first attempt waited for two nodes on their way, and for the answer of one of them.
#[test]
fn an_attempt_has_its_own_time_though_the_one_before_waited_for_nodes() {
    let mut rig = Rig::unconnected(3, |config| config);
    rig.connect(0);
    let retry = Retry::every(40 * MS, Duration::ZERO);
    rig.acquire_with("a", LockOptions::new(TTL).retry(retry));
    rig.answer(0, "_\r\n");
    rig.connect(1);
    rig.answer(1, "_\r\n");
    rig.connect(2);
    rig.advance(42 * MS);
    assert_eq!(rig.waiting(1), ["SET"], "the second attempt");
    rig.advance(12 * MS);
    assert_eq!(rig.waiting(1), ["SET"], "the time of the first one is not its own");
    rig.answer_all([0, 1], "+OK\r\n");
    rig.locked();
}

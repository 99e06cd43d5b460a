//! A machine was suspended: the clock runs on meanwhile, nobody reads the sockets, and the nodes go
//! on. The engine judges each deadline at the first call after that.

use super::*;
use crate::error::UnlockError;
use crate::retry::Retry;

const HOUR: Duration = Duration::from_secs(3600);
const GONE: &str = ":0\r\n";

impl Rig {
    /// The machine sleeps for an hour; nothing runs.
    fn suspend(&mut self) {
        self.now = self.now + HOUR;
    }
}

#[test]
fn a_lease_is_over_and_can_only_be_released() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.suspend();
    assert_eq!(rig.engine.remaining_at(lease, rig.now), Duration::ZERO);
    let extension = rig.engine.extend(lease, TTL, rig.now);
    assert!(matches!(extension, Err(ExtendError::Expired)), "{extension:?}");
    rig.pass();
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer_all(0..3, GONE);
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Unlock { result: Err(UnlockError::NotHeld), .. })),
        "{event:?}"
    );
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn a_round_that_was_won_meanwhile_gives_no_lease() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.collect();
    rig.suspend();
    // The engine reads the sockets' bytes before it judges anything by time.
    rig.answer_all(0..2, "+OK\r\n");
    assert!(matches!(rig.refused(), LockError::Expired(_)));
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    assert_eq!(rig.waiting(2), ["SET", "DELIFEQ"]);
}

#[test]
fn a_grant_that_waited_to_be_taken_is_no_lease_any_more() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer_all(0..3, "+OK\r\n");
    assert!(rig.engine.has_event());
    rig.suspend();
    assert!(matches!(rig.refused(), LockError::Expired(_)));
    assert_eq!(rig.waiting(1), ["DELIFEQ"]);
}

#[test]
fn a_round_that_nobody_answered_ends_at_the_first_pass_and_blames_no_node() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", LockOptions::new(TTL).timeout(TTL));
    rig.collect();
    rig.suspend();
    rig.pass();
    assert_eq!(vote_of(&rig.refused(), 0), Vote::Unknown(Cause::Timeout));
    assert_eq!(rig.waiting(0), ["SET", "DELIFEQ"]);
    // The hour without an answer is no node's fault: the next lock may use the node.
    assert!(rig.engine.nodes(rig.now).iter().all(|node| node.state == NodeState::Admitted));
}

#[test]
fn an_extension_that_was_won_meanwhile_has_saved_nothing() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.collect();
    rig.suspend();
    rig.answer_all(0..3, "+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Extend { result: Err(ExtendError::Expired), .. })),
        "{event:?}"
    );
    assert_eq!(rig.engine.remaining_at(lease, rig.now), Duration::ZERO);
}

#[test]
fn a_call_whose_time_is_over_makes_no_further_attempt_and_says_what_the_last_one_found() {
    let mut rig = Rig::new(3);
    let retry = Retry::every(100 * MS, Duration::ZERO).timeout(TTL);
    rig.acquire_with("a", LockOptions::new(TTL).retry(retry));
    rig.answer_all(0..3, "_\r\n");
    assert!(rig.lock_result().is_none(), "it waits for its next attempt");
    rig.suspend();
    rig.pass();
    let error = rig.refused();
    assert!(matches!(error, LockError::Taken(_)), "{error}");
    assert_eq!(rig.waiting(0), Vec::<String>::new());
    assert_eq!(rig.waiting(2), ["DELIFEQ"], "of the attempt that was decided without its answer");
    rig.answer(2, GONE);
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn a_call_with_time_left_makes_its_next_attempt_at_once_with_a_fresh_deadline() {
    let mut rig = Rig::new(3);
    let retry = Retry::every(100 * MS, Duration::ZERO).timeout(2 * HOUR);
    rig.acquire_with("a", LockOptions::new(TTL).retry(retry));
    rig.answer_all(0..3, "_\r\n");
    rig.suspend();
    rig.pass();
    let t0 = rig.now;
    assert_eq!(rig.waiting(0), ["SET"]);
    rig.answer_all(0..3, "+OK\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.deadline(lease), Some(t0 + TTL - 102 * MS));
}

#[test]
fn a_quarantine_is_over_and_the_node_is_greeted_before_it_votes() {
    let mut rig = Rig::unconnected(1, |config| config.restart_guard(RestartGuard::On));
    rig.greet(0, HELLO, "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:3\r\n");
    let state = rig.engine.nodes(rig.now)[0].state;
    assert!(matches!(state, NodeState::Quarantined(_)), "{state:?}");
    rig.suspend();
    assert_eq!(rig.engine.nodes(rig.now)[0].state, NodeState::Quarantined(Duration::ZERO));
    assert!(rig.engine.voters().is_empty(), "time alone admits nobody");
    rig.pass();
    assert_eq!(rig.waiting(0)[0], "HELLO");
    rig.answer(0, HELLO);
    // The node has restarted meanwhile: its old incarnation ended more than G ago.
    let info = "run_id:1\r\nconnected_slaves:0\r\nuptime_in_seconds:3\r\n";
    for _ in 0..4 {
        rig.answer(0, &format!("${}\r\n{info}\r\n", info.len()));
    }
    let state = rig.engine.nodes(rig.now)[0].state;
    assert!(matches!(state, NodeState::Quarantined(_)), "{state:?}");
}

#[test]
fn a_debt_whose_key_has_ended_is_not_paid_and_one_whose_set_may_still_run_is() {
    let mut rig = Rig::new(3);
    let answered = rig.lease("a");
    rig.acquire("b");
    rig.answer_all(1..3, "+OK\r\n");
    let unanswered = rig.locked();
    rig.lose(0);
    rig.engine.release(answered, rig.now);
    rig.engine.release(unanswered, rig.now);
    for index in 1..3 {
        rig.answer(index, ":1\r\n");
        rig.answer(index, ":1\r\n");
    }
    assert_eq!(rig.engine.nodes(rig.now)[0].debts, 2);
    rig.suspend();
    rig.connect(0);
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    assert_eq!(rig.inbox[0][0][1], "b", "its SET may have run a moment ago");
    assert_eq!(rig.engine.slots_in_use(), 1);
    rig.answer(0, ":1\r\n");
    rig.suspend();
    rig.pass();
    assert_eq!(rig.waiting(0), ["DELIFEQ"], "once more, a node_timeout later or an hour");
    rig.answer(0, GONE);
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn a_connection_attempt_and_a_greeting_are_given_their_time_after_it() {
    let mut rig = Rig::unconnected(2, |config| config);
    rig.until_wanted(0);
    rig.until_wanted(1);
    rig.engine.handle_connected(node(1), rig.now);
    rig.suspend();
    rig.pass();
    assert!(rig.engine.wants_connection(node(0)) && rig.engine.is_connected(node(1)));
    rig.advance(1100 * MS);
    assert!(!rig.engine.is_connected(node(1)), "and no more than that");
}

#[test]
fn a_wait_for_a_reconnect_is_over() {
    let mut rig = Rig::new(1);
    rig.lose(0);
    for _ in 0..20 {
        rig.until_wanted(0);
        rig.engine.handle_lost(node(0), Cause::ConnectionRefused, rig.now);
    }
    rig.pass();
    assert!(!rig.engine.wants_connection(node(0)));
    rig.suspend();
    rig.pass();
    assert!(rig.engine.wants_connection(node(0)));
}

/// The denial comes before the first pass, and the release that follows from it is written then.
#[test]
fn a_node_that_owes_the_answer_to_a_release_of_then_counts_as_stalled_in_its_time() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.collect();
    rig.suspend();
    rig.answer_all(0..2, "_\r\n");
    rig.pass();
    assert!(matches!(rig.refused(), LockError::Taken(_)));
    rig.answer(2, "+OK\r\n");
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    rig.advance(200 * MS);
    assert_eq!(rig.engine.nodes(rig.now)[2].state, NodeState::Stalled);
}

/// The caller takes its lease before the first pass, and its claim is written then. Or a removal is
/// reported, and told to the client that drew the token. Node 2 owed an answer before.
#[test]
fn a_node_that_owes_the_answer_to_a_message_of_then_counts_as_stalled_in_its_time() {
    let day = 24 * HOUR;
    let mut rig = Rig::with(3, |config| config.max_ttl(day));
    rig.acquire_with("a", LockOptions::new(day).announced());
    rig.answer_all(0..2, "+OK\r\n");
    rig.suspend();
    rig.locked();
    assert_eq!(rig.waiting(0), ["SET"]);
    rig.advance(200 * MS);
    assert_eq!(rig.engine.nodes(rig.now)[0].state, NodeState::Stalled);

    let mut rig = Rig::with(3, |config| config.direct_wake(true));
    (0..3).for_each(|index| waking::subscribed(&mut rig, index));
    rig.engine.unlock_token(b"a", "00".repeat(20).as_bytes(), rig.now).unwrap();
    rig.answer_all(0..2, ":1\r\n");
    rig.suspend();
    assert!(rig.engine.poll_event(rig.now).is_some());
    let told = (0..2).find(|&index| rig.waiting(index) == ["PUBLISH"]).expect("a message");
    rig.advance(200 * MS);
    assert_eq!(rig.engine.nodes(rig.now)[told].state, NodeState::Stalled);
}

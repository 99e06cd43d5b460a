//! The finds of fuzzing the engine (`fuzz/`, target `engine_ops`) that no other test had.

use super::*;
use crate::retry::Retry;

/// A node answers a SET after its release was sent: its TTL begins only then.
#[test]
fn a_debt_for_a_set_that_ran_late_is_not_given_up_early() {
    let mut rig = Rig::new(1);
    let op = rig.acquire("a");
    rig.engine.cancel(op, rig.now);
    rig.advance(2 * TTL);
    rig.answer(0, "+OK\r\n");
    rig.lose(0);
    rig.pass();
    rig.connect(0);
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

/// A retry may have no delay; the attempts still end with the call.
#[test]
fn retries_without_a_delay_end() {
    let mut rig = Rig::unconnected(1, |config| config);
    rig.lose(0);
    rig.pass();
    rig.lose(0);
    let retry = Retry::every(Duration::ZERO, Duration::ZERO).timeout(20 * MS);
    rig.acquire_with("a", LockOptions::new(TTL).retry(retry));
    rig.advance(21 * MS);
    assert!(matches!(rig.refused(), LockError::NoQuorum(_)));
}

/// A wait may have any length.
#[test]
fn a_retry_after_for_ever_is_no_overflow() {
    let mut rig = Rig::unconnected(1, |config| config);
    rig.lose(0);
    let retry = Retry::every(Duration::MAX, Duration::MAX);
    rig.acquire_with("a", LockOptions::new(TTL).retry(retry));
    rig.advance(MS);
    assert!(rig.lock_result().is_none_or(|result| result.is_err()));
}

/// A connection opens after the engine has given it up and wants another: the engine does not take
/// it for the other.
#[test]
fn a_connection_that_opens_after_its_attempt_is_given_up_is_not_taken_for_the_next() {
    let mut rig = Rig::unconnected(1, |config| config);
    rig.until_wanted(0);
    for _ in 0..2 {
        // The attempt times out, and the next one is due.
        rig.now = rig.now + 1000 * MS;
        rig.engine.handle_timeout(rig.now);
    }
    assert!(rig.engine.wants_connection(node(0)));
    rig.engine.handle_connected(node(0), rig.now);
    assert!(rig.engine.nodes_with_output().is_empty(), "greets over the old connection");
    assert_eq!(rig.engine.poll_connection(), Some((node(0), Connection::Open)));
    rig.engine.handle_connected(node(0), rig.now);
    assert!(!rig.engine.nodes_with_output().is_empty());
}

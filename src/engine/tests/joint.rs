//! Two lists of nodes: while one replaces the other, a lock needs a quorum of each.

use super::sets::{serve, stores};
use super::*;
use crate::error::ConfigError;

/// Nodes 0 to 2 are to be replaced by nodes 2 to 4.
fn joint() -> Rig {
    Rig::joint(3, 5, |config| config.next_nodes(["n:3", "n:4", "n:5"]).unwrap())
}

/// The nodes that hold the key of another client deny it.
fn attempt(rig: &mut Rig, denied: &[usize]) -> Option<Result<LeaseId, LockError>> {
    rig.acquire("a");
    for index in 0..5 {
        rig.answer(index, if denied.contains(&index) { "_\r\n" } else { "+OK\r\n" });
    }
    rig.lock_result()
}

#[test]
fn a_lock_is_won_by_a_quorum_of_each_list_and_of_no_other_nodes() {
    // Node 2 is in both lists.
    for (denied, is_won) in [
        (&[][..], true),
        (&[0], true),
        (&[2], true),
        (&[0, 4], true),
        (&[0, 1], false),
        (&[3, 4], false),
        (&[0, 2], false),
        (&[2, 4], false),
        (&[0, 1, 3], false),
    ] {
        let mut rig = joint();
        let result = attempt(&mut rig, denied).expect("all have answered");
        assert_eq!(result.is_ok(), is_won, "{denied:?}: {result:?}");
    }
}

#[test]
fn an_attempt_goes_on_until_both_lists_have_decided() {
    let mut rig = joint();
    rig.acquire("a");
    rig.answer_all([0, 1, 3], "+OK\r\n");
    assert!(rig.lock_result().is_none(), "of the next list one node has granted");
    rig.answer(4, "+OK\r\n");
    rig.locked();
    // Without the other list it may fail at once.
    let mut rig = joint();
    rig.acquire("a");
    rig.answer_all([3, 4], "_\r\n");
    assert!(matches!(rig.refused(), LockError::Taken(_)));
}

#[test]
fn an_extension_and_a_release_need_a_quorum_of_each_list() {
    let mut rig = joint();
    let lease = attempt(&mut rig, &[]).unwrap().unwrap();
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all([0, 1, 3], "+OK\r\n");
    assert!(rig.engine.poll_event(rig.now).is_none());
    rig.answer(2, "+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
    rig.answer(4, "+OK\r\n");
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer_all([0, 1, 2], ":1\r\n");
    assert!(rig.engine.poll_event(rig.now).is_none());
    rig.answer(3, ":1\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })));
}

#[test]
fn a_lease_is_lost_when_no_quorum_of_one_list_holds_it() {
    let (mut rig, mut stores) = (joint(), stores(5));
    rig.acquire_with("a", LockOptions::new(TTL).keep_alive());
    serve(&mut rig, &mut stores);
    let lease = rig.locked();
    stores[3].clear();
    stores[4].clear();
    rig.advance(TTL / 2);
    serve(&mut rig, &mut stores);
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Lost { .. })), "{event:?}");
    assert!(rig.engine.is_lost(lease));
}

#[test]
pub(super) fn no_lock_is_handed_over_between_clients_that_may_have_other_lists() {
    let config = Config::new(["n:1", "n:2"]).unwrap().transfers_in_row(16);
    let in_row = |config: Config| {
        let engine = Engine::new(&config, [7; 32], Instant::default()).unwrap();
        engine.locks.settings.transfers_in_row
    };
    assert_eq!(in_row(config.clone()), 16);
    assert_eq!(in_row(config.next_nodes(["n:1", "n:3"]).unwrap()), 0);
}

#[test]
fn lists_that_cannot_be_are_refused() {
    let old = || Config::new(["n:1", "n:2", "n:3"]).unwrap();
    let error = |next: &[&str]| old().next_nodes(next).unwrap_err();
    assert!(matches!(error(&[]), ConfigError::NoNodes));
    assert!(matches!(error(&["n:4", "n:4"]), ConfigError::DuplicateNode { .. }));
    let many: Vec<String> = (2..=33).map(|port| format!("n:{port}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(matches!(error(&many), ConfigError::TooManyNodes { nodes: 33 }));
    // The quorum holds for each list.
    let all = old().quorum(crate::quorum::Quorum::AtLeast(3)).next_nodes(["n:4"]).unwrap();
    assert!(Engine::new(&all, [7; 32], Instant::default()).is_err());
    let one = old().next_nodes(["n:4"]).unwrap();
    assert!(Engine::new(&one, [7; 32], Instant::default()).is_ok());
}

//! A leader's claim beside its lock: where and when the client writes it, and that nothing depends
//! on it.

use super::*;

const CLAIM: &str = "a:elected";

fn announced() -> LockOptions {
    LockOptions::new(TTL).announced()
}

/// The claims that the client has sent to a node without an answer, with their TTL.
fn claims(rig: &mut Rig, index: usize) -> Vec<(String, String)> {
    rig.collect();
    let is_claim = |words: &&Vec<String>| words[0] == "SET" && words[1] == CLAIM;
    rig.inbox[index]
        .iter()
        .filter(is_claim)
        .map(|words| (words[2].clone(), words[4].clone()))
        .collect()
}

#[test]
fn a_claim_goes_to_each_node_that_has_said_that_it_holds_the_token_and_to_no_other() {
    let mut rig = Rig::new(3);
    rig.engine.set_wall_clock(1_763_866_800_123_456, rig.now);
    rig.acquire_with("a", announced());
    assert!((0..3).all(|index| claims(&mut rig, index).is_empty()), "nobody leads yet");
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    let token = rig.engine.lease_name(lease).unwrap().1.to_string();
    for index in 0..2 {
        let [(value, ttl)] = &claims(&mut rig, index)[..] else { panic!("one claim") };
        assert_eq!(ttl, "10000");
        assert!(value.starts_with("1763866800123 redbolt:1:"), "{value}");
        assert!(value.ends_with(&format!(" {token}")), "{value}");
    }
    assert!(claims(&mut rig, 2).is_empty(), "it has not answered");
    rig.answer(2, "+OK\r\n");
    assert_eq!(claims(&mut rig, 2).len(), 1, "a late vote");
    let first = claims(&mut rig, 0);
    rig.answer_all(0..3, "+OK\r\n");
    // The client writes it again with each extension, where the node still has the token.
    rig.advance(TTL / 3);
    assert!((0..3).all(|index| claims(&mut rig, index).is_empty()), "not before it is known");
    rig.answer_all(0..2, "+OK\r\n");
    rig.answer(2, "$-1\r\n");
    assert_eq!(claims(&mut rig, 0), first, "the same term");
    assert_eq!((claims(&mut rig, 1).len(), claims(&mut rig, 2).len()), (1, 0));
}

#[test]
fn whatever_a_node_answers_to_a_claim_the_lease_is_as_it_was() {
    for answer in ["+OK\r\n", "-NOPERM no\r\n", "-OOM no\r\n", "$-1\r\n", ":7\r\n"] {
        let mut rig = Rig::new(3);
        rig.acquire_with("a", announced());
        rig.answer_all(0..3, "+OK\r\n");
        let lease = rig.locked();
        let deadline = rig.engine.deadline(lease);
        assert!((0..3).all(|index| claims(&mut rig, index).len() == 1));
        rig.answer_all(0..3, answer);
        assert!(rig.engine.poll_event(rig.now).is_none(), "{answer}");
        assert_eq!(rig.engine.deadline(lease), deadline, "{answer}");
        assert_eq!(rig.engine.voters().count(), 3, "{answer}");
    }
}

#[test]
pub(super) fn a_release_deletes_the_claim_behind_the_lock_and_only_where_it_is_the_same() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", announced());
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    let value = claims(&mut rig, 0)[0].0.clone();
    rig.answer_all(0..2, "+OK\r\n");
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.collect();
    for index in 0..2 {
        let words: Vec<_> = rig.inbox[index].iter().map(|words| (&*words[0], &*words[1])).collect();
        assert_eq!(words, [("DELIFEQ", "a"), ("DELIFEQ", CLAIM)]);
        assert_eq!(rig.inbox[index][1][2], value);
    }
    let last: Vec<_> = rig.inbox[2].iter().map(|words| &*words[1]).collect();
    assert_eq!(last, ["a", "a"], "no claim was written there");
}

#[test]
fn no_claim_goes_to_a_node_whose_connection_was_lost_behind_its_vote() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", announced());
    rig.answer_all(0..3, "+OK\r\n");
    rig.lose(2);
    rig.locked();
    assert_eq!(claims(&mut rig, 0).len(), 1);
    assert!(claims(&mut rig, 2).is_empty(), "before its greeting");
}

#[test]
fn no_claim_is_written_for_a_term_that_is_over() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", announced());
    rig.answer_all(0..2, "+OK\r\n");
    rig.locked();
    rig.answer_all(0..2, "+OK\r\n");
    // The client stood still, and reads the last vote before anything else.
    rig.now = rig.now + TTL * 2;
    rig.answer(2, "+OK\r\n");
    assert!(claims(&mut rig, 2).is_empty(), "another may lead by now");
}

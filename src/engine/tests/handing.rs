//! The bounds of a hand-over, and the remains when it goes wrong: each test plays the nodes, and
//! the other clients.

use super::transfers::{
    announce_from, announce_with, channel, given_up, handed_over, offered, offering, rig, settle,
    token_bytes, told, transfer, transfer_before_other, waited_for, with_ttl,
};
use super::untimely::{confirmed, subscribed_again};
use super::waking::{OTHER, OTHERS_CHANNEL, THIRD, WAKE, published};
use super::*;

/// The first command of a release for which `OTHER` waits. The holder last heard of `OTHER` this
/// long ago; `OTHER` offers this TTL.
fn released_for(age_ms: u16, ttl_ms: u32) -> String {
    let mut rig = rig(3);
    let lease = rig.lease("a");
    let token = token_bytes(&rig, lease);
    announce_with(&mut rig, &token, (age_ms, ttl_ms));
    rig.engine.release(lease, rig.now);
    rig.waiting(0).remove(0)
}

/// `max_ttl` is 30 s. No node would remember for longer that it granted.
#[test]
pub(super) fn a_lock_is_handed_over_with_no_more_than_the_greatest_ttl() {
    assert_eq!(released_for(1, 30_000), "EVAL");
    assert_eq!(released_for(1, 30_001), "DELIFEQ");
}

/// The lease counts from the offer, and the waiter would have too little of it left.
#[test]
pub(super) fn a_waiter_that_was_silent_for_a_quarter_of_its_ttl_is_woken() {
    assert_eq!(released_for(249, 1_000), "EVAL");
    assert_eq!(released_for(251, 1_000), "DELIFEQ");
}

/// It may be over: its place would cost the others a round trip, or its TTL.
#[test]
fn a_holder_hands_its_lock_to_the_first_waiter_that_was_not_silent() {
    for (silent_ms, heir) in [(490, OTHER), (501, THIRD)] {
        let mut rig = rig(3);
        let lease = rig.lease("a");
        let token = token_bytes(&rig, lease);
        announce_from(&mut rig, OTHER.as_bytes(), &token, silent_ms);
        announce_from(&mut rig, THIRD.as_bytes(), &token, 1);
        rig.engine.release(lease, rig.now);
        assert_eq!(rig.waiting(0)[0], "EVAL");
        let script = rig.inbox[0][0].join(" ");
        let digits: String = heir.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(script.contains(&digits), "silent for {silent_ms} ms: {script:?}");
    }
}

/// Forged, or written by a holder that shortens it: the deadline counts with the offered TTL.
#[test]
pub(super) fn a_transfer_with_another_ttl_is_no_vote() {
    let mut rig = rig(3);
    offering(&mut rig);
    told(&mut rig, 0);
    let mut shorter = transfer(&rig, &offered(&rig), 1);
    with_ttl(&mut shorter, 9_999);
    rig.receive(1, &shorter);
    assert!(rig.lock_result().is_none(), "one node has voted");
    told(&mut rig, 2);
    rig.locked();
}

/// The delete of the token is on its way to the node, or has run there.
#[test]
pub(super) fn a_late_word_of_a_node_without_a_vote_is_none() {
    let mut rig = rig(3);
    offering(&mut rig);
    rig.lose(1);
    rig.connect(1);
    told(&mut rig, 0);
    told(&mut rig, 2);
    let lease = rig.locked();
    let late = transfer(&rig, &token_bytes(&rig, lease), 1);
    rig.receive(1, &late);
    assert_eq!(rig.engine.votes(lease).count(), 2);
}

#[test]
pub(super) fn the_list_that_comes_with_a_late_word_goes_with_the_lock() {
    let (mut rig, lease, _) = handed_over();
    let late = transfer_before_other(&rig, &token_bytes(&rig, lease), 2);
    rig.receive(2, &late);
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0), ["EVAL"], "it is handed over");
}

#[test]
pub(super) fn the_waiters_behind_a_lock_that_was_handed_over_in_vain_get_their_turn() {
    let mut rig = rig(3);
    let token = given_up(&mut rig);
    settle(&mut rig);
    let message = transfer_before_other(&rig, &token, 1);
    rig.receive(1, &message);
    let node = (0..3).find(|&index| rig.waiting(index).contains(&"PUBLISH".into()));
    assert_eq!(published(&mut rig, node.expect("a wake")), (OTHERS_CHANNEL.to_owned(), WAKE));
}

/// Another holder that knows the offer may hand over to it, unheard, while the node is away.
#[test]
pub(super) fn what_is_owed_for_a_part_of_a_lock_is_owed_for_longer_than_its_ttl() {
    let mut rig = rig(3);
    offering(&mut rig);
    told(&mut rig, 0);
    rig.lose(0);
    rig.advance(60 * MS);
    rig.engine.cancel_all(rig.now);
    rig.refused();
    rig.advance(TTL + TTL);
    rig.connect(0);
    assert!(rig.waiting(0).contains(&"DELIFEQ".into()), "{:?}", rig.waiting(0));
}

/// The client may not have read the nodes' messages.
#[test]
pub(super) fn a_client_that_ends_leaves_the_channel_and_deletes_what_came() {
    let mut rig = rig(3);
    given_up(&mut rig);
    rig.clear();
    rig.engine.begin_close();
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["UNSUBSCRIBE", "DELIFEQ"], "node {index}");
    }
}

/// The script of the last holder may run between the release and the client's leaving.
#[test]
pub(super) fn a_client_that_ends_deletes_again_where_a_script_may_run_behind_its_release() {
    let (mut rig, lease, _) = handed_over();
    rig.engine.release(lease, rig.now);
    rig.answer_all(0..2, ":1\r\n");
    rig.engine.begin_close();
    for index in 0..2 {
        assert_eq!(rig.waiting(index), ["UNSUBSCRIBE", "DELIFEQ"]);
    }
    assert_eq!(rig.waiting(2), ["DELIFEQ", "UNSUBSCRIBE", "DELIFEQ"]);
    rig.answer(2, ":0\r\n");
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["UNSUBSCRIBE", "DELIFEQ"]);
        let channel = rig.inbox[index][0][1].clone();
        rig.answer(index, &confirmed(&channel));
        rig.answer(index, ":0\r\n");
    }
    assert_eq!(rig.engine.releases_owed(rig.now), 0, "no script can run any more");
}

/// The script may not have run.
#[test]
pub(super) fn a_delete_is_owed_where_the_connection_ends_before_the_script_is_answered() {
    let mut rig = rig(3);
    let lease = waited_for(&mut rig, 1);
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(1), ["EVAL"]);
    rig.lose(1);
    rig.connect(1);
    assert_eq!(rig.waiting(1).last().map(String::as_str), Some("DELIFEQ"));
}

/// The script of the last holder may run at a node that has not told of it, and cannot tell any
/// more.
#[test]
pub(super) fn a_release_is_repeated_where_a_script_may_run_unheard_behind_it() {
    let (mut rig, lease, _) = handed_over();
    rig.lose(2);
    rig.engine.release(lease, rig.now);
    rig.connect(2);
    assert_eq!(rig.waiting(2).last().map(String::as_str), Some("DELIFEQ"));
    subscribed_again(&mut rig, 2);
    rig.answer(2, ":0\r\n");
    rig.advance(200 * MS);
    assert_eq!(rig.waiting(2), ["DELIFEQ"], "once more");
}

/// A lock that was taken over. Its extension gives the token to node 2, which lacks it, and the
/// connection ends before the node answers. No message will tell that the SET ran.
fn with_a_lost_set() -> (Rig, LeaseId, Vec<u8>) {
    let (mut rig, lease, late) = handed_over();
    reconnect(&mut rig);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(2), ["SET"]);
    rig.answer(2, "_\r\n");
    rig.collect();
    assert_eq!(rig.inbox[2][0][3], "NX", "it gets the token again");
    reconnect(&mut rig);
    (rig, lease, late)
}

/// Node 2 has another connection.
fn reconnect(rig: &mut Rig) {
    rig.lose(2);
    rig.connect(2);
    subscribed_again(rig, 2);
}

#[test]
fn a_release_is_repeated_where_a_set_of_an_extension_may_run_behind_it() {
    let (mut rig, lease, _) = with_a_lost_set();
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    rig.answer(2, ":0\r\n");
    rig.advance(200 * MS);
    assert_eq!(rig.waiting(2), ["DELIFEQ"], "once more");
}

#[test]
fn a_client_that_ends_repeats_a_release_behind_which_a_set_of_an_extension_may_run() {
    let (mut rig, lease, _) = with_a_lost_set();
    rig.engine.release(lease, rig.now);
    rig.engine.begin_close();
    assert_eq!(rig.waiting(2), ["DELIFEQ", "UNSUBSCRIBE", "DELIFEQ"]);
    let name = channel(&rig);
    let left = format!(">3\r\n$11\r\nunsubscribe\r\n${}\r\n{name}\r\n:0\r\n", name.len());
    for answer in [":0\r\n", &left, ":0\r\n"] {
        rig.answer(2, answer);
    }
    rig.advance(200 * MS);
    assert!(rig.waiting(2).contains(&"DELIFEQ".to_owned()), "once more");
}

/// A node tells late that it has run the script. The SET of an extension may run there later still.
#[test]
fn a_late_word_does_not_settle_a_set_of_an_extension() {
    for is_released in [false, true] {
        let (mut rig, lease, late) = with_a_lost_set();
        if is_released {
            rig.engine.release(lease, rig.now);
        }
        rig.receive(2, &late);
        rig.engine.release(lease, rig.now);
        rig.answer(2, ":1\r\n");
        rig.advance(200 * MS);
        assert_eq!(rig.waiting(2), ["DELIFEQ"], "once more, released before: {is_released}");
    }
}

/// The client owed the node a delete of the offer. It has written none, and owes none for a lease.
#[test]
fn a_node_that_was_away_when_a_lock_was_taken_over_gets_the_token_by_an_extension() {
    let mut rig = rig(3);
    offering(&mut rig);
    rig.lose(2);
    told(&mut rig, 0);
    told(&mut rig, 1);
    let lease = rig.locked();
    rig.connect(2);
    subscribed_again(&mut rig, 2);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    for answer in ["_\r\n", "+OK\r\n"] {
        assert_eq!(rig.waiting(2), ["SET"]);
        rig.answer(2, answer);
    }
    assert_eq!(rig.engine.votes(lease).count(), 3);
}

/// A node without a vote tells of the offer, and gets a delete. The node answers the delete when the
/// client extends the lease already.
#[test]
fn the_answer_to_the_delete_of_an_offer_extends_no_lease() {
    let mut rig = rig(3);
    offering(&mut rig);
    reconnect(&mut rig);
    rig.answer(2, ":0\r\n");
    told(&mut rig, 2);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    told(&mut rig, 0);
    told(&mut rig, 1);
    let lease = rig.locked();
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!((rig.waiting(0), rig.waiting(2)), (vec!["SET".into()], vec!["DELIFEQ".into()]));
    rig.answer(2, ":1\r\n");
    rig.answer(0, "+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(event.is_none(), "one node has extended it: {event:?}");
    rig.answer(1, "+OK\r\n");
    assert!(matches!(rig.engine.poll_event(rig.now), Some(Event::Extend { result: Ok(()), .. })));
}

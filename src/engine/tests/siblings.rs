//! Several calls of one client for one key: they wait like calls of several clients.

use super::waking::{
    ANNOUNCE, GIVE_UP, OTHER, OTHERS_CHANNEL, THIRD, THIRDS_CHANNEL, WAKE, deny, introduced,
    message_for, own_waiter, published, rig, token_of, waiting,
};
use super::*;

/// One more call that waits behind `OTHER`, and the node by which it announces itself.
fn one_more(rig: &mut Rig) -> (OpId, usize) {
    let op = rig.acquire_with("a", waiting());
    let node = deny(rig);
    rig.answer(node, &introduced(&token_of(OTHER), true));
    assert_eq!(rig.waiting(node), Vec::<String>::new());
    (op, node)
}

/// The id of this client's call of that number, as a word of a list.
fn own(rig: &Rig, call: u32) -> String {
    String::from_utf8_lossy(&own_waiter(rig, call)).into_owned()
}

/// `sender` wakes the call with this number; the listed calls of this client wait behind it.
fn wake(rig: &Rig, call: u32, behind: &[u32]) -> Vec<u8> {
    let behind: Vec<_> = behind.iter().map(|&call| own_waiter(rig, call)).collect();
    let behind: Vec<_> = behind.iter().map(|id| &id[..]).collect();
    message_for(rig, &own_waiter(rig, call), WAKE, OTHER.as_bytes(), &behind)
}

/// The lock, held by a call that did not wait, and its token.
fn held(rig: &mut Rig) -> (LeaseId, Vec<u8>) {
    let lease = rig.lease("a");
    let token = rig.engine.lease_name(lease).unwrap().1.as_bytes().to_vec();
    (lease, token)
}

#[test]
fn the_calls_of_one_client_have_their_turns_in_order_and_no_time_between_them() {
    const CALLS: u32 = 5;
    let mut rig = rig(3);
    let calls: Vec<_> = (1..=CALLS).map(|_| one_more(&mut rig)).collect();
    let behind: Vec<_> = (2..=CALLS).collect();
    let first = wake(&rig, 1, &behind);
    rig.receive(calls[0].1, &first);
    let begun = rig.now;
    for (op, _) in calls {
        for index in 0..3 {
            assert_eq!(rig.waiting(index).last().unwrap(), "SET", "its turn has come");
        }
        rig.answer_all(0..3, "+OK\r\n");
        let event = rig.engine.poll_event(rig.now);
        let Some(Event::Lock { op: won, result: Ok(lease) }) = event else { panic!("{event:?}") };
        assert_eq!(won, op, "first come, first served");
        rig.engine.release(lease, rig.now);
        rig.answer_all(0..3, ":1\r\n");
    }
    assert_eq!(begun, rig.now, "nothing was waited for");
    assert_eq!(rig.engine.in_flight(), 0);
}

#[test]
fn a_call_that_waits_for_another_of_its_client_says_so_as_to_any_holder() {
    let mut rig = rig(3);
    let (lease, token) = held(&mut rig);
    rig.acquire_with("a", waiting());
    let node = deny(&mut rig);
    let holder = format!("$40\r\n{}\r\n", str::from_utf8(&token).unwrap());
    let token = crate::token::unhex(&token).unwrap();
    let heard = message_for(&rig, &token, ANNOUNCE, &own_waiter(&rig, 1), &[]);
    rig.receive(node, &heard);
    rig.answer(node, &introduced(&holder, true));
    rig.engine.release(lease, rig.now);
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["DELIFEQ", "SET"], "behind the release");
    }
}

#[test]
fn a_call_has_its_turn_behind_the_clients_that_came_before_it() {
    let mut rig = rig(3);
    let (_, node) = one_more(&mut rig);
    one_more(&mut rig);
    let behind = [THIRD.as_bytes(), &own_waiter(&rig, 2)];
    let first = message_for(&rig, &own_waiter(&rig, 1), WAKE, OTHER.as_bytes(), &behind);
    rig.receive(node, &first);
    rig.answer_all(0..3, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.release(lease, rig.now);
    assert_eq!(published(&mut rig, node), (THIRDS_CHANNEL.to_owned(), WAKE));
    let text = rig.inbox[node].last().unwrap()[2].clone();
    assert!(text.contains(&own(&rig, 2)), "it carries the rest");
}

#[test]
fn a_call_that_gave_up_is_passed_over() {
    let mut rig = rig(3);
    let (_, node) = one_more(&mut rig);
    let (second, _) = one_more(&mut rig);
    let (third, _) = one_more(&mut rig);
    let first = wake(&rig, 1, &[2, 3]);
    rig.receive(node, &first);
    rig.answer_all(0..3, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.cancel(second, rig.now);
    assert!(matches!(rig.refused(), LockError::Cancelled));
    rig.collect();
    rig.inbox[node].clear();
    rig.receive(node, ":1\r\n");
    rig.engine.release(lease, rig.now);
    rig.answer_all(0..3, ":1\r\n");
    rig.answer_all(0..3, "+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Lock { op, result: Ok(_) }) if op == third), "{event:?}");
}

/// Each call announces itself alone and is named in messages: a message about one call tells
/// nothing about another.
#[test]
fn a_call_that_gives_up_says_so_of_itself_alone() {
    let mut rig = rig(3);
    let (_, node) = one_more(&mut rig);
    let (second, _) = one_more(&mut rig);
    rig.engine.cancel(second, rig.now);
    assert!(matches!(rig.refused(), LockError::Cancelled));
    assert_eq!(published(&mut rig, node), (OTHERS_CHANNEL.to_owned(), GIVE_UP));
    let text = rig.inbox[node].last().unwrap()[2].clone();
    assert!(text.contains(&own(&rig, 2)) && !text.contains(&own(&rig, 1)));
    assert_eq!(rig.engine.in_flight(), 1, "the other waits");
}

/// A holder of the lock has heard of two calls of `OTHER`. The message that the first has stopped
/// waiting may come by another node than the message about the second, and behind it.
#[test]
pub(super) fn a_word_of_an_earlier_call_strikes_no_later_one_off() {
    let mut rig = rig(3);
    let (lease, token) = held(&mut rig);
    let token = crate::token::unhex(&token).unwrap();
    for (index, (kind, call)) in
        [(ANNOUNCE, 1), (ANNOUNCE, 2), (GIVE_UP, 1)].into_iter().enumerate()
    {
        let word = message_for(&rig, &token, kind, format!("{OTHER}{call}").as_bytes(), &[]);
        rig.receive(index, &word);
    }
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(1), ["DELIFEQ", "PUBLISH"], "by the node that the second was heard by");
    assert_eq!(published(&mut rig, 1), (OTHERS_CHANNEL.to_owned(), WAKE));
    assert!(rig.inbox[1][1][2].contains(&format!("{OTHER}2")));
}

/// A call that wants the lock again waits behind the call of its own client that has its turn now.
#[test]
fn a_call_that_wants_the_lock_again_queues_behind_a_call_of_its_own_client() {
    let mut rig = rig(3);
    let (_, node) = one_more(&mut rig);
    one_more(&mut rig);
    let first = wake(&rig, 1, &[2]);
    rig.receive(node, &first);
    rig.answer_all(0..3, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.release(lease, rig.now);
    rig.acquire_with("a", waiting());
    assert_eq!(rig.waiting(node), ["DELIFEQ", "SET", "PUBLISH"]);
    assert_ne!(rig.inbox[node][2][1], OTHERS_CHANNEL);
    // Its message comes back to its own client, whose second call has not won yet.
    let heard = message_for(&rig, &own_waiter(&rig, 2), ANNOUNCE, &own_waiter(&rig, 3), &[]);
    rig.answer_all(0..3, ":1\r\n");
    rig.receive(node, &heard);
    rig.answer_all(0..3, "+OK\r\n");
    rig.answer(node, ":1\r\n");
    let lease = rig.locked();
    rig.engine.release(lease, rig.now);
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["DELIFEQ", "SET"], "the third has its turn");
    }
}

/// Its own message may come back to it late, when the call itself has its turn: it stands on its
/// own list then.
#[test]
fn a_call_that_is_given_up_gives_itself_no_turn() {
    let mut rig = rig(3);
    let (op, heard_by) = one_more(&mut rig);
    let wake = wake(&rig, 1, &[]);
    rig.engine.handle_bytes(node(heard_by), &wake, rig.now);
    rig.collect();
    let set = rig.inbox[0].iter().find(|command| command[0] == "SET").expect("it tries");
    let token = crate::token::unhex(set[2].as_bytes()).expect("a drawn token");
    let late = message_for(&rig, &token, ANNOUNCE, &own_waiter(&rig, 1), &[]);
    rig.engine.handle_bytes(node(heard_by), &late, rig.now);
    rig.engine.cancel(op, rig.now);
    assert!(matches!(rig.refused(), LockError::Cancelled));
    for index in 0..3 {
        let sets = rig.waiting(index).iter().filter(|word| *word == "SET").count();
        assert_eq!(sets, 1, "no attempt of a call that has ended");
        rig.answer(index, "_\r\n");
    }
}

/// By now another lease may have the slot, with its own waiters.
#[test]
fn a_stale_handle_takes_no_waiters_from_the_lease_that_has_its_place_now() {
    let mut rig = rig(3);
    let (stale, _) = held(&mut rig);
    rig.engine.release(stale, rig.now);
    rig.answer_all(0..3, ":1\r\n");
    let (lease, token) = held(&mut rig);
    assert_eq!(lease.slot, stale.slot);
    let token = crate::token::unhex(&token).unwrap();
    let heard = message_for(&rig, &token, ANNOUNCE, OTHER.as_bytes(), &[]);
    rig.receive(0, &heard);
    assert!(rig.engine.unlock(stale, rig.now).is_err());
    assert_eq!(rig.waiting(0), Vec::<String>::new(), "nobody is woken while the lock is held");
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0), ["DELIFEQ", "PUBLISH"]);
}

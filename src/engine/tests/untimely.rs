//! Transfers that come late, twice, forged or at the wrong moment, and nodes and clients that come
//! and go meanwhile.

use super::transfers::{
    FROM, announce_to, channel, given_up, introduced, messages, offered, offering, rig, settle,
    token_bytes, told, transfer, waited_for,
};
use super::waking::{OTHER, OTHERS_CHANNEL, WAKE, published, subscribed, token_of};
use super::*;
use crate::token::TokenBytes;

/// The push that confirms a subscription to this channel.
pub(super) fn confirmed(name: &str) -> String {
    format!(">3\r\n$9\r\nsubscribe\r\n${}\r\n{name}\r\n:1\r\n", name.len())
}

/// The node that was connected again confirms both subscriptions.
pub(super) fn subscribed_again(rig: &mut Rig, index: usize) {
    for name in [messages(rig), channel(rig)] {
        rig.answer(index, &confirmed(&name));
    }
}

/// The node confirms the subscription to transfers, in front of which a release may stand.
fn takes_transfers(rig: &mut Rig, index: usize) {
    if rig.waiting(index)[0] == "DELIFEQ" {
        rig.answer(index, ":0\r\n");
    }
    let name = channel(rig);
    assert_eq!(rig.inbox[index][0], ["SUBSCRIBE", &name]);
    rig.answer(index, &confirmed(&name));
}

/// The call goes on waiting for this long: its polls find the same holder.
fn wait_on(rig: &mut Rig, duration: Duration) {
    let end = rig.now + duration;
    while rig.now < end {
        rig.advance(10 * MS);
        settle(rig);
    }
}

/// A holder that has not heard of the call's new offer hands its lock over to the old one.
#[test]
pub(super) fn a_lease_counts_from_the_offer_that_was_taken_up_though_a_newer_one_is_open() {
    let mut rig = rig(3);
    let offered_at = rig.now;
    offering(&mut rig);
    let older = offered(&rig);
    wait_on(&mut rig, TTL / 4 + 600 * MS);
    assert_ne!(offered(&rig), older, "it has offered another token since");
    for index in 0..2 {
        let message = transfer(&rig, &older, index);
        rig.receive(index, &message);
    }
    let lease = rig.locked();
    assert_eq!(token_bytes(&rig, lease), older);
    assert_eq!(rig.engine.deadline(lease), Some(offered_at + TTL - TTL / 100 - 2 * MS));
}

/// The client owes a release for an offer to which a lock may have been handed over unheard.
#[test]
pub(super) fn what_was_owed_for_an_offer_is_not_paid_out_of_the_lease() {
    let mut rig = rig(3);
    offering(&mut rig);
    rig.lose(1);
    rig.connect(1);
    // SUBSCRIBE, SUBSCRIBE, DELIFEQ: the first payment, which comes before the script.
    assert_eq!(rig.waiting(1).last().unwrap(), "DELIFEQ");
    subscribed_again(&mut rig, 1);
    rig.answer(1, ":0\r\n");
    told(&mut rig, 0);
    told(&mut rig, 2);
    let lease = rig.locked();
    let late = transfer(&rig, &token_bytes(&rig, lease), 1);
    rig.receive(1, &late);
    rig.clear();
    rig.advance(200 * MS);
    assert!(rig.waiting(1).iter().all(|word| word != "DELIFEQ"), "{:?}", rig.waiting(1));
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(1).last().unwrap(), "DELIFEQ");
}

/// The client subscribed at the node after it took the lock over. The connection ended before the
/// client read the message of the script there.
#[test]
fn a_script_that_ran_unheard_after_the_lock_was_taken_over_is_released_with_the_lease() {
    let mut rig = rig(3);
    rig.lose(2);
    rig.acquire_with("a", waking::waiting());
    rig.answer_all(0..2, "_\r\n");
    assert!((0..2).any(|index| rig.waiting(index).contains(&"EVAL".into())));
    for index in 0..2 {
        takes_transfers(&mut rig, index);
        told(&mut rig, index);
    }
    let lease = rig.locked();
    rig.connect(2);
    assert!(rig.waiting(2).len() >= 2, "it takes transfers: {:?}", rig.inbox[2]);
    // The script runs here, and no client reads its message.
    rig.lose(2);
    rig.engine.release(lease, rig.now);
    rig.connect(2);
    assert!(rig.waiting(2).contains(&"DELIFEQ".into()), "{:?}", rig.waiting(2));
}

/// The node takes the lost connection for a listener until it notices the loss, and keeps the key.
#[test]
pub(super) fn an_offer_that_was_made_while_a_node_was_away_is_deleted_there_when_it_is_back() {
    let mut rig = rig(3);
    given_up(&mut rig);
    settle(&mut rig);
    rig.lose(1);
    rig.acquire_with("a", waking::waiting());
    settle(&mut rig);
    let token = offered(&rig);
    rig.connect(1);
    rig.collect();
    let of = |command: &Vec<String>| crate::token::unhex(command.get(2)?.as_bytes());
    let deleted = rig.inbox[1].iter().filter(|command| command[0] == "DELIFEQ").filter_map(of);
    assert!(deleted.into_iter().any(|deleted| deleted == token), "{:?}", rig.inbox[1]);
}

/// Forged: every client can read the token of an attempt on the nodes.
#[test]
pub(super) fn no_message_is_a_vote_for_an_attempt() {
    let mut rig = rig(3);
    rig.acquire("a");
    let set = {
        rig.collect();
        rig.inbox[0][0].clone()
    };
    assert_eq!(set[0], "SET");
    let token: Vec<u8> =
        (0..20).map(|at| u8::from_str_radix(&set[2][2 * at..2 * at + 2], 16).unwrap()).collect();
    let forged = transfer(&rig, &token.try_into().unwrap(), 1);
    rig.receive(1, &forged);
    rig.answer(0, "+OK\r\n");
    rig.answer(2, "_\r\n");
    assert!(rig.lock_result().is_none(), "node 1 has not voted");
}

/// A token that was deleted at a quorum of nodes can win no more: the next announcement has
/// another.
#[test]
pub(super) fn a_token_that_was_deleted_somewhere_is_not_offered_again() {
    let mut rig = rig(3);
    let node = offering(&mut rig);
    let token = offered(&rig);
    for index in (0..3).filter(|&index| index != node) {
        rig.lose(index);
        rig.connect(index);
        subscribed_again(&mut rig, index);
        rig.answer(index, ":0\r\n");
    }
    // The second payment comes, and polls that find the same holder. Then the call tells the holder
    // again.
    wait_on(&mut rig, 600 * MS);
    let slot = rig.engine.locks.slot_of_token(&offered(&rig)).unwrap();
    assert_ne!(offered(&rig), token);
    assert!(rig.engine.locks.slots.at(slot).tainted.is_empty());
}

/// A node told of the hand-over, and then deleted the token: its vote has ended.
#[test]
pub(super) fn a_vote_ends_with_the_delete() {
    let mut rig = rig(3);
    offering(&mut rig);
    let token = offered(&rig);
    let wake = waking::message(&rig, WAKE, OTHER, &[]);
    rig.receive(0, &wake);
    told(&mut rig, 0);
    let slot_index = rig.engine.locks.slot_of_token(&token).unwrap();
    assert!(rig.engine.locks.slots.at(slot_index).granted.contains(node(0)));
    // The call wins by its attempt, and another node tells of the offer.
    rig.answer_all(0..3, "+OK\r\n");
    let message = transfer(&rig, &token, 1);
    rig.receive(1, &message);
    let slot = rig.engine.locks.slots.at(slot_index);
    assert!(slot.tainted.contains(node(0)) && slot.tainted.contains(node(1)));
    assert!(slot.granted.is_empty(), "{:?}", slot.granted);
}

/// The address of node 1 comes to lead to the server of node 0. What the client owes node 1 for the
/// offer is deleted there.
#[test]
fn a_delete_at_one_address_of_a_server_ends_its_vote_at_another() {
    for has_told in [false, true] {
        let mut rig = rig(3);
        offering(&mut rig);
        if has_told {
            told(&mut rig, 0);
            rig.lose(0);
            rig.until_wanted(0);
            rig.engine.handle_lost(node(0), Cause::ConnectionRefused, rig.now);
        }
        rig.lose(1);
        rig.greet(1, HELLO, "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
        assert!(rig.waiting(1).contains(&"DELIFEQ".to_owned()));
        if !has_told {
            told(&mut rig, 0);
        }
        told(&mut rig, 2);
        assert!(rig.lock_result().is_none(), "one node holds the key, told before: {has_told}");
    }
}

/// The client closes: its last commands need no second step.
#[test]
fn a_client_that_closes_hands_nothing_over() {
    let mut rig = rig(3);
    let lease = waited_for(&mut rig, 1);
    rig.engine.begin_close();
    rig.engine.release(lease, rig.now);
    for index in 0..3 {
        assert_eq!(rig.waiting(index)[0], "DELIFEQ");
    }
}

/// The node tells of a hand-over between UNSUBSCRIBE and the answer to it.
#[test]
pub(super) fn what_is_told_while_the_client_leaves_is_deleted() {
    let mut rig = rig(3);
    let token = given_up(&mut rig);
    rig.clear();
    rig.engine.begin_close();
    let message = transfer(&rig, &token, 1);
    rig.receive(1, &message);
    assert_eq!(rig.waiting(1), ["UNSUBSCRIBE", "DELIFEQ"], "that runs behind what was told");
}

/// Forged, again and again: the slot's count of references does not wrap around.
#[test]
fn a_flood_of_one_token_wraps_no_count() {
    let mut rig = rig(3);
    let token = given_up(&mut rig);
    let message = transfer(&rig, &token, 1);
    let mut other = message.clone();
    let from_at = message.windows(20).position(|it| it == FROM).unwrap();
    other[from_at] = 8;
    for _ in 0..30_000 {
        rig.receive(1, &message);
        rig.receive(1, &other);
    }
}

/// The same of an offer that is open, through a node without a vote that answers nothing.
#[test]
fn a_flood_of_one_open_offer_wraps_no_count() {
    let mut rig = rig(3);
    offering(&mut rig);
    rig.lose(1);
    rig.connect(1);
    let message = transfer(&rig, &offered(&rig), 1);
    for _ in 0..70_000 {
        rig.receive(1, &message);
    }
}

/// An announcement that comes in between does not reset the number of transfers.
#[test]
fn transfers_in_a_row_are_counted_although_somebody_else_announced() {
    let mut rig = rig(3);
    offering(&mut rig);
    for index in 0..2 {
        let mut message = transfer(&rig, &offered(&rig), index);
        let row_at = message.windows(2).position(|it| it == [4, 1]).unwrap() + 1;
        message[row_at] = 2;
        rig.receive(index, &message);
    }
    // This is before the caller takes the result.
    let token = {
        let op = rig.engine.locks.done.front().copied();
        let Some(locks::core::Done::Op(op)) = op else { panic!("{op:?}") };
        let slot = rig.engine.locks.ops.at(op).slot();
        match rig.engine.locks.slots.at(slot).token {
            TokenBytes::Drawn(token) => token,
            TokenBytes::Given(_) => panic!(),
        }
    };
    announce_to(&mut rig, &token, 1);
    let lease = rig.locked();
    rig.clear();
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0)[0], "DELIFEQ", "two in a row are allowed");
}

/// A waiting call that has told the nodes its offer; node 0 is in quarantine.
fn offering_beside_a_quarantine() -> Rig {
    let mut rig = Rig::unconnected(3, |config| {
        config
            .restart_guard(RestartGuard::On)
            .direct_wake(true)
            .transfers_in_row(2)
            .max_ttl(Duration::from_secs(20))
    });
    rig.connect(1);
    rig.connect(2);
    rig.greet(0, HELLO, "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:19\r\n");
    for index in 0..3 {
        subscribed(&mut rig, index);
    }
    assert_eq!(rig.engine.voters().count(), 2, "one is in quarantine");
    rig.acquire_with("a", waking::waiting());
    rig.answer_all(1..3, "_\r\n");
    let at = (0..3).find(|&index| rig.waiting(index).contains(&"EVAL".into())).unwrap();
    (0..3).for_each(|index| takes_transfers(&mut rig, index));
    rig.answer(at, &introduced(":1\r\n"));
    rig
}

/// The node may have forgotten a lock that goes on.
#[test]
pub(super) fn a_node_in_quarantine_has_no_vote_when_it_hands_a_lock_over() {
    let mut rig = offering_beside_a_quarantine();
    told(&mut rig, 0);
    told(&mut rig, 1);
    assert!(rig.lock_result().is_none(), "one node has voted");
    told(&mut rig, 2);
    let lease = rig.locked();
    assert_eq!(rig.engine.votes(lease).count(), 2);
}

/// A quarantine ends with another greeting over the same connection. A message of the node
/// meanwhile is no vote, but its key is there.
#[test]
fn what_is_told_during_another_greeting_is_deleted() {
    let mut rig = offering_beside_a_quarantine();
    while !rig.waiting(0).contains(&"HELLO".into()) {
        rig.advance(10 * MS);
        for index in 1..3 {
            while let Some(command) = {
                rig.collect();
                rig.inbox[index].first().cloned()
            } {
                let answer = match &*command[0] {
                    "EVAL" => introduced(":1\r\n"),
                    "GET" => token_of(OTHER),
                    "PTTL" => ":9000\r\n".to_owned(),
                    "PUBLISH" => ":1\r\n".to_owned(),
                    "SET" => "_\r\n".to_owned(),
                    "DELIFEQ" => ":0\r\n".to_owned(),
                    other => panic!("{other}"),
                };
                rig.answer(index, &answer);
            }
        }
    }
    let token = offered(&rig);
    let message = transfer(&rig, &token, 0);
    rig.receive(0, &message);
    for _ in 1..5 {
        let hello = rig.inbox[0][0][0] == "HELLO";
        let info = "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:29\r\n";
        let answer =
            if hello { HELLO.to_owned() } else { format!("${}\r\n{info}\r\n", info.len()) };
        rig.answer(0, &answer);
    }
    rig.answer(0, "$49\r\nrun_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:9\r\n");
    rig.advance(200 * MS);
    assert!(rig.waiting(0).contains(&"DELIFEQ".into()), "{:?}", rig.waiting(0));
}

/// A message of a node without a mark is no vote, so the client must not listen to it.
#[test]
fn a_node_without_a_name_is_not_listened_to() {
    let mut rig = Rig::unconnected(3, |config| config.direct_wake(true).transfers_in_row(2));
    (1..3).for_each(|index| rig.connect(index));
    rig.greet(0, HELLO, "connected_slaves:0\r\nuptime_in_seconds:9999\r\n");
    (0..3).for_each(|index| subscribed(&mut rig, index));
    rig.acquire_with("a", waking::waiting());
    rig.answer_all(0..3, "_\r\n");
    for index in 0..3 {
        let is_subscribed = rig.waiting(index).contains(&"SUBSCRIBE".into());
        assert_eq!(is_subscribed, index != 0, "node {index}");
    }
}

/// A waiter that wants more of the TTL than an offer may have left is woken, and counts from its
/// own attempt.
#[test]
fn a_call_that_wants_most_of_the_ttl_takes_nothing_over() {
    let mut rig = rig(3);
    rig.acquire_with("a", waking::waiting().min_validity(TTL - 200 * MS));
    let node = waking::deny(&mut rig);
    rig.answer(node, &waking::introduced(&token_of(OTHER), true));
    for index in 0..3 {
        assert!(!rig.waiting(index).contains(&"SUBSCRIBE".into()), "node {index}");
    }
}

/// A client that does not hear of transfers at a node may still hear messages there.
#[test]
fn a_waiter_that_is_not_told_by_the_only_node_is_woken_through_it() {
    for answer in [":1\r\n", ":0\r\n"] {
        let mut rig = rig(1);
        let lease = waited_for(&mut rig, 1);
        rig.engine.release(lease, rig.now);
        assert_eq!(rig.waiting(0), ["EVAL"]);
        rig.answer(0, answer);
        assert_eq!(rig.waiting(0), ["PUBLISH"], "{answer}");
        assert_eq!(published(&mut rig, 0), (OTHERS_CHANNEL.to_owned(), WAKE));
    }
}

/// The client deletes the offer at node 0. The address of node 2 comes to lead to that server. The offer
/// is open then, or the lock is won, or the caller has it.
#[test]
fn a_server_that_may_still_run_a_delete_gets_no_extension_at_another_address() {
    for met_at in 0..3 {
        let mut rig = rig(3);
        offering(&mut rig);
        rig.lose(0);
        rig.connect(0);
        assert!(rig.waiting(0).contains(&"DELIFEQ".to_owned()));
        told(&mut rig, 2);
        rig.lose(0);
        rig.until_wanted(0);
        rig.engine.handle_lost(node(0), Cause::ConnectionRefused, rig.now);
        rig.lose(2);
        let mut lease = None;
        for step in 0..3 {
            if step == met_at {
                let info = "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n";
                rig.greet(2, HELLO, info);
                subscribed_again(&mut rig, 2);
            }
            match step {
                0 => told(&mut rig, 1),
                1 => lease = Some(rig.locked()),
                _ => rig.clear(),
            }
        }
        rig.engine.extend(lease.unwrap(), TTL, rig.now).unwrap();
        assert_eq!(rig.waiting(2), Vec::<String>::new(), "met at step {met_at}");
    }
}

/// An offer became a lease while the delete of the offer was on its way to node 2.
fn offer_become_lease() -> (Rig, LeaseId) {
    let mut rig = rig(3);
    offering(&mut rig);
    rig.lose(2);
    rig.connect(2);
    subscribed_again(&mut rig, 2);
    told(&mut rig, 0);
    told(&mut rig, 1);
    let lease = rig.locked();
    (rig, lease)
}

/// The lease has its own release, or belongs to another client.
#[test]
fn a_delete_of_an_offer_that_the_node_refuses_is_not_repeated_for_the_lease() {
    for is_left in [false, true] {
        let (mut rig, lease) = offer_become_lease();
        if is_left {
            rig.engine.leave(lease, rig.now);
        }
        assert_eq!(rig.waiting(2), ["DELIFEQ"]);
        rig.answer(2, "-ERR unknown command 'DELIFEQ'\r\n");
        assert_eq!(rig.waiting(2), Vec::<String>::new(), "left: {is_left}");
    }
}

/// Node 4 is away, and node 2 is slow. The client leaves the channel, and deletes the token once more.
#[test]
fn the_answer_to_a_second_delete_takes_none_to_the_first_back() {
    let mut rig = rig(5);
    rig.lose(4);
    rig.acquire_with("a", waking::waiting());
    (0..2).for_each(|_| settle(&mut rig));
    (0..3).for_each(|index| told(&mut rig, index));
    let lease = rig.locked();
    settle(&mut rig);
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer_all(0..2, ":1\r\n");
    rig.engine.begin_close();
    let left = confirmed(&channel(&rig));
    for index in 0..2 {
        assert_eq!(rig.waiting(index), ["UNSUBSCRIBE", "DELIFEQ"]);
        rig.answer(index, &left);
        rig.answer(index, ":0\r\n");
    }
    let event = rig.engine.poll_event(rig.now);
    assert!(event.is_none(), "node 2 has not answered: {event:?}");
    rig.answer(2, ":1\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })),
        "{event:?}"
    );
}

/// Node 2 deletes the token of the offer, which has no vote there, and not the lock.
#[test]
fn the_answer_to_the_delete_of_an_offer_counts_in_no_release_of_its_lease() {
    let (mut rig, lease) = offer_become_lease();
    rig.engine.unlock(lease, rig.now).unwrap();
    assert_eq!(rig.waiting(2), ["DELIFEQ", "DELIFEQ"]);
    rig.answer(2, ":1\r\n");
    rig.answer(0, ":1\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(event.is_none(), "one node had the lock: {event:?}");
}

/// Nothing of the offer can run there any more, unless a delete was lost with its connection. The answer
/// comes before the lock is handed over, or behind it. The node may refuse the delete.
#[test]
fn a_node_that_has_answered_the_delete_of_an_offer_gets_the_extensions_of_its_lease() {
    for nth in 0..8 {
        let (is_lost, is_first, is_refused) = (nth & 1 != 0, nth & 2 != 0, nth & 4 != 0);
        let refusal = "-NOREPLICAS Not enough good replicas to write.\r\n";
        let answer = if is_refused { refusal } else { ":0\r\n" };
        let mut rig = rig(3);
        offering(&mut rig);
        for _ in 0..=u8::from(is_lost) {
            rig.lose(2);
            rig.connect(2);
            subscribed_again(&mut rig, 2);
        }
        assert_eq!(rig.waiting(2), ["DELIFEQ"]);
        if is_first {
            rig.answer(2, answer);
        }
        told(&mut rig, 0);
        told(&mut rig, 1);
        let lease = rig.locked();
        if !is_first {
            rig.answer(2, answer);
        }
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        let asked = if is_lost { vec![] } else { vec!["SET".to_owned()] };
        assert_eq!(rig.waiting(2), asked, "lost: {is_lost}, before: {is_first}, {answer}");
        if !is_lost {
            rig.answer(2, "_\r\n");
            assert_eq!(rig.waiting(2), ["SET"], "it gets the token again");
            rig.answer(2, "+OK\r\n");
            rig.answer(0, "+OK\r\n");
            let event = rig.engine.poll_event(rig.now);
            assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
        }
    }
}

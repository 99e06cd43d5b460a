//! Locks that change hands by a script: each test plays the nodes, and the other clients.

use super::waking::{
    OTHER, OTHERS_CHANNEL, WAKE, asked, own_waiter, published, subscribed, token_of, waiting,
};
use super::*;
use crate::token::TokenBytes;

pub(super) const FROM: [u8; 20] = [7; 20];

/// `nodes` nodes that carry messages, and a client that hands locks over and takes them over.
pub(super) fn rig(nodes: usize) -> Rig {
    let mut rig = Rig::with(nodes, |config| config.direct_wake(true).transfers_in_row(2));
    (0..nodes).for_each(|index| subscribed(&mut rig, index));
    rig
}

/// The channel for messages.
pub(super) fn messages(rig: &Rig) -> String {
    let id: String =
        rig.engine.waiting.client_id().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("redbolt:3:{id}")
}

/// The client's channel for transfers.
pub(super) fn channel(rig: &Rig) -> String {
    format!("{}:t", messages(rig))
}

/// A call that waits behind `OTHER`, which knows its offer. Returns the node that told `OTHER`.
pub(super) fn offering(rig: &mut Rig) -> usize {
    rig.acquire_with("a", waiting());
    let node = introducing(rig);
    rig.answer(node, &introduced(":1\r\n"));
    node
}

/// A call that every node has denied. Returns the node by which it introduces itself.
pub(super) fn introducing(rig: &mut Rig) -> usize {
    rig.answer_all(0..rig.inbox.len(), "_\r\n");
    let channel = channel(rig);
    for index in 0..rig.inbox.len() {
        // The attempt did not wait for the last node: its SET is released.
        if rig.waiting(index).first().is_some_and(|word| word == "DELIFEQ") {
            rig.answer(index, ":0\r\n");
        }
        assert_eq!(rig.inbox[index].remove(0), ["SUBSCRIBE", &channel], "in front of it");
        let push = format!(">3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:2\r\n", channel.len());
        rig.receive(index, &push);
    }
    let node = asked(rig);
    assert_eq!(rig.waiting(node), ["EVAL"]);
    node
}

/// A node's answer while `OTHER` has the lock, and this many clients heard the message.
pub(super) fn introduced(told: &str) -> String {
    format!("*3\r\n{}:9000\r\n{told}", token_of(OTHER))
}

pub(super) fn offered(rig: &Rig) -> [u8; 20] {
    match rig.engine.locks.last_offered() {
        Some(TokenBytes::Drawn(token)) => token,
        other => panic!("{other:?}"),
    }
}

/// Every node answers each request, like a node that holds the lock of `OTHER`.
pub(super) fn settle(rig: &mut Rig) {
    for index in 0..rig.inbox.len() {
        rig.collect();
        while let Some(command) = rig.inbox[index].first().cloned() {
            rig.answer(index, &answer_to(&command));
        }
    }
}

/// The answer of a node that holds the lock of `OTHER`.
pub(super) fn answer_to(command: &[String]) -> String {
    match &*command[0] {
        "DELIFEQ" => ":0\r\n".to_owned(),
        "EVAL" => introduced(":1\r\n"),
        "GET" => token_of(OTHER),
        "PTTL" => ":9000\r\n".to_owned(),
        "PUBLISH" => ":1\r\n".to_owned(),
        "SET" => "_\r\n".to_owned(),
        "SUBSCRIBE" => {
            let name = &command[1];
            format!(">3\r\n$9\r\nsubscribe\r\n${}\r\n{name}\r\n:1\r\n", name.len())
        }
        other => panic!("{other}"),
    }
}

/// The token that a cancelled call had offered.
pub(super) fn given_up(rig: &mut Rig) -> [u8; 20] {
    offering(rig);
    let token = offered(rig);
    rig.engine.cancel_all(rig.now);
    assert!(matches!(rig.refused(), LockError::Cancelled));
    token
}

/// A waiter in a list: its id, its wait of 16 s, of which nothing is over, its age, and the TTL and
/// token that it offers.
pub(super) fn listed(id: &[u8], age_ms: u16, token: &[u8; 20]) -> Vec<u8> {
    let mut text = [id, &[0; 12][..12 - id.len()], &[0, 64, 0, 0], &[0; 4]].concat();
    text.extend(age_ms.to_le_bytes());
    text.extend(10_000_u32.to_le_bytes());
    text.extend(&token[8..]);
    text
}

/// Puts another TTL in the place of the listed one.
pub(super) fn with_ttl(text: &mut [u8], ttl_ms: u32) {
    let listed = 10_000_u32.to_le_bytes();
    let place = text.windows(4).position(|it| it == listed).expect("it is listed");
    text[place..place + 4].copy_from_slice(&ttl_ms.to_le_bytes());
}

/// The message of the node with this mark, after it has written `token` for the holder of `FROM`.
pub(super) fn transfer(rig: &Rig, token: &[u8; 20], mark: usize) -> Vec<u8> {
    transfer_with(rig, token, mark, &[0, 0])
}

/// The same message; `OTHER` waits behind.
pub(super) fn transfer_before_other(rig: &Rig, token: &[u8; 20], mark: usize) -> Vec<u8> {
    let other = listed(OTHER.as_bytes(), 1, b"ABCDEFGH0123456789ab");
    transfer_with(rig, token, mark, &[&[1, 0][..], &other].concat())
}

fn transfer_with(rig: &Rig, token: &[u8; 20], mark: usize, list: &[u8]) -> Vec<u8> {
    let waiter = listed(&own_waiter(rig, rig.engine.waiting.calls()), 1, token);
    let mark = [format!("{mark}").as_bytes(), &[0; 7]].concat();
    let text = [&[4, 1][..], &waiter, &FROM, &mark, list, b"a"].concat();
    let channel = channel(rig);
    let head =
        format!(">3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n", channel.len(), text.len());
    [head.as_bytes(), &text, b"\r\n"].concat()
}

/// The node with this index tells that it has written the offered token.
pub(super) fn told(rig: &mut Rig, index: usize) {
    let message = transfer(rig, &offered(rig), index);
    rig.receive(index, &message);
}

#[test]
pub(super) fn a_lock_is_won_when_a_quorum_has_told_of_it_and_counts_from_before_the_offer() {
    let mut rig = rig(5);
    let offered_at = rig.now;
    offering(&mut rig);
    rig.advance(90 * MS);
    for index in 0..2 {
        told(&mut rig, index);
        assert!(rig.lock_result().is_none(), "two of five are no quorum");
    }
    told(&mut rig, 4);
    let lease = rig.locked();
    let validity = TTL - TTL / 100 - 2 * MS;
    assert_eq!(rig.engine.deadline(lease), Some(offered_at + validity));
    assert_eq!(rig.engine.votes(lease).count(), 3);
    // Another node tells late: one more vote, and the client writes nothing.
    let late = transfer(&rig, &token_bytes(&rig, lease), 3);
    rig.receive(3, &late);
    assert_eq!(rig.engine.votes(lease).count(), 4);
    assert!((0..5).all(|index| rig.waiting(index).iter().all(|word| word == "GET")));
    // A script may still run at the last node: the release goes there too.
    rig.engine.release(lease, rig.now);
    for index in 0..5 {
        assert_eq!(rig.waiting(index).last().unwrap(), "DELIFEQ");
    }
}

pub(super) fn token_bytes(rig: &Rig, lease: LeaseId) -> [u8; 20] {
    match rig.engine.locks.slots.held(lease).unwrap().token {
        TokenBytes::Drawn(token) => token,
        TokenBytes::Given(_) => panic!("it was drawn"),
    }
}

/// A replica passes on the messages of its master's clients, and each client has its own order of
/// the nodes.
#[test]
pub(super) fn a_transfer_counts_for_the_node_that_ran_it_alone() {
    let mut rig = rig(3);
    offering(&mut rig);
    told(&mut rig, 0);
    let forwarded = transfer(&rig, &offered(&rig), 0);
    rig.receive(1, &forwarded);
    rig.receive(2, &forwarded);
    assert!(rig.lock_result().is_none(), "one node has told");
    told(&mut rig, 2);
    rig.locked();
}

#[test]
fn a_node_that_tells_twice_has_one_vote() {
    let mut rig = rig(3);
    offering(&mut rig);
    told(&mut rig, 0);
    told(&mut rig, 0);
    assert!(rig.lock_result().is_none());
}

/// The node's message may be lost with the connection. The delete of the token goes behind the new
/// subscription, and from then on the node has no vote for it.
#[test]
pub(super) fn where_a_connection_ended_the_token_is_deleted_and_has_no_vote() {
    let mut rig = rig(3);
    offering(&mut rig);
    let token = offered(&rig);
    rig.lose(1);
    rig.connect(1);
    let words = rig.waiting(1);
    assert_eq!(words, ["SUBSCRIBE", "SUBSCRIBE", "DELIFEQ"], "in this order");
    told(&mut rig, 0);
    let message = transfer(&rig, &token, 1);
    rig.receive(1, &message);
    assert!(rig.lock_result().is_none(), "the key is about to go");
    told(&mut rig, 2);
    let lease = rig.locked();
    assert_eq!(rig.engine.votes(lease).count(), 2);
}

/// A part of a lock has no holder: the call deletes it, and makes an attempt behind that.
#[test]
fn a_part_of_a_lock_is_given_up_when_no_more_comes() {
    let mut rig = rig(3);
    offering(&mut rig);
    told(&mut rig, 0);
    rig.clear();
    rig.advance(60 * MS);
    assert_eq!(rig.waiting(0), ["DELIFEQ", "SET"]);
    assert_eq!(rig.waiting(1), ["SET"]);
}

#[test]
pub(super) fn what_is_handed_over_to_a_call_that_gave_up_is_deleted_everywhere() {
    let mut rig = rig(3);
    let token = given_up(&mut rig);
    rig.clear();
    let message = transfer(&rig, &token, 1);
    rig.receive(1, &message);
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["DELIFEQ"], "node {index}");
    }
    let message = transfer(&rig, &token, 2);
    rig.receive(2, &message);
    assert_eq!(
        rig.waiting(2),
        ["DELIFEQ"],
        "it runs behind what the node told of before it answers"
    );
    rig.answer_all(0..3, ":0\r\n");
    rig.receive(2, &message);
    assert_eq!(rig.waiting(2), ["DELIFEQ"], "it came behind the first");
    assert_eq!(rig.waiting(0), Vec::<String>::new());
}

/// A refused message moves no deadline: the offer's deadline stands.
#[test]
fn a_transfer_that_does_not_count_leaves_the_deadline_alone() {
    let mut rig = rig(3);
    let offered_at = rig.now;
    offering(&mut rig);
    rig.lose(1);
    rig.connect(1);
    rig.advance(50 * MS);
    let token = offered(&rig);
    for index in [1, 0, 2] {
        let message = transfer(&rig, &token, index);
        rig.receive(index, &message);
    }
    let lease = rig.locked();
    assert_eq!(rig.engine.deadline(lease), Some(offered_at + TTL - TTL / 100 - 2 * MS));
}

// ---- the holder ----

/// A lease for which `OTHER` waits. Its client heard of `OTHER` this long ago.
pub(super) fn waited_for(rig: &mut Rig, age_ms: u16) -> LeaseId {
    let lease = rig.lease("a");
    announce(rig, lease, age_ms);
    lease
}

pub(super) fn announce(rig: &mut Rig, lease: LeaseId, age_ms: u16) {
    let token = token_bytes(rig, lease);
    announce_to(rig, &token, age_ms);
}

/// `OTHER` announces that it waits behind the holder of this token.
pub(super) fn announce_to(rig: &mut Rig, token: &[u8; 20], age_ms: u16) {
    announce_with(rig, token, (age_ms, 10_000));
}

/// The same announcement, with the TTL that `OTHER` offers.
pub(super) fn announce_with(rig: &mut Rig, token: &[u8; 20], (age_ms, ttl_ms): (u16, u32)) {
    let mut waiter = listed(OTHER.as_bytes(), age_ms, b"ABCDEFGH0123456789ab");
    with_ttl(&mut waiter, ttl_ms);
    announced(rig, &waiter, token);
}

/// A waiter announces that it waits behind the holder of this token.
pub(super) fn announce_from(rig: &mut Rig, waiter: &[u8], token: &[u8; 20], age_ms: u16) {
    announced(rig, &listed(waiter, age_ms, b"ABCDEFGH0123456789ab"), token);
}

fn announced(rig: &mut Rig, waiter: &[u8], token: &[u8; 20]) {
    rig.pass();
    unread(rig, waiter, token);
}

/// The same, where no pass came before.
fn unread(rig: &mut Rig, waiter: &[u8], token: &[u8; 20]) {
    let text = [&[1, 0][..], waiter, token, &[0; 8], &[0, 0], b"a"].concat();
    let channel = messages(rig);
    let head =
        format!(">3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n", channel.len(), text.len());
    rig.receive(0, &[head.as_bytes(), &text, b"\r\n"].concat());
}

/// Over a slow network an announcement comes behind the release. The next lease of the client has
/// the list, or the waiter has the turn and the client's own next call queues behind it.
#[test]
fn a_waiter_that_names_a_lease_that_is_over_is_not_left_waiting() {
    for is_held_again in [true, false] {
        let mut rig = rig(3);
        let lease = rig.lease("a");
        let token = token_bytes(&rig, lease);
        rig.engine.release(lease, rig.now);
        rig.answer_all(0..3, ":1\r\n");
        let next = is_held_again.then(|| rig.lease("a"));
        announce_to(&mut rig, &token, 1);
        if let Some(next) = next {
            rig.clear();
            rig.engine.release(next, rig.now);
            assert_eq!(rig.waiting(0), ["EVAL"], "it is handed over");
        } else {
            let node = (0..3).find(|&index| !rig.waiting(index).is_empty()).expect("a wake");
            assert_eq!(published(&mut rig, node), (OTHERS_CHANNEL.to_owned(), WAKE));
            rig.acquire_with("a", waiting());
            assert!((0..3).all(|index| !rig.waiting(index).contains(&"SET".into())), "it queues");
        }
    }
}

#[test]
fn a_release_hands_the_lock_over_to_the_waiter() {
    let mut rig = rig(3);
    let lease = waited_for(&mut rig, 1);
    rig.engine.unlock(lease, rig.now).unwrap();
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["EVAL"]);
        let script = &rig.inbox[index][0];
        let token: String = b"ABCDEFGH0123456789ab".iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!((&*script[3], &*script[5], &*script[6]), ("a", &*token, "10000"));
        assert_eq!(script[7], format!("{OTHERS_CHANNEL}:t"));
    }
    rig.answer_all(0..2, ":2\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })),
        "{event:?}"
    );
    rig.answer(2, ":2\r\n");
    assert!((0..3).all(|index| rig.waiting(index).is_empty()), "nobody is woken");
}

#[test]
pub(super) fn a_waiter_that_is_told_by_too_few_nodes_is_woken_instead() {
    for answers in [[":2\r\n", ":1\r\n", ":1\r\n"], [":0\r\n", ":2\r\n", ":0\r\n"]] {
        let mut rig = rig(3);
        let lease = waited_for(&mut rig, 1);
        rig.engine.release(lease, rig.now);
        for (index, answer) in answers.into_iter().enumerate() {
            rig.answer(index, answer);
        }
        let node = (0..3).find(|&index| !rig.waiting(index).is_empty()).expect("a wake");
        assert_eq!(published(&mut rig, node), (OTHERS_CHANNEL.to_owned(), WAKE));
    }
}

#[test]
pub(super) fn a_node_that_cannot_run_the_script_gets_the_plain_release_at_once_and_no_script_again()
{
    let mut rig = rig(3);
    let lease = waited_for(&mut rig, 1);
    rig.engine.release(lease, rig.now);
    rig.answer(0, "-NOPERM this user has no permissions to run the 'eval' command\r\n");
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    rig.answer(0, ":1\r\n");
    rig.answer_all(1..3, ":2\r\n");
    let lease = waited_for(&mut rig, 1);
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
    assert_eq!(rig.waiting(1), ["EVAL"]);
}

/// A frozen waiter that is given a lock costs the others its TTL.
#[test]
pub(super) fn a_waiter_that_was_silent_for_long_is_woken() {
    for (age_ms, command) in [(490, "EVAL"), (501, "DELIFEQ")] {
        let mut rig = rig(3);
        let lease = waited_for(&mut rig, age_ms);
        rig.engine.release(lease, rig.now);
        assert!((0..3).all(|index| rig.waiting(index)[0] == command), "{age_ms} ms");
    }
}

/// The holder stood still. The waiter may be gone since it announced itself.
#[test]
fn a_waiter_whose_announcement_may_have_lain_unread_for_long_is_woken() {
    for (still, command) in [(400 * MS, "EVAL"), (600 * MS, "DELIFEQ")] {
        let mut rig = rig(3);
        rig.acquire_with("a", LockOptions::new(TTL).keep_alive());
        rig.answer_all(0..3, "+OK\r\n");
        let lease = rig.locked();
        rig.advance(TTL / 3 - 100 * MS);
        rig.now = rig.now + still;
        let token = token_bytes(&rig, lease);
        unread(&mut rig, &listed(OTHER.as_bytes(), 1, b"ABCDEFGH0123456789ab"), &token);
        rig.engine.release(lease, rig.now);
        assert!((0..3).all(|index| rig.waiting(index)[0] == command), "{still:?}");
    }
}

/// Clients of other kinds see the key standing while a lock is handed over.
#[test]
pub(super) fn a_lock_is_free_for_a_moment_after_so_many_transfers() {
    let mut rig = rig(3);
    offering(&mut rig);
    told(&mut rig, 0);
    // The message says that it is the first in a row; two are allowed.
    told(&mut rig, 1);
    let mut lease = rig.locked();
    for (command, row) in [("EVAL", 1), ("DELIFEQ", 2)] {
        announce(&mut rig, lease, 1);
        rig.clear();
        rig.engine.release(lease, rig.now);
        assert_eq!(rig.waiting(0)[0], command, "{row} before");
        rig = self::rig(3);
        offering(&mut rig);
        for index in 0..2 {
            let mut message = transfer(&rig, &offered(&rig), index);
            let row_at = message.windows(2).position(|it| it == [4, 1]).unwrap() + 1;
            message[row_at] = 2;
            rig.receive(index, &message);
        }
        lease = rig.locked();
    }
}

/// The text names the node by which it goes.
#[test]
pub(super) fn each_node_is_named_in_what_it_tells() {
    let mut rig = rig(3);
    let lease = waited_for(&mut rig, 1);
    rig.engine.release(lease, rig.now);
    for index in 0..3 {
        rig.collect();
        let text = &rig.inbox[index][0][8];
        assert!(text.contains(&format!("{index}\0\0\0\0\0\0\0")), "{text:?}");
    }
}

/// The client deletes locks that were handed over before its end, behind its leaving of the
/// channel.
#[test]
pub(super) fn a_client_that_reads_no_more_leaves_the_channel_and_deletes_what_came() {
    let mut rig = rig(3);
    offering(&mut rig);
    rig.engine.cancel_all(rig.now);
    rig.refused();
    rig.clear();
    rig.engine.begin_close();
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["UNSUBSCRIBE", "DELIFEQ"]);
    }
}

/// A lock that two of three nodes have handed over, and the message of the third.
pub(super) fn handed_over() -> (Rig, LeaseId, Vec<u8>) {
    let mut rig = rig(3);
    offering(&mut rig);
    told(&mut rig, 0);
    told(&mut rig, 1);
    let lease = rig.locked();
    let late = transfer(&rig, &token_bytes(&rig, lease), 2);
    rig.clear();
    (rig, lease, late)
}

/// A client that adopts a lease may rely on every node that holds its key. A late message of the
/// node that handed it over, or the end of a connection, deletes none of the keys.
#[test]
fn a_lease_that_was_given_away_is_left_alone() {
    let (mut rig, lease, late) = handed_over();
    rig.engine.detach(lease).unwrap();
    rig.receive(2, &late);
    assert!((0..3).all(|index| rig.waiting(index).is_empty()), "nothing is deleted");
    rig.lose(1);
    rig.connect(1);
    assert_eq!(rig.waiting(1), ["SUBSCRIBE", "SUBSCRIBE"]);
}

/// The node's message comes before its answer to the release, so the script ran before the release:
/// nothing is left to delete.
#[test]
fn a_word_that_comes_behind_the_release_and_before_its_answer_costs_no_second_one() {
    let (mut rig, lease, late) = handed_over();
    rig.engine.release(lease, rig.now);
    rig.receive(2, &late);
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["DELIFEQ"]);
        rig.answer(index, ":1\r\n");
    }
    rig.advance(Duration::from_secs(1));
    assert!((0..3).all(|index| rig.waiting(index).is_empty()));
}

/// A script may run behind a release that found no key. The node tells of it, and the client
/// deletes the key at once. It owes nothing before.
#[test]
fn a_script_that_runs_behind_the_release_is_told_of_and_its_key_deleted_at_once() {
    let (mut rig, late) = released_in_front_of_the_script();
    assert!(rig.waiting(2).is_empty());
    rig.receive(2, &late);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    rig.answer(2, ":1\r\n");
    rig.advance(Duration::from_secs(1));
    assert!(rig.waiting(2).is_empty());
}

/// The node's message may be lost with the connection.
#[test]
pub(super) fn a_delete_is_owed_where_a_connection_ends_before_a_late_script_is_told_of() {
    let (mut rig, _) = released_in_front_of_the_script();
    rig.lose(2);
    rig.connect(2);
    assert_eq!(rig.waiting(2), ["SUBSCRIBE", "SUBSCRIBE", "DELIFEQ"]);
}

/// A lock that was released a second ago, and the message of the third node. The script of the
/// previous holder was then still on its way to that node.
fn released_in_front_of_the_script() -> (Rig, Vec<u8>) {
    let (mut rig, lease, late) = handed_over();
    rig.engine.release(lease, rig.now);
    for (index, answer) in [":1\r\n", ":1\r\n", ":0\r\n"].into_iter().enumerate() {
        assert_eq!(rig.waiting(index), ["DELIFEQ"]);
        rig.answer(index, answer);
    }
    rig.advance(Duration::from_secs(1));
    (rig, late)
}

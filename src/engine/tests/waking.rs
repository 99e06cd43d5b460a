//! Clients that tell each other that they wait: each test plays the nodes, and the other clients.

use super::*;
use crate::retry::Retry;

/// Another client's id, and its channel.
pub(super) const OTHER: &str = "ABCDEFGH";
pub(super) const OTHERS_CHANNEL: &str = "redbolt:3:4142434445464748";
/// The id and channel of a third client.
pub(super) const THIRD: &str = "abcdefgh";
pub(super) const THIRDS_CHANNEL: &str = "redbolt:3:6162636465666768";
const DELAY: Duration = Duration::from_millis(20);

/// A token that the client drew, as a node answers it.
pub(super) fn token_of(id: &str) -> String {
    let digits: String = id.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("$40\r\n{digits}{}\r\n", "11".repeat(12))
}

/// A message from `sender` to the last waiting call of this client, as a node pushes it. Kind 1
/// tells of a waiter, 2 wakes, 3 gives up.
pub(super) fn message(rig: &Rig, kind: char, sender: &str, list: &[&str]) -> Vec<u8> {
    let list: Vec<_> = list.iter().map(|id| id.as_bytes()).collect();
    message_for(rig, &own_waiter(rig, rig.engine.waiting.calls()), kind, sender.as_bytes(), &list)
}

/// The id of this client's call of that number.
pub(super) fn own_waiter(rig: &Rig, call: u32) -> [u8; 12] {
    let mut id = [0; 12];
    id[..8].copy_from_slice(&rig.engine.waiting.client_id());
    id[8..].copy_from_slice(&call.to_le_bytes());
    id
}

/// A message for a waiter or the holder of a token. Waiters are named by their clients, and perhaps
/// their calls.
pub(super) fn message_for(
    rig: &Rig,
    token: &[u8],
    kind: char,
    sender: &[u8],
    list: &[&[u8]],
) -> Vec<u8> {
    message_of(rig, b"a", token, kind, sender, list)
}

/// As `message_for`, of another key.
pub(super) fn message_of(
    rig: &Rig,
    key: &[u8],
    token: &[u8],
    kind: char,
    sender: &[u8],
    list: &[&[u8]],
) -> Vec<u8> {
    let padded = |bytes: &[u8], len| [bytes, &[0; 20][..len - bytes.len()]].concat();
    let waits = |id: &[u8]| [padded(id, 12), vec![0, 64, 0, 0], vec![0; 22]].concat();
    let count = u8::try_from(list.len()).unwrap();
    let mut text = [vec![kind as u8, 0], waits(sender), padded(token, 20), vec![0; 8]].concat();
    text.extend([count, 0]);
    list.iter().for_each(|id| text.extend(waits(id)));
    text.extend(key);
    let head = push(rig, "message", &format!("${}\r\n", text.len()));
    [head.as_bytes(), &text, b"\r\n"].concat()
}

pub(super) fn push(rig: &Rig, what: &str, last: &str) -> String {
    let channel: String =
        rig.engine.waiting.client_id().iter().map(|byte| format!("{byte:02x}")).collect();
    format!(">3\r\n${}\r\n{what}\r\n$26\r\nredbolt:3:{channel}\r\n{last}", what.len())
}

pub(super) const ANNOUNCE: char = '\u{1}';
pub(super) const WAKE: char = '\u{2}';
pub(super) const GIVE_UP: char = '\u{3}';
pub(super) const REMOVAL: char = '\u{5}';

/// `nodes` nodes that carry messages.
pub(super) fn rig(nodes: usize) -> Rig {
    let mut rig = Rig::with(nodes, |config| config.direct_wake(true));
    (0..nodes).for_each(|index| subscribed(&mut rig, index));
    rig
}

/// The node confirms that it carries messages.
pub(super) fn subscribed(rig: &mut Rig, index: usize) {
    assert_eq!(rig.waiting(index), ["SUBSCRIBE"]);
    rig.inbox[index].clear();
    let confirmed = push(rig, "subscribe", ":1\r\n");
    rig.receive(index, &confirmed);
}

pub(super) fn waiting() -> LockOptions {
    LockOptions::new(TTL).retry(Retry::every(DELAY, Duration::ZERO).timeout(Duration::from_secs(5)))
}

/// An acquisition that every node has denied. Returns the node that the client asks for the holder.
pub(super) fn denied(rig: &mut Rig) -> usize {
    rig.acquire_with("a", waiting());
    deny(rig)
}

pub(super) fn deny(rig: &mut Rig) -> usize {
    rig.answer_all(0..rig.inbox.len(), "_\r\n");
    // The attempt did not wait for the last node: its SET is released.
    for index in 0..rig.inbox.len() {
        if rig.waiting(index) == ["DELIFEQ"] {
            rig.answer(index, ":0\r\n");
        }
    }
    let asked = asked(rig);
    assert_eq!(rig.waiting(asked), ["EVAL"]);
    asked
}

/// The one node that has a request to answer.
pub(super) fn asked(rig: &mut Rig) -> usize {
    rig.collect();
    let mut busy = (0..rig.inbox.len()).filter(|&index| !rig.inbox[index].is_empty());
    let asked = busy.next().expect("a node is asked");
    assert_eq!(busy.next(), None, "one node is asked");
    asked
}

pub(super) fn answer_each(rig: &mut Rig, index: usize, answers: &[&str]) {
    for answer in answers {
        rig.answer(index, answer);
    }
}

/// A call that waits behind `OTHER`, which knows of it.
pub(super) fn listening(rig: &mut Rig) -> usize {
    let node = denied(rig);
    rig.answer(node, &introduced(&token_of(OTHER), true));
    assert_eq!(rig.waiting(node), Vec::<String>::new());
    node
}

/// A node's answer to a call that introduces itself to the holder of the key.
pub(super) fn introduced(holder: &str, is_heard: bool) -> String {
    format!("*3\r\n{holder}:9000\r\n:{}\r\n", u8::from(is_heard))
}

/// The channel and the kind of the first message that a node is to publish.
pub(super) fn published(rig: &mut Rig, index: usize) -> (String, char) {
    rig.collect();
    let command = rig.inbox[index].iter().find(|command| command[0] == "PUBLISH");
    let command = command.expect("a message");
    (command[1].clone(), command[2].chars().next().expect("a kind"))
}

#[test]
fn the_step_behind_a_denial_depends_on_the_holder_of_the_key() {
    // The node's answer; whether the client asks another node, and its requests to the first.
    let table: [(String, bool, &[&str]); 4] = [
        ("_\r\n".to_owned(), false, &["SET"]),
        (introduced(&token_of(OTHER), true), false, &[]),
        (introduced(&token_of(OTHER), false), true, &[]),
        (introduced(ALIEN, false), false, &[]),
    ];
    for (answer, is_next_asked, written) in table {
        let mut rig = rig(3);
        let node = denied(&mut rig);
        rig.answer(node, &answer);
        assert_eq!(rig.waiting(node), written, "{answer}");
        let is_other_asked = (0..3).any(|other| other != node && !rig.waiting(other).is_empty());
        assert_eq!(is_other_asked, is_next_asked, "{answer}");
    }
}

pub(super) const ALIEN: &str = "$5\r\nalien\r\n";

#[test]
fn the_time_of_a_lock_of_another_kind_is_waited_for() {
    let mut rig = rig(3);
    let node = denied(&mut rig);
    rig.answer(node, &introduced(ALIEN, false).replace(":9000", ":9"));
    rig.advance(9 * MS);
    assert_eq!(rig.waiting(node), Vec::<String>::new());
    rig.advance(2 * MS);
    assert_eq!(rig.waiting(node), ["SET"]);
}

/// A key that a client left behind at one node must not keep waiters from a free lock.
#[test]
fn the_nodes_of_a_lock_of_another_kind_are_polled_in_turn() {
    let mut rig = rig(3);
    let first = denied(&mut rig);
    rig.answer(first, &introduced(ALIEN, false));
    rig.advance(101 * MS);
    let next = (first + 1) % 3;
    assert_eq!(asked(&mut rig), next);
    assert_eq!(rig.waiting(next), ["GET"]);
    rig.answer(next, "_\r\n");
    assert_eq!(rig.waiting(next), ["SET"], "it is free there");
}

#[test]
fn a_call_that_no_holder_hears_polls_a_node_four_times_per_second_at_most() {
    for answer in [introduced(ALIEN, false), "-NOPERM no scripts\r\n".to_owned()] {
        let mut rig = rig(1);
        let often = Retry::every(Duration::ZERO, Duration::ZERO).timeout(Duration::from_secs(5));
        rig.acquire_with("a", LockOptions::new(TTL).retry(often));
        rig.answer(0, "_\r\n");
        assert_eq!(rig.waiting(0), ["EVAL"]);
        rig.answer(0, &answer);
        let (begun, mut polls) = (rig.now, 0);
        while begun.until(rig.now) < 1_000 * MS {
            match rig.waiting(0).first() {
                Some(_) => {
                    polls += 1;
                    rig.answer(0, ALIEN);
                }
                None => rig.advance(MS),
            }
        }
        assert!((3..=4).contains(&polls), "{polls} in 1 s");
    }
}

#[test]
fn a_waiter_says_so_by_the_first_node_of_the_keys_order_though_it_denied_late() {
    let mut rig = rig(3);
    let first = denied(&mut rig);
    let mut rig = self::rig(3);
    rig.acquire_with("a", waiting());
    let asked = (first + 1) % 3;
    rig.answer_all([asked, (first + 2) % 3], "_\r\n");
    assert_eq!(rig.waiting(asked), ["EVAL"]);
    answer_each(&mut rig, first, &["_\r\n", ":0\r\n"]);
    rig.answer(asked, &introduced(&token_of(OTHER), false));
    assert_eq!(rig.waiting(first), ["EVAL"]);
    assert_eq!(rig.waiting(asked), Vec::<String>::new());
}

#[test]
fn the_other_nodes_are_asked_only_when_the_first_grants() {
    for (answer, others) in [("+OK\r\n", &["SET"][..]), ("_\r\n", &[])] {
        let mut rig = rig(3);
        let node = denied(&mut rig);
        answer_each(&mut rig, node, &["_\r\n", answer]);
        let other = (node + 1) % 3;
        assert_eq!(rig.waiting(other), others);
        if answer == "+OK\r\n" {
            rig.answer(other, "+OK\r\n");
            rig.locked();
        } else {
            assert_eq!(rig.waiting(node), ["EVAL"], "and it is asked who holds it now");
        }
    }
}

#[test]
fn a_gated_lease_counts_from_the_first_set() {
    let mut rig = rig(3);
    let node = denied(&mut rig);
    rig.answer(node, "_\r\n");
    let t0 = rig.now;
    rig.collect();
    rig.now = rig.now + 5 * MS;
    rig.answer(node, "+OK\r\n");
    rig.now = rig.now + 5 * MS;
    rig.answer((node + 1) % 3, "+OK\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.deadline(lease), Some(t0 + TTL - 102 * MS));
}

#[test]
fn a_holder_that_does_not_hear_is_told_by_the_next_node() {
    let mut rig = rig(3);
    let first = denied(&mut rig);
    rig.answer(first, &introduced(&token_of(OTHER), false));
    let second = asked(&mut rig);
    assert_ne!(first, second);
    assert_eq!(rig.waiting(second), ["EVAL"]);
}

/// Time passes, and polls find this holder, until the call tells it that it waits.
fn until_told(rig: &mut Rig, node: usize, holder: &str) {
    for _ in 0..400 {
        rig.advance(MS);
        match rig.waiting(node).first().map(String::as_str) {
            None => {}
            Some("GET") => rig.answer(node, &token_of(holder)),
            Some(_) => return assert_eq!(rig.waiting(node), ["EVAL"]),
        }
    }
    panic!("it is not told");
}

/// The client that was found without the lock passes the announcement on, or wakes the call.
#[test]
fn a_new_holder_is_told_when_the_key_has_changed_hands() {
    let mut rig = rig(3);
    let node = listening(&mut rig);
    until_told(&mut rig, node, THIRD);
}

#[test]
fn a_waiter_that_is_woken_tries_all_nodes_at_once() {
    let mut rig = rig(3);
    let node = listening(&mut rig);
    let wake = message(&rig, WAKE, OTHER, &[]);
    rig.receive(node, &wake);
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["SET"]);
    }
}

#[test]
fn a_waiter_that_gives_up_when_it_was_woken_wakes_the_next() {
    let mut rig = rig(1);
    let op = rig.acquire_with("a", waiting());
    deny(&mut rig);
    rig.answer(0, &introduced(&token_of(OTHER), true));
    let wake = message(&rig, WAKE, OTHER, &[THIRD]);
    rig.receive(0, &wake);
    rig.engine.cancel(op, rig.now);
    assert!(matches!(rig.refused(), LockError::Cancelled));
    assert_eq!(rig.waiting(0), ["SET", "DELIFEQ", "PUBLISH"]);
    assert_eq!(published(&mut rig, 0), (THIRDS_CHANNEL.to_owned(), WAKE));
}

#[test]
fn a_call_that_comes_while_an_announcement_is_under_way_is_not_taken_to_be_in_it() {
    let mut rig = rig(1);
    denied(&mut rig);
    rig.collect();
    let late = message(&rig, ANNOUNCE, THIRD, &[]);
    rig.receive(0, &late);
    rig.answer(0, &introduced(&token_of(OTHER), true));
    let wake = message(&rig, WAKE, OTHER, &[]);
    rig.receive(0, &wake);
    rig.answer(0, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.release(lease, rig.now);
    assert_eq!(published(&mut rig, 0), (THIRDS_CHANNEL.to_owned(), WAKE));
}

#[test]
pub(super) fn two_that_wait_for_each_other_try_again() {
    let mut rig = rig(3);
    let node = listening(&mut rig);
    let mutual = message(&rig, ANNOUNCE, OTHER, &[]);
    rig.receive(node, &mutual);
    let gate = asked(&mut rig);
    assert_eq!(rig.waiting(gate), ["SET"]);
}

#[test]
fn a_client_that_wants_the_lock_again_tells_the_waiter_it_woke_behind_the_wake_and_looks_soon() {
    let mut rig = rig(3);
    let node = listening(&mut rig);
    let wake = message(&rig, WAKE, OTHER, &[THIRD]);
    rig.receive(node, &wake);
    rig.answer_all(0..3, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.release(lease, rig.now);
    rig.acquire_with("a", waiting());
    assert_eq!(rig.waiting(node), ["DELIFEQ", "PUBLISH", "PUBLISH"]);
    assert_eq!(rig.inbox[node][2][1], THIRDS_CHANNEL);
    answer_each(&mut rig, node, &[":1\r\n", ":1\r\n", ":1\r\n"]);
    rig.answer_all((0..3).filter(|&other| other != node), ":1\r\n");
    assert_eq!(rig.waiting(node), Vec::<String>::new(), "nobody is asked for the lock");
    rig.advance(21 * MS);
    assert_eq!(rig.waiting(node), ["GET"], "whether anybody holds it");
    // Another client holds it. No node has denied the call anything, and yet it announces itself.
    rig.answer(node, &token_of(OTHER));
    until_told(&mut rig, node, OTHER);
}

/// A client that held the lock, and has woken `OTHER` by the node.
fn woke(rig: &mut Rig) -> usize {
    let node = listening(rig);
    let wake = message(rig, WAKE, THIRD, &[OTHER]);
    rig.receive(node, &wake);
    rig.answer_all(0..rig.inbox.len(), "+OK\r\n");
    rig.collect();
    let lease = rig.locked();
    rig.engine.release(lease, rig.now);
    node
}

/// The woken client asks every node at once: a node that does not have the release yet would deny
/// it.
#[test]
fn the_node_that_wakes_is_written_to_behind_the_others() {
    let mut rig = rig(5);
    let node = woke(&mut rig);
    let [others, waking] = rig.engine.poll_writes();
    assert_eq!((others.count(), waking.count()), (4, 1));
    assert_eq!(waking.first_node(), NodeId::new(node));
    assert_eq!(others.union(waking), rig.engine.nodes_with_output());
    assert_eq!(rig.engine.poll_writes().map(|group| group.count()), [5, 0], "told once");
}

/// A client that queues again may be late by many turns. Each holder passes its announcement on to
/// the next, within bounds.
#[test]
fn an_announcement_that_is_late_by_some_turns_goes_on_to_the_present_holder() {
    for (hops, channel, kind) in
        [(7, OTHERS_CHANNEL, ANNOUNCE), (8, THIRDS_CHANNEL, WAKE), (255, THIRDS_CHANNEL, WAKE)]
    {
        let mut rig = rig(3);
        let node = woke(&mut rig);
        rig.collect();
        answer_each(&mut rig, node, &[":1\r\n", ":1\r\n"]);
        let mut late = message(&rig, ANNOUNCE, THIRD, &[]);
        let text = late.windows(3).position(|bytes| bytes == b"\x01\x00a").unwrap();
        late[text + 1] = hops;
        rig.engine.handle_bytes(NodeId::new(node).unwrap(), &late, rig.now);
        assert_eq!(published(&mut rig, node), (channel.to_owned(), kind), "{hops} hops");
        if kind == ANNOUNCE {
            let text = rig.inbox[node].last().expect("the announcement")[2].clone();
            assert_eq!(text.as_bytes()[1], hops + 1);
        }
    }
}

/// A client behind many others gets its turn late: an earlier look would find the lock changing
/// hands.
#[test]
fn the_first_look_is_later_for_each_that_has_its_turn_before() {
    let mut rig = rig(3);
    let node = listening(&mut rig);
    let others: Vec<String> = (0..30).map(|other| format!("client{other:02}")).collect();
    let list: Vec<&str> = others.iter().map(String::as_str).collect();
    let wake = message(&rig, WAKE, OTHER, &list);
    rig.receive(node, &wake);
    rig.answer_all(0..3, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.release(lease, rig.now);
    rig.acquire_with("a", waiting());
    answer_each(&mut rig, node, &[":1\r\n", ":1\r\n", ":1\r\n"]);
    rig.answer_all((0..3).filter(|&other| other != node), ":1\r\n");
    rig.advance(10 * MS + 29 * 2 * MS - MS);
    assert_eq!(rig.waiting(node), Vec::<String>::new());
    rig.advance(10 * MS + 29 * 2 * MS + 2 * MS);
    assert_eq!(rig.waiting(node), ["GET"]);
}

/// Many waiters look now and then. If each took a lock that is on its way to the next, it would mix
/// their order and cost every node two commands.
#[test]
fn a_poll_that_finds_the_lock_gone_looks_again_before_it_tries() {
    for is_taken in [false, true] {
        let mut rig = rig(3);
        let node = listening(&mut rig);
        rig.advance(201 * MS);
        let gone = |rig: &mut Rig| {
            for _ in 0..3 {
                assert_eq!(rig.waiting(node), ["GET"]);
                rig.answer(node, "_\r\n");
                assert_eq!(rig.waiting(node), Vec::<String>::new());
                rig.advance(3 * MS);
            }
            assert_eq!(rig.waiting(node), ["GET"]);
        };
        gone(&mut rig);
        if is_taken {
            rig.answer(node, &token_of(THIRD));
            assert_eq!(rig.waiting(node), ["EVAL"]);
            rig.answer(node, &introduced(&token_of(THIRD), true));
            while rig.waiting(node).is_empty() {
                rig.advance(MS);
            }
            gone(&mut rig);
        }
        rig.answer(node, "_\r\n");
        assert_eq!((asked(&mut rig), rig.waiting(node)), (node, vec!["SET".to_owned()]));
    }
}

#[test]
pub(super) fn a_waiter_that_gives_up_tells_the_holder() {
    let mut rig = rig(3);
    let op = rig.acquire_with("a", waiting());
    let node = deny(&mut rig);
    rig.answer(node, &introduced(&token_of(OTHER), true));
    rig.engine.cancel(op, rig.now);
    assert!(matches!(rig.refused(), LockError::Cancelled));
    assert_eq!(published(&mut rig, node), (OTHERS_CHANNEL.to_owned(), GIVE_UP));
}

#[test]
fn without_channels_the_key_is_polled_after_the_delay() {
    let mut rig = Rig::unconnected(1, |config| config.direct_wake(true));
    let resp2 = HELLO.replace("%3", "*6").replace("proto\r\n:3", "proto\r\n:2");
    rig.greet(0, &resp2, "run_id:1\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
    assert_eq!(rig.waiting(0), Vec::<String>::new(), "no SUBSCRIBE over RESP2");
    let slow = Retry::every(300 * MS, Duration::ZERO).timeout(Duration::from_secs(5));
    rig.acquire_with("a", LockOptions::new(TTL).retry(slow));
    rig.answer(0, "_\r\n");
    for _ in 0..3 {
        assert_eq!(rig.waiting(0), Vec::<String>::new());
        rig.advance(301 * MS);
        assert_eq!(rig.waiting(0), ["GET"]);
        rig.answer(0, &token_of(OTHER));
    }
    rig.advance(301 * MS);
    rig.answer(0, "_\r\n");
    assert_eq!(rig.waiting(0), ["SET"]);
}

/// After any other answer in the place of SUBSCRIBE, each answer would go to the request before its
/// own.
#[test]
fn only_this_clients_own_subscription_or_an_error_answers_subscribe() {
    let own = |rig: &Rig| push(rig, "subscribe", ":1\r\n");
    let other = ">3\r\n+subscribe\r\n+redbolt:0123456789abcdef\r\n:1\r\n";
    for answer in ["_\r\n", "+OK\r\n", ":1\r\n", "*0\r\n", other, ">1\r\n+subscribe\r\n"] {
        let mut rig = Rig::with(1, |config| config.direct_wake(true));
        rig.acquire("a");
        rig.acquire("b");
        assert_eq!(rig.waiting(0), ["SUBSCRIBE", "SET", "SET"]);
        rig.receive(0, answer);
        assert!(!rig.engine.is_connected(node(0)), "{answer:?}");
    }
    // The confirmation comes when SUBSCRIBE is not at the head, or a second time.
    for before in ["", "+OK\r\n"] {
        let mut rig = rig(1);
        rig.acquire("a");
        rig.receive(0, before);
        let again = own(&rig);
        rig.receive(0, &again);
        assert!(!rig.engine.is_connected(node(0)));
    }
    // A client that may not subscribe can still lock.
    let mut rig = Rig::with(1, |config| config.direct_wake(true));
    rig.acquire("a");
    rig.receive(
        0,
        "-NOPERM this user has no permissions to run the 'subscribe' command\r\n+OK\r\n",
    );
    let _lease = rig.locked();
    assert!(rig.engine.is_connected(node(0)));
}

/// A lock goes from hand to hand fast, and a call is woken too late each time.
#[test]
fn a_call_that_tries_again_and_again_leaves_no_timers_behind() {
    let mut rig = rig(1);
    listening(&mut rig);
    for turn in 0..4_000 {
        let wake = message(&rig, WAKE, OTHER, &[]);
        rig.receive(0, &wake);
        let holder = token_of(OTHER).replace(&"11".repeat(12), &format!("{turn:024x}"));
        answer_each(&mut rig, 0, &["_\r\n", &introduced(&holder, true)]);
        rig.now = rig.now + MS / 100;
        rig.pass();
    }
    let timers = rig.engine.locks.timers.len();
    assert!(timers <= 3, "{timers} timers of one call");
    assert_eq!(rig.engine.in_flight(), 1);
    // The remaining timers end the call in time.
    rig.advance(Duration::from_secs(6));
    rig.refused();
}

//! Nodes that a client must not believe, or must not write to, for the moment.

use super::waking::{OTHER, THIRD, WAKE, message_for, own_waiter, subscribed};
use super::*;
use crate::guards::FailoverGuard;
use crate::rules;

const LOADING: &str = "-LOADING Valkey is loading the dataset in memory\r\n";
/// The facts of the servers that a rig has as nodes 0 and 1.
const AT_0: &str = "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n";
const AT_1: &str = "run_id:1\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n";
const READONLY: &str = "-READONLY You can't write against a read only replica.\r\n";

fn guarded(nodes: usize) -> Rig {
    Rig::with(nodes, |config| config.restart_guard(RestartGuard::On).max_ttl(TTL))
}

fn state(rig: &Rig, index: usize) -> NodeState {
    rig.engine.nodes(rig.now)[index].state
}

#[test]
pub(super) fn a_grant_behind_an_answer_that_no_master_in_service_gives_is_not_believed() {
    for error in [LOADING, READONLY, "-MASTERDOWN Link with MASTER is down\r\n"] {
        let mut rig = guarded(3);
        rig.acquire("a");
        rig.acquire("b");
        rig.answer_all([0, 1], "+OK\r\n");
        rig.locked();
        // The answers come in two reads: the second could be taken for an everyday answer.
        rig.answer(2, error);
        assert!(matches!(state(&rig, 2), NodeState::Quarantined(_)), "{error}");
        rig.answer(2, "+OK\r\n");
        rig.answer(0, "+OK\r\n");
        rig.answer(1, "_\r\n");
        let refused = rig.refused();
        assert_eq!(vote_of(&refused, 2), Vote::Unknown(Cause::Quarantined), "{error}");
    }
}

#[test]
fn a_node_that_is_not_believed_makes_up_no_quorum_of_an_extension() {
    let mut rig = guarded(3);
    // A request of this client is pending at node 2 before the SET.
    let old = rig.lease("old");
    rig.engine.release(old, rig.now);
    rig.answer_all([0, 1], ":1\r\n");
    rig.acquire("a");
    rig.answer_all([0, 1], "+OK\r\n");
    let lease = rig.locked();
    rig.answer(2, READONLY);
    rig.answer(2, "+OK\r\n");
    assert_eq!(rig.engine.votes(lease).count(), 2);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    while rig.waiting(2)[0] != "SET" {
        rig.answer(2, ":0\r\n");
    }
    rig.answer(2, "+OK\r\n");
    rig.answer(0, "+OK\r\n");
    rig.answer(1, "_\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Err(_), .. })), "{event:?}");
    assert_eq!(rig.engine.votes(lease).count(), 1, "node 1 no longer holds the key");
}

#[test]
fn nothing_is_written_to_a_node_while_its_connection_is_lost() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer(1, "_\r\n");
    rig.answer(2, "+OK\r\n");
    // No quorum is left, so the attempt is released: at the lost node as a debt.
    rig.lose(0);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
    assert!(rig.engine.output(node(0)).is_empty());
    assert_eq!(rig.engine.nodes(rig.now)[0].debts, 1);
}

#[test]
pub(super) fn a_node_that_is_owed_releases_gets_no_set_before_them() {
    let mut rig = Rig::unconnected(1, |config| config);
    rig.engine.limit(Room { output_len: 800, ..Room::default() });
    rig.connect(0);
    let leases: Vec<LeaseId> = (0..6).map(|key| rig.lease(&format!("key {key}"))).collect();
    rig.lose(0);
    for lease in leases {
        rig.engine.release(lease, rig.now);
    }
    rig.connect(0);
    // The debts go out in portions, and there is room for the SET behind the first of them.
    let owed = rig.engine.nodes(rig.now)[0].debts;
    assert!(owed > 0 && !rig.waiting(0).is_empty());
    rig.acquire("key 5");
    assert!(!rig.waiting(0).contains(&"SET".to_owned()));
}

#[test]
pub(super) fn the_second_address_of_a_server_hears_no_message_a_second_time() {
    const INFO: &str = "run_id:x\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n";
    let mut rig = Rig::unconnected(2, |config| config.direct_wake(true));
    for index in [0, 1] {
        rig.greet(index, HELLO, INFO);
    }
    assert_eq!(rig.waiting(0), ["SUBSCRIBE"]);
    assert!(rig.waiting(1).is_empty());
}

/// Each call on the list passes the list on: two messages for one would be thousands after ten
/// calls.
#[test]
fn a_server_that_is_refused_at_one_of_its_addresses_is_heard_at_one_of_them() {
    let mut rig = Rig::unconnected(2, |config| config.direct_wake(true));
    for (index, policy) in [(0, "allkeys-lru"), (1, "noeviction")] {
        rig.greet(index, HELLO, &format!("{AT_0}maxmemory_policy:{policy}\r\n"));
        subscribed(&mut rig, index);
    }
    let word = message_for(&rig, &own_waiter(&rig, 1), WAKE, OTHER.as_bytes(), &[THIRD.as_bytes()]);
    for index in [0, 1] {
        rig.receive(index, &word);
    }
    let passed_on = [rig.waiting(0), rig.waiting(1)].concat();
    assert_eq!(passed_on, ["PUBLISH"], "the call that was woken is over");
}

#[test]
fn of_two_addresses_of_one_server_one_votes_whichever_it_is() {
    const INFO: &str = "run_id:x\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n";
    let votes = |rig: &Rig| {
        let nodes = rig.engine.nodes(rig.now);
        nodes.iter().map(|node| node.votes).collect::<Vec<_>>()
    };
    let mut rig = Rig::unconnected(2, |config| config);
    for index in [0, 1] {
        rig.greet(index, HELLO, INFO);
    }
    assert_eq!(votes(&rig), [true, false]);
    rig.lose(0);
    rig.greet(1, HELLO, INFO);
    assert_eq!(votes(&rig), [false, true], "the other has left");
    rig.greet(0, HELLO, INFO);
    assert_eq!(votes(&rig), [false, true]);
    rig.lose(1);
    rig.greet(1, HELLO, INFO);
    assert_eq!(votes(&rig), [false, true], "the other is connected, but refused for its sake");
}

/// The address of node 0 has come to lead to node 1, too, and an extension of the lease is under way.
fn extending_with_node_0_at_node_1() -> (Rig, LeaseId) {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.lose(0);
    rig.greet(0, HELLO, AT_1);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    (rig, lease)
}

/// An extension that goes to the address of node 0 may run behind a longer one that goes to node 1.
#[test]
fn of_two_addresses_of_one_server_one_gets_extensions() {
    let (mut rig, _) = extending_with_node_0_at_node_1();
    assert!(rig.waiting(0).is_empty());
    rig.answer(1, "+OK\r\n");
    assert!(rig.engine.poll_event(rig.now).is_none(), "one server has answered");
    rig.answer(2, "+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
}

/// The address of node 1 comes to lead to the server that has just extended as node 0.
#[test]
fn a_server_that_answers_at_two_addresses_in_turn_has_one_vote_for_an_extension() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    (1..3).for_each(|index| rig.lose(index));
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer(0, "+OK\r\n");
    rig.lose(0);
    rig.until_wanted(0);
    rig.engine.handle_lost(node(0), Cause::ConnectionRefused, rig.now);
    rig.greet(1, HELLO, AT_0);
    assert_eq!(rig.waiting(1), ["SET"]);
    rig.answer(1, "+OK\r\n");
    assert!(rig.engine.poll_event(rig.now).is_none(), "one server has answered");
}

/// A replica whose writes are allowed shows its role only to reads.
#[test]
fn a_node_that_answers_a_question_as_no_master_does_is_not_believed() {
    let mut rig = Rig::with(3, |config| {
        config.restart_guard(RestartGuard::On).max_ttl(TTL).direct_wake(true)
    });
    for index in 0..3 {
        rig.collect();
        rig.inbox[index].clear();
        let confirmed = waking::push(&rig, "subscribe", ":1\r\n");
        rig.receive(index, &confirmed);
    }
    let asked = waking::denied(&mut rig);
    rig.answer(asked, "-MASTERDOWN Link with MASTER is down\r\n");
    assert!(matches!(state(&rig, asked), NodeState::Quarantined(_)));
}

/// The client stands still between its look at the clock and its look at the socket, and the node
/// restarts meanwhile. The node's age counts from a clock reading after the answer.
#[test]
pub(super) fn a_node_that_restarted_while_the_client_stood_still_waits_for_all_of_its_guard() {
    let mut rig = guarded(1);
    rig.lose(0);
    rig.until_wanted(0);
    rig.engine.handle_connected(node(0), rig.now);
    rig.collect();
    let pass_began = rig.now;
    rig.now = rig.now + TTL;
    let (restarted_at, age) = (rig.now - 3 * MS, 0);
    let now = rules::clock_of_message(pass_began, rig.now);
    let info = format!("run_id:new\r\nconnected_slaves:0\r\nuptime_in_seconds:{age}\r\n");
    let info = format!("${}\r\n{info}\r\n", info.len()).repeat(4);
    rig.engine.handle_bytes(node(0), format!("{HELLO}{info}").as_bytes(), now);
    let NodeState::Quarantined(left) = rig.engine.nodes(now)[0].state else { panic!("it votes") };
    assert!(restarted_at.until(now + left) >= TTL, "it votes too soon");
}

/// The looks that would show a failover stand behind the SET.
#[test]
fn a_look_behind_a_set_says_nothing_of_its_grant() {
    let mut rig = with_replica();
    rig.acquire("a");
    rig.advance(6_000 * MS);
    let waiting = rig.waiting(0);
    assert_eq!((waiting[0].as_str(), waiting[1].as_str()), ("SET", "INFO"));
    rig.answer(0, "+OK\r\n");
    assert_eq!(vote_of(&rig.refused(), 0), Vote::Unknown(Cause::Timeout));
}

/// One master that may fail over, watched by a client that has just connected.
fn with_replica() -> Rig {
    let mut rig = Rig::unconnected(1, |config| {
        config.restart_guard(RestartGuard::On).node_timeout(60_000 * MS)
    });
    greet_with_replica(&mut rig);
    rig
}

fn greet_with_replica(rig: &mut Rig) {
    rig.greet(0, HELLO, &replication("a"));
    assert_eq!(rig.waiting(0), ["CONFIG"]);
    rig.answer(0, "-NOPERM no settings\r\n");
    assert_eq!(state(rig, 0), NodeState::Admitted);
}

fn replication(replid: &str) -> String {
    format!(
        "run_id:0\r\nrole:master\r\nconnected_slaves:1\r\nmin_slaves_good_slaves:1\r\n\
         master_replid:{replid}\r\nuptime_in_seconds:9999\r\n"
    )
}

/// The old master may still grant the key to clients that are connected to it.
#[test]
fn a_promoted_master_extends_no_lease_before_it_votes() {
    let unguarded = replication("b").replace("min_slaves_good_slaves:1\r\n", "");
    let guarded = format!("{}master_replid2:a\r\n", replication("b"));
    for (promoted, guard, counts) in [
        (&guarded, FailoverGuard::On, false),
        (&unguarded, FailoverGuard::On, false),
        (&unguarded, FailoverGuard::Off, true),
    ] {
        let mut rig = Rig::unconnected(3, |config| {
            config.restart_guard(RestartGuard::On).failover_guard(guard)
        });
        rig.greet(0, HELLO, &replication("a"));
        if guard == FailoverGuard::On {
            rig.answer(0, "-NOPERM no settings\r\n");
        }
        (1..3).for_each(|index| rig.connect(index));
        rig.acquire("a");
        rig.answer_all(0..2, "+OK\r\n");
        rig.answer(2, "_\r\n");
        let lease = rig.locked();
        rig.lose(0);
        rig.greet(0, HELLO, &promoted.replace("run_id:0", "run_id:another"));
        for command in rig.waiting(0) {
            let answer = if command == "PTTL" { ":2592000000\r\n" } else { "+OK\r\n" };
            rig.answer(0, answer);
        }
        assert!(!rig.engine.voters().contains(node(0)));
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        rig.answer_all(0..2, "+OK\r\n");
        rig.answer(2, "_\r\n");
        let event = rig.engine.poll_event(rig.now);
        let is_extended = matches!(event, Some(Event::Extend { result: Ok(()), .. }));
        assert_eq!(is_extended, counts, "{promoted}: {event:?}");
    }
}

#[test]
fn a_promoted_master_waits_for_twelve_seconds_on_the_slowest_clock_of_the_old_one() {
    let mut rig = Rig::unconnected(1, |config| {
        config.restart_guard(RestartGuard::On).max_ttl(TTL).drift_factor(0.5)
    });
    rig.greet(0, HELLO, &format!("{}master_replid2:a\r\n", replication("b")));
    for command in rig.waiting(0) {
        rig.answer(0, if command == "PTTL" { ":2592000000\r\n" } else { "+OK\r\n" });
    }
    let NodeState::Quarantined(left) = state(&rig, 0) else { panic!("it votes") };
    assert!(left >= (TTL + 12_000 * MS) * 3 / 2, "{left:?}");
}

#[test]
fn a_client_that_stood_still_looks_for_a_failover_before_it_asks_for_a_vote() {
    let mut rig = with_replica();
    // No pass comes meanwhile.
    rig.now = rig.now + 10_000 * MS;
    rig.acquire("a");
    assert_eq!(rig.waiting(0), ["INFO", "SET"]);
    let info = replication("b");
    rig.answer(0, &format!("${}\r\n{info}\r\n", info.len()));
    rig.answer(0, "+OK\r\n");
    assert!(matches!(rig.refused(), LockError::NoQuorum(_)));
}

/// Their answers never come.
#[test]
fn looks_that_are_lost_with_their_connection_are_followed_by_others() {
    let mut rig = with_replica();
    rig.advance(4_000 * MS);
    assert_eq!(rig.waiting(0), ["INFO"; 4]);
    rig.lose(0);
    greet_with_replica(&mut rig);
    rig.advance(3_000 * MS);
    let info = replication("a");
    while !rig.waiting(0).is_empty() {
        rig.answer(0, &format!("${}\r\n{info}\r\n", info.len()));
    }
    rig.acquire("a");
    rig.answer(0, "+OK\r\n");
    rig.locked();
}

/// A lease of `with_replica`.
fn held_with_replica() -> (Rig, LeaseId) {
    let mut rig = with_replica();
    rig.acquire("a");
    rig.answer(0, "+OK\r\n");
    let lease = rig.locked();
    (rig, lease)
}

fn is_extended(rig: &mut Rig) -> bool {
    rig.answer(0, "+OK\r\n");
    matches!(rig.engine.poll_event(rig.now), Some(Event::Extend { result: Ok(()), .. }))
}

#[test]
fn a_client_that_stood_still_looks_for_a_failover_before_it_extends() {
    for (replid, counts) in [("a", true), ("b", false)] {
        let (mut rig, lease) = held_with_replica();
        rig.now = rig.now + 5_000 * MS;
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        assert_eq!(rig.waiting(0), ["INFO", "SET"]);
        let info = replication(replid);
        rig.answer(0, &format!("${}\r\n{info}\r\n", info.len()));
        assert_eq!(is_extended(&mut rig), counts, "{replid}");
    }
}

#[test]
fn an_extension_that_may_have_come_long_after_a_look_does_not_count() {
    for (pause, counts) in [(1_500, true), (2_500, false)] {
        let (mut rig, lease) = held_with_replica();
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        rig.now = rig.now + pause * MS;
        assert_eq!(rig.waiting(0), ["SET"]);
        assert_eq!(is_extended(&mut rig), counts, "{pause}");
    }
}

#[test]
pub(super) fn a_grant_that_may_have_come_long_after_a_look_does_not_count() {
    let grants = [("SET", "+OK\r\n"), ("MSETEX", ":1\r\n"), ("EVAL", "$1\r\n1\r\n")];
    for (command, grant) in grants {
        for (pause, counts) in [(1_500, true), (2_500, false)] {
            let mut rig = with_replica();
            let one = LockOptions::new(TTL);
            let begun = match command {
                "SET" => rig.engine.try_lock(b"a", &one, rig.now),
                "MSETEX" => rig.engine.try_lock_all(&["a", "b"], &one, rig.now),
                _ => rig.engine.try_lock(b"a", &one.slots(2), rig.now),
            };
            begun.unwrap();
            // The client may have stood still before its write.
            rig.now = rig.now + pause * MS;
            assert_eq!(rig.waiting(0), [command]);
            rig.answer(0, grant);
            let is_won = rig.lock_result().expect("decided").is_ok();
            assert_eq!(is_won, counts, "{command} {pause}");
        }
    }
}

/// A lease of three nodes. The client has refused node 0 since the extension.
fn held_with_refused() -> (Rig, LeaseId) {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer(0, "-NOAUTH Authentication required.\r\n");
    rig.answer_all(1..3, "+OK\r\n");
    rig.engine.poll_event(rig.now).unwrap();
    assert_eq!(state(&rig, 0), NodeState::Refused);
    (rig, lease)
}

/// Node 0 is refused, and has not answered a shorter extension. The address of node 2 comes to lead to
/// its server.
#[test]
fn a_server_that_may_still_run_a_shorter_extension_gets_no_longer_one_at_another_address() {
    let (mut rig, lease) = held_with_refused();
    rig.engine.extend(lease, TTL / 2, rig.now).unwrap();
    assert_eq!(rig.waiting(0), ["SET"]);
    rig.answer_all(1..3, "+OK\r\n");
    rig.engine.poll_event(rig.now).unwrap();
    rig.lose(2);
    rig.greet(2, HELLO, AT_0);
    assert_eq!(state(&rig, 2), NodeState::Admitted);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(2), Vec::<String>::new());
}

/// The address of node 2 comes to lead to the server of node 0.
#[test]
fn a_server_that_is_refused_at_one_address_gets_extensions_at_the_other_alone() {
    let (mut rig, lease) = held_with_refused();
    rig.lose(2);
    rig.greet(2, HELLO, AT_0);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!((rig.waiting(0), rig.waiting(2)), (vec![], vec!["SET".into()]));
}

/// The address of node 0 stands in front of that of node 1 in the list.
#[test]
fn a_server_is_extended_at_an_address_that_is_refused_while_the_other_is_refused_for_its_sake() {
    let (mut rig, lease) = extending_with_node_0_at_node_1();
    rig.answer(1, "-NOAUTH Authentication required.\r\n");
    rig.answer(2, "+OK\r\n");
    rig.engine.poll_event(rig.now).unwrap();
    assert_eq!((state(&rig, 0), state(&rig, 1)), (NodeState::Refused, NodeState::Refused));
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!((rig.waiting(0), rig.waiting(1)), (vec![], vec!["SET".into()]));
}

/// The client loses the connection at the address by which it asks the server.
#[test]
fn a_server_that_is_refused_at_two_addresses_gets_extensions_at_one() {
    const INFO: &str = "run_id:1\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n\
                        maxmemory_policy:allkeys-lru\r\n";
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    (0..2).for_each(|index| rig.lose(index));
    (0..2).for_each(|index| rig.greet(index, HELLO, INFO));
    rig.engine.extend(lease, TTL / 2, rig.now).unwrap();
    assert_eq!((rig.waiting(0), rig.waiting(1)), (vec!["SET".into()], vec![]));
    rig.answer(2, "+OK\r\n");
    rig.lose(0);
    rig.advance(60 * MS);
    while rig.engine.poll_event(rig.now).is_some() {}
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(1), Vec::<String>::new(), "it may run the shorter one yet");
}

/// The server has extended the key as node 0. As node 1 it lacks the key.
#[test]
fn a_server_that_gets_the_token_again_at_another_address_has_one_vote() {
    let mut rig = Rig::new(3);
    rig.acquire("a");
    rig.answer_all([0, 2], "+OK\r\n");
    let lease = rig.locked();
    (1..3).for_each(|index| rig.lose(index));
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer(0, "+OK\r\n");
    rig.lose(0);
    rig.until_wanted(0);
    rig.engine.handle_lost(node(0), Cause::ConnectionRefused, rig.now);
    rig.greet(1, HELLO, AT_0);
    rig.answer(1, "_\r\n");
    assert_eq!(rig.waiting(1), ["SET"]);
    assert_eq!(rig.inbox[1][0][3], "NX");
    rig.answer(1, "+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(event.is_none(), "one server has answered: {event:?}");
}

/// Node 0 may have failed over since the last look.
#[test]
fn a_grant_that_is_not_believed_is_extended_and_released_like_any_other() {
    for is_lost in [false, true] {
        let mut rig = Rig::unconnected(3, |config| {
            config.restart_guard(RestartGuard::On).node_timeout(60_000 * MS)
        });
        greet_with_replica(&mut rig);
        (1..3).for_each(|index| rig.connect(index));
        rig.acquire("a");
        rig.now = rig.now + 2_500 * MS;
        rig.answer_all(0..3, "+OK\r\n");
        let lease = rig.locked();
        assert_eq!(rig.engine.votes(lease).count(), 2);
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        assert_eq!(rig.waiting(0), ["INFO", "SET"]);
        assert_eq!(rig.inbox[0][1][3], "IFEQ");
        if is_lost {
            rig.lose(0);
        }
        rig.engine.release(lease, rig.now);
        let health = &rig.engine.nodes(rig.now)[0];
        assert_eq!(health.debts, usize::from(is_lost));
        let written: &[&str] = if is_lost { &[] } else { &["INFO", "SET", "DELIFEQ"] };
        assert_eq!(rig.waiting(0), written);
    }
}

/// A script runs on the server for longer.
#[test]
fn a_subscription_that_a_busy_node_refuses_is_repeated_once_a_second() {
    let mut rig = Rig::with(1, |config| config.direct_wake(true));
    let mut asked = 0;
    for _ in 0..1_000 {
        while !rig.waiting(0).is_empty() {
            assert_eq!(rig.inbox[0][0][0], "SUBSCRIBE");
            asked += 1;
            rig.answer(0, "-BUSY Valkey is busy running a script.\r\n");
        }
        rig.advance(10 * MS);
    }
    assert!((9..=11).contains(&asked), "{asked} times in ten seconds");
}

//! Masters that fail over: which vote, and how long a promoted one waits.

use super::admission::{History, Standing};
use super::greeting::Floor;
use super::tests::{
    RULES, S, VALKEY_91, admit, at, conclude, feed, greeting, info, master, new_node, now, sent,
    until,
};
use super::*;
use crate::guards::{FailoverGuard, RestartGuard};

/// A master with this many replicas, whose writes need some.
fn master_of(replicas: u64) -> Facts {
    let replicas = Some(replicas);
    Facts { replicas, has_backlog: true, has_floor: true, is_asked_more: true, ..master("a", 3600) }
}

#[test]
fn a_promoted_node_waits_until_the_old_master_has_ceased_and_its_locks_are_over() {
    let lasts = |facts: &Facts, rules: &AdmissionRules| {
        History::default().admit(facts, rules, |_| false, at(0))
    };
    let promoted = Facts { was_replica: true, ..master_of(1) };
    // The old master took its last lock 13 s after the promotion, at most.
    assert_eq!(lasts(&promoted, &RULES), until(at(43)));
    let met = |seconds| Facts { met_for: Some(seconds * S + S / 500), ..promoted.clone() };
    assert_eq!(lasts(&met(42), &RULES), until(at(1)));
    assert_eq!(lasts(&met(43), &RULES), Standing::Admitted);
    // This node has no replica and no backlog, so no other server can take its place.
    let demoted = Facts { was_replica: true, ..master("a", 3600) };
    assert_eq!(lasts(&demoted, &RULES), until(at(30)));
    // After a restart without its memory, a promoted node does not show its promotion. It may have
    // been promoted just before.
    let reborn = Facts { uptime_s: Some(3), ..master_of(1) };
    assert_eq!(lasts(&reborn, &RULES), until(at(41)));
    let off = AdmissionRules { failover_guard: FailoverGuard::Off, ..RULES };
    assert_eq!(lasts(&promoted, &off), until(at(30)));
    // A client that knew the old master, and one that knew the node as a replica.
    for known in [master("old", 3600), Facts { role: Some("slave".into()), ..master_of(0) }] {
        let mut history = History::default();
        admit(&mut history, &known, at(0));
        history.last_answer = at(5);
        let promoted = Facts { replid: Some("another".into()), ..promoted.clone() };
        assert_eq!(admit(&mut history, &promoted, at(10)), until(at(53)));
    }
}

/// The old master may still grant to clients that are connected to it.
#[test]
fn a_restart_ends_no_quarantine_that_a_failover_began() {
    let mut history = History::default();
    let promoted = Facts { was_replica: true, ..master_of(1) };
    assert_eq!(admit(&mut history, &promoted, at(0)), until(at(43)));
    let alone = |seconds| Facts { uptime_s: Some(seconds), ..master("b", 0) };
    assert_eq!(admit(&mut history, &alone(1), at(2)), until(at(43)));
    // Its replica comes back later than the client.
    let mut history = History::default();
    assert_eq!(admit(&mut history, &alone(1), at(0)), until(at(30)));
    let followed = Facts { replid: alone(0).replid, ..master_of(1) };
    let followed =
        |seconds| Facts { uptime_s: Some(seconds), run_id: alone(0).run_id, ..followed.clone() };
    assert_eq!(admit(&mut history, &followed(31), at(30)), until(at(43)));
    assert_eq!(admit(&mut history, &followed(44), at(43)), Standing::Admitted);
}

#[test]
fn a_master_that_would_go_on_granting_after_a_failover_is_refused() {
    let floor = |replicas, lag_s| Some(Floor { replicas, lag_s });
    let with = |facts: Facts, floor| Facts { floor, ..facts };
    let without_floor = |facts: Facts| Facts { has_floor: false, ..facts };
    let table = [
        (master("a", 3600), true),
        (master_of(1), true),
        // Its replica is away, or has been promoted.
        (master_of(0), true),
        (without_floor(master_of(1)), false),
        (without_floor(master_of(0)), false),
        (Facts { has_backlog: false, ..without_floor(master_of(1)) }, false),
        // One of two replicas may be promoted while the other stays with the old master.
        (master_of(2), false),
        (with(master_of(2), floor(1, 10)), false),
        (with(master_of(2), floor(2, 10)), true),
        (with(master_of(1), floor(1, 10)), true),
        (with(master_of(1), floor(1, 11)), false),
    ];
    for (facts, is_admitted) in table {
        let wanted =
            if is_admitted { Standing::Admitted } else { Standing::Refused(Cause::Unguarded) };
        assert_eq!(admit(&mut History::default(), &facts, at(0)), wanted, "{facts:?}");
        let off = AdmissionRules { failover_guard: FailoverGuard::Off, ..RULES };
        let standing = History::default().admit(&facts, &off, |_| false, at(0));
        assert_eq!(standing, Standing::Admitted, "{facts:?}");
    }
    // A server that does not say how many replicas it has may have some.
    let silent = Facts { replicas: None, ..master("a", 3600) };
    let standing = admit(&mut History::default(), &silent, at(0));
    assert_eq!(standing, Standing::Refused(Cause::InfoDenied));
    // Without the restart guard a new master votes at once, so the client refuses a master that may
    // fail over.
    let rules = AdmissionRules { guard: RestartGuard::Off, ..RULES };
    let standing = History::default().admit(&master_of(1), &rules, |_| false, at(0));
    assert_eq!(standing, Standing::Refused(Cause::Unguarded));
}

#[test]
fn a_master_with_replicas_is_asked_how_many_its_writes_need_and_other_masters_are_not() {
    let greet = |replication: &str, answer: &str| {
        let mut node = new_node(Login::default());
        node.handle_connected(now(0));
        sent(&mut node);
        let answers = greeting(VALKEY_91, "run_id:x\r\nuptime_in_seconds:99", replication);
        feed(&mut node, answers.as_bytes()).unwrap();
        let is_over = conclude(&mut node, 0);
        let asked = sent(&mut node);
        if !is_over {
            assert_eq!(feed(&mut node, answer.as_bytes()), Ok(true));
            assert!(conclude(&mut node, 0));
        }
        (asked.contains("min-replicas-*"), node.cause())
    };
    let floor = |replicas: u32, lag: u32| {
        format!(
            "%2\r\n$20\r\nmin-replicas-max-lag\r\n${}\r\n{lag}\r\n\
             $21\r\nmin-replicas-to-write\r\n$1\r\n{replicas}\r\n",
            lag.to_string().len()
        )
    };
    let denied = "-NOPERM User default has no permissions to run the 'config|get' command\r\n";
    let two = "role:master\r\nconnected_slaves:2\r\nmin_slaves_good_slaves:2";
    assert_eq!(greet("role:master\r\nconnected_slaves:0", ""), (false, Cause::Backlog));
    assert_eq!(greet(two, &floor(2, 10)), (true, Cause::Backlog));
    assert_eq!(greet(two, &floor(1, 10)), (true, Cause::Unguarded));
    assert_eq!(greet(two, &floor(2, 60)), (true, Cause::Unguarded));
    assert_eq!(greet(two, denied), (true, Cause::Unguarded));
    assert_eq!(greet(&two.replace("slaves:2", "slaves:1"), denied), (true, Cause::Backlog));
    let unguarded = two.replace("min_slaves_good_slaves:2", "");
    assert_eq!(greet(&unguarded, ""), (false, Cause::Unguarded));
}

/// A busy server answers HELLO, and not INFO.
#[test]
pub(crate) fn a_node_that_hides_what_it_is_may_be_another_server() {
    let off = AdmissionRules { failover_guard: FailoverGuard::Off, ..RULES };
    let is_busy = "-BUSY Redis is busy running a script.\r\n";
    let server = info("run_id:x\r\nuptime_in_seconds:99");
    let replication = info("role:master\r\nconnected_slaves:0");
    for (first, last, may_be) in [
        (server.as_str(), replication.as_str(), (false, false)),
        (&server, is_busy, (true, false)),
        (is_busy, &replication, (true, true)),
        (is_busy, is_busy, (true, true)),
    ] {
        let mut node = new_node(Login::default());
        node.handle_connected(now(0));
        let infos = [first, &info(""), &info(""), last].concat();
        feed(&mut node, format!("%4\r\n{VALKEY_91}+proto\r\n:3\r\n{infos}").as_bytes()).unwrap();
        assert!(conclude(&mut node, 0));
        assert_eq!((node.may_be_another(&RULES), node.may_be_another(&off)), may_be);
    }
}

/// The client is connected all the time, and the node answers nothing while it is a replica.
#[test]
fn a_master_that_failed_over_and_back_is_noticed_before_its_next_grant() {
    let replication = |replid: &str| {
        format!(
            "role:master\r\nconnected_slaves:1\r\nmin_slaves_good_slaves:1\r\nmaster_replid:{replid}"
        )
    };
    let admitted = || {
        let mut node = new_node(Login::default());
        node.handle_connected(now(0));
        let server = "run_id:x\r\nuptime_in_seconds:99";
        feed(&mut node, greeting(VALKEY_91, server, &replication("a")).as_bytes()).unwrap();
        assert!(!conclude(&mut node, 0));
        feed(&mut node, b"-NOPERM no settings\r\n").unwrap();
        assert!(conclude(&mut node, 0) && node.can_vote() && node.is_restless());
        sent(&mut node);
        node
    };
    let mut node = admitted();
    assert_eq!(node.next_timeout(Duration::ZERO), at(1));
    for (seconds, replid, cause) in [(1, "a", None), (2, "b", Some(Cause::Replica))] {
        node.handle_timeout(now(seconds));
        assert_eq!(sent(&mut node), "*2 $4 INFO $11 replication ");
        feed(&mut node, info(&replication(replid)).as_bytes()).unwrap();
        assert_eq!(node.take_no_master(), cause);
    }
    // An answer that does not tell is no reason to go on.
    let mut node = admitted();
    node.handle_timeout(now(1));
    feed(&mut node, b"-NOPERM no info\r\n").unwrap();
    assert_eq!(node.take_no_master(), Some(Cause::Replica));
}

/// Its address may lead to another master. Here the client extends a lease each second.
#[test]
fn a_replica_that_refuses_writes_again_and_again_is_greeted_as_soon_as_one_that_refused_once() {
    for last in [0, 29] {
        let mut node = new_node(Login::default());
        node.handle_connected(now(0));
        let server = "run_id:x\r\nuptime_in_seconds:99";
        let role = "role:master\r\nconnected_slaves:0";
        feed(&mut node, greeting(VALKEY_91, server, role).as_bytes()).unwrap();
        assert!(conclude(&mut node, 0) && node.can_vote());
        sent(&mut node);
        (0..=last).for_each(|seconds| node.distrust(&RULES, at(seconds)));
        node.handle_timeout(now(30));
        assert!(sent(&mut node).contains("HELLO"), "it refused until {last}");
        // A master again: it waits from its last refusal on.
        feed(&mut node, greeting(VALKEY_91, server, role).as_bytes()).unwrap();
        assert!(conclude(&mut node, 30));
        assert_eq!(node.can_vote(), last == 0);
    }
}

#[test]
fn a_master_that_may_have_failed_over_during_a_stall_is_greeted_again_before_it_votes() {
    for (replicas, is_asked) in [(0, false), (1, true)] {
        let mut node = new_node(Login::default());
        node.handle_connected(now(0));
        let server = "run_id:x\r\nuptime_in_seconds:99";
        let role =
            format!("role:master\r\nconnected_slaves:{replicas}\r\nmin_slaves_good_slaves:1");
        feed(&mut node, greeting(VALKEY_91, server, &role).as_bytes()).unwrap();
        if !conclude(&mut node, 0) {
            feed(&mut node, b"-NOPERM no settings\r\n").unwrap();
            assert!(conclude(&mut node, 0));
        }
        node.pending.push_back(Pending { request: Request::Tell, written_at: at(0) });
        node.handle_timeout(now(9));
        assert!(node.is_stalled());
        sent(&mut node);
        feed(&mut node, b":1\r\n").unwrap();
        node.handle_timeout(now(9));
        assert_eq!((node.can_vote(), sent(&mut node).contains("HELLO")), (!is_asked, is_asked));
        // The look that was written before the stall says no more than the greeting will.
        feed(&mut node, info(&role).as_bytes()).unwrap_or_default();
        assert_eq!(node.take_no_master(), None);
    }
}

/// Trouble of the network often shows so: first a stall, then the loss of the connection.
#[test]
fn a_node_that_was_well_for_long_is_connected_to_at_once_though_it_stalled_just_before() {
    let mut node = new_node(Login::default());
    (0..5).for_each(|_| drop(node.handle_lost(Cause::ConnectionRefused, 0, at(0))));
    let role = "role:master\r\nconnected_slaves:1\r\nmin_slaves_good_slaves:1";
    let answers = greeting(VALKEY_91, "run_id:x\r\nuptime_in_seconds:99", role);
    let greet = |node: &mut Node, seconds| {
        sent(node);
        feed(node, answers.as_bytes()).unwrap();
        assert!(!conclude(node, seconds));
        feed(node, b"-NOPERM no settings\r\n").unwrap();
        assert!(conclude(node, seconds) && node.can_vote());
    };
    node.handle_connected(now(0));
    greet(&mut node, 0);
    node.pending.push_back(Pending { request: Request::Tell, written_at: at(0) });
    node.handle_timeout(now(3600));
    assert!(node.is_stalled());
    node.next_step(&mut &b":1\r\n"[..], now(3600)).unwrap();
    node.handle_timeout(now(3600));
    feed(&mut node, info(role).as_bytes()).unwrap();
    greet(&mut node, 3600);
    node.handle_lost(Cause::Closed, 0, at(3601));
    assert_eq!(node.state(), State::Disconnected { retry_at: at(3601) });
}

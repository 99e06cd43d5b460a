//! Designs that look like fences and are none. For each, a run of a few steps on three real servers
//! gives a later holder no higher number. For three of the designs, scripts that do the same as the
//! client's refuse the wrong number in the same steps.
//!
//! `docs/fence-proof.md` describes each run under the same name.

use redbolt_rig::Wire;

use super::common::Cluster;

const ACQUIRE: &str = "local s=redis.call('get',KEYS[2]) or '0' local c=tonumber(s) \
    if not redis.call('set',KEYS[1],ARGV[1],'NX','PX',60000) then return 'taken' end \
    if c<tonumber(ARGV[2]) then redis.call('set',KEYS[2],ARGV[2]) return 'accepted' end return s";
const RAISE: &str = "if redis.call('get',KEYS[1])~=ARGV[1] then return 'gone' end \
    local s=redis.call('get',KEYS[2]) or '0' local c=tonumber(s) \
    if c<tonumber(ARGV[2]) then redis.call('set',KEYS[2],ARGV[2]) return 'accepted' end return s";

/// Three nodes, of which two are a quorum, and a connection to each.
struct Nodes {
    cluster: Cluster,
    wires: Vec<Wire>,
}

/// A node's answer to a number.
#[derive(Debug, PartialEq)]
enum Answer {
    Accepted,
    /// The node granted the lock, and this is its counter.
    Refused(u64),
    /// Another client has the lock.
    No,
}
use Answer::{Accepted, No, Refused};

impl Nodes {
    fn start() -> Option<Self> {
        let cluster = Cluster::mixed(3)?;
        let wires = cluster.nodes().map(redbolt_rig::RealServer::connect).collect();
        Some(Self { cluster, wires })
    }

    fn wire(&mut self, node: usize) -> &mut Wire {
        self.wires.get_mut(node).expect("there are three")
    }

    fn run(&mut self, node: usize, script: &str, token: &str, number: u64) -> Answer {
        let number = number.to_string();
        let command = ["EVAL", script, "2", "k", "k:fence", token, &number];
        let reply = self.wire(node).ask(&command).expect("the server answers");
        let text = String::from_utf8(reply).expect("text");
        match text.lines().last().expect("a bulk string") {
            "accepted" => Accepted,
            "taken" | "gone" => No,
            counter => Refused(counter.parse().expect("a number")),
        }
    }

    fn set_counter(&mut self, node: usize, number: u64) {
        let command = ["SET", "k:fence", &number.to_string()];
        self.wire(node).ask(&command).expect("the server answers");
    }

    /// The lock of any holder is over, on all nodes.
    fn expire(&mut self) {
        for wire in &mut self.wires {
            wire.ask(&["DEL", "k"]).expect("the server answers");
        }
    }
}

/// Two clients propose the same number if their clocks show the same time.
#[test]
fn a_node_that_accepts_its_own_counter_again_gives_one_number_to_two_holders() {
    let equal_too = ACQUIRE.replace("c<tonumber", "c<=tonumber");
    for (script, is_second_fenced) in [(&equal_too[..], true), (ACQUIRE, false)] {
        let Some(mut nodes) = Nodes::start() else { return };
        let first = [nodes.run(0, script, "one", 10), nodes.run(1, script, "one", 10)];
        assert_eq!(first, [Accepted, Accepted], "the first holder has 10");
        nodes.expire();
        let second = [nodes.run(1, script, "two", 10), nodes.run(2, script, "two", 10)];
        assert_eq!(second == [Accepted, Accepted], is_second_fenced, "{second:?}");
    }
}

/// The first holder is stopped before its second round, and its lock is over.
#[test]
fn a_second_round_that_does_not_look_at_the_token_overtakes_the_next_holder() {
    let blind = RAISE.replace("if redis.call('get',KEYS[1])~=ARGV[1] then return 'gone' end ", "");
    for (script, is_first_fenced) in [(&blind[..], true), (RAISE, false)] {
        let Some(mut nodes) = Nodes::start() else { return };
        nodes.set_counter(1, 20);
        assert_eq!(nodes.run(0, ACQUIRE, "one", 10), Accepted);
        assert_eq!(nodes.run(1, ACQUIRE, "one", 10), Refused(20));
        nodes.expire();
        let second = [nodes.run(0, ACQUIRE, "two", 11), nodes.run(2, ACQUIRE, "two", 11)];
        assert_eq!(second, [Accepted, Accepted], "the second holder has 11");
        // Now the first client goes on with 21, above all counters that it was told.
        let late = [nodes.run(0, script, "one", 21), nodes.run(1, script, "one", 21)];
        assert_eq!(late == [Accepted, Accepted], is_first_fenced, "{late:?}");
    }
}

/// `SET NX`, and behind it a raise that any client may send at any time.
#[test]
fn a_lock_and_a_number_in_two_commands_can_belong_to_two_holders() {
    let raise = "if (tonumber(redis.call('get',KEYS[2]) or '0'))<tonumber(ARGV[2]) then \
        redis.call('set',KEYS[2],ARGV[2]) return 'accepted' end return redis.call('get',KEYS[2])";
    let Some(mut nodes) = Nodes::start() else { return };
    for node in 0..2 {
        nodes.wires[node].ask(&["SET", "k", "one", "NX", "PX", "60000"]).unwrap();
    }
    nodes.expire();
    for node in 0..2 {
        nodes.wires[node].ask(&["SET", "k", "two", "NX", "PX", "60000"]).unwrap();
        assert_eq!(nodes.run(node, raise, "two", 20), Accepted, "the second holder has 20");
    }
    for node in 0..2 {
        // The first holder was stopped between its two commands.
        assert_eq!(nodes.run(node, raise, "one", 21), Accepted);
        assert_eq!(nodes.run(node, RAISE, "one", 22), No, "the token is looked at");
    }
}

/// Each node counts for itself, and a holder takes the largest count.
#[test]
fn the_largest_of_the_counts_of_a_quorum_goes_down() {
    let Some(mut nodes) = Nodes::start() else { return };
    nodes.set_counter(0, 5);
    let mut count = |node: usize| {
        let reply = nodes.wires[node].ask(&["INCR", "k:fence"]).unwrap();
        String::from_utf8(reply).unwrap().trim_start_matches(':').trim_end().parse::<u64>().unwrap()
    };
    let first = count(0).max(count(1));
    let second = count(1).max(count(2));
    assert_eq!((first, second), (6, 2), "the later holder has the lower number");
}

/// A node forgets its counter, and votes at once.
#[test]
fn a_counter_that_is_lost_is_missed_without_the_restart_guard() {
    let Some(mut nodes) = Nodes::start() else { return };
    let first = [nodes.run(0, ACQUIRE, "one", 30), nodes.run(1, ACQUIRE, "one", 30)];
    assert_eq!(first, [Accepted, Accepted], "the first holder has 30");
    nodes.expire();
    nodes.cluster.node_mut(1).kill9();
    nodes.cluster.node_mut(1).restart();
    nodes.wires[1] = nodes.cluster.node(1).connect();
    // The next client's clock is 5 behind. With the guard, its clock is past 30 before it asks.
    let second = [nodes.run(1, ACQUIRE, "two", 25), nodes.run(2, ACQUIRE, "two", 25)];
    assert_eq!(second, [Accepted, Accepted]);
}

/// One node accepted the first number, another node accepted the second.
#[test]
fn accepts_of_two_numbers_are_no_quorum_for_either() {
    let Some(mut nodes) = Nodes::start() else { return };
    nodes.set_counter(1, 20);
    assert_eq!(nodes.run(0, ACQUIRE, "one", 10), Accepted);
    assert_eq!(nodes.run(1, ACQUIRE, "one", 10), Refused(20));
    // The second round reaches one node only: 10 has one accept, and so does 21.
    assert_eq!(nodes.run(1, RAISE, "one", 21), Accepted);
    nodes.expire();
    let second = [nodes.run(0, ACQUIRE, "two", 15), nodes.run(2, ACQUIRE, "two", 15)];
    assert_eq!(second, [Accepted, Accepted], "15 would follow 21, had 21 been a fence");
}

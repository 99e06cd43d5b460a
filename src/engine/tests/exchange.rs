//! The lists of nodes change while a client runs.

use std::collections::BTreeMap;

use super::sets::{Stores, serve, stores};
use super::*;
use crate::error::ConfigError;

const OLD: [&str; 3] = ["n:1", "n:2", "n:3"];
const NEW: [&str; 3] = ["n:3", "n:4", "n:5"];

/// The longest TTL and its drift, twice the clock skew, and a little more.
const WAIT: Duration = Duration::from_millis(12_300);

/// A client of nodes 0 to 2, and nodes 3 and 4 that it does not know.
struct Changing {
    rig: Rig,
    stores: Stores,
}

impl Changing {
    fn new() -> Self {
        Self::with(|config| config)
    }

    fn with(change: impl FnOnce(Config) -> Config) -> Self {
        let settings = |config: Config| change(config.max_ttl(TTL).direct_wake(false));
        let mut rig = Rig::of(3, 5, settings);
        for index in 0..3 {
            rig.connect(index);
        }
        Self { rig, stores: stores(5) }
    }

    fn try_set(&mut self, lists: Config) -> Result<(), ConfigError> {
        self.rig.engine.set_nodes(&lists, self.rig.now)
    }

    fn set(&mut self, lists: Config) {
        self.try_set(lists).unwrap();
        self.rig.pass();
    }

    fn connect(&mut self, index: usize) {
        self.rig.connect(index);
        self.rig.pass();
    }

    /// From now on the client needs both lists.
    fn become_joint(&mut self) {
        self.set(Config::new(OLD).unwrap().next_nodes(NEW).unwrap());
        self.connect(3);
        self.connect(4);
        assert!(!self.rig.engine.is_exchanging());
        serve(&mut self.rig, &mut self.stores);
    }

    fn take(&mut self, key: &str) -> Result<LeaseId, LockError> {
        self.rig.acquire(key);
        serve(&mut self.rig, &mut self.stores);
        self.rig.lock_result().expect("all have answered")
    }

    fn hold_elsewhere(&mut self, key: &str, nodes: [usize; 2]) {
        for index in nodes {
            self.stores[index].insert(key.into(), "another".into());
        }
    }

    fn extend(&mut self, lease: LeaseId) -> Result<(), ExtendError> {
        self.rig.engine.extend(lease, TTL, self.rig.now).unwrap();
        serve(&mut self.rig, &mut self.stores);
        match self.rig.engine.poll_event(self.rig.now) {
            Some(Event::Extend { result, .. }) => result,
            event => panic!("not an extension: {event:?}"),
        }
    }

    /// Time passes, and the nodes that are connected answer.
    fn run(&mut self, duration: Duration) {
        let end = self.rig.now + duration;
        while self.rig.now < end {
            self.rig.advance(100 * MS);
            serve(&mut self.rig, &mut self.stores);
        }
    }
}

#[test]
pub(super) fn lists_that_follow_have_one_in_common() {
    let mut client = Changing::new();
    let alone = client.try_set(Config::new(NEW).unwrap());
    assert_eq!(alone, Err(ConfigError::NoCommonList));
    let mut client = Changing::new();
    client.become_joint();
    let others = Config::new(["n:6"]).unwrap().next_nodes(["n:7"]).unwrap();
    assert_eq!(client.try_set(others), Err(ConfigError::NoCommonList));
}

#[test]
fn the_present_list_decides_until_a_quorum_of_the_next_one_votes() {
    let mut client = Changing::new();
    client.set(Config::new(OLD).unwrap().next_nodes(NEW).unwrap());
    client.connect(3);
    // Nodes 2 and 3 are a quorum of the next list.
    assert!(!client.rig.engine.is_exchanging());
    let mut client = Changing::new();
    client.set(Config::new(OLD).unwrap().next_nodes(["n:4", "n:5"]).unwrap());
    client.connect(3);
    assert!(client.rig.engine.is_exchanging());
    client.hold_elsewhere("a", [3, 4]);
    client.take("a").unwrap();
    assert!(!client.stores[3]["a"].is_empty() && client.rig.engine.voters().count() == 3);
    client.connect(4);
    serve(&mut client.rig, &mut client.stores);
    assert_eq!(client.rig.engine.voters().count(), 5);
    client.hold_elsewhere("b", [3, 4]);
    assert!(matches!(client.take("b"), Err(LockError::Taken(_))));
}

#[test]
fn a_failed_attempt_names_the_nodes_of_the_lists_that_decide() {
    let mut client = Changing::new();
    client.set(Config::new(OLD).unwrap().next_nodes(["n:4", "n:5"]).unwrap());
    client.hold_elsewhere("a", [0, 1]);
    let error = client.take("a").unwrap_err();
    let named: Vec<&str> = error.ballot().expect("votes").votes().map(|(name, _)| name).collect();
    assert_eq!(named, OLD, "{error}");
    assert!(error.to_string().contains("1 of 3 granted"), "{error}");
}

#[test]
fn lists_that_are_withdrawn_are_told_at_once() {
    let mut client = Changing::new();
    client.set(Config::new(OLD).unwrap().next_nodes(["n:4", "n:5"]).unwrap());
    assert!(client.rig.engine.take_lists().is_some() && client.rig.engine.is_exchanging());
    client.set(Config::new(OLD).unwrap());
    assert!(!client.rig.engine.is_exchanging());
    assert!(client.rig.engine.take_lists().is_some());
}

#[test]
fn a_client_tells_the_nodes_its_new_lists() {
    let mut client = Changing::new();
    client.set(Config::new(OLD).unwrap().next_nodes(NEW).unwrap());
    client.connect(3);
    client.rig.collect();
    let told = client.rig.inbox[0].last().unwrap();
    assert_eq!(told[..2], ["CLIENT", "SETNAME"]);
    assert!(told[2].contains(":l3.2.") && told[2].matches(":l").count() == 2, "{told:?}");
}

#[test]
pub(super) fn a_lease_outlives_a_change_of_lists_and_is_extended_on_the_new_ones() {
    let mut client = Changing::new();
    let lease = client.take("a").unwrap();
    client.become_joint();
    client.run(TTL / 4);
    assert!(!client.rig.engine.is_lost(lease));
    client.extend(lease).unwrap();
    assert!(client.stores.iter().all(|store| store.contains_key("a")), "healed");
    let ends = client.rig.engine.deadline(lease).unwrap();
    assert!(client.rig.now + TTL / 2 < ends);
}

#[test]
pub(super) fn an_extension_that_begins_under_new_lists_needs_their_quorums() {
    let mut client = Changing::new();
    let lease = client.take("a").unwrap();
    client.become_joint();
    client.hold_elsewhere("a", [3, 4]);
    let ends = client.rig.engine.deadline(lease);
    let error = client.extend(lease);
    assert!(matches!(error, Err(ExtendError::NoQuorum(_))), "{error:?}");
    assert_eq!(client.rig.engine.deadline(lease), ends, "it is held as long as before");
}

#[test]
fn a_lease_that_is_kept_is_extended_at_once() {
    let mut client = Changing::new();
    client.rig.acquire_with("a", LockOptions::new(TTL).keep_alive());
    serve(&mut client.rig, &mut client.stores);
    let lease = client.rig.locked();
    client.become_joint();
    assert!(client.stores[3].contains_key("a"), "it votes");
    client.run(TTL / 2);
    assert!(client.stores[4].contains_key("a"), "it has come to vote since");
    for _ in 0..5 {
        client.run(TTL / 2);
        assert!(!client.rig.engine.is_lost(lease));
    }
}

/// The client is told to go back before its way there is settled.
#[test]
fn a_lease_that_is_kept_outlives_lists_that_go_there_and_back() {
    let mut client = Changing::new();
    client.rig.acquire_with("a", LockOptions::new(TTL).keep_alive());
    serve(&mut client.rig, &mut client.stores);
    let lease = client.rig.locked();
    client.become_joint();
    client.run(WAIT);
    client.set(Config::new(NEW).unwrap());
    client.set(Config::new(NEW).unwrap().next_nodes(OLD).unwrap());
    client.run(TTL);
    // The keys that the client extends no longer have ended.
    client.stores.iter_mut().take(2).for_each(BTreeMap::clear);
    client.run(WAIT);
    assert!(!client.rig.engine.is_exchanging());
    assert!(!client.rig.engine.is_lost(lease) && client.stores[0].contains_key("a"));
}

#[test]
fn a_lease_of_the_old_list_is_released_as_such() {
    let mut client = Changing::new();
    let lease = client.take("a").unwrap();
    client.become_joint();
    client.rig.engine.unlock(lease, client.rig.now).unwrap();
    serve(&mut client.rig, &mut client.stores);
    let event = client.rig.engine.poll_event(client.rig.now);
    assert!(matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })));
    assert!(client.stores.iter().all(|store| store.is_empty()));
}

#[test]
fn an_attempt_under_way_is_decided_by_the_lists_that_it_began_under() {
    let mut client = Changing::new();
    client.set(Config::new(OLD).unwrap().next_nodes(["n:4", "n:5"]).unwrap());
    client.connect(3);
    client.rig.acquire("a");
    client.connect(4);
    assert!(!client.rig.engine.is_exchanging());
    serve(&mut client.rig, &mut client.stores);
    let lease = client.rig.locked();
    client.extend(lease).unwrap();
}

#[test]
pub(super) fn the_old_list_is_left_only_when_its_leases_are_over() {
    let mut client = Changing::new();
    client.become_joint();
    client.set(Config::new(NEW).unwrap());
    assert!(client.rig.engine.is_exchanging());
    client.hold_elsewhere("a", [0, 1]);
    assert!(client.take("a").is_err());
    client.run(WAIT);
    assert!(!client.rig.engine.is_exchanging());
    client.take("a").unwrap();
}

/// The clock of a client of the old list may be off, and so may a node's: a fence rests on both.
#[test]
fn a_client_exchanges_its_lists_until_the_longest_lease_and_twice_the_clock_skew_are_over() {
    for skew in [MS, Duration::from_secs(1), Duration::from_secs(7)] {
        let longest = TTL + TTL / 100 + 2 * MS + 2 * skew;
        let mut client = Changing::with(|config| config.max_clock_skew(skew));
        let before = client.rig.now;
        client.become_joint();
        let behind = client.rig.now;
        client.set(Config::new(NEW).unwrap());
        client.run(client.rig.now.until(before + longest).saturating_sub(100 * MS));
        assert!(client.rig.engine.is_exchanging(), "{skew:?}");
        client.run(client.rig.now.until(behind + longest) + 100 * MS);
        assert!(!client.rig.engine.is_exchanging(), "{skew:?}");
    }
}

#[test]
fn a_node_that_left_the_lists_is_given_up_once_it_can_hold_no_key() {
    let mut client = Changing::new();
    client.become_joint();
    let lease = client.take("a").unwrap();
    client.run(TTL / 2);
    client.extend(lease).unwrap();
    client.run(WAIT - TTL / 2);
    client.set(Config::new(NEW).unwrap());
    client.take("b").unwrap();
    assert!(!client.stores[0].contains_key("b") && client.stores[4].contains_key("b"));
    assert!(client.rig.engine.is_connected(node(0)));
    client.run(WAIT);
    let known = client.rig.engine.nodes(client.rig.now);
    let states: Vec<&str> = known.iter().map(|node| node.state.name()).collect();
    assert_eq!(states, ["unlisted", "unlisted", "admitted", "admitted", "admitted"]);
    assert!(!client.rig.engine.is_connected(node(0)));
    client.run(WAIT * 10);
    assert!(!client.rig.engine.wants_connection(node(0)));
    assert!(client.rig.engine.is_settled());
    // It is needed again.
    client.set(Config::new(NEW).unwrap().next_nodes(OLD).unwrap());
    client.connect(0);
    assert!(!client.rig.engine.is_exchanging());
    client.take("c").unwrap();
}

/// A node that is frozen keeps what it has received, however the lists change meanwhile.
#[test]
fn a_node_that_may_still_run_a_shorter_extension_is_doubted_when_it_comes_back_to_the_lists() {
    let mut client = Changing::new();
    client.become_joint();
    let lease = client.take("a").unwrap();
    client.rig.engine.extend(lease, TTL / 2, client.rig.now).unwrap();
    client.rig.lose(0);
    serve(&mut client.rig, &mut client.stores);
    client.rig.engine.poll_event(client.rig.now);
    let keep_for = |client: &mut Changing, duration: Duration| {
        for _ in 0..4 {
            client.extend(lease).unwrap();
            client.run(duration / 4);
        }
    };
    client.connect(0);
    keep_for(&mut client, WAIT);
    client.set(Config::new(NEW).unwrap());
    keep_for(&mut client, WAIT);
    assert!(!client.rig.engine.is_connected(node(0)), "no list has it");
    client.set(Config::new(NEW).unwrap().next_nodes(OLD).unwrap());
    client.connect(0);
    client.connect(1);
    serve(&mut client.rig, &mut client.stores);
    assert!(!client.rig.engine.is_exchanging());
    client.rig.engine.extend(lease, TTL, client.rig.now).unwrap();
    assert_eq!(client.rig.waiting(1), ["SET"]);
    assert_eq!(client.rig.waiting(0), Vec::<String>::new());
}

#[test]
fn the_same_lists_again_change_nothing_and_withdraw_lists_to_come() {
    let mut client = Changing::new();
    client.set(Config::new(OLD).unwrap().next_nodes(["n:4", "n:5"]).unwrap());
    client.connect(3);
    assert!(client.rig.engine.is_exchanging());
    client.set(Config::new(OLD).unwrap());
    assert!(!client.rig.engine.is_exchanging() && !client.rig.engine.is_connected(node(3)));
    client.take("a").unwrap();
    // The next change may come at once.
    client.become_joint();
}

#[test]
fn lists_of_which_too_few_nodes_are_ready_wait_although_others_are() {
    let mut client = Changing::new();
    client.set(Config::new(OLD).unwrap().next_nodes(["n:4", "n:5"]).unwrap());
    client.connect(3);
    client.connect(4);
    assert!(!client.rig.engine.is_exchanging());
    client.run(WAIT);
    for index in [3, 4] {
        client.rig.lose(index);
    }
    client.set(Config::new(["n:4", "n:5"]).unwrap());
    assert!(client.rig.engine.is_exchanging(), "three other nodes are ready");
}

/// An operation may outlast the pause behind a change: `node_timeout` is longer, or its client stood still.
#[test]
fn what_began_under_the_former_lists_is_decided_by_them_once_the_new_ones_are_settled() {
    let with_both = || {
        let mut client = Changing::with(|config| config.node_timeout(Duration::from_secs(60)));
        client.become_joint();
        client.run(WAIT);
        client
    };
    let settles_on_new = |client: &mut Changing| {
        client.set(Config::new(NEW).unwrap());
        assert!(!client.rig.engine.is_exchanging());
        client.rig.advance(WAIT);
    };
    let mut client = with_both();
    client.rig.acquire("a");
    client.rig.answer_all(0..2, "+OK\r\n");
    settles_on_new(&mut client);
    client.rig.answer(2, "+OK\r\n");
    assert!(client.rig.lock_result().is_none());
    client.rig.answer(3, "+OK\r\n");
    let result = client.rig.lock_result();
    assert!(matches!(result, Some(Err(LockError::Expired(_)))), "{result:?}");
    let mut client = with_both();
    let lease = client.take("a").unwrap();
    client.rig.engine.unlock(lease, client.rig.now).unwrap();
    client.rig.answer_all(0..2, ":1\r\n");
    settles_on_new(&mut client);
    client.rig.answer(2, ":1\r\n");
    assert!(client.rig.engine.poll_event(client.rig.now).is_none());
    client.rig.answer(3, ":1\r\n");
    let event = client.rig.engine.poll_event(client.rig.now);
    assert!(matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })));
    client.rig.advance(Duration::from_secs(60));
    assert!(!client.rig.engine.is_connected(node(0)), "the nodes that have left are given up then");
}

#[test]
fn a_query_has_the_answers_of_the_nodes_that_gave_them() {
    let mut client = Changing::new();
    client.become_joint();
    client.run(WAIT);
    client.set(Config::new(NEW).unwrap());
    serve(&mut client.rig, &mut client.stores);
    let query = crate::query::Query::new().all(&[b"GET", b"k"]);
    client.rig.engine.query(&query, client.rig.now).unwrap();
    for index in 2..5 {
        client.rig.answer(index, &format!(":{index}\r\n"));
    }
    let Some(Event::Query { answers, .. }) = client.rig.engine.poll_event(client.rig.now) else {
        panic!("all have answered")
    };
    let causes: Vec<Cause> = answers.iter().map(|node| node.cause).collect();
    assert_eq!(causes, [Cause::Unlisted, Cause::Unlisted, Cause::None, Cause::None, Cause::None]);
    let told: Vec<String> =
        answers.iter().flat_map(|node| &node.replies).map(|reply| format!("{reply:?}")).collect();
    assert_eq!(told, ["Integer(2)", "Integer(3)", "Integer(4)"]);
}

/// The loop read its clock, stood still, and read the sockets behind that.
#[test]
fn lists_stay_for_a_lease_that_began_after_the_clock_of_their_change_was_read() {
    let mut rig = Rig::of(3, 5, |config| config.max_ttl(TTL));
    let joint = Config::new(OLD).unwrap().next_nodes(["n:4", "n:5"]).unwrap();
    rig.engine.set_nodes(&joint, rig.now).unwrap();
    rig.pass();
    rig.acquire("a");
    (0..5).for_each(|index| rig.engine.handle_connected(node(index), rig.now));
    rig.collect();
    let before = rig.now;
    rig.now = before + Duration::from_secs(5);
    for index in 0..5 {
        let asked = std::mem::take(&mut rig.inbox[index]);
        let info = format!("run_id:{index}\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
        rig.receive(index, HELLO);
        for _ in 1..asked.len() {
            rig.receive(index, &format!("${}\r\n{info}\r\n", info.len()));
        }
    }
    rig.answer_all(0..2, "+OK\r\n");
    rig.engine.handle_timeout(before);
    assert!(!rig.engine.is_exchanging());
    let lease = rig.locked();
    for index in 0..5 {
        while !rig.waiting(index).is_empty() {
            rig.answer(index, "+OK\r\n");
        }
    }
    rig.engine.set_nodes(&Config::new(["n:4", "n:5"]).unwrap(), rig.now).unwrap();
    rig.now = rig.engine.deadline(lease).unwrap() - MS;
    rig.engine.handle_timeout(rig.now);
    assert!(rig.engine.is_exchanging(), "a client of the next list alone could take the lock");
}

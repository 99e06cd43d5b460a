//! Nodes that forget a lease get its token again: it outlives them.

use super::sets::{Stores, serve, stores};
use super::transfers::announce;
use super::waking::subscribed;
use super::*;

/// The time for which a node that has restarted has no vote, and a little more.
const GUARD: Duration = Duration::from_millis(10_200);

const SECOND: Duration = Duration::from_secs(1);

fn kept() -> LockOptions {
    LockOptions::new(TTL).keep_alive()
}

/// Nodes that remember, and the process that each of them is.
struct Fleet {
    rig: Rig,
    stores: Stores,
    lives: Vec<usize>,
}

impl Fleet {
    fn new(nodes: usize) -> Self {
        let rig = Rig::with(nodes, |config| config.restart_guard(RestartGuard::On).max_ttl(TTL));
        Self { rig, stores: stores(nodes), lives: vec![0; nodes] }
    }

    /// Three nodes, and a lease whose extension gives the token to the last of them again. No node has
    /// answered yet.
    fn healing() -> (Self, LeaseId) {
        let mut fleet = Self::new(3);
        let lease = fleet.lease(LockOptions::new(TTL));
        fleet.forget(2, lease);
        fleet.rig.engine.extend(lease, TTL, fleet.rig.now).unwrap();
        assert_eq!(fleet.asked(2), ["SET NX"]);
        (fleet, lease)
    }

    /// The same of a lease that the engine keeps alive: the extension is the engine's own.
    fn healing_kept() -> (Self, LeaseId) {
        let mut fleet = Self::new(3);
        let lease = fleet.lease(kept());
        fleet.restart(2);
        let begun = fleet.rig.now;
        while fleet.asked(2) != ["SET NX"] {
            assert!(begun.until(fleet.rig.now) < TTL * 2, "it gets the token again");
            serve(&mut fleet.rig, &mut fleet.stores);
            fleet.run(10 * MS);
            fleet.rig.advance(10 * MS);
        }
        (fleet, lease)
    }

    /// The node restarts and waits for its vote, while the caller extends the lease.
    fn forget(&mut self, index: usize, lease: LeaseId) {
        self.restart(index);
        for pause in [TTL / 2, GUARD - TTL / 2] {
            self.rig.engine.extend(lease, TTL, self.rig.now).unwrap();
            self.run(pause);
            while self.rig.engine.poll_event(self.rig.now).is_some() {}
            assert!(self.stores[index].is_empty(), "no extension has begun since it votes");
        }
    }

    fn lease(&mut self, options: LockOptions) -> LeaseId {
        self.rig.acquire_with("a", options);
        serve(&mut self.rig, &mut self.stores);
        self.rig.locked()
    }

    fn info(&self, index: usize) -> String {
        match self.lives[index] {
            // As the rig has greeted it.
            0 => format!("run_id:{index}\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n"),
            life => {
                format!("run_id:{index}-{life}\r\nconnected_slaves:0\r\nuptime_in_seconds:0\r\n")
            }
        }
    }

    /// The connection to the node ends.
    fn lose(&mut self, index: usize) {
        self.rig.lose(index);
    }

    /// The client connects to the node again.
    fn connect(&mut self, index: usize) {
        let info = self.info(index);
        self.rig.greet(index, HELLO, &info);
    }

    /// The node loses its memory.
    fn restart(&mut self, index: usize) {
        self.lose(index);
        self.stores[index].clear();
        self.lives[index] += 1;
        self.connect(index);
    }

    /// The address leads to a process that surely began after the last answer of the process before.
    fn leads_away(&mut self, index: usize) {
        self.lose(index);
        self.rig.advance(3 * SECOND);
        self.lives[index] += 1;
        self.connect(index);
    }

    /// The address leads to a second process, and then back to the first.
    fn leads_there_and_back(&mut self, index: usize) {
        let first = self.info(index);
        self.leads_away(index);
        self.lose(index);
        self.rig.greet(index, HELLO, &first);
    }

    /// Time passes, and all nodes that are connected answer.
    fn run(&mut self, duration: Duration) {
        let end = self.rig.now + duration;
        while self.rig.now < end {
            self.rig.advance(10 * MS);
            self.rig.collect();
            for index in 0..self.stores.len() {
                let first = self.rig.inbox[index].first();
                if first.is_some_and(|command| command[0] == "HELLO") {
                    let parts = self.rig.inbox[index].drain(..).count();
                    let info = self.info(index).replace("seconds:0", "seconds:10");
                    self.rig.receive(index, HELLO);
                    let answer = format!("${}\r\n{info}\r\n", info.len());
                    (1..parts).for_each(|_| self.rig.receive(index, &answer));
                }
            }
            serve(&mut self.rig, &mut self.stores);
        }
    }

    fn votes(&self, lease: LeaseId) -> u32 {
        self.rig.engine.votes(lease).count()
    }

    /// The commands that a node has yet to answer, each as `SET NX`, `SET IFEQ`, ..
    fn asked(&mut self, index: usize) -> Vec<String> {
        self.rig.collect();
        let name = |command: &Vec<String>| match command.get(3) {
            Some(kind) => format!("{} {kind}", command[0]),
            None => command[0].clone(),
        };
        self.rig.inbox[index].iter().map(name).collect()
    }
}

#[test]
pub(super) fn a_lease_that_is_kept_outlives_the_memory_of_all_its_nodes() {
    let mut fleet = Fleet::new(5);
    let lease = fleet.lease(kept());
    for index in [0, 1, 2, 3, 4, 0, 1] {
        fleet.restart(index);
        fleet.run(TTL / 3);
        assert_eq!(fleet.votes(lease), 4, "the node has forgotten the lease");
        assert!(fleet.stores[index].is_empty(), "it has no vote yet");
        fleet.run(GUARD);
        assert!(!fleet.rig.engine.is_lost(lease));
        assert_eq!(fleet.votes(lease), 5, "node {index} holds the lease again");
    }
    assert!(fleet.rig.engine.poll_event(fleet.rig.now).is_none(), "nobody asked for anything");
    fleet.rig.engine.release(lease, fleet.rig.now);
    serve(&mut fleet.rig, &mut fleet.stores);
    assert!(fleet.stores.iter().all(|store| store.is_empty()));
    assert_eq!(fleet.rig.engine.slots_in_use(), 0);
}

#[test]
pub(super) fn a_node_that_has_no_vote_yet_does_not_get_the_token() {
    let mut fleet = Fleet::new(3);
    let lease = fleet.lease(LockOptions::new(TTL));
    fleet.restart(2);
    for _ in 0..3 {
        fleet.rig.engine.extend(lease, TTL, fleet.rig.now).unwrap();
        serve(&mut fleet.rig, &mut fleet.stores);
        assert!(fleet.stores[2].is_empty());
        fleet.run(TTL / 4);
        while fleet.rig.engine.poll_event(fleet.rig.now).is_some() {}
    }
}

/// Another client has deleted the key there: by `unlock --force`, or with the token.
#[test]
fn a_node_that_was_told_to_delete_the_key_never_gets_it_again() {
    let mut fleet = Fleet::new(5);
    let lease = fleet.lease(kept());
    fleet.stores[1].clear();
    fleet.run(TTL);
    assert_eq!(fleet.votes(lease), 4);
    fleet.restart(1);
    fleet.run(TTL * 3);
    assert!(fleet.stores[1].is_empty());
    assert_eq!(fleet.votes(lease), 4);
    // A quorum of such nodes is the loss of the lease.
    fleet.stores[2].clear();
    fleet.stores[3].clear();
    fleet.run(TTL / 2);
    let event = fleet.rig.engine.poll_event(fleet.rig.now);
    assert!(matches!(event, Some(Event::Lost { cause: LostCause::Gone, .. })), "{event:?}");
}

#[test]
fn a_node_that_was_silent_for_a_ttl_gets_the_token_again_in_the_same_round() {
    let mut fleet = Fleet::new(3);
    let lease = fleet.lease(kept());
    fleet.lose(2);
    fleet.run(TTL + 100 * MS);
    assert!(!fleet.rig.engine.is_lost(lease));
    // The key's time has run out there.
    fleet.stores[2].clear();
    fleet.connect(2);
    fleet.run(TTL / 2);
    assert_eq!(fleet.stores[2].len(), 1);
    assert_eq!(fleet.votes(lease), 3);
}

/// The connection lives on, and what was written runs when the node does.
#[test]
fn a_node_that_stood_still_for_a_ttl_gets_the_token_again() {
    let mut fleet = Fleet::new(3);
    let lease = fleet.lease(kept());
    fleet.rig.advance(10 * MS);
    let frozen_at = fleet.rig.now;
    while frozen_at.until(fleet.rig.now) < TTL + 100 * MS {
        fleet.rig.advance(10 * MS);
        fleet.rig.collect();
        for index in 0..2 {
            while !fleet.rig.inbox[index].is_empty() {
                fleet.rig.answer(index, "+OK\r\n");
            }
        }
    }
    assert_eq!(fleet.asked(2), ["SET IFEQ"]);
    fleet.stores[2].clear();
    fleet.run(TTL / 2);
    assert_eq!(fleet.stores[2].len(), 1);
    assert_eq!(fleet.votes(lease), 3);
}

#[test]
fn a_node_that_had_no_vote_when_the_lock_was_taken_gets_the_token_with_the_next_extension() {
    let mut fleet = Fleet::new(3);
    fleet.restart(2);
    let lease = fleet.lease(kept());
    assert_eq!(fleet.votes(lease), 2);
    fleet.run(GUARD + TTL / 2);
    assert_eq!(fleet.votes(lease), 3);
}

#[test]
pub(super) fn an_adoption_gives_the_token_to_no_node() {
    let mut fleet = Fleet::new(5);
    let token = "of another client";
    fleet.stores[0].insert("a".to_owned(), token.to_owned());
    fleet.stores[1].insert("a".to_owned(), token.to_owned());
    fleet.rig.engine.adopt(b"a", token.as_bytes(), &kept(), fleet.rig.now).unwrap();
    serve(&mut fleet.rig, &mut fleet.stores);
    let event = fleet.rig.engine.poll_event(fleet.rig.now);
    assert!(matches!(event, Some(Event::Adopt { result: Err(_), .. })), "{event:?}");
    assert!(fleet.stores[2].is_empty());
    // Nor does it know of a node that lacks the key whether it was told to delete it.
    fleet.stores[2].insert("a".to_owned(), token.to_owned());
    fleet.rig.engine.adopt(b"a", token.as_bytes(), &kept(), fleet.rig.now).unwrap();
    serve(&mut fleet.rig, &mut fleet.stores);
    let Some(Event::Adopt { result: Ok(lease), .. }) = fleet.rig.engine.poll_event(fleet.rig.now)
    else {
        panic!("not adopted");
    };
    fleet.run(TTL);
    assert_eq!(fleet.votes(lease), 3);
    assert!(fleet.stores[3].is_empty() && fleet.stores[4].is_empty());
}

#[test]
pub(super) fn an_answer_that_comes_after_its_round_does_not_count_in_the_next() {
    let (mut fleet, lease) = Fleet::healing();
    // Of this round only the late answer comes.
    fleet.rig.answer(0, "+OK\r\n");
    fleet.rig.advance(60 * MS);
    let event = fleet.rig.engine.poll_event(fleet.rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Err(_), .. })), "{event:?}");
    fleet.rig.answer(1, "+OK\r\n");
    fleet.rig.engine.extend(lease, TTL, fleet.rig.now).unwrap();
    assert_eq!(fleet.asked(2), ["SET NX", "SET IFEQ"], "behind the SET it may hold the key");
    fleet.rig.answer(2, "+OK\r\n");
    fleet.rig.answer(0, "+OK\r\n");
    assert!(fleet.rig.engine.poll_event(fleet.rig.now).is_none(), "one node has voted");
    fleet.rig.answer(2, "+OK\r\n");
    let event = fleet.rig.engine.poll_event(fleet.rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
}

#[test]
pub(super) fn the_release_goes_behind_a_set_that_gives_the_token_again() {
    let (mut fleet, lease) = Fleet::healing_kept();
    fleet.rig.engine.release(lease, fleet.rig.now);
    assert_eq!(fleet.asked(2), ["SET NX", "DELIFEQ"]);
    // Where the connection ends, the delete is owed.
    fleet.lose(2);
    assert_eq!(fleet.rig.engine.nodes(fleet.rig.now)[2].debts, 1);
}

/// The shorter extension ran over a connection that has ended, and may run behind the longer one.
#[test]
pub(super) fn a_node_that_may_still_run_a_shorter_extension_does_not_get_the_token() {
    let mut fleet = Fleet::new(3);
    let lease = fleet.lease(LockOptions::new(TTL));
    fleet.rig.engine.extend(lease, TTL / 2, fleet.rig.now).unwrap();
    fleet.lose(2);
    serve(&mut fleet.rig, &mut fleet.stores);
    // Another process is there, older than the end of the connection: the first may be alive.
    fleet.stores[2].clear();
    fleet.lives[2] += 1;
    let info = fleet.info(2).replace("seconds:0", "seconds:5000");
    fleet.rig.greet(2, HELLO, &info);
    fleet.rig.engine.poll_event(fleet.rig.now);
    fleet.rig.engine.extend(lease, TTL / 2, fleet.rig.now).unwrap();
    assert_eq!(fleet.asked(2), ["SET IFEQ"], "it is as long as the one before");
    serve(&mut fleet.rig, &mut fleet.stores);
    fleet.rig.engine.poll_event(fleet.rig.now);
    for _ in 0..4 {
        fleet.rig.engine.extend(lease, TTL, fleet.rig.now).unwrap();
        fleet.run(TTL / 2);
        while fleet.rig.engine.poll_event(fleet.rig.now).is_some() {}
    }
    assert!(fleet.stores[2].is_empty());
    assert_eq!(fleet.votes(lease), 2);
}

/// Two processes have the address of the third node in turn, and the shorter extension may still run
/// at the first of them.
#[test]
pub(super) fn a_node_whose_address_leads_back_to_the_process_before_is_not_extended_to_a_longer_ttl()
 {
    // The second process began before the last answer of the first, or surely after it. The clock of the
    // first may have been set back, and then it seems to be young.
    for (second_s, first_s) in [(3, 9999), (2, 9999), (0, 9999), (0, 0)] {
        let mut fleet = Fleet::new(3);
        let lease = fleet.lease(LockOptions::new(TTL));
        fleet.rig.engine.extend(lease, TTL / 2, fleet.rig.now).unwrap();
        fleet.lose(2);
        serve(&mut fleet.rig, &mut fleet.stores);
        fleet.rig.engine.poll_event(fleet.rig.now);
        fleet.rig.advance(2 * SECOND);
        let first = fleet.info(2).replace("9999", &first_s.to_string());
        fleet.lives[2] += 1;
        let second = fleet.info(2).replace("seconds:0", &format!("seconds:{second_s}"));
        fleet.rig.greet(2, HELLO, &second);
        fleet.lose(2);
        fleet.rig.advance(2 * SECOND);
        fleet.rig.greet(2, HELLO, &first);
        fleet.rig.engine.extend(lease, TTL, fleet.rig.now).unwrap();
        assert_eq!(fleet.asked(2), Vec::<String>::new(), "{second_s} s, then {first_s} s old");
        assert_eq!(fleet.asked(0), ["SET IFEQ"]);
    }
}

/// The SET of the attempt may still run at the first process, when its address leads back to it.
#[test]
fn a_node_whose_address_leads_back_to_the_process_before_gets_the_delete_twice() {
    let mut fleet = Fleet::new(3);
    fleet.rig.acquire_with("a", LockOptions::new(TTL));
    fleet.rig.answer_all(0..2, "+OK\r\n");
    let lease = fleet.rig.locked();
    fleet.leads_there_and_back(2);
    fleet.rig.engine.release(lease, fleet.rig.now);
    assert_eq!(fleet.asked(2), ["DELIFEQ"]);
    fleet.rig.answer(2, ":0\r\n");
    fleet.rig.advance(SECOND);
    assert_eq!(fleet.asked(2), ["DELIFEQ"], "behind the SET");
}

/// The same, where the second process has answered that it lacks the key.
#[test]
fn a_key_that_the_second_process_lacked_is_deleted_at_the_first() {
    let mut fleet = Fleet::new(3);
    let lease = fleet.lease(LockOptions::new(TTL));
    fleet.rig.engine.extend(lease, TTL, fleet.rig.now).unwrap();
    fleet.rig.answer_all(0..2, "+OK\r\n");
    fleet.rig.engine.poll_event(fleet.rig.now);
    fleet.leads_away(2);
    fleet.rig.engine.extend(lease, TTL, fleet.rig.now).unwrap();
    assert_eq!(fleet.asked(2), ["SET IFEQ"]);
    fleet.rig.answer_all(0..2, "+OK\r\n");
    fleet.rig.answer(2, "_\r\n");
    let first = Fleet::new(3).info(2);
    fleet.rig.lose(2);
    fleet.rig.greet(2, HELLO, &first);
    fleet.rig.engine.release(lease, fleet.rig.now);
    assert_eq!(fleet.asked(2), ["DELIFEQ"]);
}

/// An adoption that failed may have left a shorter extension at the first process.
#[test]
fn an_adoption_is_doubted_again_where_an_address_leads_back_however_many_came_between() {
    for others in [0, 1, 2_000] {
        let mut fleet = Fleet::new(3);
        let adopt = |fleet: &mut Fleet, key: &str, ttl| {
            let options = LockOptions::new(ttl);
            fleet.rig.engine.adopt(key.as_bytes(), b"token", &options, fleet.rig.now).unwrap();
        };
        adopt(&mut fleet, "a", TTL / 2);
        fleet.rig.answer_all(0..2, "_\r\n");
        assert!(fleet.rig.engine.poll_event(fleet.rig.now).is_some());
        fleet.leads_away(2);
        for nth in 0..others {
            adopt(&mut fleet, &format!("k{nth}"), TTL / 2);
            fleet.rig.answer_all(0..2, "_\r\n");
            assert!(fleet.rig.engine.poll_event(fleet.rig.now).is_some());
            fleet.rig.answer(2, "_\r\n");
        }
        let first = Fleet::new(3).info(2);
        fleet.rig.lose(2);
        fleet.rig.greet(2, HELLO, &first);
        adopt(&mut fleet, "a", TTL);
        assert_eq!(fleet.asked(2), Vec::<String>::new(), "{others} adoptions came between");
    }
}

/// Late answers to the adoption itself tell nothing of why the key is gone.
#[test]
fn an_adopted_lease_is_given_to_no_node_that_answered_late_that_it_lacks_the_key() {
    let mut fleet = Fleet::new(5);
    let token = "of another client";
    for index in 0..3 {
        fleet.stores[index].insert("a".to_owned(), token.to_owned());
    }
    fleet.rig.engine.adopt(b"a", token.as_bytes(), &kept(), fleet.rig.now).unwrap();
    fleet.rig.answer_all(0..3, "+OK\r\n");
    let Some(Event::Adopt { result: Ok(lease), .. }) = fleet.rig.engine.poll_event(fleet.rig.now)
    else {
        panic!("not adopted");
    };
    fleet.rig.answer_all(3..5, "_\r\n");
    fleet.run(TTL);
    assert!(fleet.stores[3].is_empty() && fleet.stores[4].is_empty());
    assert_eq!(fleet.votes(lease), 3);
}

#[test]
fn a_lease_that_is_lost_is_given_to_no_node() {
    let mut fleet = Fleet::new(5);
    let lease = fleet.lease(kept());
    fleet.lose(3);
    fleet.run(TTL + 100 * MS);
    fleet.connect(3);
    while fleet.asked(3).is_empty() {
        fleet.rig.advance(10 * MS);
    }
    assert_eq!(fleet.asked(3), ["SET IFEQ"]);
    fleet.rig.answer_all(0..3, "_\r\n");
    assert!(fleet.rig.engine.is_lost(lease));
    fleet.rig.answer(3, "_\r\n");
    assert_eq!(fleet.asked(3), Vec::<String>::new());
}

#[test]
fn a_lease_is_given_away_once_each_node_has_answered_the_set_that_gives_it_the_token() {
    let (mut fleet, lease) = Fleet::healing();
    fleet.rig.answer_all(0..2, "+OK\r\n");
    while fleet.rig.engine.poll_event(fleet.rig.now).is_some() {}
    assert!(fleet.rig.engine.detach(lease).is_err());
    fleet.rig.answer(2, "+OK\r\n");
    fleet.rig.engine.detach(lease).unwrap();
}

/// The SET may still run, behind the release of the client that adopts the lease.
#[test]
fn a_lease_is_not_given_away_where_a_second_set_may_run_over_a_lost_connection() {
    let (mut fleet, lease) = Fleet::healing();
    fleet.rig.answer_all(0..2, "+OK\r\n");
    while fleet.rig.engine.poll_event(fleet.rig.now).is_some() {}
    fleet.lose(2);
    fleet.connect(2);
    assert!(fleet.rig.engine.detach(lease).is_err());
}

/// The SET of the attempt may still run, over a connection that has ended: behind the release, too.
#[test]
fn a_node_whose_first_set_has_no_answer_gets_a_second_and_the_release_reckons_with_both() {
    let mut fleet = Fleet::new(3);
    fleet.rig.acquire("a");
    fleet.lose(2);
    serve(&mut fleet.rig, &mut fleet.stores);
    let lease = fleet.rig.locked();
    fleet.connect(2);
    fleet.rig.engine.extend(lease, TTL, fleet.rig.now).unwrap();
    assert_eq!(fleet.asked(2), ["SET IFEQ"]);
    serve(&mut fleet.rig, &mut fleet.stores);
    assert_eq!(fleet.votes(lease), 3);
    assert_eq!(fleet.stores[2].len(), 1);
    while fleet.rig.engine.poll_event(fleet.rig.now).is_some() {}
    fleet.rig.engine.release(lease, fleet.rig.now);
    serve(&mut fleet.rig, &mut fleet.stores);
    assert!(fleet.stores.iter().all(|store| store.is_empty()));
    assert_eq!(fleet.rig.engine.nodes(fleet.rig.now)[2].debts, 1, "a delete behind the first SET");
}

#[test]
fn a_node_that_forgot_a_set_gets_each_key_again_by_the_extension_of_that_key() {
    let mut fleet = Fleet::new(3);
    fleet.rig.engine.try_lock_all(&["a", "b"], &LockOptions::new(TTL), fleet.rig.now).unwrap();
    serve(&mut fleet.rig, &mut fleet.stores);
    let lease = fleet.rig.locked();
    fleet.forget(2, lease);
    fleet.rig.engine.extend(lease, TTL, fleet.rig.now).unwrap();
    assert_eq!(fleet.asked(2), ["SET NX", "SET NX"]);
    assert_eq!(fleet.asked(0), ["SET IFEQ", "SET IFEQ"]);
    serve(&mut fleet.rig, &mut fleet.stores);
    let event = fleet.rig.engine.poll_event(fleet.rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
    assert_eq!(fleet.stores[2].keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(fleet.stores[2], fleet.stores[0], "each key has its own token again");
    fleet.rig.engine.release(lease, fleet.rig.now);
    serve(&mut fleet.rig, &mut fleet.stores);
    assert!(fleet.stores.iter().all(|store| store.is_empty()));
    assert_eq!(fleet.rig.engine.slots_in_use(), 0);
}

/// One node extends in time, and another makes the quorum by a SET. At the deadline another client
/// may have had the lock.
#[test]
fn a_node_that_heals_too_late_for_the_old_deadline_does_not_save_the_lease() {
    for healing in [Fleet::healing, Fleet::healing_kept] {
        for is_late in [false, true] {
            let (mut fleet, lease) = healing();
            let ends = fleet.rig.engine.deadline(lease).unwrap();
            fleet.rig.answer(0, "+OK\r\n");
            // The client stands still, and then reads the answer.
            fleet.rig.now = if is_late { ends } else { ends.minus_nanos(1_000_000) };
            fleet.rig.answer(2, "+OK\r\n");
            let remaining = fleet.rig.engine.remaining_at(lease, fleet.rig.now);
            assert_eq!(remaining < 2 * MS, is_late, "{remaining:?}");
            match fleet.rig.engine.poll_event(fleet.rig.now) {
                // The engine reports none of its own extensions.
                Some(Event::Extend { result: Ok(()), .. }) | None => assert!(!is_late),
                Some(
                    Event::Extend { result: Err(ExtendError::Expired), .. }
                    | Event::Lost { cause: LostCause::Expired, .. },
                ) => assert!(is_late),
                event => panic!("{event:?}"),
            }
        }
    }
}

/// The SET that gives a node the token again has no answer yet. Or the extension has none by which
/// the holder finds out that the node lacks the key.
#[test]
fn a_lock_is_handed_over_behind_the_set_that_heals_a_node_and_the_node_is_healed_no_more() {
    for (is_set_written, written) in [(true, ["SET NX", "EVAL a"]), (false, ["SET IFEQ", "EVAL a"])]
    {
        let rig = transfers::rig(3);
        let mut fleet = Fleet { rig, stores: stores(3), lives: vec![0; 3] };
        let lease = fleet.lease(kept());
        fleet.lose(2);
        fleet.run(TTL + 100 * MS);
        fleet.stores[2].clear();
        fleet.connect(2);
        subscribed(&mut fleet.rig, 2);
        while fleet.asked(2).is_empty() {
            assert!(!fleet.rig.engine.is_lost(lease), "the engine extends it");
            fleet.rig.advance(10 * MS);
        }
        announce(&mut fleet.rig, lease, 1);
        if is_set_written {
            fleet.rig.answer(2, "_\r\n");
        }
        fleet.rig.engine.unlock(lease, fleet.rig.now).unwrap();
        assert_eq!(fleet.asked(2), written);
        fleet.rig.answer(2, if is_set_written { "+OK\r\n" } else { "_\r\n" });
        fleet.rig.answer_all(0..2, "+OK\r\n");
        fleet.rig.answer_all(0..3, ":2\r\n");
        let event = fleet.rig.engine.poll_event(fleet.rig.now);
        assert!(matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })));
        fleet.rig.advance(TTL * 2);
        for index in 0..3 {
            assert_eq!(fleet.asked(index), Vec::<String>::new(), "node {index}");
        }
        assert_eq!(fleet.rig.engine.slots_in_use(), 0);
    }
}

#[test]
fn a_node_that_forgot_a_lease_does_not_get_the_token_once_the_lease_is_given_away() {
    let mut fleet = Fleet::new(3);
    let lease = fleet.lease(kept());
    fleet.restart(2);
    fleet.run(GUARD - 200 * MS);
    fleet.rig.engine.detach(lease).unwrap();
    fleet.run(TTL * 2);
    assert!(fleet.stores[2].is_empty());
    assert_eq!(fleet.stores[0].len(), 1, "the key is left to the client that adopts it");
}

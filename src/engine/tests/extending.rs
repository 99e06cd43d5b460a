//! Extensions: only genuine ones count, and the deadline is always true.

use super::*;
use crate::token::hex;

fn extended(rig: &mut Rig) -> Option<Result<(), ExtendError>> {
    let event = rig.engine.poll_event(rig.now)?;
    let Event::Extend { result, .. } = event else { panic!("not an extension: {event:?}") };
    Some(result)
}

#[test]
fn a_quorum_of_extensions_moves_the_deadline_from_their_own_start() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.now = rig.now + Duration::from_secs(5);
    let t0 = rig.now;
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.collect();
    let set = &rig.inbox[0][0];
    assert_eq!((&*set[0], &*set[3], &*set[5]), ("SET", "IFEQ", "PX"));
    assert_eq!(set[2], set[4], "the token stays");
    rig.now = rig.now + 20 * MS;
    rig.answer_all(0..2, "+OK\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
    assert_eq!(rig.engine.deadline(lease), Some(t0 + TTL - 102 * MS));
}

#[test]
fn a_shorter_extension_bounds_the_deadline_from_the_moment_it_is_written() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    let t0 = rig.now;
    rig.engine.extend(lease, 1000 * MS, rig.now).unwrap();
    let short = t0 + 1000 * MS - 12 * MS;
    assert_eq!(rig.engine.deadline(lease), Some(short));
    rig.answer(0, "+OK\r\n");
    rig.advance(51 * MS);
    assert!(matches!(extended(&mut rig), Some(Err(ExtendError::NoQuorum(_)))));
    assert_eq!(rig.engine.deadline(lease), Some(short), "a missed quorum gives nothing back");
}

#[test]
fn a_missed_quorum_neither_removes_nor_moves_the_deadline() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    let deadline = rig.engine.deadline(lease);
    rig.now = rig.now + 5000 * MS;
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..2, "-BUSY script\r\n");
    assert!(matches!(extended(&mut rig), Some(Err(ExtendError::NoQuorum(_)))));
    assert_eq!(rig.engine.deadline(lease), deadline);
    assert_eq!(rig.waiting(2), ["SET"], "no release");
}

#[test]
fn keys_gone_on_too_many_nodes_mean_the_lock_is_lost() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..2, "_\r\n");
    assert!(matches!(extended(&mut rig), Some(Err(ExtendError::Lost(_)))));
}

#[test]
fn a_node_that_refused_the_login_and_has_not_answered_the_extension_is_blamed_for_the_login() {
    const WRONG: &str = "-WRONGPASS invalid username-password pair\r\n";
    let mut rig = Rig::unconnected(3, |config| config.password("p"));
    rig.greet(0, WRONG, "run_id:0\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
    rig.greet(1, WRONG, "run_id:1\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
    rig.connect(2);
    rig.engine.adopt(b"a", b"tok", &LockOptions::new(TTL), rig.now).unwrap();
    rig.answer(2, "_\r\n");
    for _ in rig.waiting(1) {
        rig.answer(1, "-NOAUTH Authentication required.\r\n");
    }
    rig.advance(100 * MS);
    let event = rig.engine.poll_event(rig.now).expect("two of three said no");
    let Event::Adopt { result: Err(ExtendError::NoQuorum(ballot)), .. } = event else {
        panic!("{event:?}")
    };
    let refused = Vote::Unknown(Cause::Credentials);
    assert_eq!(ballot.votes().next().map(|(_, vote)| vote), Some(refused), "{ballot}");
}

#[test]
fn an_ended_lease_is_not_extended() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.now = rig.now + TTL;
    assert!(matches!(rig.engine.extend(lease, TTL, rig.now), Err(ExtendError::Expired)));
    assert_eq!(rig.waiting(0), Vec::<String>::new());
}

#[test]
fn an_extension_that_is_known_after_its_own_deadline_is_expired() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, 100 * MS, rig.now).unwrap();
    rig.answer_all(0..3, "+OK\r\n");
    rig.now = rig.now + 98 * MS;
    assert!(matches!(extended(&mut rig), Some(Err(ExtendError::Expired))));
}

#[test]
fn a_node_that_lost_an_unanswered_extension_counts_in_no_longer_one() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL / 2, rig.now).unwrap();
    rig.lose(2);
    rig.answer_all(0..2, "+OK\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
    rig.advance(60 * MS);
    rig.connect(2);
    rig.engine.extend(lease, TTL / 2, rig.now).unwrap();
    assert_eq!(rig.waiting(2), ["SET"], "it does not matter which of the two runs last");
    rig.answer_all(0..3, "+OK\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(2), Vec::<String>::new());
    // The client still deletes its key with the others.
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
}

/// A shorter extension to node 2 was lost with its connection, and may still run there.
fn with_a_lost_extension() -> (Rig, LeaseId) {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL / 2, rig.now).unwrap();
    rig.answer_all(0..2, "+OK\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
    rig.lose(2);
    (rig, lease)
}

/// Its address has led to a new process, and leads back to the first, which may still run it.
#[test]
fn a_longer_extension_that_waited_for_a_node_is_not_sent_where_a_shorter_one_may_run() {
    let (mut rig, lease) = with_a_lost_extension();
    rig.advance(3_000 * MS);
    rig.greet(2, HELLO, "run_id:new\r\nconnected_slaves:0\r\nuptime_in_seconds:0\r\n");
    (1..3).for_each(|index| rig.lose(index));
    rig.until_wanted(2);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(0), ["SET"]);
    rig.connect(2);
    assert!(rig.waiting(2).is_empty());
}

/// The address of node 1 leads to the process that node 2 was.
#[test]
fn a_longer_extension_is_not_sent_where_a_shorter_one_to_another_node_may_run() {
    let (mut rig, lease) = with_a_lost_extension();
    rig.until_wanted(2);
    rig.engine.handle_lost(node(2), Cause::ConnectionRefused, rig.now);
    rig.lose(1);
    rig.greet(1, HELLO, "run_id:2\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
    assert!(rig.engine.voters().contains(node(1)));
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(0), ["SET"]);
    assert!(rig.waiting(1).is_empty());
}

#[test]
fn a_late_answer_to_an_earlier_extension_does_not_count_for_the_next() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.advance(51 * MS);
    assert!(matches!(extended(&mut rig), Some(Err(ExtendError::NoQuorum(_)))));
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..3, "+OK\r\n");
    assert!(extended(&mut rig).is_none(), "those were answers to the first");
    rig.answer_all(0..2, "+OK\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
}

#[test]
fn one_extension_at_a_time() {
    let mut rig = Rig::new(1);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert!(matches!(rig.engine.extend(lease, TTL, rig.now), Err(ExtendError::Busy)));
}

#[test]
fn a_release_ends_an_extension_under_way_and_goes_behind_it() {
    let mut rig = Rig::new(1);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.engine.release(lease, rig.now);
    assert!(matches!(extended(&mut rig), Some(Err(ExtendError::Cancelled))));
    assert_eq!(rig.waiting(0), ["SET", "DELIFEQ"]);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, ":1\r\n");
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn memory_pressure_does_not_stop_an_extension() {
    let mut rig = Rig::new(1);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer(0, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
    assert_eq!(rig.waiting(0), ["EVAL"]);
    rig.answer(0, ":1\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
}

#[test]
fn a_lock_from_elsewhere_is_adopted_by_a_quorum_of_extensions() {
    let mut rig = Rig::new(3);
    rig.engine.adopt(b"a", b"tok", &LockOptions::new(TTL), rig.now).unwrap();
    rig.answer_all(0..2, "+OK\r\n");
    let Some(Event::Adopt { result: Ok(lease), .. }) = rig.engine.poll_event(rig.now) else {
        panic!("not adopted")
    };
    assert_eq!(rig.engine.deadline(lease), Some(rig.now + TTL - 102 * MS));
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

#[test]
fn a_failed_adoption_leaves_the_lock_as_it_is() {
    let mut rig = Rig::new(3);
    rig.engine.adopt(b"a", b"tok", &LockOptions::new(TTL), rig.now).unwrap();
    rig.answer_all(0..2, "_\r\n");
    let Some(Event::Adopt { result: Err(ExtendError::Lost(_)), .. }) =
        rig.engine.poll_event(rig.now)
    else {
        panic!("not refused")
    };
    rig.answer(2, "+OK\r\n");
    assert_eq!(rig.waiting(2), Vec::<String>::new());
    assert_eq!(rig.engine.slots_in_use(), 0);
}

#[test]
fn an_adoption_waits_for_the_answers_that_may_show_that_the_lock_is_over() {
    let mut rig = Rig::new(5);
    rig.engine.adopt(b"a", b"tok", &LockOptions::new(TTL), rig.now).unwrap();
    rig.answer(4, "-BUSY script\r\n");
    rig.answer_all(0..2, "_\r\n");
    assert!(
        rig.engine.poll_event(rig.now).is_none(),
        "no quorum is left, but two may have the key"
    );
    rig.answer(2, "_\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Adopt { result: Err(ExtendError::Lost(_)), .. })));
}

/// The adoption of one lock for this time, of which each connected node knows the key.
fn adopts(rig: &mut Rig, ttl: Duration) -> bool {
    rig.engine.adopt(b"a", b"tok", &LockOptions::new(ttl), rig.now).unwrap();
    for index in 0..3 {
        while !rig.waiting(index).is_empty() {
            rig.answer(index, "+OK\r\n");
        }
    }
    rig.advance(100 * MS);
    let Some(Event::Adopt { result, .. }) = rig.engine.poll_event(rig.now) else {
        panic!("not adopted")
    };
    result.map(|lease| rig.engine.leave(lease, rig.now)).is_ok()
}

#[test]
pub(super) fn a_longer_adoption_counts_no_node_that_may_still_run_a_shorter_one() {
    for unanswered in 1..=3 {
        let mut rig = Rig::new(3);
        rig.engine.adopt(b"a", b"tok", &LockOptions::new(TTL / 10), rig.now).unwrap();
        // These nodes may run the extension later.
        (0..unanswered).for_each(|index| rig.lose(index));
        rig.answer_all(unanswered..3, "_\r\n");
        assert!(matches!(
            rig.engine.poll_event(rig.now),
            Some(Event::Adopt { result: Err(_), .. })
        ));
        (0..unanswered).for_each(|index| rig.connect(index));
        assert_eq!(adopts(&mut rig, TTL), unanswered == 1, "{unanswered}");
        assert!(adopts(&mut rig, TTL / 10), "not longer than the first");
    }
}

#[test]
pub(super) fn a_lock_is_not_adopted_while_this_client_has_it_or_deletes_it() {
    let mut rig = Rig::new(3);
    rig.engine.unlock_token(b"a", b"tok", rig.now).unwrap();
    rig.answer_all(0..3, "-NOREPLICAS Not enough good replicas to write.\r\n");
    assert!(rig.engine.poll_event(rig.now).is_some());
    let adopt = |rig: &mut Rig| rig.engine.adopt(b"a", b"tok", &LockOptions::new(TTL), rig.now);
    assert!(matches!(adopt(&mut rig), Err(ExtendError::Busy)), "the client will delete again");
    rig.advance(1_100 * MS);
    rig.answer_all(0..3, ":0\r\n");
    assert!(adopts(&mut rig, TTL));
    let op = adopt(&mut rig).unwrap();
    assert!(matches!(adopt(&mut rig), Err(ExtendError::Busy)), "it is about to have the lock");
    rig.engine.cancel(op, rig.now);
    assert!(rig.engine.poll_event(rig.now).is_some());
    adopt(&mut rig).unwrap();
    (0..3).for_each(|index| (0..2).for_each(|_| rig.answer(index, "+OK\r\n")));
    assert!(matches!(rig.engine.poll_event(rig.now), Some(Event::Adopt { result: Ok(_), .. })));
    assert!(matches!(adopt(&mut rig), Err(ExtendError::Busy)), "it has the lock");
}

#[test]
fn a_client_remembers_locks_from_elsewhere_only_while_it_has_them() {
    let mut rig = Rig::new(1);
    for _ in 0..100 {
        rig.engine.unlock_token(b"a", b"tok", rig.now).unwrap();
        rig.answer(0, ":1\r\n");
        assert!(rig.engine.poll_event(rig.now).is_some());
    }
    assert!(rig.engine.foreign_slots() <= 1);
}

#[test]
fn a_lock_that_this_client_unlocks_by_its_token_is_lost_at_once() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    let (_, token) = rig.engine.lease_name(lease).unwrap();
    rig.engine.unlock_token(b"a", token.as_bytes(), rig.now).unwrap();
    assert_eq!(rig.engine.deadline(lease), Some(rig.now));
    // The adoption of another is under way.
    rig.engine.adopt(b"b", b"tok", &LockOptions::new(TTL), rig.now).unwrap();
    rig.engine.unlock_token(b"b", b"tok", rig.now).unwrap();
    assert!(matches!(
        rig.engine.poll_event(rig.now),
        Some(Event::Adopt { result: Err(ExtendError::Lost(_)), .. })
    ));
}

/// The caller has no lease yet. The deletes go behind the SETs, so each node still grants.
#[test]
fn a_lock_whose_token_this_client_deletes_is_not_handed_over() {
    let is_won = |rig: &mut Rig| {
        let now = rig.now;
        let mut events = std::iter::from_fn(|| rig.engine.poll_event(now));
        events.any(|event| matches!(event, Event::Lock { result: Ok(_), .. }))
    };
    for granted in 0..=3 {
        for (keys, grant) in [(&["a"][..], "+OK\r\n"), (&["a", "b"], ":1\r\n")] {
            let mut rig = Rig::new(3);
            rig.engine.try_lock_all(keys, &LockOptions::new(TTL), rig.now).unwrap();
            rig.collect();
            let token = rig.inbox[0][0][keys.len() + 1].clone();
            rig.answer_all(0..granted, grant);
            rig.engine.unlock_token(b"a", token.as_bytes(), rig.now).unwrap();
            rig.answer_all(granted..3, grant);
            assert!(!is_won(&mut rig), "{keys:?}, behind {granted} grants");
        }
    }
    // A holder hands its lock over to the token.
    let mut rig = transfers::rig(3);
    transfers::offering(&mut rig);
    let token = hex(&transfers::offered(&rig));
    rig.engine.unlock_token(b"a", &token, rig.now).unwrap();
    (0..2).for_each(|index| transfers::told(&mut rig, index));
    assert!(!is_won(&mut rig));
}

#[test]
fn a_lease_that_is_left_is_forgotten_with_its_claims_and_its_keys_stay() {
    let mut rig = Rig::new(3);
    let options = LockOptions::new(TTL).keep_alive().announced();
    let locks = [(b"a", b"one"), (b"b", b"two")];
    rig.engine.adopt_all(&locks, &options, rig.now).unwrap();
    (0..3).for_each(|index| (0..2).for_each(|_| rig.answer(index, "+OK\r\n")));
    let Some(Event::Adopt { result: Ok(lease), .. }) = rig.engine.poll_event(rig.now) else {
        panic!("not adopted")
    };
    rig.clear();
    rig.engine.leave(lease, rig.now);
    rig.collect();
    let keys: Vec<_> = rig.inbox[0].drain(..).map(|words| words[1..].join(" ")).collect();
    assert!(keys.iter().all(|words| words.contains(":elected")), "{keys:?}");
    assert_eq!(keys.len(), 2);
    rig.advance(TTL);
    assert!(rig.waiting(0).is_empty(), "no extension follows");
}

/// An adoption for a tenth of the TTL that ends before two of the nodes have answered.
fn slow() -> Rig {
    let mut rig = Rig::new(3);
    rig.engine.adopt(b"a", b"tok", &LockOptions::new(TTL / 10), rig.now).unwrap();
    rig.answer(2, "_\r\n");
    rig.advance(100 * MS);
    assert!(matches!(rig.engine.poll_event(rig.now), Some(Event::Adopt { result: Err(_), .. })));
    rig
}

#[test]
fn a_node_that_has_answered_a_failed_adoption_counts_in_a_longer_one() {
    let mut rig = slow();
    rig.answer_all(0..2, "+OK\r\n");
    rig.engine.adopt(b"a", b"tok", &LockOptions::new(TTL), rig.now).unwrap();
    rig.answer_all(0..3, "+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    let Some(Event::Adopt { result: Ok(lease), .. }) = event else { panic!("{event:?}") };
    rig.engine.detach(lease).expect("nothing is on its way");
}

/// A replica takes a master's place for a while. Each of them has run for long.
#[test]
pub(super) fn a_node_whose_address_led_to_an_old_process_and_back_counts_in_an_adoption() {
    let mut rig = Rig::new(3);
    for process in ["replica", "2"] {
        rig.lose(2);
        rig.advance(2_000 * MS);
        let info = format!("run_id:{process}\r\nconnected_slaves:0\r\nuptime_in_seconds:9999\r\n");
        rig.greet(2, HELLO, &info);
    }
    rig.engine.adopt(b"a", b"token", &LockOptions::new(TTL), rig.now).unwrap();
    assert_eq!(rig.waiting(2), ["SET"]);
}

#[test]
fn an_extension_that_is_lost_after_its_adoption_has_failed_is_remembered_until_the_node_restarts() {
    for is_reborn in [false, true] {
        let mut rig = slow();
        (0..2).for_each(|index| rig.lose(index));
        rig.advance(2 * TTL / 10);
        for index in 0..2 {
            if is_reborn {
                let info =
                    format!("run_id:new{index}\r\nconnected_slaves:0\r\nuptime_in_seconds:1\r\n");
                rig.greet(index, HELLO, &info);
            } else {
                rig.connect(index);
            }
        }
        assert_eq!(adopts(&mut rig, TTL), is_reborn);
    }
}

#[test]
pub(super) fn a_node_that_refuses_a_form_is_extended_though_the_others_have_decided() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..2, "+OK\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
    rig.answer(2, "-OOM command not allowed\r\n");
    assert_eq!(rig.waiting(2), ["EVAL"]);
    // The node gets no EVAL once the lease is released.
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.engine.release(lease, rig.now);
    rig.answer(2, ":1\r\n");
    rig.answer(2, "-OOM command not allowed\r\n");
    assert_eq!(rig.waiting(2), ["DELIFEQ"]);
}

#[test]
fn a_lease_is_extended_no_more_often_and_held_no_longer_than_allowed() {
    let mut rig = Rig::with(1, |config| config.max_extensions(2));
    let lease = rig.lease("a");
    for _ in 0..2 {
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        rig.answer(0, "+OK\r\n");
        assert!(extended(&mut rig).unwrap().is_ok());
    }
    let third = rig.engine.extend(lease, TTL, rig.now);
    assert!(matches!(third, Err(ExtendError::LimitReached)));

    let mut rig = Rig::with(1, |config| config.max_hold(Duration::from_secs(15)));
    let lease = rig.lease("a");
    rig.now = rig.now + Duration::from_secs(5);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer(0, "+OK\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
    rig.now = rig.now + Duration::from_secs(1);
    let longer = rig.engine.extend(lease, TTL, rig.now);
    assert!(matches!(longer, Err(ExtendError::LimitReached)));
}

#[test]
fn a_lease_that_late_answers_end_has_no_time_left_and_is_told_of() {
    let mut rig = Rig::new(5);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer(0, "+OK\r\n");
    rig.answer(1, "_\r\n");
    rig.advance(60 * MS);
    assert!(matches!(extended(&mut rig), Some(Err(ExtendError::NoQuorum(_)))));
    while rig.engine.poll_change().is_some() {}
    // Two more nodes are without the key: other clients may hold it now.
    rig.answer_all([2, 3], "_\r\n");
    assert!(rig.engine.is_lost(lease) && rig.engine.remaining_at(lease, rig.now).is_zero());
    assert_eq!(rig.engine.poll_change(), Some(lease), "nobody is told");
    assert_eq!(rig.engine.poll_change(), None);
}

#[test]
fn a_full_memory_does_not_take_the_extension_away_where_scripts_are_not_allowed() {
    let mut rig = Rig::new(1);
    let lease = rig.lease("a");
    let denied = "-NOPERM this user has no permissions to run the 'eval' command\r\n";
    for _ in 0..3 {
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        rig.answer(0, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
        rig.answer(0, denied);
        let failed = extended(&mut rig);
        assert!(matches!(failed, Some(Err(ExtendError::NoQuorum(_)))), "{failed:?}");
    }
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(0), ["SET"]);
    rig.answer(0, "+OK\r\n");
    assert!(matches!(extended(&mut rig), Some(Ok(()))));
}

/// By then another client may have had the lock. The third node runs the SET of the lease late,
/// when that client has let go, and then the extension.
#[test]
fn an_extension_that_a_quorum_confirms_behind_the_old_deadline_is_a_loss() {
    for is_kept in [false, true] {
        let mut rig = Rig::new(3);
        let options = LockOptions::new(TTL);
        rig.acquire_with("k", if is_kept { options.keep_alive() } else { options });
        rig.answer_all(0..2, "+OK\r\n");
        let lease = rig.locked();
        let ends = rig.engine.deadline(lease).unwrap();
        rig.now = ends - MS;
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        rig.answer(0, "+OK\r\n");
        rig.now = ends;
        rig.answer_all([2, 2], "+OK\r\n");
        assert!(matches!(extended(&mut rig), Some(Err(ExtendError::Expired))), "kept: {is_kept}");
        assert!(rig.engine.deadline(lease).unwrap() <= ends, "it stays over");
        let again = rig.engine.extend(lease, TTL, rig.now);
        assert!(matches!(again, Err(ExtendError::Expired)), "{again:?}");
    }
}

/// The number of an extension has 16 bits. A node that is stalled answers the first of so many.
#[test]
fn an_answer_does_not_count_in_the_extension_that_has_the_same_number() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..2, "+OK\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
    rig.advance(1_000 * MS);
    assert_eq!(rig.waiting(2), ["SET"]);
    for _ in 1..=u16::MAX {
        rig.engine.extend(lease, TTL, rig.now).unwrap();
        rig.answer_all(0..2, "+OK\r\n");
        assert!(extended(&mut rig).unwrap().is_ok());
    }
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert_eq!(rig.waiting(2), ["SET"], "it is stalled");
    rig.answer(2, "+OK\r\n");
    rig.answer(0, "+OK\r\n");
    assert!(extended(&mut rig).is_none(), "one node has extended it");
    rig.answer(1, "+OK\r\n");
    assert!(extended(&mut rig).unwrap().is_ok());
}

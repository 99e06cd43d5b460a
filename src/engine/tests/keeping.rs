//! Leases that the engine keeps alive: it extends them in time, by all rules of a caller's
//! extension, and reports their loss.

use super::*;

fn kept() -> LockOptions {
    LockOptions::new(TTL).keep_alive()
}

/// A lease that every node granted and the engine keeps alive.
fn kept_lease(rig: &mut Rig, acquire: LockOptions) -> LeaseId {
    rig.acquire_with("a", acquire);
    rig.answer_all(0..rig.inbox.len(), "+OK\r\n");
    rig.locked()
}

fn third() -> Duration {
    TTL / 3
}

/// The engine's reports: the loss of the lease and nothing else.
fn loss(rig: &mut Rig) -> Option<LostCause> {
    let event = rig.engine.poll_event(rig.now)?;
    let Event::Lost { cause, .. } = event else { panic!("not a loss: {event:?}") };
    Some(cause)
}

#[test]
fn a_kept_lease_is_extended_at_each_third_of_its_ttl_with_its_own_token() {
    let mut rig = Rig::new(3);
    let t0 = rig.now;
    let lease = kept_lease(&mut rig, kept());
    let (_, token) = rig.engine.lease_name(lease).unwrap();
    for turn in 1..=10 {
        rig.advance(third() - MS);
        assert_eq!(rig.waiting(0), Vec::<String>::new(), "not before it is due");
        rig.advance(MS);
        rig.collect();
        let set = rig.inbox[0][0].clone();
        assert_eq!((&*set[0], &*set[3], &*set[6]), ("SET", "IFEQ", "10000"));
        assert_eq!(set[2], token.to_string());
        rig.answer_all(0..3, "+OK\r\n");
        rig.pass();
        assert_eq!(rig.engine.deadline(lease), Some(t0 + third() * turn + TTL - 102 * MS));
        assert!(rig.engine.poll_event(rig.now).is_none(), "nobody asked for it");
    }
    assert_eq!(rig.engine.in_flight(), 0);
}

#[test]
fn a_keep_alive_ends_with_the_release_the_gift_and_the_loss_of_its_lease() {
    for way in 0..4 {
        let mut rig = Rig::new(3);
        let lease = kept_lease(&mut rig, kept());
        match way {
            0 => drop(rig.engine.unlock(lease, rig.now)),
            1 => rig.engine.release(lease, rig.now),
            2 => rig.engine.detach(lease).unwrap(),
            _ => {
                rig.engine.extend(lease, TTL, rig.now).unwrap();
                rig.answer_all(0..3, "_\r\n");
                assert!(matches!(
                    rig.engine.poll_event(rig.now),
                    Some(Event::Extend { result: Err(ExtendError::Lost(_)), .. })
                ));
                assert_eq!(loss(&mut rig), Some(LostCause::Gone));
            }
        }
        for index in 0..3 {
            let count = rig.waiting(index).len();
            rig.answer_all(std::iter::repeat_n(index, count), ":1\r\n");
        }
        while rig.engine.poll_event(rig.now).is_some() {}
        rig.advance(TTL * 2);
        assert_eq!(rig.waiting(0), Vec::<String>::new(), "{way}");
        assert!(rig.engine.poll_event(rig.now).is_none(), "{way}");
        rig.engine.release(lease, rig.now);
        assert_eq!(rig.engine.slots_in_use(), 0);
    }
}

#[test]
fn a_release_ends_a_keep_alive_under_way_and_goes_behind_it() {
    let mut rig = Rig::new(1);
    let lease = kept_lease(&mut rig, kept());
    rig.advance(third());
    assert!(rig.engine.is_extending(lease));
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0), ["SET", "DELIFEQ"]);
    rig.answer(0, "+OK\r\n");
    rig.answer(0, ":1\r\n");
    rig.advance(TTL);
    assert_eq!((rig.engine.slots_in_use(), rig.engine.in_flight()), (0, 0));
    assert!(rig.engine.poll_event(rig.now).is_none());
    assert_eq!(rig.waiting(0), Vec::<String>::new());
}

#[test]
fn a_missed_quorum_is_tried_again_within_the_validity_a_node_timeout_apart() {
    let mut rig = Rig::new(3);
    let t0 = rig.now;
    let lease = kept_lease(&mut rig, kept());
    let deadline = rig.engine.deadline(lease);
    rig.advance(third());
    let mut times = Vec::new();
    while times.len() < 20 {
        if rig.waiting(0).is_empty() {
            rig.advance(MS);
        } else {
            times.push(rig.now);
            rig.answer_all(0..3, "-BUSY script\r\n");
        }
    }
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[0].until(pair[1])).collect();
    assert!(gaps.iter().all(|gap| (50 * MS..=64 * MS).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap > gaps[0] + MS || *gap + MS < gaps[0]), "{gaps:?}");
    assert_eq!(rig.engine.deadline(lease), deadline, "a missed quorum moves nothing");
    while rig.waiting(0).is_empty() {
        rig.advance(MS);
    }
    let began = rig.now;
    rig.answer_all(0..3, "+OK\r\n");
    rig.pass();
    let now = rig.engine.deadline(lease).unwrap();
    assert!(now > t0 + TTL && now <= began + TTL - 102 * MS);
    rig.advance(third() - 5 * MS);
    assert_eq!(rig.waiting(0), Vec::<String>::new(), "well again, it waits for its third");
    rig.advance(5 * MS);
    assert_eq!(rig.waiting(0), ["SET"]);
}

/// Every node is frozen, and answers nothing at all.
#[test]
fn the_loss_is_told_at_the_deadline_though_every_node_is_silent() {
    let mut rig = Rig::new(3);
    let lease = kept_lease(&mut rig, kept());
    let deadline = rig.engine.deadline(lease).unwrap();
    while rig.now < deadline {
        assert!(!rig.engine.is_lost(lease) && loss(&mut rig).is_none());
        let next = rig.engine.next_deadline().unwrap();
        assert!(next <= deadline, "nobody would be there to tell it");
        rig.now = rig.now.max(next);
        rig.pass();
    }
    assert_eq!(rig.now, deadline);
    assert!(rig.engine.is_lost(lease));
    assert_eq!(loss(&mut rig), Some(LostCause::Expired));
    assert_eq!(loss(&mut rig), None, "told once");
    // An answer that comes now changes nothing any more.
    for index in 0..3 {
        let count = rig.waiting(index).len();
        rig.answer_all(std::iter::repeat_n(index, count), "+OK\r\n");
    }
    rig.pass();
    assert!(rig.engine.remaining_at(lease, rig.now).is_zero() && rig.engine.is_lost(lease));
    assert!(matches!(rig.engine.extend(lease, TTL, rig.now), Err(ExtendError::Expired)));
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

#[test]
fn the_loss_is_told_at_once_when_no_quorum_can_hold_the_key() {
    let mut rig = Rig::new(5);
    let lease = kept_lease(&mut rig, kept());
    rig.advance(third());
    rig.answer_all(0..2, "_\r\n");
    rig.pass();
    assert!(!rig.engine.is_lost(lease), "three may hold it");
    rig.answer(2, "_\r\n");
    rig.pass();
    assert_eq!(loss(&mut rig), Some(LostCause::Gone));
    assert!(rig.engine.is_lost(lease) && rig.engine.remaining_at(lease, rig.now).is_zero());
    // The rest is released with the lease.
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(3), ["SET", "DELIFEQ"]);
    assert_eq!(rig.waiting(0), Vec::<String>::new());
}

#[test]
fn a_node_that_cannot_be_reached_is_not_blamed_for_a_loss() {
    let mut rig = Rig::new(5);
    rig.lose(4);
    rig.acquire_with("a", kept());
    rig.answer_all(0..4, "+OK\r\n");
    rig.locked();
    rig.advance(third());
    rig.answer_all(0..2, "_\r\n");
    rig.pass();
    assert_eq!(loss(&mut rig), Some(LostCause::Gone));
}

#[test]
fn a_lease_is_extended_though_calls_take_all_the_room() {
    let mut rig = Rig::with(3, |config| config.in_flight_max(2));
    let lease = kept_lease(&mut rig, kept());
    let waits = LockOptions::new(TTL).retry(crate::retry::Retry::every(3 * TTL, Duration::ZERO));
    for _ in 0..2 {
        rig.acquire_with("b", waits.clone());
        rig.answer_all(0..3, "_\r\n");
    }
    assert!(rig.engine.acquire(b"c", &kept(), rig.now).is_err(), "no room");
    rig.advance(third());
    assert_eq!(rig.waiting(0), ["SET"]);
    rig.answer_all(0..3, "+OK\r\n");
    rig.pass();
    assert!(rig.engine.remaining_at(lease, rig.now) > TTL - third());
}

#[test]
fn the_extensions_of_the_engine_take_no_room_of_the_callers_calls() {
    let mut rig = Rig::with(1, |config| config.in_flight_max(1));
    let lease = kept_lease(&mut rig, kept());
    rig.advance(third());
    assert!(rig.engine.is_extending(lease));
    rig.acquire("b");
    assert!(rig.engine.acquire(b"c", &kept(), rig.now).is_err(), "no room");
    assert_eq!(rig.waiting(0), ["SET", "SET"]);
    rig.answer(0, "+OK\r\n");
    rig.pass();
    assert!(rig.engine.acquire(b"c", &kept(), rig.now).is_err(), "no room yet");
    rig.answer(0, "+OK\r\n");
    rig.locked();
    rig.advance(third());
    rig.engine.extend(lease, TTL, rig.now).expect("the caller's extension ends the engine's");
    assert!(rig.engine.acquire(b"c", &kept(), rig.now).is_err(), "no room again");
}

/// The time of the extension decided it, and the answers that report the missing key come later.
#[test]
fn late_answers_tell_the_loss_as_well() {
    let mut rig = Rig::new(3);
    let lease = kept_lease(&mut rig, LockOptions::new(TTL).keep_alive());
    rig.advance(third());
    rig.answer(0, "_\r\n");
    rig.advance(49 * MS);
    rig.answer(1, "-BUSY script\r\n");
    rig.pass();
    assert!(!rig.engine.is_extending(lease) && !rig.engine.is_lost(lease));
    rig.answer(2, "_\r\n");
    rig.pass();
    assert_eq!(loss(&mut rig), Some(LostCause::Gone));
}

#[test]
fn an_extension_that_wins_after_the_deadline_does_not_revive_a_kept_lease() {
    let mut rig = Rig::new(3);
    let lease = kept_lease(&mut rig, kept());
    let deadline = rig.engine.deadline(lease).unwrap();
    rig.now = deadline - 10 * MS;
    rig.pass();
    rig.pass();
    assert!(rig.engine.is_extending(lease));
    rig.now = deadline + MS;
    // The engine reads the answers before it looks at the time.
    rig.answer_all(0..3, "+OK\r\n");
    rig.pass();
    assert_eq!(loss(&mut rig), Some(LostCause::Expired));
    assert!(rig.engine.remaining_at(lease, rig.now).is_zero());
}

#[test]
fn a_kept_lease_is_extended_no_more_often_and_held_no_longer_than_allowed() {
    let configs: [fn(Config) -> Config; 2] =
        [|config| config.max_extensions(2), |config| config.max_hold(third() * 2 + TTL)];
    for (way, config) in configs.into_iter().enumerate() {
        let mut rig = Rig::with(1, config);
        let t0 = rig.now;
        let lease = kept_lease(&mut rig, kept());
        for _ in 0..2 {
            rig.advance(third());
            rig.answer(0, "+OK\r\n");
            rig.pass();
        }
        let end = t0 + third() * 2 + TTL - 102 * MS;
        assert_eq!(rig.engine.deadline(lease), Some(end), "{way}");
        rig.advance(third());
        assert_eq!(rig.waiting(0), Vec::<String>::new(), "{way}");
        rig.advance(rig.now.until(end));
        assert_eq!(loss(&mut rig), Some(LostCause::Expired), "at its deadline: {way}");
    }
}

#[test]
fn the_callers_extension_goes_before_the_engines_and_sets_the_pace() {
    let mut rig = Rig::new(1);
    let lease = kept_lease(&mut rig, kept());
    rig.advance(third());
    assert_eq!(rig.waiting(0), ["SET"]);
    rig.engine.extend(lease, TTL * 2, rig.now).unwrap();
    rig.answer(0, "+OK\r\n");
    assert!(rig.engine.poll_event(rig.now).is_none(), "that was the answer to the engine's");
    rig.answer(0, "+OK\r\n");
    let t0 = rig.now;
    assert!(matches!(rig.engine.poll_event(rig.now), Some(Event::Extend { result: Ok(()), .. })));
    rig.advance(third() * 2 - MS);
    assert_eq!(rig.waiting(0), Vec::<String>::new());
    rig.advance(2 * MS);
    assert_eq!(rig.waiting(0), ["SET"]);
    assert_eq!(rig.inbox[0][0][6], "20000", "as long as the last one");
    rig.answer(0, "+OK\r\n");
    rig.pass();
    assert!(rig.engine.deadline(lease).unwrap() > t0 + TTL * 2);
}

#[test]
fn a_lock_from_elsewhere_is_kept_alive_too() {
    let mut rig = Rig::new(3);
    let op = rig.engine.adopt(b"a", b"tok", &kept(), rig.now).unwrap();
    rig.answer_all(0..3, "+OK\r\n");
    let Some(Event::Adopt { result: Ok(lease), .. }) = rig.engine.poll_event(rig.now) else {
        panic!("not adopted")
    };
    rig.advance(third());
    assert_eq!(rig.waiting(0), ["SET"]);
    rig.answer_all(0..3, "_\r\n");
    rig.pass();
    let event = rig.engine.poll_event(rig.now);
    let Some(Event::Lost { op: told, lease: of, .. }) = event else { panic!("{event:?}") };
    assert_eq!((told, of), (op, lease));
}

#[test]
fn an_acquisition_that_fails_leaves_nothing_to_keep() {
    let mut rig = Rig::new(3);
    for _ in 0..3 {
        rig.acquire_with("a", kept());
        rig.answer_all(0..2, "_\r\n");
        rig.answer(2, "+OK\r\n");
        rig.refused();
        rig.answer(2, ":1\r\n");
    }
    rig.advance(TTL * 2);
    assert_eq!(rig.waiting(0), Vec::<String>::new());
    assert_eq!((rig.engine.slots_in_use(), rig.engine.locks.timers.next()), (0, Instant::MAX));
}

/// The driver shows what the engine did to a lease: the engine names each changed lease once.
#[test]
fn changes_by_the_engine_are_told_once() {
    let mut rig = Rig::new(1);
    let lease = kept_lease(&mut rig, kept());
    assert_eq!(rig.engine.poll_change(), None);
    rig.advance(third());
    rig.answer(0, "+OK\r\n");
    rig.pass();
    assert_eq!(rig.engine.poll_change(), Some(lease));
    assert_eq!(rig.engine.poll_change(), None);
}

#[test]
fn a_hundred_thousand_kept_leases_are_each_extended_in_time() {
    const LEASES: usize = 100_000;
    let mut rig = Rig::with(1, |config| config.in_flight_max(LEASES));
    for batch in 0..LEASES / 10_000 {
        for number in 0..10_000 {
            let key = format!("{batch}-{number}");
            rig.engine.acquire(key.as_bytes(), &kept(), rig.now).unwrap();
        }
        let len = rig.engine.output(node(0)).len();
        rig.engine.handle_sent(node(0), len);
        rig.receive(0, &"+OK\r\n".repeat(10_000));
        while rig.engine.poll_event(rig.now).is_some() {}
        rig.now = rig.now + 200 * MS;
    }
    let mut extended = 0;
    while extended < 3 * LEASES {
        rig.now = rig.engine.next_deadline().unwrap().max(rig.now);
        rig.engine.handle_timeout(rig.now);
        let output = rig.engine.output(node(0));
        let len = output.len();
        let count = output.windows(4).filter(|bytes| bytes == b"IFEQ").count();
        rig.engine.handle_sent(node(0), len);
        rig.receive(0, &"+OK\r\n".repeat(count));
        assert!(rig.engine.poll_event(rig.now).is_none(), "none is lost");
        extended += count;
    }
}

#[test]
fn a_release_takes_the_place_of_the_extension_under_way() {
    let mut rig = Rig::with(1, |config| config.in_flight_max(1));
    let lease = kept_lease(&mut rig, kept());
    rig.advance(third());
    assert_eq!(rig.engine.in_flight(), 1);
    rig.engine.unlock(lease, rig.now).unwrap();
    assert_eq!(rig.waiting(0), ["SET", "DELIFEQ"]);
}

/// A client that takes a lock away by its token tells the client that drew it.
#[test]
fn a_holder_that_hears_of_a_removal_extends_at_once_and_learns_of_its_loss() {
    for is_true in [true, false] {
        let mut rig = waking::rig(3);
        let lease = kept_lease(&mut rig, kept());
        let token = rig.engine.lease_name(lease).unwrap().1;
        let token = crate::token::unhex(token.as_bytes()).unwrap();
        rig.advance(60 * MS);
        let hint = waking::message_for(&rig, &token, waking::REMOVAL, b"12345678", &[]);
        (0..3).for_each(|index| rig.receive(index, &hint));
        let (answer, lost) =
            if is_true { ("_\r\n", Some(LostCause::Gone)) } else { ("+OK\r\n", None) };
        for index in 0..3 {
            assert_eq!(rig.waiting(index), ["SET"], "one extension, for all hints");
            rig.answer(index, answer);
        }
        assert_eq!(loss(&mut rig), lost);
    }
}

/// The client stood still until the lease was over, and reads the message before it looks at the time.
#[test]
fn a_lease_that_is_over_is_not_extended_for_a_removal() {
    let mut rig = waking::rig(3);
    let lease = kept_lease(&mut rig, kept());
    let token = rig.engine.lease_name(lease).unwrap().1;
    let token = crate::token::unhex(token.as_bytes()).unwrap();
    rig.now = rig.now + TTL;
    let hint = waking::message_for(&rig, &token, waking::REMOVAL, b"12345678", &[]);
    rig.receive(0, &hint);
    assert!((0..3).all(|index| rig.waiting(index).is_empty()));
    rig.pass();
    assert_eq!(loss(&mut rig), Some(LostCause::Expired));
}

#[test]
fn a_token_that_is_unlocked_is_told_to_the_client_that_drew_it() {
    let mut rig = waking::rig(3);
    let other = format!("{}{}", "4142434445464748", "11".repeat(12));
    rig.engine.unlock_token(b"a", other.as_bytes(), rig.now).unwrap();
    rig.answer_all(0..3, ":1\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })));
    let told: Vec<usize> = (0..3).filter(|&index| !rig.waiting(index).is_empty()).collect();
    let [node] = told[..] else { panic!("{told:?}") };
    assert_eq!(rig.waiting(node), ["PUBLISH"], "the deletes have run");
    assert_eq!(
        waking::published(&mut rig, node),
        (waking::OTHERS_CHANNEL.to_owned(), waking::REMOVAL)
    );
    rig.answer(node, ":1\r\n");
    rig.engine.unlock_token(b"b", b"another library's", rig.now).unwrap();
    rig.answer_all(0..3, ":1\r\n");
    assert!(rig.engine.poll_event(rig.now).is_some());
    assert!((0..3).all(|index| rig.waiting(index).is_empty()));
}

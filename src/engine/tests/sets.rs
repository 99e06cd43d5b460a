//! Several keys under one lease.

use std::collections::BTreeMap;

use super::*;
use crate::error::{DetachError, UnlockError};
use crate::retry::Retry;

/// What each node holds.
pub(super) type Stores = Vec<BTreeMap<String, String>>;

pub(super) fn stores(nodes: usize) -> Stores {
    vec![BTreeMap::new(); nodes]
}

/// The nodes answer what they were asked. Returns the commands of the first node.
pub(super) fn serve(rig: &mut Rig, stores: &mut Stores) -> Vec<String> {
    let mut asked = Vec::new();
    rig.collect();
    for (index, store) in stores.iter_mut().enumerate() {
        while let Some(command) = rig.inbox[index].first().cloned() {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let first_free;
            let answer = match *words.as_slice() {
                ["EVAL", _, count, ..] => {
                    first_free = take_first(store, &words[3..], count.parse().unwrap());
                    first_free.as_str()
                }
                ["MSETEX", count, ..] => {
                    let count: usize = count.parse().unwrap();
                    let pairs: Vec<_> = words[2..][..2 * count].chunks(2).collect();
                    let is_free = pairs.iter().all(|pair| !store.contains_key(pair[0]));
                    for pair in pairs.iter().filter(|_| is_free) {
                        store.insert(pair[0].to_owned(), pair[1].to_owned());
                    }
                    if is_free { ":1\r\n" } else { ":0\r\n" }
                }
                ["SET", key, _, "NX", ..] if store.contains_key(key) => "_\r\n",
                ["SET", key, token, "NX", ..] => {
                    store.insert(key.to_owned(), token.to_owned());
                    "+OK\r\n"
                }
                ["SET", key, token, ..] if store.get(key).is_some_and(|held| held == token) => {
                    "+OK\r\n"
                }
                ["SET", key, claim, "PX", _] => {
                    store.insert(key.to_owned(), claim.to_owned());
                    "+OK\r\n"
                }
                ["SET", ..] => "_\r\n",
                ["DELIFEQ", key, token] => {
                    if store.get(key).is_some_and(|held| held == token) {
                        store.remove(key);
                        ":1\r\n"
                    } else {
                        ":0\r\n"
                    }
                }
                ["CLIENT", "SETNAME", _] => "+OK\r\n",
                _ => panic!("{words:?}"),
            };
            if index == 0 {
                let verb = if words.contains(&"IFEQ") { "EXTEND" } else { words[0] };
                let key = match verb {
                    "EVAL" => words[3].to_owned(),
                    "MSETEX" => words[2..words.len() - 3]
                        .iter()
                        .step_by(2)
                        .copied()
                        .collect::<Vec<_>>()
                        .join(" "),
                    _ => words[1].to_owned(),
                };
                asked.push(format!("{verb} {key}"));
            }
            rig.answer(index, answer);
            rig.collect();
        }
    }
    asked
}

/// The first of several keys that is free: the answer with its place.
fn take_first(store: &mut BTreeMap<String, String>, args: &[&str], count: usize) -> String {
    let free = (0..count).find(|nth| !store.contains_key(args[*nth]));
    free.map_or_else(
        || ":0\r\n".to_owned(),
        |nth| {
            store.insert(args[nth].to_owned(), args[count + nth].to_owned());
            let place = (nth + 1).to_string();
            format!("${}\r\n{place}\r\n", place.len())
        },
    )
}

/// Time passes, and the nodes answer at once. Returns the events.
pub(super) fn run(rig: &mut Rig, stores: &mut Stores, duration: Duration) -> Vec<Event> {
    let (end, mut events) = (rig.now + duration, Vec::new());
    while rig.now < end {
        rig.advance(10 * MS);
        serve(rig, stores);
        events.extend(std::iter::from_fn(|| rig.engine.poll_event(rig.now)));
        serve(rig, stores);
    }
    events
}

pub(super) fn keys_of(stores: &Stores) -> Vec<&str> {
    let first = &stores[0];
    assert!(stores.iter().all(|store| store.keys().eq(first.keys())), "{stores:?}");
    first.keys().map(String::as_str).collect()
}

pub(super) fn hold_elsewhere(stores: &mut Stores, key: &str) {
    for store in stores {
        store.insert(key.to_owned(), "of another client".to_owned());
    }
}

pub(super) fn let_go(stores: &mut Stores, key: &str) {
    for store in stores {
        store.remove(key);
    }
}

pub(super) fn every(delay: Duration) -> LockOptions {
    LockOptions::new(TTL).retry(Retry::every(delay, Duration::ZERO))
}

/// The keys are won at once.
fn won(rig: &mut Rig, stores: &mut Stores, keys: &[&str]) -> LeaseId {
    rig.engine.try_lock_all(keys, &LockOptions::new(TTL), rig.now).unwrap();
    serve(rig, stores);
    rig.locked()
}

#[test]
fn several_keys_are_asked_for_in_one_write_and_released_in_one() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let op = rig.engine.try_lock_all(&["b", "c", "a"], &LockOptions::new(TTL), rig.now).unwrap();
    assert_eq!(serve(&mut rig, &mut stores), ["MSETEX a b c"]);
    let Some(Event::Lock { op: of, result: Ok(lease) }) = rig.engine.poll_event(rig.now) else {
        panic!("not won")
    };
    assert_eq!(of, op);
    assert!(rig.engine.poll_event(rig.now).is_none(), "one event for all keys");
    assert_eq!(rig.engine.votes(lease).count(), 3);
    let tokens: std::collections::BTreeSet<&String> = stores[0].values().collect();
    assert_eq!(tokens.len(), 3, "each key has a token of its own");
    let op = rig.engine.unlock(lease, rig.now).unwrap();
    assert_eq!(serve(&mut rig, &mut stores), ["DELIFEQ a", "DELIFEQ b", "DELIFEQ c"]);
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Unlock { op: of, result: Ok(Unlocked::Released) }) if of == op)
    );
    assert!(rig.engine.poll_event(rig.now).is_none());
    assert!(keys_of(&stores).is_empty());
    assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
}

#[test]
fn a_set_that_is_cancelled_is_released_wherever_its_one_command_may_have_run() {
    for answered in 0..=3 {
        let mut rig = Rig::new(3);
        let op = rig.engine.try_lock_all(&["a", "b"], &LockOptions::new(TTL), rig.now).unwrap();
        assert_eq!(rig.engine.in_flight(), 1, "one operation for both keys");
        rig.answer_all(0..answered, ":1\r\n");
        rig.engine.cancel(op, rig.now);
        rig.answer_all(answered..3, ":1\r\n");
        assert!(matches!(rig.refused(), LockError::Cancelled), "{answered}");
        assert!(rig.engine.poll_event(rig.now).is_none(), "{answered}");
        for node in 0..3 {
            assert_eq!(rig.waiting(node), ["DELIFEQ", "DELIFEQ"], "{answered}");
            rig.answer_all([node, node], ":1\r\n");
        }
        assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0), "{answered}");
    }
}

#[test]
fn one_try_that_is_denied_one_key_leaves_none_behind() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    hold_elsewhere(&mut stores, "b");
    rig.engine.try_lock_all(&["a", "b", "c"], &LockOptions::new(TTL), rig.now).unwrap();
    serve(&mut rig, &mut stores);
    let error = rig.refused();
    assert!(matches!(error, LockError::Taken(_)), "{error}");
    assert_eq!(vote_of(&error, 0), Vote::Denied);
    serve(&mut rig, &mut stores);
    assert_eq!(keys_of(&stores), ["b"]);
    assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
}

#[test]
fn a_call_that_waits_keeps_the_keys_before_the_denied_one_and_gives_back_the_others() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    hold_elsewhere(&mut stores, "b");
    rig.engine.lock_all(&["a", "b", "c", "d"], &every(50 * MS), rig.now).unwrap();
    assert_eq!(serve(&mut rig, &mut stores), ["MSETEX a b c d"]);
    assert!(rig.engine.poll_event(rig.now).is_none());
    // Which of the keys is held, only single SETs tell.
    assert_eq!(serve(&mut rig, &mut stores), ["SET a", "SET b", "SET c", "SET d"]);
    assert!(rig.engine.poll_event(rig.now).is_none());
    assert_eq!(serve(&mut rig, &mut stores), ["DELIFEQ c", "DELIFEQ d", "SET b"]);
    assert_eq!(keys_of(&stores), ["a", "b"]);
    // The key that is kept lives on, longer than its TTL.
    assert!(run(&mut rig, &mut stores, 2 * TTL).is_empty());
    let_go(&mut stores, "b");
    for _ in 0..100 {
        rig.advance(MS);
        if serve(&mut rig, &mut stores).contains(&"SET b".to_owned()) {
            break;
        }
    }
    assert!(rig.engine.poll_event(rig.now).is_none());
    assert_eq!(serve(&mut rig, &mut stores), ["SET c", "SET d"], "all that is left, at once");
    let lease = rig.locked();
    let left = rig.engine.remaining_at(lease, rig.now);
    assert!(left > TTL / 2 && left < TTL - 150 * MS, "the key that ends first: {left:?}");
    assert_eq!(keys_of(&stores), ["a", "b", "c", "d"]);
    // The engine extends no key that its caller did not ask it to.
    rig.advance(2 * TTL);
    assert!(serve(&mut rig, &mut stores).is_empty());
}

#[test]
fn a_call_that_ends_while_it_waits_gives_back_the_keys_that_it_kept() {
    for cancels in [false, true] {
        let (mut rig, mut stores) = (Rig::new(3), stores(3));
        hold_elsewhere(&mut stores, "b");
        let options = every(50 * MS).timeout(300 * MS);
        let op = rig.engine.lock_all(&["a", "b", "c"], &options, rig.now).unwrap();
        let mut result = None;
        for round in 0..40 {
            serve(&mut rig, &mut stores);
            result = rig.lock_result();
            if result.is_some() {
                break;
            }
            if cancels && round == 3 {
                rig.engine.cancel(op, rig.now);
            }
            rig.advance(10 * MS);
        }
        let error = result.expect("an end").expect_err("it is held all the time");
        let is_cancelled = matches!(error, LockError::Cancelled);
        assert!(error.is_taken() != cancels && is_cancelled == cancels, "{error}");
        serve(&mut rig, &mut stores);
        assert_eq!(keys_of(&stores), ["b"]);
        assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
    }
}

#[test]
fn a_key_that_a_waiting_call_keeps_is_not_told_as_a_lease() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    hold_elsewhere(&mut stores, "b");
    rig.engine.lock_all(&["a", "b"], &every(50 * MS), rig.now).unwrap();
    let extended = run_until_extended(&mut rig, &mut stores, "a");
    assert!(extended, "the call keeps the key");
    assert_eq!(rig.engine.poll_change(), None);
}

/// The limits are for the sake of the other clients that want the key. They wait for a call that waits
/// as they wait for a holder.
#[test]
fn a_call_that_waits_keeps_a_key_only_within_the_limits_of_a_lease() {
    let configs: [fn(Config) -> Config; 2] =
        [|config| config.max_extensions(2), |config| config.max_hold(TTL * 2)];
    for (way, config) in configs.into_iter().enumerate() {
        let (mut rig, mut stores) = (Rig::with(3, config), stores(3));
        hold_elsewhere(&mut stores, "b");
        rig.engine.lock_all(&["a", "b"], &every(50 * MS), rig.now).unwrap();
        run(&mut rig, &mut stores, TTL);
        assert_eq!(keys_of(&stores), ["a", "b"], "{way}");
        run(&mut rig, &mut stores, TTL * 2);
        assert_eq!(keys_of(&stores), ["b"], "{way}: others may have the key");
        let_go(&mut stores, "b");
        let [Event::Lock { result: Ok(lease), .. }] = run(&mut rig, &mut stores, TTL / 2)[..]
        else {
            panic!("{way}: it gets both in the end");
        };
        assert_eq!(keys_of(&stores), ["a", "b"], "{way}");
        assert!(rig.engine.deadline(lease).is_some());
    }
}

/// Time passes until the engine extends a key. Returns whether it did within two TTLs.
fn run_until_extended(rig: &mut Rig, stores: &mut Stores, key: &str) -> bool {
    let (end, extension) = (rig.now + 2 * TTL, format!("EXTEND {key}"));
    while rig.now < end {
        rig.advance(10 * MS);
        if serve(rig, stores).contains(&extension) {
            return true;
        }
        while rig.engine.poll_event(rig.now).is_some() {}
    }
    false
}

#[test]
fn a_key_that_is_lost_while_the_call_waits_is_asked_for_again() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    hold_elsewhere(&mut stores, "b");
    rig.engine.lock_all(&["a", "b"], &every(50 * MS), rig.now).unwrap();
    serve(&mut rig, &mut stores);
    assert!(rig.engine.poll_event(rig.now).is_none());
    serve(&mut rig, &mut stores);
    hold_elsewhere(&mut stores, "a");
    assert!(run(&mut rig, &mut stores, TTL).is_empty());
    let_go(&mut stores, "b");
    assert!(run(&mut rig, &mut stores, TTL).is_empty(), "one key is not enough");
    let_go(&mut stores, "a");
    let events = run(&mut rig, &mut stores, TTL / 10);
    assert!(matches!(events.as_slice(), [Event::Lock { result: Ok(_), .. }]), "{events:?}");
    assert_eq!(keys_of(&stores), ["a", "b"]);
}

#[test]
fn a_set_is_extended_when_each_key_is() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let lease = won(&mut rig, &mut stores, &["a", "b"]);
    rig.advance(TTL / 2);
    let before = rig.engine.deadline(lease).unwrap();
    let op = rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert!(matches!(rig.engine.extend(lease, TTL, rig.now), Err(ExtendError::Busy)));
    assert_eq!(serve(&mut rig, &mut stores), ["EXTEND a", "EXTEND b"]);
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(&event, Some(Event::Extend { op: of, lease: its, result: Ok(()) })
            if *of == op && *its == lease),
        "{event:?}"
    );
    assert!(rig.engine.deadline(lease).unwrap() > before);
    // Another client deletes one of the keys.
    let_go(&mut stores, "b");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    serve(&mut rig, &mut stores);
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Err(ExtendError::Lost(_)), .. })));
    assert!(rig.engine.is_lost(lease));
    assert!(rig.engine.remaining_at(lease, rig.now).is_zero());
    let op = rig.engine.unlock(lease, rig.now).unwrap();
    serve(&mut rig, &mut stores);
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Unlock { op: of, result: Err(UnlockError::NotHeld) }) if of == op)
    );
    assert!(keys_of(&stores).is_empty());
    assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
}

/// All keys are extended, but another result comes before that of the set.
fn extended_and_not_reported(rig: &mut Rig, stores: &mut Stores) -> LeaseId {
    let lease = won(rig, stores, &["a", "b"]);
    rig.engine.extend(lease, TTL / 2, rig.now).unwrap();
    rig.engine.try_lock(b"c", &LockOptions::new(TTL), rig.now).unwrap();
    serve(rig, stores);
    rig.locked();
    lease
}

#[test]
fn an_extension_of_a_set_that_is_over_when_it_is_reported_has_failed() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let lease = extended_and_not_reported(&mut rig, &mut stores);
    rig.advance(TTL / 2);
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Extend { result: Err(ExtendError::Expired), .. })),
        "{event:?}"
    );
    assert!(rig.engine.remaining_at(lease, rig.now).is_zero());
}

#[test]
fn a_set_that_was_extended_and_given_away_is_reported_as_extended() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let lease = extended_and_not_reported(&mut rig, &mut stores);
    rig.engine.detach(lease).unwrap();
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
}

#[test]
fn a_set_is_not_extended_again_before_its_extension_is_reported() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let lease = extended_and_not_reported(&mut rig, &mut stores);
    let again = rig.engine.extend(lease, TTL, rig.now);
    assert!(matches!(again, Err(ExtendError::Busy)), "{again:?}");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
}

#[test]
pub(super) fn the_loss_of_one_key_is_the_loss_of_the_set_and_is_told_once() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let options = LockOptions::new(TTL).keep_alive();
    let op = rig.engine.try_lock_all(&["a", "b"], &options, rig.now).unwrap();
    serve(&mut rig, &mut stores);
    let lease = rig.locked();
    assert!(run(&mut rig, &mut stores, 3 * TTL).is_empty());
    assert!(rig.engine.remaining_at(lease, rig.now) > TTL / 2, "the engine extends both");
    let_go(&mut stores, "b");
    let events = run(&mut rig, &mut stores, TTL / 2);
    assert!(rig.engine.is_lost(lease));
    let [Event::Lost { op: of, lease: its, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((*of, *its), (op, lease));
    rig.engine.release(lease, rig.now);
    serve(&mut rig, &mut stores);
    assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
}

#[test]
fn a_set_is_given_away_whole_or_not_at_all() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let lease = won(&mut rig, &mut stores, &["a", "b"]);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    assert!(matches!(rig.engine.detach(lease), Err(DetachError::Unsettled { .. })));
    assert!(!rig.engine.remaining_at(lease, rig.now).is_zero());
    serve(&mut rig, &mut stores);
    rig.engine.poll_event(rig.now).expect("extended");
    rig.engine.detach(lease).unwrap();
    assert!(matches!(rig.engine.detach(lease), Err(DetachError::NotOurs)));
    rig.engine.release(lease, rig.now);
    assert!(serve(&mut rig, &mut stores).is_empty());
    assert_eq!(keys_of(&stores), ["a", "b"]);
}

/// The keys as another client left them.
pub(super) fn left_by_another(keys: &[&str]) -> Stores {
    let token = |key: &&str| ((*key).to_owned(), format!("token of {key}"));
    vec![keys.iter().map(token).collect(); 3]
}

const LEFT: [(&str, &str); 2] = [("b", "token of b"), ("a", "token of a")];

#[test]
fn a_client_adopts_several_locks_as_one_lease() {
    let (mut rig, mut stores) = (Rig::new(3), left_by_another(&["a", "b"]));
    let op = rig.engine.adopt_all(&LEFT, &LockOptions::new(TTL).keep_alive(), rig.now).unwrap();
    assert_eq!(serve(&mut rig, &mut stores), ["EXTEND a", "EXTEND b"]);
    let Some(Event::Adopt { op: of, result: Ok(lease) }) = rig.engine.poll_event(rig.now) else {
        panic!("not adopted")
    };
    assert_eq!(of, op);
    assert_eq!(rig.engine.lease_name(lease).map(|(key, _)| key), Some(&b"a"[..]));
    assert_eq!(rig.engine.more_names(lease).map(|(key, ..)| key).collect::<Vec<_>>(), [b"b"]);
    assert!(run(&mut rig, &mut stores, 3 * TTL).is_empty());
    assert!(rig.engine.remaining_at(lease, rig.now) > TTL / 2, "the engine extends both");
    let_go(&mut stores, "b");
    let events = run(&mut rig, &mut stores, TTL / 2);
    let [Event::Lost { op: of, lease: its, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((*of, *its), (op, lease));
    rig.engine.release(lease, rig.now);
    serve(&mut rig, &mut stores);
    assert!(keys_of(&stores).is_empty());
    assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
}

#[test]
fn a_client_that_cannot_adopt_one_of_several_locks_leaves_the_others_as_they_are() {
    let (mut rig, mut stores) = (Rig::new(3), left_by_another(&["a"]));
    rig.engine.adopt_all(&LEFT, &LockOptions::new(TTL).keep_alive(), rig.now).unwrap();
    serve(&mut rig, &mut stores);
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Adopt { result: Err(ExtendError::Lost(_)), .. })));
    assert!(run(&mut rig, &mut stores, TTL).is_empty());
    assert_eq!(keys_of(&stores), ["a"]);
    assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
}

#[test]
fn an_adoption_of_several_locks_that_are_over_when_it_is_reported_has_failed() {
    let (mut rig, mut stores) = (Rig::new(3), left_by_another(&["a", "b"]));
    rig.engine.adopt_all(&LEFT, &LockOptions::new(TTL / 2), rig.now).unwrap();
    rig.engine.try_lock(b"c", &LockOptions::new(TTL), rig.now).unwrap();
    serve(&mut rig, &mut stores);
    rig.locked();
    rig.advance(TTL / 2);
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Adopt { result: Err(ExtendError::Expired), .. })),
        "{event:?}"
    );
}

#[test]
fn a_client_adopts_no_set_that_names_a_key_twice_or_has_no_room() {
    let mut rig = Rig::with(3, |config| config.in_flight_max(2));
    let options = LockOptions::new(TTL);
    let twice = [("a", "t"), ("a", "u")];
    let none: [(&str, &str); 0] = [];
    for (locks, error) in [
        (&none[..], ExtendError::InvalidName),
        (&twice, ExtendError::InvalidName),
        (&LEFT, ExtendError::Full),
    ] {
        let refused = rig.engine.adopt_all(locks, &options, rig.now).unwrap_err();
        assert_eq!(refused.to_string(), error.to_string());
    }
    let refused = rig.engine.adopt_all(&LEFT, &LockOptions::new(Duration::ZERO), rig.now);
    assert!(matches!(refused, Err(ExtendError::InvalidTtl { .. })));
    rig.collect();
    assert!(rig.inbox.iter().all(Vec::is_empty));
}

#[test]
fn what_is_no_set_of_keys_is_refused_before_anything_is_written() {
    let mut rig = Rig::with(3, |config| config.in_flight_max(4));
    let many: Vec<String> = (0..65).map(|nth| nth.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let table: [(&[&str], &str); 6] = [
        (&[], "1 to 64 keys"),
        (&many, "1 to 64 keys"),
        (&["a", "b", "a"], "a key appears twice"),
        (&["a", ""], "the key has 0 bytes"),
        (&["a", "b:fence"], "belongs to another lock"),
        (&["a", "b", "c", "d"], "in_flight_max"),
    ];
    for (keys, part) in table {
        let error = rig.engine.lock_all(keys, &LockOptions::new(TTL), rig.now).unwrap_err();
        assert!(error.to_string().contains(part), "{keys:?}: {error}");
    }
    let options = LockOptions::new(TTL).linger(MS);
    let error = rig.engine.lock_all(&["a", "b"], &options, rig.now).unwrap_err();
    assert!(matches!(error, LockError::NoLinger { .. }), "{error}");
    let error = rig.engine.lock_all(&["a", "b"], &LockOptions::new(MS), rig.now).unwrap_err();
    assert!(matches!(error, LockError::InvalidTtl { .. }), "{error}");
    assert!(rig.waiting(0).is_empty());
    assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
}

#[test]
fn a_set_of_one_key_is_a_plain_lock() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let one = won(&mut rig, &mut stores, &["a"]);
    assert_eq!(rig.engine.lease_name(one).unwrap().0, b"a", "a set of one is a plain lock");
    assert!(!rig.engine.sets.is_used);
}

#[test]
fn nodes_that_do_not_set_several_keys_at_once_are_asked_for_each() {
    let denied = "-NOPERM User locks has no permissions to run the 'msetex' command\r\n";
    for refusal in [denied, "-ERR unknown command 'MSETEX'\r\n"] {
        let (mut rig, mut stores) = (Rig::new(3), stores(3));
        rig.engine.try_lock_all(&["a", "b"], &LockOptions::new(TTL), rig.now).unwrap();
        rig.collect();
        for node in 0..3 {
            assert_eq!(rig.inbox[node][0][0], "MSETEX");
            rig.answer(node, refusal);
        }
        assert!(rig.engine.poll_event(rig.now).is_none(), "it is no denial");
        assert_eq!(serve(&mut rig, &mut stores), ["SET a", "SET b"]);
        let lease = rig.locked();
        rig.engine.release(lease, rig.now);
        serve(&mut rig, &mut stores);
        // The client does not try it again.
        rig.engine.try_lock_all(&["a", "b"], &LockOptions::new(TTL), rig.now).unwrap();
        assert_eq!(serve(&mut rig, &mut stores), ["SET a", "SET b"]);
        let lease = rig.locked();
        rig.engine.release(lease, rig.now);
        serve(&mut rig, &mut stores);
        assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
    }
}

#[test]
fn what_a_node_may_have_set_unseen_is_deleted_key_by_key() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    rig.engine.try_lock_all(&["a", "b"], &LockOptions::new(TTL), rig.now).unwrap();
    rig.collect();
    rig.engine.handle_lost(NodeId::new(0).unwrap(), Cause::ConnectionLost, rig.now);
    rig.inbox[0].clear();
    for node in 1..3 {
        rig.answer(node, ":0\r\n");
    }
    let error = rig.refused();
    assert!(matches!(&error, LockError::Taken(ballot) if ballot.key().is_none()), "{error}");
    serve(&mut rig, &mut stores);
    assert_eq!(rig.engine.releases_owed(rig.now), 2, "a debt for each key");
    assert_eq!(rig.engine.in_flight(), 0);
}

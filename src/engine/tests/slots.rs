//! Locks that several callers may hold at once.

use super::sets::{Stores, every, hold_elsewhere, keys_of, let_go, run, serve, stores};
use super::*;

fn slots(count: usize) -> LockOptions {
    LockOptions::new(TTL).slots(count)
}

/// A try at a slot, with its result.
fn tried(rig: &mut Rig, stores: &mut Stores, options: &LockOptions) -> Result<LeaseId, LockError> {
    rig.engine.try_lock(b"n", options, rig.now).unwrap();
    for _ in 0..4 {
        serve(rig, stores);
        if let Some(result) = rig.lock_result() {
            serve(rig, stores);
            return result;
        }
    }
    panic!("a try ends within two rounds")
}

fn key_of(rig: &Rig, lease: LeaseId) -> String {
    let (key, _) = rig.engine.lease_name(lease).expect("held");
    String::from_utf8(key.to_vec()).unwrap()
}

fn is_idle(rig: &Rig) -> bool {
    (rig.engine.in_flight(), rig.engine.slots_in_use()) == (0, 0)
}

#[test]
fn a_slot_is_won_in_one_round_with_one_command_per_node() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let op = rig.engine.try_lock(b"n", &slots(5), rig.now).unwrap();
    let asked = serve(&mut rig, &mut stores);
    assert!(matches!(asked.as_slice(), [one] if one.starts_with("EVAL n:slot:")), "{asked:?}");
    let Some(Event::Lock { op: of, result: Ok(lease) }) = rig.engine.poll_event(rig.now) else {
        panic!("not won")
    };
    assert_eq!(of, op);
    assert!(rig.engine.poll_event(rig.now).is_none(), "one event");
    assert!(serve(&mut rig, &mut stores).is_empty(), "nothing is left to give back");
    assert_eq!(keys_of(&stores), [key_of(&rig, lease)]);
    rig.engine.unlock(lease, rig.now).unwrap();
    serve(&mut rig, &mut stores);
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })));
    assert!(keys_of(&stores).is_empty() && is_idle(&rig));
}

#[test]
fn at_most_as_many_calls_hold_a_lock_as_it_has_slots() {
    for count in [1, 2, 5, 63] {
        let (mut rig, mut stores) = (Rig::new(3), stores(3));
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(tried(&mut rig, &mut stores, &slots(count)).expect("a slot is free"));
        }
        let keys: std::collections::BTreeSet<_> = held.iter().map(|it| key_of(&rig, *it)).collect();
        assert_eq!(keys.len(), count);
        let error = tried(&mut rig, &mut stores, &slots(count)).expect_err("none is free");
        assert!(matches!(error, LockError::Taken(_)), "{error}");
        assert_eq!(keys_of(&stores).len(), count);
        rig.engine.release(held.swap_remove(count / 2), rig.now);
        serve(&mut rig, &mut stores);
        held.push(tried(&mut rig, &mut stores, &slots(count)).expect("a slot is free again"));
        for lease in held {
            rig.engine.release(lease, rig.now);
        }
        serve(&mut rig, &mut stores);
        assert!(keys_of(&stores).is_empty() && is_idle(&rig));
    }
}

#[test]
fn the_slot_that_was_left_last_is_asked_for_first() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    for _ in 0..8 {
        let lease = tried(&mut rig, &mut stores, &slots(9)).unwrap();
        let key = key_of(&rig, lease);
        rig.engine.release(lease, rig.now);
        serve(&mut rig, &mut stores);
        rig.engine.try_lock(b"n", &slots(9), rig.now).unwrap();
        assert_eq!(serve(&mut rig, &mut stores), [format!("EVAL {key}")]);
        let lease = rig.locked();
        rig.engine.release(lease, rig.now);
        serve(&mut rig, &mut stores);
    }
}

/// As where a reader comes back beside a writer, which takes all slots.
#[test]
fn a_call_waits_for_the_slot_that_its_client_left_if_all_are_taken() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    for _ in 0..8 {
        let lease = tried(&mut rig, &mut stores, &slots(8)).unwrap();
        let key = key_of(&rig, lease);
        rig.engine.release(lease, rig.now);
        serve(&mut rig, &mut stores);
        let all: Vec<String> = (0..8).map(|slot| format!("n:slot:{slot}")).collect();
        all.iter().for_each(|key| hold_elsewhere(&mut stores, key));
        let op = rig.engine.lock(b"n", &every(50 * MS).slots(8), rig.now).unwrap();
        let mut asked = Vec::new();
        for _ in 0..4 {
            asked.extend(serve(&mut rig, &mut stores));
            assert!(rig.engine.poll_event(rig.now).is_none(), "it waits");
        }
        asked.retain(|command| command.starts_with("SET "));
        assert_eq!(asked, [format!("SET {key}")]);
        rig.engine.cancel(op, rig.now);
        run(&mut rig, &mut stores, 50 * MS);
        all.iter().for_each(|key| let_go(&mut stores, key));
    }
}

#[test]
fn a_call_that_waits_takes_any_slot_that_is_free() {
    for freed in ["n:slot:0", "n:slot:1", "n:slot:2", "n:slot:3"] {
        let (mut rig, mut stores) = (Rig::new(3), stores(3));
        for slot in 0..4 {
            hold_elsewhere(&mut stores, &format!("n:slot:{slot}"));
        }
        let options = every(50 * MS).slots(4);
        rig.engine.lock(b"n", &options, rig.now).unwrap();
        assert!(run(&mut rig, &mut stores, TTL).is_empty());
        let_go(&mut stores, freed);
        let events = run(&mut rig, &mut stores, TTL / 2);
        let [Event::Lock { result: Ok(lease), .. }] = events.as_slice() else {
            panic!("{freed}: {events:?}")
        };
        assert_eq!(key_of(&rig, *lease), freed);
        assert_eq!(keys_of(&stores).len(), 4);
        rig.engine.release(*lease, rig.now);
        serve(&mut rig, &mut stores);
        assert!(is_idle(&rig));
    }
}

#[test]
fn a_call_that_wins_two_slots_at_once_keeps_one() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let all = (0..4).map(|slot| format!("n:slot:{slot}")).collect::<Vec<_>>();
    all.iter().for_each(|slot| hold_elsewhere(&mut stores, slot));
    let options = every(50 * MS).direct_wake(false).slots(4);
    rig.engine.lock(b"n", &options, rig.now).unwrap();
    assert!(run(&mut rig, &mut stores, 10 * MS).is_empty());
    // The slot that is waited for and others are asked for before any node answers.
    let is_written = |rig: &Rig, verb: &str| rig.inbox[0].iter().any(|words| words[0] == verb);
    for _ in 0..100 {
        rig.advance(MS);
        rig.collect();
        if is_written(&rig, "SET") && is_written(&rig, "EVAL") {
            break;
        }
    }
    assert!(is_written(&rig, "SET") && is_written(&rig, "EVAL"), "{:?}", rig.inbox[0]);
    all.iter().for_each(|slot| let_go(&mut stores, slot));
    let events = run(&mut rig, &mut stores, 20 * MS);
    let [Event::Lock { result: Ok(lease), .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(keys_of(&stores), [key_of(&rig, *lease)]);
}

#[test]
fn a_call_for_a_slot_that_ends_leaves_nothing_behind() {
    for cancels in [false, true] {
        let (mut rig, mut stores) = (Rig::new(3), stores(3));
        for slot in 0..4 {
            hold_elsewhere(&mut stores, &format!("n:slot:{slot}"));
        }
        let options = every(50 * MS).slots(4).timeout(300 * MS);
        let op = rig.engine.lock(b"n", &options, rig.now).unwrap();
        let mut events = run(&mut rig, &mut stores, 100 * MS);
        if cancels {
            rig.engine.cancel(op, rig.now);
        }
        events.extend(run(&mut rig, &mut stores, 300 * MS));
        let [Event::Lock { op: of, result: Err(error) }] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(*of, op);
        let is_cancelled = matches!(error, LockError::Cancelled);
        assert!(error.is_taken() != cancels && is_cancelled == cancels, "{error}");
        assert_eq!(keys_of(&stores).len(), 4);
        assert!(is_idle(&rig));
    }
}

#[test]
fn the_loss_of_a_slot_is_told_with_its_call() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let op = rig.engine.try_lock(b"n", &slots(4).keep_alive(), rig.now).unwrap();
    serve(&mut rig, &mut stores);
    let lease = rig.locked();
    serve(&mut rig, &mut stores);
    assert!(run(&mut rig, &mut stores, 3 * TTL).is_empty());
    let key = key_of(&rig, lease);
    let_go(&mut stores, &key);
    let events = run(&mut rig, &mut stores, TTL / 2);
    let [Event::Lost { op: of, lease: its, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((*of, *its), (op, lease));
    rig.engine.release(lease, rig.now);
    serve(&mut rig, &mut stores);
    assert!(is_idle(&rig));
}

#[test]
fn a_writer_excludes_readers_and_a_reader_excludes_writers() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    let (read, write) = (LockOptions::new(TTL).read(4), LockOptions::new(TTL).write(4));
    let reader = tried(&mut rig, &mut stores, &read).unwrap();
    let error = tried(&mut rig, &mut stores, &write).expect_err("a reader holds a slot");
    assert!(matches!(error, LockError::Taken(_)), "{error}");
    assert_eq!(keys_of(&stores), [key_of(&rig, reader)]);
    rig.engine.release(reader, rig.now);
    serve(&mut rig, &mut stores);
    let writer = tried(&mut rig, &mut stores, &write).unwrap();
    let all = ["n:slot", "n:slot:0", "n:slot:1", "n:slot:2", "n:slot:3"];
    assert_eq!(keys_of(&stores), all);
    for options in [&read, &write] {
        let error = tried(&mut rig, &mut stores, options).expect_err("a writer holds all");
        assert!(matches!(error, LockError::Taken(_)), "{error}");
    }
    rig.engine.release(writer, rig.now);
    serve(&mut rig, &mut stores);
    assert!(keys_of(&stores).is_empty() && is_idle(&rig));
}

#[test]
fn a_writer_with_the_gate_keeps_each_slot_that_it_wins() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    hold_elsewhere(&mut stores, "n:slot:0");
    hold_elsewhere(&mut stores, "n:slot:2");
    let options = every(50 * MS).write(4);
    rig.engine.lock(b"n", &options, rig.now).unwrap();
    assert!(run(&mut rig, &mut stores, 3 * TTL).is_empty());
    assert_eq!(keys_of(&stores).len(), 5, "no reader gets in");
    let_go(&mut stores, "n:slot:2");
    assert!(run(&mut rig, &mut stores, 3 * TTL).is_empty(), "a reader is still there");
    assert_eq!(keys_of(&stores).len(), 5);
    let_go(&mut stores, "n:slot:0");
    let events = run(&mut rig, &mut stores, TTL);
    let [Event::Lock { result: Ok(lease), .. }] = events.as_slice() else { panic!("{events:?}") };
    rig.engine.release(*lease, rig.now);
    serve(&mut rig, &mut stores);
    assert!(keys_of(&stores).is_empty() && is_idle(&rig));
}

#[test]
fn a_writer_tells_the_holder_of_each_slot_beside_its_first_attempt() {
    let mut rig = waking::rig(3);
    let options = every(50 * MS).write(3);
    rig.engine.lock(b"n", &options, rig.now).unwrap();
    rig.collect();
    let mut told: Vec<&String> = Vec::new();
    for commands in &rig.inbox {
        let asked = commands.iter().filter(|command| command[0] == "SET");
        assert_eq!(asked.count(), 4, "the gate and the slots: {commands:?}");
        let introductions = commands.iter().filter(|command| command[0] == "EVAL");
        told.extend(introductions.map(|command| &command[3]));
    }
    told.sort();
    assert_eq!(told, ["n:slot:0", "n:slot:1", "n:slot:2"]);
}

#[test]
fn a_writer_that_has_just_woken_a_reader_for_a_slot_does_not_overtake_it() {
    let (mut rig, options) = (waking::rig(3), every(50 * MS).write(3));
    rig.engine.lock(b"n", &options, rig.now).unwrap();
    rig.collect();
    let is_slot = |command: &&Vec<String>| command[0] == "SET" && command[1] == "n:slot:1";
    let token = rig.inbox[0].iter().find(is_slot).expect("asked for")[2].clone();
    for node in 0..3 {
        for command in std::mem::take(&mut rig.inbox[node]) {
            rig.receive(node, if command[0] == "SET" { "+OK\r\n" } else { "_\r\n" });
        }
    }
    let lease = rig.locked();
    let token = crate::token::unhex(token.as_bytes()).unwrap();
    let reader = waking::OTHER.as_bytes();
    let told = waking::message_of(&rig, b"n:slot:1", &token, waking::ANNOUNCE, reader, &[]);
    rig.receive(0, &told);
    rig.engine.release(lease, rig.now);
    rig.clear();
    rig.engine.lock(b"n", &options, rig.now).unwrap();
    rig.collect();
    for commands in &rig.inbox {
        let asked = commands.iter().filter(|command| command[0] == "SET");
        let keys: Vec<&String> = asked.map(|command| &command[1]).collect();
        assert_eq!(keys, ["n:slot", "n:slot:0", "n:slot:2"]);
    }
}

#[test]
fn a_writer_without_the_gate_keeps_no_slot() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    hold_elsewhere(&mut stores, "n:slot");
    let op = rig.engine.lock(b"n", &every(50 * MS).write(4), rig.now).unwrap();
    assert!(run(&mut rig, &mut stores, TTL).is_empty());
    assert_eq!(keys_of(&stores), ["n:slot"]);
    let_go(&mut stores, "n:slot");
    let events = run(&mut rig, &mut stores, TTL);
    assert!(matches!(events.as_slice(), [Event::Lock { op: of, result: Ok(_) }] if *of == op));
    assert_eq!(keys_of(&stores).len(), 5);
}

#[test]
pub(super) fn a_writer_that_loses_its_gate_while_it_waits_begins_again() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    hold_elsewhere(&mut stores, "n:slot:1");
    rig.engine.lock(b"n", &every(50 * MS).write(3), rig.now).unwrap();
    assert!(run(&mut rig, &mut stores, TTL).is_empty());
    hold_elsewhere(&mut stores, "n:slot");
    assert!(run(&mut rig, &mut stores, TTL).is_empty());
    assert_eq!(keys_of(&stores), ["n:slot", "n:slot:1"]);
    let_go(&mut stores, "n:slot:1");
    let_go(&mut stores, "n:slot");
    let events = run(&mut rig, &mut stores, TTL);
    assert!(matches!(events.as_slice(), [Event::Lock { result: Ok(_), .. }]), "{events:?}");
    assert_eq!(keys_of(&stores).len(), 4);
}

#[test]
fn what_is_no_lock_with_slots_is_refused_before_anything_is_written() {
    let mut rig = Rig::with(3, |config| config.in_flight_max(4));
    let plain = LockOptions::new(TTL);
    let table: [(&[u8], LockOptions, &str); 8] = [
        (b"n", slots(0), "1 to 63 slots"),
        (b"n", slots(64), "1 to 63 slots"),
        (b"n", slots(usize::MAX), "1 to 63 slots"),
        (b"n", plain.clone().write(64), "1 to 63 slots"),
        (b"", slots(2), "the key has 0 bytes"),
        (b"n", plain.clone().write(9), "in_flight_max"),
        (b"n:slot", plain.clone(), "belongs to another lock"),
        (b"n:slot:62", plain.clone(), "belongs to another lock"),
    ];
    for (key, options, part) in table {
        let error = rig.engine.try_lock(key, &options, rig.now).unwrap_err();
        assert!(error.to_string().contains(part), "{}: {error}", key.escape_ascii());
    }
    let error = rig.engine.try_lock(&[b'k'; 4095], &slots(2), rig.now).unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { .. }), "{error}");
    let error = rig.engine.try_lock(b"n", &slots(2).linger(MS), rig.now).unwrap_err();
    assert!(matches!(error, LockError::NoLinger { .. }), "{error}");
    let error = rig.engine.try_lock_all(&["a", "b"], &slots(2), rig.now).unwrap_err();
    assert!(matches!(error, LockError::InvalidKeys { .. }), "{error}");
    assert!(rig.waiting(0).is_empty() && is_idle(&rig));
    for name in ["n:slots", "n:slot:", "n:slot:x", "slot:1", "n:1", "n:slot:256"] {
        assert!(rig.engine.try_lock(name.as_bytes(), &plain, rig.now).is_ok(), "{name}");
        rig.engine.cancel_all(rig.now);
        while rig.engine.poll_event(rig.now).is_some() {}
    }
}

#[test]
fn nodes_that_run_no_scripts_are_asked_for_one_slot_by_a_set() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    rig.engine.try_lock(b"n", &slots(4), rig.now).unwrap();
    rig.collect();
    for node in 0..3 {
        assert_eq!(rig.inbox[node][0][0], "EVAL");
        rig.answer(node, "-NOPERM User locks has no permissions to run the 'eval' command\r\n");
    }
    assert!(rig.engine.poll_event(rig.now).is_none(), "it is no denial");
    let asked = serve(&mut rig, &mut stores);
    assert!(matches!(asked.as_slice(), [one] if one.starts_with("SET n:slot:")), "{asked:?}");
    let mut held = vec![rig.locked()];
    // Where the drawn slot is taken, the call asks for all others at once.
    for _ in 0..3 {
        held.push(tried(&mut rig, &mut stores, &slots(4)).expect("a slot is free"));
        assert_eq!(keys_of(&stores).len(), held.len(), "the others are given back");
    }
    assert!(tried(&mut rig, &mut stores, &slots(4)).unwrap_err().is_taken());
    for lease in held {
        rig.engine.release(lease, rig.now);
    }
    serve(&mut rig, &mut stores);
    assert!(keys_of(&stores).is_empty() && is_idle(&rig));
}

#[test]
fn slots_whose_holders_lack_some_nodes_do_not_hide_those_that_are_free() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    // Each of two slots is held by a bare quorum, so that two nodes take another of them for free.
    for (node, slot) in [(0, 0), (2, 0), (0, 1), (1, 1)] {
        stores[node].insert(format!("n:slot:{slot}"), "of another client".to_owned());
    }
    for _ in 0..30 {
        let lease = tried(&mut rig, &mut stores, &slots(4)).expect("two slots are free");
        assert!(["n:slot:2", "n:slot:3"].contains(&key_of(&rig, lease).as_str()));
        rig.engine.release(lease, rig.now);
        serve(&mut rig, &mut stores);
    }
    assert!(is_idle(&rig));
}

#[test]
fn a_node_that_runs_no_scripts_is_named_with_that_cause() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    for slot in 0..3 {
        hold_elsewhere(&mut stores, &format!("n:slot:{slot}"));
    }
    for _ in 0..2 {
        rig.engine.try_lock(b"n", &slots(3), rig.now).unwrap();
        rig.collect();
        if rig.inbox[2].first().is_some_and(|words| words[0] == "EVAL") {
            rig.answer(2, "-NOPERM User locks has no permissions to run the 'eval' command\r\n");
        }
        serve(&mut rig, &mut stores);
        let error = rig.refused();
        assert_eq!(vote_of(&error, 2), Vote::Failed(Cause::NoScripts), "{error}");
    }
}

#[test]
fn a_try_without_scripts_asks_three_times_at_most() {
    let (mut rig, mut stores) = (Rig::new(3), stores(3));
    rig.engine.try_lock(b"n", &slots(3), rig.now).unwrap();
    rig.collect();
    for node in 0..3 {
        rig.answer(node, "-NOPERM User locks has no permissions to run the 'eval' command\r\n");
    }
    assert!(rig.engine.poll_event(rig.now).is_none(), "it is no denial");
    serve(&mut rig, &mut stores);
    let lease = rig.locked();
    rig.engine.release(lease, rig.now);
    serve(&mut rig, &mut stores);
    // One node would give each of the slots.
    for (node, slot) in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (0, 2)] {
        stores[node].insert(format!("n:slot:{slot}"), "of another client".to_owned());
    }
    rig.engine.try_lock(b"n", &slots(3), rig.now).unwrap();
    let mut asked = Vec::new();
    for _ in 0..3 {
        assert!(rig.engine.poll_event(rig.now).is_none(), "{asked:?}");
        let sets = serve(&mut rig, &mut stores);
        asked.push(sets.iter().filter(|it| it.starts_with("SET ")).count());
    }
    assert_eq!(asked, [1, 2, 3]);
    assert!(rig.lock_result().expect("it has ended").unwrap_err().is_taken());
    serve(&mut rig, &mut stores);
    assert!(is_idle(&rig));
}

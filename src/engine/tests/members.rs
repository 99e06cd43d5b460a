//! The keys of a set and the slots of a lock, one by one: the commands that concern each.

use super::sets::{every, keys_of, serve, stores};
use super::transfers::{announce_to, token_bytes};
use super::waking::{
    ANNOUNCE, OTHER, OTHERS_CHANNEL, WAKE, introduced, message_of, published, token_of, waiting,
};
use super::*;

/// The commands that a node has yet to answer, each with its first key, or its channel.
fn written(rig: &mut Rig, index: usize) -> Vec<String> {
    rig.collect();
    let key = |command: &Vec<String>| match &*command[0] {
        "EVAL" => command[3].clone(),
        "MSETEX" => command[2].clone(),
        _ => command[1].clone(),
    };
    rig.inbox[index].iter().map(|command| format!("{} {}", command[0], key(command))).collect()
}

/// The nodes answer all commands so far.
fn answer_by(rig: &mut Rig, answer: impl Fn(&[String]) -> String) {
    rig.collect();
    for index in 0..rig.inbox.len() {
        for command in std::mem::take(&mut rig.inbox[index]) {
            rig.receive(index, &answer(&command));
        }
    }
}

#[test]
fn a_holder_of_a_set_hands_over_the_key_that_is_waited_for_and_deletes_the_other() {
    for (keys, expected) in
        [(["a", "b"], ["EVAL a", "DELIFEQ b"]), (["A", "a"], ["DELIFEQ A", "EVAL a"])]
    {
        let mut rig = transfers::rig(3);
        rig.engine.try_lock_all(&keys, &LockOptions::new(TTL), rig.now).unwrap();
        rig.answer_all(0..3, ":1\r\n");
        let lease = rig.locked();
        let of_waited = |it: &&LeaseId| rig.engine.locks.held_name(**it).unwrap().0 == b"a";
        let waited = rig.engine.sets.leases(lease).iter().find(of_waited).expect("it is held");
        let token = token_bytes(&rig, *waited);
        announce_to(&mut rig, &token, 1);
        rig.engine.release(lease, rig.now);
        for index in 0..3 {
            assert_eq!(written(&mut rig, index), expected);
            let script = rig.inbox[index].iter().find(|command| command[0] == "EVAL").unwrap();
            assert_eq!(script[7], format!("{OTHERS_CHANNEL}:t"), "the waiter is told");
        }
    }
}

/// The script takes one slot, and the answer alone tells which.
#[test]
fn a_node_is_owed_a_delete_of_each_slot_where_the_answer_to_the_script_is_lost() {
    let mut rig = Rig::new(3);
    rig.engine.try_lock(b"n", &LockOptions::new(TTL).slots(5), rig.now).unwrap();
    rig.collect();
    let script = rig.inbox[0][0].clone();
    assert_eq!((&*script[0], &*script[2]), ("EVAL", "5"));
    let mut asked: Vec<_> = script[3..8].iter().zip(&script[8..13]).collect();
    rig.lose(0);
    rig.answer_all(1..3, ":0\r\n");
    assert!(rig.refused().is_taken());
    // The call has not waited for the last node.
    answer_by(&mut rig, |_| ":0\r\n".to_owned());
    assert_eq!(rig.engine.releases_owed(rig.now), 5);
    rig.connect(0);
    let mut deleted: Vec<_> = rig.inbox[0].iter().map(|words| (&words[1], &words[2])).collect();
    assert!(rig.inbox[0].iter().all(|words| words[0] == "DELIFEQ"), "{:?}", rig.inbox[0]);
    asked.sort();
    deleted.sort();
    assert_eq!(deleted, asked);
}

#[test]
fn a_call_that_waits_for_a_slot_introduces_itself_for_no_other_slot_that_it_polls() {
    let mut rig = waking::rig(3);
    rig.engine.lock(b"n", &waiting().slots(4), rig.now).unwrap();
    let (mut introductions, mut polls) = (Vec::new(), 0);
    let begun = rig.now;
    while begun.until(rig.now) < Duration::from_secs(4) {
        rig.collect();
        for command in rig.inbox.iter().flatten().filter(|command| command[0] == "EVAL") {
            match &*command[2] {
                "1" => introductions.push(command[3].clone()),
                _ => polls += 1,
            }
        }
        answer_by(&mut rig, |command| match (&*command[0], &*command[2.min(command.len() - 1)]) {
            ("EVAL", "1") => introduced(&token_of(OTHER), true),
            ("EVAL", _) | ("DELIFEQ", _) => ":0\r\n".to_owned(),
            ("GET", _) => token_of(OTHER),
            ("SET", _) => "_\r\n".to_owned(),
            ("PTTL", _) => ":9000\r\n".to_owned(),
            _ => panic!("{command:?}"),
        });
        assert!(rig.engine.poll_event(rig.now).is_none());
        rig.advance(MS);
    }
    assert!(polls > 3, "it asks for the others");
    let keys: std::collections::BTreeSet<_> = introductions.iter().collect();
    assert_eq!(keys.len(), 1, "it stands in one list: {keys:?}");
}

#[test]
fn a_call_wins_as_many_keys_as_a_set_may_have() {
    let keys: Vec<String> = (0..64).map(|nth| format!("key {nth}")).collect();
    for is_writer in [false, true] {
        let (mut rig, mut stores) = (Rig::new(3), stores(3));
        if is_writer {
            rig.engine.try_lock(b"n", &LockOptions::new(TTL).write(63), rig.now).unwrap();
        } else {
            rig.engine.try_lock_all(&keys, &LockOptions::new(TTL), rig.now).unwrap();
        }
        serve(&mut rig, &mut stores);
        let lease = rig.locked();
        assert_eq!(keys_of(&stores).len(), 64, "a writer has the gate and 63 slots");
        rig.engine.unlock(lease, rig.now).unwrap();
        serve(&mut rig, &mut stores);
        let event = rig.engine.poll_event(rig.now);
        assert!(matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })));
        assert!(keys_of(&stores).is_empty());
        assert_eq!((rig.engine.in_flight(), rig.engine.slots_in_use()), (0, 0));
    }
}

/// A place in the list of `b` is a wait for `b`: the call may not wait for `a` beside it.
#[test]
fn a_call_for_a_set_queues_behind_the_waiter_that_its_client_woke_only_with_all_earlier_keys() {
    for has_first in [true, false] {
        let mut rig = waking::rig(3);
        let lease = rig.lease("b");
        let token = token_bytes(&rig, lease);
        let told = message_of(&rig, b"b", &token, ANNOUNCE, OTHER.as_bytes(), &[]);
        rig.receive(0, &told);
        rig.engine.release(lease, rig.now);
        assert_eq!(published(&mut rig, 0), (OTHERS_CHANNEL.to_owned(), WAKE));
        answer_by(&mut rig, |_| ":1\r\n".to_owned());
        rig.engine.lock_all(&["a", "b"], &every(50 * MS), rig.now).unwrap();
        assert_eq!(written(&mut rig, 0), ["MSETEX a"]);
        answer_by(&mut rig, |_| ":0\r\n".to_owned());
        assert!(rig.engine.poll_event(rig.now).is_none());
        assert_eq!(written(&mut rig, 0), ["SET a", "SET b"]);
        let is_granted = |command: &[String]| has_first && command[1] == "a";
        let answer = |command: &[String]| if is_granted(command) { "+OK\r\n" } else { "_\r\n" };
        answer_by(&mut rig, |command| answer(command).to_owned());
        assert!(rig.engine.poll_event(rig.now).is_none());
        rig.collect();
        let queues = rig.inbox.iter().flatten().filter(|command| command[0] == "PUBLISH");
        let queues: Vec<_> = queues.map(|command| (&*command[1], &command[2])).collect();
        assert_eq!(queues.len(), usize::from(has_first), "{queues:?}");
        for (channel, text) in queues {
            assert_eq!((channel, text.chars().last()), (OTHERS_CHANNEL, Some('b')));
        }
    }
}

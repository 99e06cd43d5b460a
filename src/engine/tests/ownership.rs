//! A client deletes a token only while it knows what the token is, and never after it gave the
//! token away.

use super::transfers::{
    announce_from, answer_to, given_up, handed_over, offered, offering, rig, settle, token_bytes,
    told, transfer,
};
use super::untimely::subscribed_again;
use super::waking::{OTHER, WAKE, message, own_waiter, waiting};
use super::*;
use crate::error::DetachError;

/// The nodes to which the client sent a command that deletes a key.
fn deletes(rig: &mut Rig) -> Vec<usize> {
    let nodes = 0..rig.inbox.len();
    nodes.filter(|&index| rig.waiting(index).contains(&"DELIFEQ".into())).collect()
}

fn refused_by(rig: &mut Rig, lease: LeaseId) -> String {
    match rig.engine.detach(lease) {
        Err(DetachError::Unsettled { nodes }) => nodes,
        other => panic!("not refused: {other:?}"),
    }
}

/// The number of leases given away since does not matter: leaving a token alone needs no memory.
#[test]
fn a_late_word_deletes_no_lease_that_was_given_away() {
    for others in [0, 2_000] {
        let (mut rig, lease, late) = handed_over();
        settle(&mut rig);
        rig.engine.detach(lease).unwrap();
        for nth in 0..others {
            let other = rig.lease(&format!("k{nth}"));
            rig.engine.detach(other).unwrap();
        }
        rig.receive(2, &late);
        assert!(deletes(&mut rig).is_empty(), "{others} others were given away");
    }
}

/// The snapshot of a machine that is resumed twice: both clients have one id, and each draws fresh
/// randomness. The nodes tell both.
#[test]
fn a_client_leaves_alone_what_another_with_its_id_was_handed() {
    let (mut one, mut two) = (rig(3), rig(3));
    one.engine.reseed([1; 32]);
    two.engine.reseed([2; 32]);
    offering(&mut one);
    offering(&mut two);
    let token = offered(&one);
    assert_ne!(token, offered(&two), "each draws its own");
    settle(&mut two);
    for index in 0..2 {
        let message = transfer(&one, &token, index);
        one.receive(index, &message);
        two.receive(index, &message);
    }
    let lease = one.locked();
    assert!(one.engine.deadline(lease).is_some());
    assert!(deletes(&mut two).is_empty(), "the other holds it");
}

/// A node that stood still runs the script of a holder long after the call has given up. `max_ttl`
/// is 30 s: no node has the token with which a script compares for longer.
#[test]
pub(super) fn an_offer_that_is_over_is_deleted_for_as_long_as_a_script_for_it_may_run() {
    for (seconds, deleted) in [(31, vec![0, 1, 2]), (32, vec![])] {
        let mut rig = rig(3);
        let token = given_up(&mut rig);
        settle(&mut rig);
        rig.advance(Duration::from_secs(seconds));
        let late = transfer(&rig, &token, 1);
        rig.receive(1, &late);
        assert_eq!(deletes(&mut rig), deleted, "after {seconds} s");
    }
}

/// The client leaves a forgotten token alone.
#[test]
fn the_memory_of_offers_is_bounded() {
    let mut rig = rig(3);
    let first = given_up(&mut rig);
    settle(&mut rig);
    for _ in 0..5_000 {
        rig.acquire_with("a", waiting());
        settle(&mut rig);
        rig.engine.cancel_all(rig.now);
        rig.refused();
        settle(&mut rig);
    }
    assert_eq!(rig.engine.locks.offers_remembered(), 4_096);
    let late = transfer(&rig, &first, 1);
    rig.receive(1, &late);
    assert!(deletes(&mut rig).is_empty());
}

/// The node would run the delete behind the commands of the client that adopts the lock.
#[test]
pub(super) fn a_lease_is_not_given_away_while_a_delete_of_it_is_unanswered() {
    let mut rig = rig(3);
    offering(&mut rig);
    rig.lose(1);
    rig.connect(1);
    assert_eq!(deletes(&mut rig), [1], "what was handed over may have gone unheard");
    told(&mut rig, 0);
    told(&mut rig, 2);
    let lease = rig.locked();
    assert_eq!(refused_by(&mut rig, lease), "n:2");
    assert!(rig.engine.deadline(lease).is_some(), "it stays with its holder");
    subscribed_again(&mut rig, 1);
    rig.answer(1, ":0\r\n");
    rig.engine.detach(lease).unwrap();
}

#[test]
pub(super) fn a_lease_is_given_away_once_every_node_has_answered_its_extension() {
    for is_kept in [false, true] {
        let mut rig = Rig::new(3);
        let options = LockOptions::new(TTL);
        rig.acquire_with("k", if is_kept { options.keep_alive() } else { options });
        rig.answer_all(0..3, "+OK\r\n");
        let lease = rig.locked();
        if is_kept {
            rig.advance(TTL / 3);
        } else {
            rig.engine.extend(lease, TTL, rig.now).unwrap();
        }
        assert_eq!(refused_by(&mut rig, lease), "n:1, n:2, n:3");
        rig.answer_all(0..2, "+OK\r\n");
        assert_eq!(refused_by(&mut rig, lease), "n:3", "a quorum is not enough");
        rig.answer(2, "+OK\r\n");
        rig.engine.detach(lease).unwrap();
        rig.advance(TTL);
        assert!(
            (0..3).all(|index| rig.waiting(index).is_empty()),
            "nothing is written from now on"
        );
    }
}

#[test]
fn a_lease_is_not_given_away_where_an_extension_may_run_over_a_lost_connection() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("k");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..2, "+OK\r\n");
    rig.lose(2);
    rig.connect(2);
    assert_eq!(refused_by(&mut rig, lease), "n:3");
}

/// The unanswered SET of the attempt does not matter: it changes no key that is there.
#[test]
fn a_lease_is_given_away_though_a_node_has_not_answered_its_set() {
    let mut rig = Rig::new(3);
    rig.acquire("k");
    rig.answer_all(0..2, "+OK\r\n");
    let lease = rig.locked();
    rig.engine.detach(lease).unwrap();
    rig.answer(2, "+OK\r\n");
    rig.lose(2);
    rig.connect(2);
    assert!((0..3).all(|index| rig.waiting(index).is_empty()));
    assert_eq!(rig.engine.slots_in_use(), 0);
    assert!(matches!(rig.engine.detach(lease), Err(DetachError::NotOurs)));
}

/// The client that drew the token has given its lock away. When it hears of a call, it can only
/// wake that call. Afterwards the call makes its safety polls, and has the lock within one of them
/// once the key is gone.
#[test]
fn a_call_behind_a_lease_that_was_given_away_polls_and_has_it_soon_after_its_end() {
    for takes_over in [true, false] {
        let mut rig = if takes_over { rig(3) } else { waking::rig(3) };
        rig.acquire_with("a", waiting());
        let (begin, mut commands, mut tells) = (rig.now, 0, 0);
        let is_told = |words: &[String]| words[0] == "EVAL" || words[0] == "PUBLISH";
        while begin.until(rig.now) < Duration::from_secs(4) {
            rig.collect();
            for index in 0..3 {
                while let Some(words) = rig.inbox[index].first().cloned() {
                    commands += 1;
                    rig.answer(index, &answer_to(&words));
                    if is_told(&words) {
                        tells += 1;
                        let wake = message(&rig, WAKE, OTHER, &[]);
                        rig.receive(index, &wake);
                    }
                    rig.collect();
                }
            }
            rig.advance(MS);
        }
        assert!(tells <= 3, "it is told {tells} times");
        assert!(commands <= 4 * 3 * 6, "{commands} commands in 4 s at 3 nodes");
        // The client that adopted the lock releases it.
        let end = rig.now;
        let lease = loop {
            rig.advance(MS);
            rig.collect();
            for index in 0..3 {
                while let Some(words) = rig.inbox[index].first().cloned() {
                    let answer = match &*words[0] {
                        "GET" => "_\r\n".to_owned(),
                        "SET" => "+OK\r\n".to_owned(),
                        _ => answer_to(&words),
                    };
                    rig.answer(index, &answer);
                    rig.collect();
                }
            }
            if let Some(result) = rig.lock_result() {
                break result.unwrap();
            }
        };
        assert!(end.until(rig.now) <= 401 * MS, "after {:?}", end.until(rig.now));
        rig.engine.release(lease, rig.now);
    }
}

/// Each hears of the other, because both wait for a token of their own client: they are not a ring.
#[test]
fn two_calls_of_the_client_that_gave_a_lease_away_poll() {
    let mut rig = rig(3);
    let given = rig.lease("a");
    let token = token_bytes(&rig, given);
    rig.engine.detach(given).unwrap();
    let digits: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let holder = format!("$40\r\n{digits}\r\n");
    for _ in 0..2 {
        rig.acquire_with("a", waiting());
    }
    let (begin, mut commands) = (rig.now, 0);
    while begin.until(rig.now) < Duration::from_secs(4) {
        rig.collect();
        for index in 0..3 {
            while let Some(words) = rig.inbox[index].first().cloned() {
                commands += 1;
                let is_told = words[0] == "EVAL";
                let answer = match &*words[0] {
                    "EVAL" => format!("*3\r\n{holder}:9000\r\n:1\r\n"),
                    "GET" => holder.clone(),
                    _ => answer_to(&words),
                };
                // The node tells the client of its call before it answers the script.
                for call in 1..=2 * u32::from(is_told) {
                    let waiter = own_waiter(&rig, call);
                    announce_from(&mut rig, &waiter, &token, 1);
                }
                rig.answer(index, &answer);
                rig.collect();
            }
        }
        rig.advance(MS);
    }
    assert!(commands <= 4 * 3 * 6 * 2, "{commands} commands in 4 s at 3 nodes");
}

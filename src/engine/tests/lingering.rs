//! Leases that linger behind their unlock: taken again without a command, and given up as soon as
//! anybody else wants them.

use super::transfers::{announce, channel, introduced, rig, told};
use super::*;
use crate::error::UnlockError;
use crate::retry::Retry;

const LINGER: Duration = Duration::from_secs(2);

fn options() -> LockOptions {
    LockOptions::new(TTL).linger(LINGER)
}

/// A lease whose option allows it to linger, won from every node.
fn held(rig: &mut Rig, options: LockOptions) -> LeaseId {
    rig.acquire_with("a", options);
    rig.answer_all(0..rig.inbox.len(), "+OK\r\n");
    rig.locked()
}

/// It is unlocked, and lingers.
fn unlocked(rig: &mut Rig, lease: LeaseId) {
    rig.pass();
    rig.engine.unlock(lease, rig.now).unwrap();
    let event = rig.engine.poll_event(rig.now);
    assert!(
        matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })),
        "{event:?}"
    );
    assert_eq!(written(rig), 0);
}

fn lingering(rig: &mut Rig) -> LeaseId {
    let lease = held(rig, options());
    unlocked(rig, lease);
    lease
}

/// How many commands wait at all nodes.
fn written(rig: &mut Rig) -> usize {
    (0..rig.inbox.len()).map(|index| rig.waiting(index).len()).sum()
}

/// The next call for the key has its lock without a command.
fn again(rig: &mut Rig) -> LeaseId {
    rig.acquire_with("a", options());
    assert_eq!(written(rig), 0);
    rig.locked()
}

#[test]
fn a_lock_that_lingers_is_taken_again_without_a_command() {
    let mut rig = rig(3);
    let mut lease = held(&mut rig, options());
    let deadline = rig.engine.deadline(lease);
    for _ in 0..5 {
        unlocked(&mut rig, lease);
        lease = again(&mut rig);
        assert_eq!(rig.engine.deadline(lease), deadline);
        assert_eq!(rig.engine.votes(lease).count(), 3);
    }
}

#[test]
pub(super) fn the_handle_of_the_last_holder_is_dead() {
    let mut rig = rig(3);
    let old = lingering(&mut rig);
    for is_held in [false, true] {
        if is_held {
            again(&mut rig);
        }
        assert!(matches!(rig.engine.unlock(old, rig.now), Err(UnlockError::NotOurs)));
        assert!(matches!(rig.engine.extend(old, TTL, rig.now), Err(ExtendError::NotOurs)));
        rig.engine.release(old, rig.now);
        assert_eq!((rig.engine.deadline(old), written(&mut rig)), (None, 0));
    }
}

#[test]
fn who_announces_that_it_waits_gets_the_lock_at_once() {
    let mut rig = rig(3);
    let lease = lingering(&mut rig);
    let now = rig.engine.locks.slots.lease_id(lease.slot);
    announce(&mut rig, now, 1);
    for index in 0..3 {
        assert_eq!(rig.waiting(index), ["EVAL"], "the lock is handed over");
    }
    rig.clear();
    rig.acquire("a");
    assert_eq!(rig.waiting(0), ["SET"]);
}

#[test]
pub(super) fn a_lock_lingers_no_longer_than_its_caller_allowed() {
    for (limit, half) in [(LINGER, false), (TTL, true)] {
        let mut rig = rig(3);
        let lease = held(&mut rig, options().linger(limit));
        rig.advance(100 * MS);
        unlocked(&mut rig, lease);
        let end = if half { TTL / 2 } else { limit };
        rig.advance(end - 200 * MS);
        assert_eq!(written(&mut rig), 0);
        rig.advance(200 * MS);
        for index in 0..3 {
            assert_eq!(rig.waiting(index), ["DELIFEQ"]);
            rig.answer(index, ":1\r\n");
        }
        rig.acquire("a");
        assert_eq!(rig.waiting(0), ["SET"]);
    }
}

#[test]
fn each_caller_says_for_itself_how_long_its_lock_lingers() {
    let mut rig = rig(3);
    let lease = held(&mut rig, options());
    unlocked(&mut rig, lease);
    rig.acquire_with("a", options().linger(500 * MS));
    let lease = rig.locked();
    rig.advance(400 * MS);
    unlocked(&mut rig, lease);
    rig.advance(100 * MS);
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

/// The timer is not due yet, or was not looked at: the clock decides.
#[test]
pub(super) fn a_lock_whose_time_to_linger_is_over_is_not_taken_again() {
    let mut rig = rig(3);
    lingering(&mut rig);
    rig.now = rig.now + LINGER;
    rig.engine.locks.last_pass = rig.now;
    rig.acquire_with("a", options());
    assert_eq!(rig.waiting(0), ["DELIFEQ", "SET"]);
}

#[test]
fn an_extension_gives_it_more_time() {
    let mut rig = rig(3);
    let lease = held(&mut rig, options());
    rig.advance(LINGER);
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..3, "+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
    unlocked(&mut rig, lease);
    rig.advance(LINGER - 100 * MS);
    again(&mut rig);
}

#[test]
fn a_lease_whose_extension_failed_does_not_linger() {
    let mut rig = rig(3);
    let lease = held(&mut rig, options());
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..3, "-ERR\r\n");
    for index in 0..3 {
        while !rig.waiting(index).is_empty() {
            rig.answer(index, "-ERR\r\n");
        }
    }
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Err(_), .. })), "{event:?}");
    rig.engine.unlock(lease, rig.now).unwrap();
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

/// Whoever waits may have said so meanwhile.
#[test]
fn a_lock_is_taken_again_only_right_after_a_look_at_the_sockets() {
    let mut rig = rig(3);
    lingering(&mut rig);
    rig.now = rig.now + 2 * MS;
    assert!(rig.engine.needs_look(b"a", rig.now) && !rig.engine.needs_look(b"b", rig.now));
    rig.acquire_with("a", options());
    assert_eq!(rig.waiting(0), ["DELIFEQ", "SET"]);
}

#[test]
pub(super) fn a_call_that_cannot_take_it_goes_behind_its_release() {
    let others: [LockOptions; 3] =
        [LockOptions::new(TTL / 2), options().min_validity(TTL), LockOptions::new(TTL).fenced()];
    for other in others {
        let guarded = |config: Config| config.direct_wake(true).restart_guard(RestartGuard::On);
        let mut rig = Rig::with(3, guarded);
        (0..3).for_each(|index| waking::subscribed(&mut rig, index));
        rig.engine.set_wall_clock(1_700_000_000_000_000, rig.now);
        lingering(&mut rig);
        rig.acquire_with("a", other.clone());
        assert_eq!(rig.waiting(0)[0], "DELIFEQ", "{other:?}");
    }
}

#[test]
fn a_lease_that_may_not_linger_is_released() {
    let mut rig = rig(3);
    let lease = held(&mut rig, options());
    rig.engine.forbid_linger(lease);
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

#[test]
fn a_lock_that_is_kept_alive_lingers_without_that_and_is_kept_alive_again() {
    let mut rig = rig(3);
    let kept = || options().keep_alive().linger(TTL);
    let lease = held(&mut rig, kept());
    unlocked(&mut rig, lease);
    rig.advance(TTL / 3 + 100 * MS);
    assert_eq!(written(&mut rig), 0, "nobody holds it");
    rig.acquire_with("a", kept());
    rig.locked();
    rig.advance(MS);
    assert_eq!(rig.waiting(0), ["SET"], "its third is over");
}

/// Clients of other kinds cannot ask for it.
#[test]
fn one_set_is_good_for_so_many_turns() {
    let mut rig = rig(3);
    let mut lease = held(&mut rig, options());
    for _ in 0..64 {
        unlocked(&mut rig, lease);
        lease = again(&mut rig);
    }
    rig.engine.unlock(lease, rig.now).unwrap();
    assert_eq!(rig.waiting(0), ["DELIFEQ"]);
}

#[test]
fn a_client_that_ends_releases_what_lingers() {
    let mut rig = rig(3);
    lingering(&mut rig);
    rig.engine.begin_close();
    assert_eq!(rig.waiting(0)[0], "DELIFEQ");
    let mut rig = self::rig(3);
    let lease = held(&mut rig, options());
    rig.engine.begin_close();
    rig.engine.release(lease, rig.now);
    assert_eq!(rig.waiting(0).last().unwrap(), "DELIFEQ");
}

/// A quorum can no longer hold the key, or the lease is over.
#[test]
fn a_lock_that_is_lost_while_it_lingers_is_not_taken_again() {
    let mut rig = rig(3);
    let lease = lingering(&mut rig);
    let now = rig.engine.locks.now(rig.now);
    let slot = rig.engine.locks.slots.at_mut(lease.slot);
    slot.holds.remove(node(0));
    slot.holds.remove(node(1));
    rig.engine.locks.check_holders(lease.slot, now);
    rig.acquire_with("a", options());
    assert_eq!(rig.waiting(2), ["DELIFEQ", "SET"]);
}

#[test]
fn a_lock_that_cannot_linger_is_refused() {
    let limits = |config: Config| config.direct_wake(true).max_extensions(3);
    let guarded = |config: Config| config.direct_wake(true).restart_guard(RestartGuard::On);
    for (mut rig, options) in [
        (Rig::new(3), options()),
        (Rig::with(3, guarded), options().fenced()),
        (rig(3), options().announced()),
        (Rig::with(3, limits), options()),
    ] {
        let refused = rig.engine.acquire(b"a", &options, rig.now);
        assert!(matches!(refused, Err(LockError::NoLinger { .. })), "{refused:?}");
        assert_eq!(rig.engine.in_flight(), 0);
    }
}

#[test]
fn each_key_lingers_for_itself() {
    let mut rig = rig(3);
    let leases = ["a", "b"].map(|key| {
        rig.acquire_with(key, options());
        rig.answer_all(0..3, "+OK\r\n");
        rig.locked()
    });
    leases.into_iter().for_each(|lease| unlocked(&mut rig, lease));
    again(&mut rig);
    rig.acquire_with("c", options());
    rig.answer_all(0..3, "+OK\r\n");
    rig.locked();
    rig.advance(LINGER);
    assert_eq!(rig.waiting(0), ["DELIFEQ"], "b is released, a is held");
}

fn waiting_options() -> LockOptions {
    options().retry(Retry::every(20 * MS, Duration::ZERO).timeout(Duration::from_secs(5)))
}

/// A first attempt, with which the call introduces itself; the node by which it does.
fn introducing(rig: &mut Rig) -> usize {
    rig.acquire_with("a", waiting_options());
    let nodes = 0..rig.inbox.len();
    let node = nodes.max_by_key(|&index| rig.waiting(index).len()).expect("there are nodes");
    for index in 0..rig.inbox.len() {
        let end: &[&str] = if index == node { &["EVAL"] } else { &[] };
        assert_eq!(rig.waiting(index), [&["SET", "SUBSCRIBE"], end].concat());
    }
    node
}

/// A call that was introduced with its first attempt, and to which the holder has handed its lock over.
fn taken_over(rig: &mut Rig) -> LeaseId {
    let node = introducing(rig);
    vote(rig, "_\r\n");
    rig.answer(node, &introduced(":1\r\n"));
    assert_eq!(written(rig), 0, "it waits: nothing more is asked");
    (0..2).for_each(|index| told(rig, index));
    rig.locked()
}

/// Where its own locks linger those of other clients may, and their holders hear of no denied attempt.
#[test]
fn a_call_that_may_linger_tells_the_holder_with_its_first_attempt() {
    taken_over(&mut rig(3));
}

/// Every node answers the SET like this.
fn vote(rig: &mut Rig, answer: &str) {
    rig.answer_all(0..rig.inbox.len(), answer);
    confirm_all(rig);
}

/// Every node confirms that it carries transfers, and has deleted what it may have had to.
fn confirm_all(rig: &mut Rig) {
    let name = channel(rig);
    let push = format!(">3\r\n$9\r\nsubscribe\r\n${}\r\n{name}\r\n:2\r\n", name.len());
    for index in 0..rig.inbox.len() {
        rig.answer(index, &push);
        if rig.waiting(index).last().is_some_and(|word| word == "DELIFEQ") {
            rig.inbox[index].pop();
            rig.receive(index, ":0\r\n");
        }
    }
}

#[test]
fn a_call_that_nobody_had_to_be_told_of_leaves_no_offer() {
    let mut rig = rig(3);
    let node = introducing(&mut rig);
    vote(&mut rig, "+OK\r\n");
    rig.answer(node, "_\r\n");
    let lease = rig.locked();
    assert_eq!(rig.engine.locks.offers_remembered(), 0);
    unlocked(&mut rig, lease);
    again(&mut rig);
}

/// A node may not run scripts for this user.
#[test]
fn where_it_cannot_introduce_itself_a_call_is_introduced_at_the_next_node() {
    let mut rig = rig(3);
    let node = introducing(&mut rig);
    vote(&mut rig, "_\r\n");
    rig.answer(node, "-NOPERM User app has no permissions to run the 'eval' command\r\n");
    assert!((0..3).any(|other| other != node && rig.waiting(other) == ["EVAL"]));
}

/// Of calls that fail together each may see the next, and none the lock.
#[test]
fn a_call_that_had_the_grant_of_a_node_looks_again_behind_its_introduction() {
    let mut rig = rig(3);
    let node = introducing(&mut rig);
    let granter = (node + 1) % 3;
    for index in 0..3 {
        rig.answer(index, if index == granter { "+OK\r\n" } else { "_\r\n" });
    }
    confirm_all(&mut rig);
    rig.answer(node, &introduced(":1\r\n"));
    assert_eq!(rig.waiting(node), ["GET"]);
    rig.answer(node, "_\r\n");
    rig.advance(20 * MS);
    assert!(rig.waiting(node).contains(&"GET".into()), "it looks again soon");
}

/// The lock was handed over with nobody behind: it lingers like any other.
#[test]
fn a_lock_that_was_handed_over_lingers() {
    let mut rig = rig(3);
    let lease = taken_over(&mut rig);
    unlocked(&mut rig, lease);
    again(&mut rig);
}

//! Two lists of nodes: while one replaces the other, a lock needs a quorum of each.

use super::sets::{Stores, serve, stores};
use super::transfers::{announce, channel};
use super::waking::{OTHERS_CHANNEL, WAKE, subscribed, waiting};
use super::*;
use crate::error::ConfigError;

/// Nodes 0 to 2 are to be replaced by nodes 2 to 4.
fn joint() -> Rig {
    Rig::joint(3, 5, |config| config.next_nodes(["n:3", "n:4", "n:5"]).unwrap())
}

/// The same lists, or the first of them alone. Its nodes carry messages, and the client hands locks
/// over where it may.
fn telling(is_joint: bool) -> Rig {
    let tells = |config: Config| config.direct_wake(true).transfers_in_row(2);
    let lists = |config| tells(config).next_nodes(["n:3", "n:4", "n:5"]).unwrap();
    let mut rig = if is_joint { Rig::joint(3, 5, lists) } else { Rig::with(3, tells) };
    (0..rig.inbox.len()).for_each(|index| subscribed(&mut rig, index));
    rig
}

/// The nodes that hold the key of another client deny it.
fn attempt(rig: &mut Rig, denied: &[usize]) -> Option<Result<LeaseId, LockError>> {
    rig.acquire("a");
    for index in 0..5 {
        rig.answer(index, if denied.contains(&index) { "_\r\n" } else { "+OK\r\n" });
    }
    rig.lock_result()
}

#[test]
fn a_lock_is_won_by_a_quorum_of_each_list_and_of_no_other_nodes() {
    // Node 2 is in both lists.
    for (denied, is_won) in [
        (&[][..], true),
        (&[0], true),
        (&[2], true),
        (&[0, 4], true),
        (&[0, 1], false),
        (&[3, 4], false),
        (&[0, 2], false),
        (&[2, 4], false),
        (&[0, 1, 3], false),
    ] {
        let mut rig = joint();
        let result = attempt(&mut rig, denied).expect("all have answered");
        assert_eq!(result.is_ok(), is_won, "{denied:?}: {result:?}");
    }
}

/// The nodes that vote are more than a quorum of either list.
#[test]
fn an_error_tells_the_quarantine_of_one_list_though_the_other_votes() {
    let lists = |config: Config| config.next_nodes(["n:3", "n:4", "n:5"]).unwrap();
    let mut rig = Rig::of(3, 5, |config| lists(config).restart_guard(RestartGuard::On));
    (0..3).for_each(|index| rig.connect(index));
    for index in 3..5 {
        let info = format!("run_id:{index}\r\nconnected_slaves:0\r\nuptime_in_seconds:11\r\n");
        rig.greet(index, HELLO, &info);
    }
    rig.acquire("a");
    let wait = rig.refused().ballot().and_then(crate::error::Ballot::quarantine);
    assert!(wait.is_some_and(|wait| wait > 19 * 1_000 * MS && wait < 22 * 1_000 * MS), "{wait:?}");
}

#[test]
fn an_attempt_goes_on_until_both_lists_have_decided() {
    let mut rig = joint();
    rig.acquire("a");
    rig.answer_all([0, 1, 3], "+OK\r\n");
    assert!(rig.lock_result().is_none(), "of the next list one node has granted");
    rig.answer(4, "+OK\r\n");
    rig.locked();
    // Without the other list it may fail at once.
    let mut rig = joint();
    rig.acquire("a");
    rig.answer_all([3, 4], "_\r\n");
    assert!(matches!(rig.refused(), LockError::Taken(_)));
}

#[test]
fn a_set_and_a_slot_are_won_with_the_vote_that_completes_both_lists() {
    for (asks_for_set, granted) in [(true, ":1\r\n"), (false, "$1\r\n1\r\n")] {
        let mut rig = joint();
        let options = LockOptions::new(TTL);
        let begun = if asks_for_set {
            rig.engine.try_lock_all(&["a", "b"], &options, rig.now)
        } else {
            rig.engine.try_lock(b"n", &options.slots(3), rig.now)
        };
        begun.unwrap();
        rig.answer_all(0..3, granted);
        assert!(rig.lock_result().is_none(), "of the next list one node has granted");
        rig.answer(3, granted);
        rig.locked();
    }
}

#[test]
fn an_extension_and_a_release_need_a_quorum_of_each_list() {
    let mut rig = joint();
    let lease = attempt(&mut rig, &[]).unwrap().unwrap();
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all([0, 1, 3], "+OK\r\n");
    assert!(rig.engine.poll_event(rig.now).is_none());
    rig.answer(2, "+OK\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Extend { result: Ok(()), .. })), "{event:?}");
    rig.answer(4, "+OK\r\n");
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer_all([0, 1, 2], ":1\r\n");
    assert!(rig.engine.poll_event(rig.now).is_none());
    rig.answer(3, ":1\r\n");
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Unlock { result: Ok(Unlocked::Released), .. })));
}

#[test]
fn a_lease_is_lost_when_no_quorum_of_one_list_holds_it() {
    let (mut rig, mut stores) = (joint(), stores(5));
    rig.acquire_with("a", LockOptions::new(TTL).keep_alive());
    serve(&mut rig, &mut stores);
    let lease = rig.locked();
    stores[3].clear();
    stores[4].clear();
    rig.advance(TTL / 2);
    serve(&mut rig, &mut stores);
    let event = rig.engine.poll_event(rig.now);
    assert!(matches!(event, Some(Event::Lost { .. })), "{event:?}");
    assert!(rig.engine.is_lost(lease));
}

#[test]
pub(super) fn no_lock_is_handed_over_between_clients_that_may_have_other_lists() {
    let config = Config::new(["n:1", "n:2"]).unwrap().transfers_in_row(16);
    let in_row = |config: Config| {
        let engine = Engine::new(&config, [7; 32], Instant::default()).unwrap();
        engine.locks.settings.transfers_in_row
    };
    assert_eq!(in_row(config.clone()), 16);
    assert_eq!(in_row(config.next_nodes(["n:1", "n:3"]).unwrap()), 0);
}

#[test]
fn a_waiter_with_two_lists_makes_no_offer_where_it_introduces_itself() {
    // The TTL that an offer names: 10,000 ms.
    let ttl = "\u{10}\u{27}\0\0";
    for is_joint in [false, true] {
        let mut rig = telling(is_joint);
        rig.acquire_with("a", waiting());
        rig.answer_all(0..rig.inbox.len(), "_\r\n");
        rig.collect();
        let written = || rig.inbox.iter().flatten();
        let introductions: Vec<_> = written().filter(|command| command[0] == "EVAL").collect();
        let [introduction] = introductions.as_slice() else { panic!("{introductions:?}") };
        let offers = introduction.iter().any(|word| word.contains(ttl));
        assert_eq!(offers, !is_joint, "{introduction:?}");
        let joins = written().any(|command| command[..] == ["SUBSCRIBE", &channel(&rig)]);
        assert_eq!(joins, !is_joint, "the channel by which a lock comes");
    }
}

#[test]
fn a_holder_with_two_lists_wakes_its_waiter_and_hands_it_no_lock() {
    for (is_joint, release) in [(false, "EVAL"), (true, "DELIFEQ")] {
        let mut rig = telling(is_joint);
        let lease = rig.lease("a");
        announce(&mut rig, lease, 1);
        rig.engine.release(lease, rig.now);
        rig.collect();
        assert!(rig.inbox.iter().all(|commands| commands[0][0] == release), "{:?}", rig.inbox);
        let wakes: Vec<_> =
            rig.inbox.iter().flatten().filter(|command| command[0] == "PUBLISH").collect();
        assert_eq!(wakes.len(), usize::from(is_joint));
        for wake in wakes {
            assert_eq!((&*wake[1], wake[2].chars().next()), (OTHERS_CHANNEL, Some(WAKE)));
        }
    }
}

/// The client adopts the lock of `a` by its token.
fn adopts(rig: &mut Rig, stores: &mut Stores, token: &str) -> bool {
    rig.engine.adopt(b"a", token.as_bytes(), &LockOptions::new(TTL), rig.now).unwrap();
    serve(rig, stores);
    match rig.engine.poll_event(rig.now) {
        Some(Event::Adopt { result, .. }) => result.is_ok(),
        event => panic!("not an adoption: {event:?}"),
    }
}

#[test]
fn a_client_with_two_lists_adopts_no_lease_that_only_one_of_them_holds() {
    for (holders, is_adopted) in [
        (&[0, 1][..], false),
        (&[0, 1, 2], false),
        (&[2, 3, 4], false),
        (&[1, 2, 3], true),
        (&[0, 1, 3, 4], true),
    ] {
        let (mut rig, mut stores) = (joint(), stores(5));
        for &index in holders {
            stores[index].insert("a".to_owned(), "of another client".to_owned());
        }
        let result = adopts(&mut rig, &mut stores, "of another client");
        assert_eq!(result, is_adopted, "{holders:?}");
    }
}

/// Clients change their lists one by one. Meanwhile a lease may go from a client of both lists to a
/// client of one.
#[test]
fn a_client_of_either_list_alone_adopts_each_lease_that_a_client_of_both_has_won() {
    let mut won = 0;
    for denied in 0..32_u32 {
        let (mut rig, mut stores) = (joint(), stores(5));
        for index in (0..5).filter(|index| denied & 1 << index != 0) {
            stores[index].insert("a".to_owned(), "of another client".to_owned());
        }
        rig.acquire("a");
        serve(&mut rig, &mut stores);
        let Some(Ok(lease)) = rig.lock_result() else { continue };
        won += 1;
        let (_, token) = rig.engine.lease_name(lease).unwrap();
        let token = String::from_utf8(token.as_bytes().to_vec()).unwrap();
        rig.engine.detach(lease).unwrap();
        for list in [0..3, 2..5] {
            let (mut alone, mut its) = (Rig::new(3), stores[list.clone()].to_vec());
            assert!(adopts(&mut alone, &mut its, &token), "{denied:05b}, {list:?}");
        }
    }
    // Node 2 grants, and one more of each list; or it does not, and all others do.
    assert_eq!(won, 10);
}

#[test]
fn lists_that_cannot_be_are_refused() {
    let old = || Config::new(["n:1", "n:2", "n:3"]).unwrap();
    let error = |next: &[&str]| old().next_nodes(next).unwrap_err();
    assert!(matches!(error(&[]), ConfigError::NoNodes));
    assert!(matches!(error(&["n:4", "n:4"]), ConfigError::DuplicateNode { .. }));
    let many: Vec<String> = (2..=33).map(|port| format!("n:{port}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(matches!(error(&many), ConfigError::TooManyNodes { nodes: 33 }));
    // The quorum holds for each list.
    let all = old().quorum(crate::quorum::Quorum::AtLeast(3)).next_nodes(["n:4"]).unwrap();
    assert!(Engine::new(&all, [7; 32], Instant::default()).is_err());
    let one = old().next_nodes(["n:4"]).unwrap();
    assert!(Engine::new(&one, [7; 32], Instant::default()).is_ok());
}

//! The counts: each attempt, vote and release once, where it ends.

use super::transfers::{self, offering, told};
use super::waking::{self, OTHER, WAKE, listening, message};
use super::*;
use crate::engine::Series;

impl Rig {
    /// The counts of a name as one text each: `node label=value ..`, those that are not zero.
    fn counted(&self, name: &str) -> Vec<String> {
        let text = |series: &Series, count: u64| {
            let node = series.node.map_or(String::new(), |node| format!("{} ", node.index()));
            let labels: Vec<_> = series
                .labels()
                .map(|(_, value)| value.to_owned())
                .filter(|v| v != "none")
                .collect();
            format!("{node}{} {count}", labels.join(" "))
        };
        let all = self.engine.counts();
        let named = all.iter().filter(|(series, count)| series.name == name && *count > 0);
        named.map(|(series, count)| text(series, *count)).collect()
    }
}

#[test]
fn every_attempt_is_counted_once_by_how_it_ended() {
    let mut rig = Rig::new(3);
    let count = |rig: &Rig| rig.counted("redbolt_attempts_total");
    assert!(count(&rig).is_empty());
    let lease = rig.lease("won");
    assert_eq!(count(&rig), ["won 1"]);
    rig.acquire("taken");
    rig.answer_all(0..2, "_\r\n");
    rig.refused();
    assert_eq!(count(&rig), ["won 1", "taken 1"]);
    rig.answer(2, "_\r\n");

    let late = rig.acquire_with("late", LockOptions::new(100 * MS));
    rig.answer_all(0..3, "+OK\r\n");
    rig.now = rig.now + 99 * MS;
    assert!(matches!(rig.refused(), LockError::Expired(_)));
    rig.answer_all(0..3, ":1\r\n");
    let _ = late;
    let given_up = rig.acquire("given up");
    rig.engine.cancel(given_up, rig.now);
    rig.refused();
    rig.answer_all(0..3, "+OK\r\n");
    rig.answer_all(0..3, ":1\r\n");
    let won_and_given_up = rig.acquire("won and given up");
    rig.answer_all(0..3, "+OK\r\n");
    rig.engine.cancel(won_and_given_up, rig.now);
    rig.refused();
    assert_eq!(count(&rig), ["won 1", "taken 1", "expired 1", "cancelled 2"]);
    rig.answer_all(0..3, ":1\r\n");

    rig.acquire("silence");
    rig.advance(51 * MS);
    rig.refused();
    let all = ["won 1", "taken 1", "no_quorum 1", "expired 1", "cancelled 2"];
    assert_eq!(count(&rig), all);
    rig.engine.unlock(lease, rig.now).unwrap();
    assert_eq!(count(&rig), all, "a release is no attempt");
}

#[test]
fn votes_are_counted_by_node_and_cause_however_late_they_come() {
    let mut rig = Rig::new(3);
    let count = |rig: &Rig| rig.counted("redbolt_votes_total");
    rig.acquire("a");
    rig.answer_all(0..2, "+OK\r\n");
    rig.locked();
    assert_eq!(count(&rig), ["0 granted 1", "1 granted 1"]);
    // This vote comes behind the hand-over.
    rig.answer(2, "+OK\r\n");
    assert_eq!(count(&rig), ["0 granted 1", "1 granted 1", "2 granted 1"]);

    rig.acquire("b");
    rig.answer(0, "+OK\r\n");
    rig.answer(1, "_\r\n");
    rig.answer(2, "-OOM command not allowed\r\n");
    rig.refused();
    let all = [
        "0 granted 2",
        "1 granted 1",
        "1 denied held 1",
        "2 granted 1",
        "2 failed out_of_memory 1",
    ];
    assert_eq!(count(&rig), all);
    rig.answer(0, ":1\r\n");

    // Several answers in one read.
    rig.acquire("c");
    rig.acquire("d");
    rig.collect();
    rig.inbox.iter_mut().for_each(Vec::clear);
    for index in 0..3 {
        rig.receive(index, "+OK\r\n+OK\r\n");
    }
    rig.locked();
    rig.locked();
    assert!(count(&rig).contains(&"0 granted 4".to_owned()), "{:?}", count(&rig));

    rig.lose(1);
    rig.acquire("e");
    rig.answer_all([0, 2], "+OK\r\n");
    rig.locked();
    assert!(count(&rig).contains(&"1 failed closed 1".to_owned()), "{:?}", count(&rig));
    rig.acquire("f");
    rig.advance(51 * MS);
    rig.refused();
    for silent in ["0 unknown timeout 1", "2 unknown timeout 1"] {
        assert!(count(&rig).contains(&silent.to_owned()), "{:?}", count(&rig));
    }
    assert_eq!(rig.counted("redbolt_connections_lost_total"), ["1 closed 1"]);
}

#[test]
fn the_time_of_an_attempt_is_from_its_first_byte_to_its_hand_over() {
    let mut rig = Rig::new(3);
    let times = |histogram: &Histogram| -> Vec<u128> {
        let times = histogram.buckets().filter(|(_, count)| *count > 0);
        times.map(|(middle, _)| middle.as_millis()).collect()
    };
    rig.acquire("a");
    rig.now = rig.now + 10 * MS;
    rig.answer_all(0..3, "+OK\r\n");
    rig.now = rig.now + 10 * MS;
    rig.locked();
    let read = times(rig.engine.attempt_times());
    assert!(read.len() == 1 && read[0].abs_diff(20) <= 1, "{read:?}");

    // A second attempt, 200 ms after the first.
    let retry = crate::retry::Retry::every(200 * MS, Duration::ZERO);
    rig.acquire_with("b", LockOptions::new(TTL).retry(retry).direct_wake(false));
    rig.answer_all(0..3, "_\r\n");
    rig.advance(201 * MS);
    rig.answer_all(0..3, "+OK\r\n");
    rig.locked();
    assert_eq!(rig.engine.attempt_times().count(), 2);
    assert_eq!(times(rig.engine.attempt_times()).len(), 2, "it took no time");
}

#[test]
fn every_call_is_counted_once_by_how_it_ended_with_all_its_waiting() {
    let mut rig = Rig::new(3);
    let waited = |rig: &Rig, end: &str| -> Vec<u128> {
        let (_, waits) = rig.engine.call_counts().waits().find(|(it, _)| it.name() == end).unwrap();
        let waits = waits.buckets().filter(|(_, count)| *count > 0);
        waits.map(|(middle, _)| middle.as_millis()).collect()
    };
    let retry = crate::retry::Retry::every(200 * MS, Duration::ZERO).timeout(300 * MS);
    let patient = || LockOptions::new(TTL).retry(retry).direct_wake(false);
    rig.acquire_with("won late", patient());
    rig.answer_all(0..3, "_\r\n");
    rig.advance(201 * MS);
    rig.answer_all(0..3, "+OK\r\n");
    rig.locked();
    let read = waited(&rig, "won");
    assert!(read.len() == 1 && read[0].abs_diff(201) <= 14, "{read:?}");
    // The next call in that place does not count as a long one.
    let lease = rig.lease("won at once");
    assert_eq!(waited(&rig, "won").len(), 2);

    rig.acquire("taken");
    rig.answer_all(0..3, "_\r\n");
    rig.refused();
    rig.acquire_with("in vain", patient());
    rig.answer_all(0..3, "_\r\n");
    rig.advance(201 * MS);
    rig.answer_all(0..3, "_\r\n");
    rig.refused();
    let read = waited(&rig, "timed_out");
    assert!(read.len() == 1 && read[0].abs_diff(201) <= 14, "{read:?}");
    let given_up = rig.acquire("given up");
    rig.engine.cancel(given_up, rig.now);
    rig.refused();
    let wrong = rig.engine.acquire(b"", &LockOptions::new(TTL), rig.now);
    assert!(wrong.is_err());
    let all = ["won 2", "taken 1", "timed_out 1", "cancelled 1", "invalid 1"];
    assert_eq!(rig.counted("redbolt_calls_total"), all);

    let held = |rig: &Rig| rig.engine.call_counts().holds().count();
    assert_eq!(held(&rig), 0, "they are held");
    rig.advance(30 * MS);
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.engine.release(lease, rig.now);
    assert_eq!(held(&rig), 1, "it was unlocked once");
}

#[test]
fn releases_extensions_losses_and_debts_are_counted() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a");
    rig.engine.extend(lease, TTL, rig.now).unwrap();
    rig.answer_all(0..3, "+OK\r\n");
    rig.engine.poll_event(rig.now).unwrap();
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer_all(0..3, ":1\r\n");
    rig.engine.poll_event(rig.now).unwrap();
    assert_eq!(rig.counted("redbolt_extensions_total"), ["won caller 1"]);

    let lease = rig.lease("b");
    rig.engine.release(lease, rig.now);
    rig.answer_all(0..3, ":1\r\n");
    let lease = rig.lease("c");
    rig.engine.unlock(lease, rig.now).unwrap();
    rig.answer_all(0..3, ":0\r\n");
    rig.engine.poll_event(rig.now).unwrap();
    let releases = ["released 1", "not_held 1", "unreported 1"];
    assert_eq!(rig.counted("redbolt_releases_total"), releases);

    let keep = LockOptions::new(TTL).keep_alive();
    rig.acquire_with("d", keep);
    rig.answer_all(0..3, "+OK\r\n");
    rig.locked();
    rig.advance(TTL / 3 + MS);
    rig.answer_all(0..3, "_\r\n");
    rig.pass();
    assert!(matches!(rig.engine.poll_event(rig.now), Some(Event::Lost { .. })));
    assert_eq!(rig.counted("redbolt_leases_lost_total"), ["gone 1"]);
    let extensions = rig.counted("redbolt_extensions_total");
    assert!(extensions.contains(&"won caller 1".to_owned()), "{extensions:?}");

    let lease = rig.lease("e");
    rig.lose(2);
    rig.engine.unlock(lease, rig.now).unwrap();
    assert_eq!(rig.counted("redbolt_debts_total"), ["2  1"]);
}

/// A gauge of today cannot stand for one of yesterday: no series has a key, a token or an error
/// text.
#[test]
fn no_series_names_a_key_or_a_token() {
    let mut rig = Rig::new(3);
    let lease = rig.lease("a-secret-key");
    let token = rig.engine.lease_name(lease).unwrap().1.to_string();
    rig.acquire("a-secret-key");
    rig.answer(0, "-OOM a-secret-text\r\n");
    rig.answer(1, "-WEIRD a-secret-text\r\n");
    rig.refused();
    let all = format!("{:?}", rig.engine.counts());
    assert!(all.contains("out_of_memory") && !all.contains("secret"), "{all}");
    assert!(!all.contains(&token), "{all}");
}

#[test]
fn each_lease_is_counted_once_by_the_way_in_which_it_was_won() {
    let mut rig = transfers::rig(3);
    let count = |rig: &Rig| rig.counted("redbolt_leases_total");
    rig.lease("free");
    assert_eq!(count(&rig), ["first 1"]);

    offering(&mut rig);
    told(&mut rig, 0);
    assert_eq!(count(&rig), ["first 1"], "one node is no quorum");
    told(&mut rig, 1);
    let lease = rig.locked();
    assert_eq!(count(&rig), ["first 1", "transfer 1"]);
    rig.engine.release(lease, rig.now);
    rig.answer_all(0..3, ":1\r\n");

    let mut rig = waking::rig(3);
    let node = listening(&mut rig);
    let wake = message(&rig, WAKE, OTHER, &[]);
    rig.receive(node, &wake);
    rig.answer_all(0..2, "+OK\r\n");
    rig.locked();
    assert_eq!(count(&rig), ["wake 1"]);
}

#[test]
fn a_lease_of_an_attempt_that_no_wake_began_is_counted_as_polled() {
    let mut rig = Rig::new(3);
    rig.acquire_with("a", LockOptions::new(TTL).retry(crate::retry::Retry::every(MS, MS)));
    rig.answer_all(0..2, "_\r\n");
    rig.advance(3 * MS);
    rig.answer_all(0..2, "+OK\r\n");
    rig.locked();
    assert_eq!(rig.counted("redbolt_leases_total"), ["poll 1"]);
    rig.lease("b");
    assert_eq!(rig.counted("redbolt_leases_total"), ["first 1", "poll 1"], "each call begins anew");
}

//! Requests that a client makes once per connection, and that the node refuses.

use super::transfers::{answer_to, channel, messages, rig, waited_for};
use super::waking::waiting;
use super::*;

/// A node that is busy with a script refuses everything.
const BUSY: &str = "-BUSY Redis is busy running a script.\r\n";
const DENIED: &str = "-NOPERM No permissions to access a channel\r\n";

/// The first node refuses every subscription. Returns the seconds at which the client asks it for
/// one.
fn asked_after(rig: &mut Rig, channel: &str, error: &str) -> Vec<u64> {
    let begin = rig.now;
    let mut asked = Vec::new();
    while begin.until(rig.now) < Duration::from_millis(3_500) {
        rig.collect();
        for index in 1..3 {
            while let Some(words) = rig.inbox[index].first().cloned() {
                rig.answer(index, &answer_to(&words));
            }
        }
        match rig.inbox[0].first().cloned() {
            None => rig.advance(MS),
            Some(words) if words[0] == "SUBSCRIBE" => {
                assert_eq!(words[1], channel);
                rig.answer(0, error);
                asked.push(begin.until(rig.now).as_secs());
            }
            Some(words) => rig.answer(0, &answer_to(&words)),
        }
    }
    asked
}

/// Otherwise no client could tell this one about a lock that it holds or waits for.
#[test]
fn a_refused_subscription_is_asked_for_again_each_second() {
    for (error, asked) in [(BUSY, vec![0, 1, 2, 3]), (DENIED, vec![0])] {
        let mut rig = Rig::with(3, |config| config.direct_wake(true));
        let name = messages(&rig);
        assert_eq!(asked_after(&mut rig, &name, error), asked, "{error}");
        assert!(!rig.engine.locks.nodes.at(node(0)).has_channel());
    }
}

#[test]
fn a_refused_subscription_to_transfers_is_asked_for_again_each_second() {
    for (error, asked) in [(BUSY, vec![0, 1, 2, 3]), (DENIED, vec![0])] {
        let mut rig = rig(3);
        rig.acquire_with("a", waiting());
        rig.answer_all(0..3, "_\r\n");
        let name = channel(&rig);
        rig.engine.cancel_all(rig.now);
        rig.refused();
        assert_eq!(asked_after(&mut rig, &name, error), asked, "{error}");
        assert!(!rig.engine.locks.nodes.at(node(0)).takes_transfers());
        // The next call does not ask either for a right that the user lacks.
        if error == DENIED {
            rig.acquire_with("a", waiting());
            assert!(asked_after(&mut rig, &name, error).is_empty());
        }
    }
}

#[test]
fn a_node_that_was_busy_hands_locks_over_again_a_second_later() {
    let mut rig = rig(3);
    let lease = waited_for(&mut rig, 1);
    rig.engine.release(lease, rig.now);
    rig.answer(0, BUSY);
    rig.answer(0, ":1\r\n");
    rig.answer_all(1..3, ":2\r\n");
    for (later, command, answer) in [(500 * MS, "DELIFEQ", ":1\r\n"), (510 * MS, "EVAL", ":2\r\n")]
    {
        rig.advance(later);
        let lease = waited_for(&mut rig, 1);
        rig.engine.release(lease, rig.now);
        assert_eq!(rig.waiting(0), [command]);
        rig.answer(0, answer);
        rig.answer_all(1..3, ":2\r\n");
    }
}

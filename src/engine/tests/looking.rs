//! Waiting without a holder to tell: how often a call looks at the key, and what makes it look
//! sooner.

use super::waking::{
    ALIEN, OTHER, WAKE, answer_each, listening, message, rig, subscribed, token_of,
};
use super::*;
use crate::retry::Retry;

const NODES: usize = 5;

/// All nodes answer what they were asked: the key is held, and no client receives a message. How
/// many commands that were.
fn serve(rig: &mut Rig, holder: &str) -> usize {
    let mut count = 0;
    rig.collect();
    for index in 0..NODES {
        while let Some(command) = rig.inbox[index].first() {
            let answer = match command[0].as_str() {
                "SET" => "_\r\n",
                "GET" => holder,
                "PTTL" => ":60000\r\n",
                "PUBLISH" | "DELIFEQ" => ":0\r\n",
                "CLIENT" => "+OK\r\n",
                other => panic!("{other}"),
            };
            rig.answer(index, answer);
            rig.collect();
            count += 1;
        }
    }
    count
}

/// The same for so long.
fn serve_for(rig: &mut Rig, holder: &str, time: Duration) -> usize {
    let (begun, mut count) = (rig.now, 0);
    while begun.until(rig.now) < time {
        count += serve(rig, holder);
        rig.advance(MS);
    }
    count
}

fn call(rig: &mut Rig) {
    let retry = Retry::every(20 * MS, Duration::ZERO).timeout(Duration::from_secs(60));
    rig.acquire_with("a", LockOptions::new(TTL).retry(retry));
}

/// A call that has looked at all nodes, which tell it of the next change.
fn told(holder: &str) -> Rig {
    let mut rig = rig(NODES);
    call(&mut rig);
    serve_for(&mut rig, holder, 500 * MS);
    rig
}

fn changed() -> &'static str {
    ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n"
}

#[test]
fn a_call_whose_nodes_tell_of_the_key_looks_at_it_once_a_second() {
    for holder in [ALIEN, &token_of(OTHER)] {
        let mut rig = told(holder);
        let commands = serve_for(&mut rig, holder, Duration::from_secs(20));
        // Three for each look, twenty calls like this one have sixty a second.
        assert!((20..=3 * 20).contains(&commands), "{commands} in 20 s, {holder}");
    }
}

#[test]
fn the_change_of_the_key_is_told_by_any_node_that_was_looked_at() {
    for index in 0..NODES {
        let mut rig = told(ALIEN);
        rig.receive(index, changed());
        rig.advance(6 * MS);
        assert_eq!(rig.waiting(index), ["SET"], "that node first");
    }
}

#[test]
fn a_change_that_is_told_while_the_call_looks_elsewhere_is_looked_for_soon() {
    let mut rig = told(ALIEN);
    while (0..NODES).all(|index| rig.waiting(index).is_empty()) {
        rig.advance(MS);
    }
    let looked = (0..NODES).find(|&index| !rig.inbox[index].is_empty()).unwrap();
    rig.receive((looked + 1) % NODES, changed());
    serve(&mut rig, ALIEN);
    rig.advance(21 * MS);
    assert!((0..NODES).any(|index| !rig.waiting(index).is_empty()), "after the plan's delay");
}

#[test]
fn a_node_that_was_lost_is_looked_at_again_before_it_is_counted_on() {
    let mut rig = told(ALIEN);
    rig.lose(1);
    rig.connect(1);
    subscribed(&mut rig, 1);
    let (back, mut looks) = (rig.now, 0);
    while rig.waiting(1).is_empty() {
        looks += serve(&mut rig, ALIEN);
        rig.advance(MS);
        assert!(back.until(rig.now) < 200 * MS, "{looks} commands elsewhere");
    }
    assert_eq!(rig.waiting(1), ["GET", "CLIENT", "CLIENT", "PTTL"], "and asked to tell again");
}

#[test]
fn a_call_that_tried_again_in_vain_is_told_by_all_nodes_again() {
    let mut rig = told(ALIEN);
    rig.receive(0, changed());
    rig.advance(6 * MS);
    assert_eq!(rig.waiting(0), ["SET"]);
    let first = serve_for(&mut rig, ALIEN, 500 * MS);
    assert!(first > 0, "it looks again");
    let commands = serve_for(&mut rig, ALIEN, Duration::from_secs(20));
    assert!(commands <= 3 * 20, "{commands} in 20 s");
}

#[test]
fn a_call_that_waits_for_another_of_its_client_where_no_message_goes_looks_as_its_plan_says() {
    let mut rig = Rig::with(NODES, |config| config.direct_wake(true));
    for index in 0..NODES {
        rig.answer(index, "-NOPERM no channels\r\n");
    }
    let lease = rig.lease("a");
    let token = rig.engine.lease_name(lease).unwrap().1.as_bytes().to_vec();
    let holder = format!("$40\r\n{}\r\n", str::from_utf8(&token).unwrap());
    call(&mut rig);
    serve_for(&mut rig, &holder, 500 * MS);
    let commands = serve_for(&mut rig, &holder, Duration::from_secs(1));
    assert!(commands >= 3 * 40, "{commands} in 1 s: no node tells it of its own client's release");
}

/// A lock that goes from hand to hand fast, and a call that is woken each time too late.
#[test]
fn a_call_that_tries_again_and_again_leaves_no_timers_behind() {
    let mut rig = rig(1);
    listening(&mut rig);
    for turn in 0..4_000 {
        let wake = message(&rig, WAKE, OTHER, &[]);
        rig.receive(0, &wake);
        let holder = token_of(OTHER).replace(&"11".repeat(12), &format!("{turn:024x}"));
        answer_each(&mut rig, 0, &["_\r\n", &holder, ":9000\r\n"]);
        answer_each(&mut rig, 0, &[":1\r\n", &holder]);
        rig.now = rig.now + MS / 100;
        rig.pass();
    }
    let timers = rig.engine.locks.timers.len();
    assert!(timers <= 3, "{timers} timers of one call");
    assert_eq!(rig.engine.in_flight(), 1);
    // What is left ends it in time.
    rig.advance(Duration::from_secs(6));
    rig.refused();
}

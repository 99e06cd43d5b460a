//! Calls that introduce themselves to the client that seems to hold the lock.

use super::*;

/// When several attempts fail together, each call may have taken another attempt for the holder.
#[test]
fn a_call_that_was_introduced_to_an_attempt_tells_the_holder_that_it_sees_next() {
    let mut world = World::new();
    let mut nodes = world.reach.all;
    let granter = world.reach.in_key_order(KEY).last().unwrap();
    nodes.remove(granter);
    world.tell(|waiting, view| waiting.denied(op(0), nodes, call(), view));
    world.answer(0, introduced(Some(token(OTHER)), true));
    assert_eq!(world.done(), ["timer", "poll"]);
    world.answer(0, HolderAnswer::Gone);
    assert_eq!(world.done(), ["listen"]);
    world.now = world.due(0);
    world.step(0, Input::Due);
    world.answer(0, HolderAnswer::Holder(Some(token(THIRD))));
    assert_eq!(world.done(), ["timer", "introduce"]);
}

/// The client that drew a token has given its lock away, and wakes a call that it is told of. Nodes may have
/// the leftover of another lock beside it.
#[test]
fn the_client_of_a_token_that_stays_after_two_turns_is_told_no_more() {
    for leftover in [None, Some(None), Some(Some(token(THIRD)))] {
        let mut world = World::new();
        let mut tells = 0;
        for round in 0..12 {
            world.deny(0);
            let seen = match leftover {
                Some(leftover) if round % 2 == 1 => leftover,
                _ => Some(token(OTHER)),
            };
            if world.done() == ["timer", "poll"] {
                world.answer(0, HolderAnswer::Holder(seen));
                if world.done() == ["timer"] {
                    break;
                }
            }
            world.answer(0, introduced(seen, seen.is_some()));
            tells += usize::from(seen.is_some());
            world.step(0, Input::Turn(Waitlist::default()));
            world.now = world.due(0).min(world.now + MS);
        }
        assert!(tells <= 4, "{leftover:?}: {tells} times");
    }
}

/// A node tells a client of its own call before it answers the call's script, so the turn comes before the
/// call knows the holder.
#[test]
fn a_call_whose_turns_come_before_the_holder_is_known_asks_for_the_holder() {
    let mut world = World::new();
    for _ in 0..2 {
        world.deny(0);
        assert_eq!(world.done(), ["timer", "introduce"]);
        world.step(0, Input::Turn(Waitlist::default()));
    }
    world.deny(0);
    assert_eq!(world.done(), ["timer", "poll"]);
    world.answer(0, HolderAnswer::Holder(Some(token(OTHER))));
    for _ in 0..2 {
        assert_eq!(world.done(), ["timer", "introduce"]);
        world.step(0, Input::Turn(Waitlist::default()));
        world.deny(0);
    }
    assert_eq!(world.done(), ["timer", "poll"]);
    world.answer(0, HolderAnswer::Holder(Some(token(OTHER))));
    assert_eq!(world.done(), ["timer"], "that client has given the lock away");
}

/// While the lock goes from one holder to the next, none of them hears of the call.
#[test]
fn a_call_that_no_holder_heard_tells_the_holder_that_two_polls_see() {
    let mut world = World::new();
    world.deny(0);
    let holder = |number: u8| Some(token([number; 12]));
    let mut number = 0;
    while world.done() == ["timer", "introduce"] {
        number += 1;
        assert!(number < 20, "it is introduced to every holder");
        world.answer(0, introduced(holder(number), false));
    }
    for expected in [vec!["timer"], vec!["timer", "introduce"]] {
        world.now = world.due(0);
        world.step(0, Input::Due);
        assert_eq!(world.done(), ["timer", "poll"]);
        world.answer(0, HolderAnswer::Holder(holder(0)));
        assert_eq!(world.done(), expected);
    }
}

//! Calls that introduce themselves to who seems to hold the lock.

use super::*;

/// Of attempts that fail together each may have been taken for the holder, by the next.
#[test]
fn a_call_that_was_introduced_to_an_attempt_tells_the_holder_that_it_sees_next() {
    let mut world = World::new();
    world.run_scripts();
    let mut nodes = world.reach.all;
    let granter = world.reach.in_key_order(KEY).last().unwrap();
    nodes.remove(granter);
    world.tell(|waiting, view| waiting.denied(op(0), nodes, call(), view));
    let (holder, remaining) = (Some(token(OTHER)), Some(9_000));
    world.answer(0, Answer::Introduced { holder, remaining, is_heard: true });
    assert_eq!(world.done(), ["timer", "poll"]);
    world.answer(0, Answer::Gone);
    assert_eq!(world.done(), ["listen"]);
    world.now = world.due(0);
    world.step(0, Input::Due);
    world.answer(0, Answer::Holder(Some(token(THIRD))));
    assert_eq!(world.done(), ["timer", "announce"]);
    assert_eq!(world.published, [(ClientId::of(&THIRD), Kind::Announce, 0, vec![own(1)])]);
}

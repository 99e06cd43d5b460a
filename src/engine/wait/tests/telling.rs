//! Which client hears of which waiter, and which waiter has its turn first.

use super::*;

/// A message that was written `waited` after each of its calls began to wait.
fn announce(world: &mut World, to: RawToken, id: WaiterId, waited: Duration, lock: Option<usize>) {
    let waited_us = u32::try_from(waited.as_micros()).unwrap();
    let listed = Listed { wait_ms: 5_000, waited_us, ..Listed::named(id) };
    let mut bytes = Vec::new();
    message::append(&mut bytes, (MessageKind::Announce, 0), listed, &to, std::iter::empty(), KEY);
    let message = Message::parse(&bytes).unwrap();
    let meant = world.meant(lock);
    world.tell(|waiting, view| waiting.message(node(0), &message, meant, view));
}

#[test]
fn the_waiter_that_has_waited_longest_has_its_turn_first_however_late_it_was_heard_of() {
    let mut world = World::new();
    announce(&mut world, token(own(0)), OTHER, MS, Some(0));
    announce(&mut world, token(own(0)), THIRD, 3 * MS, Some(0));
    let last = *b"latecome\x01\0\0\0";
    announce(&mut world, token(own(0)), last, 2 * MS, Some(0));
    world.tell(|waiting, view| waiting.released(slot(0), key(), None, view));
    let ids = vec![own(0), last, OTHER];
    assert_eq!(world.published, [(ClientId::of(&THIRD), MessageKind::Wake, 0, ids)]);
}

/// A blocking holder reads the messages only when it releases. By then it cannot always tell which
/// waiter came first.
#[test]
fn the_waiter_that_was_heard_of_first_has_its_turn_first_where_nobody_read_for_a_while() {
    let mut world = World::new();
    world.unread = 50 * MS;
    announce(&mut world, token(own(0)), OTHER, MS, Some(0));
    announce(&mut world, token(own(0)), THIRD, 3 * MS, Some(0));
    announce(
        &mut world,
        token(own(0)),
        *b"who waits for long..".first_chunk().unwrap(),
        90 * MS,
        Some(0),
    );
    world.tell(|waiting, view| waiting.released(slot(0), key(), None, view));
    let ids = vec![own(0), OTHER, THIRD];
    let long = *b"who waits for long..".first_chunk::<8>().unwrap();
    assert_eq!(world.published, [(ClientId::new(long), MessageKind::Wake, 0, ids)]);
}

/// Before a message reached the first waiter, that waiter might have passed the lock on.
#[test]
fn a_client_that_wants_the_lock_again_tells_the_last_waiter() {
    let mut world = World::new();
    world.release(0, &[OTHER, THIRD]);
    world.tell(|waiting, view| assert!(waiting.queue_behind(op(0), call(), view)));
    assert_eq!(world.published, [(ClientId::of(&THIRD), MessageKind::Announce, 1, vec![own(1)])]);
    // A latecomer is sent there, too.
    let late = *b"latecome\x01\0\0\0";
    announce(&mut world, token(own(0)), late, MS, None);
    assert_eq!(world.published, [(ClientId::of(&THIRD), MessageKind::Announce, 1, vec![late])]);
}

/// Otherwise two clients that have both released the lock would forward each message to each other
/// in turn.
#[test]
fn a_client_that_is_told_by_its_own_name_has_the_tellers_behind_it_though_it_has_just_let_go() {
    let mut world = World::new();
    world.release(0, &[OTHER]);
    world.tell(|waiting, view| assert!(waiting.queue_behind(op(0), call(), view)));
    let own_call = token_of(own(1));
    announce(&mut world, own_call, THIRD, MS, None);
    assert_eq!(world.published, []);
    world.tell(|waiting, view| waiting.ended(op(0), Some(slot(1)), view));
    assert_eq!(world.waiting.count_for(slot(1)), 1);
}

/// The client hands a lock over to the first of these waiters, with the others as its list.
fn hand_over(world: &mut World, ids: &[WaiterId]) {
    world.receive(MessageKind::Announce, 0, token(own(0)), ids, Some(0));
    let all = world.reach.all;
    let offer = Offer { token: token(ids[0]), ttl_ms: 1 };
    let heir = Some(Heir { offer, nodes: all, near: node(0) });
    world.tell(|waiting, view| waiting.released(slot(0), key(), heir, view));
}

#[test]
fn a_waiter_on_a_list_that_was_handed_on_is_not_passed_on_again() {
    let mut world = World::new();
    hand_over(&mut world, &[OTHER, THIRD]);
    for id in [OTHER, THIRD] {
        announce(&mut world, token(own(0)), id, MS, None);
        assert_eq!(world.done(), Vec::<&str>::new(), "{id:?}");
    }
    let late = *b"latecome\x01\0\0\0";
    announce(&mut world, token(own(0)), late, MS, None);
    assert_eq!(world.done(), ["tell"]);
}

#[test]
fn a_client_that_won_the_lock_at_once_sends_nobody_to_the_waiters_it_let_go_for() {
    let mut world = World::new();
    world.release(0, &[OTHER]);
    world.waiting.won_at_once(KEY);
    announce(&mut world, token(own(0)), THIRD, MS, None);
    assert_eq!(world.published, [(ClientId::of(&THIRD), MessageKind::Wake, 0, vec![own(0)])]);
}

/// The waiter that is woken then has the turn: the client's next call waits behind it.
#[test]
fn a_waiter_that_tells_a_call_that_is_over_has_the_turn_if_none_has_waited_longer() {
    let mut world = World::new();
    announce(&mut world, token_of(own(7)), THIRD, MS, None);
    assert_eq!(world.published, [(ClientId::of(&THIRD), MessageKind::Wake, 0, vec![own(0)])]);
    world.tell(|waiting, view| assert!(waiting.queue_behind(op(0), call(), view)));
    // A call of this client has waited for longer.
    let mut world = World::new();
    world.listen(0, OTHER);
    world.now = world.now + 2 * MS;
    announce(&mut world, token_of(own(7)), THIRD, MS, None);
    assert_eq!(world.done(), ["woken", "try"]);
}

#[test]
fn the_turn_of_a_call_that_is_over_goes_to_the_waiter_that_has_waited_longest() {
    let mut world = World::new();
    world.listen(0, OTHER);
    world.receive(MessageKind::Wake, 0, token_of(own(7)), &[OTHER], None);
    assert_eq!(world.done(), ["woken", "try"]);
}

/// The client's next attempt follows its release, and may win. A woken waiter would then find the
/// lock taken each time.
#[test]
fn a_client_that_is_told_of_a_lock_that_it_has_let_go_and_tries_again_has_a_waiter_if_it_wins() {
    for told in [token(own(0)), token_of(own(7))] {
        let mut world = World::new();
        world.attempt = Some(slot(1));
        announce(&mut world, told, OTHER, MS, None);
        assert_eq!(world.done(), Vec::<&str>::new());
        world.tell(|waiting, view| waiting.released(slot(1), key(), None, view));
        assert_eq!(world.published, [(ClientId::of(&OTHER), MessageKind::Wake, 0, vec![own(0)])]);
    }
}

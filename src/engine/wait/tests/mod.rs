//! The machine by itself: each test says what happens outside, and looks at what the machine wants
//! done.

mod introductions;
mod table;
mod telling;

use super::message::WaiterId;
use super::waiter::WaitState;
use super::*;
use crate::slab::Index;

const KEY: &[u8] = b"a";
const NODES: usize = 3;
const MS: Duration = Duration::from_millis(1);
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const DELAY: Duration = Duration::from_millis(20);
const US: ClientId = ClientId::new(*b"ourselfs");
const OTHER: WaiterId = *b"ABCDEFGH\x01\0\0\0";
const THIRD: WaiterId = *b"abcdefgh\x01\0\0\0";

/// A token that the client of a waiter drew.
fn token(of: WaiterId) -> RawToken {
    let mut token = [7; 20];
    token[..8].copy_from_slice(&of[..8]);
    token
}

fn node(index: usize) -> NodeId {
    NodeId::new(index).unwrap()
}

fn op(place: usize) -> OpIndex {
    OpIndex::at(place).unwrap()
}

fn slot(place: usize) -> SlotIndex {
    SlotIndex::at(place).unwrap()
}

/// The tests release a lock with this key, and with zero for no fence.
fn key() -> (Key, u64) {
    (Key::from_slice(KEY), 0)
}

fn own(call: u32) -> WaiterId {
    waiter_id(US, call)
}

/// A published message: its receiver, its kind, how often it was passed on, and the calls it names.
type Published = (ClientId, MessageKind, u8, Vec<WaiterId>);

/// The machine, and the world around it.
struct World {
    waiting: Waiting,
    now: Instant,
    /// For how long nobody has read what came.
    unread: Duration,
    reach: Reach,
    attempt: Option<SlotIndex>,
    receiver: Option<OpIndex>,
    round_trip: Duration,
    /// What it wanted done last.
    actions: Vec<Action>,
    published: Vec<Published>,
}

impl World {
    fn new() -> Self {
        let all = NodeMask::first(NODES);
        Self {
            waiting: Waiting::new(US, NODE_TIMEOUT, Electorate::of(NodeMask::first(3), 2)),
            now: Instant::from_nanos(1_000_000_000),
            reach: Reach { all, channel: all, scripts: all, askable: all },
            attempt: None,
            receiver: None,
            unread: Duration::ZERO,
            round_trip: Duration::ZERO,
            actions: Vec::new(),
            published: Vec::new(),
        }
    }

    fn tell(&mut self, input: impl FnOnce(&mut Waiting, &mut View<'_>)) {
        let view = &mut View {
            now: self.now,
            last_pass: self.now.minus_nanos(u64::try_from(self.unread.as_nanos()).unwrap()),
            reach: self.reach,
            round_trip: self.round_trip,
            share: &mut || 0.0,
        };
        self.waiting.actions.begin_input();
        input(&mut self.waiting, view);
        (self.actions, self.published) = (Vec::new(), Vec::new());
        while let Some(action) = self.waiting.actions.pop() {
            if let Action::Announce { text, .. }
            | Action::Introduce { text, .. }
            | Action::Wake { text, .. }
            | Action::Tell { text, .. } = &action
            {
                let message = Message::parse(self.waiting.actions.bytes(text)).unwrap();
                assert_eq!(message.key, KEY);
                let list = message.list().map(|listed| listed.id);
                let ids = std::iter::once(message.sender.id).chain(list).collect();
                self.published.push((text.to, message.kind, message.hops, ids));
            }
            if let Action::Wake { wake, node, .. } = action {
                self.waiting.wake_written(wake, node, self.now);
            }
            self.actions.push(action);
        }
    }

    fn step(&mut self, place: usize, input: Input) {
        self.tell(|waiting, view| waiting.step(op(place), input, view));
    }

    fn answer(&mut self, place: usize, answer: HolderAnswer) {
        self.step(place, Input::Answer(answer));
    }

    /// The call's first attempt is under way, and with it goes a word to the holder.
    fn introduce(&mut self, place: usize) {
        self.tell(|waiting, view| waiting.introduce(op(place), call(), view));
    }

    /// The call has no lock: every node denied it.
    fn deny(&mut self, place: usize) {
        let nodes = self.reach.all;
        self.tell(|waiting, view| waiting.denied(op(place), nodes, call(), view));
    }

    /// The call waits behind the holder of a token, which was told.
    fn listen(&mut self, place: usize, holder: WaiterId) {
        self.deny(place);
        self.answer(place, introduced(Some(token(holder)), true));
        assert_eq!(self.state(place), WaitState::Still);
    }

    fn receive(
        &mut self,
        kind: MessageKind,
        hops: u8,
        to: RawToken,
        ids: &[WaiterId],
        lock: Option<usize>,
    ) {
        let listed = |&id| Listed { wait_ms: 5_000, ..Listed::named(id) };
        let mut bytes = Vec::new();
        let list = ids[1..].iter().map(listed);
        message::append(&mut bytes, (kind, hops), listed(&ids[0]), &to, list, KEY);
        let message = Message::parse(&bytes).unwrap();
        let meant = self.meant(lock);
        self.tell(|waiting, view| waiting.message(node(0), &message, meant, view));
    }

    /// The lock of a slot is released, for which these wait.
    fn release(&mut self, place: usize, ids: &[WaiterId]) {
        self.receive(MessageKind::Announce, 0, token(own(0)), ids, Some(place));
        self.tell(|waiting, view| waiting.released(slot(place), key(), None, view));
    }

    /// What a message is about: the lock of this slot, or none of this client's.
    fn meant(&self, lock: Option<usize>) -> Meant {
        let (receiver, attempt) = (self.receiver, self.attempt);
        Meant { slot: lock.map(slot), receiver, attempt, ..Meant::default() }
    }

    fn state(&self, place: usize) -> WaitState {
        self.waiting.waiters.get(op(place)).unwrap().state.unwrap()
    }

    fn due(&self, place: usize) -> Instant {
        self.waiting.due(op(place)).unwrap()
    }

    /// What it wanted done, in a word each.
    fn done(&self) -> Vec<&'static str> {
        let word = |action: &Action| match action {
            Action::Timer { .. } => "timer",
            Action::Listen { .. } => "listen",
            Action::Poll { .. } => "poll",
            Action::Announce { .. } => "announce",
            Action::Introduce { .. } => "introduce",
            Action::Withdraw { .. } => "withdraw",
            Action::Wake { .. } => "wake",
            Action::Tell { .. } => "tell",
            Action::Try { gate: None, .. } => "try",
            Action::Try { gate: Some(_), .. } => "try at one",
            Action::Woken { .. } => "woken",
        };
        self.actions.iter().map(word).collect()
    }

    /// The node of the question that was asked last.
    fn asked(&self) -> NodeId {
        let Some(Action::Poll { node, .. } | Action::Introduce { node, .. }) = self.actions.last()
        else {
            panic!("{:?}", self.actions)
        };
        *node
    }
}

/// What a node answers to the script by which a call introduces itself.
fn introduced(holder: Option<RawToken>, is_heard: bool) -> HolderAnswer {
    HolderAnswer::Introduced { holder, remaining: Some(9_000), is_heard }
}

fn call() -> WaitCall {
    let deadline = Instant::from_nanos(60_000_000_000);
    let key = Key::from_slice(KEY);
    WaitCall { key, deadline, delay: DELAY, jitter: Duration::ZERO, takes_over: false }
}

#[test]
fn each_node_that_denied_is_asked_once_and_then_each_is_polled_at_its_pace() {
    asks_each_of(NodeMask::first(NODES));
}

/// The lists have changed: a client numbers no node anew.
#[test]
fn a_client_with_other_nodes_than_the_first_asks_each_of_them() {
    asks_each_of([1, 4, 6].map(node).into_iter().collect());
}

fn asks_each_of(all: NodeMask) {
    let mut world = World::new();
    world.reach = Reach { all, channel: all, scripts: all, askable: all };
    world.deny(0);
    let mut asked = NodeMask::EMPTY;
    for _ in 0..NODES {
        asked.insert(world.asked());
        world.step(0, Input::Unanswered);
    }
    assert_eq!((asked, world.done()), (world.reach.all, vec!["timer"]));
    let mut polled = NodeMask::EMPTY;
    for _ in 0..NODES {
        assert_eq!(world.due(0), world.now + 100 * MS);
        world.now = world.due(0);
        world.step(0, Input::Due);
        polled.insert(world.asked());
        world.answer(0, HolderAnswer::Holder(None));
    }
    assert_eq!(polled, world.reach.all);
}

#[test]
fn without_scripts_a_call_polls_after_its_delay() {
    let mut world = World::new();
    world.reach.scripts = NodeMask::EMPTY;
    let slow = WaitCall { delay: 100 * MS, ..call() };
    let nodes = world.reach.all;
    world.tell(|waiting, view| waiting.denied(op(0), nodes, slow, view));
    assert_eq!((world.due(0), world.done()), (world.now + 100 * MS, vec!["timer"]));
    world.now = world.due(0);
    world.step(0, Input::Due);
    world.answer(0, HolderAnswer::Holder(Some(token(OTHER))));
    assert_eq!((world.due(0), world.done()), (world.now + 100 * MS, vec!["timer"]));
    world.now = world.due(0);
    world.step(0, Input::Due);
    world.answer(0, HolderAnswer::Gone);
    assert_eq!(world.done(), ["try at one"]);
}

#[test]
fn a_node_that_denied_late_is_told_where_it_is_the_first_in_the_keys_order() {
    let mut world = World::new();
    let first = world.reach.in_key_order(KEY).next().unwrap();
    let mut nodes = world.reach.all;
    nodes.remove(first);
    world.tell(|waiting, view| waiting.denied(op(0), nodes, call(), view));
    assert_ne!(world.asked(), first);
    world.waiting.denied_late(op(0), first);
    world.answer(0, introduced(Some(token(OTHER)), false));
    assert_eq!(world.asked(), first);
}

/// In step with a holder that takes the lock again and again it would come too late each time.
#[test]
fn far_from_the_nodes_a_call_that_was_denied_three_times_pauses_and_asks_all_at_once() {
    let mut world = World::new();
    world.round_trip = 40 * MS;
    for _ in 0..3 {
        world.deny(0);
        world.answer(0, HolderAnswer::Gone);
    }
    assert_eq!(world.due(0), world.now + 10 * MS);
    world.now = world.due(0);
    world.step(0, Input::Due);
    assert_eq!(world.done(), ["try"]);
}

#[test]
fn a_poll_of_a_listed_call_looks_again_some_times_before_it_tries() {
    let mut world = table::world("poll");
    for _ in 0..3 {
        world.answer(0, HolderAnswer::Gone);
        assert_eq!(world.due(0), world.now + MS, "soon");
        world.now = world.due(0);
        world.step(0, Input::Due);
        assert_eq!(world.done(), ["timer", "poll"]);
    }
    world.answer(0, HolderAnswer::Gone);
    assert_eq!(world.done(), ["try at one"]);
}

/// If a node already has the token that a call offered, the node tells that call's own client of
/// the call.
#[test]
fn the_word_of_a_call_that_comes_back_to_it_makes_nobody_wait() {
    for is_over in [false, true] {
        let mut world = World::new();
        world.listen(0, OTHER);
        let call = own(1);
        if is_over {
            world.tell(|waiting, view| waiting.ended(op(0), Some(slot(1)), view));
            world.release(1, &[OTHER]);
        } else {
            world.receiver = Some(op(0));
        }
        world.receive(MessageKind::Announce, 0, token(call), &[call, THIRD], None);
        if is_over {
            assert_eq!(
                world.published,
                [(ClientId::of(&OTHER), MessageKind::Announce, 1, vec![THIRD])]
            );
        } else {
            assert_eq!(world.done(), Vec::<&str>::new());
            world.tell(|waiting, view| waiting.ended(op(0), Some(slot(1)), view));
            assert_eq!(world.waiting.count_for(slot(1)), 1, "the one behind it");
        }
    }
}

/// Both have lost their attempts, and each told the other.
#[test]
fn two_that_wait_for_each_other_try_again() {
    let mut world = World::new();
    world.listen(0, OTHER);
    world.receive(MessageKind::Announce, 0, token(own(1)), &[THIRD], None);
    assert_eq!(world.done(), Vec::<&str>::new(), "no ring: that one is not waited for");
    world.receive(MessageKind::Announce, 0, token(own(1)), &[OTHER], None);
    assert_eq!(world.done(), ["try at one"]);
}

#[test]
fn a_list_goes_on_to_the_first_holder_that_is_told_and_later_ones_stay_with_the_call() {
    let mut world = World::new();
    world.deny(0);
    world.receive(MessageKind::Announce, 0, token(own(1)), &[THIRD], None);
    world.step(0, Input::Unanswered);
    let [(_, MessageKind::Announce, 0, told)] = &world.published[..] else { panic!() };
    assert_eq!(told, &[own(1), THIRD]);
    let late = *b"latecome\x01\0\0\0";
    world.receive(MessageKind::Announce, 0, token(own(1)), &[late], None);
    world.answer(0, introduced(Some(token(OTHER)), true));
    world.now = world.now + 200 * MS;
    world.step(0, Input::Due);
    world.answer(0, HolderAnswer::Holder(Some(token(THIRD))));
    let [(_, MessageKind::Announce, 0, told)] = &world.published[..] else { panic!() };
    assert_eq!(told, &[own(1)]);
    world.tell(|waiting, view| waiting.ended(op(0), Some(slot(1)), view));
    assert_eq!(world.waiting.count_for(slot(1)), 1);
}

#[test]
fn a_list_outlives_the_attempt_that_it_was_for_and_goes_with_the_lock() {
    let mut world = World::new();
    world.receive(MessageKind::Announce, 0, token(own(0)), &[OTHER], Some(5));
    assert!(world.waiting.has_queue(slot(5)));
    world.tell(|waiting, view| waiting.carry(op(0), slot(5), call(), view.now));
    assert!(!world.waiting.has_queue(slot(5)));
    world.deny(0);
    world.answer(0, HolderAnswer::Gone);
    world.tell(|waiting, view| waiting.ended(op(0), Some(slot(6)), view));
    assert!(world.waiting.has_queue(slot(6)) && !world.waiting.has_waiter(op(0)));
    world.tell(|waiting, view| waiting.released(slot(6), key(), None, view));
    assert_eq!(world.published, [(ClientId::of(&OTHER), MessageKind::Wake, 0, vec![own(0)])]);
}

#[test]
fn a_call_that_gives_up_tells_the_holder_and_wakes_the_first_behind_it() {
    let mut world = World::new();
    world.listen(0, OTHER);
    world.receive(MessageKind::Announce, 0, token(own(1)), &[THIRD], None);
    world.waiting.over(op(0));
    world.tell(|waiting, view| waiting.ended(op(0), None, view));
    let told = (ClientId::of(&OTHER), MessageKind::GiveUp, 0, vec![own(1)]);
    assert_eq!(world.published, [told, (ClientId::of(&THIRD), MessageKind::Wake, 0, vec![own(0)])]);
}

/// A call that several others tell of, or that stands behind itself.
#[test]
fn a_call_is_woken_once_however_often_a_message_lists_it() {
    let mut world = World::new();
    world.receive(MessageKind::Announce, 0, token(own(0)), &[OTHER, THIRD, OTHER, THIRD], None);
    let woken = (ClientId::of(&OTHER), MessageKind::Wake, 0, vec![own(0), THIRD]);
    assert_eq!(world.published, [woken]);
}

#[test]
fn a_call_that_gave_up_is_struck_off_wherever_it_is_listed() {
    let mut world = World::new();
    world.receive(MessageKind::Announce, 0, token(own(0)), &[OTHER, THIRD], Some(0));
    world.receive(MessageKind::GiveUp, 0, token(own(0)), &[OTHER], Some(0));
    world.tell(|waiting, view| waiting.released(slot(0), key(), None, view));
    assert_eq!(world.published, [(ClientId::of(&THIRD), MessageKind::Wake, 0, vec![own(0)])]);
    let mut world = World::new();
    world.deny(0);
    world.receive(MessageKind::Announce, 0, token(own(1)), &[OTHER, THIRD], None);
    world.receive(MessageKind::GiveUp, 0, token(own(1)), &[OTHER], None);
    world.step(0, Input::Unanswered);
    let [(_, MessageKind::Announce, 0, told)] = &world.published[..] else { panic!() };
    assert_eq!(told, &[own(1), THIRD]);
}

/// A call of the same client gave this one its turn.
fn woken(place: usize) -> Action {
    Action::Woken { op: op(place), node: None }
}

#[test]
fn calls_of_one_client_have_their_turns_by_number_and_without_a_message() {
    let mut world = World::new();
    world.listen(0, OTHER);
    world.listen(1, OTHER);
    world.release(0, &[own(2), own(1), THIRD]);
    assert_eq!(world.actions, [woken(1), Action::Try { op: op(1), gate: None }]);
    assert_eq!(world.state(0), WaitState::Still);
    world.tell(|waiting, view| waiting.ended(op(1), Some(slot(1)), view));
    world.tell(|waiting, view| waiting.released(slot(1), key(), None, view));
    assert_eq!(world.actions, [woken(0), Action::Try { op: op(0), gate: None }]);
}

#[test]
fn a_call_that_is_over_is_passed_over() {
    let mut world = World::new();
    world.listen(0, OTHER);
    world.listen(1, OTHER);
    world.waiting.over(op(0));
    world.receive(MessageKind::Wake, 0, token_of(own(1)), &[OTHER, own(2)], None);
    assert_eq!(world.actions, [woken(1), Action::Try { op: op(1), gate: None }]);
}

#[test]
fn a_message_is_passed_on_eight_times_and_then_wakes_its_sender() {
    for (hops, to, kind) in [
        (0, OTHER, MessageKind::Announce),
        (7, OTHER, MessageKind::Announce),
        (8, THIRD, MessageKind::Wake),
    ] {
        let mut world = World::new();
        world.release(0, &[OTHER]);
        world.receive(MessageKind::Announce, hops, token(own(0)), &[THIRD], None);
        let [(client, told, passed, _)] = &world.published[..] else { panic!() };
        assert_eq!((*client, *told), (ClientId::of(&to), kind), "{hops} hops");
        assert_eq!(*passed, if kind == MessageKind::Announce { hops + 1 } else { 0 });
    }
}

#[test]
fn a_wake_that_is_not_heard_goes_by_each_node_and_then_to_the_next() {
    let mut world = World::new();
    world.release(0, &[OTHER, THIRD]);
    let mut ways = Vec::new();
    while let [Action::Wake { wake, node, .. }] = world.actions[..] {
        ways.push((world.published[0].0, node));
        if ways.len() % 2 == 0 {
            world.tell(|waiting, view| waiting.wake_unwritten(wake, node, view));
        } else {
            world.tell(|waiting, view| waiting.wake_answered(wake, node, false, view));
        }
    }
    assert_eq!(ways.len(), 2 * NODES);
    for (nth, id) in [OTHER, THIRD].into_iter().enumerate() {
        let by = &ways[nth * NODES..][..NODES];
        assert!(by.iter().all(|(client, _)| *client == ClientId::of(&id)));
        assert_eq!(by[0].1, node(0), "first by the one that it was heard by");
    }
    assert_eq!(world.done(), Vec::<&str>::new());
}

#[test]
fn the_first_poll_of_a_call_that_queued_is_later_for_each_turn_before_it() {
    let ids: Vec<WaiterId> = (1..=9).map(|call| waiter_id(ClientId::of(&OTHER), call)).collect();
    for count in [1, 9] {
        let mut world = World::new();
        world.release(0, &ids[..count]);
        world.tell(|waiting, view| assert!(waiting.queue_behind(op(0), call(), view)));
        let before = u32::try_from(count).unwrap() - 1;
        let hops = u8::from(before > 0);
        assert_eq!(
            world.published,
            [(ClientId::of(&OTHER), MessageKind::Announce, hops, vec![own(1)])]
        );
        world.answer(0, HolderAnswer::Heard(true));
        assert_eq!(world.due(0), world.now + 10 * MS + before * 2 * MS);
    }
}

#[test]
fn a_call_queues_behind_none_that_was_woken_long_ago_or_for_another_key() {
    let mut world = World::new();
    world.release(0, &[OTHER]);
    world.tell(|waiting, view| {
        assert!(!waiting.queue_behind(
            op(0),
            WaitCall { key: Key::from_slice(b"b"), ..call() },
            view
        ))
    });
    world.now = world.now + 2 * NODE_TIMEOUT;
    world.tell(|waiting, view| assert!(!waiting.queue_behind(op(0), call(), view)));
    assert!(!world.waiting.has_recent_wakes() && !world.waiting.has_waiter(op(0)));
}

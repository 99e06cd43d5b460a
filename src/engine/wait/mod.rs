//! Waiting for a held lock: instead of polling, a waiter tells the holder, and the holder's release
//! wakes it.
//!
//! After a denied attempt the waiter asks one of the denying nodes who holds the key. If the holder
//! is a Redbolt client, the waiter sends it a message through that node. Then it is still until it
//! is woken or is handed the lock, the key's TTL ends, or a slow safety poll finds the key gone.
//! Messages of clients are only hints: only the votes of a quorum of nodes give a lock.
//!
//! # Contract
//!
//! - [`Waiting`] knows no node, attempt or clock. What it needs of them comes with each input. It
//!   asks for [`Action`]s, which the engine takes and does in order after each input.
//! - An action that could not be done is a new input, at once.
//!
//! # Invariants
//!
//! - A waiter has a timer in every state, so a lost message costs a safety poll and no more.
//! - A list of waiters is in one place: with the waiter that was woken with it, the slot that it
//!   won, or a wake under way.

mod handover;
mod list;
mod message;
mod outside;
mod state;
#[cfg(test)]
mod tests;
mod waiter;
mod wakes;

use crate::beside::Beside;
use crate::client_name::ClientId;
use crate::key::{Key, hash};
use crate::node::Phase;
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::{OpIndex, SlotIndex, WakeIndex};
use crate::time::Instant;
use crate::witness::{Sight, saw};

use std::time::Duration;

pub(super) use handover::Terms;
pub(super) use message::{
    Kind, Listed, Message, Offer, RawToken, append as append_message, token_of, waiter_id,
};
pub(super) use outside::{Action, Answer, Call, Input, Reach, Source, Text, View};

use handover::Handover;
use list::{Entry, List};
use message::{WaiterId, token_of_wake, waiter_of};
use outside::Actions;
use state::Scene;
use waiter::Waiter;
use wakes::{Wake, Wakes};

/// How often a message is passed on, so that a client that missed some turns finds the holder. A
/// hop is one command; an attempt in vain is more than 2N.
const HOPS_MAX: u8 = 8;

/// The calls that wait for the lock of a slot.
#[derive(Debug)]
struct Queue {
    /// The hash of the key.
    hash: u64,
    list: List,
    /// How many transfers in a row have brought the lock here.
    row: u8,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Waiting {
    client_id: ClientId,
    node_timeout: Duration,
    quorum: u32,
    waiters: Beside<OpIndex, Waiter>,
    queues: Beside<SlotIndex, Queue>,
    wakes: Wakes,
    /// By the slot that was released.
    handovers: Beside<SlotIndex, Handover>,
    actions: Actions,
    /// How many calls have waited so far.
    calls: u32,
    questions: u32,
}

impl Waiting {
    pub(super) fn new(client_id: ClientId, node_timeout: Duration, quorum: u32) -> Self {
        Self {
            client_id,
            node_timeout,
            quorum,
            waiters: Beside::default(),
            queues: Beside::default(),
            wakes: Wakes::default(),
            handovers: Beside::default(),
            actions: Actions::default(),
            calls: 0,
            questions: 0,
        }
    }

    // ---- outputs ----

    /// The next action.
    pub(super) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop()
    }

    /// The message of an action that was just taken.
    pub(super) fn text(&self, text: &Text) -> &[u8] {
        self.actions.bytes(text)
    }

    /// The id that this client's tokens begin with.
    #[cfg(test)]
    pub(super) const fn client_id(&self) -> [u8; 8] {
        self.client_id.bytes()
    }

    /// How many calls have waited so far.
    #[cfg(test)]
    pub(super) const fn calls(&self) -> u32 {
        self.calls
    }

    /// Whether the operation is a waiter.
    #[inline]
    pub(super) fn has_waiter(&self, op: OpIndex) -> bool {
        self.waiters.contains(op)
    }

    /// When the timer of a call is due.
    pub(super) fn due(&self, op: OpIndex) -> Option<Instant> {
        self.waiters.get(op).map(|waiter| waiter.due)
    }

    /// Whether the call waits for the node's answer to the question of this phase.
    pub(super) fn is_awaited(&self, op: OpIndex, node: NodeId, phase: Phase) -> bool {
        self.waiters.get(op).is_some_and(|waiter| waiter.is_awaited(node, phase))
    }

    /// Whether any call was woken lately.
    #[inline]
    pub(super) fn has_recent_wakes(&self) -> bool {
        self.wakes.has_recent()
    }

    /// The key of a wake whose answer is awaited.
    pub(super) fn key_of(&self, wake: WakeIndex) -> Option<&[u8]> {
        self.wakes.at(wake).map(|wake| wake.key.as_slice())
    }

    /// Whether a slot has a list of waiters for its lock.
    #[inline]
    pub(super) fn has_queue(&self, slot: SlotIndex) -> bool {
        self.queues.contains(slot)
    }

    /// How many calls of other clients are known to wait for a slot's lock.
    pub(super) fn count_for(&self, slot: SlotIndex) -> usize {
        self.queues.get(slot).map_or(0, |queue| queue.list.len())
    }

    /// The slots that have a list.
    #[cfg(feature = "shared")]
    pub(super) fn queues(&self) -> impl Iterator<Item = SlotIndex> {
        self.queues.iter().map(|(slot, _)| slot)
    }

    /// The slots with a list that may be for `key`.
    pub(super) fn queues_for(&self, key: &[u8]) -> impl Iterator<Item = SlotIndex> {
        let wanted = hash(key);
        let queues = self.queues.iter().filter(move |(_, queue)| queue.hash == wanted);
        queues.map(|(slot, _)| slot)
    }

    // ---- inputs: the course of a call ----

    /// These nodes denied the call's attempt, which is released: the call waits.
    pub(super) fn denied(&mut self, op: OpIndex, nodes: NodeMask, call: Call, view: &mut View<'_>) {
        self.open(op, nodes, call);
        self.step(op, Input::Denied(nodes), view);
    }

    /// Another input for a call, if it waits. An answer must be [awaited](Self::is_awaited).
    pub(super) fn step(&mut self, op: OpIndex, input: Input, view: &mut View<'_>) {
        let Self { actions, questions, node_timeout, waiters, .. } = self;
        let mut scene = Scene { view, actions, questions, node_timeout: *node_timeout };
        if let Some(waiter) = waiters.get_mut(op) {
            waiter.step(input, &mut scene);
        }
    }

    /// A node denied the attempt that had already failed.
    pub(super) fn denied_late(&mut self, op: OpIndex, node: NodeId) {
        if let Some(waiter) = self.waiters.get_mut(op) {
            waiter.denied.insert(node);
        }
    }

    /// If this client woke another for the key a moment ago, a new call goes to the end of that
    /// queue instead of racing. Returns whether it does.
    pub(super) fn queue_behind(&mut self, op: OpIndex, call: Call, view: &mut View<'_>) -> bool {
        self.wakes.forget_past(view.now);
        let hash = hash(call.key.as_slice());
        let Some(last) = self.wakes.successor(hash, view.now) else { return false };
        if !last.is_turn || !view.reach.channel.contains(last.node) {
            return false;
        }
        // The call has made no attempt: any node may have the key.
        self.open(op, view.reach.all, call);
        self.step(op, Input::Behind(last), view);
        true
    }

    /// An attempt failed that other clients have taken for a lock: they now wait behind its call.
    pub(super) fn carry(&mut self, op: OpIndex, slot: SlotIndex, call: Call) {
        let Some(queue) = self.queues.remove(slot) else { return };
        self.open(op, NodeMask::EMPTY, call);
        if let Some(waiter) = self.waiters.get_mut(op) {
            waiter.carried.append_all(queue.list);
        }
    }

    /// The call has ended without its lock; that is not reported yet.
    pub(super) fn over(&mut self, op: OpIndex) {
        if let Some(waiter) = self.waiters.get_mut(op) {
            waiter.over();
        }
    }

    /// The call won its lock in this slot, or ended without one. Its waiters are passed on, and a
    /// holder that was told of the call hears that it has given up.
    pub(super) fn ended(&mut self, op: OpIndex, won: Option<SlotIndex>, view: &mut View<'_>) {
        let Some(waiter) = self.waiters.remove(op) else { return };
        let told = waiter.told();
        let row = waiter.row;
        let (key, id, list) = (waiter.call.key, waiter.id, waiter.carried.into_list());
        if let Some(slot) = won {
            self.wakes.forget(hash(key.as_slice()));
            return self.begin_queue(slot, key.as_slice(), list, row);
        }
        if let Some((token, node)) = rules::holder_to_tell(told) {
            saw(Sight::GaveUp);
            let sender = Listed::named(id);
            let nobody = std::iter::empty();
            self.tell(node, (Kind::GiveUp, 0), sender, &token, nobody, key.as_slice());
        }
        self.wake_first(true, key, list, view);
    }

    // ---- inputs: the lists of locks ----

    /// The lock of a slot is released. Unless it was handed over to the first of its waiters, that
    /// one is woken, behind the release.
    pub(super) fn released(&mut self, slot: SlotIndex, key: Key, view: &mut View<'_>) {
        let Some(mut queue) = self.queues.remove(slot) else { return };
        if let Some(scripts) = view.scripts
            && let Some(to) = queue.list.take_first()
        {
            let (rest, fence) = (rules::carried_on(queue.list), view.fence);
            let wake = Wake { key, to, rest, fence, tried: NodeMask::EMPTY, is_turn: true };
            return self.handed_over(slot, wake, scripts, view);
        }
        self.wake_first(true, key, queue.list, view);
    }

    /// The lock now belongs to another client, which does not learn of the waiters: their own polls
    /// find out.
    pub(super) fn forget_queue(&mut self, slot: SlotIndex) {
        self.queues.remove(slot);
    }

    // ---- inputs: what nodes answer and tell ----

    /// The node tracks the key's next change.
    pub(super) fn tracked(&mut self, op: OpIndex, node: NodeId) {
        if let Some(waiter) = self.waiters.get_mut(op) {
            waiter.tracked.insert(node);
        }
    }

    /// The node was greeted again: waiters that relied on its pushes look again as their plans say.
    pub(super) fn untracked(&mut self, node: NodeId, view: &mut View<'_>) {
        let waiters = self.waiters.iter().filter(|(_, waiter)| waiter.tracked.contains(node));
        for op in waiters.map(|(op, _)| op).collect::<Vec<_>>() {
            self.step(op, Input::Untracked(node), view);
        }
    }

    /// A node says that a key has changed; without a key, that all may have.
    pub(super) fn key_changed(&mut self, node: NodeId, key: Option<&[u8]>, view: &mut View<'_>) {
        let is_about = |waiter: &Waiter| key.is_none_or(|key| waiter.call.key.as_slice() == key);
        let waiters = self.waiters.iter().filter(|(_, waiter)| is_about(waiter));
        for op in waiters.map(|(op, _)| op).collect::<Vec<_>>() {
            self.step(op, Input::Changed(node), view);
        }
    }

    /// A wake was written: late announcements are passed on to the call that it wakes.
    pub(super) fn wake_written(&mut self, index: WakeIndex, node: NodeId, now: Instant) {
        let until = now + self.node_timeout * 2;
        self.wakes.note_sent(index, node, until);
    }

    /// There was no room for a wake.
    pub(super) fn wake_unwritten(&mut self, index: WakeIndex, node: NodeId, view: &mut View<'_>) {
        if let Some(mut wake) = self.wakes.take(index) {
            wake.tried.insert(node);
            self.wake(wake, view);
        }
    }

    /// A node said whether any client received a wake.
    pub(super) fn wake_answered(
        &mut self,
        index: WakeIndex,
        node: NodeId,
        is_heard: bool,
        view: &mut View<'_>,
    ) {
        let Some(mut wake) = self.wakes.take(index) else { return };
        if !is_heard {
            self.wakes.forget(hash(wake.key.as_slice()));
            wake.tried.insert(node);
            self.wake(wake, view);
        }
    }

    /// Another client sent a message through the node. `slot` has the lock that it is about, if
    /// this client holds it or is about to.
    pub(super) fn message(
        &mut self,
        node: NodeId,
        message: &Message<'_>,
        slot: Option<SlotIndex>,
        view: &mut View<'_>,
    ) {
        match (message.kind, slot) {
            (Kind::Announce, Some(slot)) => {
                let all = entries(message, node, true, view);
                self.begin_queue(slot, message.key, all, 0);
            }
            (Kind::Announce, None) => self.announced(node, message, view),
            (Kind::Wake, _) => self.woken(node, message, view),
            (Kind::GiveUp, Some(slot)) => {
                if let Some(queue) = self.queues.get_mut(slot) {
                    queue.list.strike(message.sender.id);
                }
            }
            // The engine takes these.
            (Kind::Transfer | Kind::Question | Kind::Answer, _) => {}
            (Kind::GiveUp, None) => {
                for op in self.waiting_for(message.key).map(|(op, _)| op).collect::<Vec<_>>() {
                    if let Some(waiter) = self.waiters.get_mut(op) {
                        waiter.carried.strike(message.sender.id);
                    }
                }
            }
        }
    }

    /// A node has handed a lock over to a call, at least in part: those who wait for the lock now
    /// wait behind that call. `row`: a quorum has, after so many transfers in a row.
    pub(super) fn transferred(
        &mut self,
        (op, node): (OpIndex, NodeId),
        message: &Message<'_>,
        row: Option<u8>,
        view: &mut View<'_>,
    ) {
        let list = entries(message, node, false, view);
        // Its turn has come, so the clients it woke earlier are done.
        self.wakes.forget(hash(message.key));
        self.step(op, Input::Transferred { list, row }, view);
    }

    /// The same as [`transferred`](Self::transferred), for a lease that has been reported.
    pub(super) fn list_follows(
        &mut self,
        slot: SlotIndex,
        node: NodeId,
        message: &Message<'_>,
        view: &View<'_>,
    ) {
        let list = entries(message, node, false, view);
        self.begin_queue(slot, message.key, list, message.hops);
    }

    /// A lock was handed over that nobody here takes: the next in its list is woken.
    pub(super) fn declined(&mut self, node: NodeId, message: &Message<'_>, view: &mut View<'_>) {
        let list = entries(message, node, false, view);
        self.wake_first(true, Key::from_slice(message.key), list, view);
    }

    // ---- inside ----

    /// Makes the call a waiter.
    fn open(&mut self, op: OpIndex, denied: NodeMask, call: Call) {
        let Self { waiters, calls, client_id, .. } = self;
        waiters.enter(op, || {
            *calls = calls.wrapping_add(1);
            Waiter::new(op, call, waiter_id(*client_id, *calls), denied)
        });
    }

    /// Gives a slot a list, or adds to the one that it has.
    fn begin_queue(&mut self, slot: SlotIndex, key: &[u8], list: List, row: u8) {
        let hash = hash(key);
        let new = || Queue { hash, list: List::default(), row };
        if let Some(queue) = self.queues.enter(slot, new) {
            queue.row = queue.row.max(row);
            queue.list.append_all(list);
        }
    }

    /// The calls that wait for `key`, or have just won it, and their ids.
    fn waiting_for(&self, key: &[u8]) -> impl Iterator<Item = (OpIndex, WaiterId)> {
        let is_meant = move |waiter: &Waiter| {
            !waiter.is_over() && rules::is_for_key(waiter.call.key.as_slice(), key)
        };
        let waiters = self.waiters.iter().filter(move |(_, waiter)| is_meant(waiter));
        waiters.map(|(op, waiter)| (op, waiter.id))
    }

    /// The call with this id that waits for `key`.
    fn call_of(&self, id: WaiterId, key: &[u8]) -> Option<OpIndex> {
        self.waiting_for(key).find_map(|(op, other)| (other == id).then_some(op))
    }

    /// The call behind which the sender of a message waits: the one that the message is for, or any
    /// other for the key, but not the sender.
    fn carrier(&self, message: &Message<'_>) -> Option<OpIndex> {
        let others = || {
            let is_other = |&(_, id): &(OpIndex, WaiterId)| id != message.sender.id;
            self.waiting_for(message.key).filter(is_other)
        };
        let meant = others().find(|&(_, id)| id == waiter_of(&message.token));
        meant.or_else(|| others().next()).map(|(op, _)| op)
    }

    /// Whether the waiter is a call of this client.
    fn is_own(&self, id: &WaiterId) -> bool {
        ClientId::of(id) == self.client_id
    }

    /// Another call waits for a key that this client held, or wants too.
    fn announced(&mut self, node: NodeId, message: &Message<'_>, view: &mut View<'_>) {
        let mut all = entries(message, node, true, view);
        // The lock was released, either for the sender, which tried before the release was on all
        // nodes, or for another call, which has the lock now or soon.
        let successor = self.wakes.successor(hash(message.key), view.now);
        let is_passed_on = message.hops >= HOPS_MAX;
        match successor.filter(|last| !is_passed_on && !self.is_own(&last.id)) {
            Some(successor) if successor.id != message.sender.id => {
                let (token, hops) = (token_of(successor.id), message.hops.saturating_add(1));
                let Some(sender) = all.take_first().map(|entry| entry.listed(view.now)) else {
                    return;
                };
                let (kind, list) = ((message.kind, hops), all.listed(view.now));
                return self.tell(node, kind, sender, &token, list, message.key);
            }
            Some(_) => {}
            None => {
                if let Some(op) = self.carrier(message) {
                    if let Some(waiter) = self.waiters.get_mut(op) {
                        waiter.carried.append_all(all);
                    }
                    self.step(op, Input::Follower(ClientId::of(&message.sender.id)), view);
                    return;
                }
            }
        }
        // Nobody else was given the turn by the release that came before the announcement.
        let is_turn = view.is_released && successor.is_none();
        self.wake_first(is_turn, Key::from_slice(message.key), all, view);
    }

    /// The lock was released for a call of this client.
    fn woken(&mut self, node: NodeId, message: &Message<'_>, view: &mut View<'_>) {
        let list = entries(message, node, false, view);
        let named = self.call_of(waiter_of(&message.token), message.key);
        let Some(op) = rules::call_to_try(named) else {
            return self.wake_first(true, Key::from_slice(message.key), list, view);
        };
        self.actions.push(Action::Woken { op, node: Some(node) });
        // Its turn has come, so the clients it woke earlier are done.
        self.wakes.forget(hash(message.key));
        self.step(op, Input::Turn(list), view);
    }

    /// Wakes the first of the list that still waits. `is_turn`: this client may give the turn.
    fn wake_first(&mut self, is_turn: bool, key: Key, mut list: List, view: &mut View<'_>) {
        list.drop_past(view.now);
        let Some(to) = rules::first_to_wake(list.take_first()) else { return };
        let rest = rules::carried_on(list);
        if !rest.is_empty() {
            saw(Sight::HandedOn);
        }
        let fence = view.fence;
        self.wake(Wake { key, to, rest, fence, tried: NodeMask::EMPTY, is_turn }, view);
    }

    /// Sends a wake through the node that its waiter used, or the next that was not tried. A call
    /// of this client gets its turn at once: its SETs go behind the release.
    fn wake(&mut self, mut wake: Wake, view: &mut View<'_>) {
        loop {
            let key = wake.key.as_slice();
            if self.is_own(&wake.to.id) {
                if let Some(op) = rules::sibling_to_wake(self.call_of(wake.to.id, key)) {
                    return self.pass_within(op, wake, view);
                }
                // The call has given up.
            } else {
                let left = view.reach.all.without(wake.tried);
                let near = Some(wake.to.node)
                    .filter(|&node| left.intersection(view.reach.channel).contains(node));
                if let Some(node) = near.or_else(|| view.reach.first_with_channel(left, key)) {
                    return self.send_wake(node, wake, view.now);
                }
                // No node reaches this call.
            }
            if !wake.turn_to_next() {
                return;
            }
        }
    }

    /// Gives the turn to the first call of a wake, a call of this client.
    fn pass_within(&mut self, op: OpIndex, wake: Wake, view: &mut View<'_>) {
        saw(Sight::PassedWithin);
        let successor = wake.successor(wake.to.node, view.now + self.node_timeout * 2);
        self.wakes.note(hash(wake.key.as_slice()), successor);
        self.actions.push(Action::Woken { op, node: None });
        self.step(op, Input::Turn(wake.rest), view);
    }

    fn send_wake(&mut self, node: NodeId, wake: Wake, now: Instant) {
        // The sender's call does not matter in a wake.
        let sender = Listed::named(waiter_id(self.client_id, 0));
        let (token, rest) = (token_of_wake(wake.to.id, wake.fence), wake.rest.listed(now));
        let key = wake.key.as_slice();
        let text = self.actions.write((Kind::Wake, 0), sender, &token, rest, key);
        if let Some(wake) = self.wakes.keep(wake) {
            self.actions.push(Action::Wake { wake, node, text });
        }
    }

    /// Sends a message without watching for its answer.
    fn tell(
        &mut self,
        node: NodeId,
        kind: (Kind, u8),
        sender: Listed,
        token: &RawToken,
        list: impl ExactSizeIterator<Item = Listed>,
        key: &[u8],
    ) {
        let text = self.actions.write(kind, sender, token, list, key);
        self.actions.push(Action::Tell { node, text });
    }
}

/// The calls that a message lists, with or without its sender in front.
fn entries(message: &Message<'_>, node: NodeId, with_sender: bool, view: &View<'_>) -> List {
    let sender = with_sender.then_some(message.sender);
    let listed = sender.into_iter().chain(message.list());
    listed.map(|listed| Entry::of(listed, node, view.read_since, view.now)).collect()
}

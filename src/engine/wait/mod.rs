//! Waiting for a held lock: instead of polling, a waiter tells the holder, and the holder's release
//! wakes it.
//!
//! After a denied attempt the waiter asks one of the denying nodes for the holder of the key. If
//! the holder is a Redbolt client, the node tells it. Then the waiter is still until it is woken or
//! is handed the lock. It also tries again when the key's TTL ends, or when a slow safety poll
//! finds the key gone. Behind any other holder, or without scripts, it polls.
//! Messages of clients are only hints: only the votes of a quorum of nodes give a lock.
//!
//! # Contract
//!
//! - [`Waiting`] knows no node, attempt or clock. Each input brings the facts about them that it
//!   needs. It asks for [`Action`]s, which the engine takes and does in order after each input.
//! - An action that could not be done is a new input, at once.
//!
//! # Invariants
//!
//! - A waiter has a timer in every state, so a lost message costs a safety poll and no more.
//! - Each list of waiters has one owner: a waiter, a slot, or a wake or hand-over under way. The
//!   message of a hand-over carries a copy to the heir.

mod message;
mod outside;
mod steps;
#[cfg(test)]
mod tests;
mod turns;
mod waiter;

use crate::beside::Beside;
use crate::client_name::ClientId;
use crate::key::{Key, hash};
use crate::node::Phase;
use crate::quorum::{Electorate, NodeId, NodeMask};
use crate::rules;
use crate::slab::{OpIndex, SlotIndex, WakeIndex};
use crate::time::Instant;
use crate::witness::{Sight, saw};

use std::time::Duration;

pub(super) use message::{
    Listed, MARK_AT, Message, MessageKind, Offer, RawToken, append as append_message, around_token,
    token_of, waiter_id,
};
pub(super) use outside::{Action, HolderAnswer, Input, Meant, Reach, Text, View, WaitCall};
pub(super) use turns::{Heir, Terms, Waiting};
pub(super) use waiter::safety_poll;

use message::{Entry, Receipt, WaiterId, Waitlist, waiter_of};
use outside::Actions;
use turns::{WaitQueue, Wake, Wakes};
use waiter::{WaitState, Waiter};

/// How often clients may forward one message. Forwarding leads a client that missed some turns to
/// the holder. A hop costs one command, but a failed attempt costs at least one command per node.
const HOPS_MAX: u8 = 8;

impl Waiting {
    pub(super) fn new(client_id: ClientId, node_timeout: Duration, electorate: Electorate) -> Self {
        Self {
            client_id,
            node_timeout,
            electorate,
            waiters: Beside::default(),
            queues: Beside::default(),
            wakes: Wakes::default(),
            handovers: Beside::default(),
            actions: Actions::default(),
            calls: 0,
            questions: 0,
        }
    }

    // ---- invariants ----

    /// Panics where an invariant is broken.
    pub(super) fn check(&self) {
        assert!(self.actions.is_empty(), "an action is not done");
        for (slot, queue) in self.queues.iter() {
            assert!(!self.handovers.contains(slot), "{queue:?} of a lock that was handed over");
        }
        let ids: Vec<_> = self.waiters.iter().map(|(_, waiter)| waiter.id).collect();
        let is_twice =
            |(nth, id): (usize, &WaiterId)| ids.iter().skip(nth + 1).any(|other| other == id);
        assert!(!ids.iter().enumerate().any(is_twice), "two calls have one id");
    }

    /// The calls that wait and have not ended, and whether each has an attempt under way.
    pub(super) fn calls_under_way(&self) -> impl Iterator<Item = (OpIndex, bool)> {
        self.waiters
            .iter()
            .filter_map(|(op, waiter)| Some((op, waiter.state? == WaitState::Trying)))
    }

    // ---- outputs ----

    /// The id that this client's tokens begin with.
    #[cfg(test)]
    pub(super) const fn client_id(&self) -> [u8; 8] {
        self.client_id.bytes()
    }

    /// How many waiters, lists and hand-overs there are. Wakes are not counted, because each ends
    /// with its answer.
    #[cfg(feature = "sim")]
    pub(super) fn in_use(&self) -> [(&'static str, usize); 3] {
        let (waiters, queues) = (self.waiters.iter().count(), self.queues.iter().count());
        [("waiters", waiters), ("queues", queues), ("handovers", self.handovers.iter().count())]
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

    /// Whether the client still remembers a call that it woke.
    #[inline]
    pub(super) fn has_recent_wakes(&self) -> bool {
        self.wakes.has_recent()
    }

    /// Whether this client released `key` a moment ago for a call that it woke, rather than handing the
    /// lock over.
    pub(super) fn has_woken(&self, key: &[u8], now: Instant) -> bool {
        self.wakes.successor(hash(key), now).is_some_and(|last| !last.is_handed)
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

    /// How many other calls are known to wait for a slot's lock.
    pub(super) fn count_for(&self, slot: SlotIndex) -> usize {
        self.queues.get(slot).map_or(0, |queue| queue.list.len())
    }

    /// The slots for whose locks other calls wait.
    pub(super) fn queues(&self) -> impl Iterator<Item = SlotIndex> {
        let wanted = self.queues.iter().filter(|(_, queue)| !queue.list.is_empty());
        wanted.map(|(slot, _)| slot)
    }

    /// The slots with a list that may be for `key`.
    pub(super) fn queues_for(&self, key: &[u8]) -> impl Iterator<Item = SlotIndex> {
        let wanted = hash(key);
        let queues = self.queues.iter().filter(move |(_, queue)| queue.hash == wanted);
        queues.map(|(slot, _)| slot)
    }

    /// From now on a hand-over needs a quorum of these lists of nodes.
    pub(super) fn change_lists(&mut self, electorate: Electorate) {
        self.electorate = electorate;
    }

    // ---- inputs: the course of a call ----

    /// These nodes denied the call's attempt, which is released: the call waits.
    pub(super) fn denied(
        &mut self,
        op: OpIndex,
        nodes: NodeMask,
        call: WaitCall,
        view: &mut View<'_>,
    ) {
        self.open(op, nodes, call, view.now);
        self.step(op, Input::Denied(nodes), view);
    }

    /// The call's first attempt is under way. Meanwhile the call introduces itself to the holder.
    pub(super) fn introduce(&mut self, op: OpIndex, call: WaitCall, view: &mut View<'_>) {
        self.open(op, NodeMask::EMPTY, call, view.now);
        self.step(op, Input::Begun, view);
    }

    /// A node denies an attempt after that attempt has failed.
    pub(super) fn denied_late(&mut self, op: OpIndex, node: NodeId) {
        if let Some(waiter) = self.waiters.get_mut(op) {
            waiter.denied.insert(node);
        }
    }

    /// A new call joins the end of the queue, instead of racing, if this client woke another call
    /// for the key a moment ago. Returns whether it joins.
    pub(super) fn queue_behind(
        &mut self,
        op: OpIndex,
        call: WaitCall,
        view: &mut View<'_>,
    ) -> bool {
        self.wakes.forget_past(view.now);
        let hash = hash(call.key.as_slice());
        let Some(last) = self.wakes.successor(hash, view.now).cloned() else { return false };
        if !last.is_turn || !view.reach.channel.contains(last.node) {
            return false;
        }
        // The call has made no attempt: any node may have the key.
        self.open(op, view.reach.all, call, view.now);
        self.step(op, Input::Behind(last), view);
        true
    }

    /// A call's attempt has failed. Clients that mistook the attempt's token for the holder's now
    /// wait behind the call.
    pub(super) fn carry(&mut self, op: OpIndex, slot: SlotIndex, call: WaitCall, now: Instant) {
        let Some(queue) = self.queues.remove(slot) else { return };
        self.open(op, NodeMask::EMPTY, call, now);
        if let Some(waiter) = self.waiters.get_mut(op) {
            waiter.carried.add_all(queue.list);
        }
    }

    /// The call has ended without its lock; that is not reported yet.
    pub(super) fn over(&mut self, op: OpIndex) {
        if let Some(waiter) = self.waiters.get_mut(op) {
            waiter.over();
        }
    }

    /// The call has ended. If it won its lock in this slot, it keeps its waiters. Otherwise the
    /// client wakes the first of them, and tells the holder that the call has given up.
    pub(super) fn ended(&mut self, op: OpIndex, won: Option<SlotIndex>, view: &mut View<'_>) {
        let Some(waiter) = self.waiters.remove(op) else { return };
        let told = waiter.holder_told();
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
            self.tell(node, (MessageKind::GiveUp, 0), sender, &token, nobody, key.as_slice());
        }
        self.wake_first(true, key, list, 0, view);
    }

    /// A call won the lock without waiting for it.
    pub(super) fn won_at_once(&mut self, key: &[u8]) {
        self.wakes.forget(hash(key));
    }

    // ---- inputs: the lists of locks ----

    /// The lock of a slot is released. The client wakes the first of its waiters behind the
    /// release, unless it handed the lock over to that waiter. `fence` is that of the lease, zero for
    /// none.
    pub(super) fn released(
        &mut self,
        slot: SlotIndex,
        (key, fence): (Key, u64),
        heir: Option<Heir>,
        view: &mut View<'_>,
    ) {
        let Some(mut queue) = self.queues.remove(slot) else { return };
        if let Some(heir) = heir
            && let Some(to) = queue.list.take_first()
        {
            let rest = rules::carried_on(queue.list);
            let wake = Wake { key, to, rest, fence, tried: NodeMask::EMPTY, is_turn: true };
            return self.handed_over(slot, wake, heir, view);
        }
        self.wake_first(true, key, queue.list, fence, view);
    }

    /// The lock now belongs to another client, which does not learn of the waiters: their own polls
    /// find out.
    pub(super) fn forget_queue(&mut self, slot: SlotIndex) {
        self.queues.remove(slot);
    }

    // ---- inputs: answers and messages of nodes ----

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

    /// Another client sent a message through the node. `meant` is the lock that the message is
    /// about, as this client knows it.
    pub(super) fn message(
        &mut self,
        node: NodeId,
        message: &Message<'_>,
        meant: Meant,
        view: &mut View<'_>,
    ) {
        match (message.kind, meant.slot) {
            (MessageKind::Announce, Some(slot)) => {
                let all = entries(message, node, true, view);
                self.begin_queue(slot, message.key, all, 0);
            }
            (MessageKind::Announce, None) => self.announced(node, message, meant, view),
            (MessageKind::Wake, _) => {
                if rules::is_heeded(true) {
                    self.woken(node, message, view);
                }
            }
            (MessageKind::GiveUp, Some(slot)) => {
                if let Some(queue) = self.queues.get_mut(slot) {
                    queue.list.strike(message.sender.id);
                }
            }
            // The engine takes these.
            (MessageKind::Transfer | MessageKind::Removal, _) => {}
            (MessageKind::GiveUp, None) => {
                for op in self.waiting_for(message.key).map(|(op, _)| op).collect::<Vec<_>>() {
                    if let Some(waiter) = self.waiters.get_mut(op) {
                        waiter.carried.strike(message.sender.id);
                    }
                }
            }
        }
    }

    /// A node has given its vote for a hand-over to a call. The waiters of the lock now wait behind
    /// that call. Once a quorum has, `row` is the number of transfers in a row.
    pub(super) fn transferred(
        &mut self,
        (op, node): (OpIndex, NodeId),
        message: &Message<'_>,
        row: Option<u8>,
        view: &mut View<'_>,
    ) {
        let list = entries(message, node, false, view);
        // The turn has come back to this client, so the clients that it woke earlier are done.
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
        let list = rules::late_list(entries(message, node, false, view));
        self.begin_queue(slot, message.key, list, message.hops);
    }

    /// A lock was handed over, but no call of this client takes it: the client wakes the next
    /// waiter in its list.
    pub(super) fn unwanted(&mut self, node: NodeId, message: &Message<'_>, view: &mut View<'_>) {
        let list = rules::list_of_unwanted(entries(message, node, false, view));
        self.wakes.forget(hash(message.key));
        self.give_turn(node, message.key, list, view);
    }

    // ---- inside ----

    /// Makes the call a waiter.
    fn open(&mut self, op: OpIndex, denied: NodeMask, call: WaitCall, now: Instant) {
        let Self { waiters, calls, client_id, .. } = self;
        waiters.enter(op, || {
            *calls = calls.wrapping_add(1);
            Waiter::new(op, call, waiter_id(*client_id, *calls), denied, now)
        });
    }

    /// Gives a slot a list, or adds to the list that it has.
    fn begin_queue(&mut self, slot: SlotIndex, key: &[u8], list: Waitlist, row: u8) {
        let hash = hash(key);
        let new = || WaitQueue { hash, list: Waitlist::default(), row };
        if let Some(queue) = self.queues.enter(slot, new) {
            queue.row = queue.row.max(row);
            queue.list.add_all(list);
        }
    }

    /// Any call for the key of a message, except the sender's.
    fn carrier(&self, message: &Message<'_>) -> Option<OpIndex> {
        let others = self.waiting_for(message.key).filter(|&(_, id)| id != message.sender.id);
        others.map(|(op, _)| op).next()
    }

    /// The call that a message is for, unless it is the sender's.
    fn call_meant(&self, message: &Message<'_>) -> Option<OpIndex> {
        let id = waiter_of(&message.token);
        self.call_of(id, message.key).filter(|_| id != message.sender.id)
    }

    /// Another call waits for a key that this client held, or wants too.
    fn announced(
        &mut self,
        node: NodeId,
        message: &Message<'_>,
        meant: Meant,
        view: &mut View<'_>,
    ) {
        let mut all = entries(message, node, true, view);
        // This client knows which of its own calls are over. If a node took a call's own token for
        // the holder's, the call's message returns to this client, perhaps after the call's end.
        let is_waiting = |id| !self.is_own(&id) || self.call_of(id, message.key).is_some();
        all.retain(|entry| is_waiting(entry.id));
        if all.is_empty() {
            return;
        }
        // The lock is on its way to a call of this client. That call keeps the waiters behind it.
        if let Some(op) = meant.receiver {
            let is_its_own = self.call_of(message.sender.id, message.key) == Some(op);
            all.retain(|entry| !(is_its_own && entry.id == message.sender.id));
            return self.follow(op, message, all, view);
        }
        // The message names a waiting call: deliver it there, even if this client just released the
        // key.
        if let Some(op) = self.call_meant(message) {
            return self.follow(op, message, all, view);
        }
        let has_hopped_enough = message.hops >= HOPS_MAX;
        let successor = self.wakes.successor(hash(message.key), view.now);
        let successor = successor.filter(|to| !has_hopped_enough && !self.is_own(&to.id));
        let is_handed = successor.is_some_and(|to| to.is_handed);
        // This client released the key and wants it again: if its attempt wins, these calls wait
        // for its lease.
        if successor.is_none()
            && let Some(slot) = meant.attempt
        {
            return self.begin_queue(slot, message.key, all, 0);
        }
        match successor {
            // The lock went to another call, which has it now or soon.
            Some(to) if is_handed || to.id != message.sender.id => {
                let last = token_of(to.last());
                if is_handed {
                    all.retain(|entry| !to.has(entry.id));
                }
                let Some(first) = all.take_first() else { return };
                let header = (message.kind, message.hops.saturating_add(1));
                let list = all.listed(view.now);
                return self.tell(node, header, first.listed(view.now), &last, list, message.key);
            }
            // The key was released for the sender, which tried before all nodes had the release.
            Some(_) => {}
            // The message is for a call that had its turn or gave up: no call has the turn now.
            None if self.was_call(&message.token) => {
                return self.give_turn(node, message.key, all, view);
            }
            None => {
                if let Some(op) = self.carrier(message) {
                    return self.follow(op, message, all, view);
                }
            }
        }
        // The release came before the announcement, and no other call is known to have the turn.
        let is_turn = meant.is_released && successor.is_none();
        self.wake_first(is_turn, Key::from_slice(message.key), all, 0, view);
    }

    /// Whether the token names a call of this client. The caller has not found that call, so the
    /// call is over.
    fn was_call(&self, token: &RawToken) -> bool {
        let id = waiter_of(token);
        self.is_own(&id) && *token == token_of(id)
    }

    /// The waiters that a message lists wait behind this call.
    fn follow(&mut self, op: OpIndex, message: &Message<'_>, all: Waitlist, view: &mut View<'_>) {
        if let Some(waiter) = self.waiters.get_mut(op) {
            waiter.carried.add_all(all);
        }
        // A forwarded waiter may also wait for earlier calls, so no ring can be inferred.
        if message.hops == 0 {
            self.step(op, Input::Follower(ClientId::of(&message.sender.id)), view);
        }
    }

    /// The lock was released for a call of this client.
    fn woken(&mut self, node: NodeId, message: &Message<'_>, view: &mut View<'_>) {
        let list = entries(message, node, false, view);
        // The turn has come back to this client, so the clients it woke earlier are done.
        self.wakes.forget(hash(message.key));
        let Some(op) = self.call_of(waiter_of(&message.token), message.key) else {
            return self.give_turn(node, message.key, list, view);
        };
        self.actions.push(Action::Woken { op, node: Some(node) });
        self.step(op, Input::Turn(list), view);
    }

    /// Sends a message without watching for its answer.
    fn tell(
        &mut self,
        node: NodeId,
        kind: (MessageKind, u8),
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
fn entries(message: &Message<'_>, node: NodeId, with_sender: bool, view: &View<'_>) -> Waitlist {
    let sender = with_sender.then_some(message.sender);
    let listed = sender.into_iter().chain(message.list());
    let on_its_way = u64::try_from(view.round_trip.as_nanos() / 2).unwrap_or(0);
    let receipt = Receipt { node, now: view.now, last_pass: view.last_pass, on_its_way };
    listed.map(|listed| Entry::of(listed, &receipt)).collect()
}

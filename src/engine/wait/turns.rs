//! The parts of the waiting machine, and the turn: which call gets a lock next, by a wake or by a
//! hand-over.
//!
//! # Invariants
//!
//! - If fewer than a quorum of nodes can still tell the waiter, the client wakes it instead. The
//!   waiter then releases the votes that came, and writes a new attempt behind those releases.
//! - Each node's message carries the list: a waiter with a quorum of messages has it too.

use std::collections::VecDeque;
use std::time::Duration;

use super::message::{
    self, Entry, Listed, MessageKind, Offer, RawToken, WaiterId, Waitlist, token_of_wake, waiter_id,
};
use super::outside::{Action, Actions, Input, Successor, View};
use super::waiter::{Scene, Waiter};
use crate::beside::Beside;
use crate::client_name::ClientId;
use crate::key::{Key, hash};
use crate::quorum::{Electorate, NodeId, NodeMask};
use crate::rules;
use crate::slab::{OpIndex, Slab, SlotIndex, WakeIndex};
use crate::time::Instant;
use crate::witness::{Sight, saw};

/// How many wakes are remembered, to queue behind the calls that they woke.
const RECENT_MAX: usize = 64;

/// A client hands no lock over to a waiter that was silent for longer. A frozen waiter that is
/// given a lock costs the others its TTL.
const SILENT_MAX: Duration = Duration::from_millis(500);

/// A waiter that was silent for this part of its TTL would get a lease with too little time left.
const SILENT_PARTS: u32 = 4;

/// The calls that wait for the lock of a slot.
#[derive(Clone, Debug)]
pub(super) struct WaitQueue {
    /// The hash of the key.
    pub(super) hash: u64,
    pub(super) list: Waitlist,
    /// How many transfers in a row have brought the lock here.
    pub(super) row: u8,
}

/// A lock that is being handed over.
#[derive(Clone, Debug)]
pub(super) struct Handover {
    /// The wake that follows if the transfer fails.
    pub(super) wake: Wake,
    /// The nodes that told the waiter.
    pub(super) told: NodeMask,
    /// The nodes whose answer is awaited.
    pub(super) open: NodeMask,
}

/// A wake for the first call of a list; the others wait behind it.
#[derive(Clone, Debug)]
pub(super) struct Wake {
    pub(super) key: Key,
    pub(super) to: Entry,
    pub(super) rest: Waitlist,
    /// The fence of the lease before.
    pub(super) fence: u64,
    /// The nodes through which the call was not reached.
    pub(super) tried: NodeMask,
    /// Whether the wake passes the turn on, rather than being a guess.
    pub(super) is_turn: bool,
}

impl Wake {
    /// Turns to the next call of the list. Returns whether there is one.
    pub(super) fn turn_to_next(&mut self) -> bool {
        let Some(next) = self.rest.take_first() else { return false };
        (self.to, self.tried) = (next, NodeMask::EMPTY);
        true
    }
}

/// The waiter to which a release hands its lock over.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Heir {
    pub(in crate::engine) offer: Offer,
    /// The nodes that run the script; the others get the plain release.
    pub(in crate::engine) nodes: NodeMask,
    /// The node by which later messages come behind the hand-over.
    pub(in crate::engine) near: NodeId,
}

/// The limits within which a release may hand its lock over.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Terms {
    /// The nodes that granted the lock.
    pub(in crate::engine) granted: NodeMask,
    /// The nodes that can hand a lock over. Nodes with an unanswered SET count, too: most have the
    /// key when the script runs.
    pub(in crate::engine) nodes: NodeMask,
    /// How many transfers may follow each other before clients of other kinds get their turn.
    pub(in crate::engine) in_row: u8,
    pub(in crate::engine) ttl_max_ms: u32,
}

/// Wakes whose answers are awaited, and calls that were woken a moment ago.
#[derive(Clone, Debug, Default)]
pub(super) struct Wakes {
    under_way: Slab<WakeIndex, Option<Wake>>,
    /// With the hashes of their keys.
    recent: VecDeque<(u64, Successor)>,
}

impl Wakes {
    /// Keeps a wake until it is answered.
    pub(super) fn keep(&mut self, wake: Wake) -> Option<WakeIndex> {
        self.under_way.insert(Some(wake))
    }

    pub(super) fn at(&self, index: WakeIndex) -> Option<&Wake> {
        self.under_way.at(index).as_ref()
    }

    pub(super) fn take(&mut self, index: WakeIndex) -> Option<Wake> {
        let wake = self.under_way.at_mut(index).take()?;
        self.under_way.give_back(index);
        Some(wake)
    }

    /// The call that this client woke for a key a moment ago.
    pub(super) fn successor(&self, hash: u64, now: Instant) -> Option<&Successor> {
        let mut recent = self.recent.iter().rev();
        recent.find(|(other, last)| *other == hash && now < last.until).map(|(_, last)| last)
    }

    /// Whether the client still remembers a call that it woke.
    #[inline]
    pub(super) fn has_recent(&self) -> bool {
        !self.recent.is_empty()
    }

    /// Forgets old wakes, so that they cost the next acquisitions nothing.
    pub(super) fn forget_past(&mut self, now: Instant) {
        self.recent.retain(|(_, last)| now < last.until);
    }

    pub(super) fn forget(&mut self, hash: u64) {
        self.recent.retain(|&(other, _)| other != hash);
    }

    /// Remembers a woken call: late announcements are passed on to it, and new calls queue behind
    /// it.
    pub(super) fn note(&mut self, hash: u64, mut successor: Successor) {
        // A call that was given the turn, and is woken again, still has it.
        let mut known = self.recent.iter().filter(|&&(other, _)| other == hash);
        successor.is_turn |= known.any(|(_, last)| last.id == successor.id && last.is_turn);
        self.forget(hash);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((hash, successor));
    }
}

/// See the [module](super).
#[derive(Clone, Debug)]
pub(in crate::engine) struct Waiting {
    pub(super) client_id: ClientId,
    pub(super) node_timeout: Duration,
    pub(super) electorate: Electorate,
    pub(super) waiters: Beside<OpIndex, Waiter>,
    pub(super) queues: Beside<SlotIndex, WaitQueue>,
    pub(super) wakes: Wakes,
    /// By the slot that was released.
    pub(super) handovers: Beside<SlotIndex, Handover>,
    /// What the engine is to do; it takes the actions after each input.
    pub(in crate::engine) actions: Actions,
    /// How many calls have waited so far.
    pub(super) calls: u32,
    pub(super) questions: u32,
}

impl Waiting {
    /// Another input for a call, if it waits. An answer must be [awaited](Self::is_awaited).
    pub(in crate::engine) fn step(&mut self, op: OpIndex, input: Input, view: &mut View<'_>) {
        let Self { actions, questions, node_timeout, waiters, .. } = self;
        let mut scene = Scene { view, actions, questions, node_timeout: *node_timeout };
        if let Some(waiter) = waiters.get_mut(op) {
            waiter.step(input, &mut scene);
        }
    }

    /// The calls that wait for `key`, or have just won it, and their ids.
    pub(super) fn waiting_for(&self, key: &[u8]) -> impl Iterator<Item = (OpIndex, WaiterId)> {
        let is_meant = move |waiter: &Waiter| {
            waiter.state.is_some() && rules::is_for_key(waiter.call.key.as_slice(), key)
        };
        let waiters = self.waiters.iter().filter(move |(_, waiter)| is_meant(waiter));
        waiters.map(|(op, waiter)| (op, waiter.id))
    }

    /// The call with this id that waits for `key`.
    pub(super) fn call_of(&self, id: WaiterId, key: &[u8]) -> Option<OpIndex> {
        self.waiting_for(key).find_map(|(op, other)| (other == id).then_some(op))
    }

    /// Whether the waiter is a call of this client.
    pub(super) fn is_own(&self, id: &WaiterId) -> bool {
        ClientId::of(id) == self.client_id
    }

    /// The turn came to a call that is over: it goes to the call that has waited longest, of this
    /// client or of another.
    pub(super) fn give_turn(
        &mut self,
        node: NodeId,
        key: &[u8],
        mut list: Waitlist,
        view: &mut View<'_>,
    ) {
        for (op, _) in self.waiting_for(key) {
            if let Some(entry) = self.waiters.get(op).map(|waiter| waiter.entry(node, view)) {
                list.add(entry);
            }
        }
        self.wake_first(true, Key::from_slice(key), list, 0, view);
    }

    /// Wakes the first call of the list that still waits. `is_turn`: this client may give the turn.
    /// `fence`: the fence of the lease that it released.
    pub(super) fn wake_first(
        &mut self,
        is_turn: bool,
        key: Key,
        mut list: Waitlist,
        fence: u64,
        view: &mut View<'_>,
    ) {
        list.drop_past(view.now);
        let Some(to) = rules::first_to_wake(list.take_first()) else { return };
        let rest = rules::carried_on(list);
        if !rest.is_empty() {
            saw(Sight::HandedOn);
        }
        self.wake(Wake { key, to, rest, fence, tried: NodeMask::EMPTY, is_turn }, view);
    }

    /// Sends a wake through the node that its waiter used, or the next that was not tried. A call
    /// of this client gets its turn at once: its SETs go behind the release.
    pub(super) fn wake(&mut self, mut wake: Wake, view: &mut View<'_>) {
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
        let successor = self.successor(&wake, wake.to.node, view.now);
        self.wakes.note(hash(wake.key.as_slice()), successor);
        self.actions.push(Action::Woken { op, node: None });
        self.step(op, Input::Turn(wake.rest), view);
    }

    fn send_wake(&mut self, node: NodeId, wake: Wake, now: Instant) {
        // The sender's call does not matter in a wake.
        let sender = Listed::named(waiter_id(self.client_id, 0));
        let (token, rest) = (token_of_wake(wake.to.id, wake.fence), wake.rest.listed(now));
        let key = wake.key.as_slice();
        let text = self.actions.write((MessageKind::Wake, 0), sender, &token, rest, key);
        if let Some(wake) = self.wakes.keep(wake) {
            self.actions.push(Action::Wake { wake, node, text });
        }
    }

    /// The facts of a wake, or of a hand-over, that the client remembers for a while.
    fn successor(&self, wake: &Wake, node: NodeId, now: Instant) -> Successor {
        let (behind, until) = (wake.rest.ids().collect(), now + self.node_timeout * 2);
        let Wake { to, is_turn, .. } = *wake;
        Successor { id: to.id, behind, node, is_turn, is_handed: false, until }
    }

    /// A wake was written: the client forwards late announcements to the call that it wakes.
    pub(in crate::engine) fn wake_written(&mut self, index: WakeIndex, node: NodeId, now: Instant) {
        let Some(wake) = self.wakes.at(index) else { return };
        let (hash, successor) = (hash(wake.key.as_slice()), self.successor(wake, node, now));
        self.wakes.note(hash, successor);
    }

    /// The waiter that gets the lock of a slot which is about to be released. `None` if the client
    /// is to wake the first waiter instead. Writes the message for the waiter into `text`.
    pub(in crate::engine) fn next_holder(
        &mut self,
        slot: SlotIndex,
        (key, token): (&Key, &RawToken),
        terms: Terms,
        text: &mut Vec<u8>,
        view: &View<'_>,
    ) -> Option<Heir> {
        let now = view.now;
        let queue = self.queues.get_mut(slot)?;
        queue.list.drop_past(now);
        let is_heard = |entry: &Entry| {
            let silent = entry.seen.until(now);
            let ttl = Duration::from_millis(entry.offer.map_or(0, |offer| offer.ttl_ms).into());
            rules::is_alive(silent <= SILENT_MAX) && rules::is_fresh(silent <= ttl / SILENT_PARTS)
        };
        // A silent waiter is over or frozen, or will announce itself again and then get its place.
        queue.list.drop_unless_all(|entry| entry.offer.is_some() && !is_heard(entry));
        let is_in_row = rules::is_in_row(queue.row < terms.in_row);
        let first = *queue.list.first()?;
        let offer = first.offer?;
        let has_time = now + self.node_timeout * 2 < first.until;
        let is_allowed = rules::is_handed_ttl_allowed(offer.ttl_ms <= terms.ttl_max_ms);
        let able = terms.granted.intersection(terms.nodes);
        let is_able = self.electorate.has_quorum(able) && is_allowed;
        if ClientId::of(&first.id) == self.client_id
            || !(is_in_row && is_heard(&first) && has_time && is_able)
        {
            return None;
        }
        let near = Some(first.node).filter(|&node| able.contains(node));
        let near = near.or_else(|| view.reach.first_of(able, key.as_slice()))?;
        text.clear();
        let header = (MessageKind::Transfer, queue.row.saturating_add(1));
        let rest = queue.list.listed(now).skip(rules::listed_from(1, queue.list.len()));
        message::append(text, header, first.listed(now), token, rest, key);
        Some(Heir { offer, nodes: terms.nodes, near })
    }

    /// The scripts that hand the lock of a slot over were written.
    pub(super) fn handed_over(
        &mut self,
        slot: SlotIndex,
        wake: Wake,
        heir: Heir,
        view: &mut View<'_>,
    ) {
        if !wake.rest.is_empty() {
            saw(Sight::HandedOn);
        }
        let successor = self.successor(&wake, heir.near, view.now);
        let successor = Successor { is_handed: true, ..successor };
        self.wakes.note(hash(wake.key.as_slice()), successor);
        let handover = Handover { wake, told: NodeMask::EMPTY, open: heir.nodes };
        self.handovers.enter(slot, || handover);
        self.settle_handover(slot, view);
    }

    /// A node has answered the script, or never will. `is_told`: the node told the waiter.
    pub(in crate::engine) fn transfer_answered(
        &mut self,
        slot: SlotIndex,
        node: NodeId,
        is_told: bool,
        view: &mut View<'_>,
    ) {
        let Some(handover) = self.handovers.get_mut(slot) else { return };
        handover.open.remove(node);
        if is_told {
            handover.told.insert(node);
        }
        self.settle_handover(slot, view);
    }

    fn settle_handover(&mut self, slot: SlotIndex, view: &mut View<'_>) {
        let Some(&Handover { told, open, .. }) = self.handovers.get(slot) else { return };
        if self.electorate.has_quorum(told.union(open)) {
            if open.is_empty() {
                self.handovers.remove(slot);
            }
            return;
        }
        saw(Sight::TransferFailed);
        if let Some(Handover { wake, .. }) = rules::to_wake_instead(self.handovers.remove(slot)) {
            self.wake(wake, view);
        }
    }
}

//! Those who wait for a lock that this client holds, and the messages they send.

use super::hash;
use super::message::{self, Kind, Listed, Message, RawToken, WAITERS_MAX, WaiterId, wait_ms};
use super::message::{client_of, token_of, waiter_id, waiter_of};
use crate::command::append_publish;
#[cfg(feature = "shared")]
use crate::engine::LeaseId;
use crate::engine::door::Engine;
use crate::engine::locks::op::{OpKind, Outcome};
use crate::engine::locks::slot::{SlotState, Slots};
use crate::engine::spans::traced;
use crate::key::Key;
use crate::mutant::{self, Mutant};
use crate::node::{ChannelName, Node, Now, Request};
use crate::quorum::NodeId;
use crate::slab::{Index, OpIndex, Slab, SlotIndex, index_type};
use crate::time::Instant;
use crate::token::TokenBytes;
use crate::witness::{Sight, saw};

index_type! {
    /// The list of those who wait for a slot's lock.
    pub(in crate::engine) ListIndex
}

/// How often a message is passed on: who was not scheduled for some turns finds the holder by it. A
/// hop is one command, an attempt in vain is more than 2N.
const HOPS_MAX: u8 = 8;

/// A call that waits, and the node by which that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Waiter {
    pub(super) id: WaiterId,
    pub(super) until: Instant,
    pub(super) node: NodeId,
}

impl Waiter {
    /// Whether a message strikes it off that says that the waiter of that id waits no more.
    pub(super) fn is_struck_by(&self, id: WaiterId) -> bool {
        self.id == id || mutant::is(Mutant::SiblingsStruck) && client_of(&self.id) == client_of(&id)
    }

    fn of(listed: Listed, node: NodeId, now: Instant) -> Self {
        Self { id: listed.id, until: now.plus_millis(listed.wait_ms), node }
    }

    pub(super) fn listed(&self, now: Instant) -> Listed {
        Listed { id: self.id, wait_ms: wait_ms(now, self.until) }
    }
}

/// Adds a waiter at the end, and no more than a message holds. One that is there keeps its place and
/// is reached by the node that was heard of last.
pub(super) fn append(list: &mut Vec<Waiter>, waiter: Waiter) {
    if let Some(known) = list.iter_mut().find(|other| other.id == waiter.id) {
        *known = waiter;
    } else if list.len() < WAITERS_MAX {
        list.push(waiter);
    }
}

/// The lists of the slots that have one.
#[derive(Debug, Default)]
pub(in crate::engine) struct Queues {
    lists: Slab<ListIndex, Vec<Waiter>>,
    /// The slots with lists, by the hash of their key.
    slots: Vec<(u64, SlotIndex)>,
}

impl Queues {
    /// Gives a slot a list, or adds to the one that it has.
    pub(super) fn begin(&mut self, slots: &mut Slots, slot_index: SlotIndex, waiters: Vec<Waiter>) {
        let slot = slots.at_mut(slot_index);
        if slot.list.is_none() {
            slot.list = self.lists.take(Vec::new);
            self.slots.push((hash(slot.key.as_bytes()), slot_index));
        }
        if let Some(list) = slot.list {
            for waiter in waiters {
                append(self.lists.at_mut(list), waiter);
            }
        }
    }

    /// Takes a slot's list away.
    pub(in crate::engine) fn take(
        &mut self,
        slots: &mut Slots,
        slot_index: SlotIndex,
    ) -> Vec<Waiter> {
        let slot = slots.at_mut(slot_index);
        let Some(list) = slot.list.take() else { return Vec::new() };
        self.slots.retain(|&(_, other)| other != slot_index);
        self.lists.give_back(list);
        std::mem::take(self.lists.at_mut(list))
    }
}

impl Engine {
    /// Somebody sent this client a message by the node.
    pub(in crate::engine) fn message(&mut self, id: NodeId, now: Now) {
        let bytes = self.take_frame(id);
        if let Some(message) = Message::parse(&bytes) {
            match message.kind {
                Kind::Announce => self.announced(id, &message, now),
                Kind::Wake => self.woken(id, &message, now),
                Kind::GiveUp => self.given_up(&message),
            }
        }
        self.frame = bytes;
    }

    /// Somebody waits for a key that this client holds, or did.
    fn announced(&mut self, id: NodeId, message: &Message<'_>, now: Now) {
        let sender = Waiter::of(message.sender, id, now.real);
        let others = message.list().map(|listed| Waiter::of(listed, id, now.real));
        let all = std::iter::once(sender).chain(others);
        if let Some(slot_index) = self.slot_meant(message) {
            return self.queues.begin(&mut self.locks.slots, slot_index, all.collect());
        }
        // It was released, and for whom: the sender, who has tried before the release was everywhere,
        // or somebody else, who has the lock now or will.
        let successor = self.wakes.successor(hash(message.key), now.real);
        let is_passed_on = message.hops >= HOPS_MAX;
        match successor.filter(|last| !is_passed_on && !self.is_own(&last.id)) {
            Some(successor) if successor.id != message.sender.id => {
                return self.pass_on(id, successor.id, message, now);
            }
            Some(_) => {}
            None => {
                if let Some(index) = self.carrier(message)
                    && let Some(wait) = self.wait_of(index)
                {
                    for waiter in all {
                        append(&mut wait.carried, waiter);
                    }
                    let is_ring = wait.is_waiting_for(client_of(&message.sender.id));
                    if is_ring && !mutant::is(Mutant::RingNotBroken) {
                        self.break_ring(index, now);
                    }
                    return;
                }
            }
        }
        self.wake_first_as(false, Key::of(message.key), all.collect(), now);
    }

    /// The operations that wait for `key`, or have just won it, and the ids of their waits.
    pub(super) fn waiting_for(&self, key: &[u8]) -> impl Iterator<Item = (OpIndex, WaiterId)> {
        self.waits.live.iter().filter_map(move |&wait| {
            let place = self.waits.at(wait);
            let index = place.op;
            let op = self.locks.ops.at(index);
            let is_ours = op.kind == OpKind::Acquire
                && op.wait == Some(wait)
                && matches!(op.outcome, Outcome::Open | Outcome::Won);
            let slot = self.locks.slots.at(op.slot());
            let is_key = slot.key.as_bytes() == key || mutant::is(Mutant::MessageForAnyKey);
            (is_ours && is_key).then(|| (index, waiter_id(self.locks.client_id, place.call)))
        })
    }

    /// The operation that waits for `key` by that id.
    pub(super) fn call_of(&self, id: WaiterId, key: &[u8]) -> Option<OpIndex> {
        self.waiting_for(key).find_map(|(index, other)| (other == id).then_some(index))
    }

    /// The call behind which the sender of a message waits: the one it is meant for, or any other
    /// for the key, but not itself.
    fn carrier(&self, message: &Message<'_>) -> Option<OpIndex> {
        let others = || {
            let is_other = |&(_, id): &(OpIndex, WaiterId)| id != message.sender.id;
            self.waiting_for(message.key).filter(is_other)
        };
        let meant = others().find(|&(_, id)| id == waiter_of(&message.token));
        meant.or_else(|| others().next()).map(|(index, _)| index)
    }

    /// Whether the waiter is a call of this client.
    pub(super) fn is_own(&self, id: &WaiterId) -> bool {
        client_of(id) == self.locks.client_id
    }

    /// Two that wait for each other: neither holds the key, for both have lost their attempts.
    fn break_ring(&mut self, index: OpIndex, now: Now) {
        let key = self.locks.slots.at(self.locks.ops.at(index).slot()).key.as_bytes();
        let all = self.locks.nodes.all();
        let gate = self.first_with_channel(all, key);
        self.try_again(index, gate, now);
    }

    /// Hands a message on to the one that this client woke for the key.
    fn pass_on(&mut self, id: NodeId, to: WaiterId, message: &Message<'_>, now: Now) {
        let list: Vec<_> = message.list().collect();
        let (kind, hops) = (message.kind, message.hops.saturating_add(1));
        let (token, list) = (token_of(to), list.into_iter());
        self.text.clear();
        let text = &mut self.text;
        message::append(text, (kind, hops), message.sender, &token, list, message.key);
        self.tell(id, &token, now);
    }

    /// Sends the message that was encoded; its way is not watched.
    fn tell(&mut self, id: NodeId, to: &RawToken, now: Now) {
        self.locks.scratch.clear();
        let channel = ChannelName::of(client_of(to));
        append_publish(&mut self.locks.scratch, channel.as_bytes(), &self.text);
        if self.locks.nodes.get(id).is_some_and(Node::has_channel) {
            self.locks.nodes.request(id, Request::Tell, &self.locks.scratch, now.attended);
        }
    }

    /// The lock was released for an operation of this client.
    fn woken(&mut self, id: NodeId, message: &Message<'_>, now: Now) {
        let list = message.list().map(|listed| Waiter::of(listed, id, now.real)).collect();
        let Some(index) = self.call_of(waiter_of(&message.token), message.key) else {
            return self.wake_first(Key::of(message.key), list, now);
        };
        if mutant::is(Mutant::WakeIgnored) {
            return;
        }
        saw(Sight::Woken);
        self.locks.counts.wakes_received.up();
        traced!(DEBUG: self.locks.trace_woken(index, id));
        // Its own turn comes: whom it woke before has had theirs.
        self.wakes.forget(hash(message.key));
        self.take_turn(index, list, now);
    }

    /// A call of this client has its turn, and those listed wait behind it.
    pub(super) fn take_turn(&mut self, index: OpIndex, list: Vec<Waiter>, now: Now) {
        let state = self.locks.slots.at(self.locks.ops.at(index).slot()).state;
        let is_trying = matches!(state, SlotState::Acquiring | SlotState::Gated);
        let Some(wait) = self.wait_of(index) else { return };
        // Those in the list stood behind it; whoever told it so itself came later.
        let later = std::mem::take(&mut wait.carried);
        wait.named = 0;
        for waiter in list.into_iter().chain(later) {
            append(&mut wait.carried, waiter);
        }
        wait.is_heard = false;
        if !is_trying && self.locks.ops.at(index).outcome == Outcome::Open {
            if let Some(wait) = self.wait_of(index) {
                wait.tries = 0;
            }
            self.try_again(index, None, now);
        }
    }

    fn given_up(&mut self, message: &Message<'_>) {
        let id = message.sender.id;
        if let Some(slot_index) = self.slot_meant(message) {
            if let Some(list) = self.locks.slots.at(slot_index).list {
                let list = self.queues.lists.at_mut(list);
                list.retain(|waiter| !waiter.is_struck_by(id));
            }
            return;
        }
        let calls: Vec<_> = self.waiting_for(message.key).collect();
        for (index, _) in calls {
            if let Some(wait) = self.wait_of(index) {
                wait.forget(id);
            }
        }
    }

    /// The leases that others wait for, and their keys.
    #[cfg(feature = "shared")]
    pub(crate) fn waited_for(&self) -> impl Iterator<Item = (LeaseId, &[u8])> {
        self.queues.slots.iter().filter_map(|&(_, slot_index)| {
            let slot = self.locks.slots.get(slot_index)?;
            let lease = self.locks.slots.lease_id(slot_index);
            (slot.state == SlotState::Held)
                .then(|| (lease, self.locks.plain_key(slot.key.as_bytes())))
        })
    }

    /// The slot whose lock a message is about: by the token that it names, or by its key.
    fn slot_meant(&self, message: &Message<'_>) -> Option<SlotIndex> {
        let is_meant = |slot_index: SlotIndex, by_key: bool| {
            let slot = self.locks.slots.get(slot_index)?;
            let is_alive = match slot.state {
                SlotState::Held | SlotState::Acquiring | SlotState::Gated => true,
                SlotState::Free | SlotState::Released => false,
            };
            let is_token = slot.token == TokenBytes::Drawn(message.token);
            let is_key = slot.key.as_bytes() == message.key;
            (is_alive && is_key && (is_token || by_key && slot.state == SlotState::Held))
                .then_some(slot_index)
        };
        let named = self.slot_of_token(&message.token).and_then(|slot| is_meant(slot, false));
        let wanted = hash(message.key);
        named.or_else(|| {
            let mut slots = self.queues.slots.iter().filter(|&&(hash, _)| hash == wanted);
            slots.find_map(|&(_, slot_index)| is_meant(slot_index, true))
        })
    }

    /// The slot that a drawn token names.
    fn slot_of_token(&self, token: &RawToken) -> Option<SlotIndex> {
        let named = token.last_chunk::<12>().and_then(|rest| rest.first_chunk::<4>())?;
        SlotIndex::at((u32::from_le_bytes(*named) ^ self.locks.slot_mask) as usize)
    }

    /// Tells the holder that a call waits no more.
    pub(super) fn give_up(
        &mut self,
        waiter: WaiterId,
        slot_index: SlotIndex,
        id: NodeId,
        token: &RawToken,
        now: Now,
    ) {
        let sender = Listed { id: waiter, wait_ms: 0 };
        let key = self.locks.slots.at(slot_index).key.as_bytes();
        let nobody = std::iter::empty::<Listed>();
        self.text.clear();
        message::append(&mut self.text, (Kind::GiveUp, 0), sender, token, nobody, key);
        self.tell(id, token, now);
    }
}

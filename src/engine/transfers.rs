//! Locks that change hands: a holder's release gives the lock to the first of its waiters, and a
//! waiter counts the messages of the nodes. A caller that takes a lock away by its token tells the
//! client that drew the token, as a hint. That client extends its lease at once, and so learns of
//! the loss.

use std::iter;

use super::core::Engine;
use super::happenings::Happening;
use super::locks::offers::{Transfer, TransferResult};
use super::locks::op::{Op, OpKind, Verdict};
use super::locks::slot::TokenState;
use super::wait::{
    Heir, Listed, Meant, Message, MessageKind, RawToken, Terms, append_message, waiter_id,
};
use crate::client_name::ClientId;
use crate::command::{Answer, append_publish};
use crate::error::Unlocked;
use crate::node::{ChannelName, Node, Now, Request};
use crate::quorum::NodeId;
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;

impl Engine {
    // ---- the holder ----

    /// The lease of a slot is about to be released. Returns the waiter that gets it, if any may.
    #[inline]
    pub(super) fn heir_of(&mut self, slot_index: SlotIndex, now: Now) -> Option<Heir> {
        if self.waiting.has_queue(slot_index) { self.choose_heir(slot_index, now) } else { None }
    }

    #[cold]
    fn choose_heir(&mut self, slot_index: SlotIndex, now: Now) -> Option<Heir> {
        let settings = &self.locks.settings;
        let slot = self.locks.slots.at(slot_index);
        let terms = Terms {
            granted: slot.granted,
            nodes: self.locks.nodes.those(Node::runs_transfers),
            in_row: settings.transfers_in_row,
            ttl_max_ms: settings.max_ttl_ms,
        };
        // A token that the caller chose may be in use elsewhere, so no message can name a lock by
        // it.
        let TokenBytes::Drawn(token) = slot.token else { return None };
        let key = slot.key.clone();
        let mut text = std::mem::take(&mut self.locks.heir_text);
        let heir = self.input(now, |waiting, view| {
            waiting.next_holder(slot_index, (&key, &token), terms, &mut text, view)
        });
        self.locks.heir_text = text;
        if heir.is_some() {
            self.locks.observe(Happening::HandedOver { slot: slot_index });
        }
        heir
    }

    /// A node answered the script that hands a lock over.
    pub(super) fn transfer_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Answer,
        now: Now,
    ) {
        let is_told = self.locks.transfer_answered(id, slot_index, answer, now);
        self.tell_waiting(now, |waiting, view| {
            waiting.transfer_answered(slot_index, id, is_told, view);
        });
    }

    /// The connection ended before the script was answered.
    pub(super) fn transfer_lost(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        if rules::is_script_owed(true) {
            self.locks.owe(id, slot_index, now);
        }
        self.tell_waiting(now, |waiting, view| {
            waiting.transfer_answered(slot_index, id, false, view);
        });
    }

    // ---- the waiter ----

    /// Another client sent this client a message through the node.
    pub(super) fn message(&mut self, id: NodeId, now: Now) {
        let bytes = self.take_frame(id);
        if let Some(message) = Message::parse(&bytes) {
            self.hear(id, &message, now);
        }
        self.frame = bytes;
    }

    fn hear(&mut self, id: NodeId, message: &Message<'_>, now: Now) {
        match message.kind {
            MessageKind::Transfer => self.transferred(id, message, now),
            MessageKind::Removal => self.hear_of_removal(message, now),
            // Waiters pass these messages on. If two addresses lead to one server, the messages
            // must not double, so the client heeds them at one address.
            MessageKind::Announce | MessageKind::Wake | MessageKind::GiveUp => {
                if !rules::may_listen(self.locks.nodes.is_heard_before(id)) {
                    return;
                }
                if let Some(fence) = message.fence() {
                    self.locks.hear_of_fence(message.key, fence, now);
                }
                let slot = self.slot_meant(message);
                let attempt = if slot.is_none() && message.kind == MessageKind::Announce {
                    self.attempt_for(message.key)
                } else {
                    None
                };
                let meant = Meant {
                    slot,
                    attempt,
                    is_released: self.was_released(message),
                    receiver: self.locks.receiver(&message.token, message.key),
                };
                self.tell_waiting(now, |waiting, view| waiting.message(id, message, meant, view));
            }
        }
    }

    /// The slot of an attempt for the key that is under way, or has won and is not reported yet.
    /// Costs a look at every operation.
    fn attempt_for(&self, key: &[u8]) -> Option<SlotIndex> {
        let ops = self.locks.ops.iter().map(|(_, op)| op);
        let mut slots = ops.filter(|op| op.kind == OpKind::Acquire).map(Op::slot);
        slots.find(|&index| {
            let slots = &self.locks.slots;
            slots
                .get(index)
                .is_some_and(|slot| slot.state().is_lock() && slot.key.as_slice() == key)
        })
    }

    /// The slot whose lock a message is about, by the token that the message names, or by its key.
    fn slot_meant(&self, message: &Message<'_>) -> Option<SlotIndex> {
        let is_meant = |slot_index: &SlotIndex| {
            let slot = self.locks.slots.get(*slot_index);
            slot.is_some_and(|it| it.state().is_lock() && it.key.as_slice() == message.key)
        };
        // The slot of an ended lease may hold the next lease for the key.
        let named = self.locks.slot_of_token(&message.token).filter(is_meant);
        named.or_else(|| self.waiting.queues_for(message.key).find(is_meant))
    }

    /// Whether a message names a lock that this client has held and released.
    fn was_released(&self, message: &Message<'_>) -> bool {
        self.locks.slot_with(&message.token, message.key).is_some_and(|slot_index| {
            let state = self.locks.slots.at(slot_index).state();
            state.is_released() || state == TokenState::Free
        })
    }

    /// A node has written a token of this client to a key, because the key's holder asked for it.
    fn transferred(&mut self, id: NodeId, message: &Message<'_>, now: Now) {
        let is_by_node = self.locks.nodes.at(id).mark() == Some(message.mark);
        let Some(offer) = message.sender.offer.filter(|_| rules::is_by_its_node(is_by_node)) else {
            return;
        };
        let transfer = Transfer {
            key: message.key,
            from: message.token,
            token: offer.token,
            ttl_ms: offer.ttl_ms,
        };
        match self.locks.transferred(id, transfer, now) {
            TransferResult::Ignored => {}
            TransferResult::Unwanted => {
                self.tell_waiting(now, |waiting, view| waiting.unwanted(id, message, view));
            }
            TransferResult::Late(slot_index) => {
                self.list_follows(slot_index, id, message, now);
            }
            TransferResult::Partly(op) => {
                self.tell_waiting(now, |waiting, view| {
                    waiting.transferred((op, id), message, None, view);
                });
            }
            TransferResult::Quorum(op, slot_index) => {
                let last = self.locks.ops.at(op).slot();
                if self.waiting.has_queue(last) {
                    self.carry_queue(op, last, now);
                }
                self.locks.take_over(op, slot_index, transfer, now);
                self.locks.observe(Happening::TakenOver { op });
                self.tell_waiting(now, |waiting, view| {
                    waiting.transferred((op, id), message, Some(message.hops), view);
                });
            }
        }
    }

    /// One more node has told of a lock that the client has: its message may carry the list.
    fn list_follows(&mut self, slot: SlotIndex, id: NodeId, message: &Message<'_>, now: Now) {
        let op = self.locks.slots.at(slot).op.filter(|&op| self.waiting.has_waiter(op));
        self.tell_waiting(now, |waiting, view| match op {
            Some(op) => waiting.transferred((op, id), message, None, view),
            None => waiting.list_follows(slot, id, message, view),
        });
    }

    // ---- locks that a caller takes away by their token ----

    /// A release is about to be reported. If another client drew the token, one node tells that
    /// client, behind the deletes: by then they have run.
    #[inline]
    pub(super) fn tell_of_removal(&mut self, index: OpIndex, now: Instant) {
        let op = self.locks.ops.at(index);
        let slot = self.locks.slots.at(op.slot());
        let is_removal = op.outcome == Verdict::Unlocked(Ok(Unlocked::Released))
            && slot.op == Some(index)
            && self.locks.settings.direct_wake;
        if let TokenBytes::Drawn(token) = slot.token
            && ClientId::of(&token) != self.locks.client_id
            && is_removal
        {
            self.tell_drawing_client(token, op.slot(), now);
        }
    }

    #[cold]
    fn tell_drawing_client(&mut self, token: RawToken, slot_index: SlotIndex, now: Instant) {
        let (slot, drawn_by) = (self.locks.slots.at(slot_index), ClientId::of(&token));
        let reach = self.reach();
        let node = reach.first_of(reach.askable, slot.key.as_slice());
        let Some(node) = node else { return };
        let sender = Listed::named(waiter_id(self.locks.client_id, 0));
        let mut text = Vec::new();
        let key = slot.key.as_slice();
        append_message(&mut text, (MessageKind::Removal, 0), sender, &token, iter::empty(), key);
        self.locks.scratch.clear();
        append_publish(&mut self.locks.scratch, ChannelName::of(drawn_by).as_bytes(), &text);
        let now = self.locks.called_at(now);
        self.locks.write(node, Request::Tell, now);
    }

    /// A client says that it has deleted the keys of a lease. This client does not believe it. But
    /// it gives the lease to no further caller. If it keeps the lease alive, it extends the lease
    /// ahead of its time.
    pub(super) fn hear_of_removal(&mut self, message: &Message<'_>, now: Now) {
        let slot_index = self.locks.slot_with(&message.token, message.key);
        let is_held = |index: &SlotIndex| self.locks.slots.at(*index).state() == TokenState::Held;
        if let Some(slot_index) = slot_index.filter(is_held) {
            self.locks.share(slot_index);
            self.locks.extend_soon(slot_index, now);
        }
    }
}

//! Locks that change hands: a holder's release gives the lock to the first of its waiters, and a
//! waiter counts the messages of the nodes.

use super::core::Engine;
use super::happenings::Happening;
use super::locks::handover::Heir;
use super::locks::offers::{Taken, Transfer};
use super::wait::{Meant, Message, MessageKind, Terms};
use crate::command::Answer;
use crate::node::Now;
use crate::quorum::NodeId;
use crate::rules;
use crate::slab::SlotIndex;
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
        let terms = Terms {
            able: self.locks.able_to_transfer(slot_index),
            in_row: settings.transfers_in_row,
            ttl_max_ms: settings.max_ttl_ms,
        };
        let slot = self.locks.slots.at(slot_index);
        // A token that the caller chose may be in use elsewhere, so no message can name a lock by
        // it.
        let TokenBytes::Drawn(token) = slot.token else { return None };
        let key = slot.key.clone();
        let mut text = std::mem::take(&mut self.locks.heir_text);
        let next = self.input(now, |waiting, view| {
            waiting.next_holder(slot_index, (&key, &token), terms, &mut text, view)
        });
        self.locks.heir_text = text;
        let next = next?;
        self.locks.observe(Happening::HandedOver { slot: slot_index });
        Some(Heir {
            token: next.offer.token,
            ttl_ms: next.offer.ttl_ms,
            nodes: self.locks.running_transfers(),
            near: next.near,
            mark_at: next.mark_at,
        })
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

    /// Another client sent this one a message through the node.
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
            MessageKind::Announce | MessageKind::Wake | MessageKind::GiveUp => {
                if let Some(fence) = message.fence() {
                    self.locks.hear_of_fence(message.key, fence, now);
                }
                let slot = self.slot_meant(message);
                let attempt = if slot.is_none() && message.kind == MessageKind::Announce {
                    self.locks.attempt_for(message.key)
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

    /// A node has written a token of this client to a key, for the holder of that key.
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
            Taken::Ignored => {}
            Taken::Unwanted => {
                self.tell_waiting(now, |waiting, view| waiting.unwanted(id, message, view));
            }
            Taken::Late(slot_index) => {
                self.list_follows(slot_index, id, message, now);
            }
            Taken::Partly(op) => {
                self.tell_waiting(now, |waiting, view| {
                    waiting.transferred((op, id), message, None, view);
                });
            }
            Taken::Quorum(op, slot_index) => {
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
}

//! Input from the nodes: connections, bytes, losses.

use super::core::Engine;
use super::happenings::Happening;
use super::locks::slot::TokenState;
use super::nodes::{Everyday, Positive};
use crate::command::Answer;
use crate::error::Cause;
use crate::node::{Node, Now, Pending, ProcessChange, Request, Step};
use crate::quorum::NodeId;
use crate::rules;
use crate::slab::SlotIndex;
use crate::time::Instant;

impl Engine {
    /// A node sent these bytes.
    pub(super) fn read(&mut self, id: NodeId, bytes: &[u8], now: Instant) {
        // Nearly every read is one whole positive answer from a node in good standing.
        match self.locks.nodes.read_positive(id, bytes, now) {
            Some(Positive::Granted(slot)) => self.set_granted(id, slot, now),
            Some(Positive::Deleted(slot)) => self.locks.key_deleted(id, slot, now),
            None => self.handle_many(id, bytes, now),
        }
    }

    /// Several answers, or answers that are neither a grant nor a delete.
    #[inline(never)]
    fn handle_many(&mut self, id: NodeId, mut input: &[u8], now: Instant) {
        while let Some((answer, len)) = self.locks.nodes.read_everyday(id, input, now) {
            match answer {
                Everyday::Granted(slot) => self.set_granted(id, slot, now),
                Everyday::Denied(slot) => self.set_read(id, slot, Answer::Null, now),
                Everyday::Deleted(slot) => self.locks.key_deleted(id, slot, now),
                Everyday::NotThere(slot) => self.locks.release_read(id, slot, false, now),
            }
            input = input.get(len..).unwrap_or_default();
            if input.is_empty() {
                return;
            }
        }
        self.handle_rest(id, input, now);
    }

    /// A node in good standing granted.
    #[inline(always)]
    fn set_granted(&mut self, id: NodeId, slot_index: SlotIndex, now: Instant) {
        if !self.locks.set_granted(id, slot_index) {
            self.set_read(id, slot_index, Answer::Ok, now);
        }
    }

    /// The engine has read the answer to a SET, so that SET no longer names its slot.
    #[inline(never)]
    fn set_read(&mut self, id: NodeId, slot_index: SlotIndex, answer: Answer, now: Instant) {
        // The engine times the commands that follow by the attended clock.
        let now = self.locks.called_at(now);
        self.set_answered(id, slot_index, answer, now);
        self.locks.slots.unref(slot_index);
    }

    /// A node answered the SET of an attempt.
    fn set_answered(&mut self, id: NodeId, slot_index: SlotIndex, answer: Answer, now: Now) {
        let failed = self.locks.set_answered(id, slot_index, answer, now);
        self.note_late_denial(id, slot_index, answer == Answer::Null);
        self.follow(failed, now);
    }

    /// The attempt may have failed before this node denied it; then its call is waiting.
    fn note_late_denial(&mut self, id: NodeId, slot_index: SlotIndex, is_denied: bool) {
        let slot = self.locks.slots.at(slot_index);
        if let (true, TokenState::Between, Some(op)) = (is_denied, slot.state(), slot.op) {
            self.waiting.denied_late(op, id);
        }
    }

    /// A node answered the command of a fenced attempt.
    fn fenced_set_answered(&mut self, id: NodeId, slot_index: SlotIndex, answer: Answer, now: Now) {
        let failed = self.locks.fenced_set_answered(id, slot_index, answer, now);
        self.note_late_denial(id, slot_index, answer == Answer::Zero);
        // A missing right to scripts or to the counter says nothing about the node.
        let is_fencing =
            |cause| matches!(cause, Cause::NoPermission | Cause::KeyDenied | Cause::FenceCounter);
        if let Answer::Refused(cause) = answer
            && !is_fencing(cause)
        {
            self.locks.nodes.note_refusal(id, cause, now.real);
        }
        self.follow(failed, now);
    }

    /// Anything but an everyday answer: other frames, frames in pieces, changes of the node.
    #[cold]
    fn handle_rest(&mut self, id: NodeId, mut input: &[u8], now: Instant) {
        let now = self.locks.called_at(now);
        // The engine no longer reads a connection that it has given up.
        if !self.locks.nodes.get(id).is_some_and(Node::is_connected) {
            return;
        }
        // A TLS alert record: the port is not for plain clients.
        if self.locks.nodes.get(id).is_some_and(|node| node.is_mute)
            && input.starts_with(&[0x15, 0x03])
        {
            self.drop_connection(id, Cause::TlsWanted, now);
            return self.refresh(id, now);
        }
        let node = self.locks.nodes.at(id);
        if let Some(last_answer) = node.last_answer().filter(|_| node.is_stalled()) {
            let silence = now.real.saturating_since(last_answer);
            self.locks.node_is_back(id, silence, ProcessChange::Same);
        }
        self.locks.nodes.at_mut(id).heard(now.real);
        while !input.is_empty() || self.locks.nodes.at(id).has_unread() {
            let (step, no_master) = self.locks.nodes.read(id, &mut input, now);
            // Whatever the request was, the node may have lost its keys.
            if let Some(cause) = no_master {
                self.locks.nodes.note_refusal(id, cause, now.real);
            }
            match step {
                Ok(Step::Idle) => break,
                Ok(Step::Answered(pending, answer)) => self.answered(id, pending, answer, now),
                Ok(Step::Query(pending)) => self.locks.query_answered(id, pending, now),
                Ok(Step::Greeted) => self.greeted(id, now),
                Ok(Step::Waited(pending)) => self.waited(id, pending, now),
                Ok(Step::Message) => self.message(id, now),
                Err(cause) => {
                    self.drop_connection(id, cause, now);
                    break;
                }
            }
        }
        self.refresh(id, now);
    }

    fn answered(&mut self, id: NodeId, pending: Pending, answer: Answer, now: Now) {
        match pending.request {
            Request::Set(slot) => {
                self.set_answered(id, slot, answer, now);
                if let Answer::Refused(cause) = answer {
                    self.locks.nodes.note_refusal(id, cause, now.real);
                }
            }
            Request::Batch(batch) => {
                for failed in self.locks.batch_answered(id, batch, answer, now) {
                    self.follow(Some(failed), now);
                }
            }
            Request::FencedSet(slot) => {
                self.fenced_set_answered(id, slot, answer, now);
            }
            Request::Raise(slot) => {
                let failed = self.locks.raise_ended(id, slot, Some(answer), now);
                self.follow(failed, now);
            }
            Request::Time => {
                return self.locks.nodes.time_told(id, answer, now);
            }
            Request::Release { slot, step } => {
                self.locks.release_answered(id, slot, step, answer, now)
            }
            Request::Transfer(slot) => {
                self.transfer_answered(id, slot, answer, now);
            }
            Request::Debt { slot, step, again } => {
                self.locks.debt_answered(id, slot, step, again, answer, now);
            }
            Request::Extend { slot, step, phase } => {
                self.locks.extension_answered(id, slot, step, phase, answer, now);
            }
            Request::Wake(wake) => {
                return self.wake_answered(id, wake, answer, now);
            }
            Request::Subscribe
            | Request::SubscribeTransfers
            | Request::Wait { .. }
            | Request::Tell
            | Request::Greeting(_)
            | Request::Look
            | Request::Query { .. } => return,
        }
        if let Some(slot) = pending.request.slot() {
            self.locks.slots.unref(slot);
        }
    }

    fn greeted(&mut self, id: NodeId, now: Now) {
        let node = self.locks.nodes.at(id);
        let was_heard = node.takes_transfers();
        let (last_answer, before) = (node.last_answer(), node.identity().map(str::to_owned));
        if self.locks.nodes.conclude_greeting(id, now)
            && let Some(last_answer) = last_answer
        {
            let silence = now.real.saturating_since(last_answer);
            let process = self.locks.nodes.at(id).process(before.as_deref(), last_answer);
            self.locks.node_is_back(id, silence, process);
        }
        for other in self.locks.nodes.elsewhere(id) {
            self.locks.share_doubt(other, id);
        }
        let is_back = !was_heard && self.locks.nodes.at(id).takes_transfers();
        if rules::is_deleted_when_back(is_back) {
            // Until now the node may have sent messages about the client's offers to a lost
            // connection. The deletes go behind the subscription.
            self.locks.offers_unheard(id, now);
        }
    }

    /// Handles every pending request of a connection that has ended, in the order in which it was
    /// written: a SET before the release behind it.
    pub(super) fn lose(&mut self, id: NodeId, cause: Cause, now: Now) {
        let random = self.locks.random.bits();
        let was_heard = self.locks.nodes.at(id).takes_transfers();
        let pending = self.locks.nodes.handle_lost(id, cause, random, now);
        self.locks.observe(Happening::Disconnected { node: id, cause });
        for entry in pending {
            match entry.request {
                Request::Set(slot) | Request::FencedSet(slot) => {
                    let failed = self.locks.set_lost(id, slot, now);
                    self.follow(failed, now);
                }
                Request::Batch(batch) => {
                    for failed in self.locks.batch_lost(id, batch, now) {
                        self.follow(Some(failed), now);
                    }
                    continue;
                }
                Request::Raise(slot) => {
                    let failed = self.locks.raise_ended(id, slot, None, now);
                    self.follow(failed, now);
                }
                Request::Release { slot, .. } => self.locks.owe(id, slot, now),
                Request::Transfer(slot) => {
                    self.transfer_lost(id, slot, now);
                }
                Request::Debt { slot, again, .. } => self.locks.debt_lost(id, slot, again),
                Request::Extend { slot, phase, .. } => {
                    self.locks.extension_lost(id, slot, phase, now)
                }
                Request::Query { .. } => {
                    self.locks.query_lost(id, entry);
                    continue;
                }
                Request::Wait { .. } => {
                    self.wait_lost(id, entry, now);
                    continue;
                }
                Request::Wake(wake) => {
                    // As far as this client knows, nobody received it.
                    self.wake_answered(id, wake, Answer::Zero, now);
                    continue;
                }
                Request::Time
                | Request::Subscribe
                | Request::SubscribeTransfers
                | Request::Tell
                | Request::Look
                | Request::Greeting(_) => continue,
            }
            if let Some(slot) = entry.request.slot() {
                self.locks.slots.unref(slot);
            }
        }
        if was_heard {
            self.locks.offers_unheard(id, now);
        }
    }

    /// After a change of a node: pays the node's debts, and notes what it can do now.
    #[cold]
    pub(super) fn refresh(&mut self, id: NodeId, now: Now) {
        if self.locks.nodes.note_shown(id, now.real) {
            self.locks.observe(Happening::NodeChanged { node: id, now });
        }
        self.locks.pay_debts(id, now);
        if self.locks.nodes.refresh(id) && !self.locks.awaiting.is_empty() {
            self.settle_awaiting(id, now);
        }
    }

    /// Ends a node's connection from this side.
    pub(super) fn drop_connection(&mut self, id: NodeId, cause: Cause, now: Now) {
        self.lose(id, cause, now);
        self.locks.nodes.at_mut(id).close();
    }
}

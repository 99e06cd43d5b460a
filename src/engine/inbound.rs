//! What comes in from the nodes: connections, bytes, losses. What is said of a node that the engine
//! does not have is passed over.

use super::Engine;
use super::nodes::Everyday;
use crate::command::Answer;
use crate::error::Cause;
use crate::node::{Answered, Node, Now, Request, Step};
use crate::quorum::NodeId;
use crate::time::Instant;

impl Engine {
    /// Whether the engine waits for a connection to the node.
    #[must_use]
    pub fn wants_connection(&self, id: NodeId) -> bool {
        self.nodes.wants_connection(id)
    }

    /// Whether the engine reads what the node sends: false once it has given the connection up.
    #[must_use]
    pub fn is_connected(&self, id: NodeId) -> bool {
        self.nodes.get(id).is_some_and(Node::is_connected)
    }

    /// The connection that was asked for stands, and is being encrypted: what it waits for now says
    /// another thing of the node.
    #[cfg(feature = "tls")]
    pub(crate) fn handle_securing(&mut self, id: NodeId) {
        if self.wants_connection(id) {
            self.nodes.handle_securing(id);
        }
    }

    /// Whether the node is connected and has not sent a byte yet.
    pub(crate) fn is_mute(&self, id: NodeId) -> bool {
        self.nodes.get(id).is_some_and(Node::is_mute)
    }

    /// Whether the node was greeted on its connection and taken for one to lock on.
    pub(crate) fn serves(&self, id: NodeId) -> bool {
        self.nodes.get(id).is_some_and(Node::serves)
    }

    /// The connection that was asked for is open.
    pub fn handle_connected(&mut self, id: NodeId, now: Instant) {
        if !self.wants_connection(id) {
            return;
        }
        let now = self.now(now);
        self.nodes.handle_connected(id, now);
        self.refresh(id, now);
    }

    /// The connection is lost, or the attempt at it failed. Votes on it are unknown from now on,
    /// releases on it are owed.
    pub fn handle_lost(&mut self, id: NodeId, cause: Cause, now: Instant) {
        if !self.is_connected(id) && !self.wants_connection(id) {
            return;
        }
        let now = self.now(now);
        self.lose(id, cause, now);
        self.refresh(id, now);
    }

    /// The node sent these bytes. Any split of its stream gives the same result. `now` was read after
    /// the bytes were: an age or a time left that they tell counts from it, and counted from an earlier
    /// one a restarted node would vote too soon.
    pub fn handle_bytes(&mut self, id: NodeId, bytes: &[u8], now: Instant) {
        // Nearly every read is this: one whole answer that agrees, from a node in good standing.
        match self.nodes.read_agreement(id, bytes, now) {
            Some(Everyday::Granted(slot)) => self.set_granted(id, slot, now),
            Some(Everyday::Deleted(slot)) => self.key_deleted(id, slot, now),
            _ => self.handle_many(id, bytes, now),
        }
    }

    /// Several answers, or others than those two.
    #[inline(never)]
    fn handle_many(&mut self, id: NodeId, mut input: &[u8], now: Instant) {
        while let Some((answer, len)) = self.nodes.read_everyday(id, input, now) {
            match answer {
                Everyday::Granted(slot) => self.set_granted(id, slot, now),
                Everyday::Denied(slot) => self.set_read(id, slot, Answer::Null, now),
                Everyday::Deleted(slot) => self.key_deleted(id, slot, now),
                Everyday::NotThere(slot) => self.release_read(id, slot, false, now),
            }
            input = input.get(len..).unwrap_or_default();
            if input.is_empty() {
                return;
            }
        }
        self.handle_rest(id, input, now);
    }

    /// What is not an everyday answer: other frames, frames in pieces, whatever changes the node.
    #[cold]
    fn handle_rest(&mut self, id: NodeId, mut input: &[u8], now: Instant) {
        let now = self.now(now);
        // A connection that was given up has nothing more to say.
        if !self.is_connected(id) {
            return;
        }
        // An alert record of TLS: the port is not for plain clients.
        if self.is_mute(id) && input.starts_with(&[0x15, 0x03]) {
            self.drop_connection(id, Cause::TlsWanted, now);
            return self.refresh(id, now);
        }
        self.nodes.heard(id, now);
        while !input.is_empty() || self.nodes.at(id).has_unread() {
            let (step, no_master) = self.nodes.read(id, &mut input, now);
            // Whatever was asked: it may have lost its keys.
            if let Some(cause) = no_master {
                self.nodes.note_refusal(id, cause, now.real);
            }
            match step {
                Ok(Step::Idle) => break,
                Ok(Step::Answered(answered)) => self.answered(id, answered, now),
                Ok(Step::Query(pending)) => self.query_answered(id, pending, now),
                Ok(Step::Greeted) => self.greeted(id, now),
                Ok(Step::Waited(pending)) => self.waited(id, pending, now),
                Ok(Step::Message) => self.message(id, now),
                Ok(Step::Changed) => self.keys_changed(id, now),
                Err(cause) => {
                    self.drop_connection(id, cause, now);
                    break;
                }
            }
        }
        self.refresh(id, now);
    }

    fn answered(&mut self, id: NodeId, answered: Answered, now: Now) {
        let Answered { pending, answer } = answered;
        match pending.request {
            Request::Set(slot) => {
                self.set_answered(id, slot, answer, now);
                if let Answer::Refused(cause) = answer {
                    self.nodes.note_refusal(id, cause, now.real);
                }
                if answer == Answer::Ok && self.nodes.at(id).is_admitted() {
                    self.nodes.granted(id);
                }
            }
            Request::Release { slot, step } => self.release_answered(id, slot, step, answer, now),
            Request::Debt { slot, step, again } => {
                self.debt_answered(id, slot, step, again, answer, now);
            }
            Request::Extend { slot, step, phase } => {
                self.extension_answered(id, slot, step, phase, answer, now);
            }
            Request::Wake(wake) => return self.wake_answered(id, wake, answer, now),
            Request::Tracking => return self.nodes.tracking_answered(id, answer),
            Request::Tracked(slot) => self.tracked(id, slot, answer, now),
            Request::ScriptLoad
            | Request::Subscribe
            | Request::Wait { .. }
            | Request::Tell
            | Request::Greeting(_)
            | Request::Query { .. } => return,
        }
        if let Some(slot) = pending.request.slot() {
            self.answer_taken(slot);
        }
    }

    fn greeted(&mut self, id: NodeId, now: Now) {
        if self.nodes.conclude_greeting(id, now) {
            self.track_all(id, now);
        }
    }

    /// Deals with everything that was pending on a connection that is no more, in the order it was
    /// written: a SET before the release behind it.
    pub(super) fn lose(&mut self, id: NodeId, cause: Cause, now: Now) {
        let random = rand::Rng::next_u32(&mut self.rng);
        for entry in self.nodes.handle_lost(id, cause, random, now) {
            match entry.request {
                Request::Set(slot) => self.set_lost(id, slot, now),
                Request::Release { slot, .. } => self.release_lost(id, slot, now),
                Request::Debt { slot, again, .. } => self.debt_lost(id, slot, again),
                Request::Extend { slot, phase, .. } => self.extension_lost(id, slot, phase, now),
                Request::Query { .. } => {
                    self.query_lost(id, entry);
                    continue;
                }
                Request::Wait { .. } => {
                    self.wait_lost(id, entry, now);
                    continue;
                }
                Request::Wake(wake) => {
                    self.wake_lost(id, wake, now);
                    continue;
                }
                Request::Tracked(slot) => self.untracked(id, slot),
                Request::ScriptLoad
                | Request::Tracking
                | Request::Subscribe
                | Request::Tell
                | Request::Greeting(_) => continue,
            }
            if let Some(slot) = entry.request.slot() {
                self.slots.unref(slot);
            }
        }
    }
}

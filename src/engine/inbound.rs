//! What comes in from the nodes: connections, bytes, losses. What is said of a node that the engine
//! does not have is passed over.

use super::Engine;
use crate::command::Answer;
use crate::error::Cause;
use crate::mutant::{self, Mutant};
use crate::node::{Answered, Now, Pending, Request, Step};
use crate::quorum::NodeId;
use crate::resp::{Quick, quick};
use crate::time::Instant;

impl Engine {
    /// Whether the engine waits for a connection to the node.
    #[must_use]
    pub(crate) fn wants_connection(&self, id: NodeId) -> bool {
        let state = self.nodes.get(id.index()).map(crate::node::Node::state);
        matches!(state, Some(crate::node::State::Connecting { .. }))
    }

    /// Whether the engine reads what the node sends: false once it has given the connection up.
    #[must_use]
    pub(crate) fn is_connected(&self, id: NodeId) -> bool {
        self.nodes.get(id.index()).is_some_and(crate::node::Node::is_connected)
    }

    /// The connection that was asked for stands, and is being encrypted: what it waits for now says
    /// another thing of the node.
    #[cfg(feature = "tls")]
    pub(crate) fn handle_securing(&mut self, id: NodeId) {
        if self.wants_connection(id) {
            self.node_mut(id).handle_securing();
        }
    }

    /// Whether the node is connected and has not sent a byte yet.
    pub(crate) fn is_mute(&self, id: NodeId) -> bool {
        self.nodes.get(id.index()).is_some_and(crate::node::Node::is_mute)
    }

    /// Whether the node was greeted on its connection and taken for one to lock on.
    pub(crate) fn serves(&self, id: NodeId) -> bool {
        self.nodes.get(id.index()).is_some_and(crate::node::Node::serves)
    }

    /// The connection that was asked for is open.
    pub fn handle_connected(&mut self, id: NodeId, now: Instant) {
        if !self.wants_connection(id) {
            return;
        }
        let now = self.now(now);
        self.node_mut(id).handle_connected(now);
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
        if (!self.restless.contains(id) || mutant::is(Mutant::TroubleUnseen))
            && let Some(node) = self.nodes.get_mut(id.index())
            && let Some(&Pending { request, slot, .. }) = node.awaited()
        {
            if request == Request::Set && bytes == b"+OK\r\n" {
                node.answer_read(now);
                node.granted.up();
                return self.set_granted(id, slot, now);
            }
            if matches!(request, Request::Release(_)) && bytes == b":1\r\n" {
                node.answer_read(now);
                return self.key_deleted(id, slot, now);
            }
        }
        self.handle_many(id, bytes, now);
    }

    /// Several answers, or others than those two.
    #[inline(never)]
    fn handle_many(&mut self, id: NodeId, mut input: &[u8], now: Instant) {
        while !self.restless.contains(id)
            && let Some(node) = self.nodes.get_mut(id.index())
            && let Some(&Pending { request, slot, .. }) = node.awaited()
            && let Some((word, len)) = quick(input)
        {
            match (request, word) {
                (Request::Set, Quick::Ok) => {
                    node.answer_read(now);
                    node.granted.up();
                    self.set_granted(id, slot, now);
                }
                (Request::Set, Quick::Null) => {
                    node.answer_read(now);
                    self.set_read(id, slot, Answer::Null, now);
                }
                (Request::Release(_), Quick::One) => {
                    node.answer_read(now);
                    self.key_deleted(id, slot, now);
                }
                (Request::Release(_), Quick::Zero) => {
                    node.answer_read(now);
                    self.release_read(id, slot, false, now);
                }
                _ => break,
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
        self.node_mut(id).speaks();
        self.node_mut(id).heard(now.real);
        while !input.is_empty() || self.node(id).has_unread() {
            let step = self.node_mut(id).next_step(&mut input, now);
            // Whatever was asked: it may have lost its keys.
            if let Some(cause) = self.node_mut(id).take_no_master() {
                self.note_refusal(id, cause, now);
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
        let slot = pending.slot;
        match pending.request {
            Request::Set => {
                self.set_answered(id, slot, answer, now);
                if let Answer::Refused(cause) = answer {
                    self.note_refusal(id, cause, now);
                }
                if answer == Answer::Ok && self.node(id).is_admitted() {
                    self.node_mut(id).granted.up();
                }
            }
            Request::Release(step) => self.release_answered(id, slot, step, answer, now),
            Request::Debt { step, again } => {
                self.debt_answered(id, slot, step, again, answer, now);
            }
            Request::Extend { step, phase } => {
                self.extension_answered(id, slot, step, phase, answer, now);
            }
            Request::Wake => return self.wake_answered(id, slot, answer, now),
            Request::Tracking => return self.node_mut(id).tracking_answered(answer),
            Request::Tracked => self.tracked(id, slot, answer, now),
            Request::ScriptLoad
            | Request::Subscribe
            | Request::Wait { .. }
            | Request::Tell
            | Request::Greeting(_)
            | Request::Query { .. } => return,
        }
        self.answer_taken(slot);
    }

    fn greeted(&mut self, id: NodeId, now: Now) {
        let rules = self.settings.admission;
        let (before, rest) = self.nodes.split_at_mut(id.index());
        let Some((node, after)) = rest.split_first_mut() else { return };
        let is_duplicate = |identity: &str| {
            before.iter().chain(&*after).any(|other| {
                other.identity() == Some(identity) && (other.serves() || !other.is_settled)
            })
        };
        let is_ready = node.conclude_greeting(&rules, is_duplicate, now);
        node.heard(now.real);
        if is_ready {
            self.track_all(id, now);
        }
    }

    /// An error says something of the node itself.
    pub(super) fn note_refusal(&mut self, id: NodeId, cause: Cause, now: Now) {
        if !matches!(cause, Cause::WrongType | Cause::Unsupported) {
            self.node_mut(id).note_trouble(cause, now.real);
        }
        if mutant::is(Mutant::ReadOnlyIgnored) {
            return;
        }
        let rules = self.settings.admission;
        let is_loading = cause == Cause::Loading && !mutant::is(Mutant::LoadingBelieved);
        if is_loading || matches!(cause, Cause::Replica | Cause::MasterDown) {
            self.node_mut(id).distrust(&rules, now.real);
        } else if matches!(cause, Cause::Credentials | Cause::Cluster | Cause::Protected) {
            self.node_mut(id).refuse(cause, now.real);
        }
    }

    /// Deals with everything that was pending on a connection that is no more, in the order it was
    /// written: a SET before the release behind it.
    pub(super) fn lose(&mut self, id: NodeId, cause: Cause, now: Now) {
        let random = rand::Rng::next_u32(&mut self.rng);
        let pending = self.node_mut(id).handle_lost(cause, random, now.real);
        self.node_mut(id).counts.lost.up(cause);
        self.voters.remove(id);
        if !mutant::is(Mutant::LostNodeWritten) {
            self.cohort.nodes.remove(id);
        }
        self.with_output.remove(id);
        for entry in pending.iter() {
            match entry.request {
                Request::Set => self.set_lost(id, entry.slot, now),
                Request::Release(_) => self.release_lost(id, entry.slot, now),
                Request::Debt { again, .. } => self.debt_lost(id, entry.slot, again),
                Request::Extend { phase, .. } => self.extension_lost(id, entry.slot, phase, now),
                Request::Query { .. } => {
                    self.query_lost(id, *entry);
                    continue;
                }
                Request::Wait { .. } => {
                    self.wait_lost(id, *entry, now);
                    continue;
                }
                Request::Wake => {
                    self.wake_lost(id, entry.slot, now);
                    continue;
                }
                Request::Tracked => self.untracked(id, entry.slot),
                Request::ScriptLoad
                | Request::Tracking
                | Request::Subscribe
                | Request::Tell
                | Request::Greeting(_) => continue,
            }
            self.slots.unref(entry.slot);
        }
    }
}

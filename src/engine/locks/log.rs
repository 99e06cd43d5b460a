//! Locks and nodes as spans and events: `docs/observing.md` describes each.
//!
//! # Invariants
//!
//! - No event has a token.

use tracing::{Level, Span, event, span};

use super::op::{OpKind, Outcome};
use super::state::Locks;
use super::steps::State;
use super::view::NodeState;
use crate::engine::event::LostCause;
use crate::error::{Cause, UnlockError, Unlocked, Vote};
use crate::node::Now;
use crate::quorum::NodeId;
use crate::slab::{Index, OpIndex, SlotIndex};
use crate::time::Instant;

/// The target of events about locks and leases.
const LOCK: &str = "redbolt::lock";

/// The target of events about nodes and their connections.
const NODE: &str = "redbolt::node";

const fn vote_name(vote: Vote) -> (&'static str, Cause) {
    match vote {
        Vote::Granted => ("granted", Cause::None),
        Vote::Denied => ("denied", Cause::Held),
        Vote::Failed(cause) => ("failed", cause),
        Vote::Unknown(cause) => ("unknown", cause),
    }
}

const fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Won => "won",
        Outcome::Taken => "taken",
        Outcome::NoQuorum => "no_quorum",
        Outcome::Expired => "expired",
        Outcome::Cancelled => "cancelled",
        Outcome::Lost => "lost",
        Outcome::Open | Outcome::Unlocked(_) | Outcome::Answered => "open",
    }
}

impl Locks {
    fn name_of(&self, id: NodeId) -> &str {
        self.nodes.name(id)
    }

    /// The key of a slot as its caller knows it.
    fn key_text(&self, slot_index: SlotIndex) -> String {
        self.prefix.plain_key(self.slots.at(slot_index).key.as_slice()).escape_ascii().to_string()
    }

    /// The span of the operation that a slot is for.
    fn span_of_slot(&self, slot_index: SlotIndex) -> &Span {
        let op = self.slots.at(slot_index).op;
        self.traces.of(op)
    }

    #[cold]
    pub(super) fn log_call(&mut self, index: OpIndex, slot: SlotIndex, ttl_ms: u32) {
        let key = self.key_text(slot);
        let call = span!(target: LOCK, Level::DEBUG, "acquire", key, ttl_ms);
        self.traces.begin(index, call);
    }

    #[cold]
    pub(super) fn log_attempt(&mut self, index: OpIndex) {
        let voters = self.nodes.voters().count();
        if let Some(spans) = self.traces.ops.get_mut(index.place()) {
            let call = &spans.call;
            spans.attempt = span!(target: LOCK, parent: call, Level::DEBUG, "attempt", voters);
        }
    }

    #[cold]
    pub(super) fn log_vote(&self, id: NodeId, slot_index: SlotIndex, vote: Vote) {
        let slot = self.slots.at(slot_index);
        let is_late = !slot.state().is_attempt() && slot.state() != State::Won;
        let span = if is_late { &Span::none() } else { self.traces.of(slot.op) };
        let (node, (vote, cause)) = (self.name_of(id), vote_name(vote));
        let cause = cause.name();
        event!(
            name: "vote", target: LOCK, parent: span, Level::TRACE,
            node, vote, cause, is_late, "vote"
        );
    }

    #[cold]
    pub(super) fn log_decision(&mut self, index: OpIndex, outcome: Outcome) {
        let op = self.ops.at(index);
        let (granted, denied) = (op.round.granted.count(), op.round.denied.count());
        let (failed, unknown) = (op.round.failed.count(), op.round.unknown.count());
        let (needed, outcome) = (self.settings.quorum, outcome_name(outcome));
        event!(
            name: "quorum", target: LOCK, parent: self.traces.of(Some(index)), Level::DEBUG,
            outcome, granted, denied, failed, unknown, needed, "quorum"
        );
        if let Some(spans) = self.traces.ops.get_mut(index.place()) {
            spans.attempt = Span::none();
        }
    }

    #[cold]
    pub(super) fn log_lease(&mut self, index: OpIndex, now: Instant) {
        let op = self.ops.at(index);
        let slot = self.slots.at(op.slot());
        let votes = op.round.granted.count();
        let validity_ms = u64::try_from(now.until(slot.ends).as_millis()).unwrap_or(u64::MAX);
        let spans = self.traces.end(index);
        event!(
            name: "lease", target: LOCK, parent: &spans.call, Level::DEBUG,
            votes, validity_ms, "lease"
        );
    }

    #[cold]
    pub(super) fn log_refused(&mut self, index: OpIndex, outcome: Outcome) {
        let spans = self.traces.end(index);
        let outcome = outcome_name(outcome);
        event!(
            name: "refused", target: LOCK, parent: &spans.call, Level::DEBUG,
            outcome, "no lease"
        );
    }

    #[cold]
    pub(super) fn log_wait(&self, index: OpIndex) {
        event!(name: "wait", target: LOCK, parent: self.traces.of(Some(index)), Level::DEBUG, "wait");
    }

    #[cold]
    pub(super) fn log_woken(&self, index: OpIndex, id: NodeId) {
        let node = self.name_of(id);
        event!(
            name: "wake", target: LOCK, parent: self.traces.of(Some(index)), Level::DEBUG,
            node, direction = "received", "wake"
        );
    }

    #[cold]
    pub(super) fn log_wake(&self, id: NodeId, key: Option<&[u8]>) {
        let node = self.name_of(id);
        let key = key.map(|key| self.prefix.plain_key(key).escape_ascii().to_string());
        event!(
            name: "wake", target: LOCK, Level::DEBUG, node, key, direction = "sent", "wake"
        );
    }

    #[cold]
    pub(super) fn log_handed_over(&self, slot_index: SlotIndex) {
        let slot = self.slots.at(slot_index);
        let key = self.prefix.plain_key(slot.key.as_slice()).escape_ascii().to_string();
        event!(name: "transfer", target: LOCK, Level::DEBUG, key, direction = "sent", "transfer");
    }

    #[cold]
    pub(super) fn log_taken_over(&self, index: OpIndex) {
        event!(
            name: "transfer", target: LOCK, parent: self.traces.of(Some(index)), Level::DEBUG,
            direction = "received", "transfer"
        );
    }

    #[cold]
    pub(super) fn log_unwanted(&self, id: NodeId) {
        let node = self.name_of(id);
        event!(
            name: "transfer", target: LOCK, Level::DEBUG, node, direction = "refused", "transfer"
        );
    }

    /// A release of what a slot may have written begins: after a failed attempt, or for its holder.
    #[cold]
    pub(super) fn log_release(&mut self, slot_index: SlotIndex) {
        let slot = self.slots.at(slot_index);
        let (nodes, op) = (slot.holds.count(), slot.op);
        let key = self.key_text(slot_index);
        if let Some(op) = op.filter(|&op| self.ops.at(op).kind == OpKind::Release) {
            let span = span!(target: LOCK, Level::DEBUG, "release", key, nodes);
            return self.traces.begin(op, span);
        }
        let span = self.span_of_slot(slot_index);
        event!(
            name: "release", target: LOCK, parent: span, Level::DEBUG, key, nodes, "release"
        );
    }

    #[cold]
    pub(super) fn log_released(&mut self, index: OpIndex, result: Result<Unlocked, UnlockError>) {
        let spans = self.traces.end(index);
        let outcome = match result {
            Ok(Unlocked::Released) => "released",
            Ok(Unlocked::Unknown) => "unknown",
            Err(_) => "not_held",
        };
        event!(
            name: "released", target: LOCK, parent: &spans.call, Level::DEBUG,
            outcome, "released"
        );
    }

    #[cold]
    pub(super) fn log_extension(&mut self, index: OpIndex, slot: SlotIndex, ttl_ms: u32) {
        let key = self.key_text(slot);
        let by = match self.ops.at(index).kind {
            OpKind::Keep => "keep_alive",
            OpKind::Adopt => "adoption",
            OpKind::Extend | OpKind::Free | OpKind::Acquire | OpKind::Release | OpKind::Query => {
                "caller"
            }
        };
        let span = span!(target: LOCK, Level::DEBUG, "extension", key, ttl_ms, by);
        self.traces.begin(index, span);
    }

    #[cold]
    pub(super) fn log_extended(&mut self, index: OpIndex, outcome: Outcome) {
        let is_won = outcome == Outcome::Won;
        let op = self.ops.at(index);
        let (extended, gone) = (op.tally.yes.count(), op.tally.no.count());
        let spans = self.traces.end(index);
        event!(
            name: "extended", target: LOCK, parent: &spans.call, Level::DEBUG,
            is_won, extended, gone, "extended"
        );
    }

    #[cold]
    pub(super) fn log_lost(&self, slot_index: SlotIndex, cause: LostCause) {
        let key = self.key_text(slot_index);
        let cause = match cause {
            LostCause::Expired => "expired",
            LostCause::Gone => "gone",
        };
        event!(name: "lost", target: LOCK, Level::WARN, key, cause, "lease lost");
    }

    #[cold]
    pub(super) fn log_debt(&self, id: NodeId, slot_index: SlotIndex) {
        let (node, key) = (self.name_of(id), self.key_text(slot_index));
        event!(name: "debt", target: NODE, Level::DEBUG, node, key, state = "owed", "debt");
    }

    #[cold]
    pub(super) fn log_debt_paid(&self, id: NodeId, slot_index: SlotIndex) {
        let (node, key) = (self.name_of(id), self.key_text(slot_index));
        event!(name: "debt", target: NODE, Level::DEBUG, node, key, state = "paid", "debt");
    }

    #[cold]
    pub(super) fn log_debt_dropped(&self, id: NodeId) {
        let node = self.name_of(id);
        event!(name: "debt", target: NODE, Level::WARN, node, state = "dropped", "debt");
    }

    #[cold]
    pub(super) fn log_left(&self, id: NodeId, count: usize) {
        let node = self.name_of(id);
        event!(name: "debt", target: NODE, Level::WARN, node, state = "left", count, "debt");
    }

    /// A node's state has changed.
    #[cold]
    pub(super) fn log_node(&self, id: NodeId, now: Now) {
        let Some(health) = self.health(id, now.real) else { return };
        let node = health.name.as_str();
        let (cause, server) = (health.cause.name(), health.server.as_deref());
        let is_quorum = self.can_reach_quorum();
        match health.state {
            NodeState::Disconnected | NodeState::Connecting | NodeState::Greeting => {
                let state = health.state.name();
                event!(
                    name: "connection", target: NODE, Level::DEBUG,
                    node, state, cause, is_quorum, "connection"
                );
            }
            NodeState::Admitted => {
                event!(
                    name: "admission", target: NODE, Level::INFO,
                    node, server, is_quorum, "admission"
                );
            }
            NodeState::Quarantined(left) => {
                let seconds = left.as_secs_f64();
                event!(
                    name: "quarantine", target: NODE, Level::INFO,
                    node, seconds, is_quorum, "quarantine"
                );
            }
            NodeState::Refused => {
                event!(
                    name: "refusal", target: NODE, Level::WARN, node, cause, is_quorum, "refusal"
                );
            }
            NodeState::Stalled => {
                event!(name: "stall", target: NODE, Level::WARN, node, is_quorum, "stall");
            }
        }
    }

    /// Whether the nodes in good standing just now are a quorum.
    fn can_reach_quorum(&self) -> bool {
        let able = |id: &NodeId| self.nodes.at(*id).can_vote();
        let able = self.nodes.all().into_iter().filter(able).count();
        able >= self.settings.quorum as usize
    }
}

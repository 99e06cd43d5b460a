//! Locks and nodes as spans and events: `docs/observing.md` describes each.
//!
//! # Invariants
//!
//! - No event has a token.

use tracing::{Level, Span, event, span};

use super::Happening;
use crate::engine::event::LostCause;
use crate::engine::locks::core::Locks;
use crate::engine::locks::op::{OpKind, Verdict};
use crate::engine::locks::slot::TokenState;
use crate::error::{Cause, Unlocked, Vote};
use crate::node::{NodeState, Now};
use crate::quorum::NodeId;
use crate::slab::{OpIndex, SlotIndex};

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

const fn outcome_name(outcome: Verdict) -> &'static str {
    match outcome {
        Verdict::Won => "won",
        Verdict::Taken => "taken",
        Verdict::NoQuorum => "no_quorum",
        Verdict::Expired => "expired",
        Verdict::Cancelled => "cancelled",
        Verdict::Lost => "lost",
        Verdict::Open | Verdict::Unlocked(_) | Verdict::Answered => "open",
    }
}

const fn lost_name(cause: LostCause) -> &'static str {
    match cause {
        LostCause::Expired => "expired",
        LostCause::Gone => "gone",
        LostCause::Forgotten => "forgotten",
    }
}

const fn extended_by(kind: OpKind) -> &'static str {
    match kind {
        OpKind::Keep => "keep_alive",
        OpKind::Adopt => "adoption",
        OpKind::Extend
        | OpKind::Free
        | OpKind::Acquire
        | OpKind::Release
        | OpKind::Query
        | OpKind::Set => "caller",
    }
}

/// An event with these fields, in a span if the call names one.
macro_rules! line {
    ($target:ident, $level:ident, $name:literal $(, $field:ident)*) => {
        event!(name: $name, target: $target, Level::$level, $($field,)* $name)
    };
    ($target:ident, $level:ident, $span:expr, $name:literal $(, $field:ident)*) => {
        event!(name: $name, target: $target, parent: $span, Level::$level, $($field,)* $name)
    };
}

impl Locks {
    /// The key of a slot as its caller knows it.
    fn key_text(&self, slot_index: SlotIndex) -> String {
        self.prefix.plain_key(self.slots.at(slot_index).key.as_slice()).escape_ascii().to_string()
    }

    /// Writes the line for a happening, or begins or ends its span.
    #[cold]
    #[expect(clippy::too_many_lines, reason = "a table with an arm for each")]
    pub(in crate::engine) fn log(&mut self, what: &Happening<'_>) {
        match *what {
            Happening::Call { op, slot, ttl_ms, .. } => {
                let key = self.key_text(slot);
                let call = span!(target: LOCK, Level::DEBUG, "acquire", key, ttl_ms);
                self.traces.begin(op, call);
            }
            Happening::Attempt { op } => {
                let voters = self.nodes.voters().count();
                self.traces.attempt(
                    op,
                    |call| span!(target: LOCK, parent: call, Level::DEBUG, "attempt", voters),
                );
            }
            Happening::Vote { node, slot, vote } => {
                let slot = self.slots.at(slot);
                let is_late = !slot.state().is_attempt() && slot.state() != TokenState::Won;
                let span = self.traces.of(slot.op.filter(|_| !is_late));
                let (node, (vote, cause)) = (self.nodes.name(node), vote_name(vote));
                let cause = cause.name();
                line!(LOCK, TRACE, span, "vote", node, vote, cause, is_late);
            }
            Happening::Won { op } => self.log_decision(op, Verdict::Won),
            Happening::AttemptFailed { op, outcome } => self.log_decision(op, outcome),
            Happening::Waits { op } => line!(LOCK, DEBUG, self.traces.of(Some(op)), "wait"),
            Happening::Woken { op, node: Some(node) } => {
                let (node, direction) = (self.nodes.name(node), "received");
                line!(LOCK, DEBUG, self.traces.of(Some(op)), "wake", node, direction);
            }
            Happening::WakeSent { node, key } => {
                let key = key.map(|key| self.prefix.plain_key(key).escape_ascii().to_string());
                let (node, direction) = (self.nodes.name(node), "sent");
                line!(LOCK, DEBUG, "wake", node, key, direction);
            }
            Happening::Lease { op, now, .. } => {
                let call = self.ops.at(op);
                let ends = self.slots.at(call.slot()).ends;
                let votes = call.round.granted.count();
                let validity_ms = u64::try_from(now.until(ends).as_millis()).unwrap_or(u64::MAX);
                line!(LOCK, DEBUG, &self.traces.end(op).call, "lease", votes, validity_ms);
            }
            Happening::Refused { op, outcome, .. } => {
                let outcome = outcome_name(outcome);
                line!(LOCK, DEBUG, &self.traces.end(op).call, "refused", outcome);
            }
            Happening::HandedOver { slot } => {
                let (key, direction) = (self.key_text(slot), "sent");
                line!(LOCK, DEBUG, "transfer", key, direction);
            }
            Happening::TakenOver { op } => {
                let direction = "received";
                line!(LOCK, DEBUG, self.traces.of(Some(op)), "transfer", direction);
            }
            Happening::TransferUnwanted { node } => {
                let (node, direction) = (self.nodes.name(node), "refused");
                line!(LOCK, DEBUG, "transfer", node, direction);
            }
            Happening::Extension { op, slot, ttl_ms } => {
                let (key, by) = (self.key_text(slot), extended_by(self.ops.at(op).kind));
                let span = span!(target: LOCK, Level::DEBUG, "extension", key, ttl_ms, by);
                self.traces.begin(op, span);
            }
            Happening::Extended { op, outcome } | Happening::KeptAlive { op, outcome } => {
                let (is_won, tally) = (outcome == Verdict::Won, self.ops.at(op).tally);
                let (extended, gone) = (tally.yes.count(), tally.no.count());
                line!(LOCK, DEBUG, &self.traces.end(op).call, "extended", is_won, extended, gone);
            }
            Happening::Healed { node, slot } => {
                let (node, key) = (self.nodes.name(node), self.key_text(slot));
                line!(LOCK, DEBUG, "healed", node, key);
            }
            Happening::Lost { slot, cause } => {
                let (key, cause) = (self.key_text(slot), lost_name(cause));
                line!(LOCK, WARN, "lost", key, cause);
            }
            Happening::Release { slot } => {
                let (key, slot) = (self.key_text(slot), self.slots.at(slot));
                let nodes = slot.holds.count();
                match slot.op.filter(|&op| self.ops.at(op).kind == OpKind::Release) {
                    Some(op) => {
                        let span = span!(target: LOCK, Level::DEBUG, "release", key, nodes);
                        self.traces.begin(op, span);
                    }
                    None => line!(LOCK, DEBUG, self.traces.of(slot.op), "release", key, nodes),
                }
            }
            Happening::Released { op, result } => {
                let outcome = match result {
                    Ok(Unlocked::Released) => "released",
                    Ok(Unlocked::Unknown) => "unknown",
                    Err(_) => "not_held",
                };
                line!(LOCK, DEBUG, &self.traces.end(op).call, "released", outcome);
            }
            Happening::DebtOwed { node, slot } => {
                let (node, key, state) = (self.nodes.name(node), self.key_text(slot), "owed");
                line!(NODE, DEBUG, "debt", node, key, state);
            }
            Happening::DebtPaid { node, slot } => {
                let (node, key, state) = (self.nodes.name(node), self.key_text(slot), "paid");
                line!(NODE, DEBUG, "debt", node, key, state);
            }
            Happening::DebtDropped { node } => {
                let (node, state) = (self.nodes.name(node), "dropped");
                line!(NODE, WARN, "debt", node, state);
            }
            Happening::DebtsLeft { node, count } => {
                let (node, state) = (self.nodes.name(node), "left");
                line!(NODE, WARN, "debt", node, state, count);
            }
            Happening::NodeChanged { node, now } => self.log_node(node, now),
            #[cfg(feature = "metrics")]
            Happening::CallRefused { .. } => {}
            Happening::Queued { .. }
            | Happening::Gated
            | Happening::NotAsked { .. }
            | Happening::SecondRound
            | Happening::AttemptCancelled
            | Happening::Woken { node: None, .. }
            | Happening::WaitEnded
            | Happening::Unlock { .. }
            | Happening::Adopted { .. }
            | Happening::Unreported
            | Happening::Disconnected { .. } => {}
        }
    }

    fn log_decision(&mut self, op: OpIndex, outcome: Verdict) {
        let (round, needed) = (self.ops.at(op).round, self.settings.quorum);
        let (granted, denied) = (round.granted.count(), round.denied.count());
        let (failed, unknown) = (round.failed.count(), round.unknown.count());
        let (outcome, span) = (outcome_name(outcome), self.traces.of(Some(op)));
        line!(LOCK, DEBUG, span, "quorum", outcome, granted, denied, failed, unknown, needed);
        self.traces.attempt(op, |_| Span::none());
    }

    fn log_node(&self, id: NodeId, now: Now) {
        let Some(health) = self.health(id, now.real) else { return };
        let node = health.name.as_str();
        let (cause, server) = (health.cause.name(), health.server.as_deref());
        let is_quorum = self.can_reach_quorum();
        match health.state {
            NodeState::Disconnected | NodeState::Connecting | NodeState::Greeting => {
                let state = health.state.name();
                line!(NODE, DEBUG, "connection", node, state, cause, is_quorum);
            }
            NodeState::Admitted => line!(NODE, INFO, "admission", node, server, is_quorum),
            NodeState::Quarantined(left) => {
                let seconds = left.as_secs_f64();
                line!(NODE, INFO, "quarantine", node, seconds, is_quorum);
            }
            NodeState::Refused => line!(NODE, WARN, "refusal", node, cause, is_quorum),
            NodeState::Stalled => line!(NODE, WARN, "stall", node, is_quorum),
            NodeState::Unlisted => line!(NODE, INFO, "unlisted", node, is_quorum),
        }
    }

    /// Whether the nodes in good standing now make a quorum.
    fn can_reach_quorum(&self) -> bool {
        let able = |id: &NodeId| self.nodes.at(*id).can_vote();
        let able = self.nodes.all().into_iter().filter(able);
        self.settings.electorate.has_quorum(able.collect())
    }
}

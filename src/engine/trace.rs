//! What the engine does, as spans and events for whatever subscriber the program has: see
//! `docs/observing.md` for each. Nothing at all without the feature `tracing`.
//!
//! # Invariants
//!
//! - Where nobody listens at its level, an event costs one look at that.
//! - Events tell and decide nothing: with and without them the same bytes go out. No token is told.

/// Does something for the log, if anybody may listen at that level.
macro_rules! traced {
    ($level:ident: $tell:expr) => {
        #[cfg(feature = "tracing")]
        {
            if tracing::Level::$level <= tracing::level_filters::LevelFilter::current() {
                $tell;
            }
        }
    };
}

pub(super) use traced;

#[cfg(feature = "tracing")]
pub(super) use on::Traces;

#[cfg(feature = "tracing")]
mod on {
    //! With the feature.

    use tracing::{Level, Span, event, span};

    use crate::engine::Engine;
    use crate::engine::event::LostCause;
    use crate::engine::op::{OpKind, Outcome};
    use crate::engine::slot::{NO_OP, SlotState};
    use crate::engine::view::NodeState;
    use crate::error::{Cause, UnlockError, Unlocked, Vote};
    use crate::key::Key;
    use crate::node::Now;
    use crate::quorum::{NodeId, NodeMask};
    use crate::time::Instant;

    /// Of locks and leases.
    const LOCK: &str = "redbolt::lock";

    /// Of nodes and their connections.
    const NODE: &str = "redbolt::node";

    /// The spans of operations under way.
    #[derive(Debug, Default)]
    pub(in crate::engine) struct Traces {
        ops: Vec<Spans>,
    }

    /// The spans of one operation.
    #[derive(Clone, Debug)]
    struct Spans {
        call: Span,
        attempt: Span,
    }

    impl Spans {
        fn none() -> Self {
            Self { call: Span::none(), attempt: Span::none() }
        }
    }

    impl Traces {
        fn begin(&mut self, index: u32, call: Span) {
            let place = index as usize;
            if place >= self.ops.len() {
                self.ops.resize(place + 1, Spans::none());
            }
            if let Some(spans) = self.ops.get_mut(place) {
                *spans = Spans { call, attempt: Span::none() };
            }
        }

        fn end(&mut self, index: u32) -> Spans {
            let spans = self.ops.get_mut(index as usize);
            spans.map_or_else(Spans::none, |spans| std::mem::replace(spans, Spans::none()))
        }

        /// The innermost span of the operation.
        fn of(&self, index: u32) -> &Span {
            const NONE: &Span = &Span::none();
            let Some(spans) = self.ops.get(index as usize) else { return NONE };
            if spans.attempt.is_none() { &spans.call } else { &spans.attempt }
        }
    }

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

    impl Engine {
        fn name_of(&self, id: NodeId) -> &str {
            self.names.get(id.index()).map_or("", |name| name)
        }

        /// The key of a slot as its caller knows it.
        fn key_text(&self, slot_index: u32) -> String {
            self.plain_key(self.slots.at(slot_index).key.as_bytes()).escape_ascii().to_string()
        }

        /// The span of the operation that a slot is for.
        fn span_of_slot(&self, slot_index: u32) -> &Span {
            let op = self.slots.at(slot_index).op;
            self.traces.of(op)
        }

        #[cold]
        pub(in crate::engine) fn trace_acquire(&mut self, index: u32, slot: u32, ttl_ms: u32) {
            let key = self.key_text(slot);
            let call = span!(target: LOCK, Level::DEBUG, "acquire", key, ttl_ms);
            self.traces.begin(index, call);
        }

        #[cold]
        pub(in crate::engine) fn trace_attempt(&mut self, index: u32) {
            let voters = self.voters.count();
            if let Some(spans) = self.traces.ops.get_mut(index as usize) {
                let call = &spans.call;
                spans.attempt = span!(target: LOCK, parent: call, Level::DEBUG, "attempt", voters);
            }
        }

        #[cold]
        pub(in crate::engine) fn trace_vote(&self, id: NodeId, slot_index: u32, vote: Vote) {
            let slot = self.slots.at(slot_index);
            let is_late = !matches!(slot.state, SlotState::Acquiring | SlotState::Gated);
            let span = if is_late { &Span::none() } else { self.traces.of(slot.op) };
            let (node, (vote, cause)) = (self.name_of(id), vote_name(vote));
            let cause = cause.name();
            event!(
                name: "vote", target: LOCK, parent: span, Level::TRACE,
                node, vote, cause, is_late, "vote"
            );
        }

        #[cold]
        pub(in crate::engine) fn trace_decision(&mut self, index: u32, outcome: Outcome) {
            let op = self.ops.at(index);
            let (granted, denied) = (op.round.granted.count(), op.round.denied.count());
            let (failed, unknown) = (op.round.failed.count(), op.round.unknown.count());
            let (needed, outcome) = (self.settings.quorum, outcome_name(outcome));
            event!(
                name: "quorum", target: LOCK, parent: self.traces.of(index), Level::DEBUG,
                outcome, granted, denied, failed, unknown, needed, "quorum"
            );
            if let Some(spans) = self.traces.ops.get_mut(index as usize) {
                spans.attempt = Span::none();
            }
        }

        #[cold]
        pub(in crate::engine) fn trace_lease(&mut self, index: u32, now: Instant) {
            let op = self.ops.at(index);
            let slot = self.slots.at(op.slot);
            let votes = op.round.granted.count();
            let validity_ms = u64::try_from(now.until(slot.ends).as_millis()).unwrap_or(u64::MAX);
            let spans = self.traces.end(index);
            event!(
                name: "lease", target: LOCK, parent: &spans.call, Level::DEBUG,
                votes, validity_ms, "lease"
            );
        }

        #[cold]
        pub(in crate::engine) fn trace_refused(&mut self, index: u32, outcome: Outcome) {
            let spans = self.traces.end(index);
            let outcome = outcome_name(outcome);
            event!(
                name: "refused", target: LOCK, parent: &spans.call, Level::DEBUG,
                outcome, "no lease"
            );
        }

        #[cold]
        pub(in crate::engine) fn trace_wait(&self, index: u32) {
            event!(name: "wait", target: LOCK, parent: self.traces.of(index), Level::DEBUG, "wait");
        }

        #[cold]
        pub(in crate::engine) fn trace_woken(&self, index: u32, id: NodeId) {
            let node = self.name_of(id);
            event!(
                name: "wake", target: LOCK, parent: self.traces.of(index), Level::DEBUG,
                node, direction = "received", "wake"
            );
        }

        #[cold]
        pub(in crate::engine) fn trace_wake(&self, id: NodeId, key: &Key) {
            let node = self.name_of(id);
            let key = self.plain_key(key.as_bytes()).escape_ascii().to_string();
            event!(
                name: "wake", target: LOCK, Level::DEBUG, node, key, direction = "sent", "wake"
            );
        }

        /// What a slot may have written is deleted: behind a failed attempt, or for its holder.
        #[cold]
        pub(in crate::engine) fn trace_release(&mut self, slot_index: u32) {
            let slot = self.slots.at(slot_index);
            let (nodes, op) = (slot.holds.count(), slot.op);
            let key = self.key_text(slot_index);
            if op != NO_OP && self.ops.at(op).kind == OpKind::Release {
                let span = span!(target: LOCK, Level::DEBUG, "release", key, nodes);
                return self.traces.begin(op, span);
            }
            let span = self.span_of_slot(slot_index);
            event!(
                name: "release", target: LOCK, parent: span, Level::DEBUG, key, nodes, "release"
            );
        }

        #[cold]
        pub(in crate::engine) fn trace_released(
            &mut self,
            index: u32,
            result: Result<Unlocked, UnlockError>,
        ) {
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
        pub(in crate::engine) fn trace_extension(&mut self, index: u32, slot: u32, ttl_ms: u32) {
            let key = self.key_text(slot);
            let by = match self.ops.at(index).kind {
                OpKind::Keep => "keep_alive",
                OpKind::Adopt => "adoption",
                OpKind::Extend
                | OpKind::Free
                | OpKind::Acquire
                | OpKind::Release
                | OpKind::Query => "caller",
            };
            let span = span!(target: LOCK, Level::DEBUG, "extension", key, ttl_ms, by);
            self.traces.begin(index, span);
        }

        #[cold]
        pub(in crate::engine) fn trace_extended(&mut self, index: u32, is_won: bool) {
            let op = self.ops.at(index);
            let (extended, gone) = (op.tally.yes.count(), op.tally.no.count());
            let spans = self.traces.end(index);
            event!(
                name: "extended", target: LOCK, parent: &spans.call, Level::DEBUG,
                is_won, extended, gone, "extended"
            );
        }

        #[cold]
        pub(in crate::engine) fn trace_lost(&self, slot_index: u32, cause: LostCause) {
            let key = self.key_text(slot_index);
            let cause = match cause {
                LostCause::Expired => "expired",
                LostCause::Gone => "gone",
            };
            event!(name: "lost", target: LOCK, Level::WARN, key, cause, "lease lost");
        }

        #[cold]
        pub(in crate::engine) fn trace_debt(&self, id: NodeId, slot_index: u32) {
            let (node, key) = (self.name_of(id), self.key_text(slot_index));
            event!(name: "debt", target: NODE, Level::DEBUG, node, key, state = "owed", "debt");
        }

        #[cold]
        pub(in crate::engine) fn trace_debt_paid(&self, id: NodeId, slot_index: u32) {
            let (node, key) = (self.name_of(id), self.key_text(slot_index));
            event!(name: "debt", target: NODE, Level::DEBUG, node, key, state = "paid", "debt");
        }

        #[cold]
        pub(in crate::engine) fn trace_debt_dropped(&self, id: NodeId) {
            let node = self.name_of(id);
            event!(name: "debt", target: NODE, Level::WARN, node, state = "dropped", "debt");
        }

        #[cold]
        pub(in crate::engine) fn trace_left(&self, id: NodeId, count: usize) {
            let node = self.name_of(id);
            event!(name: "debt", target: NODE, Level::WARN, node, state = "left", count, "debt");
        }

        /// A node's state has changed.
        #[cold]
        pub(in crate::engine) fn trace_node(&self, id: NodeId, now: Now) {
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
            let able = |id: &NodeId| self.node(*id).can_vote();
            let able = NodeMask::first(self.nodes.len()).into_iter().filter(able).count();
            able >= self.settings.quorum as usize
        }
    }
}

//! Hands the engine's counts since the last export to the recorder of the `metrics` facade, at most
//! once per second.
//!
//! # Invariants
//!
//! - It costs a lock nothing: a pass compares one time, and exports when that time has come.
//! - A driver with nothing to do sleeps. After a pass it wakes once to export, and again only while
//!   there are new values, or a call or lease grows older.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Label, Unit};

use super::clock;
use crate::count::{CallCounts, CallEnd, Oldest};
use crate::engine::{Engine, Histogram, NodeState, Series};
use crate::time::Instant;

/// The time between two exports that a driver makes by itself.
const EVERY: Duration = Duration::from_secs(1);

/// Returns the times of the oldest call and the oldest lease.
pub(crate) type AskOldest = Box<dyn Fn(Instant) -> Oldest + Send + Sync>;

/// The values that the recorder already has.
pub(super) struct Exporter {
    /// When the next export is due; [`Instant::MAX`] while nothing has happened since the last.
    due: Instant,
    counts: BTreeMap<Series, u64>,
    attempt_times: Vec<u64>,
    call_times: [Vec<u64>; CallEnd::ALL.len()],
    hold_times: Vec<u64>,
    /// The calls of the handle that owns the driver, if the handle counts them itself.
    pub(super) calls: Option<Arc<CallCounts>>,
    /// Asks that handle for its oldest call and lease.
    pub(super) oldest: Option<AskOldest>,
    /// The client's name, to tell several in one program apart.
    client: Option<String>,
    is_described: bool,
}

impl Exporter {
    pub(super) const fn new(client: Option<String>) -> Self {
        Self {
            due: Instant::MAX,
            counts: BTreeMap::new(),
            attempt_times: Vec::new(),
            call_times: [const { Vec::new() }; CallEnd::ALL.len()],
            hold_times: Vec::new(),
            calls: None,
            oldest: None,
            client,
            is_described: false,
        }
    }

    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    fn labels(&self) -> Vec<Label> {
        let client = self.client.as_ref();
        client.map(|name| Label::new("client", name.clone())).into_iter().collect()
    }

    /// The driver calls this at the end of a pass.
    #[inline]
    pub(super) fn export_if_due(&mut self, engine: &Engine, now: Instant) {
        if self.due == Instant::MAX {
            self.due = now + EVERY;
        } else if self.due <= now {
            let is_new = self.export(engine);
            self.due = if is_new { now + EVERY } else { Instant::MAX };
        }
    }

    /// The driver ends: its gauges must not show a call or lease that grows older.
    pub(super) fn export_last(&mut self, engine: &Engine) {
        self.oldest = Some(Box::new(|_| Oldest::default()));
        self.export(engine);
    }

    /// Exports everything. Returns whether there was anything new, or a call or lease grows older.
    #[cold]
    pub(super) fn export(&mut self, engine: &Engine) -> bool {
        let now = clock::now();
        let nodes = engine.nodes(now);
        if !std::mem::replace(&mut self.is_described, true) {
            describe();
        }
        let oldest = self.oldest.as_ref();
        let oldest = oldest.map_or_else(|| engine.oldest(), |oldest| oldest(now));
        let mut is_new = oldest.is_any();
        let calls = self.calls.clone();
        let calls = calls.as_deref().unwrap_or_else(|| engine.call_counts());
        for (series, count) in engine.counts_with(calls) {
            let mut labels = self.labels();
            let node = series.node.and_then(|node| nodes.get(node.index()));
            labels.extend(node.map(|node| Label::new("node", node.name.clone())));
            let own = series.labels();
            labels.extend(own.map(|(name, value)| Label::from_static_parts(name, value)));
            // Even a zero: a rate needs a first value.
            let counter = metrics::counter!(series.name, labels);
            let before = self.counts.insert(series, count);
            let more = count.wrapping_sub(before.unwrap_or(0));
            is_new |= more > 0;
            counter.increment(more);
        }
        let labels = self.labels();
        let (attempts, name) = (engine.attempt_times(), "redbolt_attempt_seconds");
        is_new |= export_times(name, &labels, attempts, &mut self.attempt_times);
        let name = "redbolt_hold_seconds";
        is_new |= export_times(name, &labels, calls.holds(), &mut self.hold_times);
        for ((end, waits), before) in calls.waits().zip(&mut self.call_times) {
            if end.has_begun() {
                let outcome = Label::from_static_parts("outcome", end.name());
                let labels: Vec<_> = labels.iter().cloned().chain([outcome]).collect();
                is_new |= export_times("redbolt_call_seconds", &labels, waits, before);
            }
        }

        let age =
            |since: Option<Instant>| since.map_or(0.0, |at| now.saturating_since(at).as_secs_f64());
        let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX).into();
        for (name, value) in [
            ("redbolt_oldest_call_seconds", age(oldest.call)),
            ("redbolt_oldest_hold_seconds", age(oldest.hold)),
            ("redbolt_calls_queued", count(calls.queued())),
            ("redbolt_leases_without_spare_vote", count(engine.without_spare_vote() as u64)),
            ("redbolt_voters", engine.voters().count().into()),
            ("redbolt_quorum", engine.quorum().into()),
            ("redbolt_in_flight", count(engine.in_flight() as u64)),
        ] {
            metrics::gauge!(name, labels.clone()).set(value);
        }
        for node in nodes {
            let mut labels = self.labels();
            labels.push(Label::new("node", node.name));
            for state in STATES {
                let is_in = node.state.name() == state.name();
                let mut labels = labels.clone();
                labels.push(Label::from_static_parts("state", state.name()));
                metrics::gauge!("redbolt_node_state", labels).set(u32::from(is_in));
            }
            let debts: f64 = count(node.debts as u64);
            metrics::gauge!("redbolt_node_debts", labels.clone()).set(debts);
            if let Some(round_trip) = node.round_trip {
                let name = "redbolt_node_round_trip_seconds";
                metrics::gauge!(name, labels).set(round_trip.as_secs_f64());
            }
        }
        is_new
    }
}

/// Exports the durations that the buckets have gained since the last export. Returns whether any
/// did.
fn export_times(
    name: &'static str,
    labels: &[Label],
    times: &Histogram,
    before: &mut Vec<u64>,
) -> bool {
    let histogram = metrics::histogram!(name, labels.to_vec());
    let mut is_new = false;
    for (nth, (middle, count)) in times.buckets().enumerate() {
        if before.len() <= nth {
            before.push(0);
        }
        let Some(before) = before.get_mut(nth) else { continue };
        let more = count.wrapping_sub(std::mem::replace(before, count));
        if more > 0 {
            is_new = true;
            let more = usize::try_from(more).unwrap_or(usize::MAX);
            histogram.record_many(middle.as_secs_f64(), more);
        }
    }
    is_new
}

/// Every state, so that the series of a state that a node has left goes to zero.
const STATES: [NodeState; 8] = [
    NodeState::Disconnected,
    NodeState::Connecting,
    NodeState::Greeting,
    NodeState::Admitted,
    NodeState::Quarantined(Duration::ZERO),
    NodeState::Refused,
    NodeState::Stalled,
    NodeState::Unlisted,
];

/// Describes each name, for recorders that show descriptions.
fn describe() {
    let counters = [
        ("redbolt_calls_total", "Calls for a lock, by how they ended"),
        ("redbolt_attempts_total", "Attempts at a lock, by how they ended"),
        ("redbolt_votes_total", "Votes on attempts, by node, vote and cause"),
        ("redbolt_extensions_total", "Extensions, by how they ended and by their origin"),
        ("redbolt_releases_total", "Releases of leases, by how they ended"),
        ("redbolt_leases_lost_total", "Leases kept alive that were lost, by cause"),
        ("redbolt_fence_second_rounds_total", "Fenced attempts that needed a second round trip"),
        ("redbolt_leases_total", "Leases that were won, by the way in which they were won"),
        ("redbolt_wakes_total", "Messages that wake waiters, sent and received"),
        ("redbolt_transfers_total", "Locks handed over to a waiter, or taken over from a holder"),
        ("redbolt_connections_lost_total", "Connections and attempts at one that ended"),
        ("redbolt_debts_total", "Releases that could not be sent to a node when they were due"),
        ("redbolt_debts_dropped_total", "Debts that were given up because there was no room"),
        ("redbolt_debts_left_total", "Releases without an answer when their driver was dropped"),
    ];
    for (name, text) in counters {
        metrics::describe_counter!(name, Unit::Count, text);
    }
    let gauges = [
        ("redbolt_voters", Unit::Count, "Nodes that may vote"),
        ("redbolt_quorum", Unit::Count, "Votes that a lock needs"),
        ("redbolt_in_flight", Unit::Count, "Operations under way"),
        ("redbolt_calls_queued", Unit::Count, "Calls behind others of their process"),
        (
            "redbolt_leases_without_spare_vote",
            Unit::Count,
            "Leases that end if one more node loses them",
        ),
        ("redbolt_oldest_call_seconds", Unit::Seconds, "Age of the oldest call for a lock"),
        ("redbolt_oldest_hold_seconds", Unit::Seconds, "Age of the oldest lease that is held"),
        ("redbolt_node_state", Unit::Count, "1 for the state that a node is in, else 0"),
        ("redbolt_node_debts", Unit::Count, "Releases owed to a node"),
        ("redbolt_node_round_trip_seconds", Unit::Seconds, "Round trip of the last greeting"),
    ];
    for (name, unit, text) in gauges {
        metrics::describe_gauge!(name, unit, text);
    }
    let times = [
        ("redbolt_attempt_seconds", "Attempts that won, from their first byte to the hand-over"),
        ("redbolt_call_seconds", "Calls for a lock, with all waiting, by how they ended"),
        ("redbolt_hold_seconds", "Leases, from the hand-over to the caller to the unlock or drop"),
    ];
    for (name, text) in times {
        metrics::describe_histogram!(name, Unit::Seconds, text);
    }
}

//! The engine's counts, for the feature `metrics`: one addition per event, read only by the
//! exporter, as series.
//!
//! # Invariants
//!
//! - The engine itself never reads them: with and without them it sends the same bytes.
//! - No series names a key, a token or text from a server.

use crate::count::{CallCounts, CallEnd};
use crate::engine::event::LostCause;
use crate::engine::locks::op::{Verdict, Way};
use crate::engine::nodes::Nodes;
use crate::error::{UnlockError, Unlocked};
use crate::histogram::Histogram;
use crate::quorum::NodeId;
use crate::slab::{Index as _, SlotIndex};
use crate::time::Instant;

/// The counts of an engine; each node keeps its own.
#[derive(Debug, Default)]
pub(in crate::engine) struct Counts {
    pub(in crate::engine) attempts: Ends,
    /// Extensions that callers began; `keeps` counts the engine's own.
    pub(in crate::engine) extensions: Ends,
    pub(in crate::engine) keeps: Ends,
    pub(in crate::engine) released: u64,
    pub(in crate::engine) not_held: u64,
    pub(in crate::engine) unknown: u64,
    pub(in crate::engine) unreported: u64,
    pub(in crate::engine) lost_expired: u64,
    pub(in crate::engine) lost_gone: u64,
    pub(in crate::engine) lost_forgotten: u64,
    pub(in crate::engine) wakes_sent: u64,
    pub(in crate::engine) wakes_received: u64,
    pub(in crate::engine) transfers_sent: u64,
    pub(in crate::engine) transfers_received: u64,
    /// By [`Way`].
    pub(in crate::engine) leases: [u64; 4],
    /// Fenced attempts that needed a second round.
    pub(in crate::engine) second_rounds: u64,
    /// From the first byte of the winning attempt to its hand-over.
    pub(in crate::engine) attempt_times: Histogram,
    pub(in crate::engine) calls: CallCounts,
    /// When each lease was handed over, by the place of its slot.
    handed_over: Vec<Instant>,
}

/// The engine never reads its counts, so those of a copied engine begin anew.
#[cfg(feature = "sim")]
impl Clone for Counts {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// How attempts or extensions ended: won, taken or lost, without a quorum, expired, cancelled.
#[derive(Debug, Default)]
pub(in crate::engine) struct Ends(pub(in crate::engine) [u64; 5]);

impl Ends {
    pub(in crate::engine) const fn ended(&mut self, outcome: Verdict) {
        let Self([won, taken, no_quorum, expired, cancelled]) = self;
        *match outcome {
            Verdict::Won => won,
            Verdict::Taken | Verdict::Lost => taken,
            Verdict::NoQuorum => no_quorum,
            Verdict::Expired => expired,
            Verdict::Cancelled => cancelled,
            Verdict::Open | Verdict::Unlocked(_) | Verdict::Answered => return,
        } += 1;
    }
}

impl Counts {
    /// A call that began at `began` ends, with or without a lease.
    #[inline]
    pub(in crate::engine) fn call_ended(&mut self, end: CallEnd, began: Instant, now: Instant) {
        self.calls.ended(end, now.nanos_since(began));
    }

    /// A call was won, by an attempt that began at `attempt_began`.
    #[inline(always)]
    pub(in crate::engine) fn won(&mut self, way: Way, attempt_began: Instant, now: Instant) {
        let [first, transfer, wake, poll] = &mut self.leases;
        *match way {
            Way::First => first,
            Way::Transfer => transfer,
            Way::Wake => wake,
            Way::Poll => poll,
        } += 1;
        self.attempts.ended(Verdict::Won);
        self.attempt_times.add(now.nanos_since(attempt_began));
    }

    /// The engine hands a lease over.
    #[inline]
    pub(in crate::engine) fn hold_begins(&mut self, slot: SlotIndex, now: Instant) {
        let place = slot.place();
        if place >= self.handed_over.len() {
            self.handed_over.resize(place + 1, now);
        }
        if let Some(begins) = self.handed_over.get_mut(place) {
            *begins = now;
        }
    }

    /// When the lease of that slot was handed over.
    pub(in crate::engine) fn hold_began(&self, slot: SlotIndex) -> Option<Instant> {
        self.handed_over.get(slot.place()).copied()
    }

    /// The holder unlocks or drops a lease.
    #[inline]
    pub(in crate::engine) fn hold_ends(&mut self, slot: SlotIndex, now: Instant) {
        if let Some(&began) = self.handed_over.get(slot.place()) {
            self.calls.held(now.nanos_since(began));
        }
    }

    /// A release was reported.
    pub(in crate::engine) const fn released(&mut self, result: Result<Unlocked, UnlockError>) {
        match result {
            Ok(Unlocked::Released) => self.released += 1,
            Ok(Unlocked::Unknown) => self.unknown += 1,
            // A release that has begun has no other error.
            Err(_) => self.not_held += 1,
        }
    }

    /// A lease in the engine's care was lost.
    pub(in crate::engine) const fn lost(&mut self, cause: LostCause) {
        match cause {
            LostCause::Expired => self.lost_expired += 1,
            LostCause::Gone => self.lost_gone += 1,
            LostCause::Forgotten => self.lost_forgotten += 1,
        }
    }

    /// The counts since the engine began, one number per series; they never decrease. `calls`
    /// counts the calls of the engine's callers, or of the callers of the handle that owns it.
    pub(in crate::engine) fn series(
        &self,
        calls: &CallCounts,
        nodes: &Nodes,
    ) -> Vec<(Series, u64)> {
        let mut all = Vec::new();
        all.extend(calls.waits().map(|(end, waits)| {
            (Series::new("redbolt_calls_total", ("outcome", end.name())), waits.count())
        }));
        for (name, lost, by, ends) in [
            ("redbolt_attempts_total", "taken", NO_LABEL, &self.attempts),
            ("redbolt_extensions_total", "lost", ("by", "caller"), &self.extensions),
            ("redbolt_extensions_total", "lost", ("by", "keep_alive"), &self.keeps),
        ] {
            let outcomes = ["won", lost, "no_quorum", "expired", "cancelled"];
            all.extend(outcomes.into_iter().zip(ends.0).map(|(outcome, count)| {
                (Series { name, node: None, labels: [("outcome", outcome), by] }, count)
            }));
        }
        let [first, transfer, wake, poll] = self.leases;
        let table = [
            ("redbolt_releases_total", ("outcome", "released"), self.released),
            ("redbolt_releases_total", ("outcome", "not_held"), self.not_held),
            ("redbolt_releases_total", ("outcome", "unknown"), self.unknown),
            ("redbolt_releases_total", ("outcome", "unreported"), self.unreported),
            ("redbolt_leases_lost_total", ("cause", "expired"), self.lost_expired),
            ("redbolt_leases_lost_total", ("cause", "gone"), self.lost_gone),
            ("redbolt_leases_lost_total", ("cause", "forgotten"), self.lost_forgotten),
            ("redbolt_leases_total", ("by", "first"), first),
            ("redbolt_leases_total", ("by", "transfer"), transfer),
            ("redbolt_leases_total", ("by", "wake"), wake),
            ("redbolt_leases_total", ("by", "poll"), poll),
            ("redbolt_leases_total", ("by", "again"), calls.again()),
            ("redbolt_leases_total", ("by", "turn"), calls.turns()),
            ("redbolt_wakes_total", ("direction", "sent"), self.wakes_sent),
            ("redbolt_wakes_total", ("direction", "received"), self.wakes_received),
            ("redbolt_transfers_total", ("direction", "sent"), self.transfers_sent),
            ("redbolt_transfers_total", ("direction", "received"), self.transfers_received),
            ("redbolt_fence_second_rounds_total", NO_LABEL, self.second_rounds),
        ];
        all.extend(table.map(|(name, label, count)| (Series::new(name, label), count)));
        for (node, id) in nodes.iter().zip((0..).map_while(NodeId::new)) {
            let votes = "redbolt_votes_total";
            let mut tell = |name, labels, count| {
                all.push((Series { name, node: Some(id), labels }, count));
            };
            let counts = &node.counts;
            tell(votes, [("vote", "granted"), ("cause", "none")], counts.granted);
            tell(votes, [("vote", "denied"), ("cause", "held")], counts.denied);
            for (cause, count) in counts.failed.iter() {
                tell(votes, [("vote", "failed"), ("cause", cause.name())], count);
            }
            for (cause, count) in counts.unknown.iter() {
                tell(votes, [("vote", "unknown"), ("cause", cause.name())], count);
            }
            for (cause, count) in counts.lost.iter() {
                let name = "redbolt_connections_lost_total";
                tell(name, [("cause", cause.name()), NO_LABEL], count);
            }
            let none = [NO_LABEL; 2];
            tell("redbolt_debts_total", none, counts.debts);
            tell("redbolt_debts_dropped_total", none, node.debts.dropped());
            tell("redbolt_debts_left_total", none, counts.left);
        }
        all
    }
}

/// The identity of one count: its name and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Series {
    /// The name in the list of `docs/observing.md`.
    pub name: &'static str,
    /// The node, if the count belongs to one.
    pub node: Option<NodeId>,
    labels: [(&'static str, &'static str); 2],
}

impl Series {
    const fn new(name: &'static str, label: (&'static str, &'static str)) -> Self {
        Self { name, node: None, labels: [label, NO_LABEL] }
    }

    /// The labels besides the node.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        self.labels.into_iter().filter(|label| *label != NO_LABEL)
    }
}

const NO_LABEL: (&str, &str) = ("", "");

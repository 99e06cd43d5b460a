//! The counts as series, for an exporter.

use crate::count::CallCounts;
use crate::engine::locks::core::Locks;
use crate::quorum::NodeId;

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

impl Locks {
    /// The counts since the engine began, one number per series; they never decrease. `calls`
    /// counts the calls of the engine's callers, or of the callers of the handle that owns it.
    pub(in crate::engine) fn counts(&self, calls: &CallCounts) -> Vec<(Series, u64)> {
        let mut all = Vec::new();
        let counts = &self.counts;
        all.extend(calls.waits().map(|(end, waits)| {
            (Series::new("redbolt_calls_total", ("outcome", end.name())), waits.count())
        }));
        for (name, lost, by, ends) in [
            ("redbolt_attempts_total", "taken", NO_LABEL, &counts.attempts),
            ("redbolt_extensions_total", "lost", ("by", "caller"), &counts.extensions),
            ("redbolt_extensions_total", "lost", ("by", "keep_alive"), &counts.keeps),
        ] {
            let outcomes = ["won", lost, "no_quorum", "expired", "cancelled"];
            all.extend(outcomes.into_iter().zip(ends.0).map(|(outcome, count)| {
                (Series { name, node: None, labels: [("outcome", outcome), by] }, count)
            }));
        }
        let [first, transfer, wake, poll] = counts.leases;
        let table = [
            ("redbolt_releases_total", ("outcome", "released"), counts.released),
            ("redbolt_releases_total", ("outcome", "not_held"), counts.not_held),
            ("redbolt_releases_total", ("outcome", "unknown"), counts.unknown),
            ("redbolt_releases_total", ("outcome", "unreported"), counts.unreported),
            ("redbolt_leases_lost_total", ("cause", "expired"), counts.lost_expired),
            ("redbolt_leases_lost_total", ("cause", "gone"), counts.lost_gone),
            ("redbolt_leases_lost_total", ("cause", "forgotten"), counts.lost_forgotten),
            ("redbolt_leases_total", ("by", "first"), first),
            ("redbolt_leases_total", ("by", "transfer"), transfer),
            ("redbolt_leases_total", ("by", "wake"), wake),
            ("redbolt_leases_total", ("by", "poll"), poll),
            ("redbolt_leases_total", ("by", "again"), calls.again()),
            ("redbolt_leases_total", ("by", "turn"), calls.turns()),
            ("redbolt_wakes_total", ("direction", "sent"), counts.wakes_sent),
            ("redbolt_wakes_total", ("direction", "received"), counts.wakes_received),
            ("redbolt_transfers_total", ("direction", "sent"), counts.transfers_sent),
            ("redbolt_transfers_total", ("direction", "received"), counts.transfers_received),
            ("redbolt_fence_second_rounds_total", NO_LABEL, counts.second_rounds),
        ];
        all.extend(table.map(|(name, label, count)| (Series::new(name, label), count)));
        for (node, id) in self.nodes.iter().zip((0..).map_while(NodeId::new)) {
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

//! The counts as series, for an exporter.

use crate::count::{CallCounts, Oldest};
use crate::engine::locks::core::Locks;
use crate::engine::locks::op::OpKind;
use crate::engine::locks::slot::Slot;
use crate::engine::locks::steps::TokenState;
use crate::quorum::NodeId;
use crate::slab::KeepIndex;

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
        let table = [
            ("redbolt_releases_total", ("outcome", "released"), counts.released),
            ("redbolt_releases_total", ("outcome", "not_held"), counts.not_held),
            ("redbolt_releases_total", ("outcome", "unknown"), counts.unknown),
            ("redbolt_releases_total", ("outcome", "unreported"), counts.unreported),
            ("redbolt_leases_lost_total", ("cause", "expired"), counts.lost_expired),
            ("redbolt_leases_lost_total", ("cause", "gone"), counts.lost_gone),
            ("redbolt_leases_lost_total", ("cause", "forgotten"), counts.lost_forgotten),
            ("redbolt_leases_total", ("by", "first"), counts.leases.first),
            ("redbolt_leases_total", ("by", "transfer"), counts.leases.transfer),
            ("redbolt_leases_total", ("by", "wake"), counts.leases.wake),
            ("redbolt_leases_total", ("by", "poll"), counts.leases.poll),
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

    /// How many leases have no more votes than they need, though there are more nodes. Costs a look
    /// at every slot.
    pub(in crate::engine) fn without_spare_vote(&self) -> usize {
        let electorate = &self.settings.electorate;
        let is_tight = |slot: &Slot| {
            let has_spare = self.settings.electorate_of(slot).has_spare(slot.votes());
            slot.state() == TokenState::Held && !has_spare
        };
        let is_never_spare = !electorate.has_spare(self.nodes.all());
        let tight = || self.slots.iter().filter(|(_, it)| is_tight(it)).count();
        if is_never_spare { 0 } else { tight() }
    }

    /// When the oldest call for a lock began, and since when the oldest lease has its caller. Costs
    /// a look at every operation and slot: taking a lock notes nothing for it.
    pub(in crate::engine) fn oldest(&self) -> Oldest {
        let mut oldest = Oldest::default();
        let is_announced =
            |keep: Option<KeepIndex>| keep.is_some_and(|keep| self.keeps.at(keep).is_announced);
        for op in self.ops.iter().filter(|op| op.kind == OpKind::Acquire) {
            if !is_announced(op.keep) {
                oldest.note_call(op.called.at);
            }
        }
        for (index, slot) in self.slots.iter() {
            if slot.state() == TokenState::Held && !is_announced(self.keep_of(index)) {
                self.counts.hold_began(index).into_iter().for_each(|at| oldest.note_hold(at));
            }
        }
        oldest
    }
}

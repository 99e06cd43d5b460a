//! What the check of a configuration computes.

use crate::quorum::{Drift, Electorate, NodeMask};
use crate::rules;

/// The values that the check of a configuration computes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    /// The nodes of the list, and how many of their votes make a quorum.
    pub(crate) list: (NodeMask, u32),
    pub(crate) next: Option<(NodeMask, u32)>,
    pub(crate) drift: Drift,
    /// The shortest TTL that is longer than its own drift, and the longest TTL, in milliseconds.
    pub(crate) least_ttl_ms: u32,
    pub(crate) most_ttl_ms: u32,
    /// How long a restarted node does not vote, in milliseconds.
    pub(crate) guard_ms: u64,
    /// Why no lock can be fenced.
    pub(crate) no_fences: Option<&'static str>,
}

impl Checked {
    /// The nodes that decide on a lock.
    pub(crate) fn electorate(&self) -> Electorate {
        let of = |(nodes, quorum)| Electorate::of(nodes, rules::quorum(quorum));
        let first = of(self.list);
        let Some((nodes, quorum)) = self.next else { return first };
        let union = nodes.union(self.list.0);
        let together = Electorate::of(union, union.count() / 2 + 1);
        rules::electorate(first.and(nodes, rules::quorum(quorum)), together)
    }
}

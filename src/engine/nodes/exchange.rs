//! Nodes that join the client's lists, and nodes that have left them.

use super::Nodes;
use crate::node::{Node, NodeState, Now};
use crate::quorum::{Electorate, NodeId, NodeMask};
use crate::time::Instant;

impl Nodes {
    /// Takes these nodes behind the others. They are in no list yet.
    pub(in crate::engine) fn add(
        &mut self,
        nodes: Vec<Node>,
        names: impl Iterator<Item = Box<str>>,
        now: Instant,
    ) {
        self.names = self.names.iter().cloned().chain(names).collect();
        self.shown.extend(nodes.iter().map(|_| (NodeState::Disconnected, now)));
        self.nodes.extend(nodes);
        self.restless = self.every();
    }

    /// The nodes that could vote now, in the lists or not.
    pub(in crate::engine) fn able(&self) -> NodeMask {
        self.every().into_iter().filter(|&id| self.at(id).can_vote()).collect()
    }

    /// From now on these lists decide. The caller refreshes every node.
    pub(in crate::engine) fn list(&mut self, electorate: &Electorate) {
        self.listed = electorate.nodes();
        self.is_careful = !electorate.takes_any();
    }

    /// The client calls itself so from now on, at connected nodes, too.
    pub(in crate::engine) fn rename(&mut self, name: &str, now: Now) {
        for id in self.every() {
            self.at_mut(id).rename(name, now.attended);
            self.with_output.set(id, self.at(id).has_output());
        }
    }

    /// The client needs a node again that it may have given up.
    pub(in crate::engine) fn take_back(&mut self, id: NodeId, now: Instant) {
        self.at_mut(id).take_back(now);
        self.restless.insert(id);
    }
}

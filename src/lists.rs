//! The lists of nodes of a configuration: the present list, and the list that is to replace it.

use crate::address::{self, Address};
use crate::config::Config;
use crate::error::ConfigError;
use crate::quorum::{NODES_MAX, NodeId, NodeMask};

impl Config {
    /// The list of nodes that is to replace the present one. While it is set, this client needs a
    /// quorum of each list for a lock. So it cannot hold a lock together with a client of either list.
    /// A node of both lists is one node, and its vote counts in both.
    ///
    /// Never run clients of the present list alone beside clients of the next list alone: they can hold
    /// one lock. `docs/servers.md` has the steps.
    ///
    /// A second list costs no further round trip, but each attempt waits for the slower of the two
    /// quorums. A release wakes a waiter, and does not hand the lock over to it.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); together the two lists may have 32 nodes, and a node of both needs
    /// the same database and encryption in both.
    pub fn next_nodes(
        mut self,
        nodes: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        let nodes = address::parse_list(nodes)?;
        self.next_list = Some(self.place(nodes)?);
        Ok(self)
    }

    /// The same settings with the lists of `other`. Nodes keep their places, also those that are in
    /// neither list any more, and new nodes go behind them.
    pub(crate) fn with_lists_of(&self, other: &Self) -> Result<Self, ConfigError> {
        let of = |list: NodeMask| {
            let nodes = other.nodes.iter().zip(NodeMask::first(NODES_MAX));
            nodes.filter(move |(_, id)| list.contains(*id)).map(|(node, _)| node.clone())
        };
        let mut config = self.clone();
        config.list = config.place(of(other.list))?;
        config.next_list = other.next_list.map(|next| config.place(of(next))).transpose()?;
        Ok(config)
    }

    /// Finds the places of these nodes, or gives them new ones.
    fn place(&mut self, nodes: impl IntoIterator<Item = Address>) -> Result<NodeMask, ConfigError> {
        let mut places = NodeMask::EMPTY;
        for node in nodes {
            let is_same = |other: &Address| other.endpoint() == node.endpoint();
            let index = self.nodes.iter().position(is_same).unwrap_or(self.nodes.len());
            match self.nodes.get(index) {
                None => self.nodes.push(node),
                // A node has one connection, and so one database. The same keys in another database
                // are other locks.
                Some(known)
                    if (known.database(), known.encryption)
                        != (node.database(), node.encryption) =>
                {
                    return Err(ConfigError::DuplicateNode { node: node.name().into() });
                }
                Some(_) => {}
            }
            let too_many = ConfigError::TooManyNodes { nodes: self.nodes.len() };
            places.insert(NodeId::new(index).ok_or(too_many)?);
        }
        Ok(places)
    }

    /// The nodes of all lists, in order.
    #[must_use]
    pub fn nodes(&self) -> &[Address] {
        &self.nodes
    }

    /// The nodes of the present list, and those of the [next](Self::next_nodes), if there is one.
    pub fn lists(&self) -> impl Iterator<Item = NodeMask> {
        std::iter::once(self.list).chain(self.next_list)
    }
}

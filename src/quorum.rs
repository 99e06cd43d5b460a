//! Nodes, sets of nodes, and how many votes make a quorum.
//!
//! Layer: bottom, plain values.

use std::fmt;

use crate::error::ConfigError;

/// The most nodes one client may have: a set of nodes is a mask of 32 bits.
pub(crate) const NODES_MAX: usize = 32;

/// One configured node, by its place in the list of the [`Config`](crate::Config).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u8);

impl NodeId {
    /// The node at place `index` of the configured list; `None` from 32 on.
    #[must_use]
    pub fn new(index: usize) -> Option<Self> {
        u8::try_from(index).ok().filter(|_| index < NODES_MAX).map(Self)
    }

    /// The node's place in the configured list.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A set of nodes, in the order of the [`Config`](crate::Config).
///
/// ```
/// # fn names(lease: &redbolt::Lease, nodes: &[String]) -> Vec<String> {
/// lease.votes().iter().filter_map(|node| nodes.get(node.index()).cloned()).collect()
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NodeMask(u32);

impl NodeMask {
    /// No node.
    pub(crate) const EMPTY: Self = Self(0);

    /// One node.
    pub(crate) const fn of(node: NodeId) -> Self {
        let mut mask = Self::EMPTY;
        mask.insert(node);
        mask
    }

    /// The first `count` nodes of the list.
    #[must_use]
    pub(crate) const fn first(count: usize) -> Self {
        if count >= NODES_MAX { Self(u32::MAX) } else { Self((1 << count) - 1) }
    }

    /// The same set, each node replaced by the next in the list.
    #[inline]
    pub(crate) const fn shifted(self) -> Self {
        Self(self.0 << 1)
    }

    /// The first node of the set.
    #[inline]
    pub(crate) fn first_node(self) -> Option<NodeId> {
        self.into_iter().next()
    }

    /// The nodes of the set, in order.
    #[must_use]
    pub const fn iter(self) -> NodeMaskIter {
        NodeMaskIter(self.0)
    }

    /// Whether `node` is in the set.
    #[must_use]
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & (1 << node.0) != 0
    }

    /// Adds `node`.
    pub(crate) const fn insert(&mut self, node: NodeId) {
        self.0 |= 1 << node.0;
    }

    /// Takes `node` out.
    pub(crate) const fn remove(&mut self, node: NodeId) {
        self.0 &= !(1 << node.0);
    }

    /// Adds `node` or takes it out.
    pub(crate) const fn set(&mut self, node: NodeId, is_in: bool) {
        if is_in {
            self.insert(node);
        } else {
            self.remove(node);
        }
    }

    /// How many nodes are in the set.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether at least `least` nodes are in the set. Cheaper than counting: processors of the
    /// x86-64 baseline have no instruction for that.
    #[inline]
    #[must_use]
    pub(crate) const fn has_at_least(self, least: u32) -> bool {
        let (mut rest, mut left) = (self.0, least);
        while left > 1 && rest != 0 {
            rest &= rest - 1;
            left -= 1;
        }
        rest != 0 || left == 0
    }

    /// Whether no node is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes that are in either set.
    #[must_use]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The nodes that are in both sets.
    #[must_use]
    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The nodes of this set that are not in `other`.
    #[must_use]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The bits, node 0 the lowest.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The set whose bits these are.
    #[must_use]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// The nodes of a set in the order of the list.
#[derive(Clone, Debug)]
pub struct NodeMaskIter(u32);

impl Iterator for NodeMaskIter {
    type Item = NodeId;

    #[inline]
    fn next(&mut self) -> Option<NodeId> {
        if self.0 == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a bit of a u32 has an index below 32")]
        let index = self.0.trailing_zeros() as u8;
        self.0 &= self.0 - 1;
        Some(NodeId(index))
    }
}

impl FromIterator<NodeId> for NodeMask {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        nodes.into_iter().fold(Self::EMPTY, |mask, node| mask.union(Self::of(node)))
    }
}

impl IntoIterator for NodeMask {
    type Item = NodeId;
    type IntoIter = NodeMaskIter;

    fn into_iter(self) -> NodeMaskIter {
        NodeMaskIter(self.0)
    }
}

impl fmt::Debug for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.into_iter().map(NodeId::index)).finish()
    }
}

/// How many nodes must grant a lock.
///
/// A lock with `votes` votes survives `votes + quorum - nodes - 1` nodes that lose its key unnoticed.
/// A lock with only a bare majority of an odd number of nodes survives none. Each vote that the quorum
/// has above the majority covers two such nodes. All clients of the same locks must use the same
/// quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Quorum {
    /// `nodes / 2 + 1`.
    #[default]
    Majority,
    /// This many votes: more than half of the nodes, at most all of them.
    AtLeast(usize),
}

impl Quorum {
    /// The number of votes needed among `nodes` nodes.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Quorum`] unless `nodes / 2 < votes <= nodes`: two smaller quorums need not
    /// share a node, and then two clients could hold the same lock.
    pub fn votes(self, nodes: usize) -> Result<u32, ConfigError> {
        let wanted = match self {
            Self::Majority => nodes / 2 + 1,
            Self::AtLeast(votes) => votes,
        };
        if wanted > nodes / 2 && wanted <= nodes {
            u32::try_from(wanted).map_err(|_| ConfigError::Quorum { wanted, nodes })
        } else {
            Err(ConfigError::Quorum { wanted, nodes })
        }
    }
}

/// The nodes that decide on a lock, and how many of their votes make a quorum. There is one list, or two
/// while nodes are exchanged: then a lock needs a quorum of each.
///
/// Two electorates exclude each other if they have a list in common: two quorums of one list share a
/// node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Electorate {
    first: List,
    /// Empty if there is one list.
    next: List,
    /// There is one list and only its nodes vote, so the number of votes decides.
    takes_any: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct List {
    nodes: NodeMask,
    quorum: u32,
    /// If so many nodes do not vote, no quorum is possible.
    blocked: u32,
}

impl List {
    const NONE: Self = Self { nodes: NodeMask::EMPTY, quorum: 0, blocked: 1 };

    fn of(nodes: NodeMask, quorum: u32) -> Self {
        Self { nodes, quorum, blocked: nodes.count().saturating_sub(quorum) + 1 }
    }
}

impl Electorate {
    /// Needs so many votes of these nodes.
    pub(crate) fn of(nodes: NodeMask, quorum: u32) -> Self {
        Self { first: List::of(nodes, quorum), next: List::NONE, takes_any: true }
    }

    /// Needs so many votes of these nodes, too.
    pub(crate) fn and(self, nodes: NodeMask, quorum: u32) -> Self {
        Self { next: List::of(nodes, quorum), takes_any: false, ..self }
    }

    /// The same lists, counting only votes of their nodes.
    pub(crate) const fn among_others(self) -> Self {
        Self { takes_any: false, ..self }
    }

    /// The same lists. With one list, only the number of votes decides. The caller has removed votes of
    /// other nodes.
    pub(crate) fn alone(self) -> Self {
        Self { takes_any: !self.is_joint(), ..self }
    }

    /// The nodes of all lists.
    pub(crate) const fn nodes(&self) -> NodeMask {
        self.first.nodes.union(self.next.nodes)
    }

    /// Whether both have the same lists, in the same order.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.first == other.first && self.next == other.next
    }

    /// Whether both have a list in common, and so exclude each other.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        let is_of_other = |list| list == other.first || other.is_joint() && list == other.next;
        is_of_other(self.first) || self.is_joint() && is_of_other(self.next)
    }

    /// The larger quorum. Fewer votes never suffice; lists without a common node need more.
    pub(crate) const fn least(&self) -> u32 {
        let (first, next) = (self.first.quorum, self.next.quorum);
        if first > next { first } else { next }
    }

    /// The nodes of each list, and how many of their votes a lock needs.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (NodeMask, u32)> {
        let lists = [self.first, self.next].into_iter().take(1 + usize::from(self.is_joint()));
        lists.map(|list| (list.nodes, list.quorum))
    }

    /// The first list alone, where there may be votes of other nodes, too.
    pub(crate) fn first_alone(self) -> Self {
        Self { next: List::NONE, takes_any: false, ..self }
    }

    /// Whether the number of votes decides, whatever their nodes.
    pub(crate) const fn takes_any(&self) -> bool {
        self.takes_any
    }

    /// Whether there are two lists.
    pub(crate) const fn is_joint(&self) -> bool {
        !self.next.nodes.is_empty()
    }

    /// Whether these votes make a quorum.
    #[inline]
    pub(crate) const fn has_quorum(&self, votes: NodeMask) -> bool {
        let Self { first, next, takes_any } = self;
        if *takes_any {
            return votes.has_at_least(first.quorum);
        }
        votes.intersection(first.nodes).has_at_least(first.quorum)
            && votes.intersection(next.nodes).has_at_least(next.quorum)
    }

    /// Whether these votes still make a quorum after any single one of them is lost.
    #[cfg(feature = "metrics")]
    pub(crate) fn has_spare(&self, votes: NodeMask) -> bool {
        votes.into_iter().all(|node| self.has_quorum(votes.without(NodeMask::of(node))))
    }

    /// Whether no quorum is possible without the votes of these nodes.
    #[inline]
    pub(crate) const fn is_blocked_by(&self, nodes: NodeMask) -> bool {
        let Self { first, next, .. } = self;
        nodes.intersection(first.nodes).has_at_least(first.blocked)
            || nodes.intersection(next.nodes).has_at_least(next.blocked)
    }
}

/// The client's allowance for different clock rates between itself and the nodes: `ceil(ttl *
/// factor) + 2` milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift {
    parts_per_million: u64,
}

impl Drift {
    /// The drift of `factor` (0.01 is one per cent); `None` unless it is from 0.0001 to 0.5.
    #[must_use]
    pub(crate) fn new(factor: f64) -> Option<Self> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range check leaves 100 to 500,000"
        )]
        (0.000_1..=0.5)
            .contains(&factor)
            .then(|| Self { parts_per_million: (factor * 1e6).ceil() as u64 })
    }

    /// Milliseconds to take off a TTL of `ttl_ms` milliseconds.
    #[must_use]
    pub(crate) const fn of_ms(self, ttl_ms: u64) -> u64 {
        ttl_ms.saturating_mul(self.parts_per_million).div_ceil(1_000_000).saturating_add(2)
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self { parts_per_million: 10_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half() {
        let table = [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (32, 17)];
        for (nodes, votes) in table {
            assert_eq!(Quorum::Majority.votes(nodes).unwrap(), votes, "{nodes} nodes");
        }
    }

    #[test]
    fn a_quorum_of_half_the_nodes_or_more_than_all_is_refused() {
        for (nodes, wanted) in [(4, 2), (5, 2), (2, 1), (3, 4), (1, 0)] {
            assert!(Quorum::AtLeast(wanted).votes(nodes).is_err(), "{wanted} of {nodes}");
        }
        assert_eq!(Quorum::AtLeast(4).votes(5).unwrap(), 4);
    }

    #[test]
    fn drift_is_a_hundredth_rounded_up_and_two_milliseconds() {
        let drift = Drift::default();
        for (ttl, allowed) in [(3, 3), (4, 3), (100, 3), (101, 4), (10_000, 102)] {
            assert_eq!(drift.of_ms(ttl), allowed, "ttl {ttl}");
        }
    }

    #[test]
    fn a_mask_lists_its_nodes_in_order() {
        let mut mask = NodeMask::first(5);
        mask.remove(NodeId::new(3).unwrap());
        assert_eq!(mask.into_iter().map(NodeId::index).collect::<Vec<_>>(), [0, 1, 2, 4]);
        assert_eq!(mask.count(), 4);
        assert_eq!(NodeMask::first(32).count(), 32);
    }

    #[test]
    fn at_least_agrees_with_counting() {
        for bits in [0, 1, 0b1010, 0b11111, 0x8000_0001, u32::MAX] {
            let mask = NodeMask::from_bits(bits);
            for least in 0..=33 {
                assert_eq!(mask.has_at_least(least), mask.count() >= least, "{bits:b} {least}");
            }
        }
    }
}

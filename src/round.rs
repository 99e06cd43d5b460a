//! The votes of one attempt, and of one extension or release: masks, counted, decided once.
//!
//! Layer: above `quorum`. Sees no byte, no clock and no connection.
//!
//! # Invariants
//!
//! - A node has at most one vote in a round. A late answer may replace unknown, and a fenced
//!   attempt may turn granted into unknown ([`Round::withdraw`]). Nothing else changes a vote.
//! - The first quorum of grants decides a round. So do enough other votes to rule out a quorum. A
//!   round never waits for a node that cannot change it. For any N and q, a round is decided once
//!   each node has voted.

use crate::error::Vote;
use crate::quorum::{Electorate, NodeId, NodeMask};
use crate::rules;

/// The votes on one SET.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    /// The nodes that the SET was written to.
    pub(crate) written: NodeMask,
    pub(crate) granted: NodeMask,
    pub(crate) denied: NodeMask,
    pub(crate) failed: NodeMask,
    pub(crate) unknown: NodeMask,
    /// Nodes on their way to admission that this round waits for.
    pub(crate) awaited: NodeMask,
    /// How many grants were entered: at most one per node.
    grants: u8,
}

/// The outcome that the votes allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Open,
    Won,
    Lost,
}

impl Round {
    /// A round in which these nodes have granted without having been asked.
    pub(crate) fn of(granted: NodeMask) -> Self {
        let grants = u8::try_from(granted.count()).unwrap_or(u8::MAX);
        Self { written: granted, granted, grants, ..Self::default() }
    }

    /// Enters `node`'s vote; a late one replaces unknown.
    #[inline]
    pub(crate) fn enter(&mut self, node: NodeId, vote: Vote) {
        self.unknown.remove(node);
        match vote {
            Vote::Granted => {
                self.granted.insert(node);
                self.grants = self.grants.wrapping_add(1);
            }
            Vote::Denied => self.denied.insert(node),
            Vote::Failed(_) => self.failed.insert(node),
            Vote::Unknown(_) => self.unknown.insert(node),
        }
    }

    /// Enters the grant of a node that has not voted in this round.
    #[inline]
    pub(crate) const fn grant(&mut self, node: NodeId) {
        self.granted.insert(node);
        self.grants = self.grants.wrapping_add(1);
    }

    /// Takes back a grant, if there was one: the node has lost the key, or the attempt gets no
    /// fence.
    #[cold]
    pub(crate) fn withdraw(&mut self, node: NodeId) {
        if self.granted.contains(node) {
            self.granted.remove(node);
            self.unknown.insert(node);
            self.grants = rules::grants_left(self.grants);
        }
    }

    /// Whether the grant that was just entered is the `quorum`-th. With two lists, the number of grants
    /// does not decide.
    #[inline]
    pub(crate) const fn is_quorum_just_met(&self, quorum: u32) -> bool {
        self.grants as u32 == quorum
    }

    /// The nodes that were asked and have not voted.
    pub(crate) const fn open(&self) -> NodeMask {
        self.written
            .without(self.granted)
            .without(self.denied)
            .without(self.failed)
            .without(self.unknown)
    }

    #[inline]
    pub(crate) fn decide(&self, electorate: &Electorate) -> Decision {
        if electorate.has_quorum(rules::grants(self.granted, self.unknown)) {
            return Decision::Won;
        }
        let against = self.denied.union(self.failed).union(self.unknown);
        if electorate.is_blocked_by(against) { Decision::Lost } else { Decision::Open }
    }

    /// Whether the round lost because other clients hold the key, and not because nodes failed. A
    /// node for which the attempt still waits counts as failed.
    pub(crate) const fn is_taken(&self, electorate: &Electorate) -> bool {
        let silent = self.failed.union(self.unknown).union(self.awaited);
        !self.denied.is_empty() && !electorate.is_blocked_by(silent)
    }
}

/// The answers to one extension or release.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// The nodes that did as asked.
    pub(crate) yes: NodeMask,
    /// The nodes that did not, and those that the client did not ask.
    pub(crate) no: NodeMask,
    /// The nodes whose answer the client awaits.
    pub(crate) open: NodeMask,
    /// How many times yes was entered: at most once per node.
    agreements: u8,
}

impl Tally {
    /// A question to the nodes `open`; the nodes `no` count as having answered no.
    pub(crate) const fn begin(open: NodeMask, no: NodeMask) -> Self {
        Self { yes: NodeMask::EMPTY, no, open, agreements: 0 }
    }

    #[inline]
    pub(crate) const fn yes(&mut self, node: NodeId) {
        self.open.remove(node);
        self.yes.insert(node);
        self.agreements = self.agreements.wrapping_add(1);
    }

    /// Whether the yes that was just entered is the `quorum`-th. Without a quorum: whether it is
    /// the last answer.
    #[inline]
    pub(crate) const fn may_just_be_decided(&self, quorum: u32) -> bool {
        let agreements = self.agreements as u32;
        agreements == quorum || agreements < quorum && self.open.is_empty()
    }

    #[inline]
    pub(crate) const fn no(&mut self, node: NodeId) {
        self.open.remove(node);
        self.no.insert(node);
    }

    #[inline]
    pub(crate) const fn decide(&self, electorate: &Electorate) -> Decision {
        if electorate.has_quorum(self.yes) {
            Decision::Won
        } else if electorate.is_blocked_by(self.no) {
            Decision::Lost
        } else {
            Decision::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Cause;
    use crate::quorum::Quorum;

    fn node(index: usize) -> NodeId {
        NodeId::new(index).unwrap()
    }

    /// Every assignment of votes to up to 6 nodes, for every legal quorum, ends decided.
    #[test]
    fn every_full_vote_is_decided_and_never_both_ways() {
        let kinds =
            [Vote::Granted, Vote::Denied, Vote::Failed(Cause::None), Vote::Unknown(Cause::Timeout)];
        for nodes in 1..=6_usize {
            for quorum in nodes / 2 + 1..=nodes {
                let quorum = Quorum::AtLeast(quorum).votes(nodes).unwrap();
                let electorate = Electorate::of(NodeMask::first(nodes), quorum);
                for code in 0..4_usize.pow(u32::try_from(nodes).unwrap()) {
                    let mut round = Round { written: NodeMask::first(nodes), ..Round::default() };
                    let mut decided = Decision::Open;
                    for index in 0..nodes {
                        round.enter(
                            node(index),
                            kinds[code / 4_usize.pow(u32::try_from(index).unwrap()) % 4],
                        );
                        let now = round.decide(&electorate);
                        assert!(decided == Decision::Open || now == decided, "{round:?}");
                        decided = now;
                    }
                    assert_ne!(decided, Decision::Open, "{round:?}");
                    assert!(round.open().is_empty());
                }
            }
        }
    }

    #[test]
    fn a_split_of_two_nodes_is_lost_at_once() {
        let both = Electorate::of(NodeMask::first(2), 2);
        let mut round = Round { written: NodeMask::first(2), ..Round::default() };
        round.enter(node(0), Vote::Granted);
        assert_eq!(round.decide(&both), Decision::Open);
        round.enter(node(1), Vote::Denied);
        assert_eq!(round.decide(&both), Decision::Lost);
        assert!(round.is_taken(&both));
    }

    /// Two nodes hold the key, one has failed, and two are not connected yet.
    #[test]
    fn a_node_for_which_an_attempt_waits_is_no_sign_that_the_lock_is_taken() {
        let five = Electorate::of(NodeMask::first(5), 3);
        let mut round = Round { written: NodeMask::first(2), ..Round::default() };
        round.enter(node(0), Vote::Denied);
        round.enter(node(1), Vote::Denied);
        round.awaited = [node(3), node(4)].into_iter().collect();
        round.enter(node(2), Vote::Failed(Cause::ConnectTimeout));
        assert_eq!(round.decide(&five), Decision::Lost);
        assert!(!round.is_taken(&five));
        round.awaited = NodeMask::EMPTY;
        assert!(round.is_taken(&five), "the others were asked, and may have granted");
    }

    #[test]
    fn a_late_answer_replaces_unknown() {
        let mut round = Round { written: NodeMask::first(3), ..Round::default() };
        round.enter(node(0), Vote::Unknown(Cause::Timeout));
        round.enter(node(0), Vote::Granted);
        assert!(round.unknown.is_empty() && round.granted.contains(node(0)));
    }
}

//! The numbers of fenced locks: the number that an attempt proposes, the nodes that accepted it,
//! and the fence of the lease.
//!
//! # Invariants
//!
//! - A number is a fence only once a quorum has accepted that same number. Accepts of different
//!   numbers are never added up.
//! - The first number that a quorum accepted is the fence of the lease, and never changes.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::quorum::{Electorate, NodeId, NodeMask};
use crate::rules;
use crate::slab::SlotIndex;
use crate::time::{Instant, WallClock};

/// Above every fence: Lua counts in doubles, which are exact up to here.
const FENCE_END: u64 = (1 << 53) - 1;

/// For how many keys the client remembers a counter that is ahead of the wall clock.
const AHEAD_MAX: usize = 1_024;

/// One attempt at a fenced lock, and the lease that it becomes.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Fencing {
    /// The number in the first command.
    proposed: u64,
    accepted: NodeMask,
    /// The highest counter that a node returned instead of an accept.
    counter: u64,
    pub(in crate::engine) raise: Option<Raise>,
    fence: Option<u64>,
}

/// The second round: another number, to the nodes that granted.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Raise {
    pub(in crate::engine) number: u64,
    /// The nodes whose answer the client awaits.
    open: NodeMask,
    accepted: NodeMask,
}

/// The outcome that the answers so far allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum FenceProgress {
    /// A quorum has accepted one number.
    Fenced,
    /// The attempt needs a second round, with this number.
    Raise(u64),
    /// Answers that can still make a quorum are to come.
    Open,
    /// No quorum can accept a number any more.
    Lost,
}

impl Fencing {
    pub(in crate::engine) const fn propose(proposed: u64) -> Self {
        Self { proposed, accepted: NodeMask::EMPTY, counter: 0, raise: None, fence: None }
    }

    /// A lease that brings its fence from elsewhere.
    pub(in crate::engine) const fn carried(fence: u64) -> Self {
        Self { fence: Some(fence), ..Self::propose(fence) }
    }

    pub(in crate::engine) const fn proposed(&self) -> u64 {
        self.proposed
    }

    pub(in crate::engine) const fn fence(&self) -> Option<u64> {
        self.fence
    }

    /// A node accepted the first number.
    pub(in crate::engine) const fn accept(&mut self, node: NodeId) {
        self.accepted.insert(node);
    }

    /// A node's counter is at least as high as the proposed number.
    pub(in crate::engine) fn refuse(&mut self, counter: u64) {
        self.counter = self.counter.max(counter);
    }

    /// The number of the second round goes to `node`.
    pub(in crate::engine) const fn ask(&mut self, node: NodeId) {
        if let Some(raise) = &mut self.raise {
            raise.open.insert(node);
        }
    }

    /// `node` answered the second round, or never will.
    pub(in crate::engine) fn raised(&mut self, node: NodeId, is_accepted: bool) {
        if let Some(raise) = &mut self.raise {
            raise.open.remove(node);
            if rules::is_accepted(is_accepted) {
                raise.accepted.insert(node);
            }
        }
    }

    /// The time of the second round is up.
    pub(in crate::engine) const fn give_up(&mut self) {
        if let Some(raise) = &mut self.raise {
            raise.open = NodeMask::EMPTY;
        }
    }

    /// Judges the answers. The nodes of `unheard` may still answer the first round.
    pub(in crate::engine) fn judge(
        &mut self,
        electorate: &Electorate,
        unheard: NodeMask,
    ) -> FenceProgress {
        let second = self.raise.map_or(NodeMask::EMPTY, |raise| raise.accepted);
        let has_quorum = |accepted: NodeMask, other: NodeMask| {
            electorate.has_quorum(rules::accepts(accepted, other))
        };
        if has_quorum(self.accepted, second) {
            self.fence = Some(self.proposed);
            return FenceProgress::Fenced;
        }
        let Some(raise) = self.raise else {
            let number = self.proposed.max(self.counter).saturating_add(1);
            return if number < FENCE_END {
                FenceProgress::Raise(number)
            } else {
                FenceProgress::Lost
            };
        };
        if has_quorum(raise.accepted, self.accepted) {
            self.fence = Some(raise.number);
            return FenceProgress::Fenced;
        }
        let may_accept = raise.accepted.union(raise.open).union(unheard);
        let may_have_accepted = self.accepted.union(unheard);
        if electorate.has_quorum(may_accept) || electorate.has_quorum(may_have_accepted) {
            FenceProgress::Open
        } else {
            FenceProgress::Lost
        }
    }

    /// Begins the second round.
    pub(in crate::engine) const fn begin_raise(&mut self, number: u64) {
        self.raise = Some(Raise { number, open: NodeMask::EMPTY, accepted: NodeMask::EMPTY });
    }
}

/// All fenced attempts and leases of an engine.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Fences {
    by_slot: FxHashMap<SlotIndex, Fencing>,
    /// Counters that are ahead of the wall clock, by key.
    ahead: BTreeMap<Box<[u8]>, u64>,
}

impl Fences {
    /// A number above all that this client knows for `key`.
    pub(in crate::engine) fn propose(&self, key: &[u8], wall: WallClock, now: Instant) -> u64 {
        let ahead = self.ahead.get(key).map_or(0, |counter| counter.saturating_add(1));
        wall.at(now).max(ahead).clamp(1, FENCE_END - 1)
    }

    /// The client has seen a counter. It need not remember a counter that is behind the wall clock.
    pub(in crate::engine) fn see(
        &mut self,
        key: &[u8],
        counter: u64,
        wall: WallClock,
        now: Instant,
    ) {
        let time = wall.at(now);
        if counter < time {
            return;
        }
        if self.ahead.len() >= AHEAD_MAX {
            self.ahead.retain(|_, counter| *counter >= time);
        }
        if self.ahead.len() < AHEAD_MAX {
            let known = self.ahead.entry(key.into()).or_default();
            *known = counter.max(*known);
        }
    }

    pub(in crate::engine) fn put(&mut self, slot: SlotIndex, fencing: Fencing) {
        self.by_slot.insert(slot, fencing);
    }

    #[cfg(feature = "sim")]
    pub(in crate::engine) fn in_use(&self) -> usize {
        self.by_slot.len()
    }

    pub(in crate::engine) fn of(&self, slot: SlotIndex) -> Option<&Fencing> {
        self.by_slot.get(&slot)
    }

    pub(in crate::engine) fn of_mut(&mut self, slot: SlotIndex) -> Option<&mut Fencing> {
        self.by_slot.get_mut(&slot)
    }

    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn remove(&mut self, slot: SlotIndex) {
        self.by_slot.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(index: usize) -> NodeId {
        NodeId::new(index).unwrap()
    }

    const ALL: NodeMask = NodeMask::first(5);

    fn three() -> Electorate {
        Electorate::of(ALL, 3)
    }

    #[test]
    fn a_quorum_of_accepts_is_the_fence_after_one_round() {
        let mut fencing = Fencing::propose(10);
        for index in 0..3 {
            fencing.accept(node(index));
        }
        assert_eq!(fencing.judge(&three(), NodeMask::EMPTY), FenceProgress::Fenced);
        assert_eq!(fencing.fence(), Some(10));
    }

    #[test]
    fn the_second_number_is_above_every_counter_that_was_returned() {
        let mut fencing = Fencing::propose(10);
        fencing.accept(node(0));
        fencing.refuse(12);
        fencing.refuse(11);
        assert_eq!(fencing.judge(&three(), NodeMask::EMPTY), FenceProgress::Raise(13));
    }

    #[test]
    fn accepts_of_two_numbers_are_not_added_up() {
        let mut fencing = Fencing::propose(10);
        fencing.accept(node(0));
        fencing.accept(node(1));
        fencing.begin_raise(13);
        for index in 0..3 {
            fencing.ask(node(index));
        }
        fencing.raised(node(2), true);
        assert_eq!(fencing.judge(&three(), NodeMask::EMPTY), FenceProgress::Open);
        fencing.raised(node(0), true);
        fencing.raised(node(1), false);
        assert_eq!(fencing.judge(&three(), NodeMask::EMPTY), FenceProgress::Lost);
        assert_eq!(fencing.fence(), None);
    }

    #[test]
    fn a_late_accept_makes_the_first_number_the_fence() {
        let mut fencing = Fencing::propose(10);
        fencing.accept(node(0));
        fencing.accept(node(1));
        fencing.begin_raise(13);
        fencing.ask(node(0));
        fencing.raised(node(0), false);
        assert_eq!(fencing.judge(&three(), ALL), FenceProgress::Open);
        fencing.accept(node(4));
        assert_eq!(fencing.judge(&three(), NodeMask::EMPTY), FenceProgress::Fenced);
        assert_eq!(fencing.fence(), Some(10));
    }

    #[test]
    fn a_counter_at_the_end_of_the_numbers_gives_no_fence() {
        let mut fencing = Fencing::propose(10);
        fencing.refuse(FENCE_END - 1);
        assert_eq!(fencing.judge(&three(), NodeMask::EMPTY), FenceProgress::Lost);
    }

    #[test]
    fn proposals_grow_with_the_wall_clock_and_beyond_what_was_seen() {
        let mut fences = Fences::default();
        let at = Instant::from_nanos;
        let wall = WallClock { read_at: at(0), micros: 1_000, error: 0 };
        assert_eq!(fences.propose(b"k", wall, at(0)), 1_000);
        fences.see(b"k", 5_000, wall, at(0));
        assert_eq!(fences.propose(b"k", wall, at(0)), 5_001);
        assert_eq!(fences.propose(b"other", wall, at(0)), 1_000);
        assert_eq!(fences.propose(b"k", wall, at(9_000_000)), 10_000);
        fences.see(b"late", 9_999, wall, at(9_000_000));
        assert!(!fences.ahead.contains_key(&b"late"[..]));
    }
}

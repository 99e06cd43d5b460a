//! Timers of operations other than the rounds' own: when to try again, when a call ends.
//!
//! A heap whose entries are checked when they are due. A timer that was moved, or whose operation
//! has ended, leaves its entry behind; such entries are swept out when they outnumber the live
//! ones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::op::OpId;
use crate::slab::OpIndex;
use crate::time::Instant;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Timer {
    /// Begin the next attempt.
    Retry,
    /// The timer of a wait.
    Wait,
    /// Count out nodes without an answer: the call, or its wait for nodes, is over.
    Judge,
}

/// Entries below this many are never swept.
const SWEEP_MIN: usize = 1024;

#[derive(Debug, Default)]
pub(in crate::engine) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Timer, OpIndex, u32)>>,
    sweep_at: usize,
}

impl Timers {
    pub(in crate::engine) fn set(&mut self, at: Instant, timer: Timer, op: OpId) {
        self.heap.push(Reverse((at, timer, op.op, op.generation)));
    }

    #[cfg(test)]
    pub(in crate::engine) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(in crate::engine) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Whether a timer is due, or so many may be stale that a sweep is due.
    #[inline]
    pub(in crate::engine) fn needs_care(&self, now: Instant) -> bool {
        self.next().is_some_and(|at| at <= now) || self.heap.len() > self.sweep_at.max(SWEEP_MIN)
    }

    /// Removes and returns a timer that is due.
    pub(in crate::engine) fn pop_due(&mut self, now: Instant) -> Option<(Timer, OpId)> {
        if self.next().is_none_or(|at| at > now) {
            return None;
        }
        let Reverse((_, timer, op, generation)) = self.heap.pop()?;
        Some((timer, OpId { op, generation }))
    }

    /// Drops entries that are not `is_live`, and duplicates, once these can be half of the heap.
    pub(in crate::engine) fn sweep(&mut self, is_live: impl Fn(Instant, Timer, OpId) -> bool) {
        if self.heap.len() > self.sweep_at.max(SWEEP_MIN) {
            let mut entries = std::mem::take(&mut self.heap).into_vec();
            entries.retain(|&Reverse((at, timer, op, generation))| {
                is_live(at, timer, OpId { op, generation })
            });
            entries.sort_unstable();
            entries.dedup();
            self.heap = entries.into();
            self.sweep_at = self.heap.len() * 2;
        }
    }
}

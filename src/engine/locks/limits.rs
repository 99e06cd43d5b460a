//! How long an attempt may take other than the configured `node_timeout`: the call's own timeout,
//! and the end of the call.

use super::op::Outcome;
use super::state::Locks;
use crate::node::Now;
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;

impl Locks {
    /// Ends an attempt that has just begun by the call's own `node_timeout`, if it has one.
    #[cold]
    pub(in crate::engine) fn limit_attempt(&mut self, index: OpIndex, now: Now) {
        let op = self.ops.at(index);
        let is_open = op.outcome == Outcome::Open && op.round.awaited.is_empty();
        if let Some(timeout) = op.plan.own_timeout().filter(|_| is_open) {
            self.ops.judge_apart(index, now.attended + timeout);
            self.judge_within_call(index, now.real + timeout);
        }
    }

    /// Whether an attempt with its own timeout still has time: no node is blamed for time in which
    /// the sockets were not read, so the attempt gets that time back.
    #[cold]
    pub(in crate::engine) fn has_time_left(&mut self, index: OpIndex, now: Now) -> bool {
        let op = self.ops.at(index);
        let is_own = op.plan.own_timeout().is_some() && op.round.awaited.is_empty();
        let left = now.attended.until(self.ops.judged_at(index));
        if !is_own || left.is_zero() || op.judge_at == Instant::MAX || op.plan.deadline <= now.real
        {
            return false;
        }
        self.judge_within_call(index, now.real + left);
        true
    }

    /// Between attempts a call is judged at its own end.
    #[cold]
    pub(in crate::engine) fn end_with_call(&mut self, index: OpIndex) {
        if rules::has_end(self.ops.at(index).plan.deadline) {
            self.judge_within_call(index, Instant::MAX);
        }
    }

    /// The attempt is judged at `at` and no other time, but not after the end of its call.
    #[cold]
    fn judge_within_call(&mut self, index: OpIndex, at: Instant) {
        let op = self.ops.at_mut(index);
        op.judge_at = Instant::MAX;
        let at = at.min(op.plan.deadline);
        self.judge_at(index, at);
    }
}

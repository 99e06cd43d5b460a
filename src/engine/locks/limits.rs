//! The end of a call, if it comes before the `node_timeout` of its attempt.

use super::core::Locks;
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;

impl Locks {
    /// Between attempts a call is judged at its own end.
    #[cold]
    pub(in crate::engine) fn end_with_call(&mut self, index: OpIndex) {
        if rules::has_end(self.ops.at(index).plan.deadline) {
            let op = self.ops.at_mut(index);
            op.judge_at = Instant::MAX;
            let at = op.plan.deadline;
            self.judge_at(index, at);
        }
    }
}

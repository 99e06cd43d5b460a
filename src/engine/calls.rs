//! How calls for locks go on: from attempt to attempt, waiting in between, to their result.
//!
//! # Invariants
//!
//! - An attempt that has [`Failed`] is dealt with before anything else happens to the locks.

use super::door::{Engine, RETRY_WAIT_MIN};
use super::event::Event;
use super::locks::op::{OpId, OpKind, Outcome};
use super::locks::slot::SlotState;
use super::locks::state::Failed;
use super::locks::timers::Timer;
use super::spans::traced;
use crate::error::{LockError, Unlocked};
use crate::node::Now;
use crate::options::LockOptions;
use crate::quorum::NodeId;
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;

impl Engine {
    /// Begins an acquisition.
    pub(super) fn begin_acquire(
        &mut self,
        key: &[u8],
        acquire: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        let ttl_ms = self.locks.checked_ttl(acquire.ttl).ok_or_else(|| self.invalid_ttl())?;
        if !self.locks.prefix.is_plain(key) {
            self.locks.check_prefixed(key)?;
        }
        let token = match &acquire.token {
            None => None,
            Some(Ok(token)) => Some(token.clone()),
            Some(Err(len)) => return Err(LockError::InvalidToken { len: *len }),
        };
        let index = self.locks.ops.open(OpKind::Acquire).ok_or(LockError::Full)?;
        let plan = &mut self.locks.ops.at_mut(index).plan;
        plan.ttl_ms = ttl_ms;
        plan.min_validity = acquire.min_validity;
        plan.attempts_left = 1;
        plan.wakes = false;
        if acquire.retry.is_some() || acquire.timeout.is_some() {
            plan.retry_as(acquire, token.is_some(), now);
        }
        if acquire.is_looked_after() {
            self.locks.open_keep(index, key, acquire);
        }
        let token = token.unwrap_or_else(|| self.locks.draw_token());
        let slot = self.locks.slots.open(key, token);
        if !self.locks.prefix.is_none() {
            self.locks.put_prefix(slot);
        }
        traced!(DEBUG: self.locks.trace_acquire(index, slot, ttl_ms));
        let now = self.locks.now(now);
        if self.waiting.has_recent_wakes() {
            let op = self.locks.ops.at_mut(index);
            op.set_slot(slot);
            op.plan.node_timeout_ms = acquire.node_timeout_ms;
            if self.queue_behind(index, now) {
                return Ok(self.locks.ops.id(index));
            }
        }
        self.locks.attempt(index, slot, now);
        self.follow(now);
        if acquire.is_special {
            self.attempt_specially(index, acquire, now);
        }
        Ok(self.locks.ops.id(index))
    }

    /// Gives an operation up.
    pub(super) fn cancel_call(&mut self, op: OpId, now: Instant) {
        let Some(index) = self.locks.ops.find(op) else { return };
        let now = self.locks.now(now);
        let op = self.locks.ops.at(index);
        match (op.kind, op.outcome) {
            (OpKind::Acquire, Outcome::Open) => {
                let slot = op.slot();
                // One that waits has no attempt under way.
                if matches!(
                    self.locks.slots.at(slot).state,
                    SlotState::Acquiring | SlotState::Gated
                ) {
                    self.locks.counts.attempts.note(Outcome::Cancelled);
                }
                // Before the release, which may give the turn to another call of this client: not to it.
                self.fail(index, Outcome::Cancelled);
                self.release_slot(slot, now);
            }
            // Won, but not handed over: nobody may hold it.
            (OpKind::Acquire, Outcome::Won) => {
                let slot = op.slot();
                self.locks.counts.attempts.note(Outcome::Cancelled);
                self.locks.ops.at_mut(index).outcome = Outcome::Cancelled;
                self.waiting.over(index);
                self.release_slot(slot, now);
            }
            (OpKind::Extend | OpKind::Adopt, Outcome::Open) => {
                self.locks.finish(index, Outcome::Cancelled);
            }
            _ => {}
        }
    }

    fn invalid_ttl(&self) -> LockError {
        let (least, most) = self.locks.ttl_range();
        LockError::InvalidTtl { least, most }
    }

    /// What hardly any call wants, behind its first attempt.
    #[cold]
    fn attempt_specially(&mut self, index: OpIndex, acquire: &LockOptions, now: Now) {
        self.locks.ops.at_mut(index).plan.node_timeout_ms = acquire.node_timeout_ms;
        self.locks.limit_attempt(index, now);
        if acquire.is_watched {
            self.locks.track_attempt(index, now);
        }
    }

    /// Does what follows from what was just done to the locks.
    #[inline]
    pub(super) fn follow(&mut self, now: Now) {
        while let Some(Failed { op, outcome }) = self.locks.failed.pop_front() {
            self.attempt_failed(op, outcome, now);
        }
    }

    /// A call for a lock ends without one.
    fn fail(&mut self, index: OpIndex, outcome: Outcome) {
        self.waiting.over(index);
        self.locks.finish(index, outcome);
    }

    /// Releases a slot, and gives the turn to the first of those who wait for it.
    fn release_slot(&mut self, slot_index: SlotIndex, now: Now) {
        self.locks.release_slot(slot_index, now);
        self.pass_on(slot_index, now);
    }

    /// Behind the release of a slot: the first of those who wait for it has its turn.
    pub(super) fn pass_on(&mut self, slot_index: SlotIndex, now: Now) {
        if self.waiting.has_queue(slot_index) {
            self.pass_lock_on(slot_index, now);
        }
        self.locks.slots.free_if_unnamed(slot_index);
    }

    /// Releases what the attempt may have written, and plans the next one.
    #[cold]
    fn attempt_failed(&mut self, index: OpIndex, outcome: Outcome, now: Now) {
        self.locks.ops.unlist(index);
        self.locks.ops.at_mut(index).failed = outcome;
        self.locks.counts.attempts.note(outcome);
        traced!(DEBUG: self.locks.trace_decision(index, outcome));
        let slot_index = self.locks.ops.at(index).slot();
        if self.waiting.has_queue(slot_index) {
            self.carry_queue(index, slot_index, now);
        }
        self.release_slot(slot_index, now);
        if self.begin_wait(index, outcome, now) {
            return;
        }
        let plan = &mut self.locks.ops.at_mut(index).plan;
        plan.attempts_left = plan.attempts_left.saturating_sub(1);
        if plan.attempts_left == 0 {
            return self.fail(index, outcome);
        }
        // Below one, so that no jitter is too long to be multiplied.
        let random = self.locks.random_share();
        let plan = &mut self.locks.ops.at_mut(index).plan;
        plan.attempts_failed = plan.attempts_failed.saturating_add(1);
        let wait = match plan.wait_after {
            Some(wait_after) => wait_after(plan.attempts_failed),
            None => plan.delay.saturating_add(plan.jitter.mul_f64(random)),
        };
        // Where nobody can be asked an attempt ends at once: without any wait there were no end.
        let retry_at = now.real + wait.max(RETRY_WAIT_MIN);
        // No attempt could follow a wait that ends at the deadline, so none is waited for.
        if retry_at >= plan.deadline {
            self.fail(index, outcome);
        } else {
            self.locks.ops.at_mut(index).retry_at = retry_at;
            self.locks.timers.set(retry_at, Timer::Retry, self.locks.ops.id(index));
        }
    }

    /// The next attempt: a new token, behind the release of the one before.
    pub(super) fn retry(&mut self, index: OpIndex, now: Now) {
        let op = self.locks.ops.at(index);
        if op.kind != OpKind::Acquire || op.outcome != Outcome::Open {
            return;
        }
        let last = op.slot();
        if self.locks.slots.at(last).state != SlotState::Released {
            return;
        }
        debug_assert_eq!(self.locks.slots.at(last).op, Some(index), "a waiting call has its slot");
        if op.plan.deadline <= now.real {
            // Nobody looked until the call was over, as where the machine was suspended.
            return self.fail(index, self.locks.ops.at(index).failed);
        }
        let token = self.locks.draw_token();
        let token = rules::token_of_retry(token, &self.locks.slots.at(last).token);
        let began = self.locks.slots.at(last).began;
        self.locks.ops.at_mut(index).began.note(began);
        let key = self.locks.slots.at(last).key.clone();
        let slot = self.locks.slots.open(key.as_slice(), token);
        self.locks.slots.at_mut(last).op = None;
        self.locks.slots.free_if_unnamed(last);
        self.locks.attempt(index, slot, now);
        self.follow(now);
        if self.locks.slots.at(slot).state == SlotState::Acquiring {
            self.locks.limit_attempt(index, now);
        }
        if self.locks.ops.at(index).keep.is_some() {
            self.locks.track_attempt(index, now);
        }
    }

    /// The time of an operation is up: whoever has not answered is counted out.
    pub(super) fn judge(&mut self, index: OpIndex, now: Now) {
        self.locks.ops.unlist(index);
        let op = self.locks.ops.at(index);
        if op.outcome != Outcome::Open {
            return;
        }
        match op.kind {
            OpKind::Acquire if self.locks.is_between_attempts(index) => {
                let op = self.locks.ops.at(index);
                if op.plan.deadline <= now.real {
                    self.fail(index, op.failed);
                }
            }
            OpKind::Acquire => {
                self.locks.judge_attempt(index, now);
                self.follow(now);
            }
            OpKind::Extend | OpKind::Adopt | OpKind::Keep => {
                self.locks.end_extension(index, Outcome::NoQuorum);
            }
            OpKind::Release => self.locks.finish(index, Outcome::Unlocked(Ok(Unlocked::Unknown))),
            OpKind::Query => self.locks.finish(index, Outcome::Answered),
            OpKind::Free => {}
        }
    }

    /// Whether a lock that was won is not one any more at `now`: then it is released, and another
    /// attempt or the call's failure follows.
    pub(super) fn is_hand_over_late(&mut self, index: OpIndex, now: Instant) -> bool {
        let op = self.locks.ops.at(index);
        if op.outcome != Outcome::Won {
            return false;
        }
        let deadline = self.locks.slots.at(op.slot()).ends;
        if !rules::is_too_late_to_hand_over(now, deadline, op.plan.min_validity) {
            return false;
        }
        let now = self.locks.now(now);
        self.locks.ops.at_mut(index).outcome = Outcome::Open;
        self.attempt_failed(index, Outcome::Expired, now);
        true
    }

    /// Takes the result of an acquisition out.
    pub(super) fn report_acquire(&mut self, index: OpIndex, now: Instant) -> Option<Event> {
        if self.waiting.has_waiter(index) {
            let now = self.locks.now(now);
            self.end_wait(index, now);
        }
        self.locks.report_acquire(index, now)
    }

    /// A node that operations wait for may vote now, or will not.
    pub(super) fn settle_awaiting(&mut self, id: NodeId, now: Now) {
        for index in std::mem::take(&mut self.locks.awaiting) {
            if let Some(slot) = self.locks.settle_awaiting(id, index, now) {
                self.follow(now);
                self.locks.await_on(index, slot);
            }
        }
    }
}

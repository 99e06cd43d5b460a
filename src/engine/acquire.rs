//! Acquisitions: one round of SETs an attempt, decided at the quorum, released behind itself when
//! it fails, tried again with a new token.

use super::keep::NO_KEEP;
use super::op::{OpId, OpKind, Outcome};
use super::slot::{LeaseId, NO_OP, SlotState};
use super::timers::Timer;
use super::trace::traced;
use super::wait::{NO_LIST, NO_WAIT};
use super::{Engine, Event};
use crate::command::append_set;
use crate::config::Retry;
use crate::error::{Cause, LockError, Vote};
use crate::mutant::{self, Mutant};
use crate::node::{Now, Request};
use crate::options::LockOptions;
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::round::{Decision, Round};
use crate::time::Instant;
use crate::token::TokenBytes;

use rand::Rng;
use std::time::Duration;

/// The shortest wait between two attempts.
pub(super) const RETRY_WAIT_MIN: Duration = Duration::from_millis(1);

impl Engine {
    /// Begins one attempt at the lock `key`. `now` is `t0`: the clock, read just before this call.
    /// Nothing is sent before the node's [`output`](Self::output) is.
    ///
    /// # Errors
    ///
    /// Those of [`LockError`] that concern the call itself; then nothing was begun.
    pub fn try_lock(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if options.retry.is_none() {
            return self.acquire(key, options, now);
        }
        self.acquire_retried(key, options, None, now)
    }

    /// Begins to try for the lock `key` until it is won, as the options' `retry` says or, where they
    /// have none, the configuration's. Else as [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub fn lock(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if options.retry.is_some() {
            return self.acquire(key, options, now);
        }
        self.acquire_retried(key, options, Some(self.settings.retry), now)
    }

    #[cold]
    #[inline(never)]
    fn acquire_retried(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        retry: Option<Retry>,
        now: Instant,
    ) -> Result<OpId, LockError> {
        self.acquire(key, &LockOptions { retry, ..options.clone() }, now)
    }

    /// How the configuration tries again.
    pub(crate) const fn default_retry(&self) -> Retry {
        self.settings.retry
    }

    /// Begins to take a lock: one attempt, unless the options have a `retry`.
    pub(crate) fn acquire(
        &mut self,
        key: &[u8],
        acquire: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        let ttl_ms = self.checked_ttl(acquire.ttl).ok_or_else(|| self.invalid_ttl())?;
        if !self.prefix.is_plain(key) {
            self.check_prefixed(key)?;
        }
        let token = match &acquire.token {
            None => None,
            Some(Ok(token)) => Some(token.clone()),
            Some(Err(len)) => return Err(LockError::InvalidToken { len: *len }),
        };
        let index = self.ops.open(OpKind::Acquire).ok_or(LockError::Full)?;
        let plan = &mut self.ops.at_mut(index).plan;
        plan.ttl_ms = ttl_ms;
        plan.min_validity = acquire.min_validity;
        plan.attempts_left = 1;
        plan.wakes = false;
        if acquire.retry.is_some() || acquire.timeout.is_some() {
            plan.retry_as(acquire, token.is_some(), now);
        }
        if acquire.is_looked_after() {
            self.open_keep(index, key, acquire);
        }
        let token = token.unwrap_or_else(|| self.draw_token());
        let slot = self.slots.open(key, token);
        if !self.prefix.is_none() {
            self.put_prefix(slot);
        }
        traced!(DEBUG: self.trace_acquire(index, slot, ttl_ms));
        let now = self.now(now);
        if self.wakes.has_recent() {
            let op = self.ops.at_mut(index);
            op.slot = slot;
            op.plan.node_timeout_ms = acquire.node_timeout_ms;
            if self.queue_behind(index, now) {
                return Ok(self.ops.id(index));
            }
        }
        self.attempt(index, slot, now);
        if acquire.is_special {
            self.attempt_specially(index, acquire, now);
        }
        Ok(self.ops.id(index))
    }

    /// Gives an operation up. An acquisition ends as cancelled and its keys are released. So does an
    /// extension, but what is written goes on. A release and a query go on and are reported.
    pub fn cancel(&mut self, op: OpId, now: Instant) {
        let Some(index) = self.ops.find(op) else { return };
        let now = self.now(now);
        let op = self.ops.at(index);
        let slot = op.slot;
        match (op.kind, op.outcome) {
            (OpKind::Acquire, Outcome::Open) => {
                // One that waits has no attempt under way.
                if matches!(self.slots.at(slot).state, SlotState::Acquiring | SlotState::Gated) {
                    self.counts.attempts.note(Outcome::Cancelled);
                }
                // Before the release, which may give the turn to another call of this client: not to it.
                self.finish(index, Outcome::Cancelled);
                if mutant::is(Mutant::CancelNotReleased) {
                    self.forget_slot(slot);
                }
                self.release_slot(slot, now);
            }
            // Won, but not handed over: nobody may hold it.
            (OpKind::Acquire, Outcome::Won) => {
                self.counts.attempts.note(Outcome::Cancelled);
                self.ops.at_mut(index).outcome = Outcome::Cancelled;
                self.release_slot(slot, now);
            }
            (OpKind::Extend | OpKind::Adopt, Outcome::Open) => {
                self.finish(index, Outcome::Cancelled);
            }
            _ => {}
        }
    }

    /// Gives every operation up, each as [`cancel`](Self::cancel) does.
    pub(crate) fn cancel_all(&mut self, now: Instant) {
        for op in self.ops.ids() {
            self.cancel(op, now);
        }
    }

    pub(super) fn checked_ttl(&self, ttl: Duration) -> Option<u32> {
        let settings = &self.settings;
        u32::try_from(ttl.as_millis())
            .ok()
            .filter(|ttl_ms| (settings.least_ttl_ms..=settings.max_ttl_ms).contains(ttl_ms))
            .or_else(|| mutant::is(Mutant::TtlNotBounded).then_some(settings.max_ttl_ms + 1))
    }

    pub(super) fn ttl_range(&self) -> (Duration, Duration) {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        (ms(self.settings.least_ttl_ms), ms(self.settings.max_ttl_ms))
    }

    fn invalid_ttl(&self) -> LockError {
        let (least, most) = self.ttl_range();
        LockError::InvalidTtl { least, most }
    }

    /// The client's id, the slot that the token is for behind a mask, and 8 random bytes.
    fn draw_token(&mut self) -> TokenBytes {
        let mut raw = [0; 20];
        let (words, _) = raw.as_chunks_mut::<4>();
        let (id, _) = self.client_id.as_chunks::<4>();
        for (word, part) in words.iter_mut().zip(id) {
            *word = *part;
        }
        let slot = self.slots.next() ^ self.slot_mask;
        for (word, nth) in words.iter_mut().skip(id.len()).zip(0..) {
            let bits = if nth == 0 { slot } else { self.rng.next_u32() };
            *word = bits.to_le_bytes();
        }
        TokenBytes::Drawn(raw)
    }

    /// The deadline of a lease of `ttl_ms` that counts from `t0`.
    #[inline]
    pub(super) fn deadline_from(&self, t0: Instant, ttl_ms: u32) -> Instant {
        let drift = if mutant::is(Mutant::ValidityWithoutDrift) {
            0
        } else {
            u32::try_from(self.settings.drift.of_ms(ttl_ms.into())).unwrap_or(u32::MAX)
        };
        t0.plus_millis(ttl_ms.saturating_sub(drift))
    }

    /// One attempt: the SET goes to every node that may vote, in one encoding.
    fn attempt(&mut self, index: u32, slot_index: u32, now: Now) {
        let deadline = self.deadline_from(now.real, self.ops.at(index).plan.ttl_ms);
        let op = self.ops.at_mut(index);
        op.outcome = Outcome::Open;
        op.retry_at = Instant::MAX;
        op.round = Round::default();
        op.slot = slot_index;
        op.causes = [Cause::None; NODES_MAX];
        op.judge_at = Instant::MAX;
        let (ttl_ms, call_ends) = (op.plan.ttl_ms, op.plan.deadline);
        let slot = self.slots.at_mut(slot_index);
        slot.op = index;
        slot.ttl_ms = ttl_ms;
        slot.ttl_longest_ms = ttl_ms;
        slot.ends = deadline;
        slot.began = now.real;
        traced!(DEBUG: self.trace_attempt(index));

        self.encode_set(slot_index);
        if let Some(gate) = self.ops.at_mut(index).gate.take()
            && self.try_gate(gate, index, slot_index, now)
        {
            return;
        }
        let (voters, written) = (self.voters, self.write_sets(index, slot_index, now));
        for node in voters.without(written) {
            self.send_set(node, slot_index, now);
        }
        let absent = NodeMask::first(self.nodes.len()).without(voters);
        let mut awaited = NodeMask::EMPTY;
        if !absent.is_empty() {
            awaited = self.awaitable(voters, absent);
            for node in absent.without(awaited) {
                self.fail_vote(node, slot_index);
            }
        }
        if awaited.is_empty() {
            self.begin_round(index, now);
        } else {
            self.ops.at_mut(index).round.awaited = awaited;
            self.awaiting.push(index);
            self.judge_at(index, now.real + self.settings.connect_timeout);
        }
        if call_ends < now.real.plus_nanos(self.settings.longest_wait_nanos) {
            self.timers.set(call_ends, Timer::Judge, self.ops.id(index));
        }
        if written != NodeMask::first(self.nodes.len()) {
            self.decide(slot_index, now);
        }
    }

    /// What hardly any call wants, behind its first attempt.
    #[cold]
    fn attempt_specially(&mut self, index: u32, acquire: &LockOptions, now: Now) {
        self.ops.at_mut(index).plan.node_timeout_ms = acquire.node_timeout_ms;
        self.limit_attempt(index, now);
        if acquire.is_watched {
            self.track_attempt(index, now);
        }
    }

    /// An attempt that has just begun ends by the call's own `node_timeout`, if it has one.
    #[cold]
    pub(super) fn limit_attempt(&mut self, index: u32, now: Now) {
        let op = self.ops.at(index);
        let is_open = op.outcome == Outcome::Open && op.round.awaited.is_empty();
        if let Some(timeout) = op.plan.own_timeout().filter(|_| is_open) {
            self.ops.judge_apart(index, now.attended + timeout);
            self.judge_within_call(index, now.real + timeout);
        }
    }

    /// Whether an attempt with a timeout of its own still has time: that in which nobody read is no
    /// node's, so it is given back.
    #[cold]
    pub(super) fn has_time_left(&mut self, index: u32, now: Now) -> bool {
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

    /// The attempt is judged at `at` and no other time, but not after the end of its call: that has
    /// a timer of its own only where it may come before every configured time.
    #[cold]
    fn judge_within_call(&mut self, index: u32, at: Instant) {
        let op = self.ops.at_mut(index);
        op.judge_at = Instant::MAX;
        let at = at.min(op.plan.deadline);
        self.judge_at(index, at);
    }

    /// The operation waits for nodes on their way until `at`; its round is no ordinary one.
    pub(super) fn judge_at(&mut self, index: u32, at: Instant) {
        let op = self.ops.at_mut(index);
        op.judge_at = op.judge_at.min(at);
        self.timers.set(at, Timer::Judge, self.ops.id(index));
    }

    /// The nodes of `absent` that are on their way, where a quorum needs them beside `present`.
    pub(super) fn awaitable(&self, present: NodeMask, absent: NodeMask) -> NodeMask {
        let quorum = self.settings.quorum;
        if present.count() >= quorum {
            return NodeMask::EMPTY;
        }
        let mut coming = NodeMask::EMPTY;
        for node in absent {
            if self.node(node).is_on_the_way() {
                coming.insert(node);
            }
        }
        if present.union(coming).count() >= quorum { coming } else { NodeMask::EMPTY }
    }

    pub(super) fn encode_set(&mut self, slot_index: u32) {
        let slot = self.slots.at(slot_index);
        self.scratch.clear();
        let (key, options) = (&slot.key, &mut self.set_options);
        append_set(&mut self.scratch, key, &slot.token, slot.ttl_ms, options);
    }

    /// Writes the encoded SET to the voters of the cohort; to which.
    #[inline]
    fn write_sets(&mut self, index: u32, slot_index: u32, now: Now) -> NodeMask {
        let written = self.write_cohort(self.voters, Request::Set, slot_index, now);
        self.ops.at_mut(index).round.written = written;
        let slot = self.slots.at_mut(slot_index);
        slot.holds = written;
        slot.unanswered = written;
        written
    }

    /// Writes the encoded SET to one node.
    #[inline]
    pub(super) fn send_set(&mut self, id: NodeId, slot_index: u32, now: Now) {
        if self.write(id, Request::Set, slot_index, now) {
            let slot = self.slots.at_mut(slot_index);
            slot.holds.insert(id);
            slot.unanswered.insert(id);
            let op = slot.op;
            self.ops.at_mut(op).round.written.insert(id);
        } else {
            self.fail_vote(id, slot_index);
        }
    }

    /// Decides the attempt if its votes suffice.
    #[inline]
    pub(super) fn decide(&mut self, slot_index: u32, now: Now) {
        let slot = self.slots.at(slot_index);
        if slot.state != SlotState::Acquiring {
            return;
        }
        let index = slot.op;
        let op = self.ops.at(index);
        if op.outcome != Outcome::Open {
            return;
        }
        let (settings, mut round) = (&self.settings, op.round);
        if mutant::is(Mutant::UnknownCountsAsGranted) {
            round.granted = round.granted.union(round.unknown);
        }
        let quorum = settings.quorum - u32::from(mutant::is(Mutant::QuorumOffByOne));
        match round.decide(settings.node_count, quorum) {
            Decision::Open => {}
            Decision::Won => {
                if mutant::is(Mutant::ClockReadAfterWrite) {
                    let deadline = self.deadline_from(now.real, slot.ttl_ms);
                    self.slots.at_mut(slot_index).ends = deadline;
                }
                traced!(DEBUG: self.trace_decision(index, Outcome::Won));
                self.finish(index, Outcome::Won);
            }
            Decision::Lost => {
                let outcome = self.loss(index);
                self.attempt_failed(index, outcome, now);
            }
        }
    }

    /// What kept an attempt from its lease, by its votes.
    fn loss(&self, index: u32) -> Outcome {
        let (round, quorum) = (&self.ops.at(index).round, self.settings.quorum);
        if round.granted.count() >= quorum {
            Outcome::Expired
        } else if round.is_taken(self.settings.node_count, quorum) {
            Outcome::Taken
        } else {
            Outcome::NoQuorum
        }
    }

    /// The attempt's time is up.
    pub(super) fn judge_acquire(&mut self, index: u32, now: Now) {
        let slot_index = self.ops.at(index).slot;
        let slot = self.slots.at_mut(slot_index);
        let is_gated = slot.state == SlotState::Gated;
        if slot.state != SlotState::Acquiring && !is_gated {
            // It waits for its next attempt, and the call is over.
            if self.ops.at(index).plan.deadline <= now.real {
                self.finish(index, self.ops.at(index).failed);
            }
            return;
        }
        let op = self.ops.at_mut(index);
        let (open, awaited) = (op.round.open(), std::mem::take(&mut op.round.awaited));
        for node in open {
            op.round.enter(node, Vote::Unknown(Cause::Timeout));
        }
        op.blame_all(open, Cause::Timeout);
        for node in open {
            self.node_mut(node).counts.unknown.up(Cause::Timeout);
            traced!(TRACE: self.trace_vote(node, slot_index, Vote::Unknown(Cause::Timeout)));
        }
        for node in open.into_iter().filter(|_| mutant::is(Mutant::LateReplyMisattributed)) {
            let forgotten = self.node_mut(node).forget(slot_index);
            self.slots.at_mut(slot_index).refs -= forgotten;
        }
        for node in awaited {
            self.fail_vote(node, slot_index);
        }
        if is_gated {
            self.gate_answered(slot_index, now);
        } else {
            self.decide(slot_index, now);
        }
    }

    /// Releases what the attempt may have written, and plans the next one.
    pub(super) fn attempt_failed(&mut self, index: u32, outcome: Outcome, now: Now) {
        self.ops.unlist(index);
        self.ops.at_mut(index).failed = outcome;
        self.counts.attempts.note(outcome);
        traced!(DEBUG: self.trace_decision(index, outcome));
        let slot_index = self.ops.at(index).slot;
        if self.slots.at(slot_index).list != NO_LIST {
            self.carry_list(index, slot_index);
        }
        self.release_slot(slot_index, now);
        if outcome == Outcome::Taken && self.begin_wait(index, now) {
            return;
        }
        let plan = &mut self.ops.at_mut(index).plan;
        plan.attempts_left = plan.attempts_left.saturating_sub(1);
        if plan.attempts_left == 0 {
            return self.finish(index, outcome);
        }
        // Below one, so that no jitter is too long to be multiplied.
        let random = self.random_share();
        let plan = &mut self.ops.at_mut(index).plan;
        plan.attempts_failed = plan.attempts_failed.saturating_add(1);
        let wait = match plan.wait_after {
            Some(wait_after) => wait_after(plan.attempts_failed),
            None => plan.delay.saturating_add(plan.jitter.mul_f64(random)),
        };
        // Where nobody can be asked an attempt ends at once: without any wait there were no end.
        let retry_at = now.real + wait.max(RETRY_WAIT_MIN);
        // No attempt could follow a wait that ends at the deadline, so none is waited for.
        if retry_at >= plan.deadline {
            self.finish(index, outcome);
        } else {
            self.ops.at_mut(index).retry_at = retry_at;
            self.timers.set(retry_at, Timer::Retry, self.ops.id(index));
        }
    }

    /// The next attempt: a new token, behind the release of the one before.
    pub(super) fn retry(&mut self, index: u32, now: Now) {
        let op = self.ops.at(index);
        if op.kind != OpKind::Acquire || op.outcome != Outcome::Open {
            return;
        }
        let last = op.slot;
        if self.slots.at(last).state != SlotState::Released {
            return;
        }
        debug_assert_eq!(self.slots.at(last).op, index, "a waiting call has its slot");
        if op.plan.deadline <= now.real {
            // Nobody looked until the call was over, as where the machine was suspended.
            return self.finish(index, self.ops.at(index).failed);
        }
        let token = if mutant::is(Mutant::TokenReusedByRetry) {
            self.slots.at(last).token.clone()
        } else {
            self.draw_token()
        };
        let began = self.slots.at(last).began;
        self.ops.at_mut(index).began.note(began);
        let key = self.slots.at(last).key.clone();
        let slot = self.slots.open(key.as_bytes(), token);
        self.slots.at_mut(last).op = NO_OP;
        self.slots.free_if_unnamed(last);
        self.attempt(index, slot, now);
        if self.slots.at(slot).state == SlotState::Acquiring {
            self.limit_attempt(index, now);
        }
        if self.ops.at(index).keep != NO_KEEP {
            self.track_attempt(index, now);
        }
    }

    /// Whether a lock that was won is not one any more at `now`: then it is released, and another
    /// attempt or the call's failure follows.
    pub(super) fn is_hand_over_late(&mut self, index: u32, now: Instant) -> bool {
        let op = self.ops.at(index);
        if op.outcome != Outcome::Won {
            return false;
        }
        let deadline = self.slots.at(op.slot).ends;
        let is_late = now >= deadline || now + op.plan.min_validity > deadline;
        if !is_late || mutant::is(Mutant::NoCheckAtHandOver) {
            return false;
        }
        let now = self.now(now);
        self.ops.at_mut(index).outcome = Outcome::Open;
        self.attempt_failed(index, Outcome::Expired, now);
        true
    }

    /// Takes the result out.
    #[inline(never)]
    pub(super) fn report_acquire(&mut self, index: u32, now: Instant) -> Option<Event> {
        let op = self.ops.at(index);
        let (slot_index, outcome, keep) = (op.slot, op.outcome, op.keep);
        let granted = op.round.granted;
        if self.ops.at(index).wait != NO_WAIT {
            let now = self.now(now);
            self.end_wait(index, now);
        }
        let op = self.ops.id(index);
        let began = self.ops.at_mut(index).began.take();
        if outcome == Outcome::Won {
            traced!(DEBUG: self.trace_lease(index, now));
            self.ops.close(index);
            let slot = self.slots.at_mut(slot_index);
            slot.op = NO_OP;
            slot.state = SlotState::Held;
            slot.granted = granted;
            self.counts.attempts.won.up();
            self.counts.attempt_times.note(slot.began, now);
            if let Some(began) = began {
                self.counts.wait_times.note(began, now);
            }
            let lease = LeaseId { slot: slot_index, generation: slot.generation };
            if keep != NO_KEEP {
                self.begin_keeping(slot_index, keep, self.both_clocks(now));
            }
            return Some(Event::Lock { op, result: Ok(lease) });
        }
        let error = self.lock_error(index, now);
        traced!(DEBUG: self.trace_refused(index, outcome));
        self.ops.close(index);
        if keep != NO_KEEP {
            self.keeps.close(keep);
        }
        debug_assert_eq!(self.slots.at(slot_index).op, index, "a call that failed has its slot");
        self.slots.at_mut(slot_index).op = NO_OP;
        self.slots.free_if_unnamed(slot_index);
        Some(Event::Lock { op, result: Err(error) })
    }

    /// Why there is no lease.
    fn lock_error(&self, index: u32, now: Instant) -> LockError {
        let round = self.ops.at(index).round;
        let unknown = round.unknown.union(round.open());
        let ballot = self.ballot(index, round.granted, round.denied, unknown, now);
        match self.ops.at(index).outcome {
            Outcome::Taken => LockError::Taken(ballot),
            Outcome::Expired => LockError::Expired(ballot),
            Outcome::Cancelled => LockError::Cancelled,
            Outcome::NoQuorum
            | Outcome::Won
            | Outcome::Open
            | Outcome::Lost
            | Outcome::Unlocked(_)
            | Outcome::Answered => LockError::NoQuorum(ballot),
        }
    }
}

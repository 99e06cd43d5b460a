//! Calls for locks: how they begin, are cancelled, run out of time, and give their result.

use super::core::Engine;
use super::event::Event;
use super::happenings::Happening;
use super::locks::batch::BatchKind;
use super::locks::op::{OpId, OpKind, Verdict};
use super::locks::slot::{LeaseId, Mark, TokenInput, TokenState};
use crate::error::{LockError, UnlockError, Unlocked};
use crate::node::Now;
use crate::options::{LockOptions, Share};
use crate::quorum::NodeId;
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;

use std::time::Duration;

impl Engine {
    /// Begins to take the lock of one key: one attempt, unless the options have a `retry`.
    pub(super) fn acquire_key(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        self.begin_call(key, options, now)
    }

    /// As [`acquire_key`](Self::acquire_key), but always inlined.
    #[inline(always)]
    pub(super) fn begin_call(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        let (index, slot) = self.open_attempt(key, options, now)?;
        let now = self.locks.called_at(now);
        if self.waiting.has_recent_wakes() && self.queue_behind(index, slot, now) {
            return Ok(self.locks.ops.id(index));
        }
        Ok(self.begin_attempt((index, slot), options.is_introduced, now))
    }

    /// As [`acquire_key`](Self::acquire_key), for a slot of a lock. If this client handed the slot
    /// over, the new holder is likely to hold another slot by now. So the call does not queue
    /// behind that holder: it makes an attempt, and introduces itself meanwhile.
    pub(super) fn acquire_introduced(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        let (index, slot) = self.open_attempt(key, options, now)?;
        let now = self.locks.called_at(now);
        let has_woken = self.waiting.has_woken(&self.locks.slots.at(slot).key, now.real);
        if has_woken && self.queue_behind(index, slot, now) {
            return Ok(self.locks.ops.id(index));
        }
        Ok(self.begin_attempt((index, slot), true, now))
    }

    /// Makes the first attempt of a call.
    #[inline(always)]
    fn begin_attempt(
        &mut self,
        (index, slot): (OpIndex, SlotIndex),
        is_introduced: bool,
        now: Now,
    ) -> OpId {
        let failed = self.locks.attempt(index, slot, None, now);
        if is_introduced && failed.is_none() && self.locks.ops.at(index).plan.is_woken {
            self.introduce(index, now);
        }
        self.follow(failed, now);
        self.locks.ops.id(index)
    }

    /// Opens an operation and a slot for a call.
    #[inline(always)]
    fn open_attempt(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<(OpIndex, SlotIndex), LockError> {
        let ttl = options.ttl;
        let ttl_ms = self.locks.checked_ttl(ttl).ok_or_else(|| self.invalid_ttl(ttl))?;
        if !self.locks.prefix.is_plain(key) {
            self.check_key(key, options)?;
        }
        let is_fenced = options.is_fenced;
        if is_fenced {
            self.locks.check_fences()?;
        }
        let index = self.open_call(options, ttl_ms, now)?;
        let token = TokenBytes::Drawn(self.locks.draw_token());
        let slot = self.locks.slots.open(key, token, TokenInput::Begin);
        if is_fenced {
            self.locks.slots.at_mut(slot).set(Mark::FENCED, true);
        }
        if !self.locks.prefix.is_none() {
            self.locks.prefix.put_before(&mut self.locks.slots.at_mut(slot).key);
        }
        self.locks.observe(Happening::Call { op: index, slot, ttl_ms, now });
        Ok((index, slot))
    }

    /// Begins one attempt at each of these keys, with one command per node for all. Each key has an
    /// operation of its own. `None` if too few nodes have such a command.
    pub(super) fn acquire_in_batch(
        &mut self,
        kind: BatchKind,
        keys: &[&[u8]],
        options: &LockOptions,
        now: Instant,
    ) -> Option<Vec<Result<OpId, LockError>>> {
        let nodes = self.locks.able_to_batch(kind).filter(|_| !options.is_fenced)?;
        let (mut attempts, now) = (Vec::with_capacity(keys.len()), self.locks.called_at(now));
        let mut begin = |key: &[u8]| {
            let (index, slot) = self.open_attempt(key, options, now.real)?;
            self.locks.prepare_attempt(index, slot, now);
            attempts.push((index, slot));
            Ok(self.locks.ops.id(index))
        };
        let begun = keys.iter().map(|key| begin(key)).collect();
        for failed in self.locks.ask_in_batch(kind, &attempts, nodes, now) {
            self.follow(Some(failed), now);
        }
        Some(begun)
    }

    #[cold]
    fn check_key(&self, key: &[u8], options: &LockOptions) -> Result<(), LockError> {
        let prefix = &self.locks.prefix;
        if options.share == Share::Part { prefix.check(key) } else { prefix.check_taken(key) }
    }

    /// Takes a place for a call that takes a lock.
    #[inline(always)]
    fn open_call(
        &mut self,
        options: &LockOptions,
        ttl_ms: u32,
        now: Instant,
    ) -> Result<OpIndex, LockError> {
        let index = self.locks.ops.open(OpKind::Acquire).ok_or(LockError::Full)?;
        let plan = &mut self.locks.ops.at_mut(index).plan;
        plan.ttl_ms = ttl_ms;
        plan.min_validity = options.min_validity;
        (plan.is_patient, plan.is_woken) = (false, false);
        if options.retry.is_some() || options.timeout.is_some() {
            plan.retry_as(options, now);
            self.locks.ops.at_mut(index).failed = Verdict::Open;
        }
        if options.keep_alive {
            self.locks.open_keep(index, options.is_announced);
        }
        Ok(index)
    }

    /// Cancels an operation.
    pub(super) fn cancel_call(&mut self, op: OpId, now: Instant) {
        let Some(index) = self.locks.ops.find(op) else { return };
        let now = self.locks.called_at(now);
        let op = self.locks.ops.at(index);
        let is_open = op.outcome == Verdict::Open;
        match op.kind {
            OpKind::Acquire if is_open => {
                let slot = op.slot();
                // A call that waits has no attempt under way.
                if self.locks.slots.at(slot).state().is_attempt() {
                    self.locks.observe(Happening::AttemptCancelled);
                }
                // The call ends before the release: else the release could give the turn to this very
                // call.
                self.fail(index, Verdict::Cancelled);
                self.release_slot(slot, None, now);
            }
            // The call has won, but its caller does not have the lock: it must not stay held.
            OpKind::Acquire if op.outcome == Verdict::Won => {
                let slot = op.slot();
                self.locks.observe(Happening::AttemptCancelled);
                self.locks.ops.at_mut(index).outcome = Verdict::Cancelled;
                self.waiting.over(index);
                self.release_slot(slot, None, now);
            }
            OpKind::Extend | OpKind::Adopt if is_open => {
                self.locks.finish(index, Verdict::Cancelled);
            }
            OpKind::Acquire
            | OpKind::Extend
            | OpKind::Adopt
            | OpKind::Keep
            | OpKind::Release
            | OpKind::Query
            | OpKind::Set
            | OpKind::Free => {}
        }
    }

    fn invalid_ttl(&self, ttl: Duration) -> LockError {
        let (least, most) = self.locks.ttl_range();
        LockError::InvalidTtl { ttl, least, most }
    }

    /// Releases a lease of one key, and reports the result.
    #[inline(always)]
    pub(super) fn unlock_key(&mut self, lease: LeaseId, now: Instant) -> Result<OpId, UnlockError> {
        self.locks.observe(Happening::Unlock { lease, now });
        self.locks.slots.held(lease).ok_or(UnlockError::NotOurs)?;
        let heir = self.heir_of(lease.slot, self.locks.both_clocks(now));
        let now = self.locks.called_at(now);
        let op = self.locks.open_release(lease.slot, now);
        self.release_slot(lease.slot, heir, now);
        op.inspect(|&op| self.locks.conclude_release(op))
    }

    /// Releases a lease of one key without a report.
    pub(super) fn release_key(&mut self, lease: LeaseId, now: Instant) {
        self.locks.observe(Happening::Unlock { lease, now });
        if self.locks.slots.held(lease).is_none() {
            return;
        }
        let heir = self.heir_of(lease.slot, self.locks.both_clocks(now));
        let now = self.locks.called_at(now);
        self.locks.cancel_extension(lease.slot);
        self.locks.observe(Happening::Unreported);
        self.release_slot(lease.slot, heir, now);
    }

    /// The keys of a lease, which are no set from now on.
    pub(super) fn forget_lease(&mut self, lease: LeaseId) -> Vec<LeaseId> {
        let keys = self.sets.forget(lease);
        if keys.is_empty() { vec![lease] } else { keys }
    }

    /// From now on no claim of this client stands beside the lock.
    pub(super) fn withdraw_claim(&mut self, lease: LeaseId, now: Instant) {
        let is_held = self.locks.slots.held(lease).is_some();
        if let Some(claim) = is_held.then(|| self.locks.take_claim(lease.slot)).flatten() {
            let now = self.locks.called_at(now);
            self.locks.delete_claim(&claim, lease.slot, now);
        }
    }

    /// Leaves a lease of one key, if it is held, to its TTL or to another client with its token.
    pub(super) fn give_up_key(&mut self, lease: LeaseId) {
        if self.locks.slots.held(lease).is_some() {
            self.waiting.forget_queue(lease.slot);
            self.locks.give_up(lease.slot);
        }
    }

    /// The time of an operation is up: nodes without an answer are counted out.
    pub(super) fn judge(&mut self, index: OpIndex, now: Now) {
        self.locks.ops.unlist(index);
        let op = self.locks.ops.at(index);
        if op.outcome != Verdict::Open {
            return;
        }
        match op.kind {
            OpKind::Acquire if self.locks.slots.at(op.slot()).state() == TokenState::Between => {
                if op.plan.deadline <= now.real {
                    self.fail(index, op.failed);
                } else {
                    self.locks.end_with_call(index);
                }
            }
            OpKind::Acquire => {
                let failed = self.locks.judge_attempt(index, now);
                self.follow(failed, now);
            }
            OpKind::Extend | OpKind::Adopt | OpKind::Keep => {
                self.locks.extension_timed_out(index);
            }
            OpKind::Release => self.locks.finish(index, Verdict::Unlocked(Ok(Unlocked::Unknown))),
            OpKind::Query => self.locks.finish(index, Verdict::Answered),
            OpKind::Set | OpKind::Free => {}
        }
    }

    /// Whether a lock that a call has won lasts too short a time from `now`. If so, the client
    /// releases the lock, and the call makes another attempt or fails.
    pub(super) fn is_hand_over_late(&mut self, index: OpIndex, now: Instant) -> bool {
        let op = self.locks.ops.at(index);
        if op.outcome != Verdict::Won {
            return false;
        }
        let deadline = self.locks.slots.at(op.slot()).ends;
        if !rules::is_too_late_to_hand_over(now, deadline, op.plan.min_validity) {
            return false;
        }
        let now = self.locks.called_at(now);
        self.locks.ops.at_mut(index).outcome = Verdict::Open;
        self.attempt_failed(index, Verdict::Expired, now);
        true
    }

    /// Takes the result of an acquisition out.
    #[inline(never)]
    pub(super) fn report_acquire(&mut self, index: OpIndex, now: Instant) -> Event {
        if self.waiting.has_waiter(index) {
            let now = self.locks.called_at(now);
            self.end_wait(index, now);
        } else if self.waiting.has_recent_wakes() {
            let op = self.locks.ops.at(index);
            if op.outcome == Verdict::Won {
                let slot = self.locks.slots.at(op.slot());
                self.waiting.won_at_once(slot.key.as_slice());
            }
        }
        let op = self.locks.ops.at(index);
        let (slot_index, outcome, keep) = (op.slot(), op.outcome, op.keep);
        let is_whole = op.part.is_none();
        let granted = op.round.granted;
        let op = self.locks.ops.id(index);
        if outcome == Verdict::Won {
            self.locks.observe(Happening::Lease { op: index, slot: slot_index, now });
            self.locks.close_op(index);
            let slot = self.locks.slots.at_mut(slot_index);
            slot.op = None;
            slot.step(TokenInput::Take);
            slot.granted = granted;
            let lease = LeaseId { slot: slot_index, generation: slot.generation };
            if let Some(keep) = keep {
                self.locks.begin_keeping(slot_index, keep, self.locks.both_clocks(now));
                if is_whole {
                    self.locks.claim(slot_index, now);
                }
            }
            return Event::Lock { op, result: Ok(lease) };
        }
        let error = self.lock_error(index, now);
        self.locks.observe(Happening::Refused { op: index, outcome, error: &error, now });
        self.locks.close_op(index);
        if let Some(keep) = keep {
            self.locks.close_keep(keep);
        }
        debug_assert_eq!(
            self.locks.slots.at(slot_index).op,
            Some(index),
            "a call that failed has its slot"
        );
        self.locks.slots.at_mut(slot_index).op = None;
        self.locks.slots.free_if_unnamed(slot_index);
        Event::Lock { op, result: Err(error) }
    }

    /// Why the call has no lease.
    fn lock_error(&self, index: OpIndex, now: Instant) -> LockError {
        let op = self.locks.ops.at(index);
        let (round, outcome) = (op.round, op.outcome);
        let granted = if outcome == Verdict::Expired { op.late } else { round.granted };
        let unknown = round.unknown.union(round.open()).without(granted);
        let denied = if outcome == Verdict::Taken { op.denials() } else { round.denied };
        let denied = denied.without(granted);
        let ballot = self.locks.ballot(index, granted, denied, unknown, now);
        match outcome {
            Verdict::Taken => LockError::Taken(ballot),
            Verdict::Expired => LockError::Expired(ballot),
            Verdict::Cancelled => LockError::Cancelled,
            Verdict::NoQuorum
            | Verdict::Won
            | Verdict::Open
            | Verdict::Lost
            | Verdict::Unlocked(_)
            | Verdict::Answered => LockError::NoQuorum(ballot),
        }
    }

    /// Operations need not wait for this node any longer: it may vote now, or is not on its way.
    /// Undecided operations go on waiting for other nodes.
    pub(super) fn settle_awaiting(&mut self, id: NodeId, now: Now) {
        for index in std::mem::take(&mut self.locks.awaiting) {
            let op = self.locks.ops.at(index);
            // By now another operation may have the place, and the attempt may be decided.
            let waits_in = match op.kind {
                OpKind::Acquire => TokenState::Asking,
                OpKind::Extend | OpKind::Adopt | OpKind::Keep => TokenState::Held,
                OpKind::Release | OpKind::Query | OpKind::Set | OpKind::Free => continue,
            };
            if op.outcome != Verdict::Open {
                continue;
            }
            let (slot_index, kind) = (op.slot(), op.kind);
            let slot = self.locks.slots.at(slot_index);
            if !rules::may_still_wait(slot.state() == waits_in) {
                continue;
            }
            if op.round.awaited.contains(id) && slot.op == Some(index) {
                self.locks.ops.at_mut(index).round.awaited.remove(id);
                if kind == OpKind::Acquire {
                    let failed = self.locks.settle_awaited_set(id, index, slot_index, now);
                    self.follow(failed, now);
                } else {
                    self.locks.settle_awaited_extension(id, index, slot_index, now);
                }
            }
            let op = self.locks.ops.at(index);
            let is_waiting = !op.round.awaited.is_empty() && op.outcome == Verdict::Open;
            if is_waiting && op.slot() == slot_index {
                self.locks.awaiting.push(index);
            }
        }
    }
}

//! The callers' side of the table: a caller begins a call, gives it up, and gives its lease back.
//! The lease then goes to the next caller of the client without a message to any node, or lingers
//! until that caller comes. For the engine, a lease that lingers is held all the time.
//!
//! # Invariants
//!
//! - A lease that lingers is its queue's holder, and no call waits in that queue.
//! - The client releases such a lease as soon as the driving thread hears that another client
//!   waits, and when its time to linger is over. If a lease does not suit the next call, the client
//!   releases the lease before that call.

use std::cmp::Reverse;
use std::time::Duration;

use super::calls::{
    CallIndex, CallKind, CallResult, Listener, QueueIndex, Refused, Remains, Stage,
};
use super::counting::Moment;
use super::policy::Policy;
use super::span::CallSpan;
use super::table::{Command, Table, Task};
use crate::driver::Lease;
use crate::engine::LeaseId;
use crate::error::LockError;
use crate::options::{LockOptions, Patience};
use crate::rules;
use crate::time::Instant;

impl Table {
    // ---- calls ----

    /// Begins an acquisition, on the network or behind other calls for the same key. Takes the span
    /// if the call goes on.
    pub(super) fn begin_lock(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        patience: Patience,
        span: &mut CallSpan,
        now: Instant,
    ) -> Result<CallIndex, LockError> {
        let call = self.open(CallKind::Lock)?;
        let Some(queue) = self.queues.enter_for(key, options.share, patience.is_patient, now)
        else {
            self.calls.close(call);
            return Err(LockError::Full);
        };
        let place = self.calls.at_mut(call);
        (place.queue, place.options) = (Some(queue), options.clone());
        place.began = Moment::of(now);
        place.ends = patience.ends;
        if self.retake(queue, call, now) {
            self.counting.taken_again();
            return Ok(call);
        }
        let here = self.queues.at(queue);
        let holder = here.holder.filter(|holder| holder.valid_until > now);
        let is_contended = here.competitor.is_some() || here.first.is_some();
        if patience.is_patient && (is_contended || here.holder.is_some()) {
            // The client may have extended a lease whose time seems to be over. So the call waits
            // behind it until the driving thread has looked.
            let holder_ends = here.holder.map_or(Instant::MAX, |holder| holder.valid_until);
            self.queues.push(queue, call, &mut self.calls);
            self.counting.queues(true);
            self.calls.at_mut(call).span = span.take();
            self.next_due = self.next_due.min(patience.ends).min(holder_ends);
        } else if let Some(holder) = holder {
            // An attempt would be in vain: this client holds the key itself.
            self.queues.leave(queue);
            self.calls.close(call);
            return Err(LockError::Taken(self.lists.queued_ballot(holder.votes)));
        } else {
            if !is_contended {
                self.queues.at_mut(queue).competitor = Some(call);
            }
            self.calls.at_mut(call).span = span.take();
            self.compete(queue, call);
        }
        Ok(call)
    }

    /// Begins any call but one for a lock. Takes the span if the call begins.
    pub(super) fn begin(
        &mut self,
        kind: CallKind,
        task: Task,
        span: &mut CallSpan,
    ) -> Result<CallIndex, Refused> {
        let call = self.open(kind)?;
        let place = self.calls.at_mut(call);
        match &task {
            Task::Adopt { key, options, .. } => {
                let queue = self.queues.enter_adopted(key);
                (place.queue, place.options) = (queue, options.clone());
                if let Some(queue) = queue {
                    self.end_linger(queue);
                }
            }
            Task::Extend { lease, queue, ttl } => {
                (place.lease, place.queue) = (Some(*lease), Some(*queue));
                self.note_extension(*queue, *lease, *ttl);
            }
            Task::Detach { queue, .. } => place.queue = Some(*queue),
            Task::Acquire { .. }
            | Task::Unlock { .. }
            | Task::UnlockToken { .. }
            | Task::Ask(..)
            | Task::Connect(_)
            | Task::Look(_)
            | Task::SetNodes(_)
            | Task::Cancel => {}
        }
        self.commands.push(Command::Call(call, task, span.take()));
        Ok(call)
    }

    fn open(&mut self, kind: CallKind) -> Result<CallIndex, Refused> {
        if self.is_closed {
            return Err(Refused::Closed);
        }
        self.calls.open(kind).ok_or(Refused::Full)
    }

    /// Begins a wait for the end of a lock: at `deadline`, unless the lock is lost or extended
    /// before.
    pub(super) fn begin_loss(
        &mut self,
        lease: LeaseId,
        deadline: Instant,
    ) -> Result<CallIndex, Refused> {
        // The client can report no loss any more.
        if self.ended.is_some() {
            return Err(Refused::Closed);
        }
        let call = self.calls.open_beyond(CallKind::Loss).ok_or(Refused::Full)?;
        self.calls.at_mut(call).lease = Some(lease);
        self.next_due = self.next_due.min(deadline);
        Ok(call)
    }

    /// The caller has given the call up. Returns the remains of the call: their reply has the lease
    /// that the call had won.
    pub(super) fn abandon(&mut self, call: CallIndex) -> Remains {
        let place = self.calls.at_mut(call);
        match place.stage {
            Stage::Queued => {
                self.leave_queue(call);
                self.calls.close(call)
            }
            Stage::UnderWay if place.kind == CallKind::Loss => self.calls.close(call),
            Stage::UnderWay => {
                place.is_abandoned = true;
                self.commands.push(Command::Call(call, Task::Cancel, CallSpan::none()));
                Remains::listener(self.calls.listen(call, Listener::None))
            }
            Stage::Done => self.calls.close(call),
            Stage::Free => Remains::default(),
        }
    }

    /// Begins to release a lease and to report the result.
    pub(super) fn begin_unlock(
        &mut self,
        queue: QueueIndex,
        lease: Lease,
        span: &mut CallSpan,
    ) -> Result<CallIndex, Refused> {
        let call = match self.open(CallKind::Unlock) {
            Ok(call) => call,
            Err(refused) => {
                self.release(queue, lease);
                return Err(refused);
            }
        };
        let id = lease.id();
        self.commands.push(Command::Call(call, Task::Unlock { lease }, span.take()));
        self.vacate(queue, id);
        Ok(call)
    }

    // ---- leases that go back ----

    /// The holder gives a lease back. The lease goes to the next call in its queue if it may, or
    /// lingers. Otherwise the client releases it.
    pub(super) fn give_back(
        &mut self,
        queue: QueueIndex,
        lease: Lease,
        may_pass: bool,
        now: impl FnOnce() -> Instant,
    ) -> Listener {
        let lease = match self.pass_on(may_pass, queue, lease, now) {
            Ok(listener) => return listener,
            Err(lease) => lease,
        };
        self.release(queue, lease);
        Listener::None
    }

    /// Takes back a lease that a call has won and its caller has not taken, as
    /// [`give_back`](Self::give_back) does. An adopted lock stays as it is, because its last holder
    /// may still hold it. Any other reply comes back.
    pub(super) fn take_back(
        &mut self,
        queue: Option<QueueIndex>,
        reply: CallResult,
        now: impl FnOnce() -> Instant,
    ) -> Result<Listener, CallResult> {
        match (reply, queue) {
            (CallResult::Lock(Ok(lease)), Some(queue)) => {
                Ok(self.give_back(queue, lease, true, now))
            }
            (CallResult::Adopt(Ok(lease)), Some(queue)) => {
                let id = lease.id();
                lease.leave();
                self.vacate(queue, id);
                Ok(Listener::None)
            }
            (reply, _) => Err(reply),
        }
    }

    /// Hands the lease to the next call in its queue, without asking any node. If there is none,
    /// the lease may linger. Returns the lease if it may do neither, or if `may_pass` is false.
    /// Reads the clock only if the time matters.
    pub(super) fn pass_on(
        &mut self,
        may_pass: bool,
        queue: QueueIndex,
        lease: Lease,
        now: impl FnOnce() -> Instant,
    ) -> Result<Listener, Lease> {
        // Other calls may wait for single keys of a set.
        let is_unknown_elsewhere =
            !lease.is_set() && !rules::is_known_elsewhere(lease.is_exposed());
        let is_held = !self.is_closed && self.queues.is_held_by(queue, lease.id());
        if !may_pass || !is_unknown_elsewhere || !is_held {
            return Err(lease);
        }
        self.queues.pull(queue, &mut self.calls);
        let here = self.queues.at_mut(queue);
        let Some(next) = here.first else { return self.begin_linger(queue, lease, now) };
        let Some(holder) = &mut here.holder else { return Err(lease) };
        let turns_max = self.policy.turns_max(holder.is_wanted_elsewhere);
        if holder.turns >= turns_max || here.competitor.is_some() {
            return Err(lease);
        }
        let wanted = &self.calls.at(next).options;
        let is_short = lease.remaining_at(now()) < self.policy.validity_wanted(wanted);
        let is_beyond = !wanted.share.has(lease.slot());
        if is_beyond || !Policy::suits(holder, wanted) || rules::is_too_short_to_hand_on(is_short) {
            return Err(lease);
        }
        holder.hand_on(Moment::default(), wanted);
        holder.valid_until = lease.deadline();
        // The lease keeps the queue from now on.
        self.leave_queue(next);
        self.counting.turn();
        Ok(self.calls.finish(next, CallResult::Lock(Ok(lease))))
    }

    // ---- leases that linger ----

    /// No call of this client waits for the lease: it lingers, if it may.
    fn begin_linger(
        &mut self,
        queue: QueueIndex,
        lease: Lease,
        now: impl FnOnce() -> Instant,
    ) -> Result<Listener, Lease> {
        let here = self.queues.at_mut(queue);
        let Some(holder) = here.holder.as_mut() else { return Err(lease) };
        let is_free = rules::may_linger(here.competitor.is_none() && !holder.is_wanted_elsewhere);
        let has_turns = rules::has_turns_left(holder.turns < self.policy.turns_max(false));
        let until = self.policy.lingers_until(holder, lease.deadline());
        if holder.linger.is_zero() || !is_free || !has_turns || lease.is_lost() || now() >= until {
            return Err(lease);
        }
        if holder.lingers_until != until {
            holder.lingers_until = until;
            self.lingering.push(Reverse((until, queue)));
        }
        here.lingering = Some(lease);
        self.sleeping.must_listen = true;
        Ok(Listener::None)
    }

    /// A call takes the lease that lingers for its key. If the lease does not suit the call, the
    /// client releases it, and the call follows the release.
    fn retake(&mut self, queue: QueueIndex, call: CallIndex, now: Instant) -> bool {
        let here = self.queues.at_mut(queue);
        let (Some(lease), Some(holder)) = (&here.lingering, &mut here.holder) else { return false };
        let wanted = &self.calls.at(call).options;
        let is_enough = now + self.policy.validity_wanted(wanted) <= lease.deadline();
        let is_sound = now < rules::linger_ends(holder.lingers_until)
            && !rules::is_known_lost(lease.is_lost())
            && !rules::is_known_elsewhere(lease.is_exposed());
        if !rules::lasts_for_call(is_enough) || !is_sound || !Policy::suits(holder, wanted) {
            self.end_linger(queue);
            return false;
        }
        holder.hand_on(Moment::of(now), wanted);
        let Some(lease) = here.lingering.take() else { return false };
        // The lease keeps the queue from now on. No listener waits for the call yet.
        self.queues.leave(queue);
        let _nobody = self.calls.finish(call, CallResult::Lock(Ok(lease)));
        true
    }

    /// The client computes the time to linger from the TTL of the last SET. An extension by another
    /// TTL ends that time.
    pub(super) fn note_extension(&mut self, queue: QueueIndex, lease: LeaseId, ttl: Duration) {
        if let Some(holder) = &mut self.queues.at_mut(queue).holder
            && holder.id == lease
            && rules::ends_time_to_linger(holder.ttl != ttl)
        {
            (holder.linger, holder.is_extended) = (Duration::ZERO, true);
        }
    }

    /// Releases the leases that have lingered for long enough.
    pub(super) fn expire_lingering(&mut self, now: Instant) {
        while let Some(&Reverse((until, queue))) = self.lingering.peek()
            && until <= now
        {
            self.lingering.pop();
            let holder = self.queues.at(queue).holder;
            if holder.is_some_and(|holder| holder.lingers_until == until) {
                self.end_linger(queue);
            }
        }
    }
}

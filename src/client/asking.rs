//! The callers' side of the table: a caller begins a call, gives it up, or takes its result.

use super::calls::{CallKind, CallResult, Left, Listener, Stage, Taken};
use super::counting::Moment;
use super::indices::{CallIndex, QueueIndex};
use super::refused::Refused;
use super::span::CallSpan;
use super::table::{Command, Table, Task};
use crate::driver::Lease;
use crate::engine::LeaseId;
use crate::error::LockError;
use crate::options::{LockOptions, Patience};
use crate::time::Instant;

impl Table {
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
        if self.is_closed {
            return Err(LockError::Closed);
        }
        let call = self.calls.open(CallKind::Lock).ok_or(LockError::Full)?;
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
        if patience.is_patient && (is_contended || holder.is_some()) {
            // A holder whose time seems to be over blocks the queue, so the table checks it again.
            let holder_ends = here.holder.map_or(Instant::MAX, |holder| holder.valid_until);
            self.queues.push(queue, call, &mut self.calls);
            self.counting.queues(true);
            self.calls.at_mut(call).span = span.take();
            self.next_due = self.next_due.min(patience.ends).min(holder_ends);
        } else if let Some(holder) = holder {
            // An attempt would be in vain: this process holds the key itself.
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
                self.begin_extension(*queue, *lease, *ttl);
            }
            Task::Acquire { .. }
            | Task::Detach { .. }
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

    /// Takes the result of a call that is done. The caller must drop the remains outside of the
    /// mutex.
    pub(super) fn take(&mut self, call: CallIndex) -> (Taken, Left) {
        let place = self.calls.at(call);
        let (queue, kind) = (place.queue, place.kind);
        let mut left = self.calls.close(call);
        let reply = left.reply.take().unwrap_or_else(|| CallResult::closed(kind, 0));
        ((reply, queue), left)
    }

    /// The caller has given the call up. Returns the remains of the call: their reply has the lease
    /// that the call had won.
    pub(super) fn abandon(&mut self, call: CallIndex) -> Left {
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
                Left::listener(self.calls.listen(call, Listener::None))
            }
            Stage::Done => self.calls.close(call),
            Stage::Free => Left::default(),
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
}

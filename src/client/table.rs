//! [`Table`]: what callers' threads and the I/O thread share, behind one mutex that is held for
//! some hundred nanoseconds at a time: no system call, large allocation or foreign code runs under
//! it.
//!
//! # Invariants
//!
//! - Of the calls for one key that may wait, at most one competes on the network.
//! - The first of a queue is promoted as soon as the key has neither holder nor competitor.
//! - Commands are carried out in their order: a SET goes behind the release before it.
//! - The I/O thread sleeps only while there are no commands, and no longer than until something is
//!   due here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::calls::{CallIndex, Calls, Kind, Left, Listener, Reply, Stage};
use super::counting::{Counting, Moment};
use super::queues::{QueueIndex, Queues};
use super::refused::Refused;
use super::rules::Rules;
use super::sleeping::Sleeping;
use super::span::CallSpan;
use crate::driver::{Connecting, Driver, Lease};
use crate::engine::{Engine, LeaseId};
use crate::error::{ConnectError, LockError};
use crate::key::Key;
use crate::options::{LockOptions, Patience};
use crate::query::Query;
use crate::quorum::NodeMask;
use crate::rules;
use crate::time::Instant;

/// What the I/O thread is to do.
#[cfg_attr(
    feature = "tracing",
    expect(clippy::large_enum_variant, reason = "a box would be an allocation of each call")
)]
#[derive(Debug)]
pub(super) enum Command {
    /// Something for this call, in the span of its caller.
    Call(CallIndex, Task, CallSpan),
    /// A lease to release; no call waits for the result.
    Release(Lease),
    Shutdown {
        ends: Instant,
    },
    /// The last client, guard and call is gone.
    Close,
}

#[derive(Debug)]
pub(super) enum Task {
    Acquire {
        key: Key,
        options: LockOptions,
        ends: Instant,
    },
    Extend {
        queue: QueueIndex,
        lease: LeaseId,
        ttl: Duration,
    },
    Detach {
        lease: LeaseId,
    },
    Unlock {
        lease: Lease,
    },
    UnlockToken {
        key: Vec<u8>,
        token: Vec<u8>,
    },
    Adopt {
        key: Vec<u8>,
        token: Vec<u8>,
        options: LockOptions,
    },
    Ask(Query, Instant),
    /// Waits for nodes to connect.
    Connect(Connecting),
    Look(fn(&mut Driver) -> Reply),
    /// The caller has given the call up.
    Cancel,
}

/// What a request came to, and the queue of its key.
pub(super) type Taken = (Reply, Option<QueueIndex>);

pub(super) struct Table {
    pub(super) calls: Calls,
    pub(super) queues: Queues,
    pub(super) commands: Vec<Command>,
    pub(super) sleeping: Sleeping,
    /// Nothing here is due before this.
    pub(super) next_due: Instant,
    /// When locks have lingered for long enough, the next first; some are taken again by then.
    pub(super) lingering: BinaryHeap<Reverse<(Instant, QueueIndex)>>,
    /// No call may begin any more.
    pub(super) is_closed: bool,
    /// The I/O thread has ended, with this many releases owed.
    pub(super) ended: Option<usize>,
    pub(super) rules: Arc<Rules>,
    pub(super) counting: Counting,
    /// The nodes that may vote, as the I/O thread last saw.
    pub(super) voters: NodeMask,
}

impl Table {
    /// `promotes`: see [`Sleeping`].
    pub(super) fn new(rules: Rules, calls_max: usize, promotes: bool) -> Self {
        Self {
            calls: Calls::new(calls_max),
            queues: Queues::default(),
            commands: Vec::new(),
            sleeping: Sleeping::new(promotes),
            next_due: Instant::MAX,
            lingering: BinaryHeap::new(),
            is_closed: false,
            ended: None,
            rules: Arc::new(rules),
            counting: Counting::default(),
            voters: NodeMask::EMPTY,
        }
    }

    // ---- callers ----

    /// Begins an acquisition: on the network, or behind other calls for the same key. Takes the span
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
        self.rules.check(key, options)?;
        let call = self.calls.open(Kind::Lock).ok_or(LockError::Full)?;
        let Some(queue) = self.queues.enter(key) else {
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
            // A holder whose time seems to be over is checked again: it blocks the queue.
            let holder_ends = here.holder.map_or(Instant::MAX, |holder| holder.valid_until);
            self.queues.push(queue, call, &mut self.calls);
            self.counting.queues(true);
            self.calls.at_mut(call).span = span.take();
            self.next_due = self.next_due.min(patience.ends).min(holder_ends);
        } else if let Some(holder) = holder {
            // Certainly in vain: this process holds the key itself.
            self.queues.leave(queue);
            self.calls.close(call);
            return Err(LockError::Taken(self.rules.queued_ballot(holder.voters)));
        } else {
            if !is_contended {
                self.queues.at_mut(queue).competitor = Some(call);
            }
            self.calls.at_mut(call).span = span.take();
            self.compete(queue, call);
        }
        Ok(call)
    }

    /// Begins a call that has no queue. Takes the span if it does.
    pub(super) fn begin(
        &mut self,
        kind: Kind,
        task: Task,
        span: &mut CallSpan,
    ) -> Result<CallIndex, Refused> {
        let call = self.open(kind)?;
        let place = self.calls.at_mut(call);
        match &task {
            Task::Adopt { key, options, .. } => {
                let queue = self.queues.enter(key);
                (place.queue, place.options) = (queue, options.clone());
                if let Some(queue) = queue {
                    self.end_linger(queue);
                }
            }
            Task::Extend { lease, queue, ttl } => {
                (place.lease, place.queue) = (Some(*lease), Some(*queue));
                self.begin_extension(*queue, *ttl);
            }
            Task::Acquire { .. }
            | Task::Detach { .. }
            | Task::Unlock { .. }
            | Task::UnlockToken { .. }
            | Task::Ask(..)
            | Task::Connect(_)
            | Task::Look(_)
            | Task::Cancel => {}
        }
        self.commands.push(Command::Call(call, task, span.take()));
        Ok(call)
    }

    fn open(&mut self, kind: Kind) -> Result<CallIndex, Refused> {
        if self.is_closed {
            return Err(Refused::Closed);
        }
        self.calls.open(kind).ok_or(Refused::Full)
    }

    /// Begins a wait for the end of a lock: at `deadline`, unless it is lost or extended before.
    pub(super) fn begin_loss(
        &mut self,
        lease: LeaseId,
        deadline: Instant,
    ) -> Result<CallIndex, Refused> {
        // No loss can be reported any more.
        if self.ended.is_some() {
            return Err(Refused::Closed);
        }
        let call = self.calls.open_beyond(Kind::Loss).ok_or(Refused::Full)?;
        self.calls.at_mut(call).lease = Some(lease);
        self.next_due = self.next_due.min(deadline);
        Ok(call)
    }

    /// Takes the result of a call that is done. What is left must be dropped outside of the mutex.
    pub(super) fn take(&mut self, call: CallIndex) -> (Taken, Left) {
        let place = self.calls.at(call);
        let (queue, kind) = (place.queue, place.kind);
        let mut left = self.calls.close(call);
        let reply = left.reply.take().unwrap_or_else(|| Reply::closed(kind, 0));
        ((reply, queue), left)
    }

    /// The caller has given the call up. Returns what the call had won, for the next.
    pub(super) fn abandon(&mut self, call: CallIndex) -> Left {
        let place = self.calls.at_mut(call);
        match place.stage {
            Stage::Queued => {
                self.leave_queue(call);
                self.calls.close(call)
            }
            Stage::UnderWay if place.kind == Kind::Loss => self.calls.close(call),
            Stage::UnderWay => {
                place.is_abandoned = true;
                self.commands.push(Command::Call(call, Task::Cancel, CallSpan::none()));
                Left::listener(self.calls.listen(call, Listener::None))
            }
            Stage::Done => self.calls.close(call),
            Stage::Free => Left::default(),
        }
    }

    /// A lease comes back from its holder: it goes to the next in its queue if it may, or is
    /// released.
    pub(super) fn give_back(
        &mut self,
        queue: QueueIndex,
        lease: Lease,
        may_pass: bool,
        now: impl FnOnce() -> Instant,
    ) -> Listener {
        let lease = match self.pass_on_if(may_pass, queue, lease, now) {
            Ok(listener) => return listener,
            Err(lease) => lease,
        };
        self.release(queue, lease);
        Listener::None
    }

    /// Releases a lease of a queue, unless the client has ended: then its TTL ends the key.
    pub(super) fn release(&mut self, queue: QueueIndex, lease: Lease) {
        if self.ended.is_some() {
            return;
        }
        let id = lease.id();
        self.commands.push(Command::Release(lease));
        self.vacate(queue, id);
    }

    /// Hands the lease to the next in its queue, without asking any node; where there is none it may
    /// linger. Returns the lease if it does not, or the next may not have it. Reads the clock only
    /// where the time matters.
    fn pass_on(
        &mut self,
        queue: QueueIndex,
        lease: Lease,
        now: impl FnOnce() -> Instant,
    ) -> Result<Listener, Lease> {
        if self.is_closed || !self.queues.is_held_by(queue, lease.id()) {
            return Err(lease);
        }
        let here = self.queues.at_mut(queue);
        let Some(next) = here.first else { return self.begin_linger(queue, lease, now) };
        let Some(holder) = &mut here.holder else { return Err(lease) };
        let turns_max = self.rules.turns_max(holder.is_wanted_elsewhere);
        if holder.turns >= turns_max || here.competitor.is_some() {
            return Err(lease);
        }
        let wanted = &self.calls.at(next).options;
        let is_short = lease.remaining_at(now()) < self.rules.validity_wanted(wanted);
        if !Rules::suits(holder, wanted) || rules::is_too_short_to_hand_on(is_short) {
            return Err(lease);
        }
        holder.turns += 1;
        holder.held_since = Moment::default();
        holder.valid_until = lease.deadline();
        // The lease keeps the queue from now on.
        self.leave_queue(next);
        self.counting.turn();
        Ok(self.calls.finish(next, Reply::Lock(Ok(lease))))
    }

    /// As [`pass_on`](Self::pass_on), if the lease may go to another call at all.
    pub(super) fn pass_on_if(
        &mut self,
        may_pass: bool,
        queue: QueueIndex,
        lease: Lease,
        now: impl FnOnce() -> Instant,
    ) -> Result<Listener, Lease> {
        if may_pass { self.pass_on(queue, lease, now) } else { Err(lease) }
    }

    /// Begins to release a lease and to report how that went.
    pub(super) fn begin_unlock(
        &mut self,
        queue: QueueIndex,
        lease: Lease,
        span: &mut CallSpan,
    ) -> Result<CallIndex, Refused> {
        let call = match self.open(Kind::Unlock) {
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

    /// The lease has no holder in this process any more.
    pub(super) fn vacate(&mut self, queue: QueueIndex, lease: LeaseId) {
        if self.queues.is_held_by(queue, lease) {
            self.queues.at_mut(queue).holder = None;
            self.advance(queue);
            self.queues.free_if_unused(queue);
        }
    }

    // ---- the I/O thread ----

    /// Takes the results of operations. Notes the listeners to notify.
    pub(super) fn hand_out(
        &mut self,
        engine: &Engine,
        has_lost: bool,
        now: Instant,
        replies: &mut Vec<(CallIndex, Reply)>,
        tell: &mut Vec<Listener>,
    ) {
        self.sleeping.wake();
        self.voters = engine.voters();
        if has_lost {
            // Checks the waits for that lease, and for its end.
            self.next_due = Instant::default();
        }
        // Before the results: no call whose time is over goes to the nodes in its turn.
        self.expire(now, engine, tell);
        for (call, reply) in replies.drain(..) {
            let listener = self.complete(call, reply, engine, now);
            if !matches!(listener, Listener::None) {
                tell.push(listener);
            }
        }
        for (lease, key) in engine.waited_for() {
            let lingering = self.queues.note_wanted_elsewhere(lease, key);
            self.commands.extend(lingering.map(Command::Release));
        }
        self.expire_lingering(now);
    }

    /// Swaps the commands that have come for a list without any, for the driving thread.
    pub(super) fn take_commands(&mut self, commands: &mut Vec<Command>) {
        self.sleeping.wake();
        std::mem::swap(commands, &mut self.commands);
    }

    /// Takes the result of an operation.
    fn complete(
        &mut self,
        call: CallIndex,
        reply: Reply,
        engine: &Engine,
        now: Instant,
    ) -> Listener {
        let place = self.calls.at(call);
        let (queue, kind, lease) = (place.queue, place.kind, place.lease);
        if let (Some(queue), Some(lease)) = (queue, lease) {
            self.look_at(queue, lease, engine);
        }
        if let Some(queue) = queue.filter(|_| matches!(kind, Kind::Lock | Kind::Adopt)) {
            self.decided(queue, call, &reply);
        }
        let place = self.calls.at(call);
        if !place.is_abandoned {
            return self.calls.finish(call, reply);
        }
        let may_pass = place.may_pass();
        // No listener: the caller that gave the call up has taken it along.
        self.calls.close(call);
        match (reply, queue) {
            (Reply::Lock(Ok(lease)) | Reply::Adopt(Ok(lease)), Some(queue)) => {
                self.give_back(queue, lease, may_pass, || now)
            }
            _ => Listener::None,
        }
    }

    /// The network has decided a call for a key: it holds the key, or the next one competes.
    fn decided(&mut self, queue: QueueIndex, call: CallIndex, reply: &Reply) {
        let here = self.queues.at_mut(queue);
        if here.competitor == Some(call) {
            here.competitor = None;
        }
        if let Reply::Lock(Ok(lease)) | Reply::Adopt(Ok(lease)) = reply {
            self.queues.won(queue, lease, &self.calls.at(call).options);
            if self.queues.at(queue).first.is_some() {
                // The calls behind wait for the end of this lease.
                self.next_due = self.next_due.min(lease.deadline());
            }
        }
        self.advance(queue);
        self.queues.leave(queue);
    }

    /// Notes the present deadline of a lease.
    pub(super) fn look_at(&mut self, queue: QueueIndex, lease: LeaseId, engine: &Engine) {
        if !self.queues.is_held_by(queue, lease) {
            return;
        }
        if let Some(holder) = &mut self.queues.at_mut(queue).holder {
            holder.valid_until = engine.deadline(lease).unwrap_or_default();
            self.next_due = self.next_due.min(holder.valid_until);
        }
    }

    /// Ends the waits whose time is over, and advances the queues whose holder's time is over.
    fn expire(&mut self, now: Instant, engine: &Engine, tell: &mut Vec<Listener>) {
        if now < self.next_due {
            return;
        }
        let mut next_due = Instant::MAX;
        for call in self.calls.indices() {
            let place = self.calls.at(call);
            if place.kind == Kind::Loss && place.stage == Stage::UnderWay {
                let lease = place.lease.filter(|lease| !engine.is_lost(*lease));
                let deadline = lease.and_then(|lease| engine.deadline(lease));
                match deadline.filter(|deadline| *deadline > now) {
                    Some(deadline) => next_due = next_due.min(deadline),
                    None => tell.push(self.calls.finish(call, Reply::Lost)),
                }
            }
            let place = self.calls.at(call);
            if place.stage != Stage::Queued {
                continue;
            }
            if place.ends > now {
                next_due = next_due.min(place.ends);
                continue;
            }
            let error = self.why_not(place.queue, engine, now);
            self.leave_queue(call);
            tell.push(self.calls.finish(call, Reply::Lock(Err(error))));
        }
        for index in self.queues.indices() {
            let queue = self.queues.at_mut(index);
            let Some(holder) = &mut queue.holder else { continue };
            // The lease may have been extended or lost meanwhile.
            holder.valid_until = engine.deadline(holder.id).unwrap_or_default();
            if queue.first.is_none() {
                continue;
            }
            if holder.valid_until > now {
                next_due = next_due.min(holder.valid_until);
            } else {
                queue.holder = None;
                self.advance(index);
            }
        }
        self.next_due = next_due;
    }

    /// The error of a call that waited in the queue in vain.
    fn why_not(&self, queue: Option<QueueIndex>, engine: &Engine, now: Instant) -> LockError {
        let holder = queue.and_then(|queue| self.queues.at(queue).holder);
        match engine.connect_error(now) {
            Some(ConnectError::NoQuorum(ballot)) if holder.is_none() => LockError::NoQuorum(ballot),
            _ => {
                let voters = holder.map_or(NodeMask::EMPTY, |holder| holder.voters);
                LockError::Taken(self.rules.queued_ballot(voters))
            }
        }
    }

    // ---- inside ----

    /// The first of the queue competes, if the key has neither holder nor competitor.
    fn advance(&mut self, index: QueueIndex) {
        let queue = self.queues.at_mut(index);
        let Some(next) = queue.first else { return };
        // `close` ends the waiting calls.
        if self.is_closed {
            return;
        }
        if queue.holder.is_some() || queue.competitor.is_some() {
            return;
        }
        queue.competitor = Some(next);
        self.queues.unlink(index, next, &mut self.calls);
        self.counting.queues(false);
        self.compete(index, next);
    }

    /// The call waits behind others no longer.
    pub(super) fn leave_queue(&mut self, call: CallIndex) {
        if let Some(queue) = self.calls.at(call).queue {
            self.queues.unlink(queue, call, &mut self.calls);
            self.counting.queues(false);
            self.queues.leave(queue);
        }
    }

    fn compete(&mut self, queue: QueueIndex, call: CallIndex) {
        let place = self.calls.at_mut(call);
        let (mut options, ends, span) = (place.options.clone(), place.ends, place.span.take());
        // Only the table lets a lock linger: for the engine the lease is held.
        options.linger_ms = 0;
        let key = Key::from_slice(&self.queues.at(queue).key);
        self.commands.push(Command::Call(call, Task::Acquire { key, options, ends }, span));
    }
}

//! How operations end, and what their callers then believe.

use std::cmp::Ordering;

use super::client::SimClient;
use super::counts::Path;
use super::task::{Task, TaskState};
use super::world::{Phase, World};
use crate::client::front::Front;
use crate::engine::{Event, LeaseId, LostCause};
use crate::error::{ExtendError, LockError, Unlocked};
use crate::quorum::NodeMask;
use crate::rules::Kind;
use crate::time::Instant;

impl World {
    /// An operation has ended; the client read `now` before it took the result.
    pub(super) fn result(&mut self, client: usize, event: Event, now: Instant) {
        self.log(|_| format!("client {client}: {event:?}"));
        self.changed();
        self.check_words(client, &event, now);
        let (Event::Lock { op, .. }
        | Event::Extend { op, .. }
        | Event::Adopt { op, .. }
        | Event::Unlock { op, .. }
        | Event::Lost { op, .. }
        | Event::Query { op, .. }) = event;
        let SimClient { front, engine, .. } = &mut self.clients[client];
        if front.as_mut().is_some_and(|front| front.take(engine, &event)) {
            return;
        }
        if let Event::Lost { lease, cause, .. } = event {
            return self.lost(client, lease, cause, now);
        }
        let tasks = &self.clients[client].tasks;
        let task = tasks.iter().position(|task| task.op == Some(op));
        match (event, task) {
            (Event::Lock { result, .. }, Some(task)) => self.locked(client, task, result, now),
            (Event::Adopt { result: Ok(lease), .. }, Some(task)) => {
                self.counts.path(Path::Adopted);
                self.holds(client, task, lease, true, now);
            }
            (Event::Adopt { result: Err(_), .. }, Some(task)) => {
                self.counts.path(Path::AdoptFailed);
                self.idle(client, task);
            }
            (Event::Extend { result, .. }, task) => self.extended(client, task, result, now),
            (Event::Unlock { result, .. }, Some(task)) => {
                if self.clients[client].tasks[task].state == TaskState::Unlocking {
                    self.counts.path(Path::TokenUnlocked);
                }
                if result == Ok(Unlocked::Released) {
                    self.look_at_release(client, task);
                }
                self.unlocked(client, task, &result);
            }
            (Event::Query { answers, .. }, Some(task)) => self.asked(client, task, &answers),
            (event, _) => self.oracle.fail(Kind::Unasked, || format!("nobody waits for {event:?}")),
        }
    }

    /// A client that stood still may get its lease only after a later lease.
    fn look_at_fence(&mut self, client: usize, task: usize, lease: LeaseId) {
        let this = &self.clients[client];
        let Some(fence) = this.engine.fence(lease) else { return };
        self.counts.path(Path::Fenced);
        let now = this.local(self.now);
        if this.engine.deadline(lease).is_some_and(|deadline| now < deadline) {
            self.oracle.fenced(this.tasks[task].key, fence);
        }
    }

    pub(super) fn locked(
        &mut self,
        client: usize,
        task: usize,
        result: Result<LeaseId, LockError>,
        now: Instant,
    ) {
        let granted = match &result {
            Ok(lease) => self.clients[client].engine.votes(*lease),
            // Such a call may have waited for its turn in vain. Its error names the nodes that
            // would vote.
            Err(LockError::NoQuorum(_)) if self.clients[client].front.is_some() => NodeMask::EMPTY,
            Err(LockError::Taken(it) | LockError::NoQuorum(it) | LockError::Expired(it)) => {
                it.granted
            }
            Err(_) => NodeMask::EMPTY,
        };
        self.check_memory((client, task), granted, result.as_ref().ok().copied());
        let is_set = !self.clients[client].tasks[task].more.is_empty();
        let path = match result {
            Ok(lease) => {
                self.counts.leases += 1;
                if self.clients[client].tasks[task].is_retried {
                    self.counts.path(Path::LockedByRetry);
                }
                for granted in self.clients[client].engine.votes_by_key(lease) {
                    let servers = self.servers_of(granted);
                    let began = self.clients[client].tasks[task].began;
                    let is_quorum = self.is_quorum(client, servers, began);
                    self.oracle.check(Kind::NoQuorum, is_quorum, || {
                        format!("a lease with the votes of {servers:?}")
                    });
                }
                self.note_slot(client, task, lease);
                self.counts.path(Path::Locked);
                if is_set {
                    self.counts.path(Path::SetLocked);
                }
                self.look_at_fence(client, task, lease);
                self.clients[client].tasks[task].holder = self.holder();
                let called_at = self.clients[client].tasks[task].began;
                self.holds(client, task, lease, true, now);
                return self.check_votes(client, task, called_at);
            }
            Err(LockError::Taken(_)) => Path::Taken,
            Err(LockError::NoQuorum(_)) => {
                self.counts.path(Path::NoQuorum);
                self.idle(client, task);
                // An attempt would not go better soon.
                let wait = self.plan.gap * self.random.between(1, 8);
                self.clients[client].tasks[task].next_at += wait;
                return;
            }
            Err(LockError::Expired(_)) => Path::Expired,
            Err(LockError::Cancelled | LockError::Closed) => Path::Cancelled,
            Err(LockError::Full) if self.plan.lingers > 0 || is_set => Path::Full,
            Err(other) => return self.oracle.fail(Kind::OddError, || format!("lock: {other}")),
        };
        self.counts.path(path);
        self.idle(client, task);
    }

    /// A lease that its engine looked after is over.
    fn lost(&mut self, client: usize, lease: LeaseId, cause: LostCause, now: Instant) {
        self.counts.path(match cause {
            LostCause::Expired => Path::LostExpired,
            LostCause::Gone | LostCause::Forgotten => Path::LostGone,
        });
        let engine = &self.clients[client].engine;
        let is_over = engine.is_lost(lease) && engine.remaining_at(lease, now).is_zero();
        self.oracle.check(Kind::FalseLoss, is_over, || {
            format!("client {client}: {lease:?} is lost and valid")
        });
        let this = &self.clients[client];
        match this.tasks.iter().position(|task| task.lease == Some(lease)) {
            Some(task) => {
                self.told_deadline(client, task);
            }
            // The lease waits for the next call of its client.
            None if this.front.as_ref().is_some_and(|front| front.keeps(lease)) => {}
            None => self
                .oracle
                .fail(Kind::Unasked, || format!("client {client}: nobody holds {lease:?}")),
        }
    }

    /// Looks at what the engine has just done to leases by itself.
    pub(super) fn look_at_kept(&mut self, client: usize, now: Instant) {
        while let Some(lease) = self.clients[client].engine.poll_change() {
            let this = &mut self.clients[client];
            if let Some(front) = &mut this.front {
                front.copy(&this.engine, lease);
            }
            let (is_extending, remaining) =
                (this.engine.is_extending(lease), this.engine.remaining_at(lease, now));
            // A lease that a task let go of is released with the client's next turn.
            let Some(task) = this.tasks.iter().position(|task| task.lease == Some(lease)) else {
                continue;
            };
            let is_kept = this.tasks[task].is_kept;
            let deadline = this.engine.deadline(lease);
            let moves = deadline.cmp(&this.tasks[task].deadline);
            if moves == Ordering::Greater {
                self.moved_on(client, task, false);
            }
            self.log(|_| format!("client {client} keeps {lease:?}, {remaining:?} left"));
            match moves {
                _ if is_kept && is_extending => self.counts.path(Path::KeepAliveBegun),
                Ordering::Greater if is_kept => self.counts.path(Path::KeptAlive),
                // Only its votes have changed.
                Ordering::Equal => self.counts.path(Path::LateVote),
                Ordering::Less | Ordering::Greater => {}
            }
            self.told_deadline(client, task);
        }
        let this = &self.clients[client];
        let engine = &this.engine;
        let kept = this.tasks.iter().filter(|task| task.is_kept);
        let untold = kept
            .filter_map(|task| task.lease)
            .find(|&lease| engine.remaining_at(lease, now).is_zero() && !engine.is_lost(lease));
        self.oracle.check(Kind::LossNotTold, untold.is_none(), || {
            format!("client {client}: the end of {untold:?} is not known")
        });
    }

    /// An engine that no task wants anything of, and that keeps no lease, begins nothing.
    pub(super) fn look_at_idle(&mut self, client: usize) {
        let this = &self.clients[client];
        let is_idle =
            |task: &Task| task.op.is_none() && task.call.is_none() && task.lease.is_none();
        let in_flight = this.engine.in_flight();
        let keeps = this.front.as_ref().is_some_and(Front::is_in_use);
        let is_busy = this.engine.has_event() || !this.dropped.is_empty() || keeps;
        let is_asked = is_busy || !this.tasks.iter().all(is_idle);
        self.oracle.check(Kind::Unasked, is_asked || in_flight == 0, || {
            format!("client {client}: {in_flight} operations that nobody asked for")
        });
    }

    /// A caller has got a lease.
    pub(super) fn holds(
        &mut self,
        client: usize,
        task: usize,
        lease: LeaseId,
        is_new: bool,
        now: Instant,
    ) {
        let this = &mut self.clients[client];
        for (_, token) in this.names(lease) {
            self.ledger.held(client, token.as_bytes());
            self.claims.asked(token.as_bytes(), this.tasks[task].ttl_ms);
        }
        let validity = this.engine.remaining_at(lease, now);
        let place = &mut this.tasks[task];
        place.state = TaskState::Holding;
        place.lease = Some(lease);
        place.op = None;
        let least = std::mem::take(&mut place.min_validity);
        self.oracle.check(Kind::ShortLease, !validity.is_zero() && validity >= least, || {
            format!("client {client} was given a lease with {validity:?} left of {least:?}")
        });
        let this = &self.clients[client];
        // A failed extension to a shorter TTL may have moved the deadline to an earlier time. Then
        // its round proves nothing.
        if is_new || this.engine.deadline(lease) > this.tasks[task].deadline {
            self.moved_on(client, task, is_new);
        }
        self.told_deadline(client, task);
        if is_new {
            self.call_won(client, task);
        } else {
            self.call_served(client, task);
        }
        if self.phase == Phase::Progress {
            self.goal_reached(client);
        }
        self.hold_on(client, task);
    }

    fn extended(
        &mut self,
        client: usize,
        task: Option<usize>,
        result: Result<(), ExtendError>,
        now: Instant,
    ) {
        let Some(task) = task else {
            // Its lease was released meanwhile.
            return self.counts.path(Path::ExtendCancelled);
        };
        let this = &mut self.clients[client];
        if let (Some(front), Some(held)) = (&mut this.front, &this.tasks[task].held) {
            front.look_at(&this.engine, held);
        }
        let old_deadline = this.tasks[task].old_deadline;
        let deadline = this.tasks[task].lease.and_then(|lease| this.engine.deadline(lease));
        let path = match result {
            Ok(()) => {
                let is_valid = deadline.is_some_and(|deadline| deadline > now);
                self.oracle.check(Kind::ShortLease, is_valid, || {
                    format!("client {client}: an extension that is over is reported as won")
                });
                self.moved_on(client, task, false);
                let is_shorter = deadline.is_some_and(|deadline| deadline < old_deadline);
                if is_shorter { Path::Shortened } else { Path::Extended }
            }
            Err(ref error) => {
                let later = deadline.is_some_and(|deadline| deadline > old_deadline);
                // Of several keys, the key that ended first may be extended and another key not.
                let is_set = !this.tasks[task].more.is_empty();
                let is_kept = !later || is_set || matches!(error, ExtendError::Expired);
                self.oracle.check(Kind::DeadlineMoved, is_kept, || {
                    "a failed extension moved the deadline on".to_owned()
                });
                match error {
                    ExtendError::Lost(_) => Path::ExtendLost,
                    ExtendError::NoQuorum(_) => Path::ExtendNoQuorum,
                    ExtendError::Expired => Path::ExtendExpired,
                    ExtendError::Cancelled => Path::ExtendCancelled,
                    other => {
                        return self.oracle.fail(Kind::OddError, || format!("extension: {other}"));
                    }
                }
            }
        };
        self.counts.path(path);
        let is_missed = path == Path::ExtendNoQuorum;
        let place = &mut self.clients[client].tasks[task];
        place.op = None;
        place.state = TaskState::Holding;
        self.told_deadline(client, task);
        self.hold_on(client, task);
        if is_missed && self.random.chance(600) {
            // The holder tries again before its time is up.
            let after = self.random.below(2 * self.plan.node_timeout);
            self.clients[client].tasks[task].next_at = self.now + after;
        }
    }
}

//! [`Front`]: a client's table and leases in front of an engine, without threads or sockets. With
//! it the simulation tests the part that the callers of a client share.

use super::calls::{CallIndex, CallResult, QueueIndex};
use super::policy::{Lists, Policy};
use super::span::CallSpan;
use super::table::{Command, Table, Task};
use crate::config::Config;
use crate::driver::{Lease, LeasePool};
use crate::engine::{Engine, Event, LeaseId, OpId};
use crate::error::{ConfigError, ExtendError, LockError, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::time::Instant;

use std::time::Duration;

/// A call for a lock, or an unlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(CallIndex);

/// A lock as its caller has it.
#[derive(Debug)]
pub(crate) struct FrontLease {
    queue: QueueIndex,
    lease: Lease,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum Ended {
    Lock(Result<FrontLease, LockError>),
    Unlock(Result<Unlocked, UnlockError>),
}

/// See the [module](self).
pub(crate) struct Front {
    table: Table,
    pool: LeasePool,
    /// The calls whose results no caller has taken, each with the validity that it asks for.
    open: Vec<(CallIndex, Duration)>,
    /// The calls on which the engine works.
    ops: Vec<(OpId, CallIndex)>,
    /// The calls that have come to the engine, and that [`next_begun`](Self::next_begun) has not
    /// returned.
    begun: Vec<Ticket>,
    replies: Vec<(CallIndex, CallResult)>,
}

impl FrontLease {
    pub(crate) fn id(&self) -> LeaseId {
        self.lease.id()
    }
}

impl Front {
    pub(crate) fn new(config: &Config, calls_max: usize) -> Result<Self, ConfigError> {
        // The engine of a simulation trusts all clocks, so it gives fences.
        let mut policy = Policy::new(config)?;
        policy.no_fences = None;
        Ok(Self {
            table: Table::new(policy, calls_max, false),
            pool: LeasePool::new(),
            open: Vec::new(),
            ops: Vec::new(),
            begun: Vec::new(),
            replies: Vec::new(),
        })
    }

    // ---- callers ----

    /// As [`Client::lock`](super::Client::lock), or `try_lock` without a retry.
    pub(crate) fn lock(
        &mut self,
        engine: &mut Engine,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<Ticket, LockError> {
        self.table.policy.check(key, options)?;
        let patience = options.patience(now);
        let call = self.table.begin_lock(key, options, patience, &mut CallSpan::none(), now)?;
        self.open.push((call, options.min_validity));
        self.carry_out(engine, now);
        Ok(Ticket(call))
    }

    /// As the drop of a guard: the engine writes nothing before the next [`turn`](Self::turn).
    /// Returns whether the lease lingers.
    pub(crate) fn give_back(&mut self, held: FrontLease, may_pass: bool, now: Instant) -> bool {
        let FrontLease { queue, lease } = held;
        drop(self.table.give_back(queue, lease, may_pass, || now));
        self.table.queues.at(queue).lingering.is_some()
    }

    /// As [`Guard::unlock`](super::Guard::unlock). `Ok(None)`: the lease goes to the next caller,
    /// or lingers.
    pub(crate) fn unlock(
        &mut self,
        engine: &mut Engine,
        held: FrontLease,
        may_pass: bool,
        now: Instant,
    ) -> Result<Option<Ticket>, UnlockError> {
        let FrontLease { queue, lease } = held;
        let lease = match self.table.pass_on(may_pass, queue, lease, || now) {
            Ok(_listener) => return Ok(None),
            Err(lease) => lease,
        };
        let begun = self.table.begin_unlock(queue, lease, &mut CallSpan::none());
        self.open.extend(begun.ok().map(|call| (call, Duration::ZERO)));
        self.carry_out(engine, now);
        Ok(Some(Ticket(begun?)))
    }

    /// As the drop of a call: no result follows.
    pub(crate) fn give_up(&mut self, engine: &mut Engine, ticket: Ticket, now: Instant) {
        self.open.retain(|(call, _)| *call != ticket.0);
        let queue = self.table.calls.at(ticket.0).queue;
        let reply = self.table.abandon(ticket.0).reply.take();
        drop(reply.map(|reply| self.table.take_back(queue, reply, || now)));
        self.carry_out(engine, now);
    }

    /// As [`Guard::extend`](super::Guard::extend); the engine reports the result.
    pub(crate) fn extend(
        &mut self,
        engine: &mut Engine,
        held: &FrontLease,
        ttl: Duration,
        now: Instant,
    ) -> Result<OpId, ExtendError> {
        self.table.note_extension(held.queue, held.id(), ttl);
        let result = engine.extend(held.id(), ttl, now);
        self.look_at(engine, held);
        result
    }

    /// The deadline of a lease may have changed.
    pub(crate) fn look_at(&mut self, engine: &Engine, held: &FrontLease) {
        self.copy(engine, held.id());
        self.table.look_at(held.queue, held.id(), engine);
    }

    /// The holder gave the lock away.
    pub(crate) fn give_away(&mut self, held: FrontLease) {
        held.lease.end();
        self.table.vacate(held.queue, held.id());
        self.pool.reclaim(held.lease);
    }

    /// No call gets a lock from now on.
    pub(crate) fn close(&mut self, engine: &mut Engine, now: Instant) {
        self.table.close(&mut Vec::new());
        self.carry_out(engine, now);
    }

    // ---- the loop ----

    /// Takes an event of the engine, if it is the result of a call. Returns whether it is.
    pub(crate) fn take(&mut self, engine: &mut Engine, event: &Event) -> bool {
        let (op, reply) = match event {
            Event::Lock { op, result: Ok(id) } => {
                let lease = self.pool.lease_of(engine, *id).ok_or(LockError::Cancelled);
                (op, CallResult::Lock(lease))
            }
            Event::Lock { op, result: Err(error) } => (op, CallResult::Lock(Err(error.clone()))),
            Event::Unlock { op, result } => (op, CallResult::Unlock(*result)),
            Event::Lost { lease, .. } | Event::Extend { lease, .. } => {
                self.copy(engine, *lease);
                return false;
            }
            Event::Adopt { .. } | Event::Query { .. } => return false,
        };
        let Some(place) = self.ops.iter().position(|(its, _)| its == op) else { return false };
        let (_, call) = self.ops.swap_remove(place);
        self.replies.push((call, reply));
        true
    }

    /// The driving thread's work after each pass: it hands results out and carries commands out.
    pub(crate) fn turn(&mut self, engine: &mut Engine, now: Instant) {
        loop {
            let has_lost = std::mem::take(&mut self.pool.has_lost);
            self.table.hand_out(engine, has_lost, now, &mut self.replies, &mut Vec::new());
            self.carry_out(engine, now);
            if self.replies.is_empty() {
                return;
            }
        }
    }

    /// A call that came to the engine.
    pub(crate) fn next_begun(&mut self) -> Option<Ticket> {
        self.begun.pop()
    }

    /// A call that has ended. The table's rules judge its lease just before the caller gets it.
    pub(crate) fn next_ended(
        &mut self,
        engine: &mut Engine,
        now: Instant,
    ) -> Option<(Ticket, Ended)> {
        let is_done = |call: CallIndex, table: &Table| table.calls.is_done(call);
        let place = self.open.iter().position(|(call, _)| is_done(*call, &self.table))?;
        let (call, min_validity) = self.open.remove(place);
        let ((reply, queue), _left) = self.table.calls.take(call);
        let ended = match (reply, queue) {
            (CallResult::Lock(Ok(lease)), Some(queue)) => {
                let (remaining, votes) = (lease.remaining_at(now), lease.votes());
                let lists = || self.table.lists.clone();
                let checked = Lists::check_lease(remaining, min_validity, votes, lists);
                let held = FrontLease { queue, lease };
                if let Err(error) = checked {
                    self.give_back(held, true, now);
                    self.carry_out(engine, now);
                    Ended::Lock(Err(error))
                } else {
                    Ended::Lock(Ok(held))
                }
            }
            (CallResult::Lock(Err(error)), _) => Ended::Lock(Err(error)),
            (CallResult::Unlock(result), _) => Ended::Unlock(result),
            (other, _) => unreachable!("no such call was made: {other:?}"),
        };
        Some((Ticket(call), ended))
    }

    /// When the next turn is due.
    pub(crate) fn due_at(&self) -> Instant {
        if self.table.commands.is_empty() { self.table.due_at() } else { Instant::default() }
    }

    /// Whether any call or key is left, or any command to carry out.
    pub(crate) fn is_in_use(&self) -> bool {
        self.table.calls.in_use() + self.table.queues.in_use() + self.table.commands.len() > 0
    }

    /// Whether the table keeps a lease for the next caller.
    pub(crate) fn keeps(&self, id: LeaseId) -> bool {
        self.table.queues.indices().any(|queue| self.table.queues.is_held_by(queue, id))
    }

    /// The engine may have changed a lease by itself.
    pub(crate) fn copy(&mut self, engine: &Engine, id: LeaseId) {
        self.pool.copy_change(engine, id);
    }

    // ---- inside ----

    fn carry_out(&mut self, engine: &mut Engine, now: Instant) {
        for command in std::mem::take(&mut self.table.commands) {
            match command {
                Command::Call(call, Task::Acquire { key, options, ends }, _) => {
                    self.begun.push(Ticket(call));
                    let late = || self.table.lists.queued_in_vain(None, engine, now);
                    let options = options.until(ends, now).ok_or_else(late);
                    match options.and_then(|options| engine.acquire(&key, &options, now)) {
                        Ok(op) => self.ops.push((op, call)),
                        Err(error) => self.replies.push((call, CallResult::Lock(Err(error)))),
                    }
                }
                Command::Call(call, Task::Unlock { lease }, _) => {
                    let result = engine.unlock(lease.id(), now);
                    self.pool.reclaim(lease);
                    match result {
                        Ok(op) => self.ops.push((op, call)),
                        Err(error) => self.replies.push((call, CallResult::Unlock(Err(error)))),
                    }
                }
                Command::Call(call, Task::Cancel, _) => {
                    if let Some((op, _)) = self.ops.iter().find(|(_, its)| *its == call) {
                        engine.cancel(*op, now);
                    }
                }
                Command::Release(lease) => {
                    engine.release(lease.id(), now);
                    self.pool.reclaim(lease);
                }
                other @ (Command::Call(..) | Command::Shutdown { .. } | Command::Close) => {
                    unreachable!("no such call was made: {other:?}")
                }
            }
        }
    }
}

//! Results of operations, as the owner of a driver sees them.

use super::core::Driver;
use super::lease::Lease;
use crate::engine::{Event, LostCause, OpId};
use crate::error::{ExtendError, LockError, UnlockError, Unlocked};
use crate::query::NodeAnswers;
use crate::time::Instant;

/// An operation that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The id that [`Driver::try_lock`] or a similar call returned. For a loss: the id of the call
    /// that took or adopted the lease.
    pub id: OpId,
    /// How it ended.
    pub result: Outcome,
}

/// How an operation ended, by its kind.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The result of [`Driver::try_lock`], [`Driver::lock`], and of both for several keys.
    Lock(Result<Lease, LockError>),
    /// The result of [`Driver::extend`]; the lease itself knows its new deadline.
    Extend(Result<(), ExtendError>),
    /// The result of [`Driver::adopt`].
    Adopt(Result<Lease, ExtendError>),
    /// The result of [`Driver::unlock`] and [`Driver::unlock_token`].
    Unlock(Result<Unlocked, UnlockError>),
    /// A lease that is kept alive ended without its release. The driver reports that at the
    /// deadline at the latest, and at once if no quorum can hold the key any more.
    /// [`Lease::is_lost`] is already true; dropping the lease still deletes keys that may be left.
    Lost(LostCause),
    /// The result of [`Driver::query`]: each node's answers, in the order of the configuration.
    Query(Vec<NodeAnswers>),
}

impl Driver {
    /// Turns an event of the engine into a completion for the caller.
    pub(super) fn complete(&mut self, event: Event) -> Completion {
        match event {
            Event::Lock { op, result } => {
                let result = result.and_then(|id| {
                    self.pool.lease_of(&mut self.engine, id).ok_or(LockError::Cancelled)
                });
                Completion { id: op, result: Outcome::Lock(result) }
            }
            Event::Adopt { op, result } => {
                let result = result.and_then(|id| {
                    self.pool.lease_of(&mut self.engine, id).ok_or(ExtendError::NotOurs)
                });
                Completion { id: op, result: Outcome::Adopt(result) }
            }
            Event::Extend { op, lease, result } => {
                self.pool.copy_change(&self.engine, lease);
                Completion { id: op, result: Outcome::Extend(result) }
            }
            Event::Unlock { op, result } => Completion { id: op, result: Outcome::Unlock(result) },
            Event::Lost { op, lease, cause } => {
                self.pool.copy_change(&self.engine, lease);
                Completion { id: op, result: Outcome::Lost(cause) }
            }
            Event::Query { op, answers } => Completion { id: op, result: Outcome::Query(answers) },
        }
    }

    /// Releases the leases that their holders dropped.
    pub(crate) fn collect_dropped(&mut self, now: Instant) {
        if !self.pool.has_dropped() {
            return;
        }
        let engine = &mut self.engine;
        self.pool.take_dropped(|dropped, is_left| {
            if is_left {
                engine.leave(dropped, now);
            } else {
                engine.release(dropped, now);
            }
        });
    }

    /// Copies the changes that the engine made by itself to the leases.
    pub(super) fn copy_changes(&mut self) {
        while let Some(id) = self.engine.poll_change() {
            self.pool.copy_change(&self.engine, id);
        }
    }
}

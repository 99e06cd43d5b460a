//! Results of operations, as the owner of a driver sees them.

use super::core::Driver;
use super::lease::{Lease, LockedKey};
use crate::engine::{Engine, Event, LeaseId, LostCause, OpId};
use crate::error::{ExtendError, LockError, UnlockError, Unlocked};
use crate::key::Key;
use crate::query::NodeAnswers;
use crate::time::Instant;

use std::num::NonZeroU64;

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
    /// [`Lease::is_lost`] is already true; dropping the lease still releases what may be left of
    /// it.
    Lost(LostCause),
    /// The result of [`Driver::query`]: what each node answered, in the order of the configuration.
    Query(Vec<NodeAnswers>),
}

/// What a lease of several keys holds beside its first key.
pub(crate) fn rest_of(engine: &Engine, lease: LeaseId) -> Box<[LockedKey]> {
    let more = engine.more_names(lease).map(|(key, token, fence)| LockedKey {
        key: Key::from_slice(key),
        token: token.clone(),
        fence: fence.and_then(NonZeroU64::new),
    });
    more.collect()
}

impl Driver {
    /// Turns an event of the engine into a completion for the caller.
    pub(super) fn complete(&mut self, event: Event) -> Completion {
        match event {
            Event::Lock { op, result } => {
                let result = match result {
                    Ok(id) => self.make_lease(id).ok_or(LockError::Cancelled),
                    Err(error) => Err(error),
                };
                Completion { id: op, result: Outcome::Lock(result) }
            }
            Event::Adopt { op, result } => {
                let result = match result {
                    Ok(id) => self.make_lease(id).ok_or(ExtendError::NotOurs),
                    Err(error) => Err(error),
                };
                Completion { id: op, result: Outcome::Adopt(result) }
            }
            Event::Extend { op, lease, result } => {
                self.copy_deadline(lease);
                Completion { id: op, result: Outcome::Extend(result) }
            }
            Event::Unlock { op, result } => Completion { id: op, result: Outcome::Unlock(result) },
            Event::Lost { op, lease, cause } => {
                self.copy_deadline(lease);
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
        self.pool.take_dropped(|dropped| {
            engine.release(dropped, now);
        });
    }

    fn make_lease(&mut self, id: LeaseId) -> Option<Lease> {
        let (key, token) = self.engine.held_name(id)?;
        let deadline = self.engine.deadline(id)?;
        let (votes, fence) = (self.engine.votes(id), self.engine.fence(id));
        let rest = rest_of(&self.engine, id);
        let (lease, place) = self.pool.make(id, (key, token, fence), rest, deadline, votes);
        self.engine.set_word(id, place);
        Some(lease)
    }

    /// Copies the engine's deadline to the lease.
    pub(super) fn copy_deadline(&mut self, id: LeaseId) {
        if let (Some(place), Some(deadline)) = (self.engine.word(id), self.engine.deadline(id)) {
            self.pool.set_deadline(place, id, deadline);
            if self.engine.is_lost(id) {
                self.pool.set_lost(place, id);
            }
        }
    }

    /// Copies the changes that the engine made by itself to the leases.
    pub(super) fn copy_changes(&mut self) {
        while let Some(id) = self.engine.poll_change() {
            self.copy_deadline(id);
        }
    }

    /// Copies votes that late answers changed to the leases.
    pub(super) fn copy_late_votes(&mut self) {
        while let Some(id) = self.engine.poll_late_vote() {
            if let Some(place) = self.engine.word(id) {
                self.pool.set_votes(place, id, self.engine.votes(id));
            }
        }
    }
}

//! [`Driving`]: a driver, its leases by their handles, and the caller's pointers.
//!
//! # Invariants
//!
//! - The entry of an operation is at the index of its id, until its completion is taken.
//! - A lease that was lost stays in its place until the caller ends it.
//! - Each operation has one completion, also after a shutdown.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::engine::OpId;
use redbolt::{Lease, Unlocked};

use crate::completion::{redbolt_completion, redbolt_event, redbolt_op};
use crate::failure::Failure;
use crate::handles::{Handles, next_serial, redbolt_lease};

/// The caller's own pointer, which the library gives back and never follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User(pub(crate) *mut c_void);

// SAFETY: the pointer is a number here; only the caller follows it.
unsafe impl Send for User {}

impl Default for User {
    fn default() -> Self {
        Self(std::ptr::null_mut())
    }
}

/// An operation under way.
#[derive(Clone, Copy, Debug)]
struct Op {
    id: OpId,
    serial: u64,
    user: User,
    event: redbolt_event,
    /// Of an extension.
    lease: redbolt_lease,
}

#[derive(Debug, Default)]
struct Held {
    lease: Option<Lease>,
    /// The call that took the lease.
    taken_by: Option<OpId>,
    user: User,
}

pub(crate) struct Driving {
    // Dropped before the driver, whose end then writes their releases.
    leases: Handles<Held>,
    pub(crate) driver: Driver,
    ops: Vec<Option<Op>>,
    /// The operations that a shutdown has ended: the driver tells of none of them.
    closed: VecDeque<Op>,
}

impl Driving {
    pub(crate) fn new(driver: Driver) -> Self {
        Self { leases: Handles::default(), driver, ops: Vec::new(), closed: VecDeque::new() }
    }

    /// Ends all operations.
    pub(crate) fn shutdown(&mut self, limit: Duration) -> usize {
        self.closed.extend(self.ops.drain(..).flatten());
        self.driver.shutdown(limit)
    }

    /// How long the caller's loop may sleep; not at all while a completion waits that the driver does
    /// not know.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        if self.closed.is_empty() { self.driver.timeout() } else { Some(Duration::ZERO) }
    }

    fn enter(
        &mut self,
        id: OpId,
        user: User,
        event: redbolt_event,
        lease: redbolt_lease,
    ) -> redbolt_op {
        let place = id.index();
        if self.ops.len() <= place {
            self.ops.resize(place + 1, None);
        }
        let serial = next_serial();
        if let Some(entry) = self.ops.get_mut(place) {
            *entry = Some(Op { id, serial, user, event, lease });
        }
        redbolt_op { serial, place: place as u64 }
    }

    pub(crate) fn lock(
        &mut self,
        user: User,
        submit: impl FnOnce(&mut Driver) -> Result<OpId, Failure>,
    ) -> Result<redbolt_op, Failure> {
        let id = submit(&mut self.driver)?;
        Ok(self.enter(id, user, redbolt_event::REDBOLT_LOCKED, redbolt_lease::default()))
    }

    pub(crate) fn lease(&mut self, lease: redbolt_lease) -> Result<&Lease, Failure> {
        self.leases.get(lease)?.lease.as_ref().ok_or(Failure::NotALease)
    }

    pub(crate) fn extend(
        &mut self,
        lease: redbolt_lease,
        ttl: Duration,
        user: User,
    ) -> Result<redbolt_op, Failure> {
        let held = self.leases.get(lease)?.lease.as_ref().ok_or(Failure::NotALease)?;
        let id = self.driver.extend(held, ttl)?;
        Ok(self.enter(id, user, redbolt_event::REDBOLT_EXTENDED, lease))
    }

    pub(crate) fn unlock(
        &mut self,
        lease: redbolt_lease,
        user: User,
    ) -> Result<redbolt_op, Failure> {
        let held = self.take(lease)?;
        let id = self.driver.unlock(held)?;
        Ok(self.enter(id, user, redbolt_event::REDBOLT_UNLOCKED, redbolt_lease::default()))
    }

    /// Takes a lease out of its place; dropping it releases the lock.
    pub(crate) fn take(&mut self, lease: redbolt_lease) -> Result<Lease, Failure> {
        let taken = std::mem::take(self.leases.end(lease)?).lease;
        self.leases.put_back(lease);
        taken.ok_or(Failure::NotALease)
    }

    pub(crate) fn cancel(&mut self, op: redbolt_op) -> Result<(), Failure> {
        if self.closed.iter().any(|entry| entry.serial == op.serial) {
            return Ok(());
        }
        let entry = usize::try_from(op.place).ok().and_then(|place| self.ops.get(place));
        let entry = entry.copied().flatten().filter(|entry| entry.serial == op.serial);
        let entry = entry.ok_or(Failure::Argument("the operation has ended"))?;
        self.driver.cancel(entry.id);
        Ok(())
    }

    fn keep(&mut self, lease: Lease, taken_by: OpId, user: User) -> redbolt_lease {
        let (handle, place) = self.leases.take();
        *place = Held { lease: Some(lease), taken_by: Some(taken_by), user };
        handle
    }

    /// The next operation that has ended, and why it failed.
    pub(crate) fn completion(&mut self) -> Option<(redbolt_completion, Result<(), Failure>)> {
        loop {
            let Some(done) = self.driver.completion() else {
                let op = self.closed.pop_front()?;
                return Some(told(op.event, op.user, op.lease, Err(Failure::Closed)));
            };
            if let Outcome::Lost(_) = done.result {
                // If the caller has ended the lease meanwhile, there is nobody to tell.
                let is_it = |held: &Held| held.taken_by == Some(done.id);
                let Some((lease, held)) = self.leases.find(is_it) else { continue };
                let user = held.user;
                return Some(told(
                    redbolt_event::REDBOLT_LEASE_LOST,
                    user,
                    lease,
                    Err(Failure::Lost),
                ));
            }
            let entry = self.ops.get_mut(done.id.index()).and_then(Option::take);
            let Some(Op { user, lease, .. }) = entry else { continue };
            return Some(self.ended(done.id, done.result, user, lease));
        }
    }

    fn ended(
        &mut self,
        id: OpId,
        outcome: Outcome,
        user: User,
        lease: redbolt_lease,
    ) -> (redbolt_completion, Result<(), Failure>) {
        let none = redbolt_lease::default();
        match outcome {
            Outcome::Lock(Ok(lease)) => {
                let lease = self.keep(lease, id, user);
                told(redbolt_event::REDBOLT_LOCKED, user, lease, Ok(()))
            }
            Outcome::Lock(Err(error)) => {
                told(redbolt_event::REDBOLT_LOCKED, user, none, Err(error.into()))
            }
            Outcome::Extend(result) => {
                told(redbolt_event::REDBOLT_EXTENDED, user, lease, result.map_err(Failure::from))
            }
            Outcome::Unlock(result) => {
                let result = match result {
                    Ok(Unlocked::Released) => Ok(()),
                    Ok(_) => Err(Failure::Unconfirmed),
                    Err(error) => Err(error.into()),
                };
                told(redbolt_event::REDBOLT_UNLOCKED, user, none, result)
            }
            // The C surface submits none of these.
            Outcome::Adopt(_) | Outcome::Lost(_) | Outcome::Query(_) | _ => {
                told(redbolt_event::REDBOLT_LOCKED, user, none, Err(Failure::Panic))
            }
        }
    }
}

fn told(
    event: redbolt_event,
    user: User,
    lease: redbolt_lease,
    result: Result<(), Failure>,
) -> (redbolt_completion, Result<(), Failure>) {
    let code =
        result.as_ref().map_or_else(Failure::code, |()| crate::code::redbolt_code::REDBOLT_OK);
    let completion =
        redbolt_completion { event: event as i32, code: code as i32, user: user.0, lease };
    (completion, result)
}

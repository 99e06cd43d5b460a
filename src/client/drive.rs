//! Driving the connections between calls, for leases that are kept alive.

use std::io;
use std::time::Duration;

use super::Client;
use crate::driver::clock::now;
use crate::driver::{Lease, Outcome};
use crate::error::ExtendError;

impl Client {
    /// Reads what the nodes sent and begins the extensions that are due, without waiting. Every
    /// other call does this too; between calls no lease is kept alive.
    ///
    /// Costs one poll of the operating system when nothing is due.
    ///
    /// # Errors
    ///
    /// The error of the operating system's poll.
    pub fn drive(&mut self) -> io::Result<()> {
        self.read()?;
        self.discard();
        Ok(())
    }

    /// Drives the connections for `time`, and sleeps in between. Returns false as soon as a lease
    /// that is kept alive is lost, or if one was lost since the last call: [`Lease::is_lost`] says
    /// which.
    ///
    /// # Errors
    ///
    /// The error of the operating system's poll.
    pub fn drive_for(&mut self, time: Duration) -> io::Result<bool> {
        let end = now() + time;
        self.drive()?;
        while !self.has_lost && now() < end {
            self.pass(Some(end))?;
            self.discard();
        }
        Ok(!std::mem::take(&mut self.has_lost))
    }

    /// Extends a lease that is kept alive, if due, and waits for the result.
    pub(super) fn keep_lease(&mut self, lease: &Lease) -> Result<(), ExtendError> {
        let id = lease.id();
        self.read()?;
        self.discard();
        while self.driver.engine().is_extending(id) && lease.is_valid() {
            self.pass(None)?;
            self.discard();
        }
        self.driver.engine().keep_error(id, now()).map_or(Ok(()), Err)
    }

    pub(super) const fn note_loss(&mut self) {
        self.has_lost = true;
    }

    /// Drops results that no call waits for: they would keep the next poll from sleeping.
    pub(super) fn discard(&mut self) {
        while let Some(done) = self.driver.completion() {
            if matches!(done.result, Outcome::Lost(_)) {
                self.note_loss();
            }
        }
    }
}

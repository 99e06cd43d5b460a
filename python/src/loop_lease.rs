//! `redbolt.asyncio.Lease`: a lock that a task holds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use redbolt::Lease;

use crate::driver::{Driver, Kind};
use crate::failure::Failure;
use crate::keys::Key;
use crate::own::Own;
use crate::reading::{self, Reading};
use crate::time::duration;

/// A lock that this program holds until its deadline.
///
/// Leave the `async with` block, or await `unlock()`, to release it. A lease that is no longer referred
/// to releases its lock, too. Use it in the event loop that took it.
///
/// The lock ends with its TTL, whatever the program does. Ask `remaining()` right before each effect
/// that needs the lock.
#[pyclass(name = "Lease", module = "redbolt.asyncio", frozen)]
pub(crate) struct LoopLease {
    driver: Py<Driver>,
    // Every thread that takes this mutex keeps the GIL meanwhile, so no Python code runs.
    lease: Own<Mutex<Option<Lease>>>,
}

impl LoopLease {
    pub(crate) fn new(driver: Py<Driver>, lease: Lease) -> Self {
        Self { driver, lease: Own::new(Mutex::new(Some(lease))) }
    }

    fn held(&self) -> Option<MutexGuard<'_, Option<Lease>>> {
        Some(self.lease.get()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the lease; `None` once it was unlocked, and in the child of a fork.
    fn read<T>(&self, read: impl FnOnce(&Lease) -> T) -> Option<T> {
        self.held()?.as_ref().map(read)
    }

    fn take(&self) -> Option<Lease> {
        self.held()?.take()
    }

    /// Releases the lock at the next turn of the driver.
    pub(crate) fn give_back(&self) {
        drop(self.take());
    }

    fn not_held(&self) -> Failure {
        if self.lease.is_here() { Failure::Unlocked } else { Failure::Fork }
    }
}

#[pymethods]
impl LoopLease {
    /// How many seconds the lock is still certainly held; 0.0 once it is over. It asks no node.
    fn remaining(&self) -> f64 {
        self.read(Reading::remaining).unwrap_or_default().as_secs_f64()
    }

    /// Whether the lock is over: its time has passed, no quorum holds it, or this program unlocked it.
    /// Always True in the child of a fork. Once true, it stays true. It asks no node.
    #[getter]
    fn lost(&self) -> bool {
        self.remaining() <= 0.0
    }

    /// A number above the fence of every earlier holder of this key, or None if the call did not ask for
    /// it with `fenced=True`. Of several keys, the fence of the first in the order of their bytes.
    #[getter]
    fn fence(&self) -> Option<u64> {
        self.read(Lease::fence).flatten()
    }

    /// The fence of one key of several; None for a key without one.
    fn fence_of(&self, key: Key) -> Option<u64> {
        self.read(|lease| lease.fence_of(&key)).flatten()
    }

    /// Which slot of a lock with slots it is, from 0 on; None for a lock without slots.
    #[getter]
    fn slot(&self) -> Option<usize> {
        self.read(Lease::slot).flatten()
    }

    /// The keys that are held, as bytes, in their order.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let keys = self.read(Reading::keys).unwrap_or_default();
        PyTuple::new(py, keys.iter().map(|key| PyBytes::new(py, key)))
    }

    /// Moves the end of the lock to `ttl` seconds from now. Await it: it takes one round trip to the
    /// nodes.
    ///
    /// Raises `Lost` or `Expired` if the lock is over: stop the work. Raises `NoQuorum` if too few
    /// nodes answered: the lock goes on until `remaining()` is 0, so try again. Raises `NotHeld` if
    /// the lease was unlocked before, and `LimitReached` at a limit of the client.
    fn extend<'py>(&self, py: Python<'py>, ttl: f64) -> PyResult<Bound<'py, PyAny>> {
        let ttl = duration("ttl", ttl)?;
        Driver::submit(self.driver.bind(py), Kind::Extend, |driver| {
            let held = self.held().ok_or(Failure::Fork)?;
            Ok(driver.extend(held.as_ref().ok_or(Failure::Unlocked)?, ttl)?)
        })
    }

    /// Releases the lock. Await it to know that a quorum of nodes has confirmed that: one round trip, at
    /// most `node_timeout`. Its result says whether they have. If not, the lock's TTL ends it.
    ///
    /// Raises `NotHeld` if the lock was over before: another holder may have been at work at the same
    /// time. Raises `NotHeld` also if the lease was unlocked before.
    fn unlock<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let lease = self.take().ok_or_else(|| self.not_held())?;
        Driver::submit(self.driver.bind(py), Kind::Unlock, |driver| Ok(driver.unlock(lease)?))
    }

    /// For the end of a block: releases the lock. The future's result is whether the lock was held
    /// until then. None: it was unlocked before.
    fn _end<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(lease) = self.take() else { return Ok(None) };
        let kind = Kind::End { was_held: lease.is_valid() };
        Driver::submit(self.driver.bind(py), kind, |driver| Ok(driver.unlock(lease)?)).map(Some)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.driver)
    }

    fn __repr__(&self) -> String {
        let shown = self.read(|lease| reading::shown("redbolt.asyncio.Lease", Some(lease)));
        shown.unwrap_or_else(|| reading::shown("redbolt.asyncio.Lease", None::<&Lease>))
    }
}

impl Drop for LoopLease {
    fn drop(&mut self) {
        if let Some(lease) = self.take() {
            // Its driver writes the release when it is driven next, which may be long from now.
            drop(lease);
            Driver::wake_from_anywhere(&self.driver);
        }
    }
}

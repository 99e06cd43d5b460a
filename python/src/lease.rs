//! `redbolt.Lease`: a lock that a thread holds.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use redbolt::{Guard, UnlockError, Unlocked};

use crate::failure::Failure;
use crate::keys::Key;
use crate::own::Own;
use crate::reading::{self, Reading};
use crate::time::duration;

/// A lock that this program holds until its deadline.
///
/// Leave the `with` block, or call `unlock()`, to release it. A lease that is no longer referred to
/// releases its lock, too, but nobody waits for that. Any thread may use it.
///
/// The lock ends with its TTL, whatever the program does. Ask `remaining()` right before each effect
/// that needs the lock.
#[pyclass(module = "redbolt", frozen)]
pub(crate) struct Lease {
    guard: Own<RwLock<Option<Guard>>>,
}

type Held = RwLock<Option<Guard>>;

fn shared(held: &Held) -> RwLockReadGuard<'_, Option<Guard>> {
    held.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone(held: &Held) -> RwLockWriteGuard<'_, Option<Guard>> {
    held.write().unwrap_or_else(PoisonError::into_inner)
}

impl Lease {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard: Own::new(RwLock::new(Some(guard))) }
    }

    /// Reads the guard; `None` once it was unlocked, and in the child of a fork. While another
    /// thread extends the lease, the call waits without the GIL.
    fn read<T: Send>(&self, py: Python<'_>, read: impl Fn(&Guard) -> T + Send + Sync) -> Option<T> {
        let held = self.guard.get()?;
        match held.try_read() {
            Ok(guard) => guard.as_ref().map(read),
            Err(_) => py.detach(|| shared(held).as_ref().map(read)),
        }
    }

    /// Takes the guard out, and releases it. Fails with `Unlocked` if the lease has no guard any
    /// more.
    fn release(&self, py: Python<'_>) -> Result<(bool, Result<Unlocked, UnlockError>), Failure> {
        let held = self.guard.get().ok_or(Failure::Fork)?;
        py.detach(|| {
            let guard = alone(held).take().ok_or(Failure::Unlocked)?;
            let was_held = guard.is_valid();
            Ok((was_held, guard.unlock().wait()))
        })
    }
}

#[pymethods]
impl Lease {
    /// How many seconds the lock is still certainly held; 0.0 once it is over. It asks no node.
    fn remaining(&self, py: Python<'_>) -> f64 {
        let remaining = self.read(py, Reading::remaining);
        remaining.unwrap_or_default().as_secs_f64()
    }

    /// Whether the lock is over: its time has passed, no quorum holds it, or this program unlocked it.
    /// Always True in the child of a fork. Once true, it stays true. It asks no node.
    #[getter]
    fn lost(&self, py: Python<'_>) -> bool {
        self.remaining(py) <= 0.0
    }

    /// A number above the fence of every earlier holder of this key, or None if the call did not ask for
    /// it with `fenced=True`. Of several keys, the fence of the first in the order of their bytes.
    #[getter]
    fn fence(&self, py: Python<'_>) -> Option<u64> {
        self.read(py, Guard::fence).flatten()
    }

    /// The fence of one key of several; None for a key without one.
    fn fence_of(&self, py: Python<'_>, key: Key) -> Option<u64> {
        self.read(py, |guard| guard.fence_of(&key)).flatten()
    }

    /// Which slot of a lock with slots it is, from 0 on; None for a lock without slots.
    #[getter]
    fn slot(&self, py: Python<'_>) -> Option<usize> {
        self.read(py, Guard::slot).flatten()
    }

    /// The keys that are held, as bytes, in their order.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let keys = self.read(py, Reading::keys);
        PyTuple::new(py, keys.unwrap_or_default().iter().map(|key| PyBytes::new(py, key)))
    }

    /// Moves the end of the lock to `ttl` seconds from now. It takes one round trip to the nodes.
    ///
    /// Raises `Lost` or `Expired` if the lock is over: stop the work. Raises `NoQuorum` if too few
    /// nodes answered: the lock goes on until `remaining()` is 0, so try again. Raises `NotHeld` if
    /// the lease was unlocked before, and `LimitReached` at a limit of the client.
    fn extend(&self, py: Python<'_>, ttl: f64) -> PyResult<()> {
        let ttl = duration("ttl", ttl)?;
        let held = self.guard.get().ok_or(Failure::Fork)?;
        let extended = py.detach(|| {
            let mut guard = alone(held);
            let guard = guard.as_mut().ok_or(Failure::Unlocked)?;
            guard.extend(ttl).wait().map_err(Failure::from)
        });
        Ok(extended?)
    }

    /// Releases the lock, and waits until a quorum of nodes has confirmed it: one round trip, at most
    /// `node_timeout`. Returns whether they have. If not, the lock's TTL ends it.
    ///
    /// Raises `NotHeld` if the lock was over before: another holder may have been at work at the same
    /// time. Raises `NotHeld` also if the lease was unlocked before.
    fn unlock(&self, py: Python<'_>) -> PyResult<bool> {
        let (_, unlocked) = self.release(py)?;
        Ok(unlocked.map_err(Failure::from)? == Unlocked::Released)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Releases the lock. Raises `Lost` if the work took longer than the lease; an exception of the work
    /// comes first. Does nothing if the lease was unlocked before.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyType>>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        drop((value, traceback));
        let Ok((was_held, unlocked)) = self.release(py) else { return Ok(()) };
        let is_gone = matches!(unlocked, Err(UnlockError::NotHeld));
        if kind.is_none() && (!was_held || is_gone) {
            return Err(Failure::Overran.into());
        }
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let shown = self.read(py, |guard| reading::shown("redbolt.Lease", Some(guard)));
        shown.unwrap_or_else(|| reading::shown("redbolt.Lease", None::<&Guard>))
    }
}

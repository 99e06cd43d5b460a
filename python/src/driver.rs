//! `redbolt._redbolt.Driver`: the library's driver in an event loop of asyncio, without a thread.
//!
//! # Invariants
//!
//! - Futures are settled, and exceptions made, when the mutex is free again: both run code of any kind.
//! - If an operation or a lease needs the driver at some time, the event loop has a call of `drive` by
//!   then.
//! - A lease whose future is over goes back to the driver, which releases it.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{intern, types::PyBool};
use redbolt::driver::Outcome;
use redbolt::engine::OpId;
use redbolt::{Instant, Retry, UnlockError, Unlocked};

use crate::failure::Failure;
use crate::keys::Keys;
use crate::loop_lease::LoopLease;
use crate::options::Asked;
use crate::own::Own;
use crate::settings::Settings;
use crate::time::duration;

/// Drives locks in one event loop; for `redbolt.asyncio` alone.
#[pyclass(module = "redbolt._redbolt", frozen)]
pub(crate) struct Driver {
    // Every thread that takes this mutex keeps the GIL meanwhile, so no Python code runs.
    driving: Own<Mutex<Driving>>,
    event_loop: Py<PyAny>,
    retry: Retry,
    /// The event loop is about to call `drive`.
    is_due: AtomicBool,
}

struct Driving {
    /// `None` once the client is shut down.
    driver: Option<redbolt::driver::Driver>,
    /// The operations under way, each at the index of its id.
    ops: Vec<Option<Op>>,
    /// The call of `fire` that is to come.
    timer: Option<(Instant, Py<PyAny>)>,
}

struct Op {
    id: OpId,
    kind: Kind,
    /// `None` once the task has given the call up.
    future: Option<Py<PyAny>>,
}

/// What an operation was submitted for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Lock,
    Extend,
    Unlock,
    /// The end of a block, and whether its lock was held until then, as far as the clock says.
    End {
        was_held: bool,
    },
}

impl Driving {
    fn enter(&mut self, op: Op) {
        let place = op.id.index();
        if self.ops.len() <= place {
            self.ops.resize_with(place + 1, || None);
        }
        if let Some(entry) = self.ops.get_mut(place) {
            *entry = Some(op);
        }
    }

    fn drive(&mut self) -> Vec<(Op, Outcome)> {
        let Some(driver) = &mut self.driver else { return Vec::new() };
        driver.drive();
        let mut ended = Vec::new();
        while let Some(done) = driver.completion() {
            // A lease that is lost says so itself.
            if matches!(done.result, Outcome::Lost(_)) {
                continue;
            }
            let op = self.ops.get_mut(done.id.index()).and_then(Option::take);
            ended.extend(op.map(|op| (op, done.result)));
        }
        ended
    }
}

impl Driver {
    fn driving(&self) -> Result<MutexGuard<'_, Driving>, Failure> {
        let driving = self.driving.get().ok_or(Failure::Fork)?;
        Ok(driving.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Submits an operation; the event loop drives it soon. Returns its future.
    pub(crate) fn submit<'py>(
        slf: &Bound<'py, Self>,
        kind: Kind,
        begin: impl FnOnce(&mut redbolt::driver::Driver) -> Result<OpId, Failure>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let future = this.event_loop.bind(py).call_method0(intern!(py, "create_future"))?;
        let begun = this.driving().and_then(|mut driving| {
            let id = begin(driving.driver.as_mut().ok_or(Failure::Closed)?)?;
            driving.enter(Op { id, kind, future: Some(future.clone().unbind()) });
            Ok(())
        });
        begun?;
        Self::wake(slf)?;
        Ok(future)
    }

    /// Makes the event loop call `drive` at its next turn.
    fn wake(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        if !this.is_due.load(Ordering::Relaxed) {
            let drive = slf.getattr(intern!(py, "drive"))?;
            // A signal handler may raise in this call, so `is_due` is set after it.
            this.event_loop.bind(py).call_method1(intern!(py, "call_soon"), (drive,))?;
            this.is_due.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// As `wake`, from the end of a lease: on any thread, and in the midst of an exception.
    pub(crate) fn wake_from_anywhere(slf: &Py<Self>) {
        let wake = |py: Python<'_>| {
            let pending = PyErr::take(py);
            let drive = || {
                let drive = slf.bind(py).getattr(intern!(py, "drive"))?;
                let event_loop = slf.get().event_loop.bind(py);
                event_loop.call_method1(intern!(py, "call_soon_threadsafe"), (drive,))
            };
            // An event loop that is closed drives nothing any more.
            drop(drive());
            if let Some(pending) = pending {
                pending.restore(py);
            }
        };
        Python::try_attach(wake);
    }

    /// Makes the event loop call `drive` when the driver next needs it.
    fn arm(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let event_loop = this.event_loop.bind(py);
        let (at, now) = {
            let mut driving = this.driving()?;
            let Some(at) = driving.driver.as_ref().and_then(|driver| driver.next_deadline()) else {
                return Ok(());
            };
            let now = redbolt::now();
            if at > now {
                // A timer that comes too early costs less than a new one.
                if driving.timer.as_ref().is_some_and(|(timer, _)| *timer <= at) {
                    return Ok(());
                }
                if let Some((_, handle)) = driving.timer.take() {
                    drop(driving);
                    handle.call_method0(py, intern!(py, "cancel"))?;
                }
            }
            (at, now)
        };
        if at <= now {
            return Self::wake(slf);
        }
        let fire = slf.getattr(intern!(py, "fire"))?;
        let seconds = now.until(at).as_secs_f64();
        let handle = event_loop.call_method1(intern!(py, "call_later"), (seconds, fire))?;
        this.driving()?.timer = Some((at, handle.unbind()));
        Ok(())
    }

    /// Gives the outcome to the task that waits for it.
    fn settle(slf: &Bound<'_, Self>, op: Op, outcome: Outcome) -> PyResult<()> {
        let py = slf.py();
        let Some(future) = op.future else { return Ok(()) };
        let future = future.bind(py);
        // The future of a cancelled task is done already. The drop of the outcome gives a lease
        // back.
        if future.call_method0(intern!(py, "done"))?.extract()? {
            return Ok(());
        }
        let result = match outcome {
            Outcome::Lock(Ok(lease)) => {
                Ok(Bound::new(py, LoopLease::new(slf.clone().unbind(), lease))?.into_any())
            }
            Outcome::Lock(Err(error)) => Err(Failure::from(error)),
            Outcome::Extend(result) => {
                result.map(|()| py.None().into_bound(py)).map_err(Failure::from)
            }
            Outcome::Unlock(result) => match (op.kind, result) {
                (Kind::End { was_held }, result) => {
                    let is_gone = matches!(result, Err(UnlockError::NotHeld));
                    Ok(PyBool::new(py, was_held && !is_gone).to_owned().into_any())
                }
                (_, Ok(unlocked)) => {
                    Ok(PyBool::new(py, unlocked == Unlocked::Released).to_owned().into_any())
                }
                (_, Err(error)) => Err(Failure::from(error)),
            },
            // None of these is submitted here.
            Outcome::Adopt(_) | Outcome::Lost(_) | Outcome::Query(_) | _ => Err(Failure::Closed),
        };
        let settled = match result {
            Ok(value) => future.call_method1(intern!(py, "set_result"), (value,)),
            Err(failure) => {
                let error = failure.exception(py);
                future.call_method1(intern!(py, "set_exception"), (error,))
            }
        };
        settled.map(drop)
    }
}

#[pymethods]
impl Driver {
    #[new]
    #[pyo3(signature = (event_loop, nodes, **options))]
    fn new(
        event_loop: Py<PyAny>,
        nodes: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let Settings { config, retry } = Settings::new(nodes, options)?;
        let driver = redbolt::driver::Driver::standalone(config).map_err(Failure::from)?;
        let driving = Driving { driver: Some(driver), ops: Vec::new(), timer: None };
        let (driving, is_due) = (Own::new(Mutex::new(driving)), AtomicBool::new(false));
        Ok(Self { driving, event_loop, retry, is_due })
    }

    /// The descriptor that is readable when `drive` has something to do.
    fn fileno(&self) -> PyResult<i32> {
        let fd = self.driving()?.driver.as_ref().map(|driver| driver.as_fd().as_raw_fd());
        Ok(fd.ok_or(Failure::Closed)?)
    }

    /// Reads the answers, does what is due, writes what was submitted, and settles futures.
    fn drive(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        this.is_due.store(false, Ordering::Relaxed);
        let ended = this.driving()?.drive();
        // Signals come before futures: a future does not wake its task if a signal handler raises
        // meanwhile.
        let mut result = slf.py().check_signals();
        for (op, outcome) in ended {
            let settled = Self::settle(slf, op, outcome);
            result = result.and(settled);
        }
        let armed = Self::arm(slf);
        result.and(armed)
    }

    /// The timer has come.
    fn fire(slf: &Bound<'_, Self>) -> PyResult<()> {
        let fired = slf.get().driving()?.timer.take();
        drop(fired);
        Self::drive(slf)
    }

    /// Submits a call for a lock; its future's result is a lease.
    #[expect(clippy::too_many_arguments, reason = "they are keyword arguments of the client")]
    fn lock<'py>(
        slf: &Bound<'py, Self>,
        waits: bool,
        key: Keys,
        ttl: f64,
        timeout: Option<f64>,
        keep_alive: bool,
        fenced: bool,
        slots: Option<usize>,
        read: Option<usize>,
        write: Option<usize>,
        min_validity: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked {
            ttl,
            timeout,
            min_validity,
            keep_alive,
            fenced,
            slots,
            read,
            write,
            linger: 0.0,
        };
        let options = asked.options(slf.get().retry)?;
        Self::submit(slf, Kind::Lock, |driver| {
            Ok(match (&key, waits) {
                (Keys::One(key), true) => driver.lock(key, options)?,
                (Keys::One(key), false) => driver.try_lock(key, options)?,
                (Keys::Several(keys), true) => driver.lock_all(keys, options)?,
                (Keys::Several(keys), false) => driver.try_lock_all(keys, options)?,
            })
        })
    }

    /// The task that called `lock` will not take the lease of this future.
    fn give_up(slf: &Bound<'_, Self>, future: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        {
            let Ok(mut driving) = slf.get().driving() else { return Ok(()) };
            let Driving { driver, ops, .. } = &mut *driving;
            let is_it = |op: &&mut Op| op.future.as_ref().is_some_and(|its| its.is(future));
            if let (Some(driver), Some(op)) = (driver, ops.iter_mut().flatten().find(is_it)) {
                driver.cancel(op.id);
                // Dropped once the mutex is free.
                let _given_up = op.future.take();
                drop(driving);
                // A loop that is closed drives nothing any more, and a coroutine may end after it.
                drop(Self::wake(slf));
                return Ok(());
            }
        }
        // The lease may have come already.
        let is_cancelled = future.call_method0(intern!(py, "cancelled"))?.extract::<bool>()?;
        if !is_cancelled && future.call_method0(intern!(py, "exception"))?.is_none() {
            let lease = future.call_method0(intern!(py, "result"))?;
            lease.cast::<LoopLease>()?.get().give_back();
            drop(Self::wake(slf));
        }
        Ok(())
    }

    /// Ends all operations under way with `Closed`; no other begins. Then call `finish` of the
    /// result.
    fn close(slf: &Bound<'_, Self>) -> PyResult<Option<Ending>> {
        let (py, this) = (slf.py(), slf.get());
        let (driver, ops, timer) = {
            let mut driving = this.driving()?;
            let ops = std::mem::take(&mut driving.ops);
            (driving.driver.take(), ops, driving.timer.take())
        };
        if let Some((_, handle)) = timer {
            handle.call_method0(py, intern!(py, "cancel"))?;
        }
        for future in ops.into_iter().flatten().filter_map(|op| op.future) {
            let error = Failure::Closed.exception(py);
            drop(future.call_method1(py, intern!(py, "set_exception"), (error,)));
        }
        Ok(driver.map(|driver| Ending { driver: Own::new(Mutex::new(Some(driver))) }))
    }

    /// For the collector: the timer and the tasks refer to the driver, and it to them.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        let Some(Ok(driving)) = self.driving.get().map(Mutex::try_lock) else { return Ok(()) };
        if let Some((_, handle)) = &driving.timer {
            visit.call(handle)?;
        }
        driving.ops.iter().flatten().try_for_each(|op| visit.call(&op.future))
    }

    fn __clear__(&self) {
        let Ok(mut driving) = self.driving() else { return };
        let held = (driving.timer.take(), std::mem::take(&mut driving.ops));
        drop(driving);
        drop(held);
    }
}

/// A driver at its end.
#[pyclass(module = "redbolt._redbolt", frozen)]
pub(crate) struct Ending {
    driver: Own<Mutex<Option<redbolt::driver::Driver>>>,
}

#[pymethods]
impl Ending {
    /// Blocks: sends the releases that are owed, for at most `limit` seconds. Returns how many the
    /// nodes have not confirmed.
    fn finish(&self, py: Python<'_>, limit: f64) -> PyResult<usize> {
        let limit = duration("limit", limit)?;
        let driver = self.driver.get().ok_or(Failure::Fork)?;
        let driver = driver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut driver) = driver else { return Ok(0) };
        Ok(py.detach(move || driver.shutdown(limit)))
    }
}

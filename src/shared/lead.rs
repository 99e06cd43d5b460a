//! [`Loop`]: the driver and what belongs to it, and the threads that work with it. The I/O thread
//! sleeps at a gate of its own, which opens when a socket is ready. A caller that blocks leads: it
//! shuts the gate, and drives and waits itself until its call is done, so that no thread has to wake
//! another.

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use super::inner::{Inner, Threads};
use super::sleeping::Place;
use super::span;
use super::sync::{AtomicBool, Mutex, MutexGuard};
use super::worker::Worker;
use crate::driver::clock::now;
use crate::time::Instant;

/// At the gate: the sockets.
const SOCKETS: Token = Token(0);
/// At the gate: a thread that wakes the I/O thread.
const WAKER: Token = Token(1);

pub(super) struct Loop {
    /// `None` once the I/O thread has ended.
    worker: Mutex<Option<Worker>>,
    /// The poll that the sockets are registered with, which is a source of the gate.
    sockets: RawFd,
    gate: Registry,
    gate_waker: Waker,
    sockets_waker: Waker,
    /// Its child has the same sockets, but no I/O thread.
    process: u32,
}

/// Where the I/O thread sleeps.
pub(super) struct Gate {
    poll: Poll,
    events: Events,
}

impl Loop {
    /// `sockets` is the poll of the worker's sockets, and `waker` wakes from it.
    pub(super) fn new(sockets: &Registry, waker: Waker) -> io::Result<(Self, Gate)> {
        let poll = Poll::new()?;
        let sockets = sockets.as_raw_fd();
        poll.registry().register(&mut SourceFd(&sockets), SOCKETS, Interest::READABLE)?;
        let gate_waker = Waker::new(poll.registry(), WAKER)?;
        let gate = poll.registry().try_clone()?;
        let worker = Mutex::new(None);
        let process = std::process::id();
        let threads = Self { worker, sockets, gate, gate_waker, sockets_waker: waker, process };
        Ok((threads, Gate { poll, events: Events::with_capacity(2) }))
    }

    pub(super) fn begin(&self, worker: Worker) {
        *self.lock() = Some(worker);
    }

    /// The worker, which nobody works with any more.
    pub(super) fn end(&self) -> Option<Worker> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the gate to what the sockets tell, or shuts it.
    fn open(&self, is_open: bool) -> io::Result<()> {
        let sockets = &mut SourceFd(&self.sockets);
        if cfg!(any(target_os = "linux", target_os = "android")) {
            // A poll is never writable. To change an interest costs less than to add one.
            let interest = if is_open { Interest::READABLE } else { Interest::WRITABLE };
            self.gate.reregister(sockets, SOCKETS, interest)
        } else if is_open {
            self.gate.register(sockets, SOCKETS, Interest::READABLE)
        } else {
            self.gate.deregister(sockets)
        }
    }

    /// The I/O thread: works until the handle is shut down or the last handle is gone, or code of the
    /// program's panics, as of its log. Then every call ends.
    pub(super) fn run(&self, gate: Gate, inner: &Inner) {
        drop(catch_unwind(AssertUnwindSafe(|| self.serve(gate))));
        // A driver in whose midst something panicked may do so again.
        drop(catch_unwind(AssertUnwindSafe(|| drop(self.end()))));
        inner.end(0);
    }

    fn serve(&self, mut gate: Gate) {
        while let Some(until) = self.work() {
            if gate.sleep(until).is_err() {
                break;
            }
        }
        if let Some(worker) = self.end() {
            worker.finish();
        }
    }

    /// A caller works until its call is done. Returns when the driver is to be driven next; `None` where
    /// the I/O thread has to look.
    fn work_until(&self, done: &AtomicBool) -> Option<Instant> {
        // Poisoned: the I/O thread has panicked, and every call is about to end.
        let mut place = self.worker.lock().ok()?;
        let worker = place.as_mut()?;
        self.open(false).ok()?;
        let led = catch_unwind(AssertUnwindSafe(|| span::outside(|| worker.lead(done))));
        // It is registered, so this does not fail.
        drop(self.open(true));
        led.unwrap_or_else(|_| {
            // The I/O thread ends, and with it every call.
            drop(catch_unwind(AssertUnwindSafe(|| *place = None)));
            None
        })
    }

    /// Works until there is nothing to do. Returns until when; `None` at the end.
    fn work(&self) -> Option<Instant> {
        self.lock().as_mut()?.work()
    }
}

impl Gate {
    /// Until it is time, the sockets are ready, or a thread wakes this one.
    fn sleep(&mut self, until: Instant) -> io::Result<()> {
        let timeout = (until < Instant::MAX).then(|| now().until(until));
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Threads for Loop {
    fn wake(&self, place: Place) {
        let waker = match place {
            Place::Gate => &self.gate_waker,
            Place::Sockets => &self.sockets_waker,
        };
        // A full eventfd has already woken who sleeps there.
        drop(waker.wake());
    }

    fn lead(&self, inner: &Inner, done: &AtomicBool) {
        if std::process::id() != self.process {
            return inner.end(0);
        }
        let due = self.work_until(done);
        if inner.with(|table| table.end_lead(due)) {
            self.wake(Place::Gate);
        }
    }
}

//! [`Loop`]: the driver, and the threads that drive it. The I/O thread sleeps at its own gate.
//! There it hears when a socket is ready, unless it has left the sockets to the callers. A blocked
//! caller drives until its call is done, so that no thread has to wake another.

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use super::driving::{Drive, DriveEnd, Inner, Threads};
use super::span;
use super::sync::{Mutex, MutexGuard};
use super::table::Place;
use super::worker::Worker;
use crate::driver::clock::now;
use crate::time::Instant;

/// Source at the gate: the sockets.
const SOCKETS: Token = Token(0);
/// Source at the gate: a thread that wakes the I/O thread.
const WAKER: Token = Token(1);

pub(super) struct Loop {
    /// `None` once the I/O thread has ended.
    worker: Mutex<Option<Worker>>,
    gate_waker: Waker,
    sockets_waker: Waker,
    /// The child of a fork has the same sockets, but no I/O thread.
    fork: forkguard::Guard,
}

/// Where the I/O thread sleeps.
pub(super) struct Gate {
    poll: Poll,
    events: Events,
    /// The poll of the sockets, which is a source of the gate.
    sockets: RawFd,
    is_open: bool,
}

impl Loop {
    /// `sockets` is the poll of the worker's sockets, and `waker` wakes a thread that sleeps there.
    pub(super) fn new(sockets: &Registry, waker: Waker) -> io::Result<(Self, Gate)> {
        let poll = Poll::new()?;
        let sockets = sockets.as_raw_fd();
        poll.registry().register(&mut SourceFd(&sockets), SOCKETS, Interest::READABLE)?;
        let gate_waker = Waker::new(poll.registry(), WAKER)?;
        let (worker, fork) = (Mutex::new(None), forkguard::new());
        let threads = Self { worker, gate_waker, sockets_waker: waker, fork };
        Ok((threads, Gate { poll, events: Events::with_capacity(2), sockets, is_open: true }))
    }

    pub(super) fn begin(&self, worker: Worker) {
        *self.lock() = Some(worker);
    }

    /// Takes the worker away: no thread drives any more.
    pub(super) fn end(&self) -> Option<Worker> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The I/O thread's loop. It ends after a shutdown, after the last client, guard and call,
    /// after a failed poll, or on a panic. The program's own code may panic on this thread, for
    /// example its log subscriber. Then every call ends.
    pub(super) fn run(&self, gate: Gate, inner: &Inner) {
        drop(catch_unwind(AssertUnwindSafe(|| self.serve(gate, inner))));
        // A driver in which something has panicked may panic again.
        drop(catch_unwind(AssertUnwindSafe(|| drop(self.end()))));
        inner.end(0);
    }

    fn serve(&self, mut gate: Gate, inner: &Inner) {
        loop {
            let left_until = inner.with(|table| table.leaves_sockets_until(now()));
            if gate.open(left_until.is_none()).is_err() {
                break;
            }
            let Some(until) = left_until.or_else(|| self.work()) else { break };
            if gate.sleep(until).is_err() {
                break;
            }
        }
        if let Some(worker) = self.end() {
            worker.finish();
        }
    }

    /// Works until there is nothing to do. Returns the time until which it may sleep; `None` at the
    /// end.
    fn work(&self) -> Option<Instant> {
        self.lock().as_mut()?.work()
    }
}

impl Gate {
    /// Opens the gate to the events of the sockets, or shuts it.
    fn open(&mut self, is_open: bool) -> io::Result<()> {
        if std::mem::replace(&mut self.is_open, is_open) == is_open {
            return Ok(());
        }
        let (gate, sockets) = (self.poll.registry(), &mut SourceFd(&self.sockets));
        if is_open {
            gate.register(sockets, SOCKETS, Interest::READABLE)
        } else {
            gate.deregister(sockets)
        }
    }

    /// Sleeps until `until`, or until the sockets are ready or a thread wakes this one.
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
        // If the eventfd is full, the thread that sleeps there has been woken already.
        drop(waker.wake());
    }

    fn are_here(&self) -> bool {
        !self.fork.clone().detected_fork()
    }

    fn drive(&self, _inner: &Inner, drive: &mut Drive) -> Option<DriveEnd> {
        // Poisoned: the I/O thread has panicked, and every call is about to end.
        let mut place = self.worker.lock().ok()?;
        let worker = place.as_mut()?;
        let driven = catch_unwind(AssertUnwindSafe(|| span::outside(|| worker.drive(drive))));
        driven.unwrap_or_else(|_| {
            // The I/O thread ends, and with it every call.
            drop(catch_unwind(AssertUnwindSafe(|| *place = None)));
            None
        })
    }
}

//! [`Inner`]: the table, and how to wake its I/O thread; [`Owner`]: kept alive by handles, guards
//! and calls, but not by the I/O thread.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::calls::notify_all;
use super::counting::Counting;
use super::sleeping::Place;
use super::sync::{AtomicBool, Mutex};
use super::table::{Command, Table};

pub(super) struct Inner {
    table: Mutex<Table>,
    threads: Arc<dyn Threads>,
    /// How long a call that went straight to the I/O thread spins for its result.
    pub(super) spin: Duration,
    pub(super) counting: Counting,
}

/// What a caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// It blocks until its call is done, of which only who works can tell it.
    Blocks,
    GoesOn,
}

/// The threads that work for the table.
pub(super) trait Threads: Send + Sync {
    /// Wakes who sleeps there.
    fn wake(&self, place: Place);

    /// Works in the place of the I/O thread until the call is done. The table says that this thread
    /// leads.
    fn lead(&self, inner: &Inner, done: &AtomicBool);
}

impl Inner {
    pub(super) fn new(table: Table, threads: Arc<dyn Threads>, spin: Duration) -> Self {
        let counting = table.counting.clone();
        Self { table: Mutex::new(table), threads, spin, counting }
    }

    /// Runs `work` on the table, and wakes who works for it if there is something to do. `work`
    /// must be short and run no foreign code: it must neither call nor drop a waker.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        self.with_lead(|table| (work(table), Caller::GoesOn)).0
    }

    /// As [`with`](Self::with). Returns also whether the caller has to [`lead`](Self::lead) now.
    pub(super) fn with_lead<T>(&self, work: impl FnOnce(&mut Table) -> (T, Caller)) -> (T, bool) {
        // A panic in the table would be a bug; later calls still get an answer.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, caller) = work(&mut table);
        let place = table.must_wake();
        let leads = caller == Caller::Blocks && table.begin_lead();
        drop(table);
        // Who leads does what has come itself, if nobody sleeps where it is to sleep.
        if let Some(place) = place.filter(|place| !leads || *place == Place::Sockets) {
            self.threads.wake(place);
        }
        (value, leads)
    }

    /// Works in the place of the I/O thread until the call is done.
    pub(super) fn lead(&self, done: &AtomicBool) {
        self.threads.lead(self, done);
    }

    /// The I/O thread ends, with so many releases owed: so does every call.
    pub(super) fn end(&self, owed: usize) {
        let mut tell = Vec::new();
        let _commands = self.with(|table| table.end(owed, &mut tell));
        notify_all(tell);
    }
}

/// Held by handles, guards and calls under way: once the last is gone, the I/O thread ends.
pub(super) struct Owner {
    pub(super) inner: Arc<Inner>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.inner.with(|table| {
            table.is_closed = true;
            table.commands.push(Command::Close);
        });
    }
}

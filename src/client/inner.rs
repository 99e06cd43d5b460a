//! [`Inner`]: the table, and the threads that drive for it. Clients, guards and calls hold an
//! [`Owner`]; the I/O thread holds none, and ends when the last of them is gone.

use std::sync::{Arc, PoisonError};

use super::calls::Taken;
use super::calls::notify_all;
use super::counting::Counting;
use super::rules::{Lists, Rules};
use super::sleeping::{Lead, LeadEnd, Place};
use super::sync::Mutex;
use super::table::{Command, Table};

pub(super) struct Inner {
    table: Mutex<Table>,
    /// For the child of a fork. There a thread of the parent may have left the other mutex locked.
    childs: Mutex<Table>,
    threads: Arc<dyn Threads>,
    pub(super) rules: Arc<Rules>,
    pub(super) counting: Counting,
}

/// How a caller goes on once its call has begun.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    /// It blocks until one of its calls is done; `own` of them are under way.
    Blocks {
        own: usize,
    },
    /// It blocks, and leaves the sockets to other threads.
    Sleeps,
    /// It begins other calls at once, and then blocks.
    Gathers,
    GoesOn,
}

/// The thread that goes on after work on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It wakes a sleeping thread if there is something to do.
    Wakes,
    /// This thread leads, and looks itself for work.
    Leads,
    /// This thread comes back at once.
    ComesBack,
}

/// The threads that drive for the table.
pub(super) trait Threads: Send + Sync {
    /// Wakes the thread that sleeps there.
    fn wake(&self, place: Place);

    /// Whether the threads are of this process, and not of the parent of a fork.
    fn are_here(&self) -> bool;

    /// Drives in the place of the I/O thread. The table says that this thread leads. `None` if the
    /// I/O thread has to drive.
    fn lead(&self, inner: &Inner, lead: &mut Lead) -> Option<LeadEnd>;
}

impl Inner {
    pub(super) fn new(table: Table, threads: Arc<dyn Threads>) -> Self {
        let (rules, counting) = (Arc::clone(&table.rules), table.counting.clone());
        let childs = Mutex::new(table.of_child());
        Self { table: Mutex::new(table), childs, threads, rules, counting }
    }

    /// Runs `work` on the table, and wakes the thread that is to go on. `work` must be short and
    /// run no foreign code: it must neither call nor drop a waker.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        self.with_then(|table| (work(table), Then::Wakes))
    }

    /// As [`with`](Self::with); `work` says which thread goes on.
    pub(super) fn with_then<T>(&self, work: impl FnOnce(&mut Table) -> (T, Then)) -> T {
        // A panic in the table would be a bug; later calls still get an answer.
        let table = if self.is_in_fork() { &self.childs } else { &self.table };
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, then) = work(&mut table);
        let place = match then {
            Then::ComesBack => None,
            Then::Wakes | Then::Leads => table.must_wake(then == Then::Leads),
        };
        drop(table);
        // Even a leader wakes a thread at the sockets, and waits until that thread makes room.
        if let Some(place) = place {
            self.threads.wake(place);
        }
        value
    }

    /// As [`with`](Self::with), and writes the commands at once if no other thread drives.
    pub(super) fn with_writing<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        let (value, leads) = self.with_then(|table| {
            let value = work(table);
            let leads = table.begin_writing();
            ((value, leads), if leads { Then::Leads } else { Then::Wakes })
        });
        if leads {
            let _no_call = self.lead(Lead::once());
        }
        value
    }

    pub(super) fn lists(&self) -> Lists {
        self.with(|table| table.lists.clone())
    }

    /// Drives in the place of the I/O thread, and wakes the thread that goes on. Returns the result
    /// of the leader's call if it is done.
    pub(super) fn lead(&self, mut lead: Lead) -> Option<Taken> {
        if self.is_in_fork() {
            return None;
        }
        let end = self.threads.lead(self, &mut lead);
        let end = end.unwrap_or_else(|| self.with(|table| table.end_lead(None, 0)));
        if end.wakes_gate {
            self.threads.wake(Place::Gate);
        }
        if let Some(next) = end.next {
            next.unpark();
        }
        lead.taken
    }

    /// Whether this is the child of a fork: leases, calls and sockets are the parent's.
    pub(super) fn is_in_fork(&self) -> bool {
        !self.threads.are_here()
    }

    /// The I/O thread ends, with `owed` releases owed, and so does every call.
    pub(super) fn end(&self, owed: usize) {
        let mut tell = Vec::new();
        let _commands = self.with(|table| table.end(owed, &mut tell));
        notify_all(tell);
    }
}

/// Clients, guards and calls under way hold it: once the last is gone, the I/O thread ends.
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

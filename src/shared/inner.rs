//! [`Inner`]: the table, and how to wake its I/O thread; [`Owner`]: kept alive by handles, guards
//! and calls, but not by the I/O thread.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::counting::Counting;
use super::sync::Mutex;
use super::table::{Command, Table};

pub(super) struct Inner {
    table: Mutex<Table>,
    /// Wakes the I/O thread; a failure is ignored.
    wake: Box<dyn Fn() + Send + Sync>,
    /// How long a call that went straight to the I/O thread spins for its result.
    pub(super) spin: Duration,
    pub(super) counting: Counting,
}

impl Inner {
    pub(super) fn new(
        table: Table,
        wake: impl Fn() + Send + Sync + 'static,
        spin: Duration,
    ) -> Self {
        let counting = table.counting.clone();
        Self { table: Mutex::new(table), wake: Box::new(wake), spin, counting }
    }

    /// Runs `work` on the table, and wakes the I/O thread if there is something to do. `work` must
    /// be short and run no foreign code: it must neither call nor drop a waker.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        // A panic in the table would be a bug; later calls still get an answer.
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let value = work(&mut table);
        let must_wake = table.must_wake();
        drop(table);
        if must_wake {
            (self.wake)();
        }
        value
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

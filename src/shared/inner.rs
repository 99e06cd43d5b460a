//! [`Inner`]: the table, and how its I/O thread is woken; [`Owner`]: what handles, guards and calls
//! keep alive, and the I/O thread does not.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::sync::Mutex;
use super::table::{Command, Table};

pub(super) struct Inner {
    table: Mutex<Table>,
    /// Wakes the I/O thread, and is never told why not.
    wake: Box<dyn Fn() + Send + Sync>,
    /// How long a call that went straight to the I/O thread spins for its result.
    pub(super) spin: Duration,
}

impl Inner {
    pub(super) fn new(
        table: Table,
        wake: impl Fn() + Send + Sync + 'static,
        spin: Duration,
    ) -> Self {
        Self { table: Mutex::new(table), wake: Box::new(wake), spin }
    }

    /// Runs `work` on the table, and wakes the I/O thread if it left something to do. `work` must
    /// be short, and run no code of others: no waker, no drop of one.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        // A panic in the table would be a bug; whoever comes next still gets an answer.
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

/// Kept by handles, guards and calls under way: once the last is gone, the I/O thread ends.
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

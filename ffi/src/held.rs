//! [`Held`]: the guard behind a lease of a client, which several threads may use.
//!
//! # Invariants
//!
//! - A thread that waits for the loss of the lock gives way to one that extends or ends it.
//! - A thread that comes late, when the place has another guard, finds another serial number.

use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use redbolt::{Guard, Instant, now};

use crate::failure::Failure;

#[derive(Debug, Default)]
pub(crate) struct Held {
    content: RwLock<Content>,
    /// How many threads want to extend or to end the lease.
    wanting: AtomicUsize,
    /// The threads that wait for the loss of the lock.
    watchers: Mutex<Vec<Thread>>,
    /// The length of `watchers`, or less, without the mutex.
    watching: AtomicUsize,
}

#[derive(Debug, Default)]
struct Content {
    serial: u64,
    guard: Option<Guard>,
}

impl Content {
    fn read<T>(&self, serial: u64, read: impl FnOnce(&Guard) -> T) -> Result<T, Failure> {
        let guard = self.guard.as_ref().filter(|_| self.serial == serial);
        guard.map(read).ok_or(Failure::NotALease)
    }
}

impl Held {
    pub(crate) fn put(&self, serial: u64, guard: Guard) -> Result<(), Failure> {
        let mut content = self.content.write().map_err(|_| Failure::Panic)?;
        *content = Content { serial, guard: Some(guard) };
        Ok(())
    }

    /// Reads the guard. While another thread extends the lease, the call waits.
    pub(crate) fn read<T>(
        &self,
        serial: u64,
        read: impl FnOnce(&Guard) -> T,
    ) -> Result<T, Failure> {
        self.content.read().map_err(|_| Failure::Panic)?.read(serial, read)
    }

    /// As [`read`](Self::read), but returns `None` at once if another thread has the guard alone.
    fn read_now<T>(
        &self,
        serial: u64,
        read: impl FnOnce(&Guard) -> T,
    ) -> Result<Option<T>, Failure> {
        match self.content.try_read() {
            Ok(content) => content.read(serial, read).map(Some),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => Err(Failure::Panic),
        }
    }

    /// Changes the guard while no other thread has it.
    pub(crate) fn change<T>(
        &self,
        serial: u64,
        change: impl FnOnce(&mut Guard) -> T,
    ) -> Result<T, Failure> {
        self.alone(serial, |guard| guard.as_mut().map(change))
    }

    /// Takes the guard out, so that the caller can end it.
    pub(crate) fn take(&self, serial: u64) -> Result<Guard, Failure> {
        self.alone(serial, Option::take)
    }

    fn alone<T>(
        &self,
        serial: u64,
        change: impl FnOnce(&mut Option<Guard>) -> Option<T>,
    ) -> Result<T, Failure> {
        let _wanting = Wanting::new(self);
        let mut content = self.content.write().map_err(|_| Failure::Panic)?;
        if content.serial != serial {
            return Err(Failure::NotALease);
        }
        change(&mut content.guard).ok_or(Failure::NotALease)
    }

    /// Waits until the lock is over, for at most `limit`.
    pub(crate) fn wait_lost(&self, serial: u64, limit: Duration) -> Result<(), Failure> {
        let _watching = Watching::new(self)?;
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let ends = now() + limit;
        loop {
            if self.read_now(serial, |guard| self.watch(guard, &waker, ends))? == Some(true) {
                return Ok(());
            }
            let left = now().until(ends);
            if left.is_zero() {
                return Err(Failure::TimedOut);
            }
            if self.wanting.load(Ordering::SeqCst) > 0 {
                // The other thread wakes this one when it is done.
                thread::park_timeout(left);
            }
        }
    }

    /// Whether the lock is over. Returns false early if another thread wants the guard, and at
    /// `ends`.
    fn watch(&self, guard: &Guard, waker: &Waker, ends: Instant) -> bool {
        let mut lost = pin!(guard.lost());
        loop {
            if lost.as_mut().poll(&mut Context::from_waker(waker)) == Poll::Ready(()) {
                return true;
            }
            let left = now().until(ends);
            if left.is_zero() || self.wanting.load(Ordering::SeqCst) > 0 {
                return false;
            }
            thread::park_timeout(left);
        }
    }

    fn wake_watchers(&self) {
        // A watcher counts itself before it looks for a thread that wants the guard.
        if self.watching.load(Ordering::SeqCst) == 0 {
            return;
        }
        for thread in self.watchers.lock().iter().flat_map(|watchers| watchers.iter()) {
            thread.unpark();
        }
    }
}

/// A thread wants the guard for itself.
struct Wanting<'a>(&'a Held);

impl<'a> Wanting<'a> {
    fn new(held: &'a Held) -> Self {
        held.wanting.fetch_add(1, Ordering::SeqCst);
        held.wake_watchers();
        Self(held)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.wanting.fetch_sub(1, Ordering::SeqCst);
        self.0.wake_watchers();
    }
}

/// A thread waits for the loss of the lock.
struct Watching<'a>(&'a Held);

impl<'a> Watching<'a> {
    fn new(held: &'a Held) -> Result<Self, Failure> {
        held.watchers.lock().map_err(|_| Failure::Panic)?.push(thread::current());
        held.watching.fetch_add(1, Ordering::SeqCst);
        Ok(Self(held))
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.watching.fetch_sub(1, Ordering::SeqCst);
        let own = thread::current().id();
        if let Ok(mut watchers) = self.0.watchers.lock() {
            let place = watchers.iter().position(|thread| thread.id() == own);
            place.map(|place| watchers.swap_remove(place));
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_wait_for_the_loss_ends_at_its_limit_though_another_thread_has_the_guard() {
        let held = &Held::default();
        let ((begin, has_begun), (end, has_ended)) = (mpsc::channel(), mpsc::channel::<()>());
        thread::scope(|scope| {
            scope.spawn(move || {
                held.alone(0, |_| {
                    begin.send(()).unwrap();
                    has_ended.recv_timeout(Duration::from_secs(5)).err()
                })
            });
            has_begun.recv().unwrap();
            let result = held.wait_lost(0, Duration::from_millis(10));
            drop(end);
            assert!(matches!(result, Err(Failure::TimedOut)), "{result:?}");
        });
    }
}

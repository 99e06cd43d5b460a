//! Waiting for the end of a lock: it ends when the loss is known, at the latest at the deadline.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::SharedGuard;
use super::calls::Listener;
use super::sync::thread;
use crate::driver::clock::now;
use crate::engine::{Engine, LeaseId};
use crate::time::Instant;

/// The callers that wait for the end of their lock.
#[derive(Debug, Default)]
pub(super) struct Losses {
    waiting: Vec<(u64, LeaseId, Listener)>,
    count: u64,
}

impl Losses {
    pub(super) const fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Notes a listener, under the number it had before or a new one. The caller must drop the
    /// returned one outside of the mutex.
    fn listen(&mut self, number: &mut Option<u64>, lease: LeaseId, listener: Listener) -> Listener {
        let known = self.waiting.iter_mut().find(|(other, ..)| Some(*other) == *number);
        if let Some((.., place)) = known {
            return std::mem::replace(place, listener);
        }
        self.count += 1;
        *number = Some(self.count);
        self.waiting.push((self.count, lease, listener));
        Listener::None
    }

    fn forget(&mut self, number: u64) -> Listener {
        let place = self.waiting.iter().position(|&(other, ..)| other == number);
        place.map_or(Listener::None, |place| self.waiting.swap_remove(place).2)
    }

    /// Takes out the listeners whose lock is over at `now`. Returns when the next lock will be
    /// over.
    pub(super) fn over(
        &mut self,
        engine: &Engine,
        now: Instant,
        tell: &mut Vec<Listener>,
    ) -> Instant {
        let mut next_due = Instant::MAX;
        let mut is_over = |lease: LeaseId| {
            let deadline = engine.deadline(lease).unwrap_or_default();
            if engine.is_lost(lease) || deadline <= now {
                return true;
            }
            next_due = next_due.min(deadline);
            false
        };
        let over = self.waiting.extract_if(.., |&mut (_, lease, _)| is_over(lease));
        tell.extend(over.map(|(.., listener)| listener));
        next_due
    }

    /// Ends all waits: no loss can be reported any more.
    pub(super) fn end(&mut self, tell: &mut Vec<Listener>) {
        tell.extend(self.waiting.drain(..).map(|(.., listener)| listener));
    }
}

/// A wait for the end of a guard's lock.
struct Loss<'guard> {
    guard: &'guard SharedGuard,
    number: Option<u64>,
}

impl Loss<'_> {
    /// Whether the lock is over; if not, notes the listener.
    fn is_over_or_listen(&mut self, listener: Listener) -> bool {
        let Some(lease) = self.guard.id() else { return true };
        let (guard, number) = (self.guard, &mut self.number);
        let (is_over, _old) = guard.inner().with(|table| {
            if !guard.is_valid() || table.ended.is_some() {
                return (true, listener);
            }
            table.look_for_loss(guard.deadline());
            table.sleeping.listens(&listener);
            (false, table.losses.listen(number, lease, listener))
        });
        is_over
    }
}

impl Future for Loss<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let listener = Listener::Task(context.waker().clone());
        if self.is_over_or_listen(listener) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Loss<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let _listener = self.guard.inner().with(|table| table.losses.forget(number));
    }
}

impl SharedGuard {
    /// Completes when the lock is over: as soon as the I/O thread knows of the loss, for a lock
    /// that is [kept alive](crate::LockOptions::keep_alive), and at the latest at its deadline, even when every
    /// node is silent. It also completes when the handle is shut down, because no loss can be
    /// reported after that.
    ///
    /// Use it in a `select!` beside the work. To run a function on a loss, await it in a task or
    /// thread of its own. You can drop it and call it again at any time.
    pub fn wait_lost_async(&self) -> impl Future<Output = ()> + Send + '_ {
        Loss { guard: self, number: None }
    }

    /// Blocks until the lock is over, as [`wait_lost_async`](Self::wait_lost_async), or until
    /// `limit` has passed. Returns whether the lock is over.
    #[must_use]
    pub fn wait_lost(&self, limit: Duration) -> bool {
        let ends = now() + limit;
        let mut loss = Loss { guard: self, number: None };
        loop {
            if loss.is_over_or_listen(Listener::Thread(thread::current())) {
                return true;
            }
            let time = now();
            if time >= ends {
                return false;
            }
            thread::park_timeout(time.until(ends.min(self.deadline())));
        }
    }
}

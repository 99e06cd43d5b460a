//! [`Pending`]: a call under way, to be blocked on or awaited, and given up when it is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use super::calls::{Listener, Reply, Stage};
use super::inner::Owner;
use super::sync::{AtomicBool, thread};
use crate::driver::clock::now;

/// Looks at the result between two looks at the clock.
const SPINS: u32 = 64;

pub(super) struct Pending {
    owner: Arc<Owner>,
    call: u32,
    /// Set once the result is there.
    done: Arc<AtomicBool>,
    is_queued: bool,
    is_taken: bool,
}

/// A call's result, and the queue of its key.
pub(super) type Taken = (Reply, u32);

impl Pending {
    /// For a call that was just begun. `is_queued`: others of this process are before it.
    pub(super) const fn new(
        owner: Arc<Owner>,
        call: u32,
        done: Arc<AtomicBool>,
        is_queued: bool,
    ) -> Self {
        Self { owner, call, done, is_queued, is_taken: false }
    }

    /// Blocks until the result is there: spins first where that was asked for, then sleeps.
    pub(super) fn wait(mut self) -> Taken {
        if !self.is_queued && !self.owner.inner.spin.is_zero() {
            self.spin(self.owner.inner.spin);
        }
        loop {
            let listener = Listener::Thread(thread::current());
            if let Some(taken) = self.take_or_listen(listener) {
                return taken;
            }
            while !self.done.load(Ordering::Acquire) {
                thread::park();
            }
        }
    }

    fn spin(&self, limit: Duration) {
        let end = now() + limit;
        while now() < end {
            for _ in 0..SPINS {
                if self.done.load(Ordering::Acquire) {
                    return;
                }
                std::hint::spin_loop();
            }
        }
    }

    /// Takes the result, or notes who waits for it.
    fn take_or_listen(&mut self, listener: Listener) -> Option<Taken> {
        let call = self.call;
        // What the closure hands out is dropped outside of the lock.
        let (taken, _old) = self.owner.inner.with(|table| {
            let place = table.calls.at(call);
            let queue = place.queue;
            if place.stage != Stage::Done {
                return (None, (table.calls.listen(call, listener), Listener::None));
            }
            let (reply, old) = table.calls.close(call);
            (reply.map(|reply| (reply, queue)), (old, listener))
        });
        self.is_taken = taken.is_some();
        taken
    }
}

impl Future for Pending {
    type Output = Taken;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Taken> {
        let listener = Listener::Task(context.waker().clone());
        self.take_or_listen(listener).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let call = self.call;
        // A waker and what the call had been given are dropped outside of the lock.
        let (next, _left) = self.owner.inner.with(|table| {
            let place = table.calls.at(call);
            let (queue, may_pass) = (place.queue, place.may_pass());
            match table.abandon(call) {
                (Some(Reply::Lock(Ok(lease)) | Reply::Adopt(Ok(lease))), listener) => {
                    // Won, and nobody came for it: the next in the queue does.
                    (table.give_back(queue, lease, may_pass), (None, listener))
                }
                left => (Listener::None, left),
            }
        });
        next.notify();
    }
}

//! [`Pending`]: a call under way, to block on or to await. Dropping it gives the call up.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use super::calls::{CallIndex, Left, Listener, Reply, Stage};
use super::inner::Owner;
use super::queues::QueueIndex;
use super::sync::{AtomicBool, ThreadId, thread};
use crate::driver::clock::now;

/// Checks for the result between two clock reads.
const SPINS: u32 = 64;

pub(super) struct Pending {
    owner: Arc<Owner>,
    call: CallIndex,
    /// Set once the result is there.
    done: Arc<AtomicBool>,
    begun_by: ThreadId,
    is_queued: bool,
    is_taken: bool,
    /// The caller has to work in the place of the I/O thread.
    pub(super) leads: bool,
}

/// A call's result, and the queue of its key.
pub(super) type Taken = (Reply, Option<QueueIndex>);

impl Pending {
    /// For a call that this thread has just begun and listens for. `is_queued`: it stands behind
    /// others of this process.
    pub(super) fn new(
        owner: Arc<Owner>,
        call: CallIndex,
        done: Arc<AtomicBool>,
        is_queued: bool,
    ) -> Self {
        Self {
            owner,
            call,
            done,
            begun_by: thread::current().id(),
            is_queued,
            is_taken: false,
            leads: false,
        }
    }

    /// Blocks until the result is there: leads, or spins first if the settings say so, then sleeps.
    pub(super) fn wait(mut self) -> Taken {
        if self.leads {
            self.owner.inner.lead(&self.done);
        } else if !self.is_queued && !self.owner.inner.spin.is_zero() {
            self.spin(self.owner.inner.spin);
        }
        // Whoever began the call listens already.
        let mut listens = thread::current().id() == self.begun_by;
        loop {
            while listens && !self.done.load(Ordering::Acquire) {
                thread::park();
            }
            listens = true;
            if let Some(taken) = self.take_or_listen(Listener::Thread(thread::current())) {
                return taken;
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

    /// Takes the result, or notes the listener for it.
    fn take_or_listen(&mut self, listener: Listener) -> Option<Taken> {
        let call = self.call;
        // What the closure returns is dropped outside of the mutex.
        let (taken, _old) = self.owner.inner.with(|table| {
            let place = table.calls.at(call);
            let queue = place.queue;
            if place.stage != Stage::Done {
                table.sleeping.listens(&listener);
                let old = table.calls.listen(call, listener);
                return (None, (Left::listener(old), Listener::None));
            }
            let mut left = table.calls.close(call);
            (left.reply.take().map(|reply| (reply, queue)), (left, listener))
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
        // The waker, and what the call had got, are dropped outside of the mutex.
        let (next, _left) = self.owner.inner.with(|table| {
            let place = table.calls.at(call);
            let (queue, may_pass) = (place.queue, place.may_pass());
            let mut left = table.abandon(call);
            match (left.reply.take(), queue) {
                (Some(Reply::Lock(Ok(lease)) | Reply::Adopt(Ok(lease))), Some(queue)) => {
                    // Won, but not taken by its caller: the lease goes to the next in the queue.
                    (table.give_back(queue, lease, may_pass), left)
                }
                (reply, _) => {
                    left.reply = reply;
                    (Listener::None, left)
                }
            }
        });
        next.notify();
    }
}

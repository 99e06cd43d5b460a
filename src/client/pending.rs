//! [`PendingCall`]: a request under way. Dropping it gives the request up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::calls::{CallKind, CallResult, Left, Listener, Stage, Taken};
use super::indices::CallIndex;
use super::inner::{Caller, Owner, Then};
use super::sleeping::Lead;
use super::sync::{AtomicBool, thread};
use super::table::Table;
use crate::driver::clock::now;
use crate::time::Instant;

pub(super) struct PendingCall {
    owner: Arc<Owner>,
    call: CallIndex,
    /// Set once the result has come.
    done: Arc<AtomicBool>,
    /// The result wakes this thread.
    listens: bool,
    is_taken: bool,
    /// This thread has to drive in the place of the I/O thread.
    leads: bool,
}

impl PendingCall {
    /// Begins a request; its caller then waits for it.
    pub(super) fn begin<E>(
        owner: &Arc<Owner>,
        caller: Caller,
        begin: impl FnOnce(&mut Table) -> Result<CallIndex, E>,
    ) -> Result<Self, E> {
        owner.inner.with_then(|table| {
            let call = match begin(table) {
                Ok(call) => call,
                Err(error) => return (Err(error), Then::Wakes),
            };
            let done = table.calls.done(call);
            let owner = Arc::clone(owner);
            let mut this =
                Self { owner, call, done, listens: false, is_taken: false, leads: false };
            // A call that has just begun has no other listener.
            let (then, _none) = this.waits(table, caller);
            (Ok(this), then)
        })
    }

    /// The caller is about to wait: it leads, or listens. Returns the previous listener.
    fn waits(&mut self, table: &mut Table, caller: Caller) -> (Then, Listener) {
        let own = match caller {
            Caller::Blocks { own } => Some(own),
            Caller::Sleeps => None,
            Caller::Gathers => return (Then::ComesBack, Listener::None),
            Caller::GoesOn => {
                // The caller is away, so no other thread may choose it to lead.
                self.listens = false;
                return (Then::Wakes, table.calls.listen(self.call, Listener::None));
            }
        };
        // Only a short call makes its caller lead. A queued call may have to wait for another
        // caller, and a wait for a loss lasts as long as the lock.
        let place = table.calls.at(self.call);
        let is_short = place.stage == Stage::UnderWay && place.kind != CallKind::Loss;
        self.leads |= is_short && own.is_some_and(|own| table.begin_lead(own));
        if self.leads {
            self.listens = false;
            return (Then::Leads, table.calls.listen(self.call, Listener::None));
        }
        if self.listens {
            return (Then::Wakes, Listener::None);
        }
        self.listens = true;
        (Then::Wakes, table.calls.listen(self.call, Listener::Thread(thread::current())))
    }

    /// Blocks until the result has come: leads, or sleeps. `None` at `ends`; the call goes on.
    pub(super) fn wait_until(&mut self, ends: Instant, own: usize) -> Option<Taken> {
        let mut caller = Caller::Blocks { own };
        loop {
            if std::mem::take(&mut self.leads) {
                if let Some(taken) = self.owner.inner.lead(Lead::until(self.call, own, ends)) {
                    self.is_taken = true;
                    return Some(taken);
                }
                // The I/O thread is to drive now.
                caller = Caller::Sleeps;
            } else if self.listens && !self.done.load(Ordering::Acquire) {
                park_until(ends);
            }
            let is_over = ends < Instant::MAX && ends <= now();
            let taken = self.look(Listener::None, if is_over { Caller::GoesOn } else { caller });
            if taken.is_some() || is_over {
                self.hand_lead_on();
                return taken;
            }
        }
    }

    /// Hands the lead on, because this caller leaves the sockets.
    fn hand_lead_on(&mut self) {
        if std::mem::take(&mut self.leads) {
            let _no_call = self.owner.inner.lead(Lead::once());
        }
    }

    /// Takes the result. Without a result, it notes which thread or task to wake for it.
    pub(super) fn look(&mut self, task: Listener, caller: Caller) -> Option<Taken> {
        if self.owner.inner.is_in_fork() {
            // No call has this result, so each takes it for the end of the client.
            self.is_taken = true;
            return Some((CallResult::Lost, None));
        }
        // This thread drops the remains outside of the mutex.
        let owner = Arc::clone(&self.owner);
        let (taken, _left) = owner.inner.with_then(|table| {
            let place = table.calls.at_mut(self.call);
            // A caller that was promoted hands the lead on, even if its call is done.
            self.leads |= std::mem::take(&mut place.leads);
            if !self.leads && place.stage == Stage::Done {
                let (taken, left) = table.take(self.call);
                return ((Some(taken), (left, task)), Then::Wakes);
            }
            if matches!(task, Listener::None) {
                let (then, old) = self.waits(table, caller);
                return ((None, (Left::listener(old), task)), then);
            }
            table.sleeping.listens(&task);
            self.listens = false;
            let old = table.calls.listen(self.call, task);
            ((None, (Left::listener(old), Listener::None)), Then::Wakes)
        });
        self.is_taken = taken.is_some();
        taken
    }
}

fn park_until(ends: Instant) {
    if ends < Instant::MAX {
        thread::park_timeout(now().until(ends));
    } else {
        thread::park();
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if self.is_taken || self.owner.inner.is_in_fork() {
            return;
        }
        let call = self.call;
        // This thread drops the waker and the call's result outside of the mutex.
        let (next, leads, _left) = self.owner.inner.with(|table| {
            let place = table.calls.at_mut(call);
            let leads = std::mem::take(&mut place.leads);
            let queue = place.queue;
            let mut left = table.abandon(call);
            let next = match left.reply.take().map(|reply| table.take_back(queue, reply, now)) {
                Some(Ok(next)) => next,
                other => {
                    left.reply = other.and_then(Result::err);
                    Listener::None
                }
            };
            (next, leads, left)
        });
        next.notify();
        self.leads |= leads;
        self.hand_lead_on();
    }
}

//! [`Call`]: a call of a client or of a guard, to block on or to await.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::calls::{CallResult, Listener, TakenResult};
use super::driving::{Caller, Owner};
use super::guard::Guard;
use super::request::{self, CallRequest, Finished, PendingCall};
use crate::driver::clock::now;
use crate::error::{DetachError, ExtendError, UnlockError, Unlocked};
use crate::time::Instant;
use crate::token::LockToken;

/// A call of a [`Client`](crate::Client). It begins when the caller first waits for it or polls it,
/// and its timeouts count from then.
///
/// [`wait`](Self::wait) blocks. As a [`Future`] the call needs no runtime and runs on any. A caller
/// may still wait for a call that was polled.
///
/// Dropping a call gives it up, and the client releases a lock that it may have won. An extension
/// or a release that has begun goes on. Dropping a release that has not begun sends it, as dropping
/// a guard does.
#[must_use = "a call does nothing until it is waited for or polled"]
pub struct Call<'a, T> {
    owner: Arc<Owner>,
    request: CallRequest<'a>,
    progress: CallProgress,
    end: End<'a, T>,
}

/// Makes the result of a call from the result of its request. `None` if the caller is to make the
/// request again.
pub(super) type End<'a, T> = fn(Finished<'_, 'a>) -> Option<T>;

#[derive(Default)]
enum CallProgress {
    #[default]
    New,
    UnderWay(PendingCall),
    /// The call never was under way.
    Ended(TakenResult),
    /// The caller has the result.
    Over,
}

impl<'a, T> Call<'a, T> {
    pub(super) const fn new(owner: Arc<Owner>, request: CallRequest<'a>, end: End<'a, T>) -> Self {
        Self { owner, request, progress: CallProgress::New, end }
    }

    /// Blocks until the call is done. If no other call is under way, the caller drives the sockets
    /// itself, and no thread has to wake another.
    pub fn wait(mut self) -> T {
        self.wait_among(1)
    }

    /// As [`wait`](Self::wait), for at most `limit`. `None`: the call is not done. It goes on, so
    /// wait again, or drop it to give it up.
    ///
    /// # Panics
    ///
    /// If the caller already has the result. Then every other wait and poll panics, too.
    #[must_use]
    pub fn wait_for(&mut self, limit: Duration) -> Option<T> {
        self.wait_until(now() + limit, 1)
    }

    /// As [`wait`](Self::wait), while this thread has `own` calls under way.
    fn wait_among(&mut self, own: usize) -> T {
        loop {
            if let Some(value) = self.wait_until(Instant::MAX, own) {
                return value;
            }
        }
    }

    fn wait_until(&mut self, ends: Instant, own: usize) -> Option<T> {
        self.go_on(Caller::Blocks { own }, |pending| pending.wait_until(ends, own))
    }

    /// Makes the request until its result gives a value. `None` if `look` finds no result yet.
    fn go_on(
        &mut self,
        caller: Caller,
        mut look: impl FnMut(&mut PendingCall) -> Option<TakenResult>,
    ) -> Option<T> {
        loop {
            self.begin(caller);
            let (reply, queue) = match std::mem::take(&mut self.progress) {
                CallProgress::New | CallProgress::Over => return None,
                CallProgress::UnderWay(mut pending) => {
                    let Some(taken) = look(&mut pending) else {
                        self.progress = CallProgress::UnderWay(pending);
                        return None;
                    };
                    taken
                }
                CallProgress::Ended(taken) => taken,
            };
            let done = Finished { request: &mut self.request, owner: &self.owner, reply, queue };
            if let Some(value) = (self.end)(done) {
                self.progress = CallProgress::Over;
                return Some(value);
            }
        }
    }

    fn begin(&mut self, caller: Caller) {
        // A call that began anew would take a lock of which the caller knows nothing.
        assert!(!matches!(self.progress, CallProgress::Over), "the call's result was returned");
        if matches!(self.progress, CallProgress::New) {
            self.progress = match self.request.begin(&self.owner, caller) {
                Ok(pending) => CallProgress::UnderWay(pending),
                Err(taken) => CallProgress::Ended(taken),
            };
        }
    }
}

impl<T> Future for Call<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let value = self.get_mut().go_on(Caller::GoesOn, |pending| {
            pending.look(Listener::Task(context.waker().clone()), Caller::GoesOn)
        });
        value.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Guard {
    /// Moves the end of the lock to `ttl` from now, on a quorum of nodes. A node that forgot the
    /// key gets it again, and counts. Costs one round trip to the slowest node of the fastest
    /// quorum, at most `node_timeout`, or `connect_timeout` if a quorum needs nodes that still
    /// connect.
    ///
    /// A dropped call may still extend the lock; the guard then keeps the earlier of the two
    /// deadlines.
    ///
    /// # Errors
    ///
    /// A failed extension deletes nothing. On [`ExtendError::Lost`] and [`ExtendError::Expired`]
    /// the lock is over: stop the work. On [`ExtendError::NoQuorum`] try again until
    /// [`deadline`](Self::deadline), which is now the earlier of the old and the new one.
    /// [`ExtendError::InvalidTtl`], [`ExtendError::LimitReached`], [`ExtendError::Busy`] (a dropped
    /// call still runs), [`ExtendError::Full`] and [`ExtendError::Closed`] leave the lock as it is.
    pub fn extend(&mut self, ttl: Duration) -> Call<'_, Result<(), ExtendError>> {
        let owner = Arc::clone(&self.owner);
        Call::new(owner, CallRequest::Extend { guard: self, ttl }, request::extended)
    }

    /// Extends the lock by the TTL of the call that took it, counted from now, if at most two
    /// thirds of that TTL are left. Otherwise it only reads the clock. Call it between the steps of
    /// long work.
    ///
    /// # Errors
    ///
    /// As [`extend`](Self::extend). While the lock is held, [`ExtendError::NoQuorum`] and
    /// [`ExtendError::Busy`] count as success: the next call tries again.
    pub fn extend_if_due(&mut self) -> Call<'_, Result<(), ExtendError>> {
        let (owner, ttl) = (Arc::clone(&self.owner), self.ttl);
        let is_due = self.remaining() <= ttl / 3 * 2;
        let request = if is_due {
            CallRequest::Extend { guard: self, ttl }
        } else {
            CallRequest::Ended(Some(CallResult::Extend(Ok(()))))
        };
        Call::new(owner, request, request::kept)
    }

    /// Releases the lock. The call is done when a quorum has confirmed the release, or when no
    /// quorum can: one round trip to the quorum, at most `node_timeout`. It is done at once, with
    /// [`Unlocked::Released`], if the lease goes to the next waiter of this client or
    /// [lingers](crate::LockOptions::linger). Then the nodes still hold the key.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotHeld`]: the lock was over before, so another holder may have been at work
    /// at the same time. If you know that already, drop the guard instead. [`UnlockError::Full`]:
    /// the client still releases the lock, without a result. [`UnlockError::Closed`].
    pub fn unlock(self) -> Call<'static, Result<Unlocked, UnlockError>> {
        let owner = Arc::clone(&self.owner);
        Call::new(owner, CallRequest::Unlock(Some(self)), request::unlocked)
    }

    /// Gives the lock away and returns its token; for several keys, the token of the first. Ask
    /// [`token_of`](Self::token_of) for the other tokens before you detach. The lock stays until
    /// its TTL ends, or until a client with key and token releases or adopts it
    /// ([`unlock_token`](crate::Client::unlock_token), [`adopt_all`](crate::Client::adopt_all)).
    /// The guard is over. From then on this client writes no command that changes a key by that
    /// token. Costs no round trip.
    ///
    /// A dropped call may have given the lock away.
    ///
    /// # Errors
    ///
    /// The errors of [`Driver::detach`](crate::driver::Driver::detach), [`DetachError::Full`] and
    /// [`DetachError::Closed`]. The guard stays as it is.
    pub fn detach(&mut self) -> Call<'_, Result<LockToken, DetachError>> {
        let owner = Arc::clone(&self.owner);
        Call::new(owner, CallRequest::Detach { guard: self }, request::detached)
    }

    /// Done as soon as the client knows that the lock is over. Even if every node is silent, that
    /// is at the lock's deadline at the latest. It is also done when the client is shut down,
    /// because the client can report no loss after that.
    ///
    /// Await it in a `select!` beside the work, or wait for it in a thread of its own. You can drop
    /// the call and make it again at any time.
    pub fn lost(&self) -> Call<'_, ()> {
        Call::new(Arc::clone(&self.owner), CallRequest::Loss(self), request::lost)
    }
}

/// Begins all of the calls, and blocks until each is done. If all are of one client, their requests
/// go out in one write per node. The results are in the order of the calls. Allocates one list.
///
/// ```no_run
/// use redbolt::{Client, Guard, LockError, wait_all};
/// use std::time::Duration;
///
/// fn take(client: &Client) -> Vec<Result<Guard, LockError>> {
///     let keys = ["sku:1", "sku:2", "sku:3"];
///     wait_all(keys.map(|key| client.try_lock(key, Duration::from_secs(10))))
/// }
/// ```
pub fn wait_all<'a, T>(calls: impl IntoIterator<Item = Call<'a, T>>) -> Vec<T> {
    let mut calls: Vec<_> = calls.into_iter().collect();
    // A call that `Gathers` wakes no thread, so it would stand still while the caller waits for a call
    // of another client.
    let is_of_one =
        calls.iter().zip(calls.iter().skip(1)).all(|(a, b)| Arc::ptr_eq(&a.owner, &b.owner));
    let caller = if is_of_one { Caller::Gathers } else { Caller::GoesOn };
    calls.iter_mut().for_each(|call| call.begin(caller));
    let is_under_way = |call: &Call<'_, T>| matches!(call.progress, CallProgress::UnderWay(_));
    let mut own = calls.iter().filter(|call| is_under_way(call)).count();
    let wait = |mut call: Call<'a, T>| {
        let is_own = usize::from(is_under_way(&call));
        let value = call.wait_among(if is_of_one { own.max(1) } else { 1 });
        own -= is_own;
        value
    };
    calls.into_iter().map(wait).collect()
}

impl<T> fmt::Debug for Call<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("request", &self.request).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Waker};

    use super::super::calls::CallKind;
    #[cfg(feature = "metrics")]
    use super::super::calls::CallResult;
    #[cfg(feature = "metrics")]
    use super::super::request::{CallRequest, Finished, LockRequest, locked};
    use super::super::schedules::{LONG, each, ends, start};
    use super::wait_all;
    use crate::error::{DetachError, ExtendError, LockError};
    #[cfg(feature = "metrics")]
    use crate::options::LockOptions;

    /// The caller has given up an extension that is still under way, and no other call can begin. The
    /// lease must not go to the next caller meanwhile.
    #[test]
    fn a_call_that_is_refused_leaves_a_guard_busy() {
        each(|setup| {
            let (shared, worker) = start(setup);
            let mut guard = shared.try_lock("k", LONG).wait().expect("it is free");
            guard.is_busy = true;
            let inner = &shared.owner.inner;
            let places: Vec<_> = inner
                .with(|table| std::iter::from_fn(|| table.calls.open(CallKind::Look)).collect());
            let refused = guard.extend(LONG).wait();
            assert!(matches!(refused, Err(ExtendError::Full)), "{refused:?}");
            let refused = guard.detach().wait();
            assert!(matches!(refused, Err(DetachError::Full)), "{refused:?}");
            assert!(guard.is_busy, "the first call is not over");
            for place in places {
                drop(inner.with(|table| table.calls.close(place)));
            }
            drop(guard);
            ends(shared, worker);
        });
    }

    /// The second call wants more than is left.
    #[cfg(feature = "metrics")]
    #[test]
    fn a_lease_that_comes_too_late_for_its_caller_counts_as_no_hold() {
        each(|setup| {
            let (shared, worker) = start(setup);
            let mut guard = shared.try_lock("k", LONG).wait().expect("it is free");
            let (lease, _) = guard.take_lease().expect("it is held");
            let holds = || shared.owner.inner.counting.counts().holds().count();
            assert_eq!(holds(), 1);
            let options = LockOptions::new(LONG).min_validity(2 * LONG);
            let mut request = CallRequest::Lock(LockRequest::new(b"k", options));
            let (owner, queue) = (&shared.owner, Some(guard.queue));
            let reply = CallResult::Lock(Ok(lease));
            let result = locked(Finished { request: &mut request, owner, reply, queue });
            assert!(matches!(result, Some(Err(LockError::Expired(_)))), "{result:?}");
            assert_eq!(holds(), 1);
            drop(guard);
            drop(shared.lock("k", LONG).wait().expect("it is released"));
            ends(shared, worker);
        });
    }

    /// In some schedules the I/O thread is sooner.
    #[test]
    fn a_caller_of_several_calls_may_drive_though_one_of_them_was_refused_at_once() {
        static HAS_DRIVEN: AtomicBool = AtomicBool::new(false);
        each(|setup| {
            let (shared, worker) = start(setup);
            let drives = || shared.owner.inner.with(|table| table.sleeping.drives);
            let before = drives();
            let results = wait_all(["k", ""].map(|key| shared.try_lock(key, LONG)));
            assert!(matches!(*results, [Ok(_), Err(LockError::InvalidKey { .. })]), "{results:?}");
            if drives() > before && !setup.promotes {
                HAS_DRIVEN.store(true, Ordering::Relaxed);
            }
            drop(results);
            ends(shared, worker);
        });
        assert!(HAS_DRIVEN.load(Ordering::Relaxed), "the calls under way are all its own");
    }

    /// A driving caller would run the executor's code on its thread.
    #[test]
    fn a_caller_of_several_calls_does_not_drive_while_one_of_them_has_a_task() {
        each(|setup| {
            let (shared, worker) = start(setup);
            let mut polled = shared.try_lock("k", LONG);
            let mut context = Context::from_waker(Waker::noop());
            if Pin::new(&mut polled).poll(&mut context).is_pending() {
                let results = wait_all([shared.try_lock("other", LONG), polled]);
                assert!(results.iter().all(Result::is_ok), "{results:?}");
            } else {
                drop(polled);
            }
            ends(shared, worker);
        });
    }
}

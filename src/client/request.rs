//! [`CallRequest`]: the request of a call, from its beginning to its result.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::calls::{
    CallIndex, CallKind, CallResult, Listener, QueueIndex, Remains, Stage, TakenResult,
};
use super::counting::CountedCall;
use super::driving::{Caller, Drive, Owner, Then};
use super::guard::Guard;
use super::policy::Lists;
use super::span::CallSpan;
use super::sync::{AtomicBool, thread};
use super::table::{KeysAndTokens, Table, Task};
use crate::agreement::Agreement;
use crate::client_name::ClientId;
use crate::driver::clock::now;
use crate::driver::{Connecting, Driver};
use crate::engine::{NodeHealth, Notice, in_order};
use crate::error::{ConnectError, DetachError, ExtendError, LockError, UnlockError, Unlocked};
use crate::key::{self, Key};
use crate::leader::{Led, Sighting};
use crate::options::LockOptions;
use crate::query::{NodeAnswers, Query};
use crate::time::Instant;
use crate::token::LockToken;

pub(super) enum CallRequest<'a> {
    Lock(LockRequest),
    Extend {
        guard: &'a mut Guard,
        ttl: Duration,
    },
    Detach {
        guard: &'a mut Guard,
    },
    /// `None` once the lease has gone to the next caller or to its release.
    Unlock(Option<Guard>),
    Adopt {
        locks: KeysAndTokens,
        options: LockOptions,
    },
    Observe(&'a mut Sighting),
    Ready {
        limit: Duration,
    },
    /// A task of the driving thread, for a call of that kind.
    Task(CallKind, Option<Task>),
    Loss(&'a Guard),
    Shutdown {
        limit: Duration,
    },
    /// The call has this result without asking anything.
    Ended(Option<CallResult>),
}

/// A request whose result has come.
pub(super) struct Finished<'r, 'a> {
    pub(super) request: &'r mut CallRequest<'a>,
    pub(super) owner: &'r Arc<Owner>,
    pub(super) reply: CallResult,
    /// The queue of its key; `None` if the request names no queue, or never was under way.
    pub(super) queue: Option<QueueIndex>,
}

/// A lock that a caller asks for.
pub(super) struct LockRequest {
    /// The key, or the name of several.
    pub(super) key: Key,
    is_set: bool,
    pub(super) options: LockOptions,
    /// The count and the span end with the call.
    counted: Option<CountedCall>,
    span: CallSpan,
}

impl LockRequest {
    pub(super) fn new(key: &[u8], options: LockOptions) -> Self {
        let key = Key::from_slice(key);
        Self { key, is_set: false, options, counted: None, span: CallSpan::none() }
    }

    pub(super) fn of_all<K: AsRef<[u8]>>(
        keys: impl IntoIterator<Item = K>,
        options: LockOptions,
    ) -> Result<Self, LockError> {
        let keys = in_order(&keys.into_iter().collect::<Vec<_>>())?;
        if let [key] = keys.as_slice() {
            return Ok(Self::new(key, options));
        }
        let key = key::join(&keys);
        Ok(Self { key, is_set: true, options, counted: None, span: CallSpan::none() })
    }

    fn begin(&mut self, owner: &Arc<Owner>, caller: Caller) -> Result<PendingCall, LockError> {
        let time = now();
        let patience = self.options.patience(time);
        let waits = patience.is_patient;
        self.span = CallSpan::of_lock(&self.key, self.options.ttl);
        // A clone for the closure, because no thread may drop a span under the mutex.
        let mut carried = self.span.clone();
        let policy = &owner.inner.policy;
        let checked = if self.is_set {
            policy.check_all(&self.key, &self.options)
        } else {
            policy.check(&self.key, &self.options)
        };
        let begun = checked.and_then(|()| {
            PendingCall::begin(owner, caller, |table| {
                table.begin_lock(&self.key, &self.options, patience, &mut carried, time)
            })
        });
        let counting = &owner.inner.counting;
        match &begun {
            Ok(_) => self.counted = Some(counting.call(time, waits)),
            Err(error) => counting.refused(error, waits),
        }
        begun
    }
}

impl CallRequest<'_> {
    pub(super) fn asking(query: Query) -> Self {
        Self::Task(CallKind::Ask, Some(Task::Ask(query, Instant::default())))
    }

    /// Several keys.
    pub(super) fn lock_all<K: AsRef<[u8]>>(
        keys: impl IntoIterator<Item = K>,
        options: LockOptions,
    ) -> Self {
        match LockRequest::of_all(keys, options) {
            Ok(asked) => Self::Lock(asked),
            Err(error) => Self::Ended(Some(CallResult::Lock(Err(error)))),
        }
    }

    /// A look at the driver.
    pub(super) const fn looking(look: fn(&mut Driver) -> CallResult) -> Self {
        Self::Task(CallKind::Look, Some(Task::Look(look)))
    }

    /// Begins the request. `Err`: the result of a request that is not under way.
    pub(super) fn begin(
        &mut self,
        owner: &Arc<Owner>,
        caller: Caller,
    ) -> Result<PendingCall, TakenResult> {
        match self {
            Self::Lock(asked) => {
                asked.begin(owner, caller).map_err(|error| (CallResult::Lock(Err(error)), None))
            }
            Self::Extend { guard, ttl } => {
                let Some(lease) = guard.id() else { return Err(ended(CallKind::Extend)) };
                let task = Task::Extend { queue: guard.queue, lease, ttl: *ttl };
                begin(owner, caller, CallKind::Extend, task).inspect(|_| guard.is_busy = true)
            }
            Self::Detach { guard } => {
                let Some(lease) = guard.id() else { return Err(ended(CallKind::Detach)) };
                let task = Task::Detach { queue: guard.queue, lease };
                begin(owner, caller, CallKind::Detach, task).inspect(|_| guard.is_busy = true)
            }
            Self::Unlock(guard) => guard
                .take()
                .map_or_else(|| Err(ended(CallKind::Unlock)), |guard| unlock(guard, caller)),
            Self::Adopt { locks, options } => {
                let keys: Vec<_> = locks.iter().map(|(key, _)| key).collect();
                let Ok(keys) = in_order(&keys) else {
                    return Err((CallResult::Adopt(Err(ExtendError::InvalidName)), None));
                };
                let key = match keys.as_slice() {
                    [key] => key.clone(),
                    keys => key::join(keys),
                };
                let locks = std::mem::take(locks);
                let task = Task::Adopt { key, locks, options: options.clone() };
                begin(owner, caller, CallKind::Adopt, task)
            }
            Self::Observe(sighting) => {
                let key = owner.inner.policy.wire_key(&sighting.key);
                let key = key.map_err(|error| (CallResult::Answers(Err(error)), None))?;
                begin(owner, caller, CallKind::Ask, Task::Ask(Query::leader(&key), sighting.due))
            }
            Self::Ready { limit } => {
                let task = Task::Connect(Connecting::until_ready(now() + *limit));
                begin(owner, caller, CallKind::Connect, task)
            }
            Self::Task(kind, task) => {
                let task = task.take().ok_or_else(|| ended(*kind))?;
                begin(owner, caller, *kind, task)
            }
            Self::Loss(guard) => {
                let Some(lease) = guard.id().filter(|_| guard.is_valid()) else {
                    return Err((CallResult::Lost, None));
                };
                PendingCall::begin(owner, caller, |table| table.begin_loss(lease, guard.deadline()))
                    .map_err(|_| (CallResult::Lost, None))
            }
            Self::Shutdown { limit } => {
                let ends = now() + *limit;
                PendingCall::begin(owner, caller, |table| table.begin_shutdown(ends))
                    .map_err(|owed| (CallResult::Shutdown(owed), None))
            }
            Self::Ended(reply) => {
                Err(reply.take().map_or_else(|| ended(CallKind::Loss), |reply| (reply, None)))
            }
        }
    }
}

fn begin(
    owner: &Arc<Owner>,
    caller: Caller,
    kind: CallKind,
    task: Task,
) -> Result<PendingCall, TakenResult> {
    let mut span = CallSpan::current();
    PendingCall::begin(owner, caller, |table| table.begin(kind, task, &mut span))
        .map_err(|refused| (CallResult::refused(kind, refused), None))
}

/// The lease goes to the next waiter of this client, or lingers. Otherwise the client releases it.
fn unlock(mut guard: Guard, caller: Caller) -> Result<PendingCall, TakenResult> {
    let queue = guard.queue;
    let Some((lease, may_pass)) = guard.take_lease() else { return Err(ended(CallKind::Unlock)) };
    let mut span = CallSpan::current();
    let mut next = Listener::None;
    let begun = PendingCall::begin(&guard.owner, caller, |table| {
        let lease = match table.pass_on(may_pass, queue, lease, now) {
            Ok(listener) => {
                next = listener;
                return Err(CallResult::Unlock(Ok(Unlocked::Released)));
            }
            Err(lease) => lease,
        };
        let begun = table.begin_unlock(queue, lease, &mut span);
        begun.map_err(|refused| CallResult::refused(CallKind::Unlock, refused))
    });
    next.notify();
    begun.map_err(|reply| (reply, None))
}

fn ended(kind: CallKind) -> TakenResult {
    (CallResult::closed(kind, 0), None)
}

// ---- how a caller waits ----

/// A request under way. Dropping it gives the request up.
pub(super) struct PendingCall {
    owner: Arc<Owner>,
    call: CallIndex,
    /// Set once the result has come.
    done: Arc<AtomicBool>,
    /// The result wakes this thread.
    listens: bool,
    is_taken: bool,
    /// This thread has to drive in the place of the I/O thread.
    drives: bool,
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
                Self { owner, call, done, listens: false, is_taken: false, drives: false };
            // A call that has just begun has no other listener.
            let (then, _none) = this.drive_or_listen(table, caller);
            (Ok(this), then)
        })
    }

    /// The caller is about to wait: it drives, or listens. Returns which thread goes on, and the
    /// previous listener.
    fn drive_or_listen(&mut self, table: &mut Table, caller: Caller) -> (Then, Listener) {
        let own = match caller {
            Caller::Blocks { own } => Some(own),
            Caller::Sleeps => None,
            Caller::Gathers => return (Then::ComesBack, Listener::None),
            Caller::GoesOn => {
                // The caller is away, so no other thread may choose it to drive.
                self.listens = false;
                return (Then::Wakes, table.calls.listen(self.call, Listener::None));
            }
        };
        // Only a short call makes its caller drive. A queued call may have to wait for another
        // caller, and a wait for a loss lasts as long as the lock.
        let place = table.calls.at(self.call);
        let is_short = place.stage == Stage::UnderWay && place.kind != CallKind::Loss;
        self.drives |= is_short && own.is_some_and(|own| table.begin_drive(own));
        if self.drives {
            self.listens = false;
            return (Then::Drives, table.calls.listen(self.call, Listener::None));
        }
        if self.listens {
            return (Then::Wakes, Listener::None);
        }
        self.listens = true;
        (Then::Wakes, table.calls.listen(self.call, Listener::Thread(thread::current())))
    }

    /// Blocks until the result has come: drives, or sleeps. `None` at `ends`; the call goes on.
    pub(super) fn wait_until(&mut self, ends: Instant, own: usize) -> Option<TakenResult> {
        let mut caller = Caller::Blocks { own };
        loop {
            if std::mem::take(&mut self.drives) {
                if let Some(taken) = self.owner.inner.drive(Drive::until(self.call, own, ends)) {
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
                self.hand_drive_on();
                return taken;
            }
        }
    }

    /// Hands the drive on, because this caller leaves the sockets.
    fn hand_drive_on(&mut self) {
        if std::mem::take(&mut self.drives) {
            let _no_call = self.owner.inner.drive(Drive::once());
        }
    }

    /// Takes the result. Without a result, it notes which thread or task to wake for it.
    pub(super) fn look(&mut self, task: Listener, caller: Caller) -> Option<TakenResult> {
        if self.owner.inner.is_in_fork() {
            // Each call but `lost` takes this for the end of the client.
            self.is_taken = true;
            return Some((CallResult::Lost, None));
        }
        // This thread drops the remains outside of the mutex.
        let owner = Arc::clone(&self.owner);
        let (taken, _left) = owner.inner.with_then(|table| {
            let place = table.calls.at_mut(self.call);
            // A caller that was promoted hands the drive on, even if its call is done.
            self.drives |= std::mem::take(&mut place.drives);
            if !self.drives && place.stage == Stage::Done {
                let (taken, left) = table.calls.take(self.call);
                return ((Some(taken), (left, task)), Then::Wakes);
            }
            if matches!(task, Listener::None) {
                let (then, old) = self.drive_or_listen(table, caller);
                return ((None, (Remains::listener(old), task)), then);
            }
            table.sleeping.listens(&task);
            self.listens = false;
            let old = table.calls.listen(self.call, task);
            ((None, (Remains::listener(old), Listener::None)), Then::Wakes)
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
        let (next, drives, _left) = self.owner.inner.with(|table| {
            let place = table.calls.at_mut(call);
            let drives = std::mem::take(&mut place.drives);
            let queue = place.queue;
            let mut left = table.abandon(call);
            let next = match left.reply.take().map(|reply| table.take_back(queue, reply, now)) {
                Some(Ok(next)) => next,
                other => {
                    left.reply = other.and_then(Result::err);
                    Listener::None
                }
            };
            (next, drives, left)
        });
        next.notify();
        self.drives |= drives;
        self.hand_drive_on();
    }
}

// ---- how results are made ----

/// A lease that a call has won. Checks the remaining time again.
pub(super) fn locked(done: Finished<'_, '_>) -> Option<Result<Guard, LockError>> {
    let CallResult::Lock(result) = done.reply else { return Some(Err(LockError::Closed)) };
    let CallRequest::Lock(asked) = done.request else {
        return Some(Err(result.err().unwrap_or(LockError::Closed)));
    };
    let result = result.and_then(|lease| {
        let queue = done.queue.ok_or(LockError::Closed)?;
        let (owner, min_validity) = (done.owner, asked.options.min_validity);
        let lists = || owner.inner.lists();
        let checked = Lists::check_lease(lease.remaining(), min_validity, lease.votes(), lists);
        if let Err(error) = checked {
            owner.inner.give_back(queue, lease, true);
            return Err(error);
        }
        Ok(Guard::new(lease, Arc::clone(owner), queue, asked.options.ttl))
    });
    if let Some(counted) = asked.counted.take() {
        counted.ends(result.as_ref().err());
    }
    asked.span = CallSpan::none();
    Some(result)
}

pub(super) fn extended(done: Finished<'_, '_>) -> Option<Result<(), ExtendError>> {
    if let CallRequest::Extend { guard, .. } = done.request {
        guard.is_busy &= done.queue.is_none();
    }
    let CallResult::Extend(result) = done.reply else { return Some(Err(ExtendError::Closed)) };
    Some(result)
}

/// As [`extended`], but a missed quorum counts as success while the lock is held.
pub(super) fn kept(done: Finished<'_, '_>) -> Option<Result<(), ExtendError>> {
    let is_valid = matches!(&done.request, CallRequest::Extend { guard, .. } if guard.is_valid());
    Some(match extended(done)? {
        // Busy: the engine keeps the lease alive, and an extension is under way.
        Err(ExtendError::NoQuorum(_) | ExtendError::Busy) if is_valid => Ok(()),
        result => result,
    })
}

pub(super) fn detached(done: Finished<'_, '_>) -> Option<Result<LockToken, DetachError>> {
    let (CallRequest::Detach { guard }, CallResult::Detach(result)) = (done.request, done.reply)
    else {
        return Some(Err(DetachError::Closed));
    };
    guard.is_busy &= done.queue.is_none();
    Some(result.and_then(|()| guard.give_away().ok_or(DetachError::Closed)))
}

pub(super) fn unlocked(done: Finished<'_, '_>) -> Option<Result<Unlocked, UnlockError>> {
    let CallResult::Unlock(result) = done.reply else { return Some(Err(UnlockError::Closed)) };
    Some(result)
}

/// A lease that a call has taken over.
pub(super) fn adopted(done: Finished<'_, '_>) -> Option<Result<Guard, ExtendError>> {
    let (CallRequest::Adopt { options, .. }, CallResult::Adopt(result)) =
        (done.request, done.reply)
    else {
        return Some(Err(ExtendError::Closed));
    };
    Some(result.and_then(|lease| {
        let queue = done.queue.ok_or(ExtendError::Closed)?;
        if lease.is_valid() {
            return Ok(Guard::new(lease, Arc::clone(done.owner), queue, options.ttl));
        }
        let late = CallResult::Adopt(Ok(lease));
        let _left = done.owner.inner.with(|table| table.take_back(Some(queue), late, now));
        Err(ExtendError::Expired)
    }))
}

pub(super) fn answered(done: Finished<'_, '_>) -> Option<Result<Vec<NodeAnswers>, LockError>> {
    Some(if let CallResult::Answers(result) = done.reply { result } else { Err(LockError::Closed) })
}

pub(super) fn led(done: Finished<'_, '_>) -> Option<Result<Led, LockError>> {
    let owner = done.owner;
    Some(answered(done)?.map(|answers| {
        Led::read(&answers, 0, |nodes| {
            owner.inner.lists().electorate.among_others().has_quorum(nodes)
        })
    }))
}

/// The next change. Until there is one, the observer asks the nodes again.
pub(super) fn observed(done: Finished<'_, '_>) -> Option<Result<Led, LockError>> {
    let Finished { request, owner, reply, queue } = done;
    let seen = match led(Finished { request: &mut *request, owner, reply, queue })? {
        Ok(seen) => seen,
        Err(error) => return Some(Err(error)),
    };
    let CallRequest::Observe(sighting) = request else { return Some(Err(LockError::Closed)) };
    sighting.begin(now());
    sighting.take(seen).map(Ok)
}

pub(super) fn ready(done: Finished<'_, '_>) -> Option<Result<(), ConnectError>> {
    let CallResult::Connect(result) = done.reply else {
        return Some(Err(super::calls::Refused::Closed.into()));
    };
    Some(result)
}

pub(super) fn nodes(done: Finished<'_, '_>) -> Option<Vec<NodeHealth>> {
    Some(if let CallResult::Nodes(nodes) = done.reply { nodes } else { Vec::new() })
}

pub(super) fn notices(done: Finished<'_, '_>) -> Option<Vec<Notice>> {
    Some(if let CallResult::Notices(notices) = done.reply { notices } else { Vec::new() })
}

pub(super) fn identity(done: Finished<'_, '_>) -> Option<Option<(ClientId, Agreement)>> {
    let CallResult::Identity(id, agreement) = done.reply else { return Some(None) };
    Some(Some((id, agreement)))
}

pub(super) fn lost(_done: Finished<'_, '_>) -> Option<()> {
    Some(())
}

pub(super) fn owed(done: Finished<'_, '_>) -> Option<usize> {
    Some(if let CallResult::Shutdown(owed) = done.reply { owed } else { 0 })
}

impl fmt::Debug for CallRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lock(_) => "Lock",
            Self::Extend { .. } => "Extend",
            Self::Detach { .. } => "Detach",
            Self::Unlock(_) => "Unlock",
            Self::Adopt { .. } => "Adopt",
            Self::Observe(_) => "Observe",
            Self::Ready { .. } => "Ready",
            Self::Task(kind, _) => return write!(f, "{kind:?}"),
            Self::Loss(_) => "Loss",
            Self::Shutdown { .. } => "Shutdown",
            Self::Ended(_) => "Ended",
        })
    }
}

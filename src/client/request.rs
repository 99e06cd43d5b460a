//! [`CallRequest`]: the request of a call, from its beginning to its result.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::calls::{CallKind, CallResult, Listener, Taken};
use super::counting::CountedCall;
use super::held::Held;
use super::indices::QueueIndex;
use super::inner::{Caller, Owner};
use super::pending::PendingCall;
use super::rules::Lists;
use super::span::CallSpan;
use super::table::{KeysAndTokens, Task};
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
        held: &'a mut Held,
        ttl: Duration,
    },
    Detach {
        held: &'a mut Held,
    },
    /// `None` once the lease has gone to the next caller or to its release.
    Unlock(Option<Held>),
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
    Loss(&'a Held),
    Shutdown {
        limit: Duration,
    },
    /// The call has this result without asking anything.
    Ended(Option<CallResult>),
}

/// A request whose result has come.
pub(super) struct Done<'r, 'a> {
    pub(super) request: &'r mut CallRequest<'a>,
    pub(super) owner: &'r Arc<Owner>,
    pub(super) reply: CallResult,
    /// The queue of its key.
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
        let rules = &owner.inner.rules;
        let checked = if self.is_set {
            rules.check_all(&self.key, &self.options)
        } else {
            rules.check(&self.key, &self.options)
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
    ) -> Result<PendingCall, Taken> {
        match self {
            Self::Lock(asked) => {
                asked.begin(owner, caller).map_err(|error| (CallResult::Lock(Err(error)), None))
            }
            Self::Extend { held, ttl } => {
                let Some(lease) = held.id() else { return Err(ended(CallKind::Extend)) };
                let task = Task::Extend { queue: held.queue, lease, ttl: *ttl };
                begin(owner, caller, CallKind::Extend, task).inspect(|_| held.is_busy = true)
            }
            Self::Detach { held } => {
                let Some(lease) = held.id() else { return Err(ended(CallKind::Detach)) };
                let task = Task::Detach { lease };
                begin(owner, caller, CallKind::Detach, task).inspect(|_| held.is_busy = true)
            }
            Self::Unlock(held) => held
                .take()
                .map_or_else(|| Err(ended(CallKind::Unlock)), |held| unlock(held, caller)),
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
                let key = owner.inner.rules.wire_key(&sighting.key);
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
            Self::Loss(held) => {
                let Some(lease) = held.id().filter(|_| held.is_valid()) else {
                    return Err((CallResult::Lost, None));
                };
                PendingCall::begin(owner, caller, |table| table.begin_loss(lease, held.deadline()))
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
) -> Result<PendingCall, Taken> {
    let mut span = CallSpan::current();
    PendingCall::begin(owner, caller, |table| table.begin(kind, task, &mut span))
        .map_err(|refused| (CallResult::refused(kind, refused), None))
}

/// The lease goes to the next waiter of this client, or lingers. Otherwise the client releases it.
fn unlock(mut held: Held, caller: Caller) -> Result<PendingCall, Taken> {
    let (queue, may_pass) = (held.queue, held.may_pass());
    let Some(lease) = held.take_lease() else { return Err(ended(CallKind::Unlock)) };
    let mut span = CallSpan::current();
    let mut next = Listener::None;
    let begun = PendingCall::begin(&held.owner, caller, |table| {
        let lease = match table.pass_on_if(may_pass, queue, lease, now) {
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

fn ended(kind: CallKind) -> Taken {
    (CallResult::closed(kind, 0), None)
}

// ---- how results are made ----

/// A lease that a call has won. Checks the remaining time again.
pub(super) fn locked(done: Done<'_, '_>) -> Option<Result<Held, LockError>> {
    let CallResult::Lock(result) = done.reply else { return Some(Err(LockError::Closed)) };
    let CallRequest::Lock(asked) = done.request else {
        return Some(Err(result.err().unwrap_or(LockError::Closed)));
    };
    let result = result.and_then(|lease| {
        let queue = done.queue.ok_or(LockError::Closed)?;
        let held = Held::new(lease, Arc::clone(done.owner), queue, asked.options.ttl);
        let min_validity = asked.options.min_validity;
        let lists = || done.owner.inner.lists();
        Lists::check_lease(held.remaining(), min_validity, held.votes(), lists)?;
        Ok(held)
    });
    if let Some(counted) = asked.counted.take() {
        counted.ends(result.as_ref().err());
    }
    asked.span = CallSpan::none();
    Some(result)
}

pub(super) fn extended(done: Done<'_, '_>) -> Option<Result<(), ExtendError>> {
    if let CallRequest::Extend { held, .. } = done.request {
        held.is_busy = false;
    }
    let CallResult::Extend(result) = done.reply else { return Some(Err(ExtendError::Closed)) };
    Some(result)
}

/// As [`extended`], but a missed quorum counts as success while the lock is held.
pub(super) fn kept(done: Done<'_, '_>) -> Option<Result<(), ExtendError>> {
    let is_valid = matches!(&done.request, CallRequest::Extend { held, .. } if held.is_valid());
    Some(match extended(done)? {
        // Busy: the engine keeps the lease alive, and an extension is under way.
        Err(ExtendError::NoQuorum(_) | ExtendError::Busy) if is_valid => Ok(()),
        result => result,
    })
}

pub(super) fn detached(done: Done<'_, '_>) -> Option<Result<LockToken, DetachError>> {
    let (CallRequest::Detach { held }, CallResult::Detach(result)) = (done.request, done.reply)
    else {
        return Some(Err(DetachError::Closed));
    };
    held.is_busy = false;
    Some(result.and_then(|()| held.give_away().ok_or(DetachError::Closed)))
}

pub(super) fn unlocked(done: Done<'_, '_>) -> Option<Result<Unlocked, UnlockError>> {
    let CallResult::Unlock(result) = done.reply else { return Some(Err(UnlockError::Closed)) };
    Some(result)
}

/// A lease that a call has taken over.
pub(super) fn adopted(done: Done<'_, '_>) -> Option<Result<Held, ExtendError>> {
    let (CallRequest::Adopt { options, .. }, CallResult::Adopt(result)) =
        (done.request, done.reply)
    else {
        return Some(Err(ExtendError::Closed));
    };
    Some(result.and_then(|lease| {
        let queue = done.queue.ok_or(ExtendError::Closed)?;
        if lease.is_valid() {
            return Ok(Held::new(lease, Arc::clone(done.owner), queue, options.ttl));
        }
        let late = CallResult::Adopt(Ok(lease));
        let _left = done.owner.inner.with(|table| table.take_back(Some(queue), late, now));
        Err(ExtendError::Expired)
    }))
}

pub(super) fn answered(done: Done<'_, '_>) -> Option<Result<Vec<NodeAnswers>, LockError>> {
    Some(if let CallResult::Answers(result) = done.reply { result } else { Err(LockError::Closed) })
}

pub(super) fn led(done: Done<'_, '_>) -> Option<Result<Led, LockError>> {
    let owner = done.owner;
    Some(answered(done)?.map(|answers| {
        Led::read(&answers, 0, |nodes| {
            owner.inner.lists().electorate.among_others().has_quorum(nodes)
        })
    }))
}

/// The next change. Until there is one, the observer asks the nodes again.
pub(super) fn observed(done: Done<'_, '_>) -> Option<Result<Led, LockError>> {
    let Done { request, owner, reply, queue } = done;
    let seen = match led(Done { request: &mut *request, owner, reply, queue })? {
        Ok(seen) => seen,
        Err(error) => return Some(Err(error)),
    };
    let CallRequest::Observe(sighting) = request else { return Some(Err(LockError::Closed)) };
    sighting.begin(now());
    sighting.take(seen).map(Ok)
}

pub(super) fn ready(done: Done<'_, '_>) -> Option<Result<(), ConnectError>> {
    let CallResult::Connect(result) = done.reply else {
        return Some(Err(super::refused::Refused::Closed.into()));
    };
    Some(result)
}

pub(super) fn nodes(done: Done<'_, '_>) -> Option<Vec<NodeHealth>> {
    Some(if let CallResult::Nodes(nodes) = done.reply { nodes } else { Vec::new() })
}

pub(super) fn notices(done: Done<'_, '_>) -> Option<Vec<Notice>> {
    Some(if let CallResult::Notices(notices) = done.reply { notices } else { Vec::new() })
}

pub(super) fn identity(done: Done<'_, '_>) -> Option<Option<(ClientId, Agreement)>> {
    let CallResult::Identity(id, agreement) = done.reply else { return Some(None) };
    Some(Some((id, agreement)))
}

pub(super) fn lost(_done: Done<'_, '_>) -> Option<()> {
    Some(())
}

pub(super) fn owed(done: Done<'_, '_>) -> Option<usize> {
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

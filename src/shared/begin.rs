//! How calls begin and what their results become: what the blocking calls and the futures share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::calls::{CallIndex, Kind, Listener, Reply, Stage};
use super::counting::CountedCall;
use super::inner::Caller;
use super::pending::{Pending, Taken};
use super::refused::Refused;
use super::rules::Patience;
use super::span::CallSpan;
use super::sync::thread;
use super::table::{Table, Task};
use super::{Shared, SharedGuard};
use crate::config::Config;
use crate::driver::Connecting;
use crate::driver::clock::now;
use crate::engine::NodeHealth;
use crate::error::{ConnectError, DetachError, ExtendError, LockError, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::query::{NodeAnswers, Query};
use crate::time::Instant;
use crate::token::LockToken;

/// What an acquisition asked for, kept for its end.
pub(super) struct Asked {
    ttl: Duration,
    min_validity: Duration,
    counted: CountedCall,
    /// Ends with the call.
    _span: CallSpan,
}

impl Shared {
    pub(super) fn begin_connect(config: Config) -> Result<(Self, Pending), ConnectError> {
        let task = Task::Connect(Connecting::new(&config, now()));
        let shared = Self::open(config)?;
        let pending = shared.begin(Kind::Connect, task)?;
        Ok((shared, pending))
    }

    pub(super) fn begin_wait_ready(&self, limit: Duration) -> Result<Pending, Refused> {
        let task = Task::Connect(Connecting::until_ready(now() + limit));
        self.begin(Kind::Connect, task)
    }

    pub(super) fn patient(&self, options: LockOptions) -> LockOptions {
        if options.retry.is_some() {
            return options;
        }
        options.patient(self.owner.inner.with(|table| table.rules.retry))
    }

    /// Listens from the beginning, so that a caller that blocks need not come back for that.
    fn pending(&self, call: CallIndex, table: &mut Table) -> Pending {
        let is_queued = table.calls.at(call).stage == Stage::Queued;
        // A call that has just begun has no other.
        let _none = table.calls.listen(call, Listener::Thread(thread::current()));
        Pending::new(Arc::clone(&self.owner), call, table.calls.done(call), is_queued)
    }

    pub(super) fn begin_lock(
        &self,
        key: &[u8],
        options: LockOptions,
        caller: Caller,
    ) -> Result<(Pending, Asked), LockError> {
        let (ttl, min_validity) = (options.ttl, options.min_validity);
        let time = now();
        let patience = Patience::of(&options, time);
        let waits = patience.queued_until > time;
        let (inner, span) = (&self.owner.inner, CallSpan::of_lock(key, ttl));
        // What is left of it is dropped outside of the mutex.
        let mut carried = span.clone();
        let begun = self
            .begin_by(caller, |table| table.begin_lock(key, options, patience, &mut carried, time));
        match begun {
            Ok(pending) => {
                let counted = inner.counting.call(time, waits);
                Ok((pending, Asked { ttl, min_validity, counted, _span: span }))
            }
            Err(error) => {
                inner.counting.refused(&error, waits);
                Err(error)
            }
        }
    }

    /// Makes a guard of a lease that was won; its remaining time is checked again here.
    pub(super) fn won(&self, taken: Taken, asked: Asked) -> Result<SharedGuard, LockError> {
        let result = self.judge(taken, &asked);
        asked.counted.ends(result.as_ref().err());
        result
    }

    fn judge(&self, taken: Taken, asked: &Asked) -> Result<SharedGuard, LockError> {
        let (Reply::Lock(result), Some(queue)) = taken else { return Err(LockError::Closed) };
        let lease = result?;
        let owner = Arc::clone(&self.owner);
        let guard = SharedGuard::new(lease, owner, queue, asked.ttl);
        let remaining = guard.remaining();
        if remaining.is_zero() || remaining < asked.min_validity {
            let votes = guard.votes();
            let ballot = self.owner.inner.with(|table| table.rules.late_ballot(votes));
            return Err(LockError::Expired(ballot));
        }
        Ok(guard)
    }

    /// Begins a call, which its caller goes on to wait for.
    fn begin_by<E>(
        &self,
        caller: Caller,
        begin: impl FnOnce(&mut Table) -> Result<CallIndex, E>,
    ) -> Result<Pending, E> {
        let (begun, leads) = self.owner.inner.with_lead(|table| match begin(table) {
            Ok(call) => {
                // Another caller may end a call that is queued.
                let is_under_way = table.calls.at(call).stage == Stage::UnderWay;
                let caller = if is_under_way { caller } else { Caller::GoesOn };
                (Ok(self.pending(call, table)), caller)
            }
            Err(error) => (Err(error), Caller::GoesOn),
        });
        begun.map(|mut pending| {
            pending.leads = leads;
            pending
        })
    }

    pub(super) fn begin(&self, kind: Kind, task: Task) -> Result<Pending, Refused> {
        let mut span = CallSpan::current();
        self.begin_by(Caller::GoesOn, |table| table.begin(kind, task, &mut span))
    }

    pub(super) fn begin_extend(
        &self,
        guard: &mut SharedGuard,
        ttl: Duration,
        caller: Caller,
    ) -> Result<Pending, ExtendError> {
        let lease = guard.id().filter(|_| guard.is_of(&self.owner)).ok_or(ExtendError::NotOurs)?;
        let queue = guard.queue();
        let task = Task::Extend { queue, lease, ttl };
        let mut span = CallSpan::current();
        let pending = self
            .begin_by(caller, |table| table.begin(Kind::Extend, task, &mut span))
            .map_err(ExtendError::from)?;
        guard.set_busy(true);
        Ok(pending)
    }

    pub(super) fn begin_detach(
        &self,
        guard: &mut SharedGuard,
        caller: Caller,
    ) -> Result<Pending, DetachError> {
        let lease = guard.id().filter(|_| guard.is_of(&self.owner)).ok_or(DetachError::NotOurs)?;
        let mut span = CallSpan::current();
        let pending = self
            .begin_by(caller, |table| table.begin(Kind::Detach, Task::Detach { lease }, &mut span))
            .map_err(DetachError::from)?;
        guard.set_busy(true);
        Ok(pending)
    }

    /// `None`: the lease went to the next waiter.
    pub(super) fn begin_unlock(
        &self,
        mut guard: SharedGuard,
        caller: Caller,
    ) -> Result<Option<Pending>, UnlockError> {
        if !guard.is_of(&self.owner) {
            return Err(UnlockError::NotOurs);
        }
        let (queue, may_pass) = (guard.queue(), guard.may_pass());
        let Some(lease) = guard.take_lease() else { return Err(UnlockError::NotOurs) };
        let mut span = CallSpan::current();
        let mut next = Listener::None;
        let begun = self.begin_by(caller, |table| {
            let lease = match table.pass_on_if(may_pass, queue, lease) {
                Ok(listener) => {
                    next = listener;
                    return Err(None);
                }
                Err(lease) => lease,
            };
            table.begin_unlock(queue, lease, &mut span).map_err(Some)
        });
        next.notify();
        match begun {
            Ok(pending) => Ok(Some(pending)),
            Err(None) => Ok(None),
            Err(Some(refused)) => Err(refused.into()),
        }
    }

    pub(super) fn begin_unlock_token(
        &self,
        key: &[u8],
        token: &[u8],
    ) -> Result<Pending, UnlockError> {
        let (key, token) = (key.to_vec(), token.to_vec());
        let task = Task::UnlockToken { key, token };
        self.begin(Kind::Unlock, task).map_err(UnlockError::from)
    }

    pub(super) fn begin_adopt(
        &self,
        key: &[u8],
        token: &[u8],
        options: LockOptions,
    ) -> Result<Pending, ExtendError> {
        let (key, token) = (key.to_vec(), token.to_vec());
        let task = Task::Adopt { key, token, options };
        self.begin(Kind::Adopt, task).map_err(ExtendError::from)
    }

    pub(super) fn adopted(&self, taken: Taken, ttl: Duration) -> Result<SharedGuard, ExtendError> {
        let (Reply::Adopt(result), Some(queue)) = taken else { return Err(ExtendError::Closed) };
        let lease = result?;
        // Its caller knows the token, so the lease is not handed on to another call.
        let _seen = lease.token();
        let guard = SharedGuard::new(lease, Arc::clone(&self.owner), queue, ttl);
        if guard.is_valid() { Ok(guard) } else { Err(ExtendError::Expired) }
    }

    pub(super) fn begin_ask(&self, query: Query) -> Result<Pending, LockError> {
        self.begin_ask_at(query, Instant::default())
    }

    /// Asks once `at` has come.
    pub(super) fn begin_ask_at(&self, query: Query, at: Instant) -> Result<Pending, LockError> {
        self.begin(Kind::Ask, Task::Ask(query, at)).map_err(LockError::from)
    }

    /// `Err`: the I/O thread has ended before, with this many releases owed.
    pub(super) fn begin_shutdown(&self, limit: Duration) -> Result<Pending, usize> {
        let ends = now() + limit;
        self.owner.inner.with(|table| {
            let call = table.begin_shutdown(ends)?;
            Ok(self.pending(call, table))
        })
    }
}

pub(super) fn extended(guard: &mut SharedGuard, (reply, _): Taken) -> Result<(), ExtendError> {
    guard.set_busy(false);
    if let Reply::Extend(result) = reply { result } else { Err(ExtendError::Closed) }
}

/// The result of a call that gives a lock away.
pub(super) fn detached(
    guard: &mut SharedGuard,
    (reply, _): Taken,
) -> Result<LockToken, DetachError> {
    guard.set_busy(false);
    let Reply::Detach(result) = reply else { return Err(DetachError::Closed) };
    result?;
    guard.give_away().ok_or(DetachError::NotOurs)
}

pub(super) fn unlocked((reply, _): Taken) -> Result<Unlocked, UnlockError> {
    if let Reply::Unlock(result) = reply { result } else { Err(UnlockError::Closed) }
}

pub(super) fn connected((reply, _): Taken) -> Result<(), ConnectError> {
    if let Reply::Connect(result) = reply { result } else { Err(ended()) }
}

/// The I/O thread has ended.
pub(super) fn ended() -> ConnectError {
    io::Error::other("the I/O thread has ended").into()
}

pub(super) fn answers((reply, _): Taken) -> Result<Vec<NodeAnswers>, LockError> {
    if let Reply::Answers(result) = reply { result } else { Err(LockError::Closed) }
}

pub(super) fn nodes((reply, _): Taken) -> Vec<NodeHealth> {
    if let Reply::Nodes(nodes) = reply { nodes } else { Vec::new() }
}

pub(super) fn owed(taken: Taken) -> usize {
    if let (Reply::Shutdown(owed), _) = taken { owed } else { 0 }
}

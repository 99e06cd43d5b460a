//! The calls under way: one place for each, from its beginning until its caller takes the result.
//!
//! # Invariants
//!
//! - The caller gives a place back when it takes the result. If the caller gave up a call that is
//!   under way, the driving thread gives the place back once the operation has ended. So a place
//!   names one call for as long as any thread knows it.
//! - Each thread notifies listeners and drops wakers outside of the table's mutex: both may run an
//!   executor's code.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use super::counting::Moment;
use super::span::CallSpan;
use super::sync::{AtomicBool, Thread};
use crate::agreement::Agreement;
use crate::client_name::ClientId;
use crate::driver::Lease;
use crate::engine::{LeaseId, NodeHealth, Notice};
use crate::error::{ConnectError, DetachError, ExtendError, LockError, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::query::NodeAnswers;
use crate::slab::{Slab, index_type};
use crate::time::Instant;

index_type! {
    /// A call under way.
    pub(crate) CallIndex
}

index_type! {
    /// The queue of a key.
    pub(crate) QueueIndex
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Lock,
    Adopt,
    Extend,
    Detach,
    Unlock,
    Ask,
    Connect,
    /// A look at the driver.
    Look,
    /// A wait for the end of a lock.
    Loss,
    Shutdown,
}

/// Why a call did not begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    Full,
    Closed,
}

/// Converts a refusal to an error type that has both `Full` and `Closed`.
macro_rules! refuses {
    ($($error:ty),*) => {$(
        impl From<Refused> for $error {
            fn from(refused: Refused) -> Self {
                match refused {
                    Refused::Full => Self::Full,
                    Refused::Closed => Self::Closed,
                }
            }
        }
    )*};
}

refuses!(LockError, ExtendError, DetachError, UnlockError);

impl From<Refused> for ConnectError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => io::Error::other(LockError::Full).into(),
            Refused::Closed => io::Error::other("the client is shut down").into(),
        }
    }
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum CallResult {
    Lock(Result<Lease, LockError>),
    Adopt(Result<Lease, ExtendError>),
    Extend(Result<(), ExtendError>),
    Detach(Result<(), DetachError>),
    Unlock(Result<Unlocked, UnlockError>),
    Answers(Result<Vec<NodeAnswers>, LockError>),
    Connect(Result<(), ConnectError>),
    Nodes(Vec<NodeHealth>),
    Notices(Vec<Notice>),
    Identity(ClientId, Agreement),
    Lost,
    /// The number of releases that are still owed.
    Shutdown(usize),
}

/// The result of a request, and the queue of its key.
pub(super) type TakenResult = (CallResult, Option<QueueIndex>);

impl CallResult {
    /// The result of a call of that kind that does not begin.
    pub(super) fn refused(kind: CallKind, why: Refused) -> Self {
        match kind {
            CallKind::Lock => Self::Lock(Err(why.into())),
            CallKind::Adopt => Self::Adopt(Err(why.into())),
            CallKind::Extend => Self::Extend(Err(why.into())),
            CallKind::Detach => Self::Detach(Err(why.into())),
            CallKind::Unlock => Self::Unlock(Err(why.into())),
            CallKind::Ask => Self::Answers(Err(why.into())),
            CallKind::Connect => Self::Connect(Err(why.into())),
            CallKind::Look => Self::Nodes(Vec::new()),
            CallKind::Loss => Self::Lost,
            CallKind::Shutdown => Self::Shutdown(0),
        }
    }

    /// The result of a call of that kind once the I/O thread has ended.
    pub(super) fn closed(kind: CallKind, owed: usize) -> Self {
        if kind == CallKind::Shutdown {
            Self::Shutdown(owed)
        } else {
            Self::refused(kind, Refused::Closed)
        }
    }

    /// The result of a call that the client cancels because it shuts down.
    pub(super) fn closed_if_cancelled(mut self) -> Self {
        if let Self::Lock(Err(error @ LockError::Cancelled)) = &mut self {
            *error = LockError::Closed;
        } else if let Self::Adopt(Err(error @ ExtendError::Cancelled))
        | Self::Extend(Err(error @ ExtendError::Cancelled)) = &mut self
        {
            *error = ExtendError::Closed;
        }
        self
    }
}

/// The thread or task that waits for a result.
#[derive(Debug, Default)]
pub(super) enum Listener {
    #[default]
    None,
    Thread(Thread),
    Task(Waker),
}

impl Listener {
    /// An executor's code may panic: only its own task pays for that.
    pub(super) fn notify(self) {
        let notify = || match self {
            Self::None => {}
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        };
        drop(catch_unwind(AssertUnwindSafe(notify)));
    }
}

pub(super) fn notify_all(listeners: impl IntoIterator<Item = Listener>) {
    listeners.into_iter().for_each(Listener::notify);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Free,
    /// Behind other calls of this client for the same key.
    Queued,
    /// The driving thread has it, or its command waits for that thread.
    UnderWay,
    Done,
}

#[derive(Debug)]
pub(super) struct CallPlace {
    pub(super) kind: CallKind,
    pub(super) stage: Stage,
    /// The caller has given the call up.
    pub(super) is_abandoned: bool,
    /// The caller is to drive, and does not know it yet.
    pub(super) drives: bool,
    /// The queue of its key.
    pub(super) queue: Option<QueueIndex>,
    pub(super) prev: Option<CallIndex>,
    pub(super) next: Option<CallIndex>,
    pub(super) options: LockOptions,
    /// When a call for a lock began.
    pub(super) began: Moment,
    /// The end of the call.
    pub(super) ends: Instant,
    /// Set for an extension, or a wait for the end of the lock.
    pub(super) lease: Option<LeaseId>,
    /// Set while the call is in a queue. After that, the call's command has the span.
    pub(super) span: CallSpan,
    reply: Option<CallResult>,
    listener: Listener,
    /// Set with the reply, so that a caller can look without the table's mutex.
    done: Arc<AtomicBool>,
}

impl CallPlace {
    fn empty() -> Self {
        Self {
            kind: CallKind::Look,
            stage: Stage::Free,
            is_abandoned: false,
            drives: false,
            queue: None,
            prev: None,
            next: None,
            options: LockOptions::new(Duration::ZERO),
            began: Moment::default(),
            ends: Instant::MAX,
            lease: None,
            span: CallSpan::none(),
            reply: None,
            listener: Listener::None,
            done: Arc::new(AtomicBool::new(false)),
        }
    }
}

/// The remains of a call that has left its place. Dropping them may run foreign code.
#[derive(Debug, Default)]
pub(super) struct Remains {
    pub(super) reply: Option<CallResult>,
    _listener: Listener,
    _span: CallSpan,
}

impl Remains {
    pub(super) const fn listener(listener: Listener) -> Self {
        Self { reply: None, _listener: listener, _span: CallSpan::none() }
    }
}

/// All calls of a client.
#[derive(Debug)]
pub(super) struct Calls {
    calls: Slab<CallIndex, CallPlace>,
    limit: usize,
    /// How many tasks listen.
    tasks: usize,
}

impl Calls {
    pub(super) fn new(limit: usize) -> Self {
        Self { calls: Slab::default(), limit, tasks: 0 }
    }

    /// Takes a place for a call; `None` at the limit.
    pub(super) fn open(&mut self, kind: CallKind) -> Option<CallIndex> {
        if self.in_use() < self.limit { self.open_beyond(kind) } else { None }
    }

    /// Takes a place for a call, whatever the limit.
    pub(super) fn open_beyond(&mut self, kind: CallKind) -> Option<CallIndex> {
        let index = self.calls.take(CallPlace::empty)?;
        let call = self.at_mut(index);
        call.kind = kind;
        call.stage = Stage::UnderWay;
        Some(index)
    }

    /// Gives the place back. The caller must drop the remains outside of the mutex.
    pub(super) fn close(&mut self, index: CallIndex) -> Remains {
        let call = self.at_mut(index);
        call.stage = Stage::Free;
        call.is_abandoned = false;
        call.queue = None;
        call.lease = None;
        call.done.store(false, Ordering::Relaxed);
        let reply = call.reply.take();
        let span = call.span.take();
        let listener = self.listen(index, Listener::None);
        let left = Remains { reply, _listener: listener, _span: span };
        self.calls.give_back(index);
        left
    }

    /// Takes the result of a call that is done. The caller must drop the remains outside of the
    /// mutex.
    pub(super) fn take(&mut self, index: CallIndex) -> (TakenResult, Remains) {
        let (queue, kind) = (self.at(index).queue, self.at(index).kind);
        let mut left = self.close(index);
        let reply = left.reply.take().unwrap_or_else(|| CallResult::closed(kind, 0));
        ((reply, queue), left)
    }

    /// Ends the call with its reply. Returns the listener to notify.
    #[must_use]
    pub(super) fn finish(&mut self, index: CallIndex, reply: CallResult) -> Listener {
        let call = self.at_mut(index);
        call.reply = Some(reply);
        call.stage = Stage::Done;
        call.done.store(true, Ordering::Release);
        self.listen(index, Listener::None)
    }

    /// Takes back a lease that a call has won and its caller has not taken: the call ends as
    /// closed.
    pub(super) fn recall(&mut self, index: CallIndex) -> Option<Lease> {
        let call = self.at_mut(index);
        let closed = CallResult::closed(call.kind, 0);
        match call.reply.take() {
            Some(CallResult::Lock(Ok(lease))) => {
                call.reply = Some(closed);
                Some(lease)
            }
            Some(CallResult::Adopt(Ok(lease))) => {
                call.reply = Some(closed);
                lease.leave();
                None
            }
            other => {
                call.reply = other;
                None
            }
        }
    }

    /// Notes the listener, and returns the previous one.
    pub(super) fn listen(&mut self, index: CallIndex, listener: Listener) -> Listener {
        let is_task = |listener: &Listener| usize::from(matches!(listener, Listener::Task(_)));
        self.tasks += is_task(&listener);
        let before = std::mem::replace(&mut self.at_mut(index).listener, listener);
        self.tasks -= is_task(&before);
        before
    }

    /// The thread that waits for a call.
    pub(super) fn thread(&self, index: CallIndex) -> Option<&Thread> {
        if let Listener::Thread(thread) = &self.at(index).listener { Some(thread) } else { None }
    }

    pub(super) const fn tasks(&self) -> usize {
        self.tasks
    }

    #[cfg(feature = "sim")]
    pub(super) fn is_done(&self, index: CallIndex) -> bool {
        self.at(index).stage == Stage::Done
    }

    pub(super) fn done(&self, index: CallIndex) -> Arc<AtomicBool> {
        Arc::clone(&self.at(index).done)
    }

    /// How many calls are under way, or have a result that their callers have not taken.
    pub(super) const fn in_use(&self) -> usize {
        self.calls.in_use()
    }

    /// Every place, in use or free.
    pub(super) fn indices(&self) -> impl Iterator<Item = CallIndex> + use<> {
        self.calls.indices()
    }

    pub(super) fn at(&self, index: CallIndex) -> &CallPlace {
        self.calls.at(index)
    }

    pub(super) fn at_mut(&mut self, index: CallIndex) -> &mut CallPlace {
        self.calls.at_mut(index)
    }
}

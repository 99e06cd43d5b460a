//! [`Table`]: the data that callers' threads and the I/O thread share, behind one mutex. A thread
//! holds it for some hundred nanoseconds at a time: no system call, large allocation or foreign
//! code runs under it.
//!
//! # Invariants
//!
//! - Of the calls for one key that may wait, at most one competes on the network.
//! - The first call of a queue competes as soon as the key has neither holder nor competitor.
//! - The driving thread carries commands out in their order: a SET goes behind the release before
//!   it.
//! - The driving thread sleeps only while there are no commands, and no longer than until something
//!   is due here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::calls::{CallIndex, CallResult, Calls, Listener, QueueIndex};
use super::counting::Counting;
use super::policy::{Lists, Policy};
use super::queues::Queues;
use super::span::CallSpan;
use crate::config::Config;
use crate::driver::{Connecting, Driver, Lease};
use crate::engine::{Engine, LeaseId};
use crate::key::{self, Key};
use crate::options::LockOptions;
use crate::query::Query;
use crate::quorum::NodeMask;
use crate::rules;
use crate::time::Instant;

/// A command for the driving thread.
#[cfg_attr(
    feature = "tracing",
    expect(clippy::large_enum_variant, reason = "a box would be an allocation of each call")
)]
#[derive(Debug)]
pub(super) enum Command {
    /// A task for this call, in the span of its caller.
    Call(CallIndex, Task, CallSpan),
    /// A lease to release; no call waits for the result.
    Release(Lease),
    Shutdown {
        ends: Instant,
    },
    /// The last client, guard and call is gone.
    Close,
}

#[derive(Debug)]
pub(super) enum Task {
    Acquire {
        key: Key,
        options: LockOptions,
        ends: Instant,
    },
    Extend {
        queue: QueueIndex,
        lease: LeaseId,
        ttl: Duration,
    },
    Detach {
        queue: QueueIndex,
        lease: LeaseId,
    },
    Unlock {
        lease: Lease,
    },
    UnlockToken {
        key: Vec<u8>,
        token: Vec<u8>,
    },
    Adopt {
        /// The key, or the name of several.
        key: Key,
        locks: KeysAndTokens,
        options: LockOptions,
    },
    Ask(Query, Instant),
    /// Waits for nodes to connect.
    Connect(Connecting),
    Look(fn(&mut Driver) -> CallResult),
    SetNodes(Box<Config>),
    /// The caller has given the call up.
    Cancel,
}

/// Locks that a caller adopts.
pub(super) type KeysAndTokens = Vec<(Vec<u8>, Vec<u8>)>;

/// Where a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The I/O thread sleeps here, apart from the sockets: a caller may drive in its place.
    Gate,
    /// The driving thread sleeps here, at the sockets.
    Sockets,
}

/// Whether the I/O thread sleeps at its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IoThread {
    /// It is awake, or a thread is waking it: it looks at the table before it sleeps there again.
    Up,
    /// It sleeps until `until`, or until a socket is ready.
    Hears { until: Instant },
    /// It sleeps until `until`, and hears no socket.
    IsDeaf { until: Instant },
}

#[derive(Debug)]
pub(super) struct Sleeping {
    /// A driving caller spins. So callers that block drive one after another, also while other
    /// callers wait.
    pub(super) promotes: bool,
    /// A caller drives, or waits for the I/O thread to make room.
    pub(super) caller_drives: bool,
    /// A task has begun to wait: before the driving caller hands any result out, it makes room for
    /// the I/O thread.
    pub(super) must_leave: bool,
    /// The thread to wake for new work, and when it wakes by itself; `None` while a thread drives.
    pub(super) asleep: Option<(Place, Instant)>,
    pub(super) io_thread: IoThread,
    /// A lock has begun to linger: the I/O thread must hear of other clients at once.
    pub(super) must_listen: bool,
    /// How often callers have driven, and that count at the I/O thread's last look.
    pub(super) drives: u64,
    pub(super) drives_seen: u64,
}

impl Sleeping {
    pub(super) const fn new(promotes: bool) -> Self {
        Self {
            promotes,
            caller_drives: false,
            must_leave: false,
            asleep: None,
            io_thread: IoThread::Up,
            must_listen: false,
            drives: 0,
            drives_seen: 0,
        }
    }

    /// Notes that a thread drives, so that no thread is asleep.
    pub(super) const fn note_awake(&mut self) {
        self.asleep = None;
    }

    /// A task begins to wait: the driving caller must make room.
    pub(super) fn listens(&mut self, listener: &Listener) {
        self.must_leave |=
            self.caller_drives && rules::must_leave(matches!(listener, Listener::Task(_)));
    }
}

pub(super) struct Table {
    pub(super) calls: Calls,
    pub(super) queues: Queues,
    pub(super) commands: Vec<Command>,
    pub(super) sleeping: Sleeping,
    /// Nothing here is due before this.
    pub(super) next_due: Instant,
    /// When locks have lingered for long enough, the next first; a call may have taken some of them
    /// again by then.
    pub(super) lingering: BinaryHeap<Reverse<(Instant, QueueIndex)>>,
    /// No call may begin any more.
    pub(super) is_closed: bool,
    /// The I/O thread has ended, with this many releases owed.
    pub(super) ended: Option<usize>,
    pub(super) policy: Arc<Policy>,
    pub(super) lists: Lists,
    pub(super) counting: Counting,
    /// The nodes that may vote, as the driving thread last saw them.
    pub(super) voters: NodeMask,
}

impl Table {
    /// `promotes`: see [`Sleeping`].
    pub(super) fn new(policy: Policy, calls_max: usize, promotes: bool) -> Self {
        Self::of(Arc::new(policy), calls_max, promotes)
    }

    /// The table of the same client in the child of a fork: there every call has ended.
    pub(super) fn of_child(&self) -> Self {
        let (policy, counting) = (Arc::clone(&self.policy), self.counting.clone());
        Self { is_closed: true, ended: Some(0), counting, ..Self::of(policy, 0, false) }
    }

    fn of(policy: Arc<Policy>, calls_max: usize, promotes: bool) -> Self {
        Self {
            calls: Calls::new(calls_max),
            queues: Queues::default(),
            commands: Vec::new(),
            sleeping: Sleeping::new(promotes),
            next_due: Instant::MAX,
            lingering: BinaryHeap::new(),
            is_closed: false,
            ended: None,
            lists: policy.lists.clone(),
            policy,
            counting: Counting::default(),
            voters: NodeMask::EMPTY,
        }
    }

    // ---- callers ----

    /// Releases a lease of a queue. If the client has ended, its TTL ends the key instead.
    pub(super) fn release(&mut self, queue: QueueIndex, lease: Lease) {
        if self.ended.is_some() {
            return;
        }
        let id = lease.id();
        self.commands.push(Command::Release(lease));
        self.vacate(queue, id);
    }

    /// No caller of this client holds the lease any more.
    pub(super) fn vacate(&mut self, queue: QueueIndex, lease: LeaseId) {
        if self.queues.is_held_by(queue, lease) {
            self.queues.at_mut(queue).holder = None;
            self.advance(queue);
            self.queues.free_if_unused(queue);
        }
    }

    // ---- the driving thread ----

    /// Notes the present deadline of a lease.
    pub(super) fn look_at(&mut self, queue: QueueIndex, lease: LeaseId, engine: &Engine) {
        if !self.queues.is_held_by(queue, lease) {
            return;
        }
        if let Some(holder) = &mut self.queues.at_mut(queue).holder {
            holder.valid_until = engine.deadline(lease).unwrap_or_default();
            self.next_due = self.next_due.min(holder.valid_until);
        }
    }

    // ---- inside ----

    /// The first call of the queue competes, if the key has neither holder nor competitor.
    pub(super) fn advance(&mut self, index: QueueIndex) {
        let queue = self.queues.at(index);
        // `close` ends the waiting calls.
        if self.is_closed || queue.holder.is_some() || queue.competitor.is_some() {
            return;
        }
        self.queues.pull(index, &mut self.calls);
        let queue = self.queues.at_mut(index);
        let Some(next) = queue.first else { return };
        queue.competitor = Some(next);
        self.queues.unlink(index, next, &mut self.calls);
        self.counting.queues(false);
        self.compete(index, next);
    }

    /// The call no longer waits behind others.
    pub(super) fn leave_queue(&mut self, call: CallIndex) {
        if let Some(queue) = self.calls.at(call).queue {
            self.queues.unlink(queue, call, &mut self.calls);
            self.counting.queues(false);
            self.queues.leave(queue);
        }
    }

    /// A call for several keys asks the nodes. A key that lingers here would deny it.
    fn end_linger_of_keys(&mut self, name: &[u8]) {
        // Each lock that lingers has an entry there.
        if self.lingering.is_empty() {
            return;
        }
        for key in key::split(name).unwrap_or_default() {
            if let Some(queue) = self.queues.of(key) {
                self.end_linger(queue);
            }
        }
    }

    /// Releases the lease that lingers in a queue.
    pub(super) fn end_linger(&mut self, queue: QueueIndex) {
        if let Some(lease) = self.queues.at_mut(queue).lingering.take() {
            self.release(queue, lease);
        }
    }

    pub(super) fn compete(&mut self, queue: QueueIndex, call: CallIndex) {
        let place = self.calls.at_mut(call);
        let (options, ends, span) = (place.options.clone(), place.ends, place.span.take());
        let options = options.without_linger();
        let key = Key::from_slice(options.share.name(&self.queues.at(queue).key));
        self.end_linger_of_keys(&key);
        self.commands.push(Command::Call(call, Task::Acquire { key, options, ends }, span));
    }

    /// When something is due in the table.
    pub(super) fn due_at(&self) -> Instant {
        let lingering = self.lingering.peek().map_or(Instant::MAX, |Reverse((until, _))| *until);
        self.next_due.min(lingering)
    }
}

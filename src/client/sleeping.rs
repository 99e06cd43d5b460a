//! Which thread drives, and where the others sleep. The I/O thread drives, or a caller that blocks
//! takes its place for as long as its call lasts: the leader.
//!
//! # Invariants
//!
//! - At most one thread drives. While no thread drives, one thread sleeps, and others wake it for
//!   new work. The sleeper wakes by itself when something is due.
//! - At most one caller leads, or waits for the I/O thread to make room. A second such caller would
//!   wait until the leader's call ends.
//! - Only the driving thread completes the leader's call. A leader that sleeps at the sockets wakes
//!   for commands alone, and would miss a result.
//! - The leader wakes no task. An executor may queue a woken task behind the task that runs on the
//!   leader's thread, and the leader blocks that thread.

use std::time::Duration;

use super::calls::{Listener, Taken};
use super::indices::CallIndex;
use super::sync::Thread;
use crate::rules;
use crate::time::Instant;

/// The I/O thread leaves the sockets to the callers until none has led for this long. Until then
/// the next leader reads the late answers of the nodes beyond the quorum. Each look wakes the I/O
/// thread, so it looks far less often than callers call. It looks sooner than the default
/// `node_timeout`: otherwise each lead would wake it for late answers, which are due then.
pub(super) const LOOKS_AFTER: Duration = Duration::from_millis(40);

/// Where a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The I/O thread sleeps here, beside the sockets: a caller may drive in its place.
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
    /// A leader spins. So callers that block lead one after another, also while other callers wait.
    pub(super) promotes: bool,
    /// A caller leads, or waits for the I/O thread to make room.
    pub(super) is_led: bool,
    /// A task has begun to wait: before the leader hands any result out, it makes room for the I/O
    /// thread.
    pub(super) must_leave: bool,
    /// The thread to wake for new work, and when it wakes by itself; `None` while a thread drives.
    pub(super) asleep: Option<(Place, Instant)>,
    pub(super) io_thread: IoThread,
    /// A lock has begun to linger: the I/O thread must hear of other clients at once.
    pub(super) must_listen: bool,
    /// How often callers have led, and that count at the I/O thread's last look.
    pub(super) leads: u64,
    pub(super) leads_seen: u64,
}

impl Sleeping {
    pub(super) const fn new(promotes: bool) -> Self {
        Self {
            promotes,
            is_led: false,
            must_leave: false,
            asleep: None,
            io_thread: IoThread::Up,
            must_listen: false,
            leads: 0,
            leads_seen: 0,
        }
    }

    /// A thread drives.
    pub(super) const fn wake(&mut self) {
        self.asleep = None;
    }

    /// A caller waits for a result of the driving thread.
    pub(super) fn listens(&mut self, listener: &Listener) {
        self.must_leave |= self.is_led && rules::must_leave(matches!(listener, Listener::Task(_)));
    }
}

/// The purpose of a lead, and its fruit.
#[derive(Debug)]
pub(super) struct Lead {
    /// The leader's call; `None` if no call under way is its own.
    pub(super) call: Option<CallIndex>,
    /// How many calls in the table are the leader's own. It leads again for those that are left.
    pub(super) own: usize,
    pub(super) ends: Instant,
    /// The leader has written the commands.
    pub(super) has_written: bool,
    /// The result of the leader's call.
    pub(super) taken: Option<Taken>,
}

impl Lead {
    /// A lead until the call is done, at most until `ends`.
    pub(super) const fn until(call: CallIndex, own: usize, ends: Instant) -> Self {
        Self { call: Some(call), own, ends, has_written: false, taken: None }
    }

    /// A lead until the leader has written all commands.
    pub(super) const fn once() -> Self {
        Self { call: None, own: 0, ends: Instant::MAX, has_written: false, taken: None }
    }

    /// Whether the leader waits for an answer of the nodes.
    pub(super) const fn waits(&self) -> bool {
        self.call.is_some()
    }
}

/// The duties of a thread at the end of its lead.
#[derive(Debug, Default)]
pub(super) struct LeadEnd {
    /// The leader must wake the I/O thread at its gate.
    pub(super) wakes_gate: bool,
    /// The caller that leads next.
    pub(super) next: Option<Thread>,
}

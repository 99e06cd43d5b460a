//! Which thread drives, and where the others sleep. The I/O thread drives, or a caller that blocks
//! takes its place for as long as its call lasts: the leader.
//!
//! # Invariants
//!
//! - At most one thread drives. While none does, one sleeps that is woken for what comes, and is up by
//!   the time at which something is due.
//! - At most one caller leads, or waits for the I/O thread to make room: no other call may wait for
//!   the end of the leader's.
//! - Only the driving thread completes the leader's call: a thread that sleeps at the sockets is
//!   woken by commands only.
//! - The leader wakes no task. An executor may put a task that is woken behind the one that runs on
//!   the same thread, and that one blocks.

use std::time::Duration;

use super::calls::{Listener, Taken};
use super::indices::CallIndex;
use super::sync::Thread;
use crate::rules;
use crate::time::Instant;

/// The I/O thread leaves the sockets to the callers until none has led for this long: the next leader
/// reads what the nodes beyond the quorum answer to the last.
pub(super) const LOOKS_AFTER: Duration = Duration::from_millis(1);

/// Where a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The I/O thread, beside the sockets: a caller may drive in its place.
    Gate,
    /// The driving thread, at the sockets.
    Sockets,
}

#[derive(Debug)]
pub(super) struct Sleeping {
    /// Callers that block lead one after another, also beside others: the leader spins.
    pub(super) promotes: bool,
    /// A caller leads, or waits for the I/O thread to make room.
    pub(super) is_led: bool,
    /// A task waits since: before anything is handed out the leader makes room for the I/O thread.
    pub(super) must_leave: bool,
    /// Which thread to wake for what comes, and when it wakes by itself; `None` while a thread drives.
    pub(super) asleep: Option<(Place, Instant)>,
    /// When the I/O thread wakes at its gate.
    pub(super) gate_until: Instant,
    /// The I/O thread is up, or will be within [`LOOKS_AFTER`].
    pub(super) looks_soon: bool,
    /// How often a caller led, and how often when the I/O thread last looked.
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
            gate_until: Instant::MAX,
            looks_soon: true,
            leads: 0,
            leads_seen: 0,
        }
    }

    /// A thread drives.
    pub(super) const fn wake(&mut self) {
        self.asleep = None;
    }

    /// A caller waits for what the driving thread hands out.
    pub(super) fn listens(&mut self, listener: &Listener) {
        self.must_leave |= self.is_led && rules::must_leave(matches!(listener, Listener::Task(_)));
    }
}

/// What a leader drives for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    /// Its call; none of what is under way is its own without.
    pub(super) call: Option<CallIndex>,
    pub(super) ends: Instant,
    /// It has written what there was to do.
    pub(super) has_written: bool,
}

impl Lead {
    /// Until the call is done, at most until `ends`.
    pub(super) const fn until(call: CallIndex, ends: Instant) -> Self {
        Self { call: Some(call), ends, has_written: false }
    }

    /// Until all is written that there is to do.
    pub(super) const fn once() -> Self {
        Self { call: None, ends: Instant::MAX, has_written: false }
    }

    /// Whether it waits for an answer of the nodes.
    pub(super) const fn waits(&self) -> bool {
        self.call.is_some()
    }
}

/// When the driver is to be driven next, at the end of a lead.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// The I/O thread has to drive.
    Now,
    At(Instant),
    /// When the I/O thread looks, which it does soon.
    Soon,
}

/// What follows from the end of a lead.
#[derive(Debug, Default)]
pub(super) struct LeadEnd {
    /// The result of the leader's call.
    pub(super) taken: Option<Taken>,
    /// The I/O thread is to be woken at its gate.
    pub(super) wakes_gate: bool,
    /// The caller that leads next.
    pub(super) next: Option<Thread>,
}

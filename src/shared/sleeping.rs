//! Who works at the driver, and who sleeps where: the I/O thread, or a caller that blocks and works
//! in its place for as long as its call lasts, the leader.
//!
//! # Invariants
//!
//! - At most one works. While nobody does, somebody sleeps who is woken for what comes, and is up by
//!   the time at which something is due.
//! - At most one leads, or waits for the I/O thread to sleep so that it can: nobody else's call may
//!   wait for the end of the leader's.
//! - The leader's own call is ended by who works, and by nobody else: who sleeps at the sockets is
//!   woken by commands only.
//! - The leader wakes no task. An executor may put a task that is woken behind the one that runs on
//!   the same thread, and that one blocks.

use super::calls::Listener;
use super::table::Table;
use crate::rules;
use crate::time::Instant;

/// Where a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The I/O thread, beside the sockets: a caller may work in its place.
    Gate,
    /// Whoever works, at the sockets.
    Sockets,
}

#[derive(Debug)]
pub(super) struct Sleeping {
    /// A caller may lead: the I/O thread does not spin.
    may_be_led: bool,
    /// A caller leads, or waits for the I/O thread to make room.
    is_led: bool,
    /// A task waits since: before anything is handed out the leader makes room for the I/O thread.
    must_leave: bool,
    /// Where who is woken next sleeps, and until when; `None` while somebody works.
    asleep: Option<(Place, Instant)>,
    /// Until when the I/O thread sleeps at its gate, if it does.
    gate_until: Instant,
}

impl Sleeping {
    pub(super) const fn new(may_be_led: bool) -> Self {
        Self {
            may_be_led,
            is_led: false,
            must_leave: false,
            asleep: None,
            gate_until: Instant::MAX,
        }
    }

    /// Somebody works.
    pub(super) const fn wake(&mut self) {
        self.asleep = None;
    }

    /// Somebody waits for what who works hands out.
    pub(super) fn listens(&mut self, listener: &Listener) {
        self.must_leave |= self.is_led && rules::must_leave(matches!(listener, Listener::Task(_)));
    }
}

impl Table {
    /// The I/O thread goes to sleep: at its gate where a caller leads, or the next one would.
    pub(super) fn io_thread_falls_asleep(&mut self, due: Instant) -> (Place, Instant) {
        let makes_room = self.sleeping.is_led || self.calls.in_use() == 0;
        let place =
            if self.sleeping.may_be_led && makes_room { Place::Gate } else { Place::Sockets };
        (place, self.fall_asleep(place, due))
    }

    /// Who works goes to sleep. Returns until when; the present if there is something to do.
    pub(super) fn fall_asleep(&mut self, place: Place, due: Instant) -> Instant {
        // Where a caller waits to lead, it is that one's.
        let is_led = place == Place::Gate && self.sleeping.is_led;
        if !self.commands.is_empty() && !is_led {
            return Instant::default();
        }
        let until = due.min(self.due_at());
        self.sleeping.asleep = (!is_led).then_some((place, until));
        if place == Place::Gate {
            self.sleeping.gate_until = until;
        }
        until
    }

    /// Where somebody must be woken for what is here; only once.
    pub(super) fn must_wake(&mut self) -> Option<Place> {
        let (place, until) = self.sleeping.asleep?;
        let is_due = !self.commands.is_empty() || self.due_at() < until;
        if !is_due {
            return None;
        }
        self.sleeping.asleep = None;
        Some(place)
    }

    /// The caller of the call that has just begun blocks. Returns whether it leads, as soon as the I/O
    /// thread makes room. Not beside others who wait, to whom it would hand results out, thread by
    /// thread, no sooner than the I/O thread does.
    pub(super) const fn begin_lead(&mut self) -> bool {
        let is_alone = self.calls.in_use() == 1 && self.losses.len() == 0;
        let leads = self.sleeping.may_be_led && is_alone && !self.sleeping.is_led;
        self.sleeping.is_led |= leads;
        leads
    }

    /// Whether the leader hands nothing out: a task may wait for it.
    pub(super) const fn leader_leaves(&mut self) -> bool {
        if self.sleeping.must_leave {
            self.sleeping.wake();
        }
        self.sleeping.must_leave
    }

    /// The leader's call is over, or it leaves. `due` is when the driver is to be driven next; `None`
    /// where the I/O thread has to look. Returns whether it must be woken.
    pub(super) fn end_lead(&mut self, due: Option<Instant>) -> bool {
        (self.sleeping.is_led, self.sleeping.must_leave) = (false, false);
        let due = due.map(|due| due.min(self.due_at()));
        // At its end the I/O thread may work on by now, and sleep at the sockets.
        if self.sleeping.asleep.is_none() {
            self.sleeping.asleep = due.map(|due| (Place::Gate, due));
        }
        due.is_none_or(|due| due < self.sleeping.gate_until)
    }
}

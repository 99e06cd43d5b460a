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

use super::calls::{CallIndex, Kind, Listener, Stage};
use super::sync::Thread;
use super::table::{Command, Table, Taken};
use crate::rules;
use crate::time::Instant;

/// The I/O thread leaves the sockets to the callers until none has led for this long: the next leader
/// reads what the nodes beyond the quorum answer to the last.
const LOOKS_AFTER: Duration = Duration::from_millis(1);

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
    promotes: bool,
    /// A caller leads, or waits for the I/O thread to make room.
    is_led: bool,
    /// A task waits since: before anything is handed out the leader makes room for the I/O thread.
    must_leave: bool,
    /// Which thread to wake for what comes, and when it wakes by itself; `None` while a thread drives.
    asleep: Option<(Place, Instant)>,
    /// When the I/O thread wakes at its gate.
    gate_until: Instant,
    /// The I/O thread is up, or will be within [`LOOKS_AFTER`].
    looks_soon: bool,
    /// How often a caller led, and how often when the I/O thread last looked.
    leads: u64,
    leads_seen: u64,
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
    call: Option<CallIndex>,
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

impl Table {
    /// The I/O thread wakes at its gate. Returns until when it leaves the sockets to the callers; `None`
    /// where it drives.
    pub(super) fn leaves_sockets_until(&mut self, now: Instant) -> Option<Instant> {
        let is_quiet = self.calls.in_use() == 0 && self.lingering.is_empty();
        let sleeping = &mut self.sleeping;
        let has_led = std::mem::replace(&mut sleeping.leads_seen, sleeping.leads) != sleeping.leads;
        let looks_at = if has_led { now + LOOKS_AFTER } else { Instant::MAX };
        let until = match sleeping.asleep {
            _ if sleeping.is_led => looks_at,
            Some((Place::Gate, due)) if has_led && is_quiet && now < due => due.min(looks_at),
            _ => return None,
        };
        (sleeping.gate_until, sleeping.looks_soon) = (until, until < Instant::MAX);
        Some(until)
    }

    /// The I/O thread goes to sleep: at its gate where a caller leads, or the next one would.
    pub(super) fn io_thread_falls_asleep(&mut self, due: Instant) -> (Place, Instant) {
        let makes_room = self.sleeping.is_led || self.calls.in_use() == 0;
        let place = if makes_room { Place::Gate } else { Place::Sockets };
        self.sleeping.looks_soon = false;
        (place, self.fall_asleep(place, due))
    }

    /// The driving thread goes to sleep. Returns until when; the present if there is something to do.
    pub(super) fn fall_asleep(&mut self, place: Place, due: Instant) -> Instant {
        // Commands are for the caller that waits to lead.
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

    /// Where a thread must be woken for what is here; only once.
    pub(super) fn must_wake(&mut self) -> Option<Place> {
        let (place, until) = self.sleeping.asleep?;
        let is_due = !self.commands.is_empty() || self.due_at() < until;
        if !is_due {
            return None;
        }
        self.sleeping.asleep = None;
        self.sleeping.looks_soon |= place == Place::Gate;
        Some(place)
    }

    /// A caller blocks: `own` of the calls under way are its own. Returns whether it leads, as soon as
    /// the I/O thread makes room. While tasks wait it does not; nor, unless it would spin, beside
    /// other threads: it would hand results out, thread by thread, no sooner than the I/O thread does.
    pub(super) const fn begin_lead(&mut self, own: usize) -> bool {
        let is_alone = self.calls.in_use() == own;
        let may_lead = is_alone || (self.sleeping.promotes && self.calls.tasks() == 0);
        let leads = may_lead && !self.sleeping.is_led;
        self.note_lead(leads);
        leads
    }

    /// A caller that does not block leaves commands. Returns whether it leads, to write them.
    pub(super) fn begin_writing(&mut self) -> bool {
        let is_idle = matches!(self.sleeping.asleep, Some((Place::Gate, _)));
        is_idle && !self.commands.is_empty() && self.begin_lead(0)
    }

    const fn note_lead(&mut self, leads: bool) {
        if leads {
            self.sleeping.is_led = true;
            self.sleeping.leads += 1;
        }
    }

    /// Whether the leader hands nothing out: a task may wait for it.
    pub(super) const fn leader_leaves(&mut self) -> bool {
        if self.sleeping.must_leave {
            self.sleeping.wake();
        }
        self.sleeping.must_leave
    }

    /// A lead begins. Returns false, and takes nothing, if there is nothing to write, or if the leader's
    /// call is done.
    pub(super) fn take_leads_commands(&mut self, lead: &Lead, commands: &mut Vec<Command>) -> bool {
        let is_done = lead.call.is_some_and(|call| self.calls.at(call).stage == Stage::Done);
        if is_done || self.commands.is_empty() {
            return false;
        }
        self.take_commands(commands);
        true
    }

    /// Ends the lead if what it was for is done.
    pub(super) fn end_lead_if_done(
        &mut self,
        lead: &Lead,
        now: Instant,
        due: impl FnOnce() -> Instant,
    ) -> Option<LeadEnd> {
        let call = lead.call.filter(|call| self.calls.at(*call).stage == Stage::Done);
        let is_done = call.is_some() || !lead.waits() && lead.has_written || lead.ends <= now;
        if !is_done {
            return None;
        }
        // The I/O thread finds out by itself, if it looks soon enough.
        let due = if self.sleeping.looks_soon { Due::Soon } else { Due::At(due()) };
        // No task listens to the leader's call: what it leaves runs no foreign code.
        let taken = call.map(|call| self.take(call).0);
        Some(LeadEnd { taken, ..self.end_lead(due) })
    }

    /// The leader's call is over, or it leaves.
    pub(super) fn end_lead(&mut self, due: Due) -> LeadEnd {
        (self.sleeping.is_led, self.sleeping.must_leave) = (false, false);
        if !matches!(due, Due::Now)
            && let Some(next) = self.promote()
        {
            return LeadEnd { next: Some(next), ..LeadEnd::default() };
        }
        let here = self.due_at();
        let sleeping = &mut self.sleeping;
        let (due, is_late) = match due {
            Due::Now => (None, true),
            Due::At(at) => (Some(at.min(here)), at.min(here) < sleeping.gate_until),
            Due::Soon => (Some(here), true),
        };
        // At its end the I/O thread may drive on by now, and sleep at the sockets.
        if sleeping.asleep.is_none() {
            sleeping.asleep = due.map(|due| (Place::Gate, due));
        }
        let wakes_gate = due.is_none() || is_late && !sleeping.looks_soon;
        sleeping.looks_soon |= wakes_gate;
        LeadEnd { wakes_gate, ..LeadEnd::default() }
    }

    /// A caller that blocks leads next.
    fn promote(&mut self) -> Option<Thread> {
        if !self.sleeping.promotes || self.calls.tasks() > 0 {
            return None;
        }
        let is_under_way = |call: &_| {
            let call = self.calls.at(*call);
            call.stage == Stage::UnderWay && call.kind != Kind::Loss
        };
        let next = self
            .calls
            .indices()
            .filter(is_under_way)
            .find_map(|call| self.calls.thread(call).map(|thread| (call, thread.clone())));
        let (call, thread) = next?;
        self.calls.at_mut(call).leads = true;
        self.note_lead(true);
        Some(thread)
    }
}

//! Callers that lead: when a caller may lead, and which thread goes on at the end of its lead.

use super::calls::{CallKind, Stage};
use super::sleeping::{IoThread, LOOKS_AFTER, Lead, LeadEnd, Place};
use super::sync::Thread;
use super::table::{Command, Table};
use crate::time::Instant;

impl Table {
    /// The I/O thread wakes at its gate. Returns until when it leaves the sockets to the callers;
    /// `None` if it drives.
    pub(super) fn leaves_sockets_until(&mut self, now: Instant) -> Option<Instant> {
        let is_quiet = self.calls.in_use() == 0 && self.lingering.is_empty();
        let sleeping = &mut self.sleeping;
        let has_led = std::mem::replace(&mut sleeping.leads_seen, sleeping.leads) != sleeping.leads;
        let looks_at = if has_led { now + LOOKS_AFTER } else { Instant::MAX };
        let until = match sleeping.asleep {
            _ if sleeping.is_led => looks_at,
            Some((Place::Gate, due)) if has_led && is_quiet && now < due => due.min(looks_at),
            _ => {
                sleeping.io_thread = IoThread::Up;
                return None;
            }
        };
        sleeping.io_thread = IoThread::IsDeaf { until };
        Some(until)
    }

    /// The I/O thread goes to sleep: at its gate if a caller leads, or if the next blocked caller
    /// would.
    pub(super) fn io_thread_falls_asleep(&mut self, due: Instant) -> (Place, Instant) {
        let makes_room = self.sleeping.is_led || self.calls.in_use() == 0;
        let place = if makes_room { Place::Gate } else { Place::Sockets };
        let until = self.fall_asleep(place, due);
        if place == Place::Gate && until > Instant::default() {
            self.sleeping.io_thread = IoThread::Hears { until };
        }
        (place, until)
    }

    /// The driving thread goes to sleep. Returns until when; a time in the past if there is work.
    pub(super) fn fall_asleep(&mut self, place: Place, due: Instant) -> Instant {
        // Commands are for the caller that waits to lead.
        let is_led = place == Place::Gate && self.sleeping.is_led;
        if !self.commands.is_empty() && !is_led {
            return Instant::default();
        }
        let until = due.min(self.due_at());
        self.sleeping.asleep = (!is_led).then_some((place, until));
        until
    }

    /// The place of the sleeping thread to wake for the work in the table. The next call returns
    /// `None` until a thread sleeps again. A caller that `leads` does the work itself, and leaves
    /// the thread at the gate asleep.
    pub(super) fn must_wake(&mut self, leads: bool) -> Option<Place> {
        let (place, until) = self.sleeping.asleep?;
        let must_listen = std::mem::take(&mut self.sleeping.must_listen);
        let is_deaf =
            place == Place::Gate && matches!(self.sleeping.io_thread, IoThread::IsDeaf { .. });
        let is_due = !self.commands.is_empty() || self.due_at() < until || must_listen && is_deaf;
        if !is_due {
            return None;
        }
        self.sleeping.asleep = None;
        if place == Place::Gate {
            if leads {
                return None;
            }
            self.sleeping.io_thread = IoThread::Up;
        }
        Some(place)
    }

    /// A caller blocks: `own` of the calls under way are its own. Returns whether it is to lead,
    /// from the moment when the I/O thread makes room. It does not lead while tasks wait, not even for a
    /// call of its own that was polled. If other threads have calls under way, it leads only if it
    /// spins: a leader that sleeps would hand them their results no sooner than the I/O thread does.
    pub(super) const fn begin_lead(&mut self, own: usize) -> bool {
        let is_alone = self.calls.in_use() == own;
        let may_lead = (is_alone || self.sleeping.promotes) && self.calls.tasks() == 0;
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

    /// Whether the leader hands no result out, because a task may wait for one.
    pub(super) const fn leader_leaves(&mut self) -> bool {
        if self.sleeping.must_leave {
            self.sleeping.wake();
        }
        self.sleeping.must_leave
    }

    /// A lead begins. Returns false, and takes nothing, if there is no command, or if the leader's
    /// call is done.
    pub(super) fn take_commands_of_lead(
        &mut self,
        lead: &Lead,
        commands: &mut Vec<Command>,
    ) -> bool {
        let is_done = lead.call.is_some_and(|call| self.calls.at(call).stage == Stage::Done);
        if is_done || self.commands.is_empty() {
            return false;
        }
        self.take_commands(commands);
        true
    }

    /// Ends the lead if its purpose is done, and gives it the result of the leader's call.
    pub(super) fn end_lead_if_done(
        &mut self,
        lead: &mut Lead,
        now: Instant,
        due: impl FnOnce() -> Instant,
    ) -> Option<LeadEnd> {
        let call = lead.call.filter(|call| self.calls.at(*call).stage == Stage::Done);
        let is_done = call.is_some() || !lead.waits() && lead.has_written || lead.ends <= now;
        if !is_done {
            return None;
        }
        let mut own = 0;
        if let Some(call) = call {
            // No task listens to the leader's call, so its remains run no foreign code.
            lead.taken = Some(self.take(call).0);
            own = lead.own.saturating_sub(1);
        }
        Some(self.end_lead(Some(due()), own))
    }

    /// The leader's call is over, or the leader leaves. The same caller leads again for the `own`
    /// calls that are left to it. A thread must drive at `due`; `None` if at once.
    pub(super) fn end_lead(&mut self, due: Option<Instant>, own: usize) -> LeadEnd {
        (self.sleeping.is_led, self.sleeping.must_leave) = (false, false);
        if due.is_some()
            && let Some(next) = self.promote()
        {
            return LeadEnd { next: Some(next), ..LeadEnd::default() };
        }
        let due = due.map(|due| due.min(self.due_at()));
        let others_wait = self.calls.in_use() > own;
        let sleeping = &mut self.sleeping;
        // While the client ends, the I/O thread may drive again, and sleep at the sockets.
        if sleeping.asleep.is_none() {
            sleeping.asleep = due.map(|due| (Place::Gate, due));
        }
        let wakes_gate = due.is_none_or(|due| match sleeping.io_thread {
            IoThread::Up => false,
            IoThread::Hears { until } => due < until,
            // A thread that hears no socket has to look, though nothing is due.
            IoThread::IsDeaf { until } => due < until || until == Instant::MAX || others_wait,
        });
        if wakes_gate {
            sleeping.io_thread = IoThread::Up;
        }
        LeadEnd { wakes_gate, ..LeadEnd::default() }
    }

    /// A caller that blocks leads next.
    fn promote(&mut self) -> Option<Thread> {
        if !self.sleeping.promotes || self.calls.tasks() > 0 {
            return None;
        }
        let is_under_way = |call: &_| {
            let call = self.calls.at(*call);
            call.stage == Stage::UnderWay && call.kind != CallKind::Loss
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::rules::Rules;
    use crate::client::span::CallSpan;
    use crate::config::Config;
    use crate::options::LockOptions;

    fn new_table() -> (Table, Instant) {
        let rules = Rules::new(&Config::new(["h:1"]).unwrap()).unwrap();
        (Table::new(rules, 8, false), Instant::from_nanos(1))
    }

    fn begin_lock(table: &mut Table, now: Instant) {
        let options = LockOptions::new(Duration::from_secs(10));
        let patience = options.patience(now);
        table.begin_lock(b"k", &options, patience, &mut CallSpan::none(), now).unwrap();
    }

    #[test]
    fn a_lock_that_lingers_wakes_the_thread_that_leaves_the_sockets_to_callers() {
        let (mut table, now) = new_table();
        let due = now + Duration::from_secs(1);
        assert_eq!(table.io_thread_falls_asleep(due), (Place::Gate, due));
        assert!(table.begin_lead(0));
        let _end = table.end_lead(Some(due), 0);
        assert!(table.leaves_sockets_until(now).is_some());
        assert_eq!(table.must_wake(false), None);
        table.sleeping.must_listen = true;
        assert_eq!(table.must_wake(false), Some(Place::Gate));
        // The thread drives from now on, so that it hears of other clients.
        assert_eq!(table.leaves_sockets_until(now), None);
        table.io_thread_falls_asleep(due);
        table.sleeping.must_listen = true;
        assert_eq!(table.must_wake(false), None);
    }

    #[test]
    fn a_thread_that_left_the_sockets_for_a_long_lead_looks_at_its_end_though_nothing_is_due() {
        let (mut table, now) = new_table();
        table.io_thread_falls_asleep(Instant::MAX);
        assert!(table.begin_lead(0));
        assert_eq!(table.leaves_sockets_until(now), Some(now + LOOKS_AFTER));
        assert_eq!(table.leaves_sockets_until(now + LOOKS_AFTER), Some(Instant::MAX));
        assert!(table.end_lead(Some(Instant::MAX), 0).wakes_gate);
        assert_eq!(table.leaves_sockets_until(now + 2 * LOOKS_AFTER), None);
    }

    #[test]
    fn a_thread_that_left_the_sockets_looks_for_the_caller_that_is_left_when_a_lead_ends() {
        for others in [0, 1] {
            let (mut table, now) = new_table();
            table.io_thread_falls_asleep(Instant::MAX);
            assert!(table.begin_lead(0));
            assert_eq!(table.leaves_sockets_until(now), Some(now + LOOKS_AFTER));
            for _ in 0..others {
                begin_lock(&mut table, now);
                table.take_commands(&mut Vec::new());
            }
            let end = table.end_lead(Some(Instant::MAX), 0);
            assert_eq!(end.wakes_gate, others > 0);
        }
    }

    #[test]
    fn a_thread_that_left_the_sockets_looks_when_the_driver_must_be_driven_sooner() {
        let (mut table, now) = new_table();
        table.io_thread_falls_asleep(Instant::MAX);
        assert!(table.begin_lead(0));
        assert_eq!(table.leaves_sockets_until(now), Some(now + LOOKS_AFTER));
        assert!(!table.end_lead(Some(now + LOOKS_AFTER), 0).wakes_gate);
        assert!(table.begin_lead(0));
        assert!(table.end_lead(Some(now + LOOKS_AFTER / 2), 0).wakes_gate);
    }

    /// A leader that panics may have noted a wake that it never made.
    #[test]
    fn a_leader_that_fails_wakes_the_thread_even_if_the_table_says_that_it_is_up() {
        let (mut table, now) = new_table();
        table.io_thread_falls_asleep(Instant::MAX);
        assert!(table.begin_lead(0));
        assert!(table.end_lead(Some(now), 0).wakes_gate);
        assert!(table.end_lead(None, 0).wakes_gate);
    }

    #[test]
    fn a_thread_that_a_leader_left_asleep_is_woken_for_what_is_due_after_the_lead() {
        let (mut table, now) = new_table();
        assert_eq!(table.io_thread_falls_asleep(Instant::MAX), (Place::Gate, Instant::MAX));
        begin_lock(&mut table, now);
        assert!(table.begin_lead(1));
        assert_eq!(table.must_wake(true), None);
        table.take_commands(&mut Vec::new());
        let mut lead = Lead { own: 1, ends: now, has_written: true, ..Lead::once() };
        let due = || now + Duration::from_secs(1);
        let end = table.end_lead_if_done(&mut lead, now, due).expect("it is over");
        assert!(end.wakes_gate);
    }
}

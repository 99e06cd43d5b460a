//! [`Inner`]: the table, and the threads that drive for it. The I/O thread drives, or a caller that
//! blocks takes its place for as long as its call lasts. Clients, guards and calls hold an
//! [`Owner`]; the I/O thread holds none, and ends when the last of them is gone.
//!
//! # Invariants
//!
//! - At most one thread drives. While no thread drives, one thread sleeps, and others wake it for
//!   new work. The sleeper wakes by itself when something is due.
//! - At most one caller drives, or waits for the I/O thread to make room. A second such caller
//!   would wait until the driving caller's call ends.
//! - Only the driving thread completes the driving caller's call. A caller that sleeps at the
//!   sockets would not notice that another thread has completed its call.
//! - The driving caller wakes no task. An executor may queue a woken task behind the task that runs
//!   on the driving caller's thread, and the driving caller blocks that thread.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::calls::{CallIndex, CallKind, QueueIndex, Stage, TakenResult, notify_all};
use super::counting::Counting;
use super::policy::{Lists, Policy};
use super::sync::{Mutex, Thread};
use super::table::{Command, IoThread, Place, Table};
use crate::driver::Lease;
use crate::driver::clock::now;
use crate::time::Instant;

/// The I/O thread leaves the sockets to the callers until none has driven for this long. Until then
/// the next driving caller reads the late answers of the nodes beyond the quorum. Each look costs a
/// wake-up, so the I/O thread looks far less often than callers call. Late answers are due
/// `node_timeout` after their requests, by default 50 ms. If this time were longer, each drive
/// would wake the I/O thread for them.
pub(super) const LOOKS_AFTER: Duration = Duration::from_millis(40);

/// The same while a lock lingers: another client may announce that it waits for the lock.
const LOOKS_FOR_WAITERS_AFTER: Duration = Duration::from_millis(1);

pub(super) struct Inner {
    table: Mutex<Table>,
    /// For the child of a fork. There a thread of the parent may have left the other mutex locked.
    table_of_fork: Mutex<Table>,
    threads: Arc<dyn Threads>,
    pub(super) policy: Arc<Policy>,
    pub(super) counting: Counting,
}

/// How a caller goes on once its call has begun.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    /// It blocks until one of its calls is done; `own` of them are under way.
    Blocks {
        own: usize,
    },
    /// It blocks, and leaves the sockets to other threads.
    Sleeps,
    /// It begins other calls at once, and then blocks.
    Gathers,
    GoesOn,
}

/// The thread that goes on after work on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It wakes a sleeping thread if there is something to do.
    Wakes,
    /// This thread drives, and looks itself for work.
    Drives,
    /// This thread comes back at once.
    ComesBack,
}

/// The threads that drive for the table.
pub(super) trait Threads: Send + Sync {
    /// Wakes the thread that sleeps there.
    fn wake(&self, place: Place);

    /// Whether the threads are of this process, and not of the parent of a fork.
    fn are_here(&self) -> bool;

    /// Drives in the place of the I/O thread. The table says that this thread drives. `None` if the
    /// I/O thread has to drive.
    fn drive(&self, inner: &Inner, drive: &mut Drive) -> Option<DriveEnd>;
}

impl Inner {
    pub(super) fn new(table: Table, threads: Arc<dyn Threads>) -> Self {
        let (policy, counting) = (Arc::clone(&table.policy), table.counting.clone());
        let table_of_fork = Mutex::new(table.of_child());
        Self { table: Mutex::new(table), table_of_fork, threads, policy, counting }
    }

    /// Runs `work` on the table, and wakes the thread that is to go on. `work` must be short and
    /// run no foreign code: it must neither call nor drop a waker.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        self.with_then(|table| (work(table), Then::Wakes))
    }

    /// As [`with`](Self::with); `work` says which thread goes on.
    pub(super) fn with_then<T>(&self, work: impl FnOnce(&mut Table) -> (T, Then)) -> T {
        // A panic in the table would be a bug; later calls still get an answer.
        let table = if self.is_in_fork() { &self.table_of_fork } else { &self.table };
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, then) = work(&mut table);
        let place = match then {
            Then::ComesBack => None,
            Then::Wakes | Then::Drives => table.must_wake(then == Then::Drives),
        };
        drop(table);
        // Even a driving caller wakes a thread at the sockets, and waits until that thread makes
        // room.
        if let Some(place) = place {
            self.threads.wake(place);
        }
        value
    }

    /// As [`with`](Self::with), and writes the commands at once if no other thread drives.
    pub(super) fn with_writing<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        let (value, drives) = self.with_then(|table| {
            let value = work(table);
            let drives = table.begin_writing();
            ((value, drives), if drives { Then::Drives } else { Then::Wakes })
        });
        if drives {
            let _no_call = self.drive(Drive::once());
        }
        value
    }

    /// The caller holds the lease no more.
    pub(super) fn give_back(&self, queue: QueueIndex, lease: Lease, may_pass: bool) {
        self.with_writing(|table| table.give_back(queue, lease, may_pass, now)).notify();
    }

    pub(super) fn lists(&self) -> Lists {
        self.with(|table| table.lists.clone())
    }

    /// Drives in the place of the I/O thread, and wakes the thread that goes on. Returns the result
    /// of the driving caller's call if it is done.
    pub(super) fn drive(&self, mut drive: Drive) -> Option<TakenResult> {
        if self.is_in_fork() {
            return None;
        }
        let end = self.threads.drive(self, &mut drive);
        let end = end.unwrap_or_else(|| self.with(|table| table.end_drive(None, 0)));
        if end.wakes_gate {
            self.threads.wake(Place::Gate);
        }
        if let Some(next) = end.next {
            next.unpark();
        }
        drive.taken
    }

    /// Whether this is the child of a fork: leases, calls and sockets are the parent's.
    pub(super) fn is_in_fork(&self) -> bool {
        !self.threads.are_here()
    }

    /// The I/O thread ends, with `owed` releases owed, and so does every call.
    pub(super) fn end(&self, owed: usize) {
        let mut tell = Vec::new();
        let _commands = self.with(|table| table.end(owed, &mut tell));
        notify_all(tell);
    }
}

/// Clients, guards and calls hold it: once the last is gone, the I/O thread ends.
pub(super) struct Owner {
    pub(super) inner: Arc<Inner>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.inner.with(|table| {
            table.is_closed = true;
            table.commands.push(Command::Close);
        });
    }
}

/// The purpose of a drive, and its result.
#[derive(Debug)]
pub(super) struct Drive {
    /// The call that the driving caller waits for, if any.
    pub(super) call: Option<CallIndex>,
    /// How many calls in the table are the driving caller's own. It drives again for those that are
    /// left.
    pub(super) own: usize,
    pub(super) ends: Instant,
    /// The driving caller has written the commands.
    pub(super) has_written: bool,
    /// The result of the driving caller's call.
    pub(super) taken: Option<TakenResult>,
}

impl Drive {
    /// A drive until the call is done, at most until `ends`.
    pub(super) const fn until(call: CallIndex, own: usize, ends: Instant) -> Self {
        Self { call: Some(call), own, ends, has_written: false, taken: None }
    }

    /// A drive until the driving caller has written all commands.
    pub(super) const fn once() -> Self {
        Self { call: None, own: 0, ends: Instant::MAX, has_written: false, taken: None }
    }

    /// Whether the driving caller waits for an answer of the nodes.
    pub(super) const fn waits(&self) -> bool {
        self.call.is_some()
    }
}

/// The duties of a thread at the end of its drive.
#[derive(Debug, Default)]
pub(super) struct DriveEnd {
    /// The driving caller must wake the I/O thread at its gate.
    pub(super) wakes_gate: bool,
    /// The caller that drives next.
    pub(super) next: Option<Thread>,
}

impl Table {
    /// The I/O thread wakes at its gate. Returns until when it leaves the sockets to the callers;
    /// `None` if it drives.
    pub(super) fn leaves_sockets_until(&mut self, now: Instant) -> Option<Instant> {
        let is_quiet = self.calls.in_use() == 0 && self.lingering.is_empty();
        let sleeping = &mut self.sleeping;
        let has_driven =
            std::mem::replace(&mut sleeping.drives_seen, sleeping.drives) != sleeping.drives;
        let after = if self.lingering.is_empty() { LOOKS_AFTER } else { LOOKS_FOR_WAITERS_AFTER };
        let looks_at = if has_driven { now + after } else { Instant::MAX };
        let until = match sleeping.asleep {
            _ if sleeping.caller_drives => looks_at,
            Some((Place::Gate, due)) if has_driven && is_quiet && now < due => due.min(looks_at),
            _ => {
                sleeping.io_thread = IoThread::Up;
                return None;
            }
        };
        sleeping.io_thread = IoThread::IsDeaf { until };
        Some(until)
    }

    /// The I/O thread goes to sleep: at its gate if a caller drives, or if the next blocked caller
    /// would.
    pub(super) fn io_thread_falls_asleep(&mut self, due: Instant) -> (Place, Instant) {
        let makes_room = self.sleeping.caller_drives || self.calls.in_use() == 0;
        let place = if makes_room { Place::Gate } else { Place::Sockets };
        let until = self.fall_asleep(place, due);
        if place == Place::Gate && until > Instant::default() {
            self.sleeping.io_thread = IoThread::Hears { until };
        }
        (place, until)
    }

    /// The driving thread goes to sleep. Returns until when; a time in the past if there is work.
    pub(super) fn fall_asleep(&mut self, place: Place, due: Instant) -> Instant {
        // The caller that waits to drive takes the commands, and does all that is due.
        let caller_drives = place == Place::Gate && self.sleeping.caller_drives;
        if !self.commands.is_empty() && !caller_drives {
            return Instant::default();
        }
        let until = if caller_drives { Instant::MAX } else { due.min(self.due_at()) };
        self.sleeping.asleep = (!caller_drives).then_some((place, until));
        until
    }

    /// The place of the sleeping thread to wake for the work in the table. After that this function
    /// returns `None` until a thread sleeps again. A caller that `drives` does the work itself, and
    /// leaves the thread at the gate asleep.
    pub(super) fn must_wake(&mut self, drives: bool) -> Option<Place> {
        let (place, until) = self.sleeping.asleep?;
        // A driving thread at the sockets hears other clients. The flag stays set then, for the I/O
        // thread may sleep later without hearing them.
        let must_listen = place == Place::Gate && std::mem::take(&mut self.sleeping.must_listen);
        let is_deaf = matches!(self.sleeping.io_thread, IoThread::IsDeaf { .. });
        let is_due = !self.commands.is_empty() || self.due_at() < until || must_listen && is_deaf;
        if !is_due {
            return None;
        }
        self.sleeping.asleep = None;
        if place == Place::Gate {
            if drives {
                return None;
            }
            self.sleeping.io_thread = IoThread::Up;
        }
        Some(place)
    }

    /// A caller blocks: `own` of the calls under way are its own. Returns whether it is to drive,
    /// from the moment when the I/O thread makes room. It does not drive while tasks wait. If other
    /// threads have calls under way, the caller drives only if it spins. A caller that sleeps hands
    /// out results no sooner than the I/O thread does.
    pub(super) const fn begin_drive(&mut self, own: usize) -> bool {
        let is_alone = self.calls.in_use() == own;
        let may_drive = (is_alone || self.sleeping.promotes) && self.calls.tasks() == 0;
        let drives = may_drive && !self.sleeping.caller_drives;
        if drives {
            self.note_drive();
        }
        drives
    }

    /// A caller that does not block leaves commands. Returns whether it drives, to write them.
    pub(super) fn begin_writing(&mut self) -> bool {
        let is_idle = matches!(self.sleeping.asleep, Some((Place::Gate, _)))
            && self.sleeping.io_thread != IoThread::Up;
        is_idle && !self.commands.is_empty() && self.begin_drive(0)
    }

    const fn note_drive(&mut self) {
        self.sleeping.caller_drives = true;
        self.sleeping.drives += 1;
    }

    /// Whether the driving caller has to make room before it hands out a result, because a task
    /// waits. Then no thread counts as asleep.
    pub(super) const fn leaves_for_task(&mut self) -> bool {
        if self.sleeping.must_leave {
            self.sleeping.note_awake();
        }
        self.sleeping.must_leave
    }

    /// A drive begins. Returns false, and takes nothing, if there is no command, or if the driving
    /// caller's call is done.
    pub(super) fn take_commands_of_drive(
        &mut self,
        drive: &Drive,
        commands: &mut Vec<Command>,
    ) -> bool {
        let is_done = drive.call.is_some_and(|call| self.calls.at(call).stage == Stage::Done);
        if is_done || self.commands.is_empty() {
            return false;
        }
        self.take_commands(commands);
        true
    }

    /// Ends the drive if its purpose is done, and gives it the result of the driving caller's call.
    pub(super) fn end_drive_if_done(
        &mut self,
        drive: &mut Drive,
        now: Instant,
        due: impl FnOnce() -> Instant,
    ) -> Option<DriveEnd> {
        let call = drive.call.filter(|call| self.calls.at(*call).stage == Stage::Done);
        let is_done = call.is_some() || !drive.waits() && drive.has_written || drive.ends <= now;
        if !is_done {
            return None;
        }
        let mut own = 0;
        if let Some(call) = call {
            // No task listens to the driving caller's call, so its remains run no foreign code.
            drive.taken = Some(self.calls.take(call).0);
            own = drive.own.saturating_sub(1);
        }
        Some(self.end_drive(Some(due()), own))
    }

    /// The driving caller's call is over, or the driving caller leaves. The same caller drives
    /// again for the `own` calls that are left to it. A thread must drive at `due`; `None` if at
    /// once.
    pub(super) fn end_drive(&mut self, due: Option<Instant>, own: usize) -> DriveEnd {
        (self.sleeping.caller_drives, self.sleeping.must_leave) = (false, false);
        if due.is_some()
            && let Some(next) = self.promote()
        {
            return DriveEnd { next: Some(next), ..DriveEnd::default() };
        }
        let due = due.map(|due| due.min(self.due_at()));
        let others_wait = self.calls.in_use() > own;
        let sleeping = &mut self.sleeping;
        // While the client ends, the I/O thread may already sleep at the sockets.
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
        DriveEnd { wakes_gate, ..DriveEnd::default() }
    }

    /// A caller that blocks drives next.
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
        self.calls.at_mut(call).drives = true;
        self.note_drive();
        Some(thread)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::time::Duration;

    use super::*;
    use crate::client::calls::QueueIndex;
    use crate::client::span::CallSpan;
    use crate::config::Config;
    use crate::options::LockOptions;
    use crate::slab::Index as _;

    fn new_table() -> (Table, Instant) {
        let policy = Policy::new(&Config::new(["h:1"]).unwrap()).unwrap();
        (Table::new(policy, 8, false), Instant::from_nanos(1))
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
        assert!(table.begin_drive(0));
        let _end = table.end_drive(Some(due), 0);
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
    fn a_lock_that_begins_to_linger_while_a_caller_drives_wakes_the_thread_at_the_end_of_the_drive()
    {
        let (mut table, now) = new_table();
        let due = now + Duration::from_secs(1);
        table.io_thread_falls_asleep(due);
        assert!(table.begin_drive(0));
        assert!(table.leaves_sockets_until(now).is_some());
        table.fall_asleep(Place::Sockets, due);
        table.sleeping.must_listen = true;
        assert_eq!(table.must_wake(false), None, "the driving caller hears");
        table.sleeping.note_awake();
        let _end = table.end_drive(Some(due), 0);
        assert_eq!(table.must_wake(false), Some(Place::Gate));
    }

    /// The thread may run the program's own code, which drops a guard: to drive then would be to wait
    /// for itself.
    #[test]
    fn a_caller_that_does_not_block_does_not_drive_while_the_thread_is_up() {
        let (mut table, now) = new_table();
        let due = now + Duration::from_secs(1);
        assert_eq!(table.io_thread_falls_asleep(due), (Place::Gate, due));
        assert_eq!(table.leaves_sockets_until(now), None, "a node's answer wakes it");
        table.commands.push(Command::Close);
        assert!(!table.begin_writing());
        // A result waits to be handed out, so the thread does not sleep.
        table.take_commands(&mut Vec::new());
        table.io_thread_falls_asleep(Instant::default());
        table.commands.push(Command::Close);
        assert!(!table.begin_writing());
        table.take_commands(&mut Vec::new());
        assert_eq!(table.io_thread_falls_asleep(due), (Place::Gate, due));
        table.commands.push(Command::Close);
        assert!(table.begin_writing(), "it sleeps");
    }

    #[test]
    fn a_thread_that_left_the_sockets_to_a_caller_that_drives_long_looks_at_its_end_though_nothing_is_due()
     {
        let (mut table, now) = new_table();
        table.io_thread_falls_asleep(Instant::MAX);
        assert!(table.begin_drive(0));
        assert_eq!(table.leaves_sockets_until(now), Some(now + LOOKS_AFTER));
        assert_eq!(table.leaves_sockets_until(now + LOOKS_AFTER), Some(Instant::MAX));
        assert!(table.end_drive(Some(Instant::MAX), 0).wakes_gate);
        assert_eq!(table.leaves_sockets_until(now + 2 * LOOKS_AFTER), None);
    }

    #[test]
    fn a_thread_that_left_the_sockets_looks_for_the_caller_that_is_left_when_a_drive_ends() {
        for others in [0, 1] {
            let (mut table, now) = new_table();
            table.io_thread_falls_asleep(Instant::MAX);
            assert!(table.begin_drive(0));
            assert_eq!(table.leaves_sockets_until(now), Some(now + LOOKS_AFTER));
            for _ in 0..others {
                begin_lock(&mut table, now);
                table.take_commands(&mut Vec::new());
            }
            let end = table.end_drive(Some(Instant::MAX), 0);
            assert_eq!(end.wakes_gate, others > 0);
        }
    }

    #[test]
    fn a_thread_that_leaves_the_sockets_looks_sooner_while_a_lock_lingers() {
        for lingers in [false, true] {
            let (mut table, now) = new_table();
            let later = now + Duration::from_secs(1);
            table.io_thread_falls_asleep(later);
            table.lingering.extend(lingers.then(|| Reverse((later, QueueIndex::at(0).unwrap()))));
            assert!(table.begin_drive(0));
            let after = if lingers { LOOKS_FOR_WAITERS_AFTER } else { LOOKS_AFTER };
            assert_eq!(table.leaves_sockets_until(now), Some(now + after));
        }
    }

    #[test]
    fn a_thread_that_left_the_sockets_looks_when_the_driver_must_be_driven_sooner() {
        let (mut table, now) = new_table();
        table.io_thread_falls_asleep(Instant::MAX);
        assert!(table.begin_drive(0));
        assert_eq!(table.leaves_sockets_until(now), Some(now + LOOKS_AFTER));
        assert!(!table.end_drive(Some(now + LOOKS_AFTER), 0).wakes_gate);
        assert!(table.begin_drive(0));
        assert!(table.end_drive(Some(now + LOOKS_AFTER / 2), 0).wakes_gate);
    }

    /// A driving caller that panics may have noted a wake that it never made.
    #[test]
    fn a_driving_caller_that_fails_wakes_the_thread_even_if_the_table_says_that_it_is_up() {
        let (mut table, now) = new_table();
        table.io_thread_falls_asleep(Instant::MAX);
        assert!(table.begin_drive(0));
        assert!(table.end_drive(Some(now), 0).wakes_gate);
        assert!(table.end_drive(None, 0).wakes_gate);
    }

    #[test]
    fn a_thread_that_a_caller_left_asleep_is_woken_for_what_is_due_after_the_drive() {
        let (mut table, now) = new_table();
        assert_eq!(table.io_thread_falls_asleep(Instant::MAX), (Place::Gate, Instant::MAX));
        begin_lock(&mut table, now);
        assert!(table.begin_drive(1));
        assert_eq!(table.must_wake(true), None);
        table.take_commands(&mut Vec::new());
        let mut drive = Drive { own: 1, ends: now, has_written: true, ..Drive::once() };
        let due = || now + Duration::from_secs(1);
        let end = table.end_drive_if_done(&mut drive, now, due).expect("it is over");
        assert!(end.wakes_gate);
    }

    /// A node that sends without end leaves more to read at each pass.
    #[test]
    fn a_caller_that_waits_to_drive_gets_its_turn_though_the_sockets_hold_more() {
        let (mut table, now) = new_table();
        begin_lock(&mut table, now);
        assert!(table.begin_drive(1));
        let (place, until) = table.io_thread_falls_asleep(Instant::default());
        assert!(place == Place::Gate && until > Instant::default(), "{place:?} {until:?}");
    }
}

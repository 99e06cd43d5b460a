//! [`Worker`]: the driver and its sockets. The driving thread carries out the table's commands, and
//! hands results back.

use std::io;
use std::sync::Arc;

use super::calls::{CallIndex, CallKind, CallResult, Listener, notify_all};
use super::driving::{Drive, DriveEnd, Inner};
use super::policy::Lists;
use super::table::{Command, Place, Task};
use crate::driver::clock::now;
use crate::driver::{Completion, Connecting, Driver, Outcome, Poller};
use crate::engine::OpId;
use crate::error::{ExtendError, LockError};
use crate::key;
use crate::query::Query;
use crate::quorum::NodeMask;
use crate::slab::Index as _;
use crate::time::Instant;

pub(super) struct Worker {
    driver: Driver,
    poller: Poller,
    flow: Flow,
    /// The calls that wait for nodes to connect.
    connecting: Vec<(CallIndex, Connecting)>,
    /// Queries whose time has not come.
    asks: Vec<(Instant, CallIndex, Query)>,
    inner: Arc<Inner>,
    /// The operation of each call, and the call of each operation, by their small numbers.
    ops: Vec<Option<OpId>>,
    calls: Vec<Option<(OpId, CallIndex)>>,
    /// The nodes that may vote, as the table knows them.
    voters: NodeMask,
    /// Reused from pass to pass.
    commands: Vec<Command>,
    replies: Vec<(CallIndex, CallResult)>,
    tell: Vec<Listener>,
}

/// How often the driving thread takes commands before it writes.
const ROUNDS_MAX: usize = 8;

/// How the driving thread goes on after the commands.
#[derive(Clone, Copy)]
enum Flow {
    GoesOn,
    ShutsDown { ends: Instant },
}

impl Flow {
    /// The client ends by `ends`, or earlier if an earlier end is set.
    fn until(self, ends: Instant) -> Self {
        match self {
            Self::GoesOn => Self::ShutsDown { ends },
            Self::ShutsDown { ends: other } => Self::ShutsDown { ends: ends.min(other) },
        }
    }
}

impl Worker {
    pub(super) const fn new(driver: Driver, poller: Poller, inner: Arc<Inner>) -> Self {
        Self {
            driver,
            poller,
            flow: Flow::GoesOn,
            connecting: Vec::new(),
            asks: Vec::new(),
            inner,
            ops: Vec::new(),
            calls: Vec::new(),
            voters: NodeMask::EMPTY,
            commands: Vec::new(),
            replies: Vec::new(),
            tell: Vec::new(),
        }
    }

    /// The I/O thread drives until there is nothing to do. Returns the time until which it may
    /// sleep; `None` at the end.
    pub(super) fn work(&mut self) -> Option<Instant> {
        self.poller.read(&mut self.driver).ok()?;
        loop {
            let due = self.turn()?.min(self.driver.next_deadline().unwrap_or(Instant::MAX));
            let (place, until) = self.inner.with(|table| table.io_thread_falls_asleep(due));
            if place == Place::Gate && until > Instant::default() {
                return Some(until);
            }
            self.park(until).ok()?;
        }
    }

    /// A caller drives in the place of the I/O thread. `None` if the I/O thread has to.
    pub(super) fn drive(&mut self, drive: &mut Drive) -> Option<DriveEnd> {
        // The thread that drove before may have carried the driving caller's command out.
        if !self.inner.with(|table| table.take_commands_of_drive(drive, &mut self.commands)) {
            self.gather();
            if let Some(end) = self.exchange(Some(drive)) {
                return Some(end);
            }
        }
        loop {
            let time = self.read_before_commands()?;
            let due = self.carry_out(1, time)?;
            drive.has_written = true;
            if drive.waits() {
                let due = due.min(drive.ends);
                let until = self.inner.with(|table| table.fall_asleep(Place::Sockets, due));
                while self.poller.pass(&mut self.driver, within(until)).ok()? && !self.has_news() {}
            }
            self.gather();
            if let Some(end) = self.exchange(Some(drive)) {
                return Some(end);
            }
        }
    }

    /// The client ends.
    pub(super) fn finish(self) {
        if let Flow::ShutsDown { ends } = self.flow {
            self.shut_down(ends);
        }
    }

    /// The I/O thread sleeps at the sockets until something is ready or due, and then drives once.
    fn park(&mut self, until: Instant) -> Result<(), io::ErrorKind> {
        self.poller.park(&mut self.driver, within(until))
    }

    /// Hands out results, carries out commands and writes. Returns when something for a call is due
    /// next; `None` once the end has come.
    fn turn(&mut self) -> Option<Instant> {
        self.gather();
        let _goes_on = self.exchange(None);
        self.carry_out(ROUNDS_MAX, now())
    }

    /// Carries the commands out and writes. Returns when something for a call is due next; `None`
    /// once the end has come.
    fn carry_out(&mut self, rounds: usize, time: Instant) -> Option<Instant> {
        if !self.commands.is_empty() {
            self.flow = self.carry_out_all(rounds, time);
            self.driver.flush();
        }
        if !matches!(self.flow, Flow::GoesOn) {
            return None;
        }
        let asking = self.ask_due();
        let connecting = self.connected_by();
        // The cancel of a call may have taken the event that tells of a loss.
        if !self.replies.is_empty() || self.driver.has_loss() {
            return Some(Instant::default());
        }
        Some([asking, connecting].into_iter().flatten().min().unwrap_or(Instant::MAX))
    }

    /// Reads the sockets if the last pass was too long ago for the next commands. Returns the time
    /// at which the commands begin.
    fn read_before_commands(&mut self) -> Option<Instant> {
        let (engine, time) = (self.driver.engine(), now());
        // A waiter may have announced itself to the holder of a lock that is about to be released.
        if engine.needs_pass(time) || self.releases() && engine.may_have_word(time) {
            self.poller.read(&mut self.driver).ok()?;
            return Some(now());
        }
        Some(time)
    }

    /// Whether the table may have to know the results of the last pass.
    fn has_news(&self) -> bool {
        !(self.asks.is_empty() && self.connecting.is_empty())
            || self.driver.has_news()
            || self.driver.engine().voters() != self.voters
    }

    fn releases(&self) -> bool {
        let is_release = |command: &Command| {
            matches!(command, Command::Release(_) | Command::Call(_, Task::Unlock { .. }, _))
        };
        self.commands.iter().any(is_release)
    }

    /// Carries out the commands, and those that come meanwhile: all go out in the same writes.
    fn carry_out_all(&mut self, rounds: usize, time: Instant) -> Flow {
        let mut flow = self.flow;
        for round in 1..=rounds {
            if self.commands.is_empty() {
                break;
            }
            let mut commands = std::mem::take(&mut self.commands);
            for command in commands.drain(..) {
                match command {
                    Command::Shutdown { ends } => flow = flow.until(ends),
                    // Meanwhile the driver sends releases again that were lost with a connection.
                    Command::Close => flow = flow.until(time + self.driver.engine().node_timeout()),
                    Command::Release(lease) => {
                        drop(lease);
                        // The release goes out before the commands that follow.
                        self.driver.collect_dropped(time);
                    }
                    Command::Call(call, task, span) => {
                        span.run(|| self.execute(call, task, time));
                    }
                }
            }
            if round < rounds {
                self.inner.with(|table| table.take_commands(&mut commands));
            }
            self.commands = commands;
        }
        flow
    }

    /// Until when calls wait for nodes to connect. Replies to the waits that are over.
    fn connected_by(&mut self) -> Option<Instant> {
        if self.connecting.is_empty() {
            return None;
        }
        let Self { connecting, driver, replies, .. } = self;
        let (time, mut next) = (now(), Instant::MAX);
        connecting.retain_mut(|(call, connecting)| {
            let result = match connecting.goes_on_until(driver, time) {
                Ok(Some(until)) => {
                    next = next.min(until);
                    return true;
                }
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            replies.push((*call, CallResult::Connect(result)));
            false
        });
        Some(next)
    }

    /// Sends the queries whose time has come. Returns when the next one is due.
    fn ask_due(&mut self) -> Option<Instant> {
        if self.asks.is_empty() {
            return None;
        }
        let time = now();
        let due: Vec<_> = self.asks.extract_if(.., |(at, ..)| *at <= time).collect();
        for (_, call, query) in due {
            self.ask(call, &query);
        }
        self.driver.flush();
        self.asks.iter().map(|(at, ..)| *at).min()
    }

    fn ask(&mut self, call: CallIndex, query: &Query) {
        let result = self.driver.query(query);
        self.note(call, result, |error| CallResult::Answers(Err(error)));
    }

    /// Collects the operations that have ended.
    fn gather(&mut self) {
        while let Some(done) = self.driver.completion() {
            let Some(place) = self.calls.get_mut(done.id.index()) else { continue };
            let Some((_, call)) = place.take_if(|(op, _)| *op == done.id) else { continue };
            if let Some(op) = self.ops.get_mut(call.place()) {
                *op = None;
            }
            if let Some(reply) = Self::reply(done) {
                let goes_on = matches!(self.flow, Flow::GoesOn);
                self.replies
                    .push((call, if goes_on { reply } else { reply.closed_if_cancelled() }));
            }
        }
    }

    /// Leaves an adopted lock whose caller has given the call up, because another call may adopt it
    /// at once.
    fn leave_adopted(&mut self, call: CallIndex) {
        for (_, reply) in self.replies.iter_mut().filter(|(of, _)| *of == call) {
            if let CallResult::Adopt(result) = reply
                && let Ok(lease) = std::mem::replace(result, Err(ExtendError::Cancelled))
            {
                lease.leave();
            }
        }
    }

    fn reply(done: Completion) -> Option<CallResult> {
        Some(match done.result {
            Outcome::Lock(result) => CallResult::Lock(result),
            Outcome::Extend(result) => CallResult::Extend(result),
            Outcome::Adopt(result) => CallResult::Adopt(result),
            Outcome::Unlock(result) => CallResult::Unlock(result),
            Outcome::Query(answers) => CallResult::Answers(Ok(answers)),
            // This is not the result of a call: the lease itself shows it.
            Outcome::Lost(_) => return None,
        })
    }

    /// Hands out results and takes commands under one lock of the mutex, then notifies listeners. A
    /// driving caller whose drive ends here takes no commands.
    fn exchange(&mut self, drive: Option<&mut Drive>) -> Option<DriveEnd> {
        let Self { driver, inner, commands, replies, tell, .. } = self;
        let has_calls = !self.asks.is_empty() || !self.connecting.is_empty();
        self.voters = driver.engine().voters();
        let lists = driver.take_lists();
        let are_to_change = driver.is_exchanging();
        let (time, mut end) = (driver.engine().last_pass(), None);
        inner.with(|table| {
            if let Some((names, electorate)) = lists {
                table.lists = Lists { names, electorate, are_to_change };
            }
            if drive.is_some() && table.leaves_for_task() {
                end = Some(table.end_drive(None, 0));
                return;
            }
            let has_lost = driver.take_loss();
            table.hand_out(driver.engine(), has_lost, time, replies, tell);
            let due = || {
                // A call that waits for its time may be due for a look by now.
                let calls = if has_calls { Instant::default() } else { Instant::MAX };
                calls.min(driver.next_deadline().unwrap_or(Instant::MAX))
            };
            if let Some(drive) = drive {
                end = table.end_drive_if_done(drive, time, due);
            }
            if end.is_none() {
                table.take_commands(commands);
            }
        });
        if !tell.is_empty() {
            notify_all(tell.drain(..));
        }
        end
    }

    fn execute(&mut self, call: CallIndex, task: Task, time: Instant) {
        let driver = &mut self.driver;
        match task {
            Task::Acquire { key, options, ends } => {
                let late = || self.inner.lists().queued_in_vain(None, driver.engine(), time);
                let options = options.until(ends, time).ok_or_else(late);
                let result = options.and_then(|options| match key::split(&key) {
                    None => driver.begin_lock(&key, &options, time),
                    Some(keys) => driver.begin_lock_all(&keys, options, time),
                });
                self.note(call, result, |error| CallResult::Lock(Err(error)));
            }
            Task::Extend { queue, lease, ttl } => {
                let result = driver.extend_id(lease, ttl);
                // The lease may have an earlier deadline now.
                let engine = driver.engine();
                self.inner.with(|table| table.look_at(queue, lease, engine));
                self.note(call, result, |error| CallResult::Extend(Err(error)));
            }
            Task::Detach { lease, .. } => {
                self.replies.push((call, CallResult::Detach(driver.detach_id(lease))));
            }
            Task::Unlock { lease } => {
                let result = driver.unlock_at(lease, time);
                self.note(call, result, |error| CallResult::Unlock(Err(error)));
            }
            Task::UnlockToken { key, token } => {
                let result = driver.unlock_token(key, token);
                self.note(call, result, |error| CallResult::Unlock(Err(error)));
            }
            Task::Adopt { locks, options, .. } => {
                let result = driver.adopt_all(&locks, options);
                self.note(call, result, |error| CallResult::Adopt(Err(error)));
            }
            Task::Ask(query, at) if at > now() => self.asks.push((at, call, query)),
            Task::Ask(query, _) => self.ask(call, &query),
            Task::Connect(connecting) => self.connecting.push((call, connecting)),
            Task::SetNodes(lists) => {
                self.replies.push((
                    call,
                    CallResult::Connect(driver.set_nodes(&lists).map_err(Into::into)),
                ));
            }
            Task::Look(look) => self.replies.push((call, look(driver))),
            Task::Cancel => {
                if let Some(&Some(op)) = self.ops.get(call.place()) {
                    self.driver.cancel(op);
                    self.gather();
                } else if let Some(place) = self.asks.iter().position(|(_, of, _)| *of == call) {
                    self.asks.swap_remove(place);
                    self.replies.push((call, CallResult::Answers(Err(LockError::Cancelled))));
                } else if let Some(place) = self.connecting.iter().position(|(of, _)| *of == call) {
                    self.connecting.swap_remove(place);
                    self.replies.push((call, CallResult::closed(CallKind::Connect, 0)));
                }
                self.leave_adopted(call);
            }
        }
    }

    /// Notes the operation of a call, or the error with which it ended at once.
    fn note<E>(
        &mut self,
        call: CallIndex,
        result: Result<OpId, E>,
        error: impl FnOnce(E) -> CallResult,
    ) {
        match result {
            Ok(op) => {
                put(&mut self.ops, call.place(), op);
                put(&mut self.calls, op.index(), (op, call));
            }
            Err(why) => self.replies.push((call, error(why))),
        }
    }

    /// Gives up the calls under way, sends the releases owed and waits for the answers, until
    /// `ends` at the latest.
    fn shut_down(mut self, mut ends: Instant) {
        self.driver.give_up();
        let waits = self.connecting.drain(..).map(|(call, _)| (call, CallKind::Connect));
        let asks = self.asks.drain(..).map(|(_, call, _)| (call, CallKind::Ask));
        self.replies
            .extend(waits.chain(asks).map(|(call, kind)| (call, CallResult::closed(kind, 0))));
        self.gather();
        let _goes_on = self.exchange(None);
        ends = self.take_last(ends);
        // No call takes a lock from now on.
        let Self { inner, tell, .. } = &mut self;
        inner.with(|table| table.close(tell));
        notify_all(tell.drain(..));
        self.driver.drive();
        let mut has_reached = false;
        loop {
            self.gather();
            let _goes_on = self.exchange(None);
            ends = self.take_last(ends);
            if self.driver.is_wait_over(ends, &mut has_reached) {
                break;
            }
            let until = self.inner.with(|table| table.fall_asleep(Place::Sockets, ends));
            if self.park(until).is_err() {
                break;
            }
        }
        let (inner, owed) = (Arc::clone(&self.inner), self.driver.engine().releases_owed(now()));
        // A driver that is dropped exports its last counts, so they are out before `shutdown` ends.
        drop(self);
        inner.end(owed);
    }

    /// Takes the commands that came after the end of the client: leases to release, and further
    /// calls of `shutdown`. Returns until when to wait: the earliest of their limits.
    fn take_last(&mut self, mut ends: Instant) -> Instant {
        for command in self.commands.drain(..) {
            match command {
                Command::Release(lease) | Command::Call(_, Task::Unlock { lease }, _) => {
                    drop(lease)
                }
                Command::Shutdown { ends: other } => ends = ends.min(other),
                Command::Call(..) | Command::Close => {}
            }
        }
        self.driver.collect_dropped(now());
        self.driver.flush();
        ends
    }
}

fn within(until: Instant) -> Option<Instant> {
    (until < Instant::MAX).then_some(until)
}

fn put<T>(places: &mut Vec<Option<T>>, index: usize, value: T) {
    if places.len() <= index {
        places.resize_with(index + 1, || None);
    }
    if let Some(place) = places.get_mut(index) {
        *place = Some(value);
    }
}

//! [`Worker`]: the driver and its sockets. Whoever works carries out the table's commands, and hands
//! results back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::calls::{CallIndex, Kind, Listener, Reply, notify_all};
use super::inner::Inner;
use super::sleeping::Place;
use super::sync::AtomicBool;
use super::table::{Command, Task};
use crate::driver::clock::now;
use crate::driver::{Completion, Connecting, Driver, Outcome, Poller};
use crate::engine::OpId;
use crate::error::LockError;
use crate::key::Key;
use crate::options::LockOptions;
use crate::query::Query;
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
    /// Reused from pass to pass.
    commands: Vec<Command>,
    replies: Vec<(CallIndex, Reply)>,
    tell: Vec<Listener>,
}

/// How often commands are taken before what they write goes out.
const ROUNDS_MAX: usize = 8;

/// What follows from the commands.
#[derive(Clone, Copy)]
enum Flow {
    GoesOn,
    ShutsDown { ends: Instant },
    Ends,
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
            commands: Vec::new(),
            replies: Vec::new(),
            tell: Vec::new(),
        }
    }

    /// The I/O thread: works until there is nothing to do. Returns until when; `None` at the end.
    pub(super) fn work(&mut self) -> Option<Instant> {
        self.poller.read(&mut self.driver).ok()?;
        loop {
            let due = self.turn(false)?;
            let (place, until) = self.inner.with(|table| table.io_thread_falls_asleep(due));
            if place == Place::Gate && until > Instant::default() {
                return Some(until);
            }
            self.sleep(until).ok()?;
        }
    }

    /// A caller, in the place of the I/O thread: works until the call is done. Returns when the driver
    /// is to be driven next; `None` where the I/O thread has to look.
    pub(super) fn lead(&mut self, done: &AtomicBool) -> Option<Instant> {
        // Whoever waits for a lock that is to be released is heard first.
        self.poller.read(&mut self.driver).ok()?;
        loop {
            let due = self.turn(true)?;
            if done.load(Ordering::Acquire) {
                return Some(due);
            }
            let until = self.inner.with(|table| table.fall_asleep(Place::Sockets, due));
            self.sleep(until).ok()?;
        }
    }

    /// The end has come.
    pub(super) fn finish(self) {
        if let Flow::ShutsDown { ends } = self.flow {
            self.shut_down(ends);
        }
    }

    /// Sleeps at the sockets, and drives.
    fn sleep(&mut self, until: Instant) -> Result<(), io::ErrorKind> {
        let until = (until < Instant::MAX).then_some(until);
        self.poller.pass(&mut self.driver, until)
    }

    /// Hands out results, carries out commands and writes. Returns when something is due next; `None`
    /// where the end has come, or the leader must leave.
    fn turn(&mut self, leads: bool) -> Option<Instant> {
        self.gather();
        if !self.exchange(leads) {
            return None;
        }
        self.flow = self.carry_out();
        if !matches!(self.flow, Flow::GoesOn) {
            return None;
        }
        let asking = self.ask_due();
        self.driver.flush();
        let connecting = self.connected_by();
        if !self.replies.is_empty() {
            return Some(Instant::default());
        }
        let due = [asking, connecting, self.driver.next_deadline()].into_iter().flatten().min();
        Some(due.unwrap_or(Instant::MAX))
    }

    /// Carries out the commands, and those that come meanwhile: all go out in the same writes.
    fn carry_out(&mut self) -> Flow {
        let mut flow = self.flow;
        for round in 1..=ROUNDS_MAX {
            if self.commands.is_empty() {
                break;
            }
            let mut commands = std::mem::take(&mut self.commands);
            for command in commands.drain(..) {
                match command {
                    Command::Shutdown { mut ends } => {
                        if let Flow::ShutsDown { ends: other } = flow {
                            ends = ends.min(other);
                        }
                        flow = Flow::ShutsDown { ends };
                    }
                    Command::Close => return Flow::Ends,
                    Command::Release(lease) => {
                        drop(lease);
                        // The release goes out before the commands that follow.
                        self.driver.collect_dropped(now());
                    }
                    Command::Call(call, task, span) => span.run(|| self.execute(call, task)),
                }
            }
            if round < ROUNDS_MAX {
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
            replies.push((*call, Reply::Connect(result)));
            false
        });
        Some(next)
    }

    /// Puts the queries whose time has come. Returns when the next one is due.
    fn ask_due(&mut self) -> Option<Instant> {
        if self.asks.is_empty() {
            return None;
        }
        let time = now();
        let due: Vec<_> = self.asks.extract_if(.., |(at, ..)| *at <= time).collect();
        for (_, call, query) in due {
            self.ask(call, &query);
        }
        self.asks.iter().map(|(at, ..)| *at).min()
    }

    fn ask(&mut self, call: CallIndex, query: &Query) {
        let result = self.driver.query(query);
        self.note(call, result, |error| Reply::Answers(Err(error)));
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

    fn reply(done: Completion) -> Option<Reply> {
        Some(match done.result {
            Outcome::Lock(result) => Reply::Lock(result),
            Outcome::Extend(result) => Reply::Extend(result),
            Outcome::Adopt(result) => Reply::Adopt(result),
            Outcome::Unlock(result) => Reply::Unlock(result),
            Outcome::Query(answers) => Reply::Answers(Ok(answers)),
            // Not the result of a call: the lease itself shows it.
            Outcome::Lost(_) => return None,
        })
    }

    /// Hands out results and takes commands under one hold of the mutex; then notifies listeners.
    /// Returns false, and does nothing, where the leader must leave.
    fn exchange(&mut self, leads: bool) -> bool {
        let Self { driver, inner, commands, replies, tell, .. } = self;
        let time = now();
        let goes_on = inner.with(|table| {
            let goes_on = !leads || !table.leader_leaves();
            if goes_on {
                let has_lost = driver.take_loss();
                table.exchange(driver.engine(), has_lost, time, replies, commands, tell);
            }
            goes_on
        });
        notify_all(tell.drain(..));
        goes_on
    }

    fn execute(&mut self, call: CallIndex, task: Task) {
        let driver = &mut self.driver;
        match task {
            Task::Acquire { key, options, ends } => self.acquire(call, &key, options, ends),
            Task::Extend { queue, lease, ttl } => {
                let result = driver.extend_id(lease, ttl);
                // The lease may have an earlier deadline now.
                let engine = driver.engine();
                self.inner.with(|table| table.look_at(queue, lease, engine));
                self.note(call, result, |error| Reply::Extend(Err(error)));
            }
            Task::Detach { lease } => {
                self.replies.push((call, Reply::Detach(driver.detach_id(lease))));
            }
            Task::Unlock { lease } => {
                let result = driver.unlock(lease);
                self.note(call, result, |error| Reply::Unlock(Err(error)));
            }
            Task::UnlockToken { key, token } => {
                let result = driver.unlock_token(key, token);
                self.note(call, result, |error| Reply::Unlock(Err(error)));
            }
            Task::Adopt { key, token, options } => {
                let result = driver.adopt(key, token, options);
                self.note(call, result, |error| Reply::Adopt(Err(error)));
            }
            Task::Ask(query, at) if at > now() => self.asks.push((at, call, query)),
            Task::Ask(query, _) => self.ask(call, &query),
            Task::Connect(connecting) => self.connecting.push((call, connecting)),
            Task::Nodes => self.replies.push((call, Reply::Nodes(self.driver.nodes()))),
            Task::Cancel => {
                if let Some(&Some(op)) = self.ops.get(call.place()) {
                    driver.cancel(op);
                } else if let Some(place) = self.asks.iter().position(|(_, of, _)| *of == call) {
                    self.asks.swap_remove(place);
                    self.replies.push((call, Reply::Answers(Err(LockError::Cancelled))));
                } else if let Some(place) = self.connecting.iter().position(|(of, _)| *of == call) {
                    self.connecting.swap_remove(place);
                    self.replies.push((call, Reply::closed(Kind::Connect, 0)));
                }
            }
        }
    }

    fn acquire(&mut self, call: CallIndex, key: &Key, mut options: LockOptions, ends: Instant) {
        let time = now();
        // It lingers here: for the engine the lease is held.
        options.linger_ms = 0;
        if ends < Instant::MAX {
            // A deadline of zero would be one attempt without any.
            options.timeout = Some(time.until(ends).max(Duration::from_nanos(1)));
        }
        let result = self.driver.begin_lock(key, &options, time);
        self.note(call, result, |error: LockError| Reply::Lock(Err(error)));
    }

    /// Notes the operation of a call, or the error with which it ended at once.
    fn note<E>(
        &mut self,
        call: CallIndex,
        result: Result<OpId, E>,
        error: impl FnOnce(E) -> Reply,
    ) {
        match result {
            Ok(op) => {
                put(&mut self.ops, call.place(), op);
                put(&mut self.calls, op.index(), (op, call));
            }
            Err(why) => self.replies.push((call, error(why))),
        }
    }

    /// Gives up what is under way, sends the releases owed and waits for the answers, until `ends`
    /// at the latest.
    fn shut_down(mut self, mut ends: Instant) {
        self.driver.give_up();
        let waits = self.connecting.drain(..).map(|(call, _)| (call, Kind::Connect));
        let asks = self.asks.drain(..).map(|(_, call, _)| (call, Kind::Ask));
        self.replies.extend(waits.chain(asks).map(|(call, kind)| (call, Reply::closed(kind, 0))));
        self.gather();
        self.exchange(false);
        ends = self.take_last(ends);
        // No call takes a lock from now on.
        let Self { inner, tell, .. } = &mut self;
        inner.with(|table| table.close(tell));
        notify_all(tell.drain(..));
        self.driver.drive();
        let mut has_reached = false;
        loop {
            self.gather();
            self.exchange(false);
            ends = self.take_last(ends);
            if self.driver.has_released(ends, &mut has_reached) {
                break;
            }
            let until = self.inner.with(|table| table.fall_asleep(Place::Sockets, ends));
            if self.sleep(until).is_err() {
                break;
            }
        }
        self.inner.end(self.driver.engine().releases_owed(now()));
    }

    /// Takes what came after the handle was closed: leases given back, which it releases, and
    /// further calls of `shutdown`. Returns until when to wait: the earliest of their limits.
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

fn put<T>(places: &mut Vec<Option<T>>, index: usize, value: T) {
    if places.len() <= index {
        places.resize_with(index + 1, || None);
    }
    if let Some(place) = places.get_mut(index) {
        *place = Some(value);
    }
}

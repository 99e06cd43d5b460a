//! The I/O thread: it owns the client, carries out what the table says, and hands results back.

use std::sync::Arc;
use std::time::Duration;

use super::calls::{Listener, Reply};
use super::inner::Inner;
use super::table::{Command, Task};
use crate::client::Client;
use crate::driver::clock::now;
use crate::driver::{Completion, Outcome};
use crate::engine::OpId;
use crate::error::LockError;
use crate::key::Key;
use crate::options::LockOptions;
use crate::time::Instant;

pub(super) struct Worker {
    client: Client,
    inner: Arc<Inner>,
    /// The operation of each call, and the call of each operation, by their small numbers.
    ops: Vec<Option<OpId>>,
    calls: Vec<Option<(OpId, u32)>>,
    /// Reused from pass to pass.
    commands: Vec<Command>,
    replies: Vec<(u32, Reply)>,
    tell: Vec<Listener>,
}

/// Ends every call when the thread does, be it by a panic.
struct End(Arc<Inner>);

impl Drop for End {
    fn drop(&mut self) {
        end(&self.0, 0);
    }
}

fn end(inner: &Inner, owed: usize) {
    let mut tell = Vec::new();
    let _commands = inner.with(|table| table.end(owed, &mut tell));
    tell.into_iter().for_each(Listener::notify);
}

impl Worker {
    pub(super) const fn new(client: Client, inner: Arc<Inner>) -> Self {
        Self {
            client,
            inner,
            ops: Vec::new(),
            calls: Vec::new(),
            commands: Vec::new(),
            replies: Vec::new(),
            tell: Vec::new(),
        }
    }

    /// Works until the handle is shut down or nobody has one any more.
    pub(super) fn run(mut self) {
        let _end = End(Arc::clone(&self.inner));
        loop {
            self.gather();
            self.exchange();
            let mut commands = std::mem::take(&mut self.commands);
            let mut shutdown = None;
            for command in commands.drain(..) {
                match command {
                    Command::Shutdown { ends } => {
                        shutdown = Some(shutdown.map_or(ends, |other: Instant| other.min(ends)));
                    }
                    Command::Close => return,
                    Command::Release(lease) => {
                        drop(lease);
                        // In front of what comes next.
                        self.client.driver.collect_dropped(now());
                    }
                    Command::Call(call, task) => self.execute(call, task),
                }
            }
            self.commands = commands;
            if let Some(ends) = shutdown {
                return self.shut_down(ends);
            }
            let driver = &mut self.client.driver;
            driver.flush();
            let due = if self.replies.is_empty() {
                driver.next_deadline()
            } else {
                Some(Instant::default())
            };
            let until = self.inner.with(|table| table.fall_asleep(due));
            if self.client.pass(until).is_err() {
                return;
            }
        }
    }

    /// Takes what has ended.
    fn gather(&mut self) {
        while let Some(done) = self.client.driver.completion() {
            let Some(place) = self.calls.get_mut(done.id.index()) else { continue };
            let Some((_, call)) = place.take_if(|(op, _)| *op == done.id) else { continue };
            if let Some(op) = self.ops.get_mut(call as usize) {
                *op = None;
            }
            if let Some(reply) = self.reply(done) {
                self.replies.push((call, reply));
            }
        }
    }

    fn reply(&self, done: Completion) -> Option<Reply> {
        Some(match done.result {
            Outcome::Lock(result) => Reply::Lock(result),
            Outcome::Extend(result) => Reply::Extend(result),
            Outcome::Adopt(result) => Reply::Adopt(result),
            Outcome::Unlock(result) => Reply::Unlock(result),
            Outcome::Query(answers) => Reply::Status(Ok(self.client.node_keys(&answers))),
            // No call's result: the lease itself shows it.
            Outcome::Lost(_) => return None,
        })
    }

    /// Hands out results and takes commands in, in one hold of the lock; then tells who waits.
    fn exchange(&mut self) {
        let Self { client, inner, commands, replies, tell, .. } = self;
        let has_lost = client.driver.take_loss();
        let engine = client.driver.engine();
        let time = now();
        inner.with(|table| table.exchange(engine, has_lost, time, replies, commands, tell));
        tell.drain(..).for_each(Listener::notify);
    }

    fn execute(&mut self, call: u32, task: Task) {
        let driver = &mut self.client.driver;
        match task {
            Task::Acquire { key, options, ends } => self.acquire(call, &key, options, ends),
            Task::Extend { queue, lease, ttl } => {
                let result = driver.extend_id(lease, ttl);
                // It may have a nearer deadline from now on.
                let engine = driver.engine();
                self.inner.with(|table| table.look_at(queue, lease, engine));
                self.note(call, result, |error| Reply::Extend(Err(error)));
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
            Task::Status { key } => {
                let result = self.client.ask_key(&key);
                self.note(call, result, |error| Reply::Status(Err(error)));
            }
            Task::Nodes => self.replies.push((call, Reply::Nodes(self.client.nodes()))),
            Task::Cancel => {
                if let Some(&Some(op)) = self.ops.get(call as usize) {
                    driver.cancel(op);
                }
            }
        }
    }

    fn acquire(&mut self, call: u32, key: &Key, mut options: LockOptions, ends: Instant) {
        let time = now();
        if ends < Instant::MAX {
            // A deadline of zero would be one attempt without any.
            options.timeout = Some(time.until(ends).max(Duration::from_nanos(1)));
        }
        let result = self.client.driver.begin_lock(key.as_bytes(), &options, time);
        self.note(call, result, |error: LockError| Reply::Lock(Err(error)));
    }

    /// Notes the operation of a call, or how it ended at once.
    fn note<E>(&mut self, call: u32, result: Result<OpId, E>, error: impl FnOnce(E) -> Reply) {
        match result {
            Ok(op) => {
                put(&mut self.ops, call as usize, op);
                put(&mut self.calls, op.index(), (op, call));
            }
            Err(why) => self.replies.push((call, error(why))),
        }
    }

    /// Gives up what is under way, sends what is owed and waits for the answers, until `ends` at
    /// the latest.
    fn shut_down(mut self, mut ends: Instant) {
        self.client.driver.give_up();
        self.gather();
        self.exchange();
        ends = self.take_last(ends);
        // Nobody takes a lock from now on.
        let Self { inner, tell, .. } = &mut self;
        inner.with(|table| table.close(tell));
        tell.drain(..).for_each(Listener::notify);
        self.client.driver.drive();
        loop {
            self.gather();
            self.exchange();
            ends = self.take_last(ends);
            let is_over = self.client.driver.engine().releases_open(ends) == 0 || now() >= ends;
            if is_over {
                break;
            }
            let until = self.inner.with(|table| table.fall_asleep(Some(ends)));
            if self.client.pass(until).is_err() {
                break;
            }
        }
        end(&self.inner, self.client.driver.engine().releases_owed(now()));
    }

    /// Takes in what came after the handle was closed: leases given back, which are released, and
    /// further calls of `shutdown`. Until when is waited: the nearest of their limits.
    fn take_last(&mut self, mut ends: Instant) -> Instant {
        for command in self.commands.drain(..) {
            match command {
                Command::Release(lease) | Command::Call(_, Task::Unlock { lease }) => drop(lease),
                Command::Shutdown { ends: other } => ends = ends.min(other),
                Command::Call(..) | Command::Close => {}
            }
        }
        self.client.driver.collect_dropped(now());
        self.client.driver.flush();
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

//! The crate `redlock` behind the line protocol.

use std::collections::HashMap;
use std::time::Duration;

use peer_protocol::{Cycles, Peer, Result, Span, arguments, locked, serve, threads, timed};
use redlock::{Lock, RedLock};

struct Redlock {
    manager: &'static RedLock,
    /// A manager that makes one attempt and no more.
    once: &'static RedLock,
    is_tuned: bool,
    held: HashMap<String, Lock<'static>>,
}

fn ms(ttl: Duration) -> usize {
    usize::try_from(ttl.as_millis()).unwrap_or(0)
}

impl Redlock {
    fn new(nodes: &[String], is_tuned: bool) -> Self {
        let urls: Vec<String> = nodes.iter().map(|node| format!("redis://{node}/")).collect();
        let mut manager = RedLock::new(urls);
        let mut once = manager.clone();
        once.set_retry(1, 1);
        if is_tuned {
            manager.set_retry(1_000, 5);
        }
        // A lock borrows its manager, and both live as long as the program.
        let (manager, once) = (Box::leak(Box::new(manager)), Box::leak(Box::new(once)));
        Self { manager, once, is_tuned, held: HashMap::new() }
    }
}

impl Peer for Redlock {
    fn versions(&self) -> String {
        locked(include_str!("../../Cargo.lock"), &["redlock"])
    }

    fn settings(&self) -> &'static str {
        if self.is_tuned { "`set_retry(1000, 5)`" } else { "`RedLock::new(urls)`, `acquire`" }
    }

    fn retry_ms(&self) -> Option<u64> {
        // Its own delay is random, up to this.
        Some(if self.is_tuned { 5 } else { 200 })
    }

    fn try_lock(&mut self, key: &str, ttl: Duration) -> Result<bool> {
        let lock = self.once.lock(key.as_bytes(), ms(ttl)).map_err(|error| error.to_string())?;
        Ok(lock.is_some_and(|lock| self.held.insert(key.to_owned(), lock).is_none()))
    }

    fn lock(&mut self, key: &str, ttl: Duration) -> Result<Span> {
        loop {
            // The steps of `acquire`, without its guard, which releases when it is dropped.
            let (lock, span) = timed(|| self.manager.lock(key.as_bytes(), ms(ttl)));
            if let Some(lock) = lock.map_err(|error| error.to_string())? {
                self.held.insert(key.to_owned(), lock);
                return Ok(span);
            }
        }
    }

    fn unlock(&mut self, key: &str) -> Result<(Span, bool)> {
        let lock = self.held.remove(key).ok_or("not locked")?;
        let ((), span) = timed(|| self.manager.unlock(&lock));
        // The crate does not report whether it still held the lock.
        Ok((span, true))
    }

    fn extend(&mut self, _: &str, _: Duration) -> Result<Option<bool>> {
        Ok(None)
    }

    fn cycles(&mut self, time: Duration, workers: usize, prefix: &str) -> Result<Cycles> {
        let manager = self.manager;
        Ok(threads(
            time,
            workers,
            prefix,
            || (),
            |(), key| {
                let lock = manager.lock(key.as_bytes(), ms(peer_protocol::TTL));
                let Ok(Some(lock)) = lock else { return false };
                manager.unlock(&lock);
                true
            },
        ))
    }
}

fn main() {
    let (nodes, is_tuned) = arguments();
    serve(&mut Redlock::new(&nodes, is_tuned));
}

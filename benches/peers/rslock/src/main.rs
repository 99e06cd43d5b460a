//! The crate `rslock` behind the line protocol.

use std::collections::HashMap;
use std::time::Duration;

use peer_protocol::{Cycles, Peer, Result, Span, TTL, arguments, locked, now, serve, timed};
use rslock::{Lock, LockError, LockManager};
use tokio::runtime::{Builder, Runtime};

struct Rslock {
    runtime: Runtime,
    manager: LockManager,
    /// A manager that makes one attempt and no more.
    once: LockManager,
    is_tuned: bool,
    held: HashMap<String, Lock>,
}

impl Rslock {
    fn new(nodes: &[String], is_tuned: bool) -> std::io::Result<Self> {
        let urls: Vec<String> = nodes.iter().map(|node| format!("redis://{node}/")).collect();
        let mut manager = LockManager::new(urls);
        let mut once = manager.clone();
        once.set_retry(1, Duration::from_millis(1));
        // As `#[tokio::main]` sets it up, or with all tasks on the one thread that waits for them.
        let mut runtime = Builder::new_multi_thread();
        if is_tuned {
            manager.set_retry(1_000, Duration::from_millis(5));
            runtime = Builder::new_current_thread();
        }
        let runtime = runtime.enable_all().build()?;
        Ok(Self { runtime, manager, once, is_tuned, held: HashMap::new() })
    }
}

impl Peer for Rslock {
    fn versions(&self) -> String {
        locked(include_str!("../../Cargo.lock"), &["rslock", "tokio"])
    }

    fn settings(&self) -> &'static str {
        if self.is_tuned {
            "`set_retry(1000, 5 ms)`, runtime of one thread"
        } else {
            "`LockManager::new(urls)`, `acquire`, `#[tokio::main]`"
        }
    }

    fn retry_ms(&self) -> Option<u64> {
        // Its own delay is random, up to this.
        Some(if self.is_tuned { 5 } else { 200 })
    }

    fn try_lock(&mut self, key: &str, ttl: Duration) -> Result<bool> {
        match self.runtime.block_on(self.once.lock(key.as_bytes(), ttl)) {
            Ok(lock) => Ok(self.held.insert(key.to_owned(), lock).is_none()),
            Err(LockError::Unavailable) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn lock(&mut self, key: &str, ttl: Duration) -> Result<Span> {
        let acquire = self.manager.acquire_no_guard(key.as_bytes(), ttl);
        let (lock, span) = timed(|| self.runtime.block_on(acquire));
        self.held.insert(key.to_owned(), lock.map_err(|error| error.to_string())?);
        Ok(span)
    }

    fn unlock(&mut self, key: &str) -> Result<(Span, bool)> {
        let lock = self.held.remove(key).ok_or("not locked")?;
        let ((), span) = timed(|| self.runtime.block_on(self.manager.unlock(&lock)));
        // The crate does not report whether it still held the lock.
        Ok((span, true))
    }

    fn extend(&mut self, key: &str, ttl: Duration) -> Result<Option<bool>> {
        let lock = self.held.get(key).ok_or("not locked")?;
        match self.runtime.block_on(self.once.extend(lock, ttl)) {
            Ok(_) => Ok(Some(true)),
            Err(LockError::Unavailable) => Ok(Some(false)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn cycles(&mut self, time: Duration, workers: usize, prefix: &str) -> Result<Cycles> {
        let begin = now();
        let end = begin + u64::try_from(time.as_nanos()).unwrap_or(0);
        let tasks: Vec<_> = (0..workers)
            .map(|worker| {
                let (manager, prefix) = (self.manager.clone(), prefix.to_owned());
                self.runtime.spawn(async move {
                    let (mut cycles, mut failed) = (0_u64, 0_u64);
                    while now() < end {
                        let key = format!("{prefix}:{worker}:{cycles:06}");
                        match manager.acquire(key.as_bytes(), TTL).await {
                            Ok(guard) => {
                                guard.release().await;
                                cycles += 1;
                            }
                            Err(_) => failed += 1,
                        }
                    }
                    (cycles, failed)
                })
            })
            .collect();
        let mut sum = Cycles { cycles: 0, failed: 0, seconds: 0.0 };
        for task in tasks {
            let (cycles, failed) =
                self.runtime.block_on(task).map_err(|error| error.to_string())?;
            sum.cycles += cycles;
            sum.failed += failed;
        }
        sum.seconds = (now() - begin) as f64 / 1e9;
        Ok(sum)
    }
}

fn main() -> std::io::Result<()> {
    let (nodes, is_tuned) = arguments();
    serve(&mut Rslock::new(&nodes, is_tuned)?);
    Ok(())
}

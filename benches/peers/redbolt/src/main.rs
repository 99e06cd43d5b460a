//! Redbolt behind the line protocol.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use peer_protocol::{
    Cycles, Peer, Result, Span, TTL, arguments, locked, now, serve, threads, timed,
};
use redbolt::driver::Outcome;
use redbolt::{
    Client, Config, IdleStrategy, Lease, LockError, LockOptions, RestartGuard, Retry, Shared,
    Unlocked,
};

struct Redbolt {
    client: Client,
    shared: Shared,
    is_tuned: bool,
    held: HashMap<String, Lease>,
}

impl Redbolt {
    fn new(nodes: &[String], is_tuned: bool) -> std::result::Result<Self, Box<dyn Error>> {
        // The servers have only just started, and have promised nothing before.
        let mut config = Config::new(nodes)?.restart_guard(RestartGuard::Off);
        if is_tuned {
            config = config.idle_strategy(IdleStrategy::SpinThenPark(Duration::from_micros(50)));
        }
        let client = Client::connect(config.clone())?;
        let shared = Shared::connect(config)?;
        Ok(Self { client, shared, is_tuned, held: HashMap::new() })
    }

    /// So many locks under way at once, on this thread alone.
    fn batch(&mut self, time: Duration, window: usize, prefix: &str) -> std::io::Result<Cycles> {
        let begin = now();
        let end = begin + u64::try_from(time.as_nanos()).unwrap_or(0);
        let (mut number, mut cycles, mut failed) = (0_u64, 0, 0);
        let mut next = || {
            number += 1;
            format!("{prefix}:{number:06}")
        };
        // As `lock` does, which the other workers call.
        let acquire = LockOptions::new(TTL).retry(Retry::default());
        let mut batch = self.client.batch();
        for _ in 0..window {
            failed += u64::from(batch.lock(next(), acquire.clone()).is_err());
        }
        while let Some(done) = batch.wait_completion()? {
            match done.result {
                Outcome::Lock(Ok(lease)) => {
                    failed += u64::from(batch.unlock(lease).is_err());
                    continue;
                }
                Outcome::Unlock(Ok(Unlocked::Released)) => cycles += 1,
                _ => failed += 1,
            }
            if now() < end {
                failed += u64::from(batch.lock(next(), acquire.clone()).is_err());
            }
        }
        Ok(Cycles { cycles, failed, seconds: (now() - begin) as f64 / 1e9 })
    }
}

impl Peer for Redbolt {
    fn versions(&self) -> String {
        locked(include_str!("../../Cargo.lock"), &["redbolt"])
    }

    fn settings(&self) -> &'static str {
        if self.is_tuned {
            "`IdleStrategy::SpinThenPark(50 us)`; 64 workers: `Client::batch`, 64 under way on one thread"
        } else {
            "`Client::connect(config)`, `lock`; 64 workers: 64 threads on one `Shared`"
        }
    }

    fn try_lock(&mut self, key: &str, ttl: Duration) -> Result<bool> {
        match self.client.try_lock(key, ttl) {
            Ok(lease) => Ok(self.held.insert(key.to_owned(), lease).is_none()),
            Err(LockError::Taken(_)) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn lock(&mut self, key: &str, ttl: Duration) -> Result<Span> {
        let (lease, span) = timed(|| self.client.lock(key, ttl));
        self.held.insert(key.to_owned(), lease.map_err(|error| error.to_string())?);
        Ok(span)
    }

    fn unlock(&mut self, key: &str) -> Result<(Span, bool)> {
        let lease = self.held.remove(key).ok_or("not locked")?;
        let (unlocked, span) = timed(|| self.client.unlock(lease));
        Ok((span, matches!(unlocked, Ok(Unlocked::Released))))
    }

    fn extend(&mut self, key: &str, ttl: Duration) -> Result<Option<bool>> {
        let lease = self.held.get_mut(key).ok_or("not locked")?;
        Ok(Some(self.client.extend(lease, ttl).is_ok()))
    }

    fn cycles(&mut self, time: Duration, workers: usize, prefix: &str) -> Result<Cycles> {
        if self.is_tuned {
            return self.batch(time, workers, prefix).map_err(|error| error.to_string());
        }
        let shared = &self.shared;
        Ok(threads(
            time,
            workers,
            prefix,
            || (),
            |(), key| {
                let Ok(guard) = shared.lock(key, TTL) else { return false };
                matches!(shared.unlock(guard), Ok(Unlocked::Released))
            },
        ))
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let (nodes, is_tuned) = arguments();
    serve(&mut Redbolt::new(&nodes, is_tuned)?);
    Ok(())
}

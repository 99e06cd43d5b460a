//! Redbolt behind the line protocol.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use peer_protocol::{
    Cycles, Peer, Result, Span, TTL, arguments, locked, now, serve, threads, timed,
};
use redbolt::driver::{Driver, Outcome};
use redbolt::{
    Client, Config, Guard, IdleStrategy, LockError, LockOptions, RestartGuard, Retry, Unlocked,
};

struct Redbolt {
    client: Client,
    config: Config,
    is_tuned: bool,
    held: HashMap<String, Guard>,
}

impl Redbolt {
    fn new(nodes: &[String], is_tuned: bool) -> std::result::Result<Self, Box<dyn Error>> {
        // The servers have only just started, and have promised nothing before.
        let mut config = Config::new(nodes)?.restart_guard(RestartGuard::Off);
        if is_tuned {
            config = config.idle_strategy(IdleStrategy::SpinThenPark(Duration::from_micros(50)));
        }
        let client = Client::connect(config.clone())?;
        Ok(Self { client, config, is_tuned, held: HashMap::new() })
    }

    /// This many locks under way at once, on this thread alone.
    fn looped(&self, time: Duration, window: usize, prefix: &str) -> Result<Cycles> {
        let text = |error: &dyn Error| error.to_string();
        let mut driver = Driver::standalone(self.config.clone()).map_err(|error| text(&error))?;
        while !driver.is_ready() {
            driver.drive();
            std::thread::yield_now();
        }
        let begin = now();
        let end = begin + u64::try_from(time.as_nanos()).unwrap_or(0);
        let (mut cycles, mut failed) = (0, 0);
        let mut key = format!("{prefix}:{:06}", 0).into_bytes();
        let mut next = |driver: &mut Driver| {
            count_up(&mut key);
            // Like `lock`, which the other workers call.
            let options = LockOptions::new(TTL).retry(Retry::default());
            u64::from(driver.lock(&key, options).is_err())
        };
        for _ in 0..window {
            failed += next(&mut driver);
        }
        while driver.in_flight() > 0 {
            driver.drive();
            let mut has_any = false;
            while let Some(done) = driver.completion() {
                has_any = true;
                match done.result {
                    Outcome::Lock(Ok(lease)) => {
                        failed += u64::from(driver.unlock(lease).is_err());
                        continue;
                    }
                    Outcome::Unlock(Ok(Unlocked::Released)) => cycles += 1,
                    _ => failed += 1,
                }
                if now() < end {
                    failed += next(&mut driver);
                }
            }
            if !has_any {
                std::thread::yield_now();
            }
        }
        Ok(Cycles { cycles, failed, seconds: (now() - begin) as f64 / 1e9 })
    }
}

/// Counts the digits at the end of a key up.
fn count_up(key: &mut [u8]) {
    for digit in key.iter_mut().rev() {
        if *digit != b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
}

impl Peer for Redbolt {
    fn versions(&self) -> String {
        locked(include_str!("../../Cargo.lock"), &["redbolt"])
    }

    fn settings(&self) -> &'static str {
        if self.is_tuned {
            "`IdleStrategy::SpinThenPark(50 us)`; 64 workers: a `Driver`, 64 under way on one thread"
        } else {
            "`Client::connect(config)`, `lock`; 64 workers: 64 threads on one `Client`"
        }
    }

    fn retry_ms(&self) -> Option<u64> {
        None
    }

    fn try_lock(&mut self, key: &str, ttl: Duration) -> Result<bool> {
        match self.client.try_lock(key, ttl).wait() {
            Ok(guard) => Ok(self.held.insert(key.to_owned(), guard).is_none()),
            Err(LockError::Taken(_)) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    fn try_lock_all(&mut self, keys: &[String], ttl: Duration) -> Result<Span> {
        let (guard, span) = timed(|| self.client.try_lock_all(keys, ttl).wait());
        let first = keys.first().ok_or("no key")?;
        self.held.insert(first.clone(), guard.map_err(|error| error.to_string())?);
        Ok(span)
    }

    fn lock(&mut self, key: &str, ttl: Duration) -> Result<Span> {
        let (guard, span) = timed(|| self.client.lock(key, ttl).wait());
        self.held.insert(key.to_owned(), guard.map_err(|error| error.to_string())?);
        Ok(span)
    }

    fn unlock(&mut self, key: &str) -> Result<(Span, bool)> {
        let guard = self.held.remove(key).ok_or("not locked")?;
        let (unlocked, span) = timed(|| guard.unlock().wait());
        Ok((span, matches!(unlocked, Ok(Unlocked::Released))))
    }

    fn extend(&mut self, key: &str, ttl: Duration) -> Result<Option<bool>> {
        let guard = self.held.get_mut(key).ok_or("not locked")?;
        Ok(Some(guard.extend(ttl).wait().is_ok()))
    }

    fn cycles(&mut self, time: Duration, workers: usize, prefix: &str) -> Result<Cycles> {
        if self.is_tuned {
            return self.looped(time, workers, prefix);
        }
        let client = &self.client;
        Ok(threads(
            time,
            workers,
            prefix,
            || (),
            |(), key| {
                let Ok(guard) = client.lock(key, TTL).wait() else { return false };
                matches!(guard.unlock().wait(), Ok(Unlocked::Released))
            },
        ))
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let (nodes, is_tuned) = arguments();
    serve(&mut Redbolt::new(&nodes, is_tuned)?);
    Ok(())
}

//! A driver with the smallest possible loop for one thread: the benches measure a client's extra
//! cost beside it.

use std::io;
use std::time::Duration;

use mio::{Events, Poll};
use redbolt::driver::{Completion, Driver, Outcome};
use redbolt::{Config, IdleStrategy, Lease, LockOptions, Unlocked, now};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

/// The driver, and the poll with which its sockets are registered.
pub struct Looped {
    pub driver: Driver,
    poll: Poll,
    events: Events,
    spins: bool,
}

impl Looped {
    /// Connects: drives until a quorum may vote, for some seconds at most.
    pub fn connect(config: Config, wait: IdleStrategy) -> Anything<Self> {
        let poll = Poll::new()?;
        let tokens = 0..config.nodes().len() + 1;
        let driver = Driver::new(config, poll.registry(), tokens)?;
        let spins = wait == IdleStrategy::Spin;
        let mut looped = Self { driver, poll, events: Events::with_capacity(64), spins };
        let end = now() + Duration::from_secs(5);
        looped.driver.drive();
        while !looped.driver.is_ready() {
            if now() > end {
                return Err("no quorum may vote".into());
            }
            looped.pass()?;
        }
        Ok(looped)
    }

    /// Waits for the next result.
    pub fn wait_completion(&mut self) -> io::Result<Completion> {
        loop {
            if let Some(done) = self.driver.completion() {
                return Ok(done);
            }
            self.pass()?;
        }
    }

    fn pass(&mut self) -> io::Result<()> {
        let timeout = if self.spins { Some(Duration::ZERO) } else { self.driver.timeout() };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(()) | Err(_) => {}
        }
        for event in &self.events {
            self.driver.ready(event);
        }
        if !self.spins || !self.events.is_empty() {
            self.driver.drive();
        }
        Ok(())
    }

    /// Makes one attempt.
    pub fn try_lock(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Anything<Lease> {
        self.driver.try_lock(key, options)?;
        self.driver.flush();
        loop {
            if let Outcome::Lock(result) = self.wait_completion()?.result {
                return Ok(result?);
            }
        }
    }

    /// Releases a lease, and waits for the result.
    pub fn unlock(&mut self, lease: Lease) -> Anything<Unlocked> {
        self.driver.unlock(lease)?;
        self.driver.flush();
        loop {
            if let Outcome::Unlock(result) = self.wait_completion()?.result {
                return Ok(result?);
            }
        }
    }
}

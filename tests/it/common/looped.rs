//! [`Looped`]: a driver whose loop is the test's own thread, for effects that only that thread may
//! see.

use std::io;
use std::time::Duration;

use redbolt::driver::mio::{Events, Poll};
use redbolt::driver::{Driver, Outcome};
use redbolt::engine::OpId;
use redbolt::{Config, ExtendError, Lease, LockError, LockOptions, UnlockError, Unlocked, now};
use redbolt_rig::{PATIENCE, ms};

pub(crate) struct Looped {
    driver: Driver,
    poll: Poll,
    events: Events,
}

#[cfg_attr(
    not(any(feature = "tracing", feature = "metrics")),
    expect(dead_code, reason = "mostly for the log and for metrics")
)]
impl Looped {
    /// Drives until every node votes, or the driver knows why it does not.
    #[track_caller]
    pub(crate) fn connect(config: Config) -> Self {
        let (poll, nodes) = (Poll::new().expect("a poll"), config.nodes().len());
        let driver = Driver::new(config, poll.registry(), 0..nodes + 1).expect("a driver");
        let mut looped = Self { driver, poll, events: Events::with_capacity(64) };
        looped.driver.drive();
        let end = now() + PATIENCE;
        while !looped.driver.is_settled() && now() < end {
            looped.pass(end);
        }
        looped
    }

    pub(crate) fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    pub(crate) fn pass(&mut self, end: redbolt::Instant) {
        let timeout = self.driver.timeout().unwrap_or(PATIENCE).min(now().until(end));
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => panic!("{error}"),
            Ok(()) | Err(_) => {}
        }
        for event in &self.events {
            self.driver.ready(event);
        }
        self.driver.drive();
    }

    /// Drives for this time. Returns false at once when a lease is lost.
    pub(crate) fn drive_for(&mut self, time: Duration) -> bool {
        let end = now() + time;
        loop {
            while let Some(done) = self.driver.completion() {
                if matches!(done.result, Outcome::Lost(_)) {
                    return false;
                }
            }
            if now() >= end {
                return true;
            }
            self.pass(end);
        }
    }

    fn outcome(&mut self, op: OpId) -> Outcome {
        let end = now() + PATIENCE;
        self.driver.flush();
        while now() < end {
            while let Some(done) = self.driver.completion() {
                if done.id == op {
                    return done.result;
                }
            }
            self.pass(end);
        }
        panic!("no result")
    }

    pub(crate) fn try_lock(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<Lease, LockError> {
        let op = self.driver.try_lock(key, options)?;
        let Outcome::Lock(result) = self.outcome(op) else { panic!("another outcome") };
        result
    }

    pub(crate) fn lock(
        &mut self,
        key: impl AsRef<[u8]>,
        options: impl Into<LockOptions>,
    ) -> Result<Lease, LockError> {
        let op = self.driver.lock(key, options)?;
        let Outcome::Lock(result) = self.outcome(op) else { panic!("another outcome") };
        result
    }

    pub(crate) fn extend(&mut self, lease: &Lease, ttl: Duration) -> Result<(), ExtendError> {
        let op = self.driver.extend(lease, ttl)?;
        let Outcome::Extend(result) = self.outcome(op) else { panic!("another outcome") };
        result
    }

    pub(crate) fn unlock(&mut self, lease: Lease) -> Result<Unlocked, UnlockError> {
        let op = self.driver.unlock(lease)?;
        let Outcome::Unlock(result) = self.outcome(op) else { panic!("another outcome") };
        result
    }

    /// Drives, for at most `limit`, until no node owes an answer and none is owed a release.
    pub(crate) fn wait_released(&mut self, limit: Duration) {
        let end = now() + limit;
        loop {
            self.drive_for(ms(1));
            let nodes = self.driver.nodes();
            if nodes.iter().all(|node| node.unanswered == 0 && node.debts == 0) || now() >= end {
                return;
            }
        }
    }
}

//! [`Poller`]: the loop of a [`Client`](crate::Client) around its driver.

use std::io;
use std::time::Duration;

use mio::Registry;
use mio::{Events, Poll};

use super::{Driver, clock};
use crate::config::{Config, IdleStrategy};
use crate::error::ConnectError;
use crate::quorum::NODES_MAX;
use crate::time::Instant;

/// Events taken per poll; more come with the next poll.
const EVENTS_MAX: usize = 64;

/// How often a spin polls between two clock reads: all of these polls take about a microsecond.
const SPINS: u32 = 6;

/// Waits for a driver's sockets as an idle strategy says, and drives the driver.
pub(crate) struct Poller {
    poll: Poll,
    events: Events,
    idle: IdleStrategy,
    /// An event came that does not belong to the driver's sockets: another thread woke this one.
    is_woken: bool,
}

impl Poller {
    /// A driver that has begun to connect, and its loop. The nodes have the first tokens, name
    /// resolution the next one.
    pub(crate) fn open(config: Config) -> Result<(Driver, Self), ConnectError> {
        let (poll, idle) = (Poll::new()?, config.idle_strategy);
        let mut driver = Driver::new(config, poll.registry(), 0..NODES_MAX + 1)?;
        driver.drive();
        Ok((
            driver,
            Self { poll, events: Events::with_capacity(EVENTS_MAX), idle, is_woken: false },
        ))
    }

    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// One pass without waiting.
    pub(crate) fn read(&mut self, driver: &mut Driver) -> Result<(), io::ErrorKind> {
        self.poll_for(driver, Some(Duration::ZERO))?;
        driver.drive();
        Ok(())
    }

    /// One pass: waits for readiness or a deadline, at most until `until`, and drives. Returns
    /// whether events of the driver's sockets, and nothing else, ended the wait before `until`.
    pub(crate) fn pass(
        &mut self,
        driver: &mut Driver,
        until: Option<Instant>,
    ) -> Result<bool, io::ErrorKind> {
        let deadline =
            |driver: &Driver| [until, driver.next_deadline()].into_iter().flatten().min();
        self.is_woken = false;
        match self.idle {
            IdleStrategy::Park => self.poll_until(driver, deadline(driver))?,
            IdleStrategy::Spin => {
                // Mostly an event comes before the spin has to look at the timers.
                let end = |driver: &Driver| deadline(driver).unwrap_or(Instant::MAX);
                self.spin_until(driver, end, false)?;
            }
            IdleStrategy::SpinThenPark(spin) => {
                let (end, deadline) = (clock::now() + spin, deadline(driver));
                let end = deadline.map_or(end, |deadline| deadline.min(end));
                let is_ready = self.spin_until(driver, |_| end, true)?;
                if !is_ready && deadline.is_none_or(|deadline| deadline > end) {
                    self.poll_until(driver, deadline)?;
                }
            }
        }
        driver.drive();
        // A node that sends without end has an event ready at each pass.
        let is_over = until.is_some_and(|until| until <= driver.engine().last_pass());
        Ok(!self.is_woken && !self.events.is_empty() && !is_over)
    }

    /// As [`pass`](Self::pass), but sleeps at once, whatever the idle strategy.
    pub(crate) fn park(
        &mut self,
        driver: &mut Driver,
        until: Option<Instant>,
    ) -> Result<(), io::ErrorKind> {
        let deadline = [until, driver.next_deadline()].into_iter().flatten().min();
        self.poll_until(driver, deadline)?;
        driver.drive();
        Ok(())
    }

    /// Polls without sleeping until something is ready (true) or the `end` has come (false). With
    /// `is_polite` other threads get the core in between, and may keep it for some time. Such a
    /// thread may be a node on this machine, for which the call waits anyway.
    fn spin_until(
        &mut self,
        driver: &mut Driver,
        end: impl Fn(&Driver) -> Instant,
        is_polite: bool,
    ) -> Result<bool, io::ErrorKind> {
        let polls = if is_polite { 1 } else { SPINS };
        loop {
            for _ in 0..polls {
                self.poll_for(driver, Some(Duration::ZERO))?;
                if !self.events.is_empty() {
                    return Ok(true);
                }
            }
            if is_polite {
                std::thread::yield_now();
            }
            if end(driver) <= clock::now() {
                return Ok(false);
            }
        }
    }

    fn poll_until(
        &mut self,
        driver: &mut Driver,
        deadline: Option<Instant>,
    ) -> Result<(), io::ErrorKind> {
        self.poll_for(driver, deadline.map(|deadline| clock::now().until(deadline)))
    }

    fn poll_for(
        &mut self,
        driver: &mut Driver,
        timeout: Option<Duration>,
    ) -> Result<(), io::ErrorKind> {
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            // A signal: the call goes on waiting.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            Err(error) => return Err(error.kind()),
        }
        for event in &self.events {
            self.is_woken |= !driver.ready(event);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    /// A node that sends without end keeps no caller beyond the end of its wait.
    #[test]
    fn events_of_sockets_do_not_prolong_a_wait_that_is_over() {
        let node = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config::new([node.local_addr().unwrap().to_string()]).unwrap();
        let (mut driver, mut poller) = Poller::open(config).unwrap();
        let (mut socket, _) = node.accept().unwrap();
        assert_eq!(poller.pass(&mut driver, None), Ok(true), "the connection is open");
        socket.write_all(b"+").unwrap();
        assert_eq!(poller.pass(&mut driver, Some(clock::now())), Ok(false), "the wait is over");
        assert!(!poller.events.is_empty(), "there was an event");
    }
}

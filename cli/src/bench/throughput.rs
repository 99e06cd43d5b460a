//! The throughput half of `redbolt bench`: one driver with a constant number of locks under way.

use std::io;
use std::time::Duration;

use redbolt::driver::mio::{Events, Poll};
use redbolt::driver::{Completion, Driver, Outcome};
use redbolt::{Config, Instant, now};

use super::counts::Counts;
use super::keys::{Keys, TTL};
use super::limit::Limit;
use crate::exit::Failure;
use crate::output::tell;
use crate::session::{CONNECT_LIMIT, SHUTDOWN_LIMIT};
use crate::signals::Signals;
use crate::times::record;

/// The longest sleep between two looks for signals.
const STEP: Duration = Duration::from_millis(20);

struct Window {
    driver: Driver,
    poll: Poll,
    events: Events,
    spins: bool,
    /// When each operation under way began, by its index.
    begun: Vec<Instant>,
    keys: Keys,
    counts: Counts,
}

/// Acquires and releases with `in_flight` operations under way.
pub(super) fn measure(
    config: Config,
    in_flight: usize,
    spins: bool,
    limit: Limit,
    signals: &Signals,
) -> Result<Counts, Failure> {
    let (poll, nodes) = (Poll::new()?, config.nodes().len());
    let driver = Driver::new(config.in_flight_max(in_flight), poll.registry(), 0..nodes + 1)?;
    let mut window = Window {
        driver,
        poll,
        events: Events::with_capacity(64),
        spins,
        begun: vec![Instant::default(); in_flight],
        keys: Keys::new(),
        counts: Counts::new()?,
    };
    window.connect(signals)?;
    let started = now();
    // Acquisitions begin again outside of the loop over results: an acquisition that fails at once
    // would make that loop endless.
    let mut missing = in_flight;
    let signal = loop {
        for _ in 0..missing {
            window.acquire()?;
        }
        missing = 0;
        while let Some(done) = window.driver.completion() {
            missing += window.take(done)?;
        }
        if missing == 0 {
            window.pass()?;
        }
        tell(std::iter::from_fn(|| window.driver.notice()));
        let signal = signals.next();
        if signal.is_some() || limit.is_over(&window.counts, started) {
            break signal;
        }
    };
    window.counts.elapsed = now().saturating_since(started);
    // Releases the locks of operations under way before the process ends.
    window.driver.shutdown(SHUTDOWN_LIMIT);
    signal.map_or(Ok(window.counts), |signal| Err(Failure::signal(signal)))
}

impl Window {
    /// Drives until each node is settled, for a second at most, or until a signal.
    fn connect(&mut self, signals: &Signals) -> Result<(), Failure> {
        let end = now() + CONNECT_LIMIT;
        self.driver.drive();
        while !self.driver.is_settled() && now() < end {
            if let Some(signal) = signals.next() {
                return Err(Failure::signal(signal));
            }
            self.pass()?;
        }
        Ok(())
    }

    fn pass(&mut self) -> io::Result<()> {
        self.driver.flush();
        let timeout = if self.spins { Some(Duration::ZERO) } else { self.driver.timeout() };
        let timeout = timeout.map_or(STEP, |timeout| timeout.min(STEP));
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(()) | Err(_) => {}
        }
        for event in &self.events {
            self.driver.ready(event);
        }
        self.driver.drive();
        Ok(())
    }

    fn acquire(&mut self) -> Result<(), Failure> {
        let begun = now();
        let op = self.driver.try_lock(self.keys.next(), TTL)?;
        self.begin(op.index(), begun);
        Ok(())
    }

    fn begin(&mut self, index: usize, begun: Instant) {
        if let Some(place) = self.begun.get_mut(index) {
            *place = begun;
        }
    }

    /// Takes a result, and begins the release of a lock. Returns the number of cycles that ended.
    fn take(&mut self, done: Completion) -> Result<usize, Failure> {
        let ended = now();
        let begun = self.begun.get(done.id.index()).copied().unwrap_or(ended);
        let took = ended.saturating_since(begun);
        match done.result {
            Outcome::Lock(Ok(lease)) => {
                record(&mut self.counts.acquire, took);
                let op = self.driver.unlock(lease)?;
                self.begin(op.index(), ended);
                return Ok(0);
            }
            Outcome::Lock(Err(error)) => self.counts.fail(error),
            Outcome::Unlock(_) => {
                record(&mut self.counts.release, took);
                self.counts.cycles += 1;
            }
            Outcome::Extend(_) | Outcome::Adopt(_) | _ => {}
        }
        Ok(1)
    }
}

//! The throughput half of `redbolt bench`: a driver in a loop of its own, always so many locks
//! under way.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use redbolt::driver::Outcome;
use redbolt::engine::{NodeState, OpId};
use redbolt::mio::{Events, Poll};
use redbolt::time::Instant;
use redbolt::{Acquire, Client, Config, Driver, now};

use crate::args::Polling;
use crate::bench::{Counts, Keys, Limit, PROGRESS_STEP, TTL, record};
use crate::exit::Failure;
use crate::output::tell;
use crate::progress::Bar;
use crate::session::{CONNECT_LIMIT, is_known};

struct Loop {
    driver: Driver,
    poll: Poll,
    events: Events,
    polling: Polling,
    /// When each operation under way began, and whether it acquires.
    begun: HashMap<OpId, Instant>,
    keys: Keys,
    counts: Counts,
}

/// Acquires and releases with `in_flight` operations under way.
pub(crate) fn measure(
    config: Config,
    polling: Polling,
    in_flight: usize,
    limit: Limit,
    progress: &mut Bar,
) -> Result<Counts, Failure> {
    // Fails as every other command does if there is no quorum to measure.
    drop(Client::connect(config.clone())?);
    let poll = Poll::new()?;
    let tokens = 0..config.nodes().len() + 1;
    let config = config.in_flight_max(in_flight.saturating_add(1));
    let driver = Driver::new(config, poll.registry(), tokens)?;
    let mut run = Loop {
        driver,
        poll,
        events: Events::with_capacity(256),
        polling,
        begun: HashMap::with_capacity(2 * in_flight),
        keys: Keys::new(),
        counts: Counts::new()?,
    };
    run.connect()?;
    let started = now();
    for _ in 0..in_flight {
        run.acquire()?;
    }
    loop {
        run.pass(None)?;
        tell(|| run.driver.notice());
        let is_over = limit.is_over(&run.counts, started);
        run.take(!is_over)?;
        if run.counts.cycles % PROGRESS_STEP < u64::try_from(in_flight).unwrap_or(0) {
            progress.show(limit.permille(&run.counts, started));
        }
        if is_over {
            run.counts.elapsed = now().saturating_since(started);
            break;
        }
    }
    while run.driver.in_flight() > 0 {
        run.pass(None)?;
        run.take(false)?;
    }
    run.driver.shutdown(DRAIN_LIMIT);
    Ok(run.counts)
}

/// How long the last releases may take; keys end by themselves after that.
const DRAIN_LIMIT: Duration = Duration::from_millis(50);

impl Loop {
    fn connect(&mut self) -> Result<(), Failure> {
        let end = now() + CONNECT_LIMIT;
        self.driver.turn();
        while now() < end {
            let nodes = self.driver.nodes();
            if nodes.iter().all(|node| node.state == NodeState::Admitted || is_known(node)) {
                break;
            }
            self.pass(Some(end))?;
        }
        Ok(())
    }

    fn pass(&mut self, until: Option<Instant>) -> Result<(), Failure> {
        let timeout = match self.polling {
            Polling::Spin => Some(Duration::ZERO),
            Polling::Park => {
                let deadline = [until, self.driver.next_deadline()].into_iter().flatten().min();
                deadline.map(|deadline| now().until(deadline))
            }
        };
        match self.poll.poll(&mut self.events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            self.driver.ready(event);
        }
        self.driver.turn();
        Ok(())
    }

    fn acquire(&mut self) -> Result<(), Failure> {
        let begun = now();
        let op = self.driver.acquire(self.keys.next(), Acquire::new(TTL))?;
        self.begun.insert(op, begun);
        Ok(())
    }

    /// Takes the results in, and begins as much anew: a release after each lock, and a lock after
    /// each release if `goes_on`.
    fn take(&mut self, goes_on: bool) -> Result<(), Failure> {
        let mut free = 0;
        while let Some(done) = self.driver.completion() {
            let ended = now();
            let begun = self.begun.remove(&done.id).unwrap_or(ended);
            let took = ended.saturating_since(begun);
            match done.result {
                Outcome::Lock(Ok(lease)) => {
                    record(&mut self.counts.acquire, took);
                    let op = self.driver.unlock(lease)?;
                    self.begun.insert(op, ended);
                    continue;
                }
                Outcome::Lock(Err(error)) => self.counts.fail(error.into()),
                Outcome::Unlock(_) => {
                    record(&mut self.counts.release, took);
                    self.counts.cycles += 1;
                }
                Outcome::Extend(_) | Outcome::Adopt(_) | _ => {}
            }
            free += 1;
        }
        // Not within the loop: an attempt may fail at once, and then it would have no end.
        for _ in 0..if goes_on { free } else { 0 } {
            self.acquire()?;
        }
        self.driver.flush();
        Ok(())
    }
}

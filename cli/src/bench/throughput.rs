//! The throughput half of `redbolt bench`: one batch with a constant number of locks under way.

use redbolt::Instant;
use redbolt::driver::{Completion, Outcome};
use redbolt::{Batch, Client, Config, now};

use super::counts::Counts;
use super::keys::{Keys, TTL};
use super::limit::{Limit, PROGRESS_STEP};
use crate::exit::Failure;
use crate::output::tell;
use crate::progress::Progress;
use crate::times::record;

struct Window<'client> {
    batch: Batch<'client>,
    /// When each operation under way began, by its index.
    begun: Vec<Instant>,
    keys: Keys,
    counts: Counts,
}

/// Acquires and releases with `in_flight` operations under way.
pub(super) fn measure(
    config: Config,
    in_flight: usize,
    limit: Limit,
    progress: &Progress,
) -> Result<Counts, Failure> {
    let mut client = Client::connect(config.in_flight_max(in_flight))?;
    let mut window = Window {
        batch: client.batch(),
        begun: vec![Instant::default(); in_flight],
        keys: Keys::new(),
        counts: Counts::new()?,
    };
    let started = now();
    let mut shown_at = 0;
    // Failed acquisitions begin again together: one may fail at once, and then again.
    let mut missing = in_flight;
    loop {
        for _ in 0..missing {
            window.acquire()?;
        }
        let Some(done) = window.batch.wait_completion()? else { break };
        missing = window.take(done)?;
        while let Some(done) = window.batch.completion() {
            missing += window.take(done)?;
        }
        tell(|| window.batch.notice());
        if limit.is_over(&window.counts, started) {
            break;
        }
        if window.counts.cycles >= shown_at {
            shown_at = window.counts.cycles + PROGRESS_STEP;
            progress.show(limit.permille(&window.counts, started));
        }
    }
    window.counts.elapsed = now().saturating_since(started);
    // Dropping the batch gives up what is under way, and releases it.
    Ok(window.counts)
}

impl Window<'_> {
    fn acquire(&mut self) -> Result<(), Failure> {
        let begun = now();
        let op = self.batch.try_lock(self.keys.next(), TTL)?;
        self.begin(op.index(), begun);
        Ok(())
    }

    fn begin(&mut self, index: usize, begun: Instant) {
        if let Some(place) = self.begun.get_mut(index) {
            *place = begun;
        }
    }

    /// Takes a result, and begins the release of a lock. Returns how many cycles ended.
    fn take(&mut self, done: Completion) -> Result<usize, Failure> {
        let ended = now();
        let begun = self.begun.get(done.id.index()).copied().unwrap_or(ended);
        let took = ended.saturating_since(begun);
        match done.result {
            Outcome::Lock(Ok(lease)) => {
                record(&mut self.counts.acquire, took);
                let op = self.batch.unlock(lease)?;
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

//! When a benchmark ends, and how far it has come.

use std::time::Duration;

use redbolt::{Instant, now};

use super::counts::Counts;
use crate::bench_args::BenchArgs;
use crate::exit::Failure;

/// Cycles between two looks at the progress bar.
pub(super) const PROGRESS_STEP: u64 = 512;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    cycles: u64,
    length: Duration,
}

impl Limit {
    pub(super) fn of(args: &BenchArgs) -> Result<Self, Failure> {
        let seconds = args.seconds.unwrap_or(3.0);
        let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| !length.is_zero());
        let length =
            length.ok_or_else(|| Failure::usage("--seconds must be a number above zero"))?;
        Ok(match args.iterations {
            Some(cycles) => Self { cycles: cycles.get(), length: Duration::MAX },
            None => Self { cycles: u64::MAX, length },
        })
    }

    pub(super) fn is_over(self, counts: &Counts, started: Instant) -> bool {
        counts.cycles + counts.failures >= self.cycles
            || now().saturating_since(started) >= self.length
    }

    /// How far a run has come, in thousandths.
    pub(super) fn permille(self, counts: &Counts, started: Instant) -> u64 {
        if self.cycles == u64::MAX {
            let elapsed = now().saturating_since(started).as_micros().saturating_mul(1000);
            return u64::try_from(elapsed / self.length.as_micros().max(1))
                .unwrap_or(1000)
                .min(1000);
        }
        ((counts.cycles + counts.failures).saturating_mul(1000) / self.cycles).min(1000)
    }
}

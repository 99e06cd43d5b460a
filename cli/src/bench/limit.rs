//! When a benchmark ends.

use std::time::Duration;

use redbolt::{Instant, now};

use super::counts::Counts;
use crate::bench_args::BenchArgs;
use crate::exit::Failure;

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
}

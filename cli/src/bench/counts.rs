//! The counts of a benchmark: cycles, failures and the times of both calls.

use std::time::Duration;

use hdrhistogram::Histogram;
use redbolt::LockError;

use crate::exit::Failure;
use crate::times::histogram;

#[derive(Debug)]
pub(super) struct Counts {
    pub(super) acquire: Histogram<u64>,
    pub(super) release: Histogram<u64>,
    pub(super) cycles: u64,
    pub(super) failures: u64,
    pub(super) elapsed: Duration,
    /// The last failure, to report if no cycle succeeds or most fail.
    pub(super) failure: Option<LockError>,
}

impl Counts {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            acquire: histogram()?,
            release: histogram()?,
            cycles: 0,
            failures: 0,
            elapsed: Duration::ZERO,
            failure: None,
        })
    }

    /// Cycles per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(super) fn rate(&self) -> f64 {
        self.cycles as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(super) fn fail(&mut self, failure: LockError) {
        self.failures += 1;
        self.failure = Some(failure);
    }
}

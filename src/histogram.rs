//! [`Histogram`]: durations, counted in buckets that are narrower for shorter ones.
//!
//! Layer: bottom, plain values.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts of durations, in buckets whose width is an eighth of their power of two. A value that is
/// read back is at most a sixteenth off, and below 1,024 ns at most 64 ns. The range is from 128 ns
/// to 4.5 minutes. A longer duration counts as 4.5 minutes.
pub struct Histogram {
    counts: Box<[AtomicU64]>,
}

/// The nanoseconds in a unit are two to the power of this.
const UNIT_BITS: u32 = 7;

/// The buckets in a power of two are two to the power of this.
const STEP_BITS: u32 = 3;
const STEPS: u64 = 1 << STEP_BITS;

/// The highest power of two of units that has buckets of its own.
const POWER_MAX: u32 = 30;

const BUCKETS: usize = ((POWER_MAX - STEP_BITS + 2) as usize) << STEP_BITS;

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub(crate) fn add(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(bucket_of(nanos)) {
            let count = count.get_mut();
            *count = count.wrapping_add(1);
        }
    }

    /// Counts one duration, from any thread.
    pub(crate) fn add_shared(&self, nanos: u64) {
        if let Some(count) = self.counts.get(bucket_of(nanos)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many durations each bucket holds, with the middle of the bucket. Empty buckets are
    /// included, so that each bucket always has the same place.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        (0..).zip(counts).map(|(bucket, count)| (middle(bucket), count))
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets().fold(0, |sum, (_, count)| sum.wrapping_add(count))
    }
}

/// The bucket of a duration; the last bucket also has all longer ones.
#[inline]
fn bucket_of(nanos: u64) -> usize {
    let units = nanos >> UNIT_BITS;
    let bucket = if units < STEPS {
        units
    } else {
        let shift = units.ilog2() - STEP_BITS;
        (u64::from(shift) << STEP_BITS) + (units >> shift)
    };
    usize::try_from(bucket).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn middle(bucket: u64) -> Duration {
    let (first, width) = if bucket < 2 * STEPS {
        (bucket, 1)
    } else {
        let shift = (bucket >> STEP_BITS) - 1;
        ((STEPS + bucket % STEPS) << shift, 1_u64 << shift)
    };
    Duration::from_nanos((first << UNIT_BITS) + (width << UNIT_BITS) / 2)
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: std::iter::repeat_with(AtomicU64::default).take(BUCKETS).collect() }
    }
}

impl Clone for Histogram {
    fn clone(&self) -> Self {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed).into());
        Self { counts: counts.collect() }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.buckets().filter(|(_, count)| *count > 0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_back_at_most_a_sixteenth_off() {
        let mut nanos = 1_024_u64;
        while nanos < 120_000_000_000 {
            for nanos in [nanos, nanos + nanos / 3, nanos * 2 - 1] {
                let mut histogram = Histogram::default();
                histogram.add(nanos);
                let (read, _) = histogram.buckets().find(|(_, count)| *count == 1).unwrap();
                let off = u64::try_from(read.as_nanos()).unwrap().abs_diff(nanos);
                assert!(off * 16 <= nanos, "{nanos} ns was read as {read:?}");
            }
            nanos *= 2;
        }
    }

    #[test]
    fn every_duration_has_a_bucket_and_longer_ones_have_later_ones() {
        let bucket = |nanos: u64| {
            let mut histogram = Histogram::default();
            histogram.add(nanos);
            assert_eq!(histogram.count(), 1);
            histogram.buckets().position(|(_, count)| count == 1).unwrap()
        };
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let mut last = 0;
        for power in 0..64 {
            for nanos in [(1_u64 << power) - 1, 1 << power, (1 << power) | ((1 << power) / 2)] {
                let this = bucket(nanos);
                assert!(this >= last && this < BUCKETS, "{nanos}");
                last = this;
            }
        }
    }
}

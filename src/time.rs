//! [`Instant`]: a point on the clock of all of Redbolt's deadlines.
//!
//! Layer: bottom. Reads no clock; the layers above the sans-IO line pass `now` in.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time in whole nanoseconds since an arbitrary origin (the boot of the machine when it
/// comes from [`crate::driver`]).
///
/// The standard library's type does not fit: it stops while the machine is suspended, and a
/// server's TTL does not. All arithmetic saturates: a deadline that is too far away to express is
/// the last one that can be expressed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The last point in time that can be expressed.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is the later one.
    #[inline]
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This many milliseconds later.
    #[inline]
    pub(crate) const fn plus_millis(self, millis: u32) -> Self {
        // A u32 of milliseconds is below 2^52 nanoseconds.
        Self(self.0.saturating_add(millis as u64 * 1_000_000))
    }

    /// This many nanoseconds later.
    #[inline]
    pub(crate) const fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// This many nanoseconds earlier.
    #[inline]
    pub(crate) const fn minus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_sub(nanos))
    }

    /// Time from `earlier` to `self`, zero if `earlier` is the later one.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time from `self` until `later`, zero if that has passed.
    #[must_use]
    pub const fn until(self, later: Self) -> Duration {
        later.saturating_since(self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(rhs)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Time from `rhs` to `self`, zero if `rhs` is the later one.
    fn sub(self, rhs: Self) -> Duration {
        self.saturating_since(rhs)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Nanoseconds of `duration`; more than 584 years saturate.
#[inline]
pub(crate) const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}
/// A reading of a wall clock at a moment of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    pub(crate) read_at: Instant,
    /// Microseconds since 1970.
    pub(crate) micros: u64,
    /// The clock may have been read up to this many microseconds before `read_at`.
    pub(crate) error: u64,
}

impl WallClock {
    /// The clock's reading at `now`, if nobody sets it meanwhile.
    pub(crate) fn at(self, now: Instant) -> u64 {
        self.micros.saturating_add(now.nanos_since(self.read_at) / 1_000)
    }

    /// By how many microseconds two clocks may differ.
    pub(crate) fn skew(self, other: Self) -> u64 {
        let (first, last) =
            if self.read_at <= other.read_at { (self, other) } else { (other, self) };
        let apart = first.at(last.read_at).abs_diff(last.micros);
        apart.saturating_add(self.error).saturating_add(other.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_two_instants_is_a_duration_and_never_negative() {
        let began = Instant::from_nanos(5);
        let pause = Duration::from_nanos(2);
        assert_eq!((began + pause) - began, pause);
        assert_eq!(began - (began + pause), Duration::ZERO);
    }
}

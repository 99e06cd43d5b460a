//! The clocks of the embedded nodes.
//!
//! Layer: above the sans-IO line. No other file of this crate reads a clock.

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::Instant;

/// Now, on the steady clock that drives the models.
pub(super) fn now() -> Instant {
    Instant::from_nanos(nanos(clock_gettime(STEADY)))
}

/// The wall clock, in milliseconds since 1970.
pub(super) fn wall_ms() -> i64 {
    i64::try_from(nanos(clock_gettime(ClockId::Realtime)) / 1_000_000).unwrap_or(i64::MAX)
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// A clock that runs on while the machine is suspended, if the system has one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const STEADY: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const STEADY: ClockId = ClockId::Monotonic;

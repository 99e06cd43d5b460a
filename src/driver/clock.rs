//! The one clock: everything above the sans-IO line reads time here.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::time::Instant;

/// The clock runs on while the machine is suspended, as a server's TTL does. Never the wall clock.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;

/// On macOS the monotonic clock includes suspension.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The system's wall clock: the time since the beginning of 1970. Only fenced and announced
/// locks use it.
pub(super) fn wall() -> Duration {
    let time = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The time now. Costs about 23 ns on Linux: it reads the kernel's page and makes no system call.
#[inline]
#[must_use]
pub fn now() -> Instant {
    let time = clock_gettime(CLOCK);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

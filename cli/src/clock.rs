//! The wall clock for people.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Now, in UTC, to the second.
pub(crate) fn time() -> String {
    humantime::format_rfc3339_seconds(wall()).to_string()
}

/// The present reading of the wall clock.
pub(crate) fn wall() -> SystemTime {
    let since_1970 = Duration::try_from(clock_gettime(ClockId::Realtime)).unwrap_or_default();
    SystemTime::UNIX_EPOCH + since_1970
}

//! The wall clock for people.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Now, in UTC, to the second.
pub(crate) fn time() -> String {
    let since_1970 = Duration::try_from(clock_gettime(ClockId::Realtime)).unwrap_or_default();
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + since_1970).to_string()
}

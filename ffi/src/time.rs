//! The clock and the version.

use std::ffi::c_char;
use std::time::Duration;

use crate::border::or_else;

/// Nanoseconds on the clock of all deadlines here. It goes on while the machine is suspended
/// (`CLOCK_BOOTTIME` on Linux).
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_now_ns() -> u64 {
    or_else(u64::MAX, || Some(redbolt::now().as_nanos()))
}

/// The version of the library, such as "0.1.0"; static text.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// A duration in nanoseconds; the largest number is more than 500 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

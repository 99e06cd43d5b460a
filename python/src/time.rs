//! Times are seconds in Python, whole or in parts.

use std::time::Duration;

use crate::failure::Failure;

/// The duration of a number of seconds from Python.
pub(crate) fn duration(name: &str, seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        Failure::Argument(format!("{name} is {seconds}: it must be a number of seconds, from 0 on"))
    })
}

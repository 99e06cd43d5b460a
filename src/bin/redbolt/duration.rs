//! How a person writes a duration: `30s`, `250ms`, `1m30s`.

use std::time::Duration;

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "write it as 30s, 250ms or 1m30s".to_owned())
}

/// Servers count a TTL in milliseconds.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration(text)?;
    if ttl.subsec_nanos() % 1_000_000 != 0 {
        return Err("a TTL has whole milliseconds, such as 250ms".to_owned());
    }
    Ok(ttl)
}

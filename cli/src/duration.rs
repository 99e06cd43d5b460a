//! Durations as a person writes them: `30s`, `250ms`, `1m30s`.

use std::time::Duration;

/// How long `--wait forever` waits: longer than any client lives.
pub(crate) const FOREVER: Duration = Duration::from_secs(366 * 24 * 60 * 60);

pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| {
        if text.parse::<u64>().is_ok_and(|number| number > 0) {
            format!("it has no unit: write {text}s or {text}ms")
        } else {
            "write it as 30s, 250ms or 1m30s".to_owned()
        }
    })
}

/// A duration, or `forever`.
pub(crate) fn wait(text: &str) -> Result<Duration, String> {
    if text == "forever" {
        return Ok(FOREVER);
    }
    duration(text).map_err(|why| format!("{why}, or forever"))
}

/// Servers count a TTL in milliseconds.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration(text)?;
    if ttl.subsec_nanos() % 1_000_000 != 0 {
        return Err("a TTL has whole milliseconds, such as 250ms".to_owned());
    }
    Ok(ttl)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// For any text both parsers agree, and a TTL has whole milliseconds.
        #[test]
        fn a_ttl_is_a_duration_of_whole_milliseconds(text in ".*|[0-9]{1,22} ?(ns|us|ms|s|m|h|d|y| )[0-9a-z ]{0,9}") {
            match (duration(&text), ttl(&text)) {
                (Ok(read), Ok(ttl)) => prop_assert_eq!(read, ttl),
                (Ok(read), Err(_)) => prop_assert_ne!(read.subsec_nanos() % 1_000_000, 0),
                (Err(_), result) => prop_assert!(result.is_err()),
            }
        }

        #[test]
        fn a_duration_is_read_as_it_is_written(seconds in any::<u64>(), shift in 0..64_u32, nanos in 0..1_000_000_000_u32) {
            let written = Duration::new(seconds >> shift, nanos);
            prop_assert_eq!(duration(&humantime::format_duration(written).to_string()), Ok(written));
        }
    }
}

//! The times of many calls: recorded in nanoseconds, shown as quantiles.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::Value;

use crate::exit::Failure;
use crate::output::short;

/// An empty histogram, for up to a minute per call.
pub(crate) fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .map_err(|error| Failure::system(error.to_string()))
}

/// The time that the fraction `quantile` of the calls did not exceed.
pub(crate) fn at(nanos: &Histogram<u64>, quantile: f64) -> Duration {
    Duration::from_nanos(nanos.value_at_quantile(quantile))
}

pub(crate) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

pub(crate) const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

/// The quantiles in microseconds, to a tenth.
pub(crate) fn percentiles(nanos: &Histogram<u64>) -> Value {
    let tenths = |quantile| nanos.value_at_quantile(quantile) / 100;
    let value = |quantile| {
        Value::from(f64::from(u32::try_from(tenths(quantile)).unwrap_or(u32::MAX)) / 10.0)
    };
    QUANTILES.iter().map(|&(name, quantile)| (name.to_owned(), value(quantile))).collect()
}

/// As [`short`], but with tenths of microseconds for times below a millisecond.
pub(crate) fn precise(duration: Duration) -> String {
    if duration < Duration::from_millis(1) {
        format!("{:.1} us", duration.as_secs_f64() * 1e6)
    } else {
        short(duration)
    }
}

//! The latency half of `redbolt bench`: one lock after the other.

use std::time::Duration;

use redbolt::{Config, now};

use super::counts::Counts;
use super::keys::{Keys, TTL};
use super::limit::Limit;
use crate::args::Global;
use crate::exit::Failure;
use crate::look;
use crate::output::tell;
use crate::session::SHUTDOWN_LIMIT;
use crate::signals::Signals;
use crate::times::record;

/// Cycles before the measurement begins.
const WARM_UP: u64 = 200;

/// The warm-up ends after this time even if nodes are far away: its effect is small beside their
/// round trip.
const WARM_UP_TIME: Duration = Duration::from_millis(500);

/// Acquires and releases one lock at a time.
pub(super) fn measure(
    global: &Global,
    config: Config,
    limit: Limit,
    signals: &Signals,
) -> Result<Counts, Failure> {
    let client = look::connected(global, config, signals)?;
    let mut counts = Counts::new()?;
    let mut keys = Keys::new();
    let warm_by = now() + WARM_UP_TIME;
    for _ in 0..WARM_UP {
        if now() >= warm_by {
            break;
        }
        if let Ok(lease) = client.try_lock(keys.next(), TTL).wait() {
            lease.unlock().wait()?;
        }
    }
    let started = now();
    let mut signal = None;
    while signal.is_none() && !limit.is_over(&counts, started) {
        let key = keys.next();
        let asked = now();
        match client.try_lock(key, TTL).wait() {
            Ok(guard) => {
                let got = now();
                guard.unlock().wait()?;
                let released = now();
                record(&mut counts.acquire, got.saturating_since(asked));
                record(&mut counts.release, released.saturating_since(got));
                counts.cycles += 1;
            }
            Err(error) => counts.fail(error),
        }
        tell(client.notices().wait().into_iter());
        signal = signals.next();
    }
    counts.elapsed = now().saturating_since(started);
    client.shutdown(SHUTDOWN_LIMIT).wait();
    signal.map_or(Ok(counts), |signal| Err(Failure::signal(signal)))
}

//! When to reconnect after a lost connection.

use std::time::Duration;

use crate::time::Instant;

/// The first delay; each failure doubles it.
const DELAY_FIRST: Duration = Duration::from_millis(50);

/// The longest delay. An admission that lasts longer resets the delays.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(5);

/// Counts failures in a row and computes how long to wait.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait before the next attempt: none at the first failure in a row, then 50 ms doubling to
    /// 5 s, less up to a random half (`random`: any 32 bits).
    pub(crate) fn next(&mut self, random: u32) -> Duration {
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let full = DELAY_FIRST.saturating_mul(1 << doublings.min(10)).min(DELAY_MAX);
        full - full / 2 * (random >> 16) / (1 << 16)
    }

    /// A connection that was admitted at `since` ended at `now`. If connections keep ending soon
    /// after their admission, the node is not healthy, and the client does not retry at once for
    /// ever.
    pub(crate) fn admission_ended(&mut self, since: Instant, now: Instant) {
        if now.saturating_since(since) > DELAY_MAX {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_five_seconds_and_at_most_half_is_random() {
        for random in [0, 1 << 31, u32::MAX] {
            let mut backoff = Backoff::default();
            assert_eq!(backoff.next(random), Duration::ZERO);
            for expected_ms in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
                let expected = Duration::from_millis(expected_ms);
                let delay = backoff.next(random);
                assert!(delay <= expected && delay >= expected / 2, "{delay:?} of {expected:?}");
            }
        }
    }

    #[test]
    fn a_node_that_flaps_is_not_retried_at_once_each_time() {
        let second = |s: u64| Instant::from_nanos(s * 1_000_000_000);
        let mut backoff = Backoff::default();
        backoff.next(0);
        backoff.admission_ended(second(10), second(11));
        assert!(backoff.next(0) > Duration::ZERO);
        backoff.admission_ended(second(20), second(26));
        assert_eq!(backoff.next(0), Duration::ZERO);
    }
}

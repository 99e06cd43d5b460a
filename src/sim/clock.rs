//! One machine's clock: it runs at its own rate from its own origin.

use crate::time::Instant;

/// Nanoseconds of the simulation's own, true time.
pub(super) type Global = u64;

pub(super) const US: Global = 1_000;
pub(super) const MS: Global = 1_000_000;
pub(super) const SECOND: Global = 1_000_000_000;

/// A clock that is `ppm` parts in a million too fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) origin: u64,
    pub(super) ppm: i64,
}

impl Clock {
    /// What the clock shows at `at`.
    pub(super) fn local(self, at: Global) -> Instant {
        Instant::from_nanos(self.origin + self.scaled(at))
    }

    /// What the clock shows at `at`, for the server that runs by it.
    pub(super) fn on_server(self, at: Global) -> redbolt_embedded::Instant {
        redbolt_embedded::Instant::from_nanos(self.local(at).as_nanos())
    }

    /// The first moment at which the clock shows `local` or more.
    pub(super) fn global(self, local: Instant) -> Global {
        let passed = local.as_nanos().saturating_sub(self.origin);
        let rate = u128::from((MILLION + self.ppm).unsigned_abs());
        let at = (u128::from(passed) * u128::from(MILLION.unsigned_abs())).div_ceil(rate);
        u64::try_from(at).unwrap_or(Global::MAX)
    }

    fn scaled(self, at: Global) -> u64 {
        let (million, rate) = (MILLION.unsigned_abs(), (MILLION + self.ppm).unsigned_abs());
        // In two parts, because a division of 128 bits takes long.
        (at / million).saturating_mul(rate).saturating_add(at % million * rate / million)
    }
}

const MILLION: i64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_of_a_reading_is_the_first_that_shows_it() {
        for ppm in [-5000, -1, 0, 1, 5000, 50_000] {
            let clock = Clock { origin: 77, ppm };
            for at in [0, 1, 999, 12_345_678_901, 500 * SECOND] {
                let shown = clock.local(at);
                let back = clock.global(shown);
                assert!(back <= at && clock.local(back) == shown);
                assert!(back == 0 || clock.local(back - 1) < shown);
            }
        }
    }
}

//! Faults of a node: the client reports each once, until the node is well again. After each failure
//! in a row the client waits longer before it reconnects, at most 5 s.
//!
//! # Invariants
//!
//! - The client reports a cause at most once between two times at which the node was well, however
//!   many locks fail by it.
//! - Watching for trouble costs a grant nothing: the code checks [`Node::is_plain`] instead of
//!   [`Node::is_admitted`].

use std::time::Duration;

use crate::error::Cause;
use crate::time::Instant;

/// A grant shows that a node is well only if the node has refused nothing for this long. At its
/// memory limit a server refuses and grants in turn. A node that passes the proof and refuses each
/// release is greeted, admitted and refused again every [`DELAY_MAX`].
pub(super) const CALM: Duration = Duration::from_secs(2 * DELAY_MAX.as_secs());

/// The causes of a node's trouble, and the cause that the client reported last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    /// The causes since the node was last well, one bit each.
    causes: u64,
    /// The last new cause; [`Cause::None`] while the node is well.
    pub(super) latest: Cause,
    /// The last reported cause.
    pub(crate) told: Cause,
    /// When the client last saw a cause.
    seen_at: Instant,
}

impl Trouble {
    pub(super) fn note(&mut self, cause: Cause, now: Instant) {
        self.seen_at = now;
        let bit = 1_u64.checked_shl(u32::from(cause as u8)).unwrap_or(0);
        if self.causes & bit == 0 {
            self.causes |= bit;
            self.latest = cause;
        }
    }

    /// A greeting found nothing against the node. It tells nothing about causes that only a write
    /// shows.
    pub(super) fn admitted(&mut self) {
        if !matches!(
            self.latest,
            Cause::OutOfMemory
                | Cause::SaveFailed
                | Cause::NoReplicas
                | Cause::NoPermission
                | Cause::NoDialect
        ) {
            self.end();
        }
    }

    /// The node granted a vote.
    pub(super) fn granted(&mut self, now: Instant) {
        // A denied key tells nothing about other keys, and they tell nothing about it.
        if self.latest != Cause::KeyDenied && self.seen_at + CALM <= now {
            self.end();
        }
    }

    const fn end(&mut self) {
        self.causes = 0;
        self.latest = Cause::None;
    }

    pub(super) const fn is_none(&self) -> bool {
        self.causes == 0
    }

    /// Whether [`take`](Self::take) has something to return.
    pub(crate) fn has_news(&self) -> bool {
        self.latest != self.told
    }

    /// The news of the node: a cause against it, or [`Cause::None`] once it is well again.
    pub(crate) fn take(&mut self) -> Option<Cause> {
        let is_new = self.latest != self.told;
        self.told = self.latest;
        is_new.then_some(self.latest)
    }
}

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
    /// The wait before the next attempt: none after the first failure, then 50 ms, doubling to 5 s.
    /// `random`, any 32 bits, takes off up to half.
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
    fn every_cause_has_a_bit_of_its_own() {
        assert!((Cause::Gone as u8) < 64, "the last cause");
    }

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

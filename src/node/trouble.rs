//! Faults of a node: the client reports each once, until the node is well again.
//!
//! # Invariants
//!
//! - The client reports a cause at most once between two times at which the node was well, however
//!   many locks fail by it.
//! - Watching for trouble costs a grant nothing: the code checks [`Node::is_plain`] instead of
//!   [`Node::is_admitted`].

use std::time::Duration;

use super::backoff::DELAY_MAX;
use crate::error::Cause;
use crate::time::Instant;

/// A grant shows that a node is well only if the node has refused nothing for this long. At its
/// memory limit a server refuses and grants in turn. A node without a release step is greeted,
/// admitted and refused again every [`DELAY_MAX`].
pub(super) const CALM: Duration = Duration::from_secs(2 * DELAY_MAX.as_secs());

/// The causes of a node's trouble, and the cause that the client reported last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// The causes since the node was last well, one bit each.
    causes: u64,
    /// The last new cause; [`Cause::None`] while the node is well.
    pub(super) latest: Cause,
    /// The last reported cause.
    pub(super) told: Cause,
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

    pub(super) fn take(&mut self) -> Option<Cause> {
        let is_new = self.latest != self.told;
        self.told = self.latest;
        is_new.then_some(self.latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_bit_of_its_own() {
        assert!((Cause::Gone as u8) < 64, "the last cause");
    }
}

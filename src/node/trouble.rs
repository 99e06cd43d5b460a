//! Faults of a node that a person must repair: each reported once, until the node is well again.
//!
//! # Invariants
//!
//! - The client reports a cause at most once between two times at which the node was well, however
//!   many locks fail by it.
//! - Watching for trouble costs a grant nothing: the code checks [`Node::is_plain`] instead of
//!   [`Node::is_admitted`].

use std::time::Duration;

use super::Node;
use super::backoff::DELAY_MAX;
use crate::error::Cause;
use crate::time::Instant;

/// A grant shows that a node is well only if the node has refused nothing for this long. At its
/// memory limit a server refuses and grants in turn. A node without a release step is greeted,
/// admitted and refused again every [`DELAY_MAX`].
pub(super) const CALM: Duration = Duration::from_secs(2 * DELAY_MAX.as_secs());

/// The causes of a node's trouble, and which of them were reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// The causes since the node was last well, one bit each.
    causes: u64,
    /// The last new cause; [`Cause::None`] while the node is well.
    latest: Cause,
    /// The last reported cause.
    told: Cause,
    /// When a cause was last seen.
    seen_at: Instant,
}

impl Trouble {
    /// Notes a cause.
    pub(super) fn note(&mut self, cause: Cause, now: Instant) {
        self.seen_at = now;
        let bit = 1_u64.checked_shl(u32::from(cause as u8)).unwrap_or(0);
        if self.causes & bit == 0 {
            self.causes |= bit;
            self.latest = cause;
        }
    }

    /// A greeting found nothing against the node. That tells nothing about causes that only a write
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

    fn take(&mut self) -> Option<Cause> {
        let is_new = self.latest != self.told;
        self.told = self.latest;
        is_new.then_some(self.latest)
    }
}

impl Node {
    /// Whether the node's grants count, and tell nothing new about it.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// An answer, or the end of a greeting, gave a cause that a person must repair.
    pub(crate) fn note_trouble(&mut self, cause: Cause, now: Instant) {
        self.trouble.note(cause, now);
        self.trouble_changed();
    }

    /// A greeting found nothing against the node.
    pub(super) fn end_trouble_of_greeting(&mut self) {
        self.trouble.admitted();
        self.trouble_changed();
    }

    /// The node granted a vote.
    pub(crate) fn granted_in_trouble(&mut self, now: Instant) {
        if self.is_admitted() {
            self.trouble.granted(now);
            self.trouble_changed();
        }
    }

    fn trouble_changed(&mut self) {
        self.is_plain = self.is_admitted() && self.trouble.is_none();
        self.is_changed = true;
    }

    /// The news of the node: a cause against it, or [`Cause::None`] once it is well again.
    pub(crate) fn take_news(&mut self) -> Option<Cause> {
        self.trouble.take()
    }

    /// The cause in the node's last report.
    #[cfg(feature = "tracing")]
    pub(crate) const fn last_news(&self) -> Cause {
        self.trouble.told
    }

    /// Whether [`take_news`](Self::take_news) has something to return.
    pub(crate) fn has_news(&self) -> bool {
        self.trouble.latest != self.trouble.told
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

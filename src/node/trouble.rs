//! What is wrong with a node that somebody must mend: told once, until the node is well again.
//!
//! # Invariants
//!
//! - A cause is told at most once between two times that the node was well, however many locks it
//!   fails.
//! - A grant costs nothing more for being watched: [`Node::is_plain`] stands in for
//!   [`Node::is_admitted`].

use std::time::Duration;

use super::Node;
use super::backoff::DELAY_MAX;
use crate::error::Cause;
use crate::time::Instant;

/// A grant shows that a node is well only if nothing was refused for so long: at the limit of its
/// memory a server refuses and grants in turn, and one that lost its last release step is greeted,
/// admitted and refused anew each [`DELAY_MAX`].
pub(super) const CALM: Duration = Duration::from_secs(2 * DELAY_MAX.as_secs());

/// The causes for which a node is ill, and what was said of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// The causes since the node was last well, a bit each.
    causes: u64,
    /// The last one that was new; [`Cause::None`] while the node is well.
    latest: Cause,
    /// What was last told of it.
    told: Cause,
    /// When a cause was last seen.
    seen_at: Instant,
}

impl Trouble {
    /// Takes a cause in.
    pub(super) fn note(&mut self, cause: Cause, now: Instant) {
        self.seen_at = now;
        let bit = 1_u64.checked_shl(u32::from(cause as u8)).unwrap_or(0);
        if self.causes & bit == 0 {
            self.causes |= bit;
            self.latest = cause;
        }
    }

    /// A greeting found nothing against the node. That is no answer to what only a write shows.
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
        // A key that is denied says nothing of the others, nor they of it.
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
    /// Whether its grants count, and say nothing new of it.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// An answer, or the end of a greeting, gave a reason that somebody must mend.
    pub(crate) fn note_trouble(&mut self, cause: Cause, now: Instant) {
        self.trouble.note(cause, now);
        self.trouble_changed();
    }

    /// A greeting found nothing against the node.
    pub(super) fn end_trouble_of_greeting(&mut self) {
        self.trouble.admitted();
        self.trouble_changed();
    }

    /// It granted a vote.
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

    /// What is to be told of the node: a reason against it, or [`Cause::None`] once it is well
    /// again.
    pub(crate) fn take_news(&mut self) -> Option<Cause> {
        self.trouble.take()
    }

    /// What was last told of the node.
    #[cfg(feature = "tracing")]
    pub(crate) const fn last_news(&self) -> Cause {
        self.trouble.told
    }

    /// Whether [`take_news`](Self::take_news) has something to tell.
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

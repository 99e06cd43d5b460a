//! The engine's counts: one addition per event, read only by the exporter.
//!
//! # Invariants
//!
//! - The engine itself never reads them: with and without them the same bytes go out.
//! - No series names a key, a token or text from a server.

use super::locks::op::Outcome;
use crate::count::{Count, Times};
use crate::error::{ExtendError, UnlockError, Unlocked};

/// The counts of an engine; those of a node are kept with the node.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) attempts: Ends,
    /// Extensions that callers began, and the engine's own.
    pub(super) extensions: Ends,
    pub(super) keeps: Ends,
    pub(super) released: Count,
    pub(super) not_held: Count,
    pub(super) unknown: Count,
    pub(super) unreported: Count,
    pub(super) lost_expired: Count,
    pub(super) lost_gone: Count,
    pub(super) wakes_sent: Count,
    pub(super) wakes_received: Count,
    /// From the first byte of the winning attempt to its hand-over.
    pub(super) attempt_times: Times,
    /// From the start of the first attempt to the hand-over, for calls that needed more than one.
    pub(super) wait_times: Times,
}

/// How attempts or extensions ended.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) won: Count,
    pub(super) taken: Count,
    pub(super) no_quorum: Count,
    pub(super) expired: Count,
    pub(super) cancelled: Count,
}

impl Ends {
    /// An attempt or an extension of the engine's own ended.
    pub(super) const fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Won => self.won.up(),
            Outcome::Taken | Outcome::Lost => self.taken.up(),
            Outcome::NoQuorum => self.no_quorum.up(),
            Outcome::Expired => self.expired.up(),
            Outcome::Cancelled => self.cancelled.up(),
            Outcome::Open | Outcome::Unlocked(_) | Outcome::Answered => {}
        }
    }

    /// An extension ended for its caller.
    pub(super) const fn note_extension(&mut self, result: &Result<(), ExtendError>) {
        match result {
            Ok(()) => self.won.up(),
            Err(ExtendError::Lost(_)) => self.taken.up(),
            Err(ExtendError::NoQuorum(_)) => self.no_quorum.up(),
            Err(ExtendError::Expired) => self.expired.up(),
            Err(_) => self.cancelled.up(),
        }
    }
}

impl Counts {
    /// A release was reported.
    pub(super) const fn note_release(&mut self, result: Result<Unlocked, UnlockError>) {
        match result {
            Ok(Unlocked::Released) => self.released.up(),
            Ok(Unlocked::Unknown) => self.unknown.up(),
            // A release that was begun has no other error.
            Err(_) => self.not_held.up(),
        }
    }
}

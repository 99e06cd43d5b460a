//! The engine's counts, for the feature `metrics`: one addition per event, read only by the
//! exporter.
//!
//! # Invariants
//!
//! - The engine itself never reads them: with and without them it sends the same bytes.
//! - No series names a key, a token or text from a server.

use crate::count::{CallCounts, CallEnd};
use crate::engine::event::LostCause;
use crate::engine::locks::op::{Verdict, Way};
use crate::error::{UnlockError, Unlocked};
use crate::histogram::Histogram;
use crate::slab::{Index as _, SlotIndex};
use crate::time::Instant;

/// The counts of an engine; each node keeps its own.
#[derive(Debug, Default)]
pub(in crate::engine) struct Counts {
    pub(in crate::engine) attempts: Ends,
    /// Extensions that callers began; `keeps` counts the engine's own.
    pub(in crate::engine) extensions: Ends,
    pub(in crate::engine) keeps: Ends,
    pub(in crate::engine) released: u64,
    pub(in crate::engine) not_held: u64,
    pub(in crate::engine) unknown: u64,
    pub(in crate::engine) unreported: u64,
    pub(in crate::engine) lost_expired: u64,
    pub(in crate::engine) lost_gone: u64,
    pub(in crate::engine) lost_forgotten: u64,
    pub(in crate::engine) wakes_sent: u64,
    pub(in crate::engine) wakes_received: u64,
    pub(in crate::engine) transfers_sent: u64,
    pub(in crate::engine) transfers_received: u64,
    /// By [`Way`].
    pub(in crate::engine) leases: [u64; 4],
    /// Fenced attempts that needed a second round.
    pub(in crate::engine) second_rounds: u64,
    /// From the first byte of the winning attempt to its hand-over.
    pub(in crate::engine) attempt_times: Histogram,
    pub(in crate::engine) calls: CallCounts,
    /// When each lease was handed over, by the place of its slot.
    handed_over: Vec<Instant>,
}

/// The engine never reads its counts, so those of a copied engine begin anew.
#[cfg(feature = "sim")]
impl Clone for Counts {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// How attempts or extensions ended: won, taken or lost, without a quorum, expired, cancelled.
#[derive(Debug, Default)]
pub(in crate::engine) struct Ends(pub(in crate::engine) [u64; 5]);

impl Ends {
    pub(in crate::engine) const fn ended(&mut self, outcome: Verdict) {
        let Self([won, taken, no_quorum, expired, cancelled]) = self;
        *match outcome {
            Verdict::Won => won,
            Verdict::Taken | Verdict::Lost => taken,
            Verdict::NoQuorum => no_quorum,
            Verdict::Expired => expired,
            Verdict::Cancelled => cancelled,
            Verdict::Open | Verdict::Unlocked(_) | Verdict::Answered => return,
        } += 1;
    }
}

impl Counts {
    /// A call that began at `began` ends, with or without a lease.
    #[inline]
    pub(in crate::engine) fn call_ended(&mut self, end: CallEnd, began: Instant, now: Instant) {
        self.calls.ended(end, now.nanos_since(began));
    }

    /// A call was won, by an attempt that began at `attempt_began`.
    #[inline(always)]
    pub(in crate::engine) fn won(&mut self, way: Way, attempt_began: Instant, now: Instant) {
        let [first, transfer, wake, poll] = &mut self.leases;
        *match way {
            Way::First => first,
            Way::Transfer => transfer,
            Way::Wake => wake,
            Way::Poll => poll,
        } += 1;
        self.attempts.ended(Verdict::Won);
        self.attempt_times.add(now.nanos_since(attempt_began));
    }

    /// The engine hands a lease over.
    #[inline]
    pub(in crate::engine) fn hold_begins(&mut self, slot: SlotIndex, now: Instant) {
        let place = slot.place();
        if place >= self.handed_over.len() {
            self.handed_over.resize(place + 1, now);
        }
        if let Some(begins) = self.handed_over.get_mut(place) {
            *begins = now;
        }
    }

    /// When the lease of that slot was handed over.
    pub(in crate::engine) fn hold_began(&self, slot: SlotIndex) -> Option<Instant> {
        self.handed_over.get(slot.place()).copied()
    }

    /// The holder unlocks or drops a lease.
    #[inline]
    pub(in crate::engine) fn hold_ends(&mut self, slot: SlotIndex, now: Instant) {
        if let Some(&began) = self.handed_over.get(slot.place()) {
            self.calls.held(now.nanos_since(began));
        }
    }

    /// A release was reported.
    pub(in crate::engine) const fn released(&mut self, result: Result<Unlocked, UnlockError>) {
        match result {
            Ok(Unlocked::Released) => self.released += 1,
            Ok(Unlocked::Unknown) => self.unknown += 1,
            // A release that has begun has no other error.
            Err(_) => self.not_held += 1,
        }
    }

    /// A lease in the engine's care was lost.
    pub(in crate::engine) const fn lost(&mut self, cause: LostCause) {
        match cause {
            LostCause::Expired => self.lost_expired += 1,
            LostCause::Gone => self.lost_gone += 1,
            LostCause::Forgotten => self.lost_forgotten += 1,
        }
    }
}

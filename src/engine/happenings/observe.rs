//! The observers of a happening: it becomes a line of the log, a count, a sight of the simulation.
//!
//! The code that decides builds a [`Happening`]. Only [`Locks::observe`] tells the observers of it.
//! The machine of `wait` has no `Locks`, so it tells the simulation itself what only it knows.
//!
//! # Invariants
//!
//! - Observing decides nothing, and reads no clock: with and without it the client sends the same
//!   bytes.
//! - Without its feature each of the three compiles to nothing. Without a subscriber at its level a
//!   line of the log costs one check, and the engine computes nothing for it.

use super::Happening;
#[cfg(feature = "metrics")]
use crate::count::CallEnd;
use crate::engine::locks::core::Locks;
#[cfg(feature = "metrics")]
use crate::engine::locks::op::{Called, Verdict, Way};
#[cfg(feature = "metrics")]
use crate::error::Cause;
use crate::witness::{Sight, saw};

/// Does something for the counts.
#[cfg(feature = "metrics")]
macro_rules! count {
    ($count:expr) => {{
        $count;
    }};
}
#[cfg(not(feature = "metrics"))]
macro_rules! count {
    ($count:expr) => {{}};
}

impl Locks {
    /// Tells all observers. Each call compiles to the one arm that it names, because it is inlined.
    #[cfg_attr(
        not(feature = "metrics"),
        expect(unused_variables, reason = "each is for the counts")
    )]
    #[cfg_attr(
        not(any(feature = "tracing", feature = "metrics")),
        expect(clippy::needless_pass_by_ref_mut, reason = "it counts with a feature only")
    )]
    #[expect(clippy::too_many_lines, reason = "a table with an arm for each")]
    #[inline(always)]
    pub(in crate::engine) fn observe(&mut self, what: Happening<'_>) {
        #[cfg(feature = "tracing")]
        if what.level() <= tracing::level_filters::LevelFilter::current() {
            self.log(&what);
        }
        match what {
            Happening::Call { op, now, .. } => {
                count!({
                    let op = self.ops.at_mut(op);
                    op.called = Called { at: now, waits: op.plan.is_patient };
                });
            }
            #[cfg(feature = "metrics")]
            Happening::CallRefused { error } => {
                count!(self.counts.calls.ended(CallEnd::of(error, false), 0));
            }
            Happening::Queued { op } => {
                count!(self.ops.at_mut(op).way = Way::Poll);
                saw(Sight::QueuedBehind);
            }
            Happening::Gated => saw(Sight::Gated),
            Happening::NotAsked { node } => {
                count!(self.nodes.at_mut(node).counts.failed.up(Cause::Gated));
            }
            Happening::Vote { node, vote, .. } => {
                count!(self.nodes.at_mut(node).counts.vote(vote));
            }
            Happening::SecondRound => {
                count!(self.counts.second_rounds += 1);
                saw(Sight::SecondRound);
            }
            Happening::AttemptFailed { op, outcome } => {
                count!({
                    self.counts.attempts.ended(outcome);
                    self.ops.at_mut(op).way = Way::Poll;
                });
            }
            Happening::AttemptCancelled => count!(self.counts.attempts.ended(Verdict::Cancelled)),
            Happening::Woken { op, node } => {
                count!(self.ops.at_mut(op).way = Way::Wake);
                if node.is_some() {
                    count!(self.counts.wakes_received += 1);
                    saw(Sight::Woken);
                }
            }
            Happening::WaitEnded => saw(Sight::WaitEnded),
            Happening::Lease { op, slot, now } => {
                count!({
                    let op = self.ops.at_mut(op);
                    let (called, way) = (op.called.at, std::mem::take(&mut op.way));
                    self.counts.won(way, self.slots.at(slot).began, now);
                    self.counts.call_ended(CallEnd::Won, called, now);
                    self.counts.hold_begins(slot, now);
                });
            }
            Happening::Refused { op, error, now, .. } => {
                count!({
                    let op = self.ops.at_mut(op);
                    op.way = Way::default();
                    let end = CallEnd::of(error, op.called.waits);
                    self.counts.call_ended(end, op.called.at, now);
                });
            }
            Happening::WakeSent { .. } => {
                count!(self.counts.wakes_sent += 1);
            }
            Happening::HandedOver { .. } => {
                count!(self.counts.transfers_sent += 1);
                saw(Sight::HandedOver);
            }
            Happening::TakenOver { op } => {
                count!({
                    self.counts.transfers_received += 1;
                    self.ops.at_mut(op).way = Way::Transfer;
                });
                saw(Sight::TakenOver);
            }
            Happening::TransferUnwanted { .. } => {
                saw(Sight::TransferUnwanted);
            }
            Happening::Healed { .. } => saw(Sight::Healed),
            Happening::Unlock { lease, now } => {
                count!(if self.slots.held(lease).is_some() {
                    self.counts.hold_ends(lease.slot, now);
                });
            }
            Happening::Extended { outcome, .. } => {
                count!(self.counts.extensions.ended(outcome));
            }
            Happening::Adopted { slot, now } => count!(self.counts.hold_begins(slot, now)),
            Happening::KeptAlive { outcome, .. } => {
                count!(self.counts.keeps.ended(outcome));
            }
            Happening::Lost { cause, .. } => {
                count!(self.counts.lost(cause));
            }
            Happening::Unreported => count!(self.counts.unreported += 1),
            Happening::Released { result, .. } => {
                count!(self.counts.released(result));
            }
            Happening::DebtOwed { node, .. } => {
                count!(self.nodes.at_mut(node).counts.debts += 1);
            }
            Happening::DebtsLeft { node, count } => {
                count!(self.nodes.at_mut(node).counts.left += count as u64);
            }
            Happening::Disconnected { node, cause } => {
                count!(self.nodes.at_mut(node).counts.lost.up(cause));
            }
            // For the log alone.
            Happening::Attempt { .. }
            | Happening::Won { .. }
            | Happening::Waits { .. }
            | Happening::Extension { .. }
            | Happening::Release { .. }
            | Happening::DebtPaid { .. }
            | Happening::DebtDropped { .. }
            | Happening::NodeChanged { .. } => {}
        }
    }
}

//! What happened, and what that means for those who watch: a line of the log, a count, a sight of
//! the simulation.
//!
//! Code that decides names a [`Happening`], and [`Locks::observe`] alone says who hears of it. What
//! only the machine of `wait` knows it tells the simulation itself, because it has no locks.
//!
//! # Invariants
//!
//! - Observing decides nothing, and reads no clock: with and without it the same bytes go out.
//! - Without its feature each of the three compiles to nothing; without a subscriber at its level a
//!   line of the log costs one check, and nothing is computed for it.

#[cfg(feature = "metrics")]
use super::op::Called;
use super::op::Outcome;
use super::slot::LeaseId;
use super::state::Locks;
#[cfg(feature = "metrics")]
use crate::count::CallEnd;
use crate::engine::event::LostCause;
#[cfg(feature = "metrics")]
use crate::engine::ways::Way;
use crate::error::{Cause, LockError, UnlockError, Unlocked, Vote};
use crate::node::Now;
use crate::quorum::NodeId;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;
use crate::witness::{Sight, saw};

/// What happened.
pub(in crate::engine) enum Happening<'a> {
    /// A call for a lock has begun.
    Call { op: OpIndex, slot: SlotIndex, ttl_ms: u32, now: Instant },
    /// A call did not begin.
    #[cfg(feature = "metrics")]
    CallRefused { error: &'a LockError },
    /// It goes to the end of a queue without an attempt.
    Queued { op: OpIndex },
    /// An attempt begins.
    Attempt { op: OpIndex },
    /// It asks one node before the others.
    Gated,
    /// That one did not grant, so this one is not asked.
    NotAsked { node: NodeId },
    /// A node's vote is known.
    Vote { node: NodeId, slot: SlotIndex, vote: Vote },
    /// A quorum has granted, but not accepted the proposed fence.
    SecondRound,
    /// A quorum has granted.
    Won { op: OpIndex },
    /// A quorum cannot be had, or came too late.
    AttemptFailed { op: OpIndex, outcome: Outcome },
    /// The caller cancelled it.
    AttemptCancelled,
    /// The call waits to be woken.
    Waits { op: OpIndex },
    /// Its turn has come: a message through the node woke it, or another call of this client.
    Woken { op: OpIndex, node: Option<NodeId> },
    /// Its wait ended without a lock.
    WaitEnded,
    /// Its lease is handed over.
    Lease { op: OpIndex, slot: SlotIndex, now: Instant },
    /// It ends without a lease.
    Refused { op: OpIndex, outcome: Outcome, error: &'a LockError, now: Instant },
    /// A waiter of another client is woken.
    WakeSent { node: NodeId, key: Option<&'a [u8]> },
    /// Its lock is handed over to a waiter of another client.
    HandedOver { slot: SlotIndex },
    /// A holder handed its lock over to the call.
    TakenOver { op: OpIndex },
    /// A node was told to hand over what nobody takes any more.
    TransferUnwanted { node: NodeId },
    /// The caller of a lease unlocks or drops it.
    Unlock { lease: LeaseId, now: Instant },
    /// An extension begins.
    Extension { op: OpIndex, slot: SlotIndex, ttl_ms: u32 },
    /// A caller's extension, or its adoption of a lease, is reported.
    Extended { op: OpIndex, outcome: Outcome },
    /// A lease that was adopted is handed over.
    Adopted { slot: SlotIndex, now: Instant },
    /// An extension of the engine's own has ended.
    KeptAlive { op: OpIndex, outcome: Outcome },
    /// A lease in the engine's care is lost.
    Lost { slot: SlotIndex, cause: LostCause },
    /// A release begins, after a failed attempt or of a lease.
    Release { slot: SlotIndex },
    /// That of a lease, and no result will be reported.
    Unreported,
    /// Its result is reported.
    Released { op: OpIndex, result: Result<Unlocked, UnlockError> },
    /// The node is owed a release.
    DebtOwed { node: NodeId, slot: SlotIndex },
    /// That release is written.
    DebtPaid { node: NodeId, slot: SlotIndex },
    /// The node is owed too many.
    DebtDropped { node: NodeId },
    /// The client ends before these releases are done.
    DebtsLeft { node: NodeId, count: usize },
    /// A connection, or an attempt at one, has ended.
    Disconnected { node: NodeId, cause: Cause },
    /// What people see of the node has changed.
    NodeChanged { node: NodeId, now: Now },
}

/// Does something for the log, if a subscriber may listen at that level.
#[cfg(feature = "tracing")]
macro_rules! log {
    ($level:ident: $tell:expr) => {
        if tracing::Level::$level <= tracing::level_filters::LevelFilter::current() {
            $tell;
        }
    };
}
#[cfg(not(feature = "tracing"))]
macro_rules! log {
    ($level:ident: $tell:expr) => {{}};
}

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
    /// Tells all who watch. Each call is the one arm that it names, because it is inlined.
    #[cfg_attr(
        not(all(feature = "tracing", feature = "metrics")),
        expect(unused_variables, reason = "each is for the log, the counts, or both")
    )]
    #[cfg_attr(
        not(any(feature = "tracing", feature = "metrics")),
        expect(clippy::needless_pass_by_ref_mut, reason = "it counts with a feature only")
    )]
    #[expect(clippy::too_many_lines, reason = "a table with an arm for each")]
    #[inline(always)]
    pub(in crate::engine) fn observe(&mut self, what: Happening<'_>) {
        match what {
            Happening::Call { op, slot, ttl_ms, now } => {
                count!({
                    let op = self.ops.at_mut(op);
                    op.called = Called { at: now, waits: op.plan.is_patient };
                });
                log!(DEBUG: self.log_call(op, slot, ttl_ms));
            }
            #[cfg(feature = "metrics")]
            Happening::CallRefused { error } => {
                count!(self.counts.calls.ended(CallEnd::of(error, false), 0));
            }
            Happening::Queued { op } => {
                count!(self.ops.at_mut(op).way = Way::Poll);
                saw(Sight::QueuedBehind);
            }
            Happening::Attempt { op } => log!(DEBUG: self.log_attempt(op)),
            Happening::Gated => saw(Sight::Gated),
            Happening::NotAsked { node } => {
                count!(self.nodes.counts(node).failed.up(Cause::Gated));
            }
            Happening::Vote { node, slot, vote } => {
                count!(self.nodes.counts(node).vote(vote));
                log!(TRACE: self.log_vote(node, slot, vote));
            }
            Happening::SecondRound => {
                count!(self.counts.second_rounds += 1);
                saw(Sight::SecondRound);
            }
            Happening::Won { op } => log!(DEBUG: self.log_decision(op, Outcome::Won)),
            Happening::AttemptFailed { op, outcome } => {
                count!({
                    self.counts.attempts.ended(outcome);
                    self.ops.at_mut(op).way = Way::Poll;
                });
                log!(DEBUG: self.log_decision(op, outcome));
            }
            Happening::AttemptCancelled => count!(self.counts.attempts.cancelled += 1),
            Happening::Waits { op } => log!(DEBUG: self.log_wait(op)),
            Happening::Woken { op, node } => {
                count!(self.ops.at_mut(op).way = Way::Wake);
                if let Some(node) = node {
                    count!(self.counts.wakes_received += 1);
                    log!(DEBUG: self.log_woken(op, node));
                    saw(Sight::Woken);
                }
            }
            Happening::WaitEnded => saw(Sight::WaitEnded),
            Happening::Lease { op, slot, now } => {
                log!(DEBUG: self.log_lease(op, now));
                count!({
                    let op = self.ops.at_mut(op);
                    let (called, way) = (op.called.at, std::mem::take(&mut op.way));
                    self.counts.won(way, self.slots.at(slot).began, now);
                    self.counts.call_ended(CallEnd::Won, called, now);
                    self.counts.hold_begins(slot, now);
                });
            }
            Happening::Refused { op, outcome, error, now } => {
                count!({
                    let op = self.ops.at_mut(op);
                    op.way = Way::default();
                    let end = CallEnd::of(error, op.called.waits);
                    self.counts.call_ended(end, op.called.at, now);
                });
                log!(DEBUG: self.log_refused(op, outcome));
            }
            Happening::WakeSent { node, key } => {
                count!(self.counts.wakes_sent += 1);
                log!(DEBUG: self.log_wake(node, key));
            }
            Happening::HandedOver { slot } => {
                count!(self.counts.transfers_sent += 1);
                log!(DEBUG: self.log_handed_over(slot));
                saw(Sight::HandedOver);
            }
            Happening::TakenOver { op } => {
                count!({
                    self.counts.transfers_received += 1;
                    self.ops.at_mut(op).way = Way::Transfer;
                });
                log!(DEBUG: self.log_taken_over(op));
                saw(Sight::TakenOver);
            }
            Happening::TransferUnwanted { node } => {
                log!(DEBUG: self.log_unwanted(node));
                saw(Sight::TransferUnwanted);
            }
            Happening::Unlock { lease, now } => {
                count!(if self.slots.held(lease).is_some() {
                    self.counts.hold_ends(lease.slot, now);
                });
            }
            Happening::Extension { op, slot, ttl_ms } => {
                log!(DEBUG: self.log_extension(op, slot, ttl_ms));
            }
            Happening::Extended { op, outcome } => {
                count!(self.counts.extensions.ended(outcome));
                log!(DEBUG: self.log_extended(op, outcome));
            }
            Happening::Adopted { slot, now } => count!(self.counts.hold_begins(slot, now)),
            Happening::KeptAlive { op, outcome } => {
                count!(self.counts.keeps.ended(outcome));
                log!(DEBUG: self.log_extended(op, outcome));
            }
            Happening::Lost { slot, cause } => {
                count!(self.counts.lost(cause));
                log!(WARN: self.log_lost(slot, cause));
            }
            Happening::Release { slot } => log!(DEBUG: self.log_release(slot)),
            Happening::Unreported => count!(self.counts.unreported += 1),
            Happening::Released { op, result } => {
                count!(self.counts.released(result));
                log!(DEBUG: self.log_released(op, result));
            }
            Happening::DebtOwed { node, slot } => {
                count!(self.nodes.counts(node).debts += 1);
                log!(DEBUG: self.log_debt(node, slot));
            }
            Happening::DebtPaid { node, slot } => log!(DEBUG: self.log_debt_paid(node, slot)),
            Happening::DebtDropped { node } => log!(WARN: self.log_debt_dropped(node)),
            Happening::DebtsLeft { node, count } => {
                count!(self.nodes.counts(node).left += count as u64);
                log!(WARN: self.log_left(node, count));
            }
            Happening::Disconnected { node, cause } => {
                count!(self.nodes.counts(node).lost.up(cause));
            }
            Happening::NodeChanged { node, now } => log!(DEBUG: self.log_node(node, now)),
        }
    }
}

//! Everything that observers hear: a [`Happening`], the log lines, counts and sights that come of
//! it. Nothing in this folder decides anything.

#[cfg(feature = "metrics")]
pub(super) mod counts;
#[cfg(feature = "tracing")]
mod log;
mod observe;
#[cfg(feature = "tracing")]
pub(super) mod spans;

use crate::engine::event::LostCause;
use crate::engine::locks::op::Verdict;
use crate::engine::locks::slot::LeaseId;
use crate::error::{Cause, LockError, UnlockError, Unlocked, Vote};
use crate::node::Now;
use crate::quorum::NodeId;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;

/// An event for the observers.
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "only the log reads some fields"))]
pub(in crate::engine) enum Happening<'a> {
    /// A call for a lock has begun.
    Call { op: OpIndex, slot: SlotIndex, ttl_ms: u32, now: Instant },
    /// A call did not begin.
    #[cfg(feature = "metrics")]
    CallRefused { error: &'a LockError },
    /// The call goes to the end of a queue without an attempt.
    Queued { op: OpIndex },
    /// An attempt begins.
    Attempt { op: OpIndex },
    /// The attempt asks one node before the others.
    Gated,
    /// The first node did not grant, so the attempt does not ask this node.
    NotAsked { node: NodeId },
    /// A node's vote is known.
    Vote { node: NodeId, slot: SlotIndex, vote: Vote },
    /// A quorum has granted, but not accepted the proposed fence.
    SecondRound,
    /// A quorum has granted.
    Won { op: OpIndex },
    /// No quorum is possible, or it came too late.
    AttemptFailed { op: OpIndex, outcome: Verdict },
    /// The caller cancelled the attempt.
    AttemptCancelled,
    /// The call waits to be woken.
    Waits { op: OpIndex },
    /// The call's turn has come: a message through the node woke it, or another call of this
    /// client.
    Woken { op: OpIndex, node: Option<NodeId> },
    /// The call's wait ended without a lock.
    WaitEnded,
    /// The call's lease is handed over.
    Lease { op: OpIndex, slot: SlotIndex, now: Instant },
    /// The call ends without a lease.
    Refused { op: OpIndex, outcome: Verdict, error: &'a LockError, now: Instant },
    /// A waiter of another client is woken.
    WakeSent { node: NodeId, key: Option<&'a [u8]> },
    /// The lock of this client is handed over to a waiter of another client.
    HandedOver { slot: SlotIndex },
    /// A holder handed its lock over to the call.
    TakenOver { op: OpIndex },
    /// A node handed a lock over that no call takes any more.
    TransferUnwanted { node: NodeId },
    /// The caller of a lease unlocks or drops it.
    Unlock { lease: LeaseId, now: Instant },
    /// An extension begins.
    Extension { op: OpIndex, slot: SlotIndex, ttl_ms: u32 },
    /// An extension gives the token to the node again.
    Healed { node: NodeId, slot: SlotIndex },
    /// A caller's extension, or its adoption of a lease, is reported.
    Extended { op: OpIndex, outcome: Verdict },
    /// A lease that was adopted is handed over.
    Adopted { slot: SlotIndex, now: Instant },
    /// An extension of the engine's own has ended.
    KeptAlive { op: OpIndex, outcome: Verdict },
    /// A lease in the engine's care is lost.
    Lost { slot: SlotIndex, cause: LostCause },
    /// A release begins, after a failed attempt or of a lease.
    Release { slot: SlotIndex },
    /// A release of a lease begins, and no result will be reported.
    Unreported,
    /// The result of a release is reported.
    Released { op: OpIndex, result: Result<Unlocked, UnlockError> },
    /// The client owes the node a release.
    DebtOwed { node: NodeId, slot: SlotIndex },
    /// The client has written that release.
    DebtPaid { node: NodeId, slot: SlotIndex },
    /// The client owes the node too many releases, and drops one.
    DebtDropped { node: NodeId },
    /// The client ends before these releases are done.
    DebtsLeft { node: NodeId, count: usize },
    /// A connection, or an attempt at one, has ended.
    Disconnected { node: NodeId, cause: Cause },
    /// The part of the node's health that people see has changed.
    NodeChanged { node: NodeId, now: Now },
}

#[cfg(feature = "tracing")]
impl Happening<'_> {
    /// The level of its line in the log, or the most severe that it may have.
    #[inline(always)]
    pub(in crate::engine) const fn level(&self) -> tracing::Level {
        let is_warning = matches!(
            self,
            Self::Lost { .. }
                | Self::DebtDropped { .. }
                | Self::DebtsLeft { .. }
                | Self::NodeChanged { .. }
        );
        match is_warning {
            true => tracing::Level::WARN,
            false if matches!(self, Self::Vote { .. }) => tracing::Level::TRACE,
            false => tracing::Level::DEBUG,
        }
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::*;

    /// The line of `NodeChanged` may be a warning or an info line, so its level lets both through.
    #[test]
    fn what_becomes_of_a_node_is_told_where_only_warnings_are() {
        let (node, now) = (NodeId::new(0).unwrap(), Instant::default());
        let now = Now { real: now, attended: now };
        assert_eq!(Happening::NodeChanged { node, now }.level(), tracing::Level::WARN);
    }
}

//! Locks that change hands by a script: what is offered, and what is handed over.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::quorum::NodeMask;
use crate::time::Instant;

rules! { TRANSFERS:
    /// A token that the client deletes at a node, or is about to, has no vote there any more.
    fn counts_where_deleted(is_clean: bool) -> bool { is_clean }
    /// A transfer counts although its token is being deleted.
    DeletedTransferCounts => ByTest { true }

    /// The lease of a transfer counts from before its token was offered.
    fn transfer_ends(offered: Instant, received: Instant) -> Instant { offered }
    /// The lease of a transfer counts from its receipt.
    TransferCountsFromReceipt => NoGround { received }

    /// The lease of a transfer counts from the offer that was taken up.
    fn offer_ends(own: Instant, newest: &impl Fn() -> Instant) -> Instant { own }
    /// The lease of a transfer counts from the newest offer of its call.
    NewestOfferDatesAll => ByTest { newest() }

    /// A transfer counts only if the client trusts its node.
    fn is_transfer_trusted(is_node_trusted: bool) -> bool { is_node_trusted }
    /// A transfer of a node counts that has no vote.
    DistrustedTransferCounts => ByTest { true }

    /// A transfer counts for the node that ran it, and for no other by which it came.
    fn is_by_its_node(is_same: bool) -> bool { is_same }
    /// A transfer counts for whatever node it came by.
    AnyNodeTransfers => ByTest { true }

    /// A transfer names the node that it goes by.
    fn mark_of(node: [u8; 8]) -> [u8; 8] { node }
    /// A transfer names no node.
    TransferNotMarked => ByTest { [0; 8] }

    /// What nobody takes that was handed over is deleted.
    fn is_unwanted_deleted(is_unwanted: bool) -> bool { is_unwanted }
    /// What nobody takes that was handed over is left.
    UnwantedKept => Orphan { false }

    /// What a node has not answered yet it runs behind what it told of.
    fn runs_behind(is_unanswered: bool) -> bool { is_unanswered }
    /// What is unwanted is left to a delete that the node may have run before.
    DeletedBefore => Orphan { true }

    /// Where a connection ended a hand-over may have gone unheard: a delete is owed.
    fn is_unheard_owed(may_be_unheard: bool) -> bool { may_be_unheard }
    /// What was handed over over a connection that ended is left.
    UnheardNotOwed => Orphan { false }

    /// No message deletes the keys of a lease.
    fn is_left_to_lease(is_lease: bool) -> bool { is_lease }
    /// A message about a lease that was taken over deletes its keys.
    MessageDeletesLease => NoGround { false }

    /// A lease is over for its holder as soon as it is handed over, whatever the nodes answer.
    fn state_once_released<T>(released: T, before: T, is_handed_over: bool) -> T { released }
    /// A lease goes on for its holder that it has handed over.
    HandedOverStillHeld => NoGround { if is_handed_over { before } else { released } }

    /// A lock that was taken over is released also where a script may still hand it over.
    fn with_late_scripts(told: NodeMask, heard: NodeMask) -> NodeMask { told.union(heard) }
    /// A lock that was taken over is released only where that was told.
    LateScriptNotReleased => ByTest { told }

    /// A transfer carries all who wait behind the one that gets the lock.
    fn listed_from(second: usize, end: usize) -> usize { second }
    /// A transfer carries nobody who waits behind.
    TransferWithoutList => Order { end }

    /// Clients of other kinds, who see the key standing all the time, get their turn.
    fn is_in_row(is_short: bool) -> bool { is_short }
    /// A lock is handed over without end.
    RowWithoutEnd => ByTest { true }

    /// A lock is handed over only to a waiter that was there a moment ago.
    fn is_alive(was_seen: bool) -> bool { was_seen }
    /// A lock is handed over to a waiter that was silent for long.
    SilentTakesOver => ByTest { true }
}

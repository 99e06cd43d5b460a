//! Locks that change hands by a script: the offers of waiters and the transfers of holders.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::quorum::{NodeId, NodeMask};
use crate::time::Instant;

rules! { TRANSFERS:
    /// A token that the client deletes at a node, or is about to delete, no longer has a vote
    /// there.
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
    /// A transfer counts although its node has no vote.
    DistrustedTransferCounts => ByTest { true }

    /// A transfer counts for the node that ran it, not for another node that delivered it.
    fn is_by_its_node(is_same: bool) -> bool { is_same }
    /// A transfer counts for any node that delivered it.
    AnyNodeTransfers => ByTest { true }

    /// A transfer names the node whose script performs it.
    fn mark_of(node: [u8; 8]) -> [u8; 8] { node }
    /// A transfer names no node.
    TransferNotMarked => ByTest { [0; 8] }

    /// A key that was handed over and that no call takes is deleted.
    fn is_unwanted_deleted(is_unwanted: bool) -> bool { is_unwanted }
    /// A key that was handed over and that no call takes is left.
    UnwantedKept => Orphan { false }

    /// A delete that a node has not answered runs behind the transfer that the node has told of.
    fn runs_behind(is_unanswered: bool) -> bool { is_unanswered }
    /// An unwanted key is left to a delete that the node may have run before the transfer.
    DeletedBefore => Orphan { true }

    /// Where a connection ended, the client may not have heard of a transfer: it owes a delete.
    fn is_unheard_owed(may_be_unheard: bool) -> bool { may_be_unheard }
    /// A key that was handed over on a connection that ended is left.
    UnheardNotOwed => Orphan { false }

    /// A node that is back gets deletes for the offers that were made while it was away. The node
    /// may have taken the lost connection for a listener.
    fn is_deleted_when_back(is_back: bool) -> bool { is_back }
    /// A key that was handed over at a node that was away is left.
    OfferWhileAwayKept => ByTest { false }

    /// No message deletes the keys of a lease.
    fn is_left_to_lease(is_lease: bool) -> bool { is_lease }
    /// A message about a lease that was taken over deletes its keys.
    MessageDeletesLease => NoGround { false }

    /// A lease is over for its holder as soon as it is handed over, whatever the nodes answer.
    fn ends_lease(is_handed_over: bool) -> bool { true }
    /// A holder goes on with a lease that it has handed over.
    HandedOverStillHeld => NoGround { !is_handed_over }

    /// A lock that was taken over is released also where a script may still hand it over.
    fn with_late_scripts(told: NodeMask, heard: NodeMask) -> NodeMask { told.union(heard) }
    /// A lock that was taken over is released only at the nodes that told of it.
    LateScriptNotReleased => ByTest { told }

    /// A transfer carries all waiters behind the waiter that gets the lock.
    fn listed_from(second: usize, end: usize) -> usize { second }
    /// A transfer carries no waiter behind the receiver.
    TransferWithoutList => Order { end }

    /// Only a limited number of transfers follow each other: clients of other kinds, which never
    /// see the key gone, get their turn.
    fn is_in_row(is_short: bool) -> bool { is_short }
    /// Any number of transfers may follow each other.
    RowWithoutEnd => ByTest { true }

    /// A lock is handed over only to a waiter that was there a moment ago.
    fn is_alive(was_seen: bool) -> bool { was_seen }
    /// A lock is handed over to a waiter that was silent for long.
    SilentTakesOver => ByTest { true }

    // ---- messages to a waiter ----

    /// Only the token of an offer is handed over: every client can read the tokens of attempts.
    fn is_of_offer(was_offered: bool) -> bool { was_offered }
    /// A message is a vote for any token that it names.
    ForgedVoteCounts => ByTest { true }

    /// A transfer counts only with the TTL that was offered: the deadline is computed from it.
    fn is_with_offered_ttl(is_same: bool) -> bool { is_same }
    /// A transfer counts although its key may end before the lease.
    AnyTtlCounts => ByTest { true }

    /// A call that has its result takes no other lock over.
    fn takes_up(is_call_open: bool) -> bool { is_call_open }
    /// A call that has its lock takes another one over.
    TakenUpTwice => ByTest { true }

    /// A node that tells late of a transfer counts like a node that told in time.
    fn is_late_vote(is_vote: bool) -> bool { is_vote }
    /// A node that tells late of a transfer gets its vote unchecked.
    LateVoteUnchecked => ByTest { true }

    /// A vote ends with the delete of the token.
    fn take_vote_back(granted: &mut NodeMask, id: NodeId) { granted.remove(id); }
    /// A node that deletes the token keeps its vote.
    DeletedVoteStays => ByTest {}

    /// A late message of a node may bring the list of the waiters behind the call.
    fn late_list<T: Default>(list: T) -> T { list }
    /// A list that comes late is lost.
    LateListLost => ByTest { T::default() }

    // ---- offers ----

    /// A token that was deleted at a node is not offered again.
    fn may_offer_again(is_clean: bool) -> bool { is_clean }
    /// A token is offered again although it has lost the votes of some nodes.
    DeletedTokenOffered => ByTest { true }

    /// Where a script may still write the token of a lease, its release is repeated.
    fn with_untold(unanswered: NodeMask, untold: NodeMask) -> NodeMask { unanswered.union(untold) }
    /// The client assumes that a node has run its script although the node has not told of it.
    UntoldTakenForRun => ByTest { unanswered }

    /// A script may write the token of an ended offer once more: the debt for the offer has no end.
    fn with_held(tainted: NodeMask, holds: NodeMask) -> NodeMask { tainted.union(holds) }
    /// The debt for an ended offer is forgotten after its TTL.
    OfferDebtEnds => ByTest { tainted }

    /// An offer that is over is remembered for as long as a script may write its token.
    fn remembered_until(until: Instant, now: Instant) -> Instant { until }
    /// An offer that is over is forgotten.
    OfferForgotten => Orphan { now }

    /// Where a connection ended, the client owes a delete for an ended offer, too.
    fn is_over_offer_left(is_over: bool) -> bool { false }
    /// A key that was handed over unheard to an ended offer is left.
    OverOfferNotOwed => Orphan { is_over }

    /// The debt for an offer is void once the offer is a lease, which has its own release.
    fn is_debt_void(is_lease: bool) -> bool { is_lease }
    /// The debt for an offer deletes the key of its lease.
    DebtPaidOutOfLease => ByTest { false }

    /// A lock that was handed over in vain is deleted at all nodes, in front of the next waiter's
    /// attempt.
    fn others_told(others: NodeMask) -> NodeMask { others }
    /// A lock that was handed over in vain is deleted only at the nodes that have told of it.
    OthersNotDeleted => ByTest { NodeMask::EMPTY }

    /// The waiters behind a lock that was handed over in vain get their turn once.
    fn has_had_turn(is_same: bool) -> bool { is_same }
    /// Each node that tells of a lock handed over in vain gives its waiters their turn.
    TurnGivenByEachNode => ByTest { false }

    /// The waiters behind a lock that was handed over in vain get their turn.
    fn list_of_unwanted<T: Default>(list: T) -> T { list }
    /// The waiters behind a lock that was handed over in vain are forgotten.
    UnwantedListLost => LostWaiter { T::default() }

    // ---- the channel ----

    /// A client that leaves the channel deletes the keys that may have been handed over before.
    fn left_behind(rest: NodeMask) -> NodeMask { rest }
    /// A client that leaves the channel deletes no key that was handed over before.
    HandedOverBeforeKept => ByTest { NodeMask::EMPTY }

    /// A client that leaves the channel deletes a key also where its own release is unanswered: a
    /// script may run behind that release.
    fn with_unanswered_releases(rest: NodeMask, heard: NodeMask) -> NodeMask { heard }
    /// A client that leaves the channel relies on a release that is unanswered.
    UnansweredTakenForLast => ByTest { rest }

    /// A client that ends leaves the channel.
    fn leaves_at_end(is_ending: bool) -> bool { is_ending }
    /// A client ends without leaving the channel.
    EndsInChannel => ByTest { false }

    /// A client listens at one of two addresses of a server: else it would pass on each message
    /// twice.
    fn may_listen(is_heard_elsewhere: bool) -> bool { !is_heard_elsewhere }
    /// A client listens at both addresses of a server.
    DuplicateListens => ByTest { true }

    // ---- the holder ----

    /// A lock is handed over only with a TTL that its holder could use, too.
    fn is_handed_ttl_allowed(is_allowed: bool) -> bool { is_allowed }
    /// A lock is handed over with any TTL that the waiter wants.
    HandedTtlNotBounded => LimitIgnored { true }

    /// A lock is handed over only while most of the TTL of the waiter's offer is left.
    fn is_fresh(is_fresh: bool) -> bool { is_fresh }
    /// A waiter gets a lock although too little of its TTL is left.
    StaleOfferTaken => ByTest { true }

    /// A node that refuses the script gets the plain release.
    fn is_released_plainly(is_refused: bool) -> bool { is_refused }
    /// A node that refuses the script keeps the key.
    RefusedScriptLeavesKey => ByTest { false }

    /// A release follows a script that was lost with its connection.
    fn is_script_owed(is_lost: bool) -> bool { is_lost }
    /// A key whose script was lost is left.
    LostScriptNotOwed => ByTest { false }

    /// If too few nodes can tell the waiter of the transfer, the holder wakes it.
    fn to_wake_instead<T>(handover: Option<T>) -> Option<T> { handover }
    /// A waiter that too few nodes can tell is left waiting.
    FailedHandOverSilent => ByTest { None }
}

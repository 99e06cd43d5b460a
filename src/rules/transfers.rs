//! Locks that change hands by a script: what is offered, and what is handed over.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::quorum::{NodeId, NodeMask};
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

    /// A node that is back deletes the offers that were made while it was away: it may have taken the lost
    /// connection for a listener.
    fn is_deleted_when_back(is_back: bool) -> bool { is_back }
    /// What was handed over at a node that was away is left.
    OfferWhileAwayKept => ByTest { false }

    /// No message deletes the keys of a lease.
    fn is_left_to_lease(is_lease: bool) -> bool { is_lease }
    /// A message about a lease that was taken over deletes its keys.
    MessageDeletesLease => NoGround { false }

    /// A lease is over for its holder as soon as it is handed over, whatever the nodes answer.
    fn ends_lease(is_handed_over: bool) -> bool { true }
    /// A lease goes on for its holder that it has handed over.
    HandedOverStillHeld => NoGround { !is_handed_over }

    /// A lock that was taken over is released also where a script may still hand it over.
    fn with_late_scripts(told: NodeMask, heard: NodeMask) -> NodeMask { told.union(heard) }
    /// A lock that was taken over is released only where that was told.
    LateScriptNotReleased => ByTest { told }

    /// A transfer carries all waiters behind the one that gets the lock.
    fn listed_from(second: usize, end: usize) -> usize { second }
    /// A transfer carries no waiter behind the receiver.
    TransferWithoutList => Order { end }

    /// Clients of other kinds, which see the key standing all the time, get their turn.
    fn is_in_row(is_short: bool) -> bool { is_short }
    /// A lock is handed over without end.
    RowWithoutEnd => ByTest { true }

    /// A lock is handed over only to a waiter that was there a moment ago.
    fn is_alive(was_seen: bool) -> bool { was_seen }
    /// A lock is handed over to a waiter that was silent for long.
    SilentTakesOver => ByTest { true }

    // ---- what a waiter is told ----

    /// Only the token of an offer is handed over: every client can read the tokens of attempts.
    fn is_of_offer(was_offered: bool) -> bool { was_offered }
    /// A message is a vote for whatever its token belongs to.
    ForgedVoteCounts => ByTest { true }

    /// A transfer counts only with the TTL that was offered: the deadline is computed from it.
    fn is_with_offered_ttl(is_same: bool) -> bool { is_same }
    /// A transfer counts whose key may end before the lease.
    AnyTtlCounts => ByTest { true }

    /// A call that has its result takes no other lock over.
    fn takes_up(is_call_open: bool) -> bool { is_call_open }
    /// A call that has its lock takes another one over.
    TakenUpTwice => ByTest { true }

    /// A node that tells late counts as one that told in time.
    fn is_late_vote(is_vote: bool) -> bool { is_vote }
    /// A node that has no vote for an offer has one for its lease.
    LateVoteUnchecked => ByTest { true }

    /// A vote ends with the delete of the token.
    fn take_vote_back(granted: &mut NodeMask, id: NodeId) { granted.remove(id); }
    /// A node that deletes the token has its vote still.
    DeletedVoteStays => ByTest {}

    /// What a node tells late may bring the list of the waiters behind.
    fn late_list<T: Default>(list: T) -> T { list }
    /// A list that comes late is lost.
    LateListLost => ByTest { T::default() }

    // ---- what is offered ----

    /// A token that was deleted at a node is not offered again.
    fn may_offer_again(is_clean: bool) -> bool { is_clean }
    /// A token is offered again that has lost the votes of some nodes.
    DeletedTokenOffered => ByTest { true }

    /// Where a script may still write the token of a lease, its release is repeated.
    fn with_untold(unanswered: NodeMask, untold: NodeMask) -> NodeMask { unanswered.union(untold) }
    /// A node that has not told of its script is taken for one that has run it.
    UntoldTakenForRun => ByTest { unanswered }

    /// A script may write the token of an ended offer once more: what is owed for it has no end.
    fn with_held(tainted: NodeMask, holds: NodeMask) -> NodeMask { tainted.union(holds) }
    /// What is owed for an ended offer is forgotten after its TTL.
    OfferDebtEnds => ByTest { tainted }

    /// An offer that is over is remembered for as long as a script may write its token.
    fn remembered_until(until: Instant, now: Instant) -> Instant { until }
    /// An offer that is over is forgotten.
    OfferForgotten => Orphan { now }

    /// Where a connection ended a delete is owed for an offer that is over, too.
    fn is_left_when_over(is_over: bool) -> bool { false }
    /// What was handed over unheard to an offer that is over is left.
    OverOfferNotOwed => Orphan { is_over }

    /// What was owed for an offer is void once the offer is a lease, which has its own release.
    fn is_debt_void(is_lease: bool) -> bool { is_lease }
    /// What was owed for an offer is paid out of its lease.
    DebtPaidOutOfLease => ByTest { false }

    /// A lock that was handed over in vain is deleted at all nodes, in front of the next waiter's attempt.
    fn others_told(others: NodeMask) -> NodeMask { others }
    /// A lock that was handed over in vain is deleted by the nodes alone that have told of it.
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

    /// A client that leaves deletes what may have been handed over before.
    fn left_behind(rest: NodeMask) -> NodeMask { rest }
    /// A client leaves what was handed over before.
    HandedOverBeforeKept => ByTest { NodeMask::EMPTY }

    /// A client that ends leaves the channel.
    fn leaves_at_end(is_ending: bool) -> bool { is_ending }
    /// A client ends without leaving the channel.
    EndsInChannel => ByTest { false }

    /// A client listens at one of two addresses of a server: else it passes each message on twice.
    fn may_listen(is_duplicate: bool) -> bool { !is_duplicate }
    /// A client listens at both addresses of a server.
    DuplicateListens => ByTest { true }

    // ---- the holder ----

    /// A lock is handed over only with a TTL that its holder could use, too.
    fn is_handed_ttl_allowed(is_allowed: bool) -> bool { is_allowed }
    /// A lock is handed over with whatever TTL the waiter wants.
    HandedTtlNotBounded => LimitIgnored { true }

    /// A lock is handed over only while most of the TTL of the waiter's offer is left.
    fn is_fresh(is_fresh: bool) -> bool { is_fresh }
    /// A waiter is handed a lock of which it has too little left.
    StaleOfferTaken => ByTest { true }

    /// A node that refuses the script gets the plain release.
    fn is_released_plainly(is_refused: bool) -> bool { is_refused }
    /// A node that refuses the script keeps the key.
    RefusedScriptLeavesKey => ByTest { false }

    /// A release follows a script that was lost with its connection.
    fn is_script_owed(is_lost: bool) -> bool { is_lost }
    /// A key whose script was lost is left.
    LostScriptNotOwed => ByTest { false }

    /// Where too few nodes can tell the waiter, it is woken.
    fn to_wake_instead<T>(handover: Option<T>) -> Option<T> { handover }
    /// A waiter that too few nodes can tell is left waiting.
    FailedHandOverSilent => ByTest { None }
}

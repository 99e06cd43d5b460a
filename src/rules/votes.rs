//! The rules by which a client wins a lock: votes, fences, and how long the lock is valid.

use std::time::Duration;

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::quorum::{Electorate, NodeMask};
use crate::time::Instant;

rules! { VOTES:
    // ---- votes ----

    /// A lock needs the grants of a quorum of nodes.
    fn quorum(configured: u32) -> u32 { configured }
    /// One vote fewer than a quorum counts as a quorum.
    QuorumOffByOne => NoQuorum { configured - 1 }

    /// With two lists, a lock needs a quorum of each.
    fn electorate(each: Electorate, together: Electorate) -> Electorate { each }
    /// With two lists, a lock needs a majority of all nodes together.
    ListsCountedTogether => NoQuorum { together }

    /// With two lists, an extension needs a quorum of each.
    fn lists_of_extension(each: Electorate, first: Electorate) -> Electorate { each }
    /// With two lists, an extension needs a quorum of the first.
    ExtendedByOneList => NoGround { first }

    /// With two lists, a quorum of each accepts a fence.
    fn lists_of_fence(each: Electorate, first: Electorate) -> Electorate { each }
    /// With two lists, a quorum of the first accepts a fence.
    FencedByOneList => ByTest { first }

    /// A client of two lists hands no lock over.
    fn transfers_between_lists(none: u8, usual: u8) -> u8 { none }
    /// A client of two lists hands locks over as always.
    HandedOverBetweenLists => ByTest { usual }

    /// Only a node that said so has granted.
    fn grants(granted: NodeMask, unknown: NodeMask) -> NodeMask { granted }
    /// An unknown vote counts as a granted one.
    UnknownCountsAsGranted => NoQuorum { granted.union(unknown) }

    /// A grant counts only if the node is trusted when it is read.
    fn is_grant_trusted(is_node_trusted: bool) -> bool { is_node_trusted }
    /// The client counts the grant of a node that has already called itself a replica.
    DistrustedGrantCounts => Amnesia { true }

    /// Each attempt has a token of its own.
    fn token_of_retry<T: Clone>(drawn: T, last: &T) -> T { drawn }
    /// The next attempt writes the token of the one before.
    TokenReusedByRetry => TwoHolders { last.clone() }

    // ---- fences ----

    /// A number is a fence once a quorum has accepted that same number.
    fn accepts(accepted: NodeMask, other: NodeMask) -> NodeMask { accepted }
    /// Accepts of two numbers are added up.
    AcceptsAddedUp => FenceOrder { accepted.union(other) }

    /// Only a node that holds the token, and whose counter is lower, accepts a number.
    fn is_accepted(did_node_accept: bool) -> bool { did_node_accept }
    /// A refusal in the second round counts as an accept.
    RefusalAccepted => FenceOrder { true }

    /// An accept of a node counts where the node's grant would count, and nowhere else.
    fn is_accept_trusted(is_granted: bool) -> bool { is_granted }
    /// An accept of a node without a vote counts.
    DistrustedAcceptCounts => ByTest { true }

    /// A client remembers a fence of its own that is ahead of its clock.
    fn is_own_fence_seen(is_own: bool) -> bool { is_own }
    /// A client proposes a number that its own last fence refuses.
    OwnFenceForgotten => ByTest { false }

    /// Only nodes whose clock agrees with the client's vote for a fence.
    fn may_propose(do_clocks_agree: bool) -> bool { do_clocks_agree }
    /// A client whose clock is years ahead gets fences.
    ClockNotCompared => ByTest { true }

    // ---- validity and deadlines ----

    /// A TTL is at most `max_ttl`, and long enough to be valid at all.
    fn is_ttl_allowed(ttl_ms: u32, least_ms: u32, most_ms: u32) -> bool {
        least_ms <= ttl_ms && ttl_ms <= most_ms
    }
    /// A TTL beyond `max_ttl` is taken.
    TtlNotBounded => LimitIgnored { least_ms <= ttl_ms }

    /// The validity of a lock is its TTL minus the allowance for clock drift.
    fn drift_ms(drift_ms: u32) -> u32 { drift_ms }
    /// The allowance for drift is not subtracted from the validity.
    ValidityWithoutDrift => TwoHolders { 0 }

    /// The validity counts from a clock that was read before the first byte was written.
    fn validity_begins(before_write: Instant) -> Instant { before_write }
    /// The validity counts from a clock that was read well after the write.
    ClockReadAfterWrite => TwoHolders { before_write.plus_millis(50) }

    /// Of several SETs of an attempt that are written apart, the first begins the validity.
    fn begins_validity(is_first_set: bool) -> bool { is_first_set }
    /// The validity counts from the last SET to a node that was awaited, not from the first.
    AwaitedSetMovesT0 => TwoHolders { true }

    /// A caller gets a lock only with the validity that it asked for.
    fn is_too_late_to_hand_over(now: Instant, deadline: Instant, least: Duration) -> bool {
        now >= deadline || now + least > deadline
    }
    /// A lease is handed over without a look at the clock.
    NoCheckAtHandOver => ShortLease { false }

    /// An operation waits for answers until its time is up.
    fn has_time_left(judge_at: Instant, now: Instant) -> bool { judge_at > now }
    /// An operation whose nodes do not answer is never judged.
    RoundNeverJudged => Overdue { true }

    /// Only an undecided attempt waits for nodes on their way.
    fn may_still_wait(is_undecided: bool) -> bool { is_undecided }
    /// A decided attempt goes on waiting for nodes on their way, and writes to them.
    DecidedAttemptStillWaits => Orphan { true }

    /// The holder of a lease that is kept alive is told when the lease is over.
    fn is_end_told(is_over: bool) -> bool { is_over }
    /// The holder of a lease that is kept alive is not told when the lease is over.
    LossNotTold => LossNotTold { false }
}

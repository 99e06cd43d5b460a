//! How a lease ends, or goes on: releases and extensions.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::quorum::NodeMask;
use crate::time::Instant;

rules! { LEASES:
    // ---- releases ----

    /// A failed attempt is released behind its SET, answered or not.
    fn with_unanswered(nodes: NodeMask, unanswered: NodeMask) -> NodeMask { nodes }
    /// A failed attempt releases only where its SET was answered.
    ReleaseNotBehindSet => Orphan { nodes.without(unanswered) }

    /// A failed attempt is released also where its vote is unknown.
    fn with_unknown(nodes: NodeMask, unknown: NodeMask) -> NodeMask { nodes }
    /// A failed attempt does not release where its vote is unknown.
    UnknownNotReleased => Orphan { nodes.without(unknown) }

    /// A call that takes a lock over releases its attempt under way: the two cannot both be valid.
    fn holds_of_attempt(holds: NodeMask) -> NodeMask { holds }
    /// A call that takes a lock over leaves its attempt on the nodes.
    AttemptLeftBesideTransfer => Orphan { NodeMask::EMPTY }

    /// A cancelled call releases the keys that it may have written.
    fn with_cancelled(nodes: NodeMask, is_cancelled: bool) -> NodeMask { nodes }
    /// A cancelled acquisition is not released.
    CancelNotReleased => Orphan { if is_cancelled { NodeMask::EMPTY } else { nodes } }

    /// A release that cannot be sent is owed until the key is surely gone.
    fn is_debt_over(expires: Instant, now: Instant) -> bool { expires <= now }
    /// A release that cannot be sent is forgotten.
    DebtDropped => Orphan { true }

    /// A release is sent twice where its SET may run behind the first.
    fn is_owed_twice(is_set_unanswered: bool) -> bool { is_set_unanswered }
    /// A release whose SET was unanswered is paid once only.
    DebtPaidOnce => Orphan { false }

    /// An answered release is repeated where a SET or a script may run behind it, and the node
    /// would not tell the client.
    fn may_run_behind(is_unanswered: bool, is_told: bool) -> bool { is_unanswered && !is_told }
    /// A release that was answered is done, though a SET or a script may run behind it.
    ReleaseNotRepeated => ByTest { false }

    /// A debt has no end as long as its SET may still run.
    fn may_set_still_run(is_unanswered: bool) -> bool { is_unanswered }
    /// A debt ends with the TTL although its SET may not have run.
    DebtEndsBeforeSet => Orphan { false }

    /// A node that lacks the key has released nothing: another client may have the lock since.
    fn has_released(did_delete: bool) -> bool { did_delete }
    /// A node that lacks the key counts as one that has deleted it.
    MissingKeyReleased => FalseRelease { true }

    /// A debt lasts a TTL from the late answer of its SET.
    fn debt_ends(ends: Instant, ttl_after_answer: Instant) -> Instant { ends.max(ttl_after_answer) }
    /// A debt ends a TTL after the release, although its SET was answered later.
    DebtEndsTooSoon => ByTest { ends }

    /// A lease is given away only once no node may still run a delete or an extension of it. Run
    /// later, such a command would change what the client that adopts the lease has written.
    fn is_settled(is_settled: bool) -> bool { is_settled }
    /// A lease is given away although a node may still run a delete or an extension of it.
    UnsettledGivenAway => ByTest { true }

    /// A node may still run the extension of a failed adoption. Such a node does not count in a
    /// later adoption with a longer TTL.
    fn nodes_unsettled(nodes: NodeMask) -> NodeMask { nodes }
    /// A client forgets the extensions of a failed adoption.
    UnsettledForgotten => ByTest { NodeMask::EMPTY }

    /// A client does not adopt a lock that it has, or of which it still owes a delete.
    fn is_in_hand(has_slot: bool) -> bool { has_slot }
    /// A client adopts a lock that its own delete ends a moment later.
    AdoptedInHand => ByTest { false }

    /// A caller may name the token of an attempt or an offer, and delete it: then no lease follows.
    fn ends_before_it_is_held(is_alive: bool) -> bool { is_alive }
    /// An attempt whose token a caller deletes at all nodes gets its lease.
    DeletedTokenHandedOver => NoGround { false }

    /// A client forgets the token of a lease that it gives away: a late message of a node about the
    /// token concerns another client.
    fn is_forgotten(is_forgotten: bool) -> bool { is_forgotten }
    /// A client treats a lease that it gave away as a lease that is over.
    GivenAwayRemembered => ForeignDelete { false }

    // ---- claims ----

    /// The claim of a leader goes to the nodes that have granted the lock.
    fn nodes_to_claim(granted: NodeMask, all: NodeMask) -> NodeMask { granted }
    /// A claim goes to all nodes.
    ClaimWithoutVote => FalseClaim { all }

    /// A claim lasts as long as its lock.
    fn claim_ttl_ms(of_lock: u32, longest: u32) -> u32 { of_lock }
    /// A claim lasts as long as any lock may.
    ClaimOutlivesLock => FalseClaim { longest }

    /// A release deletes the claim of its term.
    fn ends_claim(is_leader: bool) -> bool { is_leader }
    /// The claim of a leader that has resigned stays on the nodes.
    ClaimKept => Orphan { false }

    /// A claim is deleted only where it is the client's own.
    fn is_claim_compared(is_compared: bool) -> bool { is_compared }
    /// A claim is deleted whatever it says.
    ClaimDeletedUnread => ForeignDelete { false }

    // ---- extensions ----

    /// A lease has at most one extension of its caller under way.
    fn is_extension_refused(is_busy: bool) -> bool { is_busy }
    /// A second extension begins before the first has ended.
    ExtensionsOverlap => LimitIgnored { false }

    /// A lease that is over is not extended.
    fn is_past_extending(ends: Instant, now: Instant) -> bool { now >= ends }
    /// A lease that is over is extended all the same.
    ExtendPastDeadline => LimitIgnored { false }

    /// An extension that was written bounds the deadline at once.
    fn deadline_once_written(ends: Instant, new: Instant) -> Instant { ends.min(new) }
    /// A shorter extension does not bound the deadline before it has won.
    MissedExtensionKeepsDeadline => TwoHolders { ends }

    /// A node that may still run an older extension is not asked again.
    fn nodes_to_extend(holds: NodeMask, tainted: NodeMask) -> NodeMask { holds.without(tainted) }
    /// A node that may still run an older extension is asked, and counted, again.
    TaintedNodeExtended => NoGround { holds }

    /// An adoption gives the token to no node: the client does not know yet that a quorum holds it.
    fn may_heal(is_counted: bool) -> bool { is_counted }
    /// An adoption gives the token to nodes that lack it.
    AdoptionHeals => ByTest { true }

    /// Nodes that forgot a lease get its token again, and not those that were told to delete it.
    fn nodes_that_forgot(absent: NodeMask, granted: NodeMask) -> NodeMask { absent.without(granted) }
    /// A node that was told to delete a key gets its token again.
    DeletedHealed => NoGround { absent }

    /// A node where a late command could do harm does not get the token again.
    fn nodes_to_heal(nodes: NodeMask, doubted: NodeMask) -> NodeMask { nodes.without(doubted) }
    /// A node that may still run a delete or a shorter extension gets the token again.
    TaintedNodeHealed => ByTest { nodes }

    /// Only a node that may vote gets the token again.
    fn nodes_healed(nodes: NodeMask, voters: NodeMask) -> NodeMask { nodes.intersection(voters) }
    /// A node that may have lost other locks gets the token again.
    QuarantinedNodeHealed => ByTest { nodes }

    /// An extension has the votes of its own round.
    fn votes_of_extension(yes: NodeMask, before: NodeMask) -> NodeMask { yes }
    /// The votes of earlier rounds count for an extension, too.
    YesesAddUp => NoGround { yes.union(before) }

    /// A node that gets the token again may hold the key from then on.
    fn with_healed(holds: NodeMask, node: NodeMask) -> NodeMask { holds.union(node) }
    /// A key that a node got again is not released.
    HealNotReleased => ByTest { holds }

    /// An answer counts in the round to which it belongs.
    fn is_of_round(is_of_round: bool) -> bool { is_of_round }
    /// The answer of an earlier round counts in a later one.
    EarlierRoundCounts => ByTest { true }

    /// If a node that is not admitted lacks a key, it has forgotten the key, and did not delete it.
    fn has_forgotten(is_not_admitted: bool) -> bool { is_not_admitted }
    /// A node that restarted is taken for one that was told to delete the key.
    ForgettingTakenForDelete => ByTest { false }

    /// A master that may fail over extends a lease only while it has a vote: without a vote, another
    /// master may grant in its name.
    fn extends_without_vote(may_be_another: bool) -> bool { !may_be_another }
    /// The extension of a promoted master counts while the old master may still grant.
    PromotedExtends => NoGround { true }

    /// A node without the key has extended nothing.
    fn answer_to_extension<T>(answer: T, is_key_missing: bool, done: T) -> T { answer }
    /// A node without the key counts as one that extended it.
    RecreatedKeyCountsAsExtended => TwoHolders { if is_key_missing { done } else { answer } }

    /// A lease stays over once its deadline has passed.
    fn is_won_too_late(is_over: bool) -> bool { is_over }
    /// An extension that came after the end of a lease moves its deadline.
    LateExtensionTaken => DeadlineMoved { false }

    /// An extension that missed its quorum leaves the deadline as it is.
    fn deadline_after_miss(ends: Instant, new: Instant) -> Instant { ends }
    /// An extension that missed its quorum moves the deadline on.
    DeadlineMovedByMissedQuorum => DeadlineMoved { new }

    /// An extension succeeds only if its lease is still valid when the success is reported.
    fn is_extended_in_time(now: Instant, ends: Instant) -> bool { now < ends }
    /// An extension that came too late is reported as one in time.
    ExtensionNotChecked => ShortLease { true }

    /// An extension is sent again only if no other operation on its lease has begun since.
    fn is_sent_again(is_wanted: bool) -> bool { is_wanted }
    /// An extension that a release has overtaken is sent again where the node refused its form.
    StaleExtensionResent => ByTest { true }

    /// The engine no longer keeps a released lease alive.
    fn ends_keeping(is_kept: bool) -> bool { is_kept }
    /// A lease goes on being extended after its release.
    KeepAliveAfterRelease => Unasked { false }
}

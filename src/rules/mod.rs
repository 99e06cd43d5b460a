//! The rules that locks rest on, each a function that can be broken on purpose: the simulation, or
//! a test named for the rule, must notice every breakage.
//!
//! Layer: bottom. Without feature `sim` no breakage is compiled.

#[cfg(feature = "sim")]
mod kind;

use std::time::Duration;

#[cfg(feature = "sim")]
pub use kind::Kind;

use crate::quorum::{NodeId, NodeMask};
use crate::time::Instant;

/// Makes a function of each rule, and the enum of the breakages. Behind a rule stand the name of
/// its breakage, what must catch that, and the body that it puts in place of the rule's.
macro_rules! rules {
    ($(
        $(#[$rule:meta])*
        fn $name:ident $(<$type:ident $(: $bound:path)?>)?
            ($($argument:ident: $of:ty),*) $(-> $result:ty)? $holds:block
        $(#[$breakage:meta])*
        $mutant:ident => $kind:ident $broken:block
    )*) => {
        $(
            $(#[$rule])*
            #[inline(always)]
            pub(crate) fn $name $(<$type $(: $bound)?>)? ($($argument: $of),*) $(-> $result)? {
                #[cfg(feature = "sim")]
                if chosen::is(Mutant::$mutant) {
                    return $broken;
                }
                // A breakage may look at more than its rule.
                $(let _ = &$argument;)*
                $holds
            }
        )*

        /// A rule that can be broken on purpose.
        #[cfg(feature = "sim")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Mutant {
            $($(#[$breakage])* $mutant,)*
        }

        #[cfg(feature = "sim")]
        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$mutant),*];

            /// The violation that it must lead to; another one is not what the rule is for.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self {
                    $(Self::$mutant => Kind::$kind,)*
                }
            }
        }
    };
}

rules! {
    // ---- votes ----

    /// A lock needs the grants of a quorum of nodes.
    fn quorum(configured: u32) -> u32 { configured }
    /// One vote fewer is taken for a quorum.
    QuorumOffByOne => NoQuorum { configured - 1 }

    /// Only a node that said so has granted.
    fn grants(granted: NodeMask, unknown: NodeMask) -> NodeMask { granted }
    /// An unknown vote counts as a granted one.
    UnknownCountsAsGranted => NoQuorum { granted.union(unknown) }

    /// A grant counts only if the node is trusted when it is read.
    fn is_grant_trusted(is_node_trusted: bool) -> bool { is_node_trusted }
    /// A grant counts although the node said before it that it is a replica.
    DistrustedGrantCounts => Amnesia { true }

    /// A won lock is handed over only while a quorum of its keys is there.
    fn is_still_won(has_quorum: bool) -> bool { has_quorum }
    /// A lock whose keys are gone before it is handed over is handed over.
    GoneBeforeHandOver => NoQuorum { true }

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

    /// A lease is given away once no node may still run a delete or an extension of it: neither would
    /// be behind the commands of the client that adopts it.
    fn is_settled(is_settled: bool) -> bool { is_settled }
    /// A lease is given away whose delete or extension may still run.
    UnsettledGivenAway => ByTest { true }

    /// A client forgets the token of a lease that it gives away: what a node tells late of it is
    /// another's concern.
    fn is_forgotten(is_forgotten: bool) -> bool { is_forgotten }
    /// A lease that was given away is known as one that is over.
    GivenAwayRemembered => ForeignDelete { false }

    /// A transfer names the node that it goes by.
    fn mark_of(node: [u8; 8]) -> [u8; 8] { node }
    /// A transfer names no node.
    TransferNotMarked => ByTest { [0; 8] }

    /// A number is a fence once a quorum has accepted that same number.
    fn accepts(accepted: NodeMask, other: NodeMask) -> NodeMask { accepted }
    /// Accepts of two numbers are added up.
    AcceptsAddedUp => FenceOrder { accepted.union(other) }

    /// Only a node that holds the token, and whose counter is lower, accepts a number.
    fn is_accepted(did_node_accept: bool) -> bool { did_node_accept }
    /// A refusal in the second round counts as an accept.
    RefusalAccepted => FenceOrder { true }

    /// A lease with a fence goes to no other holder, who needs a higher one.
    #[cfg_attr(not(feature = "shared"), expect(dead_code, reason = "only `Shared` hands leases on"))]
    fn needs_own_fence(is_fenced: bool) -> bool { is_fenced }
    /// A lease goes to the next holder in a process with the fence of the last.
    FenceHandedOn => ByTest { false }

    /// Only nodes whose clock agrees with the client's vote for a fence.
    fn may_propose(do_clocks_agree: bool) -> bool { do_clocks_agree }
    /// A client whose clock is years ahead gets fences.
    ClockNotCompared => ByTest { true }

    /// Each attempt has a token of its own.
    fn token_of_retry<T: Clone>(drawn: T, last: &T) -> T { drawn }
    /// The next attempt writes the token of the one before.
    TokenReusedByRetry => TwoHolders { last.clone() }

    // ---- validity and deadlines ----

    /// A TTL is at most `max_ttl`, and long enough to be valid at all.
    fn is_ttl_allowed(ttl_ms: u32, least_ms: u32, most_ms: u32) -> bool {
        least_ms <= ttl_ms && ttl_ms <= most_ms
    }
    /// A TTL beyond `max_ttl` is taken.
    TtlNotBounded => LimitIgnored { least_ms <= ttl_ms }

    /// The validity of a lock is its TTL without what the clocks may drift.
    fn drift_ms(drift_ms: u32) -> u32 { drift_ms }
    /// The allowance for drift is not taken off the validity.
    ValidityWithoutDrift => TwoHolders { 0 }

    /// The validity counts from a clock that was read before the first byte was written.
    fn validity_begins(before_write: Instant) -> Instant { before_write }
    /// The validity counts from a clock that was read well after the write.
    ClockReadAfterWrite => TwoHolders { before_write.plus_millis(50) }

    /// Of several SETs of an attempt that are written apart, the first begins the validity.
    fn begins_validity(is_first_set: bool) -> bool { is_first_set }
    /// The validity counts from the last SET to a node that was awaited, not from the first.
    AwaitedSetMovesT0 => TwoHolders { true }

    /// A lock is handed over only with the validity that its caller asked for.
    fn is_too_late_to_hand_over(now: Instant, deadline: Instant, least: Duration) -> bool {
        now >= deadline || now + least > deadline
    }
    /// A lease is handed over without a look at the clock.
    NoCheckAtHandOver => ShortLease { false }

    /// An operation waits for answers until its time is up.
    fn has_time_left(judge_at: Instant, now: Instant) -> bool { judge_at > now }
    /// An operation whose nodes do not answer is never judged.
    RoundNeverJudged => Overdue { true }

    /// Only an attempt that is undecided waits for nodes on their way.
    fn may_still_wait(is_undecided: bool) -> bool { is_undecided }
    /// A decided attempt goes on waiting for nodes on their way, and writes to them.
    DecidedAttemptStillWaits => Orphan { true }

    /// The holder of a lease that is kept or watched is told when the lease is over.
    fn is_end_told(is_over: bool) -> bool { is_over }
    /// The end of a lease that is kept is not told.
    LossNotTold => LossNotTold { false }

    // ---- nodes ----

    /// A node that may have lost its memory does not vote before its quarantine is over.
    fn is_quarantined(until: Instant, now: Instant) -> bool { until > now }
    /// A restarted node votes at once.
    GuardIgnored => Amnesia { false }

    /// A reconnect to the same process leaves the node's quarantine as it is.
    fn quarantine_after_reconnect(until: Instant, now: Instant) -> Instant { until }
    /// A reconnect to the same process ends its quarantine.
    BlipEndsQuarantine => Amnesia { now }

    /// A process whose replication id has changed was a replica in between.
    fn was_always_master(is_same_replid: bool) -> bool { is_same_replid }
    /// A node that was a replica is believed as if it had always been a master.
    RoleChangeUnnoticed => Amnesia { true }

    /// What a message dates is dated by a clock that was read after the message came.
    #[cfg(any(test, feature = "sim"))]
    fn clock_of_message(before: Instant, after: Instant) -> Instant { after }
    /// What a message dates is dated by a clock that was read before the message came.
    ClockReadBeforeBytes => ByTest { before }

    /// A master that may just have been a replica, which has no memory, is not believed by its age.
    /// A second replication id tells; a master that was restarted from its RDB file has one too.
    fn may_have_been_replica(has_second_replid: bool) -> bool { has_second_replid }
    /// A master that may have been a replica a moment ago is believed by its age.
    PromotionBelieved => Amnesia { false }

    /// A node that has just started says up to a second too much for its age.
    fn surely_lived_s(uptime_s: u64) -> u64 { uptime_s.saturating_sub(1) }
    /// The age of a node is taken as it says, though it rounds it up.
    AgeBelievedTooSoon => ByTest { uptime_s }

    /// A node whose answer only a replica gives has lost what it granted.
    fn is_replica(says_so: bool) -> bool { says_so }
    /// An answer that only a replica gives changes nothing.
    ReadOnlyIgnored => Amnesia { false }

    /// A node that is loading its data may come back without what it granted.
    fn may_lose_memory(is_loading: bool) -> bool { is_loading }
    /// A node that answers that it is loading is still believed.
    LoadingBelieved => Amnesia { false }

    /// The answers of a node that is in trouble are read with care.
    fn is_read_with_care(is_in_trouble: bool) -> bool { is_in_trouble }
    /// A node that is in trouble is taken at its word like any other.
    TroubleUnseen => Amnesia { false }

    /// A node whose connection is being lost is not written to.
    fn stop_writing(written: &mut NodeMask, lost: NodeId) { written.remove(lost); }
    /// A node is written to while its connection is being lost.
    LostNodeWritten => Unasked {}

    /// A node gets the releases that are owed to it before any SET.
    fn may_get_set(is_owed_releases: bool) -> bool { !is_owed_releases }
    /// A SET goes to a node before the releases that are owed to it.
    SetBeforeDebts => ByTest { true }

    // ---- answers ----

    /// An answer is for the oldest request of its connection, however late it comes.
    fn request_of_answer<T>(is_late: bool, take: &mut impl FnMut() -> Option<T>) -> Option<T> {
        take()
    }
    /// A late answer is taken for the answer to the next request.
    LateReplyMisattributed => Misattributed {
        if is_late {
            drop(take());
        }
        take()
    }

    /// A push answers no request.
    fn answers_nothing(is_push: bool) -> bool { is_push }
    /// A push is taken for the answer to the next request.
    PushCountsAsReply => Misattributed { false }

    /// The beginning of a reply is kept until its rest has come.
    fn beginning_of_reply(read: &[u8]) -> &[u8] { read }
    /// What is left of a reply that came in pieces is lost.
    UnfinishedReplyDropped => Misattributed { &[] }

    /// A request that was answered names its slot no more.
    fn names_left(names: u16) -> u16 { names - 1 }
    /// An answered request is counted as still open.
    SlotLeaked => SlotLeak { names }

    /// A grant that is taken back counts no more.
    fn grants_left(grants: u8) -> u8 { grants.wrapping_sub(1) }
    /// A vote that was taken back is still counted.
    WithdrawnStillCounted => ByTest { grants }

    /// A node tells of a change to the key of a lease only where it holds that key.
    fn is_change_to_lease(is_held_there: bool) -> bool { is_held_there }
    /// What a node tells of a watched key is not heard.
    ChangeUnheard => LossNotTold { false }

    /// A change that came before the answer to the SET is not one of the lease.
    fn is_change_before_set(is_set_unanswered: bool) -> bool { is_set_unanswered }
    /// What a node tells of a key that it had not yet granted is taken for a loss.
    ChangeBelievedTooSoon => FalseLoss { false }

    // ---- releases ----

    /// A failed attempt is released behind its SET, answered or not.
    fn with_unanswered(nodes: NodeMask, unanswered: NodeMask) -> NodeMask { nodes }
    /// A failed attempt releases only where its SET was answered.
    ReleaseNotBehindSet => Orphan { nodes.without(unanswered) }

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

    /// A failed attempt is released also where its vote is unknown.
    fn with_unknown(nodes: NodeMask, unknown: NodeMask) -> NodeMask { nodes }
    /// A failed attempt does not release where its vote is unknown.
    UnknownNotReleased => Orphan { nodes.without(unknown) }

    /// What a cancelled call may have written is released.
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

    /// A release that was answered is repeated where a SET or a script may run behind it, and the node would not tell.
    fn may_run_behind(is_unanswered: bool, is_told: bool) -> bool { is_unanswered && !is_told }
    /// A release that was answered is done, though a SET or a script may run behind it.
    ReleaseNotRepeated => ByTest { false }

    /// A debt has no end as long as its SET may still run.
    fn may_set_still_run(is_unanswered: bool) -> bool { is_unanswered }
    /// A debt ends with the TTL although its SET may not have run.
    DebtEndsBeforeSet => Orphan { false }

    /// A debt lasts a TTL from the late answer of its SET.
    fn debt_ends(ends: Instant, ttl_after_answer: Instant) -> Instant { ends.max(ttl_after_answer) }
    /// A debt ends a TTL after the release, although its SET was answered later.
    DebtEndsTooSoon => ByTest { ends }

    /// A node that lacks the script is sent all of it.
    fn step_after_noscript<T>(full: T) -> Option<T> { Some(full) }
    /// A release that was answered NOSCRIPT is not sent in full.
    NoScriptNotFollowed => ByTest { None }

    // ---- extensions ----

    /// A lease has one extension of its caller's at a time.
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

    /// A node without the key has extended nothing.
    fn answer_to_extension<T>(answer: T, is_key_missing: bool, done: T) -> T { answer }
    /// A node without the key counts as one that extended it.
    RecreatedKeyCountsAsExtended => TwoHolders { if is_key_missing { done } else { answer } }

    /// A lease that is looked after stays over once its deadline has passed.
    fn is_won_too_late(is_over: bool) -> bool { is_over }
    /// An extension that came after the end of a lease that is looked after moves its deadline.
    LateExtensionTaken => DeadlineMoved { false }

    /// An extension that missed its quorum leaves the deadline as it is.
    fn deadline_after_miss(ends: Instant, new: Instant) -> Instant { ends }
    /// An extension that missed its quorum moves the deadline on.
    DeadlineMovedByMissedQuorum => DeadlineMoved { new }

    /// An extension has succeeded only if its lease goes on when it is reported.
    fn is_extended_in_time(now: Instant, ends: Instant) -> bool { now < ends }
    /// An extension that came too late is reported as one in time.
    ExtensionNotChecked => ShortLease { true }

    /// An extension is sent again only if nothing was begun since.
    fn is_sent_again(is_wanted: bool) -> bool { is_wanted }
    /// An extension that a release has overtaken is sent again where its script was missing.
    StaleExtensionResent => ByTest { true }

    /// A lease that is released is kept alive no more.
    fn ends_keeping(is_kept: bool) -> bool { is_kept }
    /// A lease goes on being extended after its release.
    KeepAliveAfterRelease => Unasked { false }

    // ---- waiting ----

    /// A release wakes the first of those who wait.
    fn first_to_wake<T>(first: Option<T>) -> Option<T> { first }
    /// A release wakes nobody.
    NobodyWoken => LostWaiter { None }

    /// A wake carries all who wait behind the one that is woken.
    fn carried_on<T: Default>(rest: T) -> T { rest }
    /// Those who wait behind one that is woken are forgotten.
    ListLost => Order { T::default() }

    /// A transfer carries all who wait behind the one that gets the lock.
    fn listed_from(second: usize, end: usize) -> usize { second }
    /// A transfer carries nobody who waits behind.
    TransferWithoutList => Order { end }

    /// The call that a wake names tries at once; where it is over, who has waited longest.
    fn is_heeded(is_wake: bool) -> bool { is_wake }
    /// A waiter that is woken does nothing.
    WakeIgnored => LostWaiter { false }

    /// A wake for a call of the same client needs no message.
    fn sibling_to_wake<T>(sibling: Option<T>) -> Option<T> { sibling }
    /// A call whose turn comes by the release of another of its client is not told.
    SiblingNotWoken => LostWaiter { None }

    /// A message is for the calls that wait for its key, and no others.
    fn is_for_key(of_call: &[u8], of_message: &[u8]) -> bool { of_call == of_message }
    /// A message is taken for any lock.
    MessageForAnyKey => LostWaiter { true }

    /// A call that gives up leaves the list, and the other calls of its client stay.
    fn is_struck_off(is_same_client: bool, is_same_call: bool) -> bool {
        is_same_client && is_same_call
    }
    /// A call that gives up takes the others of its client off the list.
    SiblingsStruck => LostWaiter { is_same_client }

    /// A call that was given the turn again and again, and found the same token, tells its client no more.
    fn is_given_away(is_given_away: bool) -> bool { is_given_away }
    /// A call tells the client that drew a token for as long as nodes have it.
    GivenAwayToldAgain => Storm { false }

    /// A call that has given up is struck off where it is listed.
    fn is_struck(is_listed: bool) -> bool { is_listed }
    /// A message that a call gives up changes nothing.
    GiveUpIgnored => ByTest { false }

    /// A holder that heard of a waiter will wake it.
    fn will_be_woken(is_heard: bool) -> bool { is_heard }
    /// A holder that was told is taken for one that was not.
    AnnouncementUnheard => Order { false }

    /// A call that has just woken a waiter for the key queues behind it.
    fn queues_behind_woken(wakes: bool) -> bool { wakes }
    /// Who has just woken a waiter races it for the key.
    ReleaserBarges => Order { false }

    /// A call that waits has a timer for its own end.
    fn has_end(deadline: Instant) -> bool { deadline < Instant::MAX }
    /// A call that waits has no timer for its own end.
    WaitWithoutEnd => Overdue { false }

    /// A waiter that nobody wakes looks at the key by itself.
    fn safety_poll(planned: Instant) -> Instant { planned }
    /// The safety poll of a waiter comes two seconds late.
    PollLate => LostWaiter { planned.plus_millis(2_000) }

    /// Clients of other kinds, who see the key standing all the time, get their turn.
    fn is_in_row(is_short: bool) -> bool { is_short }
    /// A lock is handed over without end.
    RowWithoutEnd => ByTest { true }

    /// A lock is handed over only to a waiter that was there a moment ago.
    fn is_alive(was_seen: bool) -> bool { was_seen }
    /// A lock is handed over to a waiter that was silent for long.
    SilentTakesOver => ByTest { true }

    /// Who has surely waited longer has its turn first, by whatever way it was heard of.
    fn is_before(waited_longer: bool) -> bool { waited_longer }
    /// Who is heard of first has its turn first.
    ListsByArrival => Order { false }

    /// Of two that wait for each other, the one that finds out tries again.
    fn is_ring(is_holder_behind: bool) -> bool { is_holder_behind }
    /// Two that wait for each other go on waiting.
    RingNotBroken => ByTest { false }

    /// A lease does not linger while somebody waits for it.
    fn ends_lingering(is_waited_for: bool) -> bool { is_waited_for }
    /// A lease goes on lingering though somebody waits.
    LingersWhileWaitedFor => LostWaiter { false }

    /// A lease lingers no longer than its time.
    fn linger_ends(until: Instant) -> Instant { until }
    /// A lease is taken again that is over.
    LingersBeyondItsTime => ByTest { Instant::MAX }

    /// A lease that lingers is taken again only if it lasts as long as the call asks.
    fn lasts_for_call(is_enough: bool) -> bool { is_enough }
    /// A lease is taken again of which too little is left.
    SpentLeaseRetaken => ByTest { true }

    /// The handle of a lease that lingers is dead.
    fn generation_of_next(generation: u32) -> u32 { generation.wrapping_add(1) }
    /// The handle of the last holder works for the next one's lease.
    OldHandleLives => ByTest { generation }

    /// A call that gives up says so to the holder that it told of itself.
    fn holder_to_tell<T>(told: Option<T>) -> Option<T> { told }
    /// A call that gives up does not say so.
    GiveUpNotTold => ByTest { None }
}

#[cfg(feature = "sim")]
pub(crate) use chosen::run_with;

#[cfg(feature = "sim")]
mod chosen {
    //! The breakage that is on, for one thread: seeds run on several.

    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static CHOSEN: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether `mutant` is the one that is on.
    #[inline]
    pub(super) fn is(mutant: Mutant) -> bool {
        CHOSEN.get() == Some(mutant)
    }

    /// Runs `body` with `mutant` on; off again behind it, whatever happens.
    pub(crate) fn run_with<R>(mutant: Option<Mutant>, body: impl FnOnce() -> R) -> R {
        struct Off;
        impl Drop for Off {
            fn drop(&mut self) {
                CHOSEN.set(None);
            }
        }
        let _off = Off;
        CHOSEN.set(mutant);
        body()
    }
}

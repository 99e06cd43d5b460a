//! Whether a node is believed, and which request an answer is for.

#[cfg(feature = "sim")]
use super::{Kind, Mutant, chosen};
use crate::quorum::{Electorate, NodeId, NodeMask};
use crate::time::Instant;

use std::time::Duration;

rules! { NODES:
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

    /// A time that begins with a message counts from a clock that was read after the message came.
    #[cfg(any(test, feature = "sim"))]
    fn clock_of_message(before: Instant, after: Instant) -> Instant { after }
    /// A time that begins with a message counts from a clock that was read before the message came.
    ClockReadBeforeBytes => ByTest { before }

    /// The client mistrusts the age of a master that may just have been a replica: a replica has
    /// lost its grants. A former replica has a second replication id. A master that was restarted
    /// from its RDB file has one, too.
    fn may_have_been_replica(has_second_replid: bool) -> bool { has_second_replid }
    /// A master that may have been a replica a moment ago is believed by its age.
    PromotionBelieved => Amnesia { false }

    /// After a failover the old master grants for a while longer, to clients that are still connected
    /// to it.
    fn may_old_master_grant(fails_over: bool) -> bool { fails_over }
    /// The old master is taken for dead as soon as the new one is promoted.
    OldMasterForgotten => Amnesia { false }

    /// A master that may fail over, and would go on granting then, does not vote.
    fn is_unguarded_refused(is_unguarded: bool) -> bool { is_unguarded }
    /// A master that would go on granting after a failover votes.
    UnguardedBelieved => NoGround { false }

    /// A node that has not said which server it is, or whether it has replicas, may be any server.
    fn may_be_another(is_hidden: bool) -> bool { is_hidden }
    /// A node that has not said so is the server of before.
    HiddenServerExtends => ByTest { false }

    /// A node that is not the same master as at its greeting has lost its grants, even if it is a
    /// master again.
    fn is_look_alarming(is_another: bool) -> bool { is_another }
    /// A master that failed over and back between two looks is believed.
    FailoverAndBackUnseen => NoGround { false }

    /// A node that may fail over votes and extends only for two look intervals after an answered look.
    fn is_watched(is_look_recent: bool) -> bool { is_look_recent }
    /// A node that may have failed over and back since the last answered look counts all the same.
    UnwatchedNodeCounts => ByTest { true }

    /// A node that has just started reports an age that is up to a second too high.
    fn surely_lived_s(uptime_s: u64) -> u64 { uptime_s.saturating_sub(1) }
    /// The client believes the age that a node reports, though the node rounds it up.
    AgeBelievedTooSoon => ByTest { uptime_s }

    /// A process is a new one if it is surely younger than the silence of the one before.
    fn began_since(uptime_s: u64, silence: Duration) -> bool {
        Duration::from_secs(uptime_s.saturating_add(1)) <= silence
    }
    /// A process that may have been there before the silence is taken for a new one.
    OldProcessTakenForNew => ByTest { true }

    /// A process that the client has met before is no new one, whatever age it tells: a node computes
    /// its age by its wall clock.
    fn is_new_process(is_young: bool, is_back: bool) -> bool { is_young && !is_back }
    /// A process whose clock was set back is taken for a new one.
    ProcessBackTakenForNew => ByTest { is_young }

    /// After a new process the client may meet an older one again. The older one may still run
    /// commands that the client has forgotten.
    fn may_be_first(is_other: bool, was_reborn: bool) -> bool { is_other && was_reborn }
    /// The process of before comes back unnoticed.
    FirstProcessBackUnseen => ByTest { false }

    /// Two addresses of one server are one vote: an extension would count the server twice.
    fn is_second_of_server(has_other: bool) -> bool { has_other }
    /// The second address of a server votes, too.
    SecondAddressVotes => NoGround { false }

    /// A node that gives an answer which only a replica gives has lost its grants.
    fn is_replica(says_so: bool) -> bool { says_so }
    /// An answer that only a replica gives changes nothing.
    ReadOnlyIgnored => Amnesia { false }

    /// A node that is loading its data may come back without its grants.
    fn may_lose_memory(is_loading: bool) -> bool { is_loading }
    /// A node that answers that it is loading is still believed.
    LoadingBelieved => Amnesia { false }

    /// The answers of a node that is in trouble are read with care.
    fn is_read_with_care(is_in_trouble: bool) -> bool { is_in_trouble }
    /// A node that is in trouble is taken at its word like any other.
    TroubleUnseen => ByTest { false }

    /// A node that says during its greeting that it is no master, or is loading, is refused.
    fn is_greeting_refused(is_refused: bool) -> bool { is_refused }
    /// A node that becomes a replica in the middle of its greeting is believed.
    LateRefusalUnheard => ByTest { false }

    /// After the first node of an attempt, the client asks only nodes that still have a vote.
    fn may_be_asked(is_voter: bool) -> bool { is_voter }
    /// After the first node, the client asks a node that has lost its vote since.
    VoterOfBeforeAsked => ByTest { true }

    /// The client does not write to a node whose connection is being lost.
    fn stop_writing(written: &mut NodeMask, lost: NodeId) { written.remove(lost); }
    /// The client writes to a node while its connection is being lost.
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
    /// The beginning of a reply that came in pieces is lost.
    UnfinishedReplyDropped => Misattributed { &[] }

    // ---- lists of nodes ----

    /// A client accepts new lists only if one of them is a present list: two quorums of that list
    /// share a node.
    fn may_follow(has_list_in_common: bool) -> bool { has_list_in_common }
    /// Any lists may follow.
    ListsWithoutCommonOne => ByTest { true }

    /// A client changes its lists again only once every lease from before its last change is over
    /// or carried on.
    fn is_too_early(is_early: bool) -> bool { is_early }
    /// Lists change at any time.
    ListsLeftTooEarly => ByTest { false }

    /// Of two lists to which a running client goes over, both decide from then on.
    fn lists_from_now_on(both: Electorate, first: Electorate) -> Electorate { both }
    /// A running client goes over to the first of two lists alone.
    SecondListForgottenInChange => NoQuorum { first }

    /// A lease that began before its client's lists changed is decided by the lists under which it began.
    fn decided_as_begun(is_former: bool) -> bool { is_former }
    /// The new lists decide on leases that began before.
    LeaseOfOldListsLost => ByTest { false }

    /// An extension that begins under the new lists needs their quorums.
    fn by_former_lists(has_begun_before: bool, has_lease_begun_before: bool) -> bool { has_begun_before }
    /// The lists that a lease began with decide on all its extensions.
    ExtendedByOldLists => ByTest { has_lease_begun_before }

    /// An answered request no longer names its slot.
    fn names_left(names: u16) -> u16 { names - 1 }
    /// An answered request is counted as still open.
    SlotLeaked => SlotLeak { names }

    /// A grant that is taken back no longer counts.
    fn grants_left(grants: u8) -> u8 { grants.wrapping_sub(1) }
    /// A vote that was taken back is still counted.
    WithdrawnStillCounted => ByTest { grants }
}

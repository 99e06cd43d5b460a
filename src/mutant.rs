//! Deliberate breakages, one for each rule that locks rest on: the simulation must find every one.
//!
//! Layer: bottom. The rule's own place asks [`is`]; without feature `sim` that is the constant
//! `false`, and nothing of it is compiled in.

/// A rule that can be broken on purpose.
#[cfg_attr(not(feature = "sim"), expect(unreachable_pub, reason = "public through `sim` only"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutant {
    /// One vote fewer is taken for a quorum.
    QuorumOffByOne,
    /// An unknown vote counts as a granted one.
    UnknownCountsAsGranted,
    /// The allowance for drift is not taken off the validity.
    ValidityWithoutDrift,
    /// The validity counts from the decision on, not from before the write.
    ClockReadAfterWrite,
    /// A lease is handed over without a look at the clock.
    NoCheckAtHandOver,
    /// A failed attempt releases only where its SET was answered.
    ReleaseNotBehindSet,
    /// A failed attempt does not release where its vote is unknown.
    UnknownNotReleased,
    /// A cancelled acquisition is not released.
    CancelNotReleased,
    /// A restarted node votes at once.
    GuardIgnored,
    /// A reconnect to the same process ends its quarantine.
    BlipEndsQuarantine,
    /// A node that was a replica is believed as if it had always been a master.
    RoleChangeUnnoticed,
    /// What a message dates is dated by a clock that was read before the message came.
    ClockReadBeforeBytes,
    /// A master that may have been a replica a moment ago is believed by its age.
    PromotionBelieved,
    /// An answer that only a replica gives changes nothing.
    ReadOnlyIgnored,
    /// A grant counts although the node said before it that it is a replica.
    DistrustedGrantCounts,
    /// A late answer is taken for the answer to the next request.
    LateReplyMisattributed,
    /// A push is taken for the answer to the next request.
    PushCountsAsReply,
    /// What is left of a reply that came in pieces is lost.
    UnfinishedReplyDropped,
    /// A node without the key counts as one that extended it.
    RecreatedKeyCountsAsExtended,
    /// A lease that is over is extended all the same.
    ExtendPastDeadline,
    /// An extension that came too late is reported as one in time.
    ExtensionNotChecked,
    /// A shorter extension does not bound the deadline before it has won.
    MissedExtensionKeepsDeadline,
    /// A lease goes on being extended after its release.
    KeepAliveAfterRelease,
    /// An extension that missed its quorum moves the deadline on.
    DeadlineMovedByMissedQuorum,
    /// The end of a lease that is kept is not told.
    LossNotTold,
    /// A node that may still run an older extension is asked, and counted, again.
    TaintedNodeExtended,
    /// The next attempt writes the token of the one before.
    TokenReusedByRetry,
    /// A release that cannot be sent is forgotten.
    DebtDropped,
    /// A release whose SET was unanswered is paid once only.
    DebtPaidOnce,
    /// A debt ends with the TTL although its SET may not have run.
    DebtEndsBeforeSet,
    /// A release that was answered NOSCRIPT is not sent in full.
    NoScriptNotFollowed,
    /// A decided attempt goes on waiting for nodes on their way, and writes to them.
    DecidedAttemptStillWaits,
    /// A second extension begins before the first has ended.
    ExtensionsOverlap,
    /// A TTL beyond `max_ttl` is taken.
    TtlNotBounded,
    /// An operation whose nodes do not answer is never judged.
    RoundNeverJudged,
    /// An answered request is counted as still open.
    SlotLeaked,
    /// A release wakes nobody.
    NobodyWoken,
    /// A waiter that is woken does nothing.
    WakeIgnored,
    /// A holder that was told is taken for one that was not.
    AnnouncementUnheard,
    /// Those who wait behind one that is woken are forgotten.
    ListLost,
    /// A call that waits has no timer for its own end.
    WaitWithoutEnd,
    /// A lock whose keys are gone before it is handed over is handed over.
    GoneBeforeHandOver,
    /// What a node tells of a watched key is not heard.
    ChangeUnheard,
    /// What a node tells of a key that it had not yet granted is taken for a loss.
    ChangeBelievedTooSoon,
    /// A message is taken for any lock.
    MessageForAnyKey,
    /// Who has just woken a waiter races it for the key.
    ReleaserBarges,
    /// A waiter that is known waits no longer than it said first.
    WaitNotRenewed,
}

impl Mutant {
    /// All of them.
    #[cfg(feature = "sim")]
    pub const ALL: [Self; 47] = [
        Self::QuorumOffByOne,
        Self::UnknownCountsAsGranted,
        Self::ValidityWithoutDrift,
        Self::ClockReadAfterWrite,
        Self::NoCheckAtHandOver,
        Self::ReleaseNotBehindSet,
        Self::UnknownNotReleased,
        Self::CancelNotReleased,
        Self::GuardIgnored,
        Self::BlipEndsQuarantine,
        Self::RoleChangeUnnoticed,
        Self::ClockReadBeforeBytes,
        Self::PromotionBelieved,
        Self::ReadOnlyIgnored,
        Self::DistrustedGrantCounts,
        Self::LateReplyMisattributed,
        Self::PushCountsAsReply,
        Self::UnfinishedReplyDropped,
        Self::RecreatedKeyCountsAsExtended,
        Self::ExtendPastDeadline,
        Self::ExtensionNotChecked,
        Self::MissedExtensionKeepsDeadline,
        Self::KeepAliveAfterRelease,
        Self::DeadlineMovedByMissedQuorum,
        Self::LossNotTold,
        Self::TaintedNodeExtended,
        Self::TokenReusedByRetry,
        Self::DebtDropped,
        Self::DebtPaidOnce,
        Self::DebtEndsBeforeSet,
        Self::NoScriptNotFollowed,
        Self::DecidedAttemptStillWaits,
        Self::ExtensionsOverlap,
        Self::TtlNotBounded,
        Self::RoundNeverJudged,
        Self::SlotLeaked,
        Self::NobodyWoken,
        Self::WakeIgnored,
        Self::AnnouncementUnheard,
        Self::ListLost,
        Self::WaitWithoutEnd,
        Self::GoneBeforeHandOver,
        Self::ChangeUnheard,
        Self::ChangeBelievedTooSoon,
        Self::MessageForAnyKey,
        Self::ReleaserBarges,
        Self::WaitNotRenewed,
    ];
}

/// Whether `mutant` is the one that is on.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

#[cfg(feature = "sim")]
pub(crate) use chosen::{is, run_with};

#[cfg(feature = "sim")]
mod chosen {
    //! The choice, made for one thread: seeds run on several.

    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static CHOSEN: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether `mutant` is the one that is on.
    #[inline]
    pub(crate) fn is(mutant: Mutant) -> bool {
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

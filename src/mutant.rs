//! Deliberate breakages, one for each rule that locks rest on: the simulation, or a test named for the
//! rule, must find every one.
//!
//! Layer: bottom. The rule's own place asks [`is`]; without feature `sim` that is the constant
//! `false`, and nothing of it is compiled in.

/// What must never happen, and what the judge says where it did.
#[cfg(feature = "sim")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Two clients believed at one time that they had a key.
    TwoHolders,
    /// A holder believed longer in its lease than a quorum of nodes held the key for it.
    NoGround,
    /// A node voted for a lock while one went on that it had forgotten.
    Amnesia,
    /// A vote was counted that its node had not given.
    Misattributed,
    /// A lease was handed over without a quorum of votes.
    NoQuorum,
    /// A lease was handed over, or extended, that was over or had less than was asked for.
    ShortLease,
    /// The deadline of a lease moved on without a quorum, or beyond a limit.
    DeadlineMoved,
    /// A key was left that nobody holds and nobody will delete.
    Orphan,
    /// An operation went on beyond its own deadline.
    Overdue,
    /// A key was free while somebody waited for it.
    LostWaiter,
    /// Somebody overtook those who waited before.
    Order,
    /// The loss of a lease was not told.
    LossNotTold,
    /// A lease was told to be lost that was not.
    FalseLoss,
    /// A place for an attempt was not given back.
    SlotLeak,
    /// Something was done, or reported, that nobody had asked for.
    Unasked,
    /// A call was taken that was to be refused.
    LimitIgnored,
    /// Somebody did not get a lock in the end, or a node did not vote again.
    Starved,
    /// A call was refused, or failed, for a reason that was not there.
    OddError,
    /// Memory or work grew beyond all bounds.
    Unbounded,
    /// The code's own assertion failed.
    Panic,
    /// Nothing that the simulation judges, or too rare there: `engine/tests/broken.rs` has the test.
    ByTest,
}

/// Makes the enum of the mutants, and says of each what it must be caught by.
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident => $kind:ident,)*) => {
        /// A rule that can be broken on purpose.
        #[cfg_attr(not(feature = "sim"), expect(unreachable_pub, reason = "public through `sim` only"))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        #[cfg(feature = "sim")]
        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The violation that it must lead to; another one is not what the rule is for.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self {
                    $(Self::$name => Kind::$kind,)*
                }
            }
        }
    };
}

mutants! {
    /// One vote fewer is taken for a quorum.
    QuorumOffByOne => NoQuorum,
    /// An unknown vote counts as a granted one.
    UnknownCountsAsGranted => NoQuorum,
    /// The allowance for drift is not taken off the validity.
    ValidityWithoutDrift => TwoHolders,
    /// The validity counts from the decision on, not from before the write.
    ClockReadAfterWrite => TwoHolders,
    /// The validity counts from the last SET to a node that was awaited, not from the first.
    AwaitedSetMovesT0 => TwoHolders,
    /// A lease is handed over without a look at the clock.
    NoCheckAtHandOver => ShortLease,
    /// A failed attempt releases only where its SET was answered.
    ReleaseNotBehindSet => Orphan,
    /// A failed attempt does not release where its vote is unknown.
    UnknownNotReleased => Orphan,
    /// A cancelled acquisition is not released.
    CancelNotReleased => Orphan,
    /// A restarted node votes at once.
    GuardIgnored => Amnesia,
    /// A reconnect to the same process ends its quarantine.
    BlipEndsQuarantine => Amnesia,
    /// A node that was a replica is believed as if it had always been a master.
    RoleChangeUnnoticed => Amnesia,
    /// What a message dates is dated by a clock that was read before the message came.
    #[cfg_attr(
        not(any(test, feature = "sim")),
        expect(dead_code, reason = "the simulation's clients break it, and a test")
    )]
    ClockReadBeforeBytes => ByTest,
    /// A master that may have been a replica a moment ago is believed by its age.
    PromotionBelieved => Amnesia,
    /// An answer that only a replica gives changes nothing.
    ReadOnlyIgnored => Amnesia,
    /// A grant counts although the node said before it that it is a replica.
    DistrustedGrantCounts => Amnesia,
    /// A node that is in trouble is taken at its word like any other.
    TroubleUnseen => Amnesia,
    /// A node that answers that it is loading is still believed.
    LoadingBelieved => Amnesia,
    /// A node is written to while its connection is being lost.
    LostNodeWritten => Unasked,
    /// An extension that came after the end of a lease that is looked after moves its deadline.
    LateExtensionTaken => DeadlineMoved,
    /// A late answer is taken for the answer to the next request.
    LateReplyMisattributed => Misattributed,
    /// A push is taken for the answer to the next request.
    PushCountsAsReply => Misattributed,
    /// What is left of a reply that came in pieces is lost.
    UnfinishedReplyDropped => Misattributed,
    /// A node without the key counts as one that extended it.
    RecreatedKeyCountsAsExtended => TwoHolders,
    /// A lease that is over is extended all the same.
    ExtendPastDeadline => LimitIgnored,
    /// An extension that came too late is reported as one in time.
    ExtensionNotChecked => ShortLease,
    /// A shorter extension does not bound the deadline before it has won.
    MissedExtensionKeepsDeadline => TwoHolders,
    /// A lease goes on being extended after its release.
    KeepAliveAfterRelease => Unasked,
    /// An extension that missed its quorum moves the deadline on.
    DeadlineMovedByMissedQuorum => DeadlineMoved,
    /// The end of a lease that is kept is not told.
    LossNotTold => LossNotTold,
    /// A node that may still run an older extension is asked, and counted, again.
    TaintedNodeExtended => NoGround,
    /// The next attempt writes the token of the one before.
    TokenReusedByRetry => TwoHolders,
    /// A release that cannot be sent is forgotten.
    DebtDropped => Orphan,
    /// A release whose SET was unanswered is paid once only.
    DebtPaidOnce => Orphan,
    /// A debt ends with the TTL although its SET may not have run.
    DebtEndsBeforeSet => Orphan,
    /// A release that was answered NOSCRIPT is not sent in full.
    NoScriptNotFollowed => Orphan,
    /// A decided attempt goes on waiting for nodes on their way, and writes to them.
    DecidedAttemptStillWaits => Orphan,
    /// A second extension begins before the first has ended.
    ExtensionsOverlap => LimitIgnored,
    /// A TTL beyond `max_ttl` is taken.
    TtlNotBounded => LimitIgnored,
    /// An operation whose nodes do not answer is never judged.
    RoundNeverJudged => Overdue,
    /// An answered request is counted as still open.
    SlotLeaked => SlotLeak,
    /// A release wakes nobody.
    NobodyWoken => LostWaiter,
    /// A waiter that is woken does nothing.
    WakeIgnored => LostWaiter,
    /// A holder that was told is taken for one that was not.
    AnnouncementUnheard => Order,
    /// Those who wait behind one that is woken are forgotten.
    ListLost => Order,
    /// A call that waits has no timer for its own end.
    WaitWithoutEnd => Overdue,
    /// A lock whose keys are gone before it is handed over is handed over.
    GoneBeforeHandOver => NoQuorum,
    /// What a node tells of a watched key is not heard.
    ChangeUnheard => LossNotTold,
    /// What a node tells of a key that it had not yet granted is taken for a loss.
    ChangeBelievedTooSoon => FalseLoss,
    /// A message is taken for any lock.
    MessageForAnyKey => LostWaiter,
    /// Who has just woken a waiter races it for the key.
    ReleaserBarges => Order,
    /// The safety poll of a waiter comes two seconds late.
    PollLate => LostWaiter,
    /// The age of a node is taken as it says, though it rounds it up.
    AgeBelievedTooSoon => ByTest,
    /// A SET goes to a node before the releases that are owed to it.
    SetBeforeDebts => ByTest,
    /// A vote that was taken back is still counted.
    WithdrawnStillCounted => ByTest,
    /// A debt ends a TTL after the release, although its SET was answered later.
    DebtEndsTooSoon => ByTest,
    /// An extension that a release has overtaken is sent again where its script was missing.
    StaleExtensionResent => ByTest,
    /// Two that wait for each other go on waiting.
    RingNotBroken => ByTest,
    /// A call that gives up does not say so.
    GiveUpNotTold => ByTest,
    /// A call that gives up takes the others of its client off the list.
    SiblingsStruck => LostWaiter,
    /// A call whose turn comes by the release of another of its client is not told.
    SiblingNotWoken => LostWaiter,
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

//! What the simulation judges.

/// What must never happen, and what the judge says where it did.
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
    /// A client deleted a token that another client may hold, or the claim of its term.
    ForeignDelete,
    /// A claim was written where its lock had not been, or for longer than its lock.
    FalseClaim,
    /// Calls that only waited cost the nodes more commands than they may.
    Storm,
    /// An operation went on beyond its own deadline.
    Overdue,
    /// A key was free while a call waited for it.
    LostWaiter,
    /// A call overtook calls that had waited longer.
    Order,
    /// The loss of a lease was not told.
    LossNotTold,
    /// A lease was told to be lost that was not.
    FalseLoss,
    /// A place for an attempt was not given back.
    SlotLeak,
    /// Something was done, or reported, that nobody had asked for.
    Unasked,
    /// A call was taken that was to be refused, or a lock handed over for too long.
    LimitIgnored,
    /// A later lease had no higher fence than an earlier one.
    FenceOrder,
    /// Somebody did not get a lock in the end, or a node did not vote again.
    Starved,
    /// A call was refused, or failed, for a reason that was not there.
    OddError,
    /// Memory or work grew beyond all bounds.
    Unbounded,
    /// The code's own assertion failed.
    Panic,
    /// Nothing that the simulation judges, or too rare there: a test in `engine/tests/broken.rs`.
    ByTest,
    /// The same, of the client: a test in `client/broken.rs`.
    ByClientTest,
}

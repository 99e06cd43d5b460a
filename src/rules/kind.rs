//! The kinds of violation that the simulation judges.

/// A kind of violation: something that must never happen, and that the judge reports if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Two clients believed at one time that they had a key.
    TwoHolders,
    /// A holder believed in its lease for longer than a quorum of nodes held the key for it.
    NoGround,
    /// A node voted for a lock while an earlier lock that the node had forgotten was still valid.
    Amnesia,
    /// A client counted a vote that its node had not given.
    Misattributed,
    /// A caller got a lease without a quorum of votes.
    NoQuorum,
    /// A caller got or extended a lease that was over, or that had less time left than asked for.
    ShortLease,
    /// The deadline of a lease moved on without a quorum, or after its end.
    DeadlineMoved,
    /// A key was left that no client holds and no client will delete.
    Orphan,
    /// A client deleted a token that another client may hold, or the claim of its term.
    ForeignDelete,
    /// A claim was written at a node that had not held its lock, or for longer than its lock.
    FalseClaim,
    /// Calls that only waited cost the nodes more commands than they may.
    Storm,
    /// An operation went on beyond its own deadline.
    Overdue,
    /// A key was free while a call waited for it.
    LostWaiter,
    /// A call overtook calls that had waited longer.
    Order,
    /// The engine did not report the loss of a lease.
    LossNotTold,
    /// The engine reported the loss of a lease that was not lost.
    FalseLoss,
    /// A slot for an attempt was not given back.
    SlotLeak,
    /// A client did or reported something that no caller had asked for.
    Unasked,
    /// A client accepted a call that it had to refuse, or handed a lock over for too long.
    LimitIgnored,
    /// A later lease had no higher fence than an earlier one.
    FenceOrder,
    /// A client did not get a lock in the end, or a node did not vote again.
    Starved,
    /// A caller was told of a release that no quorum had done.
    FalseRelease,
    /// A call was refused, or failed, for a reason that did not exist.
    OddError,
    /// Memory or work grew beyond all bounds.
    Unbounded,
    /// The code's own assertion failed.
    Panic,
    /// The simulation does not judge this, or meets it too rarely: a test in
    /// `engine/tests/broken.rs` finds it.
    ByTest,
    /// As `ByTest`, for the client: a test in `client/broken.rs` finds it.
    ByClientTest,
}

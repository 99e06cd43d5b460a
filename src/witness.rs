//! Events in the engine that its outputs do not show, for the simulation to count.
//!
//! Layer: bottom. Compiles to nothing without the feature `sim`.

/// An event that the simulation must have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// A waiter was woken by a message.
    Woken,
    /// A waiter was woken, and others wait behind it.
    HandedOn,
    /// No client received an announcement.
    Unheard,
    /// A safety poll found the key gone.
    PollFoundGone,
    /// A new call queued behind a call that its client had just woken.
    QueuedBehind,
    /// A call got its turn from another call of the same client.
    PassedWithin,
    /// One node was asked before the others.
    Gated,
    /// A waiter told the holder that it had stopped waiting.
    GaveUp,
    /// A node refused a number, and the client proposed a second one.
    SecondRound,
    /// A node told the holder about a call while the call's first attempt was under way.
    Introduced,
    /// A lock was handed over to a waiter.
    HandedOver,
    /// A waiter took a lock over.
    TakenOver,
    /// A lock was handed over, and no call took it.
    TransferUnwanted,
    /// A node that had forgotten a lease got its token again.
    Healed,
    /// Too few nodes told the waiter of a lock that was handed over.
    TransferFailed,
    /// A lock was handed over at some nodes, and the others did not follow.
    TransferPartly,
    /// A call's deadline ended its wait.
    WaitEnded,
}

#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn saw(_: Sight) {}

#[cfg(feature = "sim")]
pub(crate) use counted::{saw, take};

#[cfg(feature = "sim")]
mod counted {
    //! The counts of one thread: seeds run on several.

    use std::cell::Cell;

    use super::Sight;

    const SIGHTS: usize = Sight::WaitEnded as usize + 1;

    thread_local! {
        static SEEN: [Cell<u64>; SIGHTS] = const { [const { Cell::new(0) }; SIGHTS] };
    }

    pub(crate) fn saw(sight: Sight) {
        SEEN.with(|seen| {
            if let Some(count) = seen.get(sight as usize) {
                count.set(count.get() + 1);
            }
        });
    }

    /// How often the engine has seen this since the last call.
    pub(crate) fn take(sight: Sight) -> u64 {
        SEEN.with(|seen| seen.get(sight as usize).map_or(0, |count| count.replace(0)))
    }
}

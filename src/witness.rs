//! What the engine did that its outputs do not show: the simulation counts it.
//!
//! Layer: bottom. Without feature `sim` nothing of it is compiled in.

/// Something that a run of the simulation must have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// A waiter was woken by a message.
    Woken,
    /// A waiter was woken, and others wait behind it.
    HandedOn,
    /// Nobody heard an announcement.
    Unheard,
    /// A safety poll found the key gone.
    PollFoundGone,
    /// A client queued behind the one that it had woken itself.
    QueuedBehind,
    /// A call was given its turn by another of its client.
    PassedWithin,
    /// One node was asked before the others.
    Gated,
    /// A waiter told the holder that it waits no more.
    GaveUp,
    /// The deadline of a call ended its wait.
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

    /// How often something was seen since it was last asked for.
    pub(crate) fn take(sight: Sight) -> u64 {
        SEEN.with(|seen| seen.get(sight as usize).map_or(0, |count| count.replace(0)))
    }
}

//! The way in which a lock came to its holder.

use redbolt::engine::LeaseCounts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The previous holder handed it over.
    Transfer,
    /// By an attempt that began with a wake.
    Wake,
    /// By a later attempt that began without a wake.
    Poll,
    /// By the first attempt: nobody held the lock.
    First,
}

impl Way {
    /// The way of a lock that a client took between the two counts.
    pub(crate) const fn between(before: LeaseCounts, after: LeaseCounts) -> Self {
        if after.transfer > before.transfer {
            Self::Transfer
        } else if after.wake > before.wake {
            Self::Wake
        } else if after.poll > before.poll {
            Self::Poll
        } else {
            Self::First
        }
    }

    /// Its place in the order of the ways.
    pub(crate) const fn place(self) -> usize {
        self as usize
    }
}

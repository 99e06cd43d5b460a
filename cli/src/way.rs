//! Which way a lock came to its holder.

use redbolt::engine::LeaseCounts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The holder before handed it over.
    Transfer,
    /// By an attempt that a wake began.
    Wake,
    /// By a later attempt that no wake began.
    Poll,
    /// By the first attempt: nobody held it.
    First,
}

impl Way {
    /// That of a lock which a client took between the two counts.
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

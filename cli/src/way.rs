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
    pub(crate) const ALL: [Self; 4] = [Self::Transfer, Self::Wake, Self::Poll, Self::First];

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

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Transfer => "transfer",
            Self::Wake => "wake",
            Self::Poll => "poll",
            Self::First => "first",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// Its place in [`ALL`](Self::ALL).
    pub(crate) const fn place(self) -> usize {
        self as usize
    }
}

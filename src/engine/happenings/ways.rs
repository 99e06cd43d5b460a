//! The ways in which leases are won, counted for the feature `metrics`.

/// The way in which a call gets its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) enum Way {
    #[default]
    First,
    Transfer,
    Wake,
    Poll,
}

/// How many leases were won so far, by the way in which they were won.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseCounts {
    /// By the first attempt of a call.
    pub first: u64,
    /// By a transfer: the holder's release handed the lock over.
    pub transfer: u64,
    /// By an attempt that a wake began, from the holder or from another call of this client.
    pub wake: u64,
    /// By a later attempt that no wake began.
    pub poll: u64,
}

impl LeaseCounts {
    pub(in crate::engine) const fn up(&mut self, way: Way) {
        match way {
            Way::First => self.first += 1,
            Way::Transfer => self.transfer += 1,
            Way::Wake => self.wake += 1,
            Way::Poll => self.poll += 1,
        }
    }
}

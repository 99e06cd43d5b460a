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

/// How many leases the client has won so far, by the way in which it won them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseCounts {
    /// Won by the first attempt of a call.
    pub first: u64,
    /// Won by a transfer: the holder's release handed the lock over.
    pub transfer: u64,
    /// Won by an attempt that began with a wake, from the holder or from another call of this
    /// client.
    pub wake: u64,
    /// Won by a later attempt that began without a wake.
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

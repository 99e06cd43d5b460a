//! [`redbolt_lease_info`]: a lease as it is now.

use redbolt::{Guard, Lease};

use crate::time::nanos;

/// A lease as it is now. Check `remaining_ns` right before each effect that needs the lock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct redbolt_lease_info {
    /// The end of the lease, on the clock of `redbolt_now_ns`.
    pub deadline_ns: u64,
    /// How long the lock is still certainly held. Zero: it is over.
    pub remaining_ns: u64,
    /// The fence of the first key, in the order of the bytes; zero if the call asked for none.
    pub fence: u64,
    /// The nodes that granted the lock: bit 0 is the first of the configuration.
    pub votes: u32,
    /// The slot of the lock, from 0; -1 for a lock without slots, and for a writer, which has all
    /// slots.
    pub slot: i32,
    /// Whether the client knows that the lock is over.
    pub is_lost: bool,
}

/// Makes the information from each lease type of the library: their functions have the same names.
macro_rules! tells {
    ($($lease:ty),*) => {$(
        impl From<&$lease> for redbolt_lease_info {
            fn from(lease: &$lease) -> Self {
                Self {
                    deadline_ns: lease.deadline().as_nanos(),
                    remaining_ns: nanos(lease.remaining()),
                    fence: lease.fence().unwrap_or_default(),
                    votes: lease.votes().bits(),
                    slot: lease.slot().and_then(|slot| i32::try_from(slot).ok()).unwrap_or(-1),
                    is_lost: lease.is_lost(),
                }
            }
        }
    )*};
}

tells!(Guard, Lease);

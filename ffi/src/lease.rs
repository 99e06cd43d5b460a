//! [`redbolt_lease_info`]: a lease as it is now.

use redbolt::inspect::NodeMask;
use redbolt::{Guard, Instant, Lease};

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
    /// Which slot of the lock it is, from 0; -1 for a lock without slots, and for all of them.
    pub slot: i32,
    /// Whether the client knows that the lock is over.
    pub is_lost: bool,
}

pub(crate) struct Facts {
    pub(crate) deadline: Instant,
    pub(crate) remaining: std::time::Duration,
    pub(crate) fence: Option<u64>,
    pub(crate) votes: NodeMask,
    pub(crate) slot: Option<usize>,
    pub(crate) is_lost: bool,
}

impl From<Facts> for redbolt_lease_info {
    fn from(facts: Facts) -> Self {
        Self {
            deadline_ns: facts.deadline.as_nanos(),
            remaining_ns: nanos(facts.remaining),
            fence: facts.fence.unwrap_or_default(),
            votes: facts.votes.bits(),
            slot: facts.slot.and_then(|slot| i32::try_from(slot).ok()).unwrap_or(-1),
            is_lost: facts.is_lost,
        }
    }
}

impl From<&Guard> for redbolt_lease_info {
    fn from(guard: &Guard) -> Self {
        Self::from(Facts {
            deadline: guard.deadline(),
            remaining: guard.remaining(),
            fence: guard.fence(),
            votes: guard.votes(),
            slot: guard.slot(),
            is_lost: guard.is_lost(),
        })
    }
}

impl From<&Lease> for redbolt_lease_info {
    fn from(lease: &Lease) -> Self {
        Self::from(Facts {
            deadline: lease.deadline(),
            remaining: lease.remaining(),
            fence: lease.fence(),
            votes: lease.votes(),
            slot: lease.slot(),
            is_lost: lease.is_lost(),
        })
    }
}

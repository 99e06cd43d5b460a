//! A resource behind the gate of the library, which sees for itself whether a write came too late.

use std::sync::Mutex;

use redbolt::Instant;
use redbolt::fence::Fence;

use crate::judge::Grant;

/// The data that one lock guards.
#[derive(Debug, Default)]
pub(crate) struct Resource {
    gate: Fence,
    stored: Mutex<Stored>,
}

#[derive(Debug, Default)]
struct Stored {
    /// The fence of the last write that was accepted.
    fence: u64,
    /// The latest start of an acquisition whose holder has written.
    began: Instant,
    writes: Writes,
}

/// How writes ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Writes {
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    /// Accepted after a write with a higher fence.
    pub(crate) lower: u64,
    /// Accepted although a later holder had written. A later holder's call began after this lease
    /// was handed out.
    pub(crate) stale: u64,
}

impl Resource {
    /// A write by the holder of `grant`, whether its lease is over or not.
    pub(crate) fn write(&self, grant: &Grant) {
        let mut stored = self.stored.lock().expect("no holder panicked");
        if self.gate.check(grant.fence).is_err() {
            stored.writes.refused += 1;
            return;
        }
        stored.writes.accepted += 1;
        stored.writes.lower += u64::from(grant.fence < stored.fence);
        stored.writes.stale += u64::from(grant.handed < stored.began);
        stored.fence = grant.fence;
        stored.began = stored.began.max(grant.began);
    }

    pub(crate) fn writes(&self) -> Writes {
        self.stored.lock().expect("no holder panicked").writes
    }
}

impl Writes {
    pub(crate) fn of(resources: &[Resource]) -> Self {
        resources.iter().map(Resource::writes).fold(Self::default(), |sum, writes| Self {
            accepted: sum.accepted + writes.accepted,
            refused: sum.refused + writes.refused,
            lower: sum.lower + writes.lower,
            stale: sum.stale + writes.stale,
        })
    }
}

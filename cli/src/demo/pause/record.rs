//! The record that the holders write: with or without a gate that knows fences.

use redbolt::fence::{Fence, StaleFence};

/// Who has written it, and how often.
#[derive(Debug)]
pub(super) struct Record {
    /// `None`: every write is accepted.
    gate: Option<Fence>,
    /// The latest holder whose write was accepted.
    latest: u32,
    pub(super) counts: Counts,
}

/// What became of the writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) accepted: u32,
    /// Of those, the ones that went over the write of a later holder.
    pub(super) stale: u32,
    pub(super) refused: u32,
}

/// What became of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Accepted,
    /// Accepted, over the write of a later holder.
    Stale,
    Refused,
}

impl Record {
    pub(super) const fn new(is_fenced: bool) -> Self {
        let gate = if is_fenced { Some(Fence::new()) } else { None };
        let counts = Counts { accepted: 0, stale: 0, refused: 0 };
        Self { gate, latest: 0, counts }
    }

    /// The first act of a holder: from then on no earlier one may write.
    pub(super) fn touch(&self, fence: Option<u64>) -> Result<(), StaleFence> {
        // A holder without a fence is lower than every other.
        self.gate.as_ref().map_or(Ok(()), |gate| gate.check(fence.unwrap_or(0)))
    }

    /// A write by the holder of this number, as the holders took the lock. The record itself sees only
    /// the fence: the number is for the count.
    pub(super) fn write(&mut self, holder: u32, fence: Option<u64>) -> Written {
        if self.touch(fence).is_err() {
            self.counts.refused += 1;
            return Written::Refused;
        }
        self.counts.accepted += 1;
        if holder < self.latest {
            self.counts.stale += 1;
            return Written::Stale;
        }
        self.latest = holder;
        Written::Accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_with_fences_refuses_an_earlier_holder() {
        for (is_fenced, late) in [(false, Written::Stale), (true, Written::Refused)] {
            let mut record = Record::new(is_fenced);
            assert_eq!(record.touch(Some(7)), Ok(()));
            assert_eq!(record.touch(Some(8)), Ok(()));
            assert_eq!(record.write(2, Some(8)), Written::Accepted);
            assert_eq!(record.write(1, Some(7)), late);
        }
    }
}

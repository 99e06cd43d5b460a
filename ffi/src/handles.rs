//! [`redbolt_lease`]: leases as numbers, and the table that knows which numbers still name a lease.
//!
//! # Invariants
//!
//! - The process gives out each serial number once. So the table refuses a lease of another client,
//!   and a lease that is over.
//! - A place is used again only after its owner has put it back.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Failure;

/// A lock that is held, as its holder knows it: a number, which is safe to copy and to keep. A call
/// with a lease that was unlocked or released, or is another client's, ends with
/// `REDBOLT_NOT_A_LEASE`. All zeros is no lease.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct redbolt_lease {
    /// For the library alone.
    pub serial: u64,
    /// For the library alone.
    pub place: u64,
}

/// The last serial number given out.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A number that the process has not seen. It cannot wrap: a thousand million per second would last
/// for centuries.
pub(crate) fn next_serial() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Values, each in a place, found by a handle.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    places: Vec<Place<T>>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Place<T> {
    /// Zero while no handle leads here.
    serial: u64,
    value: T,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Handles<T> {
    /// A free place with a new handle. The value is what its last user left.
    pub(crate) fn take(&mut self) -> (redbolt_lease, &mut T) {
        let free = self.free.pop().filter(|place| *place < self.places.len());
        let place = free.unwrap_or_else(|| {
            self.places.push(Place::default());
            // Room to free every place, so that no release allocates.
            self.free.reserve(self.places.len());
            self.places.len() - 1
        });
        let handle = redbolt_lease { serial: next_serial(), place: place as u64 };
        #[expect(clippy::indexing_slicing, reason = "below the length, by the lines above")]
        let found = &mut self.places[place];
        found.serial = handle.serial;
        (handle, &mut found.value)
    }

    pub(crate) fn get(&mut self, handle: redbolt_lease) -> Result<&mut T, Failure> {
        let place = usize::try_from(handle.place).map_err(|_| Failure::NotALease)?;
        let found = self.places.get_mut(place).ok_or(Failure::NotALease)?;
        let is_live = handle.serial != 0 && found.serial == handle.serial;
        if is_live { Ok(&mut found.value) } else { Err(Failure::NotALease) }
    }

    /// The first live value for which `is_it` is true. It looks at one place after the other.
    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<(redbolt_lease, &T)> {
        let mut live = self.places.iter().enumerate().filter(|(_, found)| found.serial != 0);
        let (place, found) = live.find(|(_, found)| is_it(&found.value))?;
        Some((redbolt_lease { serial: found.serial, place: place as u64 }, &found.value))
    }

    /// Ends the handle, so that no other call finds the value. The place is not free yet.
    pub(crate) fn end(&mut self, handle: redbolt_lease) -> Result<&mut T, Failure> {
        self.get(handle)?;
        let place = usize::try_from(handle.place).map_err(|_| Failure::NotALease)?;
        let found = self.places.get_mut(place).ok_or(Failure::NotALease)?;
        found.serial = 0;
        Ok(&mut found.value)
    }

    /// Frees the place of a handle that has ended.
    pub(crate) fn put_back(&mut self, ended: redbolt_lease) {
        let place = usize::try_from(ended.place).ok();
        self.free.extend(place.filter(|place| *place < self.places.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_has_ended_leads_nowhere_though_its_place_is_used_again() {
        let mut handles = Handles::<u8>::default();
        let (first, value) = handles.take();
        *value = 7;
        assert_eq!(handles.get(first).ok().copied(), Some(7));
        assert!(handles.end(first).is_ok());
        assert!(handles.end(first).is_err(), "ended twice");
        let (second, _) = handles.take();
        assert_ne!(second.place, first.place, "the first place is not free yet");
        handles.put_back(first);
        let (third, _) = handles.take();
        assert_eq!(third.place, first.place);
        assert!(handles.get(first).is_err());
        assert!(handles.get(third).is_ok());
    }

    #[test]
    fn no_handle_of_another_table_is_found() {
        let (mut one, mut other) = (Handles::<u8>::default(), Handles::<u8>::default());
        let (of_one, _) = one.take();
        let (of_other, _) = other.take();
        assert_eq!(of_one.place, of_other.place);
        assert!(one.get(of_other).is_err());
        assert!(other.get(of_one).is_err());
        assert!(one.get(redbolt_lease::default()).is_err());
        assert!(one.get(redbolt_lease { place: u64::MAX, ..of_one }).is_err());
    }
}

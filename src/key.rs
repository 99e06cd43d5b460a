//! The name of a lock, as it is kept beside its token.
//!
//! Layer: bottom, plain values.

use smallvec::SmallVec;

/// A key's bytes; short ones are kept in place.
pub(crate) type Key = SmallVec<[u8; SHORT_MAX]>;

/// The greatest length with which a slot of the engine fits two cache lines.
const SHORT_MAX: usize = 32;

/// FNV-1a.
pub(crate) fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Puts a key where another was. A long key reuses the memory of a long one.
#[inline]
pub(crate) fn replace(place: &mut Key, key: &[u8]) {
    if key.len() <= SHORT_MAX {
        *place = Key::from_slice(key);
    } else {
        place.clear();
        place.extend_from_slice(key);
    }
}

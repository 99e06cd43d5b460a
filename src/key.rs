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

/// Ends the name of a set, and no key of a lock.
const SET: &[u8] = b":elected";

/// One name for several keys, where a key may stand.
pub(crate) fn join(keys: &[Key]) -> Key {
    let mut name = Key::new();
    for key in keys {
        // Each key is checked before the nodes are asked: a longer one is no key.
        let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
        name.extend_from_slice(&len.to_le_bytes());
        name.extend_from_slice(key);
    }
    name.extend_from_slice(SET);
    name
}

/// The keys of a set; `None` for the key of a lock.
#[inline]
pub(crate) fn split(name: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = name.strip_suffix(SET)?;
    let mut keys = Vec::new();
    while let Some((len, more)) = rest.split_first_chunk() {
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (key, more) = more.split_at_checked(len)?;
        keys.push(key);
        rest = more;
    }
    rest.is_empty().then_some(keys)
}

/// Puts a key where another was. A long key reuses the memory of a long one.
#[inline(always)]
pub(crate) fn replace(place: &mut Key, key: &[u8]) {
    if key.len() <= SHORT_MAX {
        *place = Key::from_slice(key);
    } else {
        place.clear();
        place.extend_from_slice(key);
    }
}

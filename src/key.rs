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

/// The suffix of a set's name. No lock's key ends with it, because claims reserve it.
const SET_SUFFIX: &[u8] = crate::claim::CLAIM_SUFFIX;

/// Joins several keys into one name, for places that hold a single key.
pub(crate) fn join(keys: &[Key]) -> Key {
    let prefixes = size_of::<u32>() * keys.len();
    let mut name = Vec::with_capacity(
        keys.iter().map(|key| key.len()).sum::<usize>() + prefixes + SET_SUFFIX.len(),
    );
    for key in keys {
        // The client refuses a key that is too long for a `u32` before it asks any node.
        let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
        name.extend_from_slice(&len.to_le_bytes());
        name.extend_from_slice(key);
    }
    name.extend_from_slice(SET_SUFFIX);
    Key::from_vec(name)
}

/// The keys of a set; `None` for the key of a lock.
#[inline]
pub(crate) fn split(name: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = name.strip_suffix(SET_SUFFIX)?;
    let mut keys = Vec::with_capacity(rest.len() / 8);
    while let Some((len, more)) = rest.split_first_chunk() {
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (key, more) = more.split_at_checked(len)?;
        keys.push(key);
        rest = more;
    }
    rest.is_empty().then_some(keys)
}

/// The most slots of a lock. A writer holds all of them and the gate: 64 keys, the most of one
/// call.
pub(crate) const SLOTS_MAX: u8 = 63;

/// Ends the name of a lock's gate, and precedes the number of a slot.
pub(crate) const SLOT: &[u8] = b":slot";

/// The gate of a lock with slots.
pub(crate) fn gate(name: &[u8]) -> Key {
    Key::from_iter([name, SLOT].concat())
}

/// The name of the lock that the gate is for.
pub(crate) fn name_of_gate(key: &[u8]) -> Option<&[u8]> {
    key.strip_suffix(SLOT)
}

/// The key of a slot.
pub(crate) fn slot(name: &[u8], slot: u8) -> Key {
    let number = format!(":{slot}");
    Key::from_iter([name, SLOT, number.as_bytes()].concat())
}

/// Whether the key is one of a slot or a gate.
#[cold]
pub(crate) fn is_of_slots(key: &[u8]) -> bool {
    key.ends_with(SLOT) || slot_of(key).is_some()
}

/// The name of the lock and the number of the slot that the key is for.
pub(crate) fn name_and_slot(key: &[u8]) -> Option<(&[u8], u8)> {
    let digit = |byte: &u8| byte.checked_sub(b'0').filter(|digit| *digit < 10);
    let (head, slot) = match key {
        [head @ .., b':', ones] => (head, digit(ones)?),
        [head @ .., b':', tens, ones] => (head, digit(tens)? * 10 + digit(ones)?),
        _ => return None,
    };
    Some((head.strip_suffix(SLOT)?, slot)).filter(|_| slot < SLOTS_MAX)
}

/// The number of the slot that the key is for.
#[cold]
#[inline(never)]
pub(crate) fn slot_of(key: &[u8]) -> Option<u8> {
    name_and_slot(key).map(|(_, slot)| slot)
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

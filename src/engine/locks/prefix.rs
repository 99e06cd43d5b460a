//! The prefix of the keys on the nodes. The engine adds it to a caller's key, and removes it from a
//! key for the caller. Everything in between (slots, messages, pushes) has the key as the nodes
//! know it.

use std::borrow::Cow;

use crate::command::{MARKER_PREFIX, is_reserved};
use crate::config::KEY_LEN_MAX;
use crate::error::LockError;
use crate::key::{self, Key};

/// No reserved suffix is longer.
const SUFFIX_LEN_MAX: usize = 16;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Prefix {
    bytes: Box<[u8]>,
    /// The longest key that goes to the nodes unchanged; zero if there is a prefix.
    plain_len_max: usize,
}

impl Prefix {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let plain_len_max = if bytes.is_empty() { KEY_LEN_MAX } else { 0 };
        Self { bytes: bytes.into(), plain_len_max }
    }

    /// Whether the key goes to the nodes unchanged: without a prefix, every allowed key does.
    #[inline]
    pub(crate) fn is_plain(&self, key: &[u8]) -> bool {
        // The length of an empty key wraps around, and is too great.
        key.len().wrapping_sub(1) < self.plain_len_max && !is_reserved(key)
    }

    /// Whether keys go to the nodes unchanged.
    #[inline]
    pub(crate) const fn is_none(&self) -> bool {
        self.plain_len_max > 0
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a caller may take the lock of a key. A caller takes a slot by the name of its lock,
    /// not by the key of the slot.
    #[cold]
    pub(crate) fn check_taken(&self, key: &[u8]) -> Result<(), LockError> {
        if is_reserved(key) { Err(LockError::ReservedKey) } else { self.check(key) }
    }

    /// Whether a caller may name the lock of a key, which goes to the nodes behind the prefix.
    #[cold]
    pub(crate) fn check(&self, key: &[u8]) -> Result<(), LockError> {
        let marker = MARKER_PREFIX.as_bytes();
        let is_marker = self.bytes.iter().chain(key).take(marker.len()).eq(marker);
        let is_other = is_reserved(key) && !key::is_of_slots(key);
        if is_marker || is_other || self.ends_reserved(key) {
            return Err(LockError::ReservedKey);
        }
        let len = if key.is_empty() { 0 } else { key.len() + self.bytes.len() };
        if (1..=KEY_LEN_MAX).contains(&len) { Ok(()) } else { Err(LockError::InvalidKey { len }) }
    }

    /// Whether prefix and key, joined, end with a reserved suffix that begins in the prefix.
    fn ends_reserved(&self, key: &[u8]) -> bool {
        if key.len() >= SUFFIX_LEN_MAX || is_reserved(key) {
            return false;
        }
        let from = self.bytes.len().saturating_sub(SUFFIX_LEN_MAX);
        let mut tail = Key::from_slice(self.bytes.get(from..).unwrap_or_default());
        tail.extend_from_slice(key);
        is_reserved(&tail)
    }

    /// Puts the prefix in front of a key.
    #[cold]
    pub(crate) fn put_before(&self, key: &mut Key) {
        key.insert_from_slice(0, &self.bytes);
    }

    /// A caller's key as the nodes know it.
    pub(crate) fn wire_key<'key>(&self, key: &'key [u8]) -> Result<Cow<'key, [u8]>, LockError> {
        if self.is_plain(key) {
            return Ok(Cow::Borrowed(key));
        }
        self.check(key)?;
        Ok(Cow::Owned([&self.bytes, key].concat()))
    }

    /// A key of the nodes as callers know it.
    pub(crate) fn plain_key<'key>(&self, wire: &'key [u8]) -> &'key [u8] {
        wire.get(self.bytes.len()..).unwrap_or_default()
    }
}

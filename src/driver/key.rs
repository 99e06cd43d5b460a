//! The key of a lease's handle: short ones in place, so that a million leases are no million
//! allocations.

/// A key's bytes.
pub(super) enum Key {
    Short { len: u8, bytes: [u8; SHORT_MAX] },
    Long(Vec<u8>),
}

/// As many as make a key no larger than it must be for a long one.
const SHORT_MAX: usize = 30;

impl Key {
    pub(super) fn new(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT_MAX];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(key);
                Self::Short { len, bytes }
            }
            _ => Self::Long(key.to_vec()),
        }
    }

    /// Keeps the memory of a long key for the next one.
    pub(super) fn set(&mut self, key: &[u8]) {
        if let Self::Long(bytes) = self {
            bytes.clear();
            bytes.extend_from_slice(key);
        } else {
            *self = Self::new(key);
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_was_set_last_at_any_length() {
        let text = [b'k'; 4096];
        let mut reused = Key::new(b"");
        for len in (0..=64).chain([4096, 3, 31, 30]) {
            assert_eq!(Key::new(&text[..len]).as_bytes(), &text[..len]);
            reused.set(&text[..len]);
            assert_eq!(reused.as_bytes(), &text[..len]);
        }
        assert_eq!(size_of::<Key>(), 32);
    }
}

//! The name of a lock, as it is kept beside its token.
//!
//! Layer: bottom, plain values.

/// A key's bytes; short ones are kept in place.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Short { len: u8, bytes: [u8; KEY_SHORT_MAX] },
    Long(Vec<u8>),
}

const KEY_SHORT_MAX: usize = 38;

impl Key {
    pub(crate) const EMPTY: Self = Self::Short { len: 0, bytes: [0; KEY_SHORT_MAX] };

    pub(crate) fn of(key: &[u8]) -> Self {
        let mut this = Self::EMPTY;
        this.set(key);
        this
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(bytes) => bytes,
        }
    }

    /// Keeps the memory of a long key for the next one.
    #[inline]
    pub(crate) fn set(&mut self, key: &[u8]) {
        if let Self::Short { len, bytes } = self
            && let Ok(short) = u8::try_from(key.len())
            && let Some(place) = bytes.get_mut(..key.len())
        {
            place.copy_from_slice(key);
            *len = short;
        } else {
            self.set_long(key);
        }
    }

    #[cold]
    fn set_long(&mut self, key: &[u8]) {
        if let Self::Long(bytes) = self {
            bytes.clear();
            bytes.extend_from_slice(key);
        } else {
            *self = Self::Long(key.to_vec());
        }
    }
}

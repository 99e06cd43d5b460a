//! The random value that proves which lease a key belongs to.
//!
//! Layer: bottom, plain values. The engine draws tokens from a generator that it is given.

use std::fmt;

/// The most bytes of a caller's own token.
pub(crate) const TOKEN_LEN_MAX: usize = 255;

/// Bytes of a drawn token, before it becomes hexadecimal digits.
pub(crate) const DRAWN_LEN: usize = 20;

/// A token as the engine keeps it: a drawn token as 20 bytes, a caller's own token as it came.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum TokenBytes {
    /// 8 bytes of the client's id, 4 that name the slot, masked, and 8 random ones. New for each
    /// attempt.
    Drawn([u8; DRAWN_LEN]),
    /// The caller's own token.
    Given(Box<[u8]>),
}

impl TokenBytes {
    /// The token with these bytes on the wire; `None` if there are none or more than 255.
    pub(crate) fn from_wire(wire: &[u8]) -> Option<Self> {
        if wire.is_empty() || wire.len() > TOKEN_LEN_MAX {
            return None;
        }
        Some(unhex(wire).map_or_else(|| Self::Given(wire.into()), Self::Drawn))
    }
}

impl fmt::Debug for TokenBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A lock's token: a client needs it to unlock and to extend the lock.
///
/// Anyone with key and token can do both, so `Debug` does not show it. `Display` does: tokens that
/// Redbolt draws are 40 lower-case hexadecimal digits. [`as_bytes`](Self::as_bytes) gives the bytes
/// of a caller's own token.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockToken {
    wire: Wire,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Wire {
    Drawn([u8; 2 * DRAWN_LEN]),
    Given(Box<[u8]>),
}

impl LockToken {
    /// A token as a node shows it, of any length.
    pub(crate) fn seen(wire: &[u8]) -> Self {
        let given = || TokenBytes::Given(wire.into());
        Self::new(&TokenBytes::from_wire(wire).unwrap_or_else(given))
    }

    pub(crate) fn new(bytes: &TokenBytes) -> Self {
        let wire = match bytes {
            TokenBytes::Drawn(raw) => Wire::Drawn(hex(raw)),
            TokenBytes::Given(given) => Wire::Given(given.clone()),
        };
        Self { wire }
    }

    /// The bytes that the nodes hold as the key's value.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.wire {
            Wire::Drawn(digits) => digits,
            Wire::Given(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for LockToken {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Display for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockToken(..)")
    }
}

/// `raw` as lower-case hexadecimal digits.
#[inline(always)]
pub(crate) fn hex(raw: &[u8; DRAWN_LEN]) -> [u8; 2 * DRAWN_LEN] {
    // Whole vectors are cheaper than the exact number of bytes.
    let mut padded = [0; 32];
    let (head, _) = padded.split_at_mut(DRAWN_LEN);
    head.copy_from_slice(raw);
    let mut digits = [0; 64];
    let (pairs, _) = digits.as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(padded) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    let mut wanted = [0; 2 * DRAWN_LEN];
    let (head, _) = digits.split_at(2 * DRAWN_LEN);
    wanted.copy_from_slice(head);
    wanted
}

#[inline(always)]
pub(crate) const fn digit(nibble: u8) -> u8 {
    nibble + b'0' + if nibble > 9 { b'a' - b'0' - 10 } else { 0 }
}

/// The bytes that 40 lower-case hexadecimal digits stand for; `None` for anything else.
pub(crate) fn unhex(digits: &[u8]) -> Option<[u8; DRAWN_LEN]> {
    let digits: &[u8; 2 * DRAWN_LEN] = digits.try_into().ok()?;
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut raw = [0; DRAWN_LEN];
    for (byte, &[high, low]) in raw.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = nibble(high)? << 4 | nibble(low)?;
    }
    Some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_hexadecimal_digits_are_a_drawn_token_and_all_else_is_given() {
        let wire = b"00ff10a0deadbeef0123456789abcdef00112233";
        let drawn = TokenBytes::from_wire(wire).unwrap();
        assert!(matches!(drawn, TokenBytes::Drawn(_)));
        assert_eq!(LockToken::new(&drawn).as_bytes(), wire);

        for given in
            [&b"0"[..], b"00FF10a0deadbeef0123456789abcdef00112233", b"a\0\r\n b", &[7; 255]]
        {
            let token = TokenBytes::from_wire(given).unwrap();
            assert!(matches!(token, TokenBytes::Given(_)));
            assert_eq!(LockToken::new(&token).as_bytes(), given);
        }
        assert_eq!(TokenBytes::from_wire(b""), None);
        assert_eq!(TokenBytes::from_wire(&[b'a'; 256]), None);
    }

    #[test]
    fn debug_never_shows_a_token() {
        let token = TokenBytes::from_wire(b"secret").unwrap();
        assert!(!format!("{token:?}{:?}", LockToken::new(&token)).contains("secret"));
        assert_eq!(LockToken::new(&token).to_string(), "secret");
    }
}

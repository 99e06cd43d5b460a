//! [`quick()`]: the replies of an undisturbed lock cycle, compared as words.
//!
//! Layer: bottom, inside `resp`. `engine` and `node` call it before the [`Decoder`], where a short
//! reply is likely.
//!
//! # Contract
//!
//! - Answers only for a whole reply at the head of the buffer. `None` says nothing about the bytes:
//!   give them to the [`Decoder`]. Call it only where a frame begins.
//!
//! # Invariants
//!
//! - The decoder reads every reply that [`quick()`] accepts in the same way
//!   (`quick_agrees_with_the_decoder`).
//!
//! [`Decoder`]: super::Decoder

/// A reply that [`quick()`] knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Quick {
    /// `+OK`
    Ok,
    /// `_` or `$-1`
    Null,
    /// `:0`
    Zero,
    /// `:1`
    One,
}

/// The reply at the head of `buf` and its length, if it is one of the five common ones.
#[inline]
pub(crate) fn quick(buf: &[u8]) -> Option<(Quick, usize)> {
    let Some(&[a, b, c, d]) = buf.first_chunk() else {
        // A null is shorter than a word, and often the last reply in the buffer.
        return (buf == b"_\r\n").then_some((Quick::Null, 3));
    };
    match u32::from_le_bytes([a, b, c, d]) {
        OK if buf.get(4) == Some(&b'\n') => Some((Quick::Ok, 5)),
        ONE => Some((Quick::One, 4)),
        ZERO => Some((Quick::Zero, 4)),
        NIL if buf.get(4) == Some(&b'\n') => Some((Quick::Null, 5)),
        word if word & NULL_MASK == NULL => Some((Quick::Null, 3)),
        _ => None,
    }
}

const OK: u32 = u32::from_le_bytes(*b"+OK\r");
const NIL: u32 = u32::from_le_bytes(*b"$-1\r");
const ZERO: u32 = u32::from_le_bytes(*b":0\r\n");
const ONE: u32 = u32::from_le_bytes(*b":1\r\n");
const NULL: u32 = u32::from_le_bytes(*b"_\r\n\0");
const NULL_MASK: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0]);

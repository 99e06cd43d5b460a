//! The codec for the benchmark `codec`: `resp` is not a public name.

use crate::resp::encode::append_command;
use crate::resp::{Decoder, Limits, quick};

/// Appends the command as bytes to `out`.
pub fn encode(out: &mut Vec<u8>, args: &[&[u8]]) {
    append_command(out, args);
}

/// The length of the first frame in `input`, as a connection reads it that brings it whole; 0 if
/// there is none.
#[must_use]
pub fn decode(input: &[u8]) -> usize {
    if let Some((_, len)) = quick(input) {
        return len;
    }
    Decoder::new(Limits::default()).frame(input).ok().flatten().map_or(0, |frame| frame.len())
}

/// How many frames `input` begins with, as a connection reads it that brings each byte alone: 0 or
/// 1.
#[must_use]
pub fn decode_by_bytes(input: &[u8]) -> usize {
    let mut decoder = Decoder::new(Limits::default());
    let parts = (1..=input.len()).map(|len| &input[..len]);
    parts.filter(|part| matches!(decoder.frame(part), Ok(Some(_)))).count()
}

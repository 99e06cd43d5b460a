//! Turns commands into bytes, appended to a buffer of the caller.
//!
//! Layer: bottom, inside `resp`. `command` builds its commands from these parts. `node`, `query`
//! and `engine` call [`append_command`].
//!
//! # Contract
//!
//! - Allocates only if `out` has to grow. Arguments are bytes: nothing is escaped or checked,
//!   because a length goes before each.

use bytes::BufMut;

/// Appends a command as servers read it: an array of bulk strings.
pub(crate) fn append_command(out: &mut impl BufMut, args: &[&[u8]]) {
    append_array_header(out, args.len());
    for arg in args {
        append_bulk(out, arg);
    }
}

/// Appends `$<len>`, `bytes` and the line endings.
#[inline]
pub(crate) fn append_bulk(out: &mut impl BufMut, bytes: &[u8]) {
    append_length(out, b'$', bytes.len());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

/// Appends the first `len` bytes of `block`: a copy of constant size is a few moves.
#[inline(always)]
pub(crate) fn append_block<const N: usize>(out: &mut Vec<u8>, block: &[u8; N], len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(block);
    out.truncate(end);
}

/// Appends `*<count>`; `count` elements have to follow.
pub(crate) fn append_array_header(out: &mut impl BufMut, count: usize) {
    append_length(out, b'*', count);
}

/// Appends `n` as a bulk string of decimal digits.
pub(crate) fn append_number(out: &mut impl BufMut, n: u64) {
    let mut digits = [0; DECIMAL_LEN_MAX];
    let len = write_decimal(&mut digits, n);
    append_bulk(out, digits.get(DECIMAL_LEN_MAX - len..).unwrap_or_default());
}

/// Writes the digits of `n` to the end of `digits`. Returns how many there are.
#[inline]
fn write_decimal(digits: &mut [u8; DECIMAL_LEN_MAX], n: u64) -> usize {
    let mut left = n;
    let mut len = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
        len += 1;
        if left == 0 {
            break;
        }
    }
    len
}

#[inline]
fn append_length(out: &mut impl BufMut, kind: u8, len: usize) {
    // Nearly all lengths are below a hundred: one copy.
    if let Ok(len @ 0..100) = u8::try_from(len) {
        let (tens, ones) = (b'0' + len / 10, b'0' + len % 10);
        return match len {
            0..10 => out.put_slice(&[kind, ones, b'\r', b'\n']),
            _ => out.put_slice(&[kind, tens, ones, b'\r', b'\n']),
        };
    }
    append_long_length(out, kind, len);
}

#[cold]
fn append_long_length(out: &mut impl BufMut, kind: u8, len: usize) {
    let mut digits = [0; DECIMAL_LEN_MAX];
    let start = DECIMAL_LEN_MAX - write_decimal(&mut digits, len as u64);
    out.put_u8(kind);
    out.put_slice(digits.get(start..).unwrap_or_default());
    out.put_slice(b"\r\n");
}

/// The number of digits of `u64::MAX`.
const DECIMAL_LEN_MAX: usize = 20;

//! Keys, texts and lists from C.

use std::ffi::{CStr, c_char};
use std::slice;

use crate::failure::Failure;

/// The most bytes of a key or a text. The library takes a greater length for a mistake.
const BYTES_MAX: usize = 65_536;

/// The most entries of a list.
const ENTRIES_MAX: usize = 64;

/// A key: any bytes, 1 to 4096.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct redbolt_key {
    /// The first byte.
    pub data: *const c_char,
    /// How many bytes.
    pub len: usize,
}

/// The bytes of a key or a text.
///
/// # Safety
///
/// `data` is null, or points to `len` bytes that stay as they are during the call.
pub(crate) unsafe fn bytes<'a>(data: *const c_char, len: usize) -> Result<&'a [u8], Failure> {
    if data.is_null() {
        return Err(Failure::Argument("the key or text is null"));
    }
    if len > BYTES_MAX {
        return Err(Failure::Argument("the length of a key or text is above 65536"));
    }
    // SAFETY: not null, not too long, and by this function's contract readable.
    Ok(unsafe { slice::from_raw_parts(data.cast(), len) })
}

/// A list of `len` entries.
///
/// # Safety
///
/// `first` is null, or points to `len` entries that stay as they are during the call.
unsafe fn list<'a, T>(first: *const T, len: usize) -> Result<&'a [T], Failure> {
    if first.is_null() {
        return Err(Failure::Argument("the list is null"));
    }
    if len > ENTRIES_MAX {
        return Err(Failure::Argument("the list has more than 64 entries"));
    }
    // SAFETY: not null, not too long, and by this function's contract readable.
    Ok(unsafe { slice::from_raw_parts(first, len) })
}

/// The keys of a list.
///
/// # Safety
///
/// `first` is null, or points to `len` keys, whose bytes stay as they are during the call.
pub(crate) unsafe fn keys<'a>(
    first: *const redbolt_key,
    len: usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: by this function's contract.
    let keys = unsafe { list(first, len) }?;
    // SAFETY: by this function's contract.
    keys.iter().map(|key| unsafe { bytes(key.data, key.len) }).collect()
}

/// The texts of a list, each ended by a zero.
///
/// # Safety
///
/// `first` is null, or points to `len` pointers that are null or point to text ended by a zero.
pub(crate) unsafe fn texts<'a>(
    first: *const *const c_char,
    len: usize,
) -> Result<Vec<&'a str>, Failure> {
    // SAFETY: by this function's contract.
    let texts = unsafe { list(first, len) }?;
    // SAFETY: by this function's contract.
    texts.iter().map(|text| unsafe { text_of(*text) }).collect()
}

/// A text ended by a zero.
///
/// # Safety
///
/// `text` is null, or points to text ended by a zero.
unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::Argument("an entry of the list is null"));
    }
    // SAFETY: not null, and by this function's contract ended by a zero.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::Argument("an entry of the list is no UTF-8"))
}

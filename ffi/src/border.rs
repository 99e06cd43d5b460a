//! The border to C: pointers are checked, and panics and failures become codes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::redbolt_code;
use crate::error::redbolt_error;
use crate::failure::Failure;

/// Runs the body of a call, and tells the caller how it ended.
///
/// # Safety
///
/// `error` is null, or points to memory for a `redbolt_error` that nothing else uses meanwhile.
pub(crate) unsafe fn at_border(
    error: *mut redbolt_error,
    body: impl FnOnce() -> Result<(), Failure>,
) -> redbolt_code {
    // What a body leaves half done is behind a mutex, which the panic poisons.
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Failure::Panic));
    if !error.is_null() {
        // SAFETY: not null, and by this function's contract the caller's own memory.
        unsafe { redbolt_error::tell(error, outcome.as_ref().copied()) };
    }
    outcome.map_or_else(|failure| failure.code(), |()| redbolt_code::REDBOLT_OK)
}

/// Runs the body of a call that returns a plain value; returns `otherwise` if the body panics or
/// returns `None`.
pub(crate) fn or_else<T>(otherwise: T, body: impl FnOnce() -> Option<T>) -> T {
    catch_unwind(AssertUnwindSafe(body)).ok().flatten().unwrap_or(otherwise)
}

/// The object that a pointer from C names.
///
/// # Safety
///
/// `pointer` is null, or points to a `T` that stays valid during the call.
pub(crate) unsafe fn object<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: by this function's contract.
    unsafe { pointer.as_ref() }
        .ok_or(Failure::Argument("the client, driver or configuration is null"))
}

/// Writes a result for the caller.
///
/// # Safety
///
/// `place` is null, or points to memory for a `T` that nothing else uses meanwhile.
pub(crate) unsafe fn write<T>(place: *mut T, value: T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::Argument("the place for the result is null"));
    }
    // SAFETY: not null, and by this function's contract the caller's own memory.
    unsafe { place.write(value) };
    Ok(())
}

/// Gives an object to C.
///
/// # Safety
///
/// As [`write`].
pub(crate) unsafe fn give<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    // A caller that ignores the code finds null.
    // SAFETY: by this function's contract.
    unsafe { write(place, std::ptr::null_mut()) }?;
    let object = Box::into_raw(Box::new(make()?));
    // SAFETY: by this function's contract.
    unsafe { write(place, object) }
}

/// Takes an object back from C and drops it. A call with null does nothing.
///
/// # Safety
///
/// `pointer` is null, or one that [`give`] wrote and that nothing uses from now on.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: not null, and by this function's contract a box that nothing else uses.
        let object = unsafe { Box::from_raw(pointer) };
        // A panic at the end of an object has nobody to tell.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(object)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code() {
        let mut place = redbolt_error::of(&Failure::Busy);
        let error = &raw mut place;
        // SAFETY: the error lives for the call.
        let code = unsafe { at_border(error, || panic!("a fault, as it should be")) };
        assert_eq!(code, redbolt_code::REDBOLT_PANIC);
        assert_eq!(place.code, redbolt_code::REDBOLT_PANIC as i32);
        assert!(place.message.starts_with(b"a fault in redbolt"));
        assert_eq!(or_else(7, || panic!("a fault, as it should be")), 7);
    }
}

//! [`redbolt_driver`]: locks for a loop of the caller's.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use redbolt::LockOptions;
use redbolt::driver::Driver;
use redbolt::engine::OpId;

use crate::border::{at_border, free, give, object, or_else, write};
use crate::bytes::{bytes, keys, redbolt_key};
use crate::code::redbolt_code;
use crate::completion::{redbolt_completion, redbolt_op};
use crate::config::redbolt_config;
use crate::driving::{Driving, User};
use crate::error::redbolt_error;
use crate::failure::Failure;
use crate::handles::redbolt_lease;
use crate::lease::redbolt_lease_info;
use crate::options::{self, redbolt_options};
use crate::time::nanos;

/// Locks for the caller's own loop: a driver has no thread. One thread at a time may use a driver;
/// a second thread gets `REDBOLT_BUSY`. In the child of a fork only `_exit` and `exec` are safe.
pub struct redbolt_driver {
    driving: Mutex<Driving>,
    fork: forkguard::Guard,
}

/// The driver of this thread's call.
///
/// # Safety
///
/// As `object`.
unsafe fn enter<'a>(driver: *const redbolt_driver) -> Result<MutexGuard<'a, Driving>, Failure> {
    // SAFETY: by this function's contract.
    let driver = unsafe { object(driver) }?;
    // The child has the same sockets: it would write to them, and read its parent's answers.
    if driver.fork.clone().detected_fork() {
        return Err(Failure::Fork);
    }
    driver.driving.try_lock().map_err(|error| match error {
        TryLockError::Poisoned(_) => Failure::Panic,
        TryLockError::WouldBlock => Failure::Busy,
    })
}

/// A call that submits an operation, and writes it if the caller wants it.
///
/// # Safety
///
/// The arguments keep to the rules for pointers.
unsafe fn submit(
    driver: *mut redbolt_driver,
    op: *mut redbolt_op,
    error: *mut redbolt_error,
    body: impl FnOnce(&mut Driving) -> Result<redbolt_op, Failure>,
) -> redbolt_code {
    let body = || {
        // SAFETY: by this function's contract.
        let submitted = body(&mut *unsafe { enter(driver) }?)?;
        if !op.is_null() {
            // SAFETY: by this function's contract.
            unsafe { write(op, submitted) }?;
        }
        Ok(())
    };
    // SAFETY: by this function's contract.
    unsafe { at_border(error, body) }
}

/// Submits a call for a lock.
///
/// # Safety
///
/// The arguments keep to the rules for pointers.
unsafe fn submit_lock(
    driver: *mut redbolt_driver,
    options: *const redbolt_options,
    user: *mut c_void,
    op: *mut redbolt_op,
    error: *mut redbolt_error,
    call: impl FnOnce(&mut Driver, LockOptions) -> Result<OpId, Failure>,
) -> redbolt_code {
    let body = |driving: &mut Driving| {
        // SAFETY: by this function's contract.
        let options = unsafe { options::of(options) }?;
        driving.lock(User(user), |driver| call(driver, options))
    };
    // SAFETY: by this function's contract.
    unsafe { submit(driver, op, error, body) }
}

/// A call without an operation.
///
/// # Safety
///
/// The arguments keep to the rules for pointers.
unsafe fn with_driver(
    driver: *mut redbolt_driver,
    error: *mut redbolt_error,
    body: impl FnOnce(&mut Driving) -> Result<(), Failure>,
) -> redbolt_code {
    // SAFETY: by this function's contract.
    let entered = || body(&mut *unsafe { enter(driver) }?);
    // SAFETY: by this function's contract.
    unsafe { at_border(error, entered) }
}

/// Makes a driver. It does not block: the first `redbolt_driver_drive` begins to connect. The caller
/// frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_new(
    config: *const redbolt_config,
    driver: *mut *mut redbolt_driver,
    error: *mut redbolt_error,
) -> redbolt_code {
    let make = || {
        // SAFETY: by the rules for pointers.
        let config = unsafe { object(config) }?.copy()?;
        let driving = Driving::new(Driver::standalone(config)?);
        Ok(redbolt_driver { driving: Mutex::new(driving), fork: forkguard::new() })
    };
    // SAFETY: by the rules for pointers.
    let body = || unsafe { give(driver, make) };
    // SAFETY: by the rules for pointers.
    unsafe { at_border(error, body) }
}

/// Frees a driver, and writes the releases of its leases as far as that does not block. A call with
/// null does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_free(driver: *mut redbolt_driver) {
    // SAFETY: by the rules for pointers.
    unsafe { free(driver) }
}

/// The one descriptor to watch for reading, while the driver lives. Do not read from it or close
/// it. -1: `driver` is null, the driver had a fault, another thread is in a call of it, or this is
/// the child of a fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_fd(driver: *mut redbolt_driver) -> c_int {
    or_else(-1, || {
        // SAFETY: by the rules for pointers.
        Some(unsafe { enter(driver) }.ok()?.driver.as_fd().as_raw_fd())
    })
}

/// After how many nanoseconds to drive even if the descriptor is silent: 0 is now, -1 is never. It is
/// 0 wherever `redbolt_driver_drive` would fail, so that the loop drives and learns of it. Ask again
/// after each call of the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_timeout_ns(driver: *mut redbolt_driver) -> i64 {
    or_else(0, || {
        // SAFETY: by the rules for pointers.
        let timeout = unsafe { enter(driver) }.ok()?.timeout();
        Some(timeout.map_or(-1, |timeout| i64::try_from(nanos(timeout)).unwrap_or(i64::MAX)))
    })
}

/// Reads all answers, handles what is due, and writes what was submitted. Never blocks. Call it when
/// the descriptor is readable, when the timeout is over, and after submissions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_drive(
    driver: *mut redbolt_driver,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = |driving: &mut Driving| {
        driving.driver.drive();
        Ok(())
    };
    // SAFETY: by the rules for pointers.
    unsafe { with_driver(driver, error, body) }
}

/// Writes what was submitted, at once, and does nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_flush(
    driver: *mut redbolt_driver,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = |driving: &mut Driving| {
        driving.driver.flush();
        Ok(())
    };
    // SAFETY: by the rules for pointers.
    unsafe { with_driver(driver, error, body) }
}

/// Whether a quorum of nodes may vote. A lock that is submitted earlier waits until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_is_ready(driver: *mut redbolt_driver) -> bool {
    or_else(false, || {
        // SAFETY: by the rules for pointers.
        Some(unsafe { enter(driver) }.ok()?.driver.is_ready())
    })
}

/// Submits a call for the lock of a key, which waits until the timeout of the options. `user` comes
/// back with the completion. `op`, which may be null, gets the operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_lock(
    driver: *mut redbolt_driver,
    key: *const c_char,
    key_len: usize,
    options: *const redbolt_options,
    user: *mut c_void,
    op: *mut redbolt_op,
    error: *mut redbolt_error,
) -> redbolt_code {
    let call = |driver: &mut Driver, options| {
        // SAFETY: by the rules for pointers.
        Ok(driver.lock(unsafe { bytes(key, key_len) }?, options)?)
    };
    // SAFETY: by the rules for pointers.
    unsafe { submit_lock(driver, options, user, op, error, call) }
}

/// As `redbolt_driver_lock`, but tries once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_try_lock(
    driver: *mut redbolt_driver,
    key: *const c_char,
    key_len: usize,
    options: *const redbolt_options,
    user: *mut c_void,
    op: *mut redbolt_op,
    error: *mut redbolt_error,
) -> redbolt_code {
    let call = |driver: &mut Driver, options| {
        // SAFETY: by the rules for pointers.
        Ok(driver.try_lock(unsafe { bytes(key, key_len) }?, options)?)
    };
    // SAFETY: by the rules for pointers.
    unsafe { submit_lock(driver, options, user, op, error, call) }
}

/// Submits a call for the locks of 1 to 64 keys under one lease, all or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_lock_all(
    driver: *mut redbolt_driver,
    first: *const redbolt_key,
    count: usize,
    options: *const redbolt_options,
    user: *mut c_void,
    op: *mut redbolt_op,
    error: *mut redbolt_error,
) -> redbolt_code {
    let call = |driver: &mut Driver, options| {
        // SAFETY: by the rules for pointers.
        Ok(driver.lock_all(&unsafe { keys(first, count) }?, options)?)
    };
    // SAFETY: by the rules for pointers.
    unsafe { submit_lock(driver, options, user, op, error, call) }
}

/// As `redbolt_driver_lock_all`, but tries once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_try_lock_all(
    driver: *mut redbolt_driver,
    first: *const redbolt_key,
    count: usize,
    options: *const redbolt_options,
    user: *mut c_void,
    op: *mut redbolt_op,
    error: *mut redbolt_error,
) -> redbolt_code {
    let call = |driver: &mut Driver, options| {
        // SAFETY: by the rules for pointers.
        Ok(driver.try_lock_all(&unsafe { keys(first, count) }?, options)?)
    };
    // SAFETY: by the rules for pointers.
    unsafe { submit_lock(driver, options, user, op, error, call) }
}

/// Submits an extension of a lease to `ttl_ns` from now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_extend(
    driver: *mut redbolt_driver,
    lease: redbolt_lease,
    ttl_ns: u64,
    user: *mut c_void,
    op: *mut redbolt_op,
    error: *mut redbolt_error,
) -> redbolt_code {
    let ttl = Duration::from_nanos(ttl_ns);
    // SAFETY: by the rules for pointers.
    unsafe { submit(driver, op, error, |driving| driving.extend(lease, ttl, User(user))) }
}

/// Submits the release of a lock. The lease is over from now on, unless the code is `REDBOLT_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_unlock(
    driver: *mut redbolt_driver,
    lease: redbolt_lease,
    user: *mut c_void,
    op: *mut redbolt_op,
    error: *mut redbolt_error,
) -> redbolt_code {
    // SAFETY: by the rules for pointers.
    unsafe { submit(driver, op, error, |driving| driving.unlock(lease, User(user))) }
}

/// Releases a lock without a completion; the next `redbolt_driver_drive` writes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_release(
    driver: *mut redbolt_driver,
    lease: redbolt_lease,
    error: *mut redbolt_error,
) -> redbolt_code {
    // SAFETY: by the rules for pointers.
    unsafe { with_driver(driver, error, |driving| driving.take(lease).map(drop)) }
}

/// Cancels a call for a lock. It still completes, with `REDBOLT_CANCELLED`, or as it ended before.
/// `REDBOLT_INVALID_ARGUMENT`: its completion was taken already, or `op` is no operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_cancel(
    driver: *mut redbolt_driver,
    op: redbolt_op,
    error: *mut redbolt_error,
) -> redbolt_code {
    // SAFETY: by the rules for pointers.
    unsafe { with_driver(driver, error, |driving| driving.cancel(op)) }
}

/// Takes up to `room` completions into the caller's array, and returns how many. `errors`, which may be
/// null, is an array of the same length for their messages and votes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_completions(
    driver: *mut redbolt_driver,
    completions: *mut redbolt_completion,
    errors: *mut redbolt_error,
    room: usize,
) -> usize {
    let take = || {
        // SAFETY: by the rules for pointers.
        let mut driving = unsafe { enter(driver) }.ok()?;
        let mut taken = 0;
        while taken < room && !completions.is_null() {
            let Some((completion, result)) = driving.completion() else { break };
            // SAFETY: below the room of the caller's array.
            let place = unsafe { completions.add(taken) };
            // SAFETY: by the rules for pointers.
            unsafe { write(place, completion) }.ok()?;
            if !errors.is_null() {
                // SAFETY: below the room of the caller's array.
                let place = unsafe { errors.add(taken) };
                // SAFETY: by the rules for pointers.
                unsafe { redbolt_error::tell(place, result.as_ref().copied()) };
            }
            taken += 1;
        }
        Some(taken)
    };
    or_else(0, take)
}

/// How long the lock is still certainly held, in nanoseconds; zero if the lock is over, or if
/// `lease` is no lease.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_remaining_ns(
    driver: *mut redbolt_driver,
    lease: redbolt_lease,
) -> u64 {
    or_else(0, || {
        // SAFETY: by the rules for pointers.
        let mut driving = unsafe { enter(driver) }.ok()?;
        driving.lease(lease).ok().map(|lease| nanos(lease.remaining()))
    })
}

/// Writes what is known of the lease.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_lease_state(
    driver: *mut redbolt_driver,
    lease: redbolt_lease,
    info: *mut redbolt_lease_info,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = |driving: &mut Driving| {
        let found = driving.lease(lease)?.into();
        // SAFETY: by the rules for pointers.
        unsafe { write(info, found) }
    };
    // SAFETY: by the rules for pointers.
    unsafe { with_driver(driver, error, body) }
}

/// Blocks: sends the releases that are owed, for at most `limit_ns`. `owed`, which may be null, gets how
/// many the nodes have not confirmed: those end with their TTL. Operations whose completion was not taken
/// complete with `REDBOLT_CLOSED`, and later calls for locks return it. A lease that is still held can
/// be extended and released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_driver_shutdown(
    driver: *mut redbolt_driver,
    limit_ns: u64,
    owed: *mut u64,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = |driving: &mut Driving| {
        let left = driving.shutdown(Duration::from_nanos(limit_ns));
        if !owed.is_null() {
            // SAFETY: by the rules for pointers.
            unsafe { write(owed, left as u64) }?;
        }
        Ok(())
    };
    // SAFETY: by the rules for pointers.
    unsafe { with_driver(driver, error, body) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redbolt::Config;

    #[test]
    fn a_loop_does_not_sleep_while_a_completion_of_a_shutdown_waits() {
        let config = Config::new(["redis://127.0.0.1:1"]).expect("an address");
        let mut driving = Driving::new(Driver::standalone(config).expect("a driver"));
        let call = |driver: &mut Driver| Ok(driver.lock("k", Duration::from_secs(10))?);
        assert!(driving.lock(User(std::ptr::null_mut()), call).is_ok());
        driving.shutdown(Duration::ZERO);
        let driver = redbolt_driver { driving: Mutex::new(driving), fork: forkguard::new() };
        // SAFETY: the driver lives for the call.
        let timeout = || unsafe { redbolt_driver_timeout_ns((&raw const driver).cast_mut()) };
        assert_eq!(timeout(), 0);
        assert!(driver.driving.lock().is_ok_and(|mut driving| driving.completion().is_some()));
    }

    #[test]
    fn a_second_thread_is_refused_and_a_driver_that_broke_stays_broken() {
        let config = Config::new(["redis://127.0.0.1:1"]).expect("an address");
        let driving = Driving::new(Driver::standalone(config).expect("a driver"));
        let driver = redbolt_driver { driving: Mutex::new(driving), fork: forkguard::new() };
        // SAFETY: the driver lives for the call; a null error is none.
        let drive = || unsafe {
            redbolt_driver_drive((&raw const driver).cast_mut(), std::ptr::null_mut())
        };
        assert_eq!(drive(), redbolt_code::REDBOLT_OK);
        let first = driver.driving.lock();
        assert_eq!(drive(), redbolt_code::REDBOLT_BUSY);
        drop(first);
        let broken = std::thread::scope(|scope| {
            let within = scope.spawn(|| {
                let _within = driver.driving.lock();
                panic!("a fault, as it should be");
            });
            within.join().is_err()
        });
        assert!(broken);
        assert_eq!(drive(), redbolt_code::REDBOLT_PANIC);
        // The loop drives at once, and learns of the fault.
        // SAFETY: as above.
        assert_eq!(unsafe { redbolt_driver_timeout_ns((&raw const driver).cast_mut()) }, 0);
    }
}

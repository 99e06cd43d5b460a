//! [`redbolt_client`]: locks for threads.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redbolt::{Call, Client, Guard, LockError, LockOptions, Unlocked};

use crate::border::{at_border, free, give, object, or_else, write};
use crate::bytes::{bytes, keys, redbolt_key};
use crate::code::redbolt_code;
use crate::config::redbolt_config;
use crate::error::redbolt_error;
use crate::failure::Failure;
use crate::handles::{Handles, redbolt_lease};
use crate::held::Held;
use crate::lease::redbolt_lease_info;
use crate::options::{self, redbolt_options};
use crate::time::nanos;

/// Locks for threads: one connection per node, and one I/O thread. Any number of threads may use a
/// client at the same time. In the child of a fork only `_exit` and `exec` are safe.
#[derive(Debug)]
pub struct redbolt_client {
    client: Client,
    leases: Mutex<Handles<Arc<Held>>>,
}

type Locking = Call<'static, Result<Guard, LockError>>;

impl redbolt_client {
    fn leases(&self) -> Result<MutexGuard<'_, Handles<Arc<Held>>>, Failure> {
        self.leases.lock().map_err(|_| Failure::Panic)
    }

    fn find(&self, lease: redbolt_lease) -> Result<Arc<Held>, Failure> {
        self.leases()?.get(lease).cloned()
    }

    fn keep(&self, guard: Guard) -> Result<redbolt_lease, Failure> {
        let mut leases = self.leases()?;
        let (lease, held) = leases.take();
        held.put(lease.serial, guard)?;
        Ok(lease)
    }

    /// Ends the lease for all threads, and returns its guard.
    fn take(&self, lease: redbolt_lease) -> Result<Guard, Failure> {
        let held = Arc::clone(self.leases()?.end(lease)?);
        let guard = held.take(lease.serial)?;
        self.leases()?.put_back(lease);
        Ok(guard)
    }
}

/// Takes a lock by a call, and writes the lease.
///
/// # Safety
///
/// As `write`.
unsafe fn take_lock(
    client: *mut redbolt_client,
    options: *const redbolt_options,
    lease: *mut redbolt_lease,
    error: *mut redbolt_error,
    call: impl FnOnce(&Client, LockOptions) -> Result<Locking, Failure>,
) -> redbolt_code {
    let body = || {
        // Before anything is taken: a caller that ignores the code finds no lease.
        // SAFETY: by this function's contract.
        unsafe { write(lease, redbolt_lease::default()) }?;
        // SAFETY: by this function's contract.
        let client = unsafe { object(client) }?;
        // SAFETY: by this function's contract.
        let options = unsafe { options::of(options) }?;
        let guard = call(&client.client, options)?.wait()?;
        let kept = client.keep(guard)?;
        // SAFETY: by this function's contract.
        unsafe { write(lease, kept) }
    };
    // SAFETY: by this function's contract.
    unsafe { at_border(error, body) }
}

/// Makes a client. Blocks until a quorum of nodes may vote, at most for the connect timeout. Then
/// the call waits for the other nodes, at most for the node timeout. The caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_new(
    config: *const redbolt_config,
    client: *mut *mut redbolt_client,
    error: *mut redbolt_error,
) -> redbolt_code {
    let make = || {
        // SAFETY: by the rules for pointers.
        let config = unsafe { object(config) }?.copy()?;
        Ok(redbolt_client { client: Client::connect(config)?, leases: Mutex::default() })
    };
    // SAFETY: by the rules for pointers.
    let body = || unsafe { give(client, make) };
    // SAFETY: by the rules for pointers.
    unsafe { at_border(error, body) }
}

/// Frees a client, and releases its leases without waiting for the nodes. A call with null does
/// nothing. No other thread may be in a call of the client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_free(client: *mut redbolt_client) {
    // SAFETY: by the rules for pointers.
    unsafe { free(client) }
}

/// Ends all calls with `REDBOLT_CLOSED`, but a `redbolt_wait_lost` with `REDBOLT_LOST`. Sends the
/// releases that the client owes, for at most `limit_ns`. `owed`, which may be null, gets how many
/// releases the nodes have not confirmed. The keys of those releases end with their TTL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_client_shutdown(
    client: *mut redbolt_client,
    limit_ns: u64,
    owed: *mut u64,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = || {
        // SAFETY: by the rules for pointers.
        let client = unsafe { object(client) }?;
        let left = client.client.shutdown(Duration::from_nanos(limit_ns)).wait();
        if !owed.is_null() {
            // SAFETY: by the rules for pointers.
            unsafe { write(owed, left as u64) }?;
        }
        Ok(())
    };
    // SAFETY: by the rules for pointers.
    unsafe { at_border(error, body) }
}

/// Takes the lock of a key, 1 to 4096 bytes. Waits for it until the timeout of the options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_lock(
    client: *mut redbolt_client,
    key: *const c_char,
    key_len: usize,
    options: *const redbolt_options,
    lease: *mut redbolt_lease,
    error: *mut redbolt_error,
) -> redbolt_code {
    let call = |client: &Client, options| {
        // SAFETY: by the rules for pointers.
        Ok(client.lock(unsafe { bytes(key, key_len) }?, options))
    };
    // SAFETY: by the rules for pointers.
    unsafe { take_lock(client, options, lease, error, call) }
}

/// As `redbolt_lock`, but tries once. Each round trip takes at most the timeout of a node. A fence,
/// slots or several keys may need more than one. Before a quorum is connected, the call takes at most
/// the timeout of a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_try_lock(
    client: *mut redbolt_client,
    key: *const c_char,
    key_len: usize,
    options: *const redbolt_options,
    lease: *mut redbolt_lease,
    error: *mut redbolt_error,
) -> redbolt_code {
    let call = |client: &Client, options| {
        // SAFETY: by the rules for pointers.
        Ok(client.try_lock(unsafe { bytes(key, key_len) }?, options))
    };
    // SAFETY: by the rules for pointers.
    unsafe { take_lock(client, options, lease, error, call) }
}

/// Takes the locks of 1 to 64 keys under one lease, all or none. Waits as `redbolt_lock` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_lock_all(
    client: *mut redbolt_client,
    first: *const redbolt_key,
    count: usize,
    options: *const redbolt_options,
    lease: *mut redbolt_lease,
    error: *mut redbolt_error,
) -> redbolt_code {
    let call = |client: &Client, options| {
        // SAFETY: by the rules for pointers.
        Ok(client.lock_all(unsafe { keys(first, count) }?, options))
    };
    // SAFETY: by the rules for pointers.
    unsafe { take_lock(client, options, lease, error, call) }
}

/// As `redbolt_lock_all`, but tries once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_try_lock_all(
    client: *mut redbolt_client,
    first: *const redbolt_key,
    count: usize,
    options: *const redbolt_options,
    lease: *mut redbolt_lease,
    error: *mut redbolt_error,
) -> redbolt_code {
    let call = |client: &Client, options| {
        // SAFETY: by the rules for pointers.
        Ok(client.try_lock_all(unsafe { keys(first, count) }?, options))
    };
    // SAFETY: by the rules for pointers.
    unsafe { take_lock(client, options, lease, error, call) }
}

/// A call of a client with one of its leases.
///
/// # Safety
///
/// `client` and `error` keep to the rules for pointers.
unsafe fn with_client(
    client: *mut redbolt_client,
    error: *mut redbolt_error,
    body: impl FnOnce(&redbolt_client) -> Result<(), Failure>,
) -> redbolt_code {
    // SAFETY: by this function's contract.
    let found = || body(unsafe { object(client) }?);
    // SAFETY: by this function's contract.
    unsafe { at_border(error, found) }
}

/// Moves the end of the lease to `ttl_ns` from now. One round trip, at most the timeout of a node.
/// `REDBOLT_LOST` and `REDBOLT_EXPIRED`: stop the work. `REDBOLT_NO_QUORUM`: try again until the
/// deadline. Other threads that read this lease wait meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_extend(
    client: *mut redbolt_client,
    lease: redbolt_lease,
    ttl_ns: u64,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = |client: &redbolt_client| {
        let ttl = Duration::from_nanos(ttl_ns);
        client.find(lease)?.change(lease.serial, |guard| guard.extend(ttl).wait())??;
        Ok(())
    };
    // SAFETY: by the rules for pointers.
    unsafe { with_client(client, error, body) }
}

/// Releases the lock, and waits until a quorum has confirmed that: one round trip, at most the
/// timeout of a node. The lease is over, whatever the code is. `REDBOLT_NOT_HELD`: it was over
/// before. `REDBOLT_UNCONFIRMED`: the TTL may have to end it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_unlock(
    client: *mut redbolt_client,
    lease: redbolt_lease,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = |client: &redbolt_client| {
        let ended = client.take(lease)?.unlock().wait()?;
        if ended == Unlocked::Released { Ok(()) } else { Err(Failure::Unconfirmed) }
    };
    // SAFETY: by the rules for pointers.
    unsafe { with_client(client, error, body) }
}

/// Releases the lock without waiting for the nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_release(
    client: *mut redbolt_client,
    lease: redbolt_lease,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = |client: &redbolt_client| {
        drop(client.take(lease)?);
        Ok(())
    };
    // SAFETY: by the rules for pointers.
    unsafe { with_client(client, error, body) }
}

/// How long the lock is still certainly held, in nanoseconds; zero if the lock is over, or if
/// `lease` is no lease.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_remaining_ns(
    client: *mut redbolt_client,
    lease: redbolt_lease,
) -> u64 {
    or_else(0, || {
        // SAFETY: by the rules for pointers.
        let held = unsafe { object(client) }.ok()?.find(lease).ok()?;
        held.read(lease.serial, |guard| nanos(guard.remaining())).ok()
    })
}

/// Writes what is known of the lease.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_lease_state(
    client: *mut redbolt_client,
    lease: redbolt_lease,
    info: *mut redbolt_lease_info,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = |client: &redbolt_client| {
        let found = client.find(lease)?.read(lease.serial, |guard| guard.into())?;
        // SAFETY: by the rules for pointers.
        unsafe { write(info, found) }
    };
    // SAFETY: by the rules for pointers.
    unsafe { with_client(client, error, body) }
}

/// Waits until the lock is over, for at most `limit_ns`: `REDBOLT_LOST`, or `REDBOLT_TIMED_OUT`. A
/// shutdown of the client also ends the call with `REDBOLT_LOST`. For a lock that is kept alive,
/// the call returns as soon as the client knows of the loss. Meanwhile other threads may extend and
/// unlock the lease. After an unlock the call ends with `REDBOLT_NOT_A_LEASE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redbolt_wait_lost(
    client: *mut redbolt_client,
    lease: redbolt_lease,
    limit_ns: u64,
    error: *mut redbolt_error,
) -> redbolt_code {
    let body = |client: &redbolt_client| {
        client.find(lease)?.wait_lost(lease.serial, Duration::from_nanos(limit_ns))?;
        Err(Failure::Lost)
    };
    // SAFETY: by the rules for pointers.
    unsafe { with_client(client, error, body) }
}

//! [`redbolt_completion`]: how an operation of a driver ended.

use std::ffi::c_void;

use crate::handles::redbolt_lease;

/// What has ended.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum redbolt_event {
    /// A call for a lock. If the code is `REDBOLT_OK`, `lease` is the lease.
    REDBOLT_LOCKED = 1,
    /// An extension of `lease`.
    REDBOLT_EXTENDED = 2,
    /// An unlock. The lease was over from the call on.
    REDBOLT_UNLOCKED = 3,
    /// `lease`, which is kept alive, is over: stop the work, then unlock or release it. `user` is that
    /// of the call that took the lock.
    REDBOLT_LEASE_LOST = 4,
}

/// How an operation ended.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct redbolt_completion {
    /// What has ended: a `redbolt_event`.
    pub event: i32,
    /// How it ended: a `redbolt_code`.
    pub code: i32,
    /// The caller's own pointer, as the call had it. The library never follows it.
    pub user: *mut c_void,
    /// The lease; all zeros if there is none.
    pub lease: redbolt_lease,
}

/// The name of an operation, for `redbolt_driver_cancel`: a number, which is safe to copy and to
/// keep.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct redbolt_op {
    /// For the library alone.
    pub serial: u64,
    /// For the library alone.
    pub place: u64,
}

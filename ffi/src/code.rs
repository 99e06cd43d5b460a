//! [`redbolt_code`]: how a call ended.

use std::ffi::c_char;

/// How a call ended. The message of `redbolt_error` says more.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum redbolt_code {
    /// The call did what it was asked for.
    REDBOLT_OK = 0,
    /// Another client, or another caller of this client, holds the lock. Try again later.
    REDBOLT_TAKEN = 1,
    /// Too few nodes could vote or answered in time. Try again; the message names the nodes.
    REDBOLT_NO_QUORUM = 2,
    /// The lease is over, or was won with less validity than the call asked for.
    REDBOLT_EXPIRED = 3,
    /// The lock is lost: no quorum holds the key any more, or its time is over. Stop the work.
    REDBOLT_LOST = 4,
    /// The lock was over before it was unlocked. Another holder may have been at work.
    REDBOLT_NOT_HELD = 5,
    /// Too few nodes answered to know whether the lock is free. Its TTL ends it.
    REDBOLT_UNCONFIRMED = 6,
    /// The lease may not be extended any further; it goes on until its deadline.
    REDBOLT_LIMIT_REACHED = 7,
    /// Another thread is in a call of this driver, or another extension is under way.
    REDBOLT_BUSY = 8,
    /// Too many operations are under way. Take their results first.
    REDBOLT_FULL = 9,
    /// The client or driver was shut down, or this is the child of a fork.
    REDBOLT_CLOSED = 10,
    /// The operation was cancelled.
    REDBOLT_CANCELLED = 11,
    /// An argument is null or out of its range. Correct the call.
    REDBOLT_INVALID_ARGUMENT = 12,
    /// The lease was unlocked or released, or is another client's.
    REDBOLT_NOT_A_LEASE = 13,
    /// The configuration cannot work. The message says which setting.
    REDBOLT_INVALID_CONFIG = 14,
    /// The operating system refused what the event loop needs.
    REDBOLT_SYSTEM = 15,
    /// The time limit of the wait is over.
    REDBOLT_TIMED_OUT = 16,
    /// A fault in the library: please report it. Free the object and make a new one.
    REDBOLT_PANIC = 17,
}

/// The name of a code, such as "REDBOLT_TAKEN"; static text, for a log line.
#[unsafe(no_mangle)]
pub extern "C" fn redbolt_code_name(code: i32) -> *const c_char {
    let names = [
        c"REDBOLT_OK",
        c"REDBOLT_TAKEN",
        c"REDBOLT_NO_QUORUM",
        c"REDBOLT_EXPIRED",
        c"REDBOLT_LOST",
        c"REDBOLT_NOT_HELD",
        c"REDBOLT_UNCONFIRMED",
        c"REDBOLT_LIMIT_REACHED",
        c"REDBOLT_BUSY",
        c"REDBOLT_FULL",
        c"REDBOLT_CLOSED",
        c"REDBOLT_CANCELLED",
        c"REDBOLT_INVALID_ARGUMENT",
        c"REDBOLT_NOT_A_LEASE",
        c"REDBOLT_INVALID_CONFIG",
        c"REDBOLT_SYSTEM",
        c"REDBOLT_TIMED_OUT",
        c"REDBOLT_PANIC",
    ];
    let name = usize::try_from(code).ok().and_then(|code| names.get(code));
    name.copied().unwrap_or(c"no code of redbolt").as_ptr()
}

//! [`redbolt_options`]: what one call for a lock asks for.

use std::time::Duration;

use redbolt::LockOptions;

use crate::border::object;
use crate::failure::Failure;

/// Bits of `flags` in `redbolt_options`.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub enum redbolt_option {
    /// The client extends the lease while it is held, and reports its loss.
    REDBOLT_KEEP_ALIVE = 1,
    /// The lease has a fence: a number above that of every earlier lease of the key.
    REDBOLT_FENCED = 2,
    /// The call writes: it takes all slots of `readers`.
    REDBOLT_WRITE = 4,
}

const ALL: u32 = redbolt_option::REDBOLT_KEEP_ALIVE as u32
    | redbolt_option::REDBOLT_FENCED as u32
    | redbolt_option::REDBOLT_WRITE as u32;

/// What one call for a lock asks for. Set `ttl_ns`, and leave the rest zero:
/// `redbolt_options options = {.ttl_ns = 10 * REDBOLT_S};`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct redbolt_options {
    /// Each node drops the lock this long after it granted the lock. From 4 ms (with the default
    /// drift) to the configured longest TTL; whole milliseconds, rounded down.
    pub ttl_ns: u64,
    /// A call that waits ends after this, or after `REDBOLT_RETRY_TIMEOUT_NS` (10 s by default) if
    /// that is less. Zero: `REDBOLT_RETRY_TIMEOUT_NS` alone.
    pub timeout_ns: u64,
    /// The call releases a lease with less left than this, and tries again or fails.
    pub min_validity_ns: u64,
    /// For a client: how long an unlocked lock may stay with the client for its next call.
    pub linger_ns: u64,
    /// How many callers may hold the lock at the same time, 1 to 63. Zero means one caller.
    pub slots: u32,
    /// For a lock with readers: how many may read at once, 1 to 63. The call reads, or writes with
    /// `REDBOLT_WRITE`.
    pub readers: u32,
    /// Bits of `redbolt_option`.
    pub flags: u32,
}

/// The options of a call.
///
/// # Safety
///
/// `options` is null, or points to options that stay as they are during the call.
pub(crate) unsafe fn of(options: *const redbolt_options) -> Result<LockOptions, Failure> {
    // SAFETY: by this function's contract.
    let given =
        unsafe { object(options) }.map_err(|_| Failure::Argument("the options are null"))?;
    let has = |flag: redbolt_option| given.flags & flag as u32 != 0;
    if given.flags & !ALL != 0 {
        return Err(Failure::Argument("the flags of the options have an unknown bit"));
    }
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let mut options = LockOptions::new(Duration::from_nanos(given.ttl_ns))
        .min_validity(Duration::from_nanos(given.min_validity_ns));
    if given.timeout_ns > 0 {
        options = options.timeout(Duration::from_nanos(given.timeout_ns));
    }
    if given.linger_ns > 0 {
        options = options.linger(Duration::from_nanos(given.linger_ns));
    }
    if has(redbolt_option::REDBOLT_KEEP_ALIVE) {
        options = options.keep_alive();
    }
    if has(redbolt_option::REDBOLT_FENCED) {
        options = options.fenced();
    }
    match (given.slots, given.readers, has(redbolt_option::REDBOLT_WRITE)) {
        (0, 0, false) => Ok(options),
        (slots, 0, false) => Ok(options.slots(count(slots))),
        (0, 1.., true) => Ok(options.write(count(given.readers))),
        (0, readers, false) => Ok(options.read(count(readers))),
        (_, 0, true) => Err(Failure::Argument("REDBOLT_WRITE needs the number of readers")),
        (1.., 1.., _) => Err(Failure::Argument("slots and readers exclude each other")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: redbolt_options = redbolt_options {
        ttl_ns: 1_000_000_000,
        timeout_ns: 0,
        min_validity_ns: 0,
        linger_ns: 0,
        slots: 0,
        readers: 0,
        flags: 0,
    };

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        // SAFETY: the options live for the call.
        let is_taken = |options: redbolt_options| unsafe { of(&raw const options) }.is_ok();
        assert!(is_taken(PLAIN));
        assert!(is_taken(redbolt_options { slots: 5, ..PLAIN }));
        assert!(is_taken(redbolt_options { readers: 5, flags: 4, ..PLAIN }));
        assert!(!is_taken(redbolt_options { flags: 8, ..PLAIN }));
        assert!(!is_taken(redbolt_options { flags: 4, ..PLAIN }));
        assert!(!is_taken(redbolt_options { slots: 5, readers: 5, ..PLAIN }));
        assert!(!is_taken(redbolt_options { slots: 5, flags: 4, ..PLAIN }));
    }
}

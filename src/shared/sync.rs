//! What callers and the I/O thread meet by: the standard library's, or, in this crate's own unit tests,
//! those of a checker that runs them in one order after the other: see `schedules`.

#[cfg(test)]
pub(super) use shuttle::{
    sync::{Mutex, atomic::AtomicBool},
    thread::{self, Thread},
};
#[cfg(not(test))]
pub(super) use std::{
    sync::{Mutex, atomic::AtomicBool},
    thread::{self, Thread},
};

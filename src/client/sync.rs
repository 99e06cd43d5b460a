//! The mutex and threads of callers and the I/O thread: the standard library's. This crate's unit
//! tests take those of a checker that tries many schedules: see `schedules`.

#[cfg(test)]
pub(super) use shuttle::{
    sync::{Mutex, MutexGuard, atomic::AtomicBool},
    thread::{self, Thread},
};
#[cfg(not(test))]
pub(super) use std::{
    sync::{Mutex, MutexGuard, atomic::AtomicBool},
    thread::{self, Thread},
};

//! Callers and the I/O thread use the standard library's mutex and threads. This crate's unit tests
//! use those of a checker that tries many schedules: see `schedules`.

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

//! Redbolt for C and C++. `include/redbolt.h` is made from this crate; `docs/guide-c.md` is the
//! guide.
//!
//! # Invariants
//!
//! - No panic crosses the border: `border` catches it, and the call returns `REDBOLT_PANIC`.
//! - A lease is a number, not a pointer: `handles` knows whether the number still names a lease.
//! - Only `border`, `bytes` and `error` read or write through a pointer from C, after a check for
//!   null. Each `unsafe` says what C must keep to.

#![expect(non_camel_case_types, reason = "these are the names in C")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the guide has the rules for pointers, once for all"
)]

mod border;
pub mod bytes;
pub mod client;
pub mod code;
pub mod completion;
pub mod config;
pub mod driver;
mod driving;
pub mod error;
mod failure;
pub mod handles;
mod held;
pub mod lease;
pub mod options;
pub mod time;
mod tls;

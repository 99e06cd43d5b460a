//! RESP2 and RESP3, client side: bytes to replies and commands to bytes.
//!
//! Layer: bottom. It does no I/O, reads no clock, and imports no other module of the crate.
//! `command`, `node`, `query` and `engine` call it.
//!
//! There are three entry points. [`quick()`] compares the five replies of a lock cycle as words.
//! [`Decoder`] finds the end of any other frame and validates it, whatever the chunking. The
//! [`Reply`] of a [`Frame`] then borrows from the same bytes. [`encode`] appends commands to a
//! buffer of the caller.
//!
//! # Contract
//!
//! - Each input ends as a frame, "more bytes needed" or a [`ProtocolError`]. An error is final:
//!   framing is lost, so the client closes the connection, and the pending requests on it are
//!   unknown.
//! - Reading never panics on received bytes, allocates, or prints them: a server's error text may
//!   quote a key or a password.
//!
//! # Invariants
//!
//! - Work is linear in the bytes received, not in the sizes that they declare, under any chunking
//!   (`work_is_linear_under_any_chunking`).
//! - Cutting the input anywhere changes no frame and no error (`cutting_changes_nothing`).
//! - `quick` and `Decoder` agree on every reply that `quick` accepts
//!   (`quick_agrees_with_the_decoder`).

mod decode;
pub(crate) mod encode;
mod error;
mod grammar;
mod quick;
mod reply;

pub(crate) use decode::{Decoder, Frame, Limits};
pub(crate) use error::ProtocolError;
pub(crate) use quick::{Quick, quick};
pub(crate) use reply::{Items, Reply};

#[cfg(test)]
mod tests;

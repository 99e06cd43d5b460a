//! In-process nodes for tests of programs that lock with
//! [Redbolt](https://docs.rs/redbolt): a model of one Redis or Valkey master, and real TCP servers
//! around it.
//!
//! Layer: [`model`] and its request parser are sans-IO (bytes and `now` in, bytes out). The server
//! stands above the line, with sockets, threads and clocks. We wrote the model from the answers of
//! real servers, never from a client's code. It shares no code with Redbolt, and so no bug.
//!
//! ```
//! # fn main() -> Result<(), redbolt_embedded::NodesError> {
//! use redbolt_embedded::{Memory, Nodes};
//!
//! let nodes = Nodes::start(5)?;
//! let urls = nodes.urls(); // "redis://127.0.0.1:PORT"
//! nodes.pause(0)?; // hangs, as under SIGSTOP
//! nodes.kill(1)?; // its port refuses
//! nodes.resume(0)?; // runs what was sent meanwhile
//! nodes.restart(1, Memory::Lost)?; // a new process life without its keys
//! # assert_eq!(urls.len(), 5);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(clippy::print_stdout, clippy::print_stderr)]

// On other systems this error replaces a page of compiler errors.
#[cfg(not(unix))]
compile_error!("redbolt-embedded needs Unix: Linux or macOS; on Windows use WSL");

pub mod model;
mod request;
#[cfg(unix)]
mod server;
mod time;

pub use model::Flavor;
#[cfg(unix)]
pub use server::{Memory, NodeState, Nodes, NodesError, NodesOptions};
pub use time::Instant;

/// The README's example runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

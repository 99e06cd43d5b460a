//! The model of one master: it takes request bytes and a point in time, and returns reply bytes.
//!
//! Layer: sans-IO. No socket, thread, clock or environment: `crate::server` puts TCP around the
//! model, and a simulator drives the model on a virtual clock.
//!
//! ```
//! use redbolt_embedded::{Flavor, Instant};
//! use redbolt_embedded::model::{Life, Server, ServerOptions};
//!
//! let life = Life::new([7; 20], [8; 20], Instant::from_nanos(0), 1_700_000_000_000);
//! let mut server = Server::new(&ServerOptions::new(Flavor::Valkey91), life);
//! let mut session = server.connect();
//! let mut out = Vec::new();
//! let now = Instant::from_nanos(5);
//! server.execute(&mut session, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n", now, &mut out);
//! assert_eq!(out, b"+OK\r\n");
//! ```
//!
//! # Entry points
//!
//! [`Server::execute`] parses (`request`). Then `gate` decides whether the command may run, in the
//! order in which real servers check, and `table` names the function that runs it.

mod call;
mod channels;
mod connection;
mod flavor;
mod gate;
mod info;
mod keys;
mod keyspace;
mod pubsub;
mod refusals;
mod reply;
mod script;
mod server;
mod session;
mod strings;
mod table;

pub use channels::Delivery;
pub use flavor::Flavor;
pub use server::{Condition, Life, Memory, Progress, Server, ServerOptions};
pub use session::Session;

#[cfg(test)]
mod tests;

//! In-process nodes: a model of one master, and real TCP servers around it.
//!
//! Layer: `model` and `request` are sans-IO (bytes and `now` in, bytes out); `server` stands above
//! the line, with sockets, threads and clocks. Written from what real servers answer and never from
//! this crate's own client code, so that a mistake there is not repeated here unseen.
//!
//! ```
//! # fn main() -> Result<(), redbolt::embedded::NodesError> {
//! use redbolt::embedded::{Memory, Nodes};
//!
//! let nodes = Nodes::start(5)?;
//! let urls = nodes.urls(); // "redis://127.0.0.1:PORT", for any client
//! nodes.pause(0)?; // hangs, as under SIGSTOP
//! nodes.kill(1)?; // its port refuses
//! nodes.resume(0)?; // runs what was sent meanwhile
//! nodes.restart(1, Memory::Lost)?; // a new process life without its keys
//! # assert_eq!(urls.len(), 5);
//! # Ok(())
//! # }
//! ```

pub mod model;
mod request;
mod server;

pub use model::Flavor;
pub use server::{Memory, NodeState, Nodes, NodesError, NodesOptions};

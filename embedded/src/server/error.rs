//! [`NodesError`]: why an embedded node could not start, or did not obey.
//!
//! Layer: above the sans-IO line, plain values.

use std::io;

/// Why an embedded node could not start, or did not carry an order out.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum NodesError {
    /// There is no node with this number.
    #[error("there is no node {node}: there are {count}, counted from 0")]
    NoSuchNode {
        /// The number in the call.
        node: usize,
        /// How many nodes there are.
        count: usize,
    },
    /// The system refused a port, a thread or an event queue.
    #[error("node {node}: {source}")]
    Io {
        /// The node's number.
        node: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// The node's thread has ended by itself, which is a bug.
    #[error("the thread of node {node} has ended")]
    Gone {
        /// The node's number.
        node: usize,
    },
}

impl From<NodesError> for io::Error {
    fn from(error: NodesError) -> Self {
        match error {
            NodesError::NoSuchNode { .. } => Self::new(io::ErrorKind::InvalidInput, error),
            NodesError::Io { ref source, .. } => Self::new(source.kind(), error),
            NodesError::Gone { .. } => Self::other(error),
        }
    }
}

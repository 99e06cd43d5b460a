//! What the engine tells: results, the loss of a lease, and what is to be done with a connection.

use super::locks::op::{NodeReplies, OpId};
use super::locks::slot::LeaseId;
use crate::error::{ExtendError, LockError, UnlockError, Unlocked};

/// The result of an operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// An acquisition ended.
    Lock {
        /// The operation.
        op: OpId,
        /// The lease, or why there is none.
        result: Result<LeaseId, LockError>,
    },
    /// An extension ended.
    Extend {
        /// The operation.
        op: OpId,
        /// The lease it was for.
        lease: LeaseId,
        /// Whether the lease has its new deadline.
        result: Result<(), ExtendError>,
    },
    /// A key and token from elsewhere became a lease, or did not.
    Adopt {
        /// The operation.
        op: OpId,
        /// The lease, or why there is none.
        result: Result<LeaseId, ExtendError>,
    },
    /// A release ended.
    Unlock {
        /// The operation.
        op: OpId,
        /// How.
        result: Result<Unlocked, UnlockError>,
    },
    /// A lease that is kept alive or watched is over, and was not released. It comes by the lease's
    /// deadline, whatever the nodes do, and at once when no quorum can hold the key any more. The
    /// lease stays to be released.
    Lost {
        /// The acquisition or adoption that the lease came from.
        op: OpId,
        /// The lease.
        lease: LeaseId,
        /// Why.
        cause: LostCause,
    },
    /// The nodes answered a query, or had `node_timeout` to do so.
    Query {
        /// The operation.
        op: OpId,
        /// The answers of each node that was asked.
        replies: Vec<NodeReplies>,
    },
}

/// Why a lease is over before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostCause {
    /// Its deadline has come: nothing extended it in time.
    Expired,
    /// So many nodes are without the key that no quorum holds it any more.
    Gone,
}

/// What the owner of the sockets is asked to do for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Connection {
    /// Open a connection, then call [`handle_connected`](super::Engine::handle_connected) or
    /// [`handle_lost`](super::Engine::handle_lost).
    Open,
    /// Close the connection. The engine has already dealt with its loss.
    Close,
}

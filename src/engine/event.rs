//! The reports of the engine: results, the loss of a lease, and notices about nodes.

use std::fmt;
use std::sync::Arc;

use super::locks::op::OpId;
use super::locks::slot::LeaseId;
use crate::error::{Cause, ExtendError, LockError, UnlockError, Unlocked};
use crate::query::NodeAnswers;
use crate::quorum::NodeId;

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
        /// The lease that was to be extended.
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
        /// How it ended.
        result: Result<Unlocked, UnlockError>,
    },
    /// A lease that is kept alive ended without its release. The engine reports this at the lease's
    /// deadline at the latest, whatever the nodes do. If no quorum can hold the key any more, the
    /// engine reports the loss at once. The caller should still release the lease.
    Lost {
        /// The acquisition or adoption from which the lease came.
        op: OpId,
        /// The lease.
        lease: LeaseId,
        /// Why the lease ended.
        cause: LostCause,
    },
    /// The nodes answered a query, or `node_timeout` passed.
    Query {
        /// The operation.
        op: OpId,
        /// The answers of each node, in the order of the configuration.
        answers: Vec<NodeAnswers>,
    },
}

impl Event {
    /// The operation that is reported, or from which a lost lease came.
    pub(in crate::engine) const fn op(&self) -> OpId {
        match self {
            Self::Lock { op, .. }
            | Self::Extend { op, .. }
            | Self::Adopt { op, .. }
            | Self::Unlock { op, .. }
            | Self::Lost { op, .. }
            | Self::Query { op, .. } => *op,
        }
    }
}

/// Why a lease ended before its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostCause {
    /// The deadline of the lease has come: no extension won in time.
    Expired,
    /// No quorum holds the key any more: another client has deleted it, by its token or by
    /// `unlock --force`.
    Gone,
    /// No quorum holds the key any more: too many nodes have restarted, or were replicas meanwhile.
    Forgotten,
}

/// Why a node does not vote, or that it votes again.
///
/// The engine reports each cause once, until the node is well again: admitted by a greeting. If
/// only writes show the fault (memory, saving, permissions), the node is well when it grants again
/// after ten seconds without a refusal. A node that is only unreachable, or quarantined, gives no
/// notice: see [`Engine::nodes`](crate::engine::Engine::nodes).
#[derive(Clone)]
#[non_exhaustive]
pub struct Notice {
    /// The node.
    pub node: NodeId,
    /// Why the node does not vote; [`Cause::None`] if it votes again.
    pub cause: Cause,
    names: Arc<[Box<str>]>,
}

impl Notice {
    pub(super) fn new(node: NodeId, cause: Cause, names: &Arc<[Box<str>]>) -> Self {
        Self { node, cause, names: Arc::clone(names) }
    }

    /// The node's `host:port` or path.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names.get(self.node.index()).map_or("", |name| name)
    }

    /// Whether the node votes again.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.cause == Cause::None
    }

    /// Whether the cause may pass by itself: the node is loading, busy, or has too many clients.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self.cause, Cause::Loading | Cause::Busy | Cause::TooManyClients)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_well() {
            write!(f, "{}: votes again", self.name())
        } else {
            write!(f, "{}: {}", self.name(), self.cause)
        }
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notice").field(&self.name()).field(&self.cause).finish()
    }
}

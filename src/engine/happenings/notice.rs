//! [`Notice`]: news of a node for people, reported once and not with every lock that fails.

use std::fmt;
use std::sync::Arc;

use crate::error::Cause;
use crate::quorum::NodeId;

/// Why a node does not vote, or that it votes again.
///
/// The driver reports each cause once, until the node is well again: admitted by a greeting. If
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
    pub(in crate::engine) fn new(node: NodeId, cause: Cause, names: &Arc<[Box<str>]>) -> Self {
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

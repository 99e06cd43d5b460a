//! A driver's knowledge of its nodes and operations. The driver asks no node for it.

#[cfg(feature = "metrics")]
use std::sync::Arc;

use super::clock;
use super::core::Driver;
#[cfg(feature = "metrics")]
use super::export::AskOldest;
use crate::agreement::Agreement;
use crate::client_name::ClientId;
#[cfg(feature = "metrics")]
use crate::count::CallCounts;
use crate::engine::{Engine, NodeHealth};
use crate::error::LockError;
use crate::quorum::NodeMask;

impl Driver {
    /// The state of each node.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHealth> {
        self.engine.nodes(clock::now())
    }

    /// Whether a quorum may vote now, for a readiness endpoint. [`nodes`](Self::nodes) says why a
    /// node does not vote.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.engine.is_ready()
    }

    /// The nodes that may vote now.
    #[must_use]
    pub const fn voters(&self) -> NodeMask {
        self.engine.voters()
    }

    /// Whether these nodes are a quorum; with [next nodes](crate::Config::next_nodes), of each
    /// list.
    #[must_use]
    pub const fn has_quorum(&self, nodes: NodeMask) -> bool {
        self.engine.has_quorum(nodes)
    }

    /// How many votes make a quorum; with [next nodes](crate::Config::next_nodes) the larger of the
    /// two.
    #[must_use]
    pub const fn quorum(&self) -> u32 {
        self.engine.quorum()
    }

    /// Whether every node is settled: admitted, or known not to be. Then a longer wait for nodes is
    /// useless. A node that has just lost a healthy connection reconnects, so this may
    /// become false again.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.engine.is_settled()
    }

    /// A key as the nodes know it: behind the [prefix](crate::Config::key_prefix).
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] and [`LockError::ReservedKey`].
    pub fn wire_key(&self, key: impl AsRef<[u8]>) -> Result<Vec<u8>, LockError> {
        self.engine.wire_key(key.as_ref()).map(Into::into)
    }

    /// The name under which the nodes know this client: the id with which all its tokens begin, and
    /// the settings that all clients of its locks must share.
    #[must_use]
    pub fn identity(&self) -> (ClientId, Agreement) {
        self.engine.identity()
    }

    /// How many operations are under way, or have ended and not been reported yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    /// Whether an operation has ended, a lease was lost, or another client waits for one.
    pub(crate) fn has_news(&self) -> bool {
        self.engine.has_event() || self.pool.has_lost || self.engine.waited_for().next().is_some()
    }

    /// Whether [`take_loss`](Self::take_loss) has one to tell.
    pub(crate) const fn has_loss(&self) -> bool {
        self.pool.has_lost
    }

    /// Whether a lease was lost since the last call, kept alive or not.
    pub(crate) const fn take_loss(&mut self) -> bool {
        std::mem::replace(&mut self.pool.has_lost, false)
    }

    pub(crate) const fn engine(&self) -> &Engine {
        &self.engine
    }
}

#[cfg(feature = "metrics")]
impl Driver {
    /// Hands the counts since the last export, and the states of the nodes, to the recorder of the
    /// `metrics` facade. [`drive`](Self::drive) does this by itself at most once per second;
    /// [`shutdown`](Self::shutdown) and the drop of a driver do it too. Call it if that is too late
    /// for you. `docs/observing.md` lists all series.
    ///
    /// Costs some microseconds and allocations. Without a recorder the values are lost.
    pub fn export_metrics(&mut self) {
        self.exporter.export(&self.engine);
    }

    /// From now on the driver exports `calls` and not the engine's count of calls for locks. The
    /// driving thread asks `oldest`.
    pub(crate) fn export_calls(&mut self, calls: Arc<CallCounts>, oldest: AskOldest) {
        self.exporter.calls = Some(calls);
        self.exporter.oldest = Some(oldest);
    }
}

//! A driver's nodes and operations: states, notices and lists. The driver asks no node for these.

use std::sync::Arc;

use super::clock;
use super::core::Driver;
#[cfg(feature = "metrics")]
use super::export::AskOldest;
use super::link::links_of;
use crate::agreement::Agreement;
use crate::client_name::ClientId;
use crate::config::Config;
#[cfg(feature = "metrics")]
use crate::count::CallCounts;
use crate::engine::{Engine, NodeHealth, Notice};
use crate::error::{ConfigError, LockError};
use crate::quorum::{Electorate, NodeMask};

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

    /// The id with which all tokens of this client begin, and the settings that all clients of its
    /// locks must share.
    #[must_use]
    pub fn identity(&self) -> (ClientId, Agreement) {
        self.engine.identity()
    }

    /// The next notice to people about a node: why the node does not vote, or that it votes again.
    /// The driver reports each cause once, however many locks fail by it. It keeps the last notice
    /// of each node until the caller takes it.
    ///
    /// With the feature `tracing` the driver also logs it, at the end of the same pass, under the
    /// target `redbolt`. It logs one `error` event per cause (`warn` if the cause may pass by
    /// itself), and one `info` event when the node votes again.
    pub fn notice(&mut self) -> Option<Notice> {
        #[cfg(feature = "tracing")]
        {
            self.log_notices();
            let node = self.logged.into_iter().next()?;
            self.logged.remove(node);
            self.engine.last_notice(node)
        }
        #[cfg(not(feature = "tracing"))]
        self.engine.poll_notice()
    }

    #[cfg(feature = "tracing")]
    pub(super) fn log_notices(&mut self) {
        while let Some(notice) = self.engine.poll_notice() {
            let (node, cause) = (notice.name(), notice.cause.text());
            if notice.is_well() {
                tracing::info!(target: "redbolt", node, "node votes again");
            } else if notice.may_pass() {
                tracing::warn!(target: "redbolt", node, cause, "node refused for now");
            } else {
                tracing::error!(target: "redbolt", node, cause, "node refused until you repair it");
            }
            self.logged.insert(notice.node);
        }
    }

    /// Changes the lists of nodes to those of `lists`, by the rules of
    /// [`Client::set_nodes`](crate::Client::set_nodes). The driver connects to the new nodes in its
    /// next passes. A change costs no round trip, but a look at each lease.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoCommonList`] unless the present lists and the new ones have one in common.
    /// [`ConfigError::TooManyNodes`] for more than 32 nodes, those of earlier lists included.
    /// [`ConfigError::TokenRange`] if the driver has too few tokens for the new nodes.
    pub fn set_nodes(&mut self, lists: &Config) -> Result<(), ConfigError> {
        let config = self.engine.config().with_lists_of(lists)?;
        let needed = config.nodes.len() + 1;
        if self.tokens.len() < needed {
            return Err(ConfigError::TokenRange { given: self.tokens.len(), needed });
        }
        let links = links_of(&config)?;
        self.engine.set_nodes(lists, clock::now())?;
        self.links.extend(links.into_iter().skip(self.links.len()));
        Ok(())
    }

    /// The names of all nodes and the lists that decide, if they have changed since the last call.
    pub(crate) fn take_lists(&mut self) -> Option<(Arc<[Box<str>]>, Electorate)> {
        self.engine.take_lists()
    }

    /// Whether the client has lists of nodes that do not decide yet.
    #[must_use]
    pub const fn is_exchanging(&self) -> bool {
        self.engine.is_exchanging()
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

    /// Whether [`take_loss`](Self::take_loss) would return true.
    pub(crate) const fn has_loss(&self) -> bool {
        self.pool.has_lost
    }

    /// Whether a lease was lost, or its deadline moved nearer, since the last call.
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

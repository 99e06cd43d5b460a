//! The state of the nodes, for people, readiness endpoints and error messages.

use super::core::Locks;
use crate::error::Cause;
pub use crate::node::NodeState;
use crate::quorum::NodeId;
use crate::time::Instant;

use std::time::Duration;

/// The client's knowledge of a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// `host:port` or the socket's path.
    pub name: String,
    /// The state of the connection.
    pub state: NodeState,
    /// Why the node does not vote; [`Cause::None`] if it does.
    pub cause: Cause,
    /// Whether the node votes: admitted, not stalled, and without debts that go before a vote.
    pub votes: bool,
    /// How long the node has been in this state. The client notices a change only when the caller
    /// drives the connections.
    pub since: Duration,
    /// How long until the client connects or greets again by itself; for a quarantine, how long
    /// until its end.
    pub until: Option<Duration>,
    /// The server's name and version, if it has answered a greeting.
    pub server: Option<String>,
    /// `master`, or another role of the server.
    pub role: Option<String>,
    /// The identity of the server's process: a restart gives it another.
    pub run_id: Option<String>,
    /// The age that the server reported at the greeting.
    pub uptime: Option<Duration>,
    /// `maxmemory-policy`.
    pub maxmemory_policy: Option<String>,
    /// Whether the server writes an append-only file.
    pub append_only: Option<bool>,
    /// Whether the connection uses RESP3.
    pub resp3: bool,
    /// Whether the node denied INFO, so that the client could check less of it.
    pub info_denied: bool,
    /// The commands for release and extension.
    pub dialect: Option<String>,
    /// Whether this client and others can wake each other through the node
    /// ([`Config::direct_wake`](crate::Config::direct_wake)).
    pub direct_wake: bool,
    /// Round trip of the last greeting.
    pub round_trip: Option<Duration>,
    /// How long ago the node last sent anything.
    pub silence: Option<Duration>,
    /// How many requests are unanswered.
    pub unanswered: usize,
    /// How many releases the client owes the node.
    pub debts: usize,
    /// How many owed releases the client dropped because it had no room for them.
    pub debts_dropped: u64,
}

impl Locks {
    /// The state of one node at `now`.
    pub(in crate::engine) fn health(&self, id: NodeId, now: Instant) -> Option<NodeHealth> {
        let (node, name) = (self.nodes.get(id)?, self.nodes.name(id));
        let facts = node.facts();
        let is_listed = self.nodes.all().contains(id);
        let left = node.until().map_or(Duration::ZERO, |end| now.until(end));
        let shown = node.shown(left);
        let is_unlisted = shown == NodeState::Admitted && !is_listed
            || shown == NodeState::Disconnected && node.is_given_up();
        let since = self.nodes.shown_since(id).unwrap_or(now);
        let server = facts.server();
        Some(NodeHealth {
            name: name.to_string(),
            state: if is_unlisted { NodeState::Unlisted } else { shown },
            cause: self.cause_of(id),
            votes: self.nodes.voters().contains(id),
            since: now.saturating_since(since),
            until: node.until().filter(|at| *at < Instant::MAX).map(|until| now.until(until)),
            server: facts.kind.map(|_| format!("{} {}", server.kind, facts.version)),
            role: facts.role.clone(),
            run_id: facts.run_id.clone(),
            uptime: facts.uptime_s.map(Duration::from_secs),
            maxmemory_policy: facts.maxmemory_policy.clone(),
            append_only: facts.aof,
            resp3: facts.resp3,
            info_denied: facts.info_denied,
            dialect: node.is_greeted().then(|| node.dialect.to_string()),
            direct_wake: node.has_channel(),
            round_trip: node.round_trip,
            silence: node.last_answer().map(|at| now.saturating_since(at)),
            unanswered: node.pending().count(),
            debts: node.debts.len(),
            debts_dropped: node.debts.dropped(),
        })
    }

    /// Why the node does not vote.
    pub(in crate::engine) fn cause_of(&self, id: NodeId) -> Cause {
        match self.nodes.at(id) {
            _ if self.nodes.voters().contains(id) => Cause::None,
            node if node.can_vote() || node.is_given_up() => Cause::Unlisted,
            node => node.cause(),
        }
    }
}

//! How the nodes are: for people, readiness endpoints and error messages.

use super::state::Locks;
use crate::error::{Cause, ConnectError};
use crate::node::Shown;
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::time::Instant;

use std::time::Duration;

/// Where a node's conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// No connection.
    Disconnected,
    /// A connection is being opened.
    Connecting,
    /// Connected; the node is saying who it is.
    Greeting,
    /// It votes.
    Admitted,
    /// Connected, but not believed for this long yet: it may have forgotten locks.
    Quarantined(Duration),
    /// Connected, but not fit for locks.
    Refused,
    /// Admitted, but it has owed answers for several `node_timeout`.
    Stalled,
}

impl NodeState {
    /// The state as a word, for labels and for fields of JSON: `disconnected`, `connecting`,
    /// `greeting`, `admitted`, `quarantined`, `refused` or `stalled`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Connecting => "connecting",
            Self::Greeting => "greeting",
            Self::Admitted => "admitted",
            Self::Quarantined(_) => "quarantined",
            Self::Refused => "refused",
            Self::Stalled => "stalled",
        }
    }
}

/// What is known of a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// `host:port` or the socket's path.
    pub name: String,
    /// Where the conversation is.
    pub state: NodeState,
    /// Why it does not vote; [`Cause::None`] if it does.
    pub cause: Cause,
    /// Whether it votes: admitted, not stalled, and owed nothing that goes before a vote.
    pub votes: bool,
    /// For how long it has been in that state, as far as somebody drove the connections.
    pub since: Duration,
    /// How long until it is connected to or greeted anew by itself: of a quarantine its end.
    pub until: Option<Duration>,
    /// The server's name for itself and its version, as far as it was greeted.
    pub server: Option<String>,
    /// `master` or what else it is.
    pub role: Option<String>,
    /// What tells this life of the server from others.
    pub run_id: Option<String>,
    /// How old the server said it was at the greeting.
    pub uptime: Option<Duration>,
    /// `maxmemory-policy`.
    pub maxmemory_policy: Option<String>,
    /// Whether an append-only file is written.
    pub append_only: Option<bool>,
    /// Whether it speaks RESP3.
    pub resp3: bool,
    /// Whether INFO was denied, so that admission rests on less.
    pub info_denied: bool,
    /// The commands for release and extension.
    pub dialect: Option<String>,
    /// Whether the waiters of other clients reach this one by it, and the other way round
    /// ([`Config::direct_wake`](crate::Config::direct_wake)).
    pub direct_wake: bool,
    /// Whether it can tell of keys that change ([`LockOptions::watch`](crate::LockOptions::watch)), as far
    /// as is known before it is asked to.
    pub watch: bool,
    /// Round trip of the last greeting.
    pub round_trip: Option<Duration>,
    /// How long ago anything last came from it.
    pub silence: Option<Duration>,
    /// Requests whose answer is awaited.
    pub unanswered: usize,
    /// Releases owed to it.
    pub debts: usize,
    /// Releases that were given up for want of room.
    pub debts_dropped: u64,
}

impl Locks {
    /// How each node is at `now`.
    #[must_use]
    pub(in crate::engine) fn nodes(&self, now: Instant) -> Vec<NodeHealth> {
        self.nodes.all().into_iter().filter_map(|id| self.health(id, now)).collect()
    }

    /// How one node is at `now`.
    pub(in crate::engine) fn health(&self, id: NodeId, now: Instant) -> Option<NodeHealth> {
        let (node, name) = (self.nodes.get(id)?, self.nodes.name(id));
        let facts = node.facts();
        let state = match node.shown() {
            Shown::Disconnected => NodeState::Disconnected,
            Shown::Connecting => NodeState::Connecting,
            Shown::Greeting => NodeState::Greeting,
            Shown::Admitted => NodeState::Admitted,
            Shown::Stalled => NodeState::Stalled,
            Shown::Quarantined => {
                NodeState::Quarantined(node.until().map_or(Duration::ZERO, |end| now.until(end)))
            }
            Shown::Refused => NodeState::Refused,
        };
        let since = self.nodes.shown_since(id).unwrap_or(now);
        let server = facts.server();
        Some(NodeHealth {
            name: name.to_string(),
            state,
            cause: if node.can_vote() { Cause::None } else { node.cause() },
            votes: node.can_vote(),
            since: now.saturating_since(since),
            until: node.until().map(|until| now.until(until)),
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
            watch: node.can_track(),
            round_trip: node.round_trip,
            silence: node.last_answer().map(|at| now.saturating_since(at)),
            unanswered: node.pending().count(),
            debts: node.debts.len(),
            debts_dropped: node.debts.dropped(),
        })
    }

    /// Why too few nodes may vote; `None` if a quorum may.
    #[must_use]
    pub(in crate::engine) fn connect_error(&self, now: Instant) -> Option<ConnectError> {
        if self.nodes.voters().count() >= self.settings.quorum {
            return None;
        }
        let mut causes = [Cause::None; NODES_MAX];
        for (cause, node) in causes.iter_mut().zip(self.nodes.iter()) {
            *cause = if node.can_vote() { Cause::None } else { node.cause() };
        }
        let masks = (self.nodes.voters(), NodeMask::EMPTY, NodeMask::EMPTY);
        Some(ConnectError::NoQuorum(self.ballot_of(masks, causes, now)))
    }
}

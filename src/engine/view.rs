//! How the nodes are: for people, readiness endpoints and error messages.

use super::Engine;
use super::slot::LeaseId;
use crate::error::{Ballot, Cause, ConnectError};
use crate::node::Shown;
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::time::Instant;
use crate::token::{LockToken, TokenBytes};

use std::sync::Arc;
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

impl Engine {
    /// How each node is at `now`.
    #[must_use]
    pub fn nodes(&self, now: Instant) -> Vec<NodeHealth> {
        let all = NodeMask::first(self.nodes.len()).into_iter();
        all.filter_map(|id| self.health(id, now)).collect()
    }

    /// How one node is at `now`.
    pub(super) fn health(&self, id: NodeId, now: Instant) -> Option<NodeHealth> {
        let (node, name) = (self.nodes.get(id.index())?, self.names.get(id.index())?);
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
        let since = self.shown.get(id.index()).map_or(now, |(_, since)| *since);
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

    /// Whether a quorum may vote now.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.voters.count() >= self.settings.quorum
    }

    /// The nodes that may vote now.
    #[must_use]
    pub const fn voters(&self) -> NodeMask {
        self.voters
    }

    /// How many votes make a quorum.
    #[must_use]
    pub const fn quorum(&self) -> u32 {
        self.settings.quorum
    }

    /// Whether every node is admitted or known not to be.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.nodes.iter().all(|node| node.is_settled)
    }

    /// Why too few nodes may vote; `None` if a quorum may.
    #[must_use]
    pub(crate) fn connect_error(&self, now: Instant) -> Option<ConnectError> {
        if self.voters.count() >= self.settings.quorum {
            return None;
        }
        let mut causes = [Cause::None; NODES_MAX];
        for (cause, node) in causes.iter_mut().zip(&self.nodes) {
            *cause = if node.can_vote() { Cause::None } else { node.cause() };
        }
        let masks = (self.voters, NodeMask::EMPTY, NodeMask::EMPTY);
        Some(ConnectError::NoQuorum(self.ballot_of(masks, causes, now)))
    }

    /// A ballot of the nodes that granted, denied, and are not known about.
    pub(super) fn ballot_of(
        &self,
        (granted, denied, unknown): (NodeMask, NodeMask, NodeMask),
        causes: [Cause; NODES_MAX],
        now: Instant,
    ) -> Ballot {
        Ballot {
            granted,
            denied,
            unknown,
            causes,
            names: Arc::clone(&self.names),
            quorum: self.settings.quorum,
            quarantine_ms: self.quarantine_ms(now),
        }
    }

    /// How long until quarantines no longer keep a quorum from voting; 0 if they do not.
    fn quarantine_ms(&self, now: Instant) -> u32 {
        let quorum = self.settings.quorum as usize;
        let admitted = self.nodes.iter().filter(|node| node.can_vote()).count();
        let mut waits = [Duration::MAX; NODES_MAX];
        for (wait, node) in waits.iter_mut().zip(&self.nodes) {
            *wait = node.quarantine(now).unwrap_or(Duration::MAX);
        }
        waits.sort_unstable();
        let missing = quorum.saturating_sub(admitted);
        let wait = missing.checked_sub(1).and_then(|last| waits.get(last));
        wait.filter(|&&wait| wait < Duration::MAX)
            .map_or(0, |wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX).max(1))
    }

    /// The end of a lease; `None` if it is not held.
    #[must_use]
    pub fn deadline(&self, lease: LeaseId) -> Option<Instant> {
        self.slots.held(lease).map(|slot| slot.ends)
    }

    /// How long a lease is still valid at `now`; zero if it is not held.
    #[must_use]
    pub fn remaining_at(&self, lease: LeaseId, now: Instant) -> Duration {
        self.deadline(lease).map_or(Duration::ZERO, |deadline| now.until(deadline))
    }

    /// The nodes that granted a lease, late ones included.
    #[must_use]
    pub fn votes(&self, lease: LeaseId) -> NodeMask {
        self.slots.held(lease).map_or(NodeMask::EMPTY, |slot| slot.granted)
    }

    /// Key and token of a lease.
    #[must_use]
    pub fn lease_name(&self, lease: LeaseId) -> Option<(&[u8], LockToken)> {
        self.held_name(lease).map(|(key, token)| (key, LockToken::new(token)))
    }

    pub(crate) fn held_name(&self, lease: LeaseId) -> Option<(&[u8], &TokenBytes)> {
        let slot = self.slots.held(lease)?;
        Some((self.plain_key(slot.key.as_bytes()), &slot.token))
    }

    /// Keeps a word of the caller's with a lease.
    pub(crate) fn set_word(&mut self, lease: LeaseId, word: u32) {
        if self.slots.held(lease).is_some() {
            self.slots.at_mut(lease.slot).word = word;
        }
    }

    /// The word kept with a lease.
    #[must_use]
    pub(crate) fn word(&self, lease: LeaseId) -> Option<u32> {
        self.slots.held(lease).map(|slot| slot.word)
    }

    /// How many operations are under way or not yet reported.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.in_flight()
    }

    /// How many attempts are remembered: leases, and what late answers and debts may still name.
    #[cfg(any(test, feature = "sim", feature = "fuzzing"))]
    pub(crate) fn slots_in_use(&self) -> usize {
        self.slots.in_use()
    }
}

//! The plain values of a node's conversation: its clocks, its limits, its state, its results.

use std::time::Duration;

use super::pending::Pending;
use crate::command::Answer;
use crate::error::Cause;
use crate::time::Instant;

/// Now, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The time.
    pub(crate) real: Instant,
    /// The time without the spans in which no thread read the sockets.
    pub(crate) attended: Instant,
}

/// How long a node may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) connect_timeout: Duration,
    pub(crate) stalled_after: Duration,
}

/// How much may wait for one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes that may wait for the node's socket.
    pub(crate) output_len: usize,
    /// Answers that the client may await.
    pub(crate) answers: usize,
    /// Debts. To make room for a further debt, the client drops a debt, and leaves that key to its
    /// TTL.
    pub(crate) debts: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { output_len: 1 << 20, answers: 1 << 15, debts: 1 << 16 }
    }
}

/// The state of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No socket; the next attempt is at `retry_at`.
    Disconnected { retry_at: Instant },
    /// The driver opens a socket; `since` on the attended clock.
    Connecting { since: Instant },
    /// The greeting is under way; `since` on the attended clock. On a new connection, this is when
    /// the driver began to open the socket.
    Greeting { since: Instant },
    /// The node may vote.
    Admitted { since: Instant },
    /// The node releases and extends, but does not vote before the client greets it again at
    /// `until`.
    Quarantined { until: Instant },
    /// The node does not vote because of `cause`. At `retry_at` the client closes the connection,
    /// then connects again.
    Refused { cause: Cause, retry_at: Instant },
}

impl State {
    /// Why the node is refused; [`Cause::None`] if it is not.
    pub(crate) const fn refused_for(self) -> Cause {
        if let Self::Refused { cause, .. } = self { cause } else { Cause::None }
    }
}

/// The state of a node's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// No connection.
    Disconnected,
    /// The client opens a connection.
    Connecting,
    /// Connected; the greeting is under way.
    Greeting,
    /// The node votes.
    Admitted,
    /// Connected, but the node gets no vote until this much time has passed: it may have lost
    /// locks.
    Quarantined(Duration),
    /// Connected, but not fit for locks.
    Refused,
    /// Admitted, but the node has not answered for several `node_timeout`.
    Stalled,
    /// The client's present lists do not name the node: it is connected and fit for locks, or given
    /// up.
    Unlisted,
}

impl NodeState {
    /// The state as a word, for labels and JSON fields: `disconnected`, `connecting`, `greeting`,
    /// `admitted`, `quarantined`, `refused`, `stalled` or `unlisted`.
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
            Self::Unlisted => "unlisted",
        }
    }
}

/// The engine's request to the owner of the sockets about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Connection {
    /// Open a connection, then call [`handle_connected`](crate::engine::Engine::handle_connected)
    /// or [`handle_lost`](crate::engine::Engine::handle_lost).
    Open,
    /// Close the connection. The engine has already handled its loss.
    Close,
}

/// The result of one step through the input.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing to report.
    Idle,
    Answered(Pending, Answer),
    /// The answer to a query; its bytes are in [`Node::frame`].
    Query(Pending),
    /// A waiting acquisition got an answer: see `Node::frame`.
    Waited(Pending),
    /// A message for this client: see `Node::frame`.
    Message,
    /// All answers of the greeting have come.
    Greeted,
}

//! The plain values of a node's conversation: where it is, what is asked of it, what it brought.

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
    /// The time without the spans in which nobody read the sockets.
    pub(crate) attended: Instant,
}

/// How long a node may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) connect_timeout: Duration,
    pub(crate) stalled_after: Duration,
}

/// Where the conversation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No socket; the next attempt is at `retry_at`.
    Disconnected { retry_at: Instant },
    /// A socket is being opened; `since` on the attended clock.
    Connecting { since: Instant },
    /// The greeting is under way; `since` on the attended clock.
    Greeting { since: Instant },
    /// May vote.
    Admitted { since: Instant },
    /// Releases and extends, but does not vote before it is greeted again at `until`.
    Quarantined { until: Instant },
    /// Does not vote, for a reason that somebody must mend; asked again at `retry_at`.
    Refused { cause: Cause, retry_at: Instant },
}

/// Where the conversation is, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Disconnected,
    Connecting,
    Greeting,
    Admitted,
    Stalled,
    Quarantined,
    Refused,
}

/// What the owner of the socket is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Nothing,
    Connect,
    Close,
}

/// An answer, and what it is the answer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) pending: Pending,
    pub(crate) answer: Answer,
}

/// What one step through the input brought.
#[derive(Debug)]
pub(crate) enum Step {
    /// All is read.
    Idle,
    Answered(Answered),
    /// The answer to a query; its bytes are in [`Node::frame`].
    Query(Pending),
    /// An acquisition that waits got an answer: see `Node::frame`.
    Waited(Pending),
    /// A message for this client: see `Node::frame`.
    Message,
    /// Keys have changed that were tracked: see `Node::frame`.
    Changed,
    /// All answers of the greeting are in.
    Greeted,
}

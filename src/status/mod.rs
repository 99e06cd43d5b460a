//! What the nodes hold for a key, and who holds it: [`NodeKey`], [`SeenLock`], and how to read them
//! from answers.
//!
//! Layer: beside the engine, for the layers above it. Sends nothing.

mod clients;
mod holder;
mod listing;
mod sighting;
mod verdict;

use std::fmt;
use std::time::Duration;

pub(crate) use clients::{Listed, has_listed, may_list, short_lists};
pub use clients::{SeenClient, Unlisted};
pub use holder::{Holder, SeenLock};
pub(crate) use listing::scanned;
pub use listing::{Listing, Searched};
pub(crate) use sighting::Sighting;
pub use verdict::Verdict;

use crate::command::{Answer, classify};
use crate::engine::{NodeHealth, NodeReplies, NodeState};
use crate::error::Cause;
use crate::resp::{Decoder, Limits, Reply};

/// What one node holds for a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeKey {
    /// `host:port` or the socket's path.
    pub node: String,
    /// What the node holds.
    pub state: KeyState,
    /// Why this node counts neither for a lock nor against one: it has no vote, because it may have
    /// lost locks in a restart, or is not fit to hold any. [`Cause::None`] if the node has a vote,
    /// or did not answer.
    pub doubt: Cause,
    /// How long until the node gets its vote, if time alone gives it one.
    pub waits: Option<Duration>,
}

/// What a key holds.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// No such key, on a node that may vote. On another node a missing key is an error.
    Free,
    /// A string with a TTL.
    Held {
        /// Its value: the holder's token.
        token: Vec<u8>,
        /// How long it still lives; `None` for ever.
        ttl: Option<Duration>,
    },
    /// The node did not answer, or has neither the key nor a vote, or the key holds other data.
    Error(Cause),
}

impl fmt::Debug for KeyState {
    /// Without the token: with it a reader could unlock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("Free"),
            Self::Held { ttl, .. } => {
                f.debug_struct("Held").field("ttl", ttl).finish_non_exhaustive()
            }
            Self::Error(cause) => f.debug_tuple("Error").field(cause).finish(),
        }
    }
}

/// The answers of all nodes to a question.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) nodes: Vec<NodeHealth>,
    pub(crate) replies: Vec<NodeReplies>,
    /// What stands in front of every key on the nodes.
    pub(crate) prefix: Vec<u8>,
}

impl Answers {
    /// What the answers to GET and PTTL say, node by node.
    pub(crate) fn keys(&self) -> Vec<NodeKey> {
        self.keys_at(0)
    }

    /// The same of the GET or GETRANGE at `index`, with PTTL behind it.
    pub(crate) fn keys_at(&self, index: usize) -> Vec<NodeKey> {
        let nodes = self.nodes.iter().zip(&self.replies);
        nodes
            .map(|(node, answers)| {
                let waits =
                    if let NodeState::Quarantined(left) = node.state { Some(left) } else { None };
                let state = key_state(answers, index);
                NodeKey { node: node.name.clone(), state, doubt: answers.doubt, waits }
            })
            .collect()
    }
}

/// The `index`-th answer, as `read` understands it.
pub(crate) fn answer<T>(
    answers: &NodeReplies,
    index: usize,
    read: impl FnOnce(Reply<'_>) -> Option<T>,
) -> Option<T> {
    let bytes = answers.replies.get(index)?;
    let frame = Decoder::new(Limits::LONG).frame(bytes).ok()??;
    read(frame.reply())
}

fn key_state(answers: &NodeReplies, index: usize) -> KeyState {
    if answers.cause != Cause::None {
        return KeyState::Error(answers.cause);
    }
    if is_missing(answers, index) {
        let doubt = answers.doubt;
        return if doubt == Cause::None { KeyState::Free } else { KeyState::Error(doubt) };
    }
    let token = answer(answers, index, |reply| {
        if let Reply::Bulk(token) = reply { Some(token.to_vec()) } else { None }
    });
    let ttl = answer(answers, index + 1, |reply| {
        let Reply::Integer(ms) = reply else { return None };
        Some(u64::try_from(ms).ok().map(Duration::from_millis))
    });
    match (token, ttl) {
        (Some(token), Some(ttl)) => KeyState::Held { token, ttl },
        (Some(_) | None, _) => KeyState::Error(refusal(answers, index)),
    }
}

/// GETRANGE of a missing key is an empty string, as of an empty one: PTTL tells them apart.
fn is_missing(answers: &NodeReplies, index: usize) -> bool {
    let is = |index, wanted: Reply<'_>| {
        answer(answers, index, |reply| (reply == wanted).then_some(())).is_some()
    };
    is(index, Reply::Null) || (is(index, Reply::Bulk(b"")) && is(index + 1, Reply::Integer(-2)))
}

/// The cause if the answer is an error.
fn refusal(answers: &NodeReplies, index: usize) -> Cause {
    let answer = answer(answers, index, |reply| Some(classify(&reply)));
    if let Some(Answer::Refused(cause)) = answer { cause } else { Cause::OddReply }
}

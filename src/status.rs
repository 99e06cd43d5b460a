//! What the nodes hold for a key: [`NodeKey`], [`KeyState`], and how to read them from answers.
//!
//! Layer: beside the engine, for the layers above it. Sends nothing.

use std::fmt;
use std::time::Duration;

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

/// What the answers to GET and PTTL say, node by node.
pub(crate) fn node_keys(nodes: Vec<NodeHealth>, answers: &[NodeReplies]) -> Vec<NodeKey> {
    let nodes = nodes.into_iter().zip(answers);
    nodes
        .map(|(node, answers)| {
            let waits =
                if let NodeState::Quarantined(left) = node.state { Some(left) } else { None };
            let state = key_state(answers);
            NodeKey { node: node.name, state, doubt: answers.doubt, waits }
        })
        .collect()
}

/// The `index`-th answer, as `read` understands it.
pub(crate) fn answer<T>(
    answers: &NodeReplies,
    index: usize,
    read: impl FnOnce(Reply<'_>) -> Option<T>,
) -> Option<T> {
    let bytes = answers.replies.get(index)?;
    let frame = Decoder::new(Limits::default()).frame(bytes).ok()??;
    read(frame.reply())
}

fn key_state(answers: &NodeReplies) -> KeyState {
    if answers.cause != Cause::None {
        return KeyState::Error(answers.cause);
    }
    if answer(answers, 0, |reply| (reply == Reply::Null).then_some(())).is_some() {
        let doubt = answers.doubt;
        return if doubt == Cause::None { KeyState::Free } else { KeyState::Error(doubt) };
    }
    let token = answer(answers, 0, |reply| {
        if let Reply::Bulk(token) = reply { Some(token.to_vec()) } else { None }
    });
    let ttl = answer(answers, 1, |reply| {
        let Reply::Integer(ms) = reply else { return None };
        Some(u64::try_from(ms).ok().map(Duration::from_millis))
    });
    match (token, ttl) {
        (Some(token), Some(ttl)) => KeyState::Held { token, ttl },
        (Some(_) | None, _) => KeyState::Error(refusal(answers)),
    }
}

/// The cause if the first answer is an error.
fn refusal(answers: &NodeReplies) -> Cause {
    let answer = answer(answers, 0, |reply| Some(classify(&reply)));
    if let Some(Answer::Refused(cause)) = answer { cause } else { Cause::OddReply }
}

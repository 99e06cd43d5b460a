//! Questions for people: what a key holds on each node, how each node is set up. No part of
//! locking.

use std::fmt;
use std::time::Duration;

use super::Client;
use crate::driver::Outcome;
use crate::engine::{NodeHealth, NodeReplies, NodeState, OpId};
use crate::error::{Cause, LockError};
use crate::resp::{Decoder, Limits, Reply};

/// What one node holds for a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeKey {
    /// `host:port` or the socket's path.
    pub node: String,
    /// What it holds.
    pub state: KeyState,
    /// Why what it holds counts neither for a lock nor against one: the node has no vote. It may
    /// have forgotten locks since it restarted, or is not fit to hold any. [`Cause::None`] if it
    /// has one, or did not answer.
    pub doubt: Cause,
    /// How long the node has no vote yet, where time alone gives it one.
    pub waits: Option<Duration>,
}

/// What a key holds.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState {
    /// No such key, on a node that would know. Others that do not have it are an error.
    Free,
    /// A string, for so long.
    Held {
        /// Its value: the holder's token.
        token: Vec<u8>,
        /// How long it lives; `None` for ever.
        ttl: Option<Duration>,
    },
    /// The node did not say, is without the key and without a vote, or the key holds other data.
    Error(Cause),
}

impl fmt::Debug for KeyState {
    /// Without the token: whoever knows it can unlock.
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

/// How one node is set up, asked just now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReport {
    /// What the client knows of it.
    pub health: NodeHealth,
    /// The fields of INFO, as `(name, value)`.
    pub info: Vec<(String, String)>,
    /// `appendfsync`, if the user may ask for it.
    pub append_fsync: Option<String>,
    /// Whether `no-appendfsync-on-rewrite` lets it answer before the disk has a write, if the user
    /// may ask for it.
    pub fsync_pauses: Option<bool>,
    /// The node's wall clock in microseconds since 1970.
    pub time_us: Option<u64>,
    /// From the question to the first answer.
    pub round_trip: Option<Duration>,
    /// Why answers are missing.
    pub cause: Cause,
}

impl NodeReport {
    /// A field of INFO.
    #[must_use]
    pub fn info(&self, name: &str) -> Option<&str> {
        self.info.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

impl Client {
    /// Asks every connected node what `key` holds. Takes one round trip to the slowest, at most
    /// `node_timeout`.
    ///
    /// A token is that of a lock where a quorum of nodes without [`doubt`](NodeKey::doubt) holds it,
    /// and the lock is free where so many of them are free that no quorum is left for a token. Each
    /// node is asked on its own: a lock that is taken or released just then shows on some of them.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`], [`LockError::Full`] and [`LockError::System`].
    pub fn status(&mut self, key: impl AsRef<[u8]>) -> Result<Vec<NodeKey>, LockError> {
        self.catch_up()?;
        let op = self.ask_key(key.as_ref())?;
        let answers = self.answers(op)?;
        Ok(self.node_keys(&answers))
    }

    /// Begins to ask what `key` holds.
    pub(crate) fn ask_key(&mut self, key: &[u8]) -> Result<OpId, LockError> {
        let engine = self.driver.engine();
        let key = engine.wire_key(key)?;
        self.driver.query(&[&[b"GET", &key], &[b"PTTL", &key]])
    }

    /// What the answers to [`ask_key`](Self::ask_key) say.
    pub(crate) fn node_keys(&self, answers: &[NodeReplies]) -> Vec<NodeKey> {
        let nodes = self.nodes().into_iter().zip(answers);
        nodes
            .map(|(node, answers)| {
                let waits =
                    if let NodeState::Quarantined(left) = node.state { Some(left) } else { None };
                let state = key_state(answers);
                NodeKey { node: node.name, state, doubt: answers.doubt, waits }
            })
            .collect()
    }

    /// Asks every connected node how it is set up.
    ///
    /// # Errors
    ///
    /// [`LockError::Full`] and [`LockError::System`].
    pub fn examine(&mut self) -> Result<Vec<NodeReport>, LockError> {
        let answers = self.ask(&[
            &[b"TIME"],
            &[b"INFO"],
            &[b"CONFIG", b"GET", b"appendfsync"],
            &[b"CONFIG", b"GET", b"no-appendfsync-on-rewrite"],
        ])?;
        Ok(self
            .nodes()
            .into_iter()
            .zip(answers)
            .map(|(health, answers)| report(health, &answers))
            .collect())
    }

    pub(super) fn ask(&mut self, commands: &[&[&[u8]]]) -> Result<Vec<NodeReplies>, LockError> {
        self.catch_up()?;
        let op = self.driver.query(commands)?;
        self.answers(op)
    }

    fn answers(&mut self, op: OpId) -> Result<Vec<NodeReplies>, LockError> {
        let Outcome::Query(answers) = self.wait_for(op)? else { return Err(LockError::Cancelled) };
        Ok(answers)
    }
}

/// The `index`-th answer, as `read` understands it.
pub(super) fn answer<T>(
    answers: &NodeReplies,
    index: usize,
    read: impl FnOnce(Reply<'_>) -> Option<T>,
) -> Option<T> {
    let bytes = answers.replies.get(index)?;
    let frame = Decoder::new(Limits::default()).frame(bytes).ok()??;
    read(frame.reply())
}

/// Without what a terminal would act on.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn text(reply: &Reply<'_>) -> Option<String> {
    reply.text().map(|text| String::from_utf8_lossy(text).into_owned())
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

/// Why the first answer is an error.
fn refusal(answers: &NodeReplies) -> Cause {
    use crate::command::{Answer, classify};
    let answer = answer(answers, 0, |reply| Some(classify(&reply)));
    if let Some(Answer::Refused(cause)) = answer { cause } else { Cause::OddReply }
}

fn report(health: NodeHealth, answers: &NodeReplies) -> NodeReport {
    let time_us = answer(answers, 0, |reply| {
        let Reply::Array(mut parts) = reply else { return None };
        let mut number = || text(&parts.next()?)?.parse::<u64>().ok();
        Some(number()?.checked_mul(1_000_000)?.saturating_add(number()?))
    });
    let info = answer(answers, 1, |reply| text(&reply)).unwrap_or_default();
    let info = info.lines().filter_map(|line| line.split_once(':'));
    let setting = |index| {
        answer(answers, index, |reply| {
            let (Reply::Array(mut parts) | Reply::Map(mut parts)) = reply else { return None };
            parts.nth(1).and_then(|value| text(&value))
        })
    };
    NodeReport {
        health,
        info: info.map(|(name, value)| (shown(name), shown(value))).collect(),
        append_fsync: setting(2),
        fsync_pauses: setting(3).map(|value| value == "yes"),
        time_us,
        round_trip: (!answers.replies.is_empty()).then_some(answers.round_trip),
        cause: answers.cause,
    }
}

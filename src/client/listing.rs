//! [`Client::locks`]: the locks that the nodes hold, found by SCAN.
//!
//! # Invariants
//!
//! - A node has one step of a SCAN under way at a time, and is asked nothing more once it has owed an
//!   answer for a `node_timeout`.
//! - Memory and steps are bounded, whatever the nodes answer.

use std::collections::BTreeSet;

use super::Client;
use crate::claim::CLAIM_SUFFIX;
use crate::command::{Answer, FENCE_SUFFIX, MARKER_PREFIX, classify};
use crate::driver::{Question, VALUES_MAX};
use crate::error::{Cause, LockError};
use crate::quorum::{NodeId, NodeMask};
use crate::resp::Reply;
use crate::status::{Answers, KeyState, Listed, NodeKey, SeenLock, answer, short_lists};
use crate::token::TOKEN_LEN_MAX;

/// The locks that [`Client::locks`] found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listing {
    /// In the order of their keys.
    pub locks: Vec<SeenLock>,
    /// False if there are more locks than the limit, or more keys than are looked at.
    pub is_whole: bool,
    /// Whether each node was searched to its end, in the order of the configuration.
    pub nodes: Vec<Searched>,
}

/// Whether a node was searched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Searched {
    /// `host:port` or the socket's path.
    pub node: String,
    /// Why the node was not searched to its end; [`Cause::None`] if it was, or the limit was met.
    pub cause: Cause,
}

/// How many steps a search takes at most: some ten million keys.
const STEPS_MAX: usize = 20_000;

/// A search under way.
struct Search {
    cursors: Vec<Option<u64>>,
    causes: Vec<Cause>,
    /// The nodes that have answered so far.
    alive: NodeMask,
    keys: BTreeSet<Vec<u8>>,
}

impl Client {
    /// Lists the locks whose keys match `pattern` (as in SCAN: `*`, `?`, `[a-c]`), at most `limit`,
    /// with their holders: string keys of any library, without what is beside locks (the
    /// counters of fences, the names of leaders). Locks that
    /// are taken or released meanwhile may be missing or not.
    ///
    /// Each node is searched step by step, 500 keys at a time, so that others get their turn in
    /// between; each step takes one round trip. Then all nodes are asked what they hold for what was
    /// found, and one after the other for the list of its clients until all holders are named. A node
    /// that does not answer costs one `node_timeout` and is left out. A lock is found if one of its
    /// nodes was searched: all locks are, if so many nodes were searched that every quorum has one.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] for a pattern that is empty or longer than keys are,
    /// [`LockError::Full`] and [`LockError::System`].
    pub fn locks(&mut self, pattern: impl AsRef<[u8]>, limit: usize) -> Result<Listing, LockError> {
        let pattern = pattern.as_ref();
        // What is beside locks is left out of any list, whatever the pattern.
        match self.driver.engine().wire_key(pattern) {
            Ok(_) | Err(LockError::ReservedKey) => {}
            Err(error) => return Err(error),
        }
        let (mut search, is_whole) = self.search(pattern, limit)?;
        let names = self.nodes().into_iter().map(|node| node.name);
        let causes = search.causes.iter().copied();
        let nodes = names.zip(causes).map(|(node, cause)| Searched { node, cause }).collect();
        let keys: Vec<Vec<u8>> = std::mem::take(&mut search.keys).into_iter().take(limit).collect();
        let mut locks = Vec::new();
        for keys in keys.chunks(VALUES_MAX) {
            self.look_at(keys, &mut search, &mut locks)?;
        }
        if locks.iter().any(SeenLock::has_client) {
            let counts = self.put(&Question::ClientCounts)?;
            for node in short_lists(&counts) {
                let listed = Listed::read(&self.put(&Question::Clients(node))?);
                let with_clients = locks.iter_mut().filter(|lock| lock.has_client());
                let mut are_named = true;
                with_clients.for_each(|lock| are_named &= lock.name(&listed));
                if are_named {
                    break;
                }
            }
        }
        Ok(Listing { locks, is_whole, nodes })
    }

    /// Searches until each node has said all, or there is more than `limit`. Returns whether all is
    /// found.
    fn search(&mut self, pattern: &[u8], limit: usize) -> Result<(Search, bool), LockError> {
        let prefix = self.driver.engine().key_prefix().to_vec();
        let pattern = [quoted(&prefix), pattern.to_owned()].concat();
        let count = self.nodes().len();
        let mut search = Search {
            cursors: vec![Some(0); count],
            causes: vec![Cause::None; count],
            alive: NodeMask::first(count),
            keys: BTreeSet::new(),
        };
        for _ in 0..STEPS_MAX {
            let is_over = search.cursors.iter().all(Option::is_none);
            if is_over || search.keys.len() > limit {
                let is_whole = is_over && search.keys.len() <= limit;
                return Ok((search, is_whole));
            }
            let cursors = search.cursors.clone();
            let answers = self.put(&Question::Scan { pattern: pattern.clone(), cursors })?;
            search.take(&answers, &prefix);
        }
        Ok((search, false))
    }

    /// Asks what the nodes hold for `keys`, and adds what are locks.
    fn look_at(
        &mut self,
        keys: &[Vec<u8>],
        search: &mut Search,
        locks: &mut Vec<SeenLock>,
    ) -> Result<(), LockError> {
        let asked = search.alive;
        let answers = self.put(&Question::Values { keys: keys.to_vec(), nodes: asked })?;
        search.note_silence(&answers);
        let quorum = self.driver.engine().quorum();
        for (index, key) in keys.iter().enumerate() {
            let mut nodes = answers.keys_at(2 * index);
            for (index, (node, cause)) in nodes.iter_mut().zip(&search.causes).enumerate() {
                if !NodeId::new(index).is_some_and(|id| asked.contains(id)) {
                    node.state = KeyState::Error(*cause);
                }
            }
            if nodes.iter().any(is_held) && !nodes.iter().any(is_long) {
                locks.push(SeenLock::new(key.clone(), nodes, quorum));
            }
        }
        Ok(())
    }
}

impl Search {
    /// Takes the answers to one step.
    fn take(&mut self, answers: &Answers, prefix: &[u8]) {
        let Self { cursors, causes, alive, keys } = self;
        let nodes = cursors.iter_mut().zip(causes).zip(&answers.replies);
        for ((cursor, cause), answers) in nodes.filter(|((cursor, _), _)| cursor.is_some()) {
            *cursor = None;
            if answers.cause != Cause::None {
                *cause = answers.cause;
                alive.remove(answers.node);
                continue;
            }
            let found = answer(answers, 0, |reply| {
                let Reply::Array(mut parts) = reply else {
                    let refusal = classify(&reply);
                    *cause = if let Answer::Refused(why) = refusal { why } else { Cause::OddReply };
                    return None;
                };
                let next = parts.next()?;
                let next: u64 = std::str::from_utf8(next.text()?).ok()?.parse().ok()?;
                if let Some(Reply::Array(found)) = parts.next() {
                    keys.extend(found.filter_map(|key| lock_key(key.text()?, prefix)));
                }
                Some(next)
            });
            if found.is_none() && *cause == Cause::None {
                *cause = Cause::OddReply;
            }
            *cursor = found.filter(|next| *next > 0);
        }
    }

    /// Leaves out the nodes that have not answered.
    fn note_silence(&mut self, answers: &Answers) {
        for (cause, answers) in self.causes.iter_mut().zip(&answers.replies) {
            if answers.cause != Cause::None && self.alive.contains(answers.node) {
                *cause = answers.cause;
                self.alive.remove(answers.node);
            }
        }
    }
}

/// The key that callers know, if a lock may have it.
fn lock_key(wire: &[u8], prefix: &[u8]) -> Option<Vec<u8>> {
    let key = wire.strip_prefix(prefix).filter(|key| !key.is_empty())?;
    let is_beside = key.ends_with(FENCE_SUFFIX) || key.ends_with(CLAIM_SUFFIX);
    (!is_beside && !wire.starts_with(MARKER_PREFIX.as_bytes())).then(|| key.to_owned())
}

/// The bytes as a pattern that matches nothing else.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let quoted = |byte: &u8| match byte {
        b'*' | b'?' | b'[' | b']' | b'^' | b'-' | b'\\' => vec![b'\\', *byte],
        other => vec![*other],
    };
    bytes.iter().flat_map(quoted).collect()
}

fn is_held(node: &NodeKey) -> bool {
    matches!(node.state, KeyState::Held { .. })
}

/// Whether the value is longer than any token.
fn is_long(node: &NodeKey) -> bool {
    matches!(&node.state, KeyState::Held { token, .. } if token.len() > TOKEN_LEN_MAX)
}

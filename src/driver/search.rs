//! [`Search`]: the course of questions by which the locks that the nodes hold become known, by SCAN. It
//! sends nothing: whoever asks puts each question to the nodes, and hands in the answers.
//!
//! # Invariants
//!
//! - A node has one step of a SCAN under way at a time, and is asked nothing more once it has owed an
//!   answer for a `node_timeout`.
//! - Memory and steps are bounded, whatever the nodes answer.

use std::collections::BTreeSet;

use super::query::{Question, VALUES_MAX};
use crate::error::Cause;
use crate::quorum::{NodeId, NodeMask, NodeMaskIter};
use crate::status::{
    Answers, KeyState, Listed, Listing, NodeKey, Searched, SeenLock, scanned, short_lists,
};
use crate::token::TOKEN_LEN_MAX;

/// How many steps a search takes at most: some ten million keys.
const STEPS_MAX: usize = 20_000;

/// See the [module](self).
pub(crate) struct Search {
    pattern: Vec<u8>,
    limit: usize,
    quorum: u32,
    step: Step,
    steps: usize,
    cursors: Vec<Option<u64>>,
    nodes: Vec<Searched>,
    /// The nodes that have answered so far.
    alive: NodeMask,
    keys: BTreeSet<Vec<u8>>,
    is_whole: bool,
    /// The keys that are still to be looked at, the next at the end; and those that are asked about.
    unseen: Vec<Vec<u8>>,
    asked: Vec<Vec<u8>>,
    locks: Vec<SeenLock>,
    /// The nodes that are still to be asked for the list of their clients.
    lists: NodeMaskIter,
}

/// What is asked next, or was asked last.
enum Step {
    Keys,
    Values,
    Counts,
    Clients,
}

impl Search {
    /// A search for at most `limit` locks like `pattern`, on so many nodes.
    pub(crate) fn new(pattern: &[u8], limit: usize, (nodes, quorum): (usize, u32)) -> Self {
        Self {
            pattern: pattern.to_owned(),
            limit,
            quorum,
            step: Step::Keys,
            steps: 0,
            cursors: vec![Some(0); nodes],
            nodes: vec![Searched { node: String::new(), cause: Cause::None }; nodes],
            alive: NodeMask::first(nodes),
            keys: BTreeSet::new(),
            is_whole: false,
            unseen: Vec::new(),
            asked: Vec::new(),
            locks: Vec::new(),
            lists: NodeMask::EMPTY.into_iter(),
        }
    }

    /// The next question; `None` once all is known that can be.
    pub(crate) fn next(&mut self) -> Option<Question> {
        if let Step::Keys = self.step {
            let is_over = self.cursors.iter().all(Option::is_none);
            if !is_over && self.keys.len() <= self.limit && self.steps < STEPS_MAX {
                self.steps += 1;
                let (pattern, cursors) = (self.pattern.clone(), self.cursors.clone());
                return Some(Question::Scan { pattern, cursors });
            }
            self.is_whole = is_over && self.keys.len() <= self.limit;
            self.unseen = std::mem::take(&mut self.keys).into_iter().take(self.limit).collect();
            self.unseen.reverse();
            self.step = Step::Values;
        }
        if let Step::Values = self.step {
            let left = self.unseen.len().saturating_sub(VALUES_MAX);
            self.asked = self.unseen.split_off(left);
            self.asked.reverse();
            if !self.asked.is_empty() {
                return Some(Question::Values { keys: self.asked.clone(), nodes: self.alive });
            }
            if !self.locks.iter().any(SeenLock::has_client) {
                return None;
            }
            self.step = Step::Counts;
            return Some(Question::ClientCounts);
        }
        self.step = Step::Clients;
        self.lists.next().map(Question::Clients)
    }

    /// The answers to the last question.
    pub(crate) fn take(&mut self, answers: &Answers) {
        match self.step {
            Step::Keys => self.take_keys(answers),
            Step::Values => self.take_values(answers),
            Step::Counts => self.lists = short_lists(answers).into_iter(),
            Step::Clients => {
                let listed = Listed::read(answers);
                let with_clients = self.locks.iter_mut().filter(|lock| lock.has_client());
                let mut are_named = true;
                with_clients.for_each(|lock| are_named &= lock.name(&listed));
                if are_named {
                    self.lists = NodeMask::EMPTY.into_iter();
                }
            }
        }
    }

    /// What was found.
    pub(crate) fn into_listing(self) -> Listing {
        Listing { locks: self.locks, is_whole: self.is_whole, nodes: self.nodes }
    }

    /// Takes the answers to one step of the SCANs.
    fn take_keys(&mut self, answers: &Answers) {
        let Self { cursors, nodes, alive, keys, .. } = self;
        for (node, known) in nodes.iter_mut().zip(&answers.nodes) {
            node.node.clone_from(&known.name);
        }
        let nodes = cursors.iter_mut().zip(nodes).zip(&answers.replies);
        for ((cursor, node), replies) in nodes.filter(|((cursor, _), _)| cursor.is_some()) {
            *cursor = None;
            if replies.cause != Cause::None {
                node.cause = replies.cause;
                alive.remove(replies.node);
                continue;
            }
            match scanned(replies, &answers.prefix) {
                Ok((next, found)) => {
                    *cursor = Some(next).filter(|next| *next > 0);
                    keys.extend(found);
                }
                Err(cause) => node.cause = cause,
            }
        }
    }

    /// Takes what the nodes hold for the keys, and keeps what are locks.
    fn take_values(&mut self, answers: &Answers) {
        let asked = self.alive;
        for (node, replies) in self.nodes.iter_mut().zip(&answers.replies) {
            if replies.cause != Cause::None && self.alive.contains(replies.node) {
                node.cause = replies.cause;
                self.alive.remove(replies.node);
            }
        }
        for (place, key) in std::mem::take(&mut self.asked).into_iter().enumerate() {
            let mut nodes = answers.keys_at(2 * place);
            for (index, (node, searched)) in nodes.iter_mut().zip(&self.nodes).enumerate() {
                if !NodeId::new(index).is_some_and(|id| asked.contains(id)) {
                    node.state = KeyState::Error(searched.cause);
                }
            }
            if nodes.iter().any(is_held) && !nodes.iter().any(is_long) {
                self.locks.push(SeenLock::new(key, nodes, self.quorum));
            }
        }
    }
}

fn is_held(node: &NodeKey) -> bool {
    matches!(node.state, KeyState::Held { .. })
}

/// Whether the value is longer than any token.
fn is_long(node: &NodeKey) -> bool {
    matches!(&node.state, KeyState::Held { token, .. } if token.len() > TOKEN_LEN_MAX)
}

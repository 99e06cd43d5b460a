//! Queries to the nodes that change nothing.

use super::{Driver, clock};
use crate::engine::{NodeReplies, OpId};
use crate::error::LockError;
use crate::status::{NodeKey, node_keys};

impl Driver {
    /// Sends commands that only read to every connected node.
    pub(crate) fn query(&mut self, commands: &[&[&[u8]]]) -> Result<OpId, LockError> {
        self.engine.query(commands, clock::now())
    }

    /// Begins to ask what `key` holds.
    pub(crate) fn ask_key(&mut self, key: &[u8]) -> Result<OpId, LockError> {
        let key = self.engine.wire_key(key)?;
        self.engine.query(&[&[b"GET", &key], &[b"PTTL", &key]], clock::now())
    }

    /// What the answers to [`ask_key`](Self::ask_key) say.
    pub(crate) fn node_keys(&self, answers: &[NodeReplies]) -> Vec<NodeKey> {
        node_keys(self.nodes(), answers)
    }
}

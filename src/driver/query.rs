//! Queries to the nodes that change nothing.

use super::{Driver, clock};
use crate::engine::{NodeReplies, OpId, Say};
use crate::error::LockError;
use crate::quorum::NodeMask;
use crate::status::Answers;

/// What people ask of nodes.
#[derive(Debug)]
pub(crate) enum Question {
    /// GET and PTTL: what the key holds.
    Key(Vec<u8>),
    /// And INFO clients: how long a list of the clients would be.
    Holder(Vec<u8>),
    /// CLIENT LIST, of these nodes.
    Clients(NodeMask),
}

impl Driver {
    /// Sends commands that only read to every connected node.
    pub(crate) fn query(&mut self, commands: &[&[&[u8]]]) -> Result<OpId, LockError> {
        self.engine.query(commands, clock::now())
    }

    /// Puts the question to the connected nodes.
    pub(crate) fn ask(&mut self, question: &Question) -> Result<OpId, LockError> {
        let now = clock::now();
        match question {
            Question::Key(key) => {
                let key = self.engine.wire_key(key)?;
                self.engine.query(&[&[b"GET", &key], &[b"PTTL", &key]], now)
            }
            Question::Holder(key) => {
                let key = self.engine.wire_key(key)?;
                let commands: [&[&[u8]]; 3] =
                    [&[b"GET", &key], &[b"PTTL", &key], &[b"INFO", b"clients"]];
                self.engine.query(&commands, now)
            }
            Question::Clients(nodes) => {
                let list: [&[u8]; 2] = [b"CLIENT", b"LIST"];
                let choose = |node, part, say: Say<'_>| {
                    if part == 0 && nodes.contains(node) {
                        say(&list);
                    }
                };
                self.engine.query_each(choose, now)
            }
        }
    }

    /// The answers, with what is known of the nodes that gave them.
    pub(crate) fn answers(&self, replies: Vec<NodeReplies>) -> Answers {
        Answers { nodes: self.nodes(), replies }
    }
}

//! Queries to the nodes that change nothing.

use super::{Driver, clock};
use crate::claim::CLAIM_SUFFIX;
use crate::engine::{NodeReplies, OpId, Say};
use crate::error::LockError;
use crate::quorum::{NodeId, NodeMask};
use crate::status::Answers;

/// What people ask of nodes.
#[derive(Debug)]
pub(crate) enum Question {
    /// GET and PTTL: what the key holds.
    Key(Vec<u8>),
    /// And INFO clients: how long a list of the clients would be.
    Holder(Vec<u8>),
    /// GET and PTTL of the key, and GET of what its leader says beside it.
    Leader(Vec<u8>),
    /// INFO clients alone.
    ClientCounts,
    /// CLIENT LIST, of one node: while it writes a long list it serves nobody else, and so many nodes
    /// at once would deny everybody their quorum.
    Clients(NodeId),
    /// A question to the holder of the token: how long, and how many wait.
    Held { key: Vec<u8>, token: [u8; 20] },
    /// SCAN, of the nodes that have a cursor: the next keys like the pattern, as the nodes know them.
    Scan { pattern: Vec<u8>, cursors: Vec<Option<u64>> },
    /// GETRANGE and PTTL of up to [`VALUES_MAX`] keys, of these nodes.
    Values { keys: Vec<Vec<u8>>, nodes: NodeMask },
}

/// The most keys of which one question asks the values.
pub(super) const VALUES_MAX: usize = 100;

/// One byte more than the longest token: what is longer is no token.
const RANGE_END: &[u8] = b"255";

/// How many keys a node looks at in one step of a SCAN: some hundred microseconds of its time.
const SCAN_COUNT: &[u8] = b"500";

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
            Question::Leader(key) => {
                let key = self.engine.wire_key(key)?;
                let claim = [&key, CLAIM_SUFFIX].concat();
                let commands: [&[&[u8]]; 3] =
                    [&[b"GET", &key], &[b"PTTL", &key], &[b"GET", &claim]];
                self.engine.query(&commands, now)
            }
            Question::Clients(listing) => {
                let list: [&[u8]; 2] = [b"CLIENT", b"LIST"];
                let choose = |node, part, say: Say<'_>| {
                    if part == 0 && node == *listing {
                        say(&list);
                    }
                };
                self.engine.query_each(choose, now)
            }
            Question::Held { key, token } => self.engine.ask_holder(key, token, now),
            Question::ClientCounts => self.engine.query(&[&[b"INFO", b"clients"]], now),
            Question::Scan { pattern, cursors } => {
                // What is beside locks is left out of any list, whatever the pattern.
                match self.engine.wire_key(pattern) {
                    Ok(_) | Err(LockError::ReservedKey) => {}
                    Err(error) => return Err(error),
                }
                let pattern = [&quoted(self.engine.key_prefix())[..], pattern].concat();
                let choose = |node: NodeId, part, say: Say<'_>| {
                    let cursor = cursors.get(node.index()).copied().flatten();
                    if let (0, Some(cursor)) = (part, cursor) {
                        let cursor = cursor.to_string();
                        let of: [&[u8]; 4] = [b"SCAN", cursor.as_bytes(), b"MATCH", &pattern];
                        let how: [&[u8]; 4] = [b"COUNT", SCAN_COUNT, b"TYPE", b"string"];
                        say(&[of, how].concat());
                    }
                };
                self.engine.query_each(choose, now)
            }
            Question::Values { keys, nodes } => {
                let prefix = self.engine.key_prefix().to_vec();
                let choose = |node, part: usize, say: Say<'_>| {
                    let key = keys.get(part / 2).filter(|_| nodes.contains(node));
                    let key = key.map(|key| [&prefix[..], key].concat());
                    match (key, part % 2) {
                        (Some(key), 0) => say(&[b"GETRANGE", &key, b"0", RANGE_END]),
                        (Some(key), _) => say(&[b"PTTL", &key]),
                        (None, _) => {}
                    }
                };
                self.engine.query_each(choose, now)
            }
        }
    }

    /// The answers, with what is known of the nodes that gave them.
    pub(crate) fn answers(&self, replies: Vec<NodeReplies>) -> Answers {
        Answers { nodes: self.nodes(), replies, prefix: self.engine.key_prefix().to_vec() }
    }
}

/// The bytes as a pattern that matches nothing else.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let quoted = |byte: &u8| match byte {
        b'*' | b'?' | b'[' | b']' | b'^' | b'-' | b'\\' => vec![b'\\', *byte],
        other => vec![*other],
    };
    bytes.iter().flat_map(quoted).collect()
}

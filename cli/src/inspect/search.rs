//! The locks that the nodes hold, found by SCAN.
//!
//! # Invariants
//!
//! - A node has one step of a SCAN under way at a time. Once it has owed an answer for a
//!   `node_timeout`, the search asks it nothing more.
//! - Memory and steps are bounded, whatever the nodes answer.

use std::collections::BTreeSet;

use redbolt::inspect::{NodeAnswers, NodeId, Query, Reply};
use redbolt::{Cause, Client, LockError};

use super::{KeyState, NodeKey, SeenLock, name_holders};
use crate::names::{CLAIM, MARKER, TOKEN_MAX, is_beside};

/// How many steps a search takes at most: some ten million keys.
const STEPS_MAX: usize = 20_000;

/// How many keys a node looks at in one step of a SCAN: some hundred microseconds of its time.
const SCAN_COUNT: &[u8] = b"500";

/// For how many keys one query asks the values: each key takes three commands, and a query puts at
/// most 255 to a node.
const VALUES_MAX: usize = 80;

/// One byte more than the longest token: a longer value is not a token.
const RANGE_END: &[u8] = b"255";

/// More bytes than a holder's claim has.
const CLAIM_END: &[u8] = b"1023";

/// The locks that the search found on the nodes.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// In the order of their keys.
    pub(crate) locks: Vec<SeenLock>,
    /// False if there are more locks than the limit, or more keys than the search looks at.
    pub(crate) is_whole: bool,
    /// For each node, whether it was searched to its end, in the order of the configuration.
    pub(crate) nodes: Vec<Searched>,
}

/// Whether a node was searched.
#[derive(Clone, Debug)]
pub(crate) struct Searched {
    /// `host:port` or the socket's path.
    pub(crate) node: String,
    /// Why the node was not searched to its end; [`Cause::None`] if it was, or the limit was met.
    pub(crate) cause: Cause,
    /// The node owed an answer.
    is_silent: bool,
}

/// Lists the locks whose keys match `pattern` behind the `prefix`, at most `limit`, with their
/// holders. It lists string keys of any library, without the keys that stand beside locks.
///
/// It searches each node step by step, so that other clients get their turn in between. Then it
/// asks all nodes for the values of the found keys. Last, it asks one node after the other for the
/// list of its clients, until all holders have names.
pub(crate) fn search(
    client: &Client,
    prefix: &[u8],
    pattern: &[u8],
    limit: usize,
) -> Result<Listing, LockError> {
    let searched = |node| Searched { node, cause: Cause::None, is_silent: false };
    let nodes = client.nodes().wait().into_iter().map(|node| searched(node.name)).collect();
    let mut search = Search { client, prefix, nodes, locks: Vec::new() };
    let (mut keys, is_over) = search.keys(pattern, limit)?;
    let is_whole = is_over && keys.len() <= limit;
    keys.truncate(limit);
    for keys in keys.chunks(VALUES_MAX) {
        search.add_locks(keys)?;
    }
    if search.locks.iter().any(SeenLock::wants_list) {
        let counts = client.query(&Query::new().all(&[b"INFO", b"clients"])).wait()?;
        name_holders(client, &mut search.locks, &counts, 0)?;
    }
    Ok(Listing { locks: search.locks, is_whole, nodes: search.nodes })
}

struct Search<'a> {
    client: &'a Client,
    prefix: &'a [u8],
    nodes: Vec<Searched>,
    locks: Vec<SeenLock>,
}

impl Search<'_> {
    /// The keys that locks may have, in their order, and whether those are all.
    fn keys(&mut self, pattern: &[u8], limit: usize) -> Result<(Vec<Vec<u8>>, bool), LockError> {
        let pattern = [&quoted(self.prefix)[..], pattern].concat();
        let mut cursors: Vec<Option<u64>> = vec![Some(0); self.nodes.len()];
        let mut keys = BTreeSet::new();
        for _ in 0..STEPS_MAX {
            if keys.len() > limit || cursors.iter().all(Option::is_none) {
                break;
            }
            let answers = self.client.query(&step(&cursors, &pattern)).wait()?;
            let nodes = cursors.iter_mut().zip(&mut self.nodes).zip(&answers);
            for ((cursor, node), answers) in nodes.filter(|((cursor, _), _)| cursor.is_some()) {
                *cursor = None;
                match scanned(answers) {
                    Ok((next, found)) => {
                        *cursor = Some(next).filter(|next| *next > 0);
                        keys.extend(found.iter().filter_map(|key| lock_key(key, self.prefix)));
                    }
                    Err(cause) => node.fail(cause, answers),
                }
            }
        }
        let is_over = cursors.iter().all(Option::is_none);
        Ok((keys.into_iter().collect(), is_over))
    }

    /// Asks the nodes for the values of these keys, and keeps those that are locks.
    fn add_locks(&mut self, keys: &[Vec<u8>]) -> Result<(), LockError> {
        let mut query = Query::new();
        for (index, _) in self.nodes.iter().enumerate().filter(|(_, node)| !node.is_silent) {
            let Some(node) = NodeId::new(index) else { continue };
            for key in keys {
                let key = [self.prefix, key].concat();
                let claim = [&key[..], CLAIM].concat();
                query = query
                    .only(node, &[b"GETRANGE", &key, b"0", RANGE_END])
                    .only(node, &[b"PTTL", &key])
                    .only(node, &[b"GETRANGE", &claim, b"0", CLAIM_END]);
            }
        }
        let answers = self.client.query(&query).wait()?;
        let health = self.client.nodes().wait();
        for (place, key) in keys.iter().enumerate() {
            let nodes = health.iter().zip(&self.nodes).zip(&answers);
            let nodes = nodes.map(|((node, searched), answers)| {
                let mut node = NodeKey::read(node, answers, 3 * place);
                if searched.is_silent {
                    node.state = KeyState::Error(searched.cause);
                }
                node
            });
            let nodes: Vec<NodeKey> = nodes.collect();
            let mut tokens = nodes.iter().filter_map(|node| Some(node.held()?.0)).peekable();
            if tokens.peek().is_some() && tokens.all(|token| token.len() <= TOKEN_MAX) {
                self.locks.push(SeenLock::read(key, nodes, &answers, 3 * place, &|nodes| {
                    self.client.has_quorum(nodes)
                }));
            }
        }
        let asked = self.nodes.iter_mut().zip(&answers).filter(|(node, _)| !node.is_silent);
        for (node, answers) in asked.filter(|(_, answers)| answers.cause != Cause::None) {
            node.fail(answers.cause, answers);
        }
        Ok(())
    }
}

impl Searched {
    /// Notes why the search did not finish the node. It asks a silent node nothing more.
    fn fail(&mut self, cause: Cause, answers: &NodeAnswers) {
        (self.cause, self.is_silent) = (cause, answers.cause != Cause::None);
    }
}

/// The next step of the SCAN of each node that has a cursor.
fn step(cursors: &[Option<u64>], pattern: &[u8]) -> Query {
    let cursors = cursors.iter().enumerate();
    let cursors = cursors.filter_map(|(index, cursor)| Some((NodeId::new(index)?, (*cursor)?)));
    cursors.fold(Query::new(), |query, (node, cursor)| {
        let cursor = cursor.to_string();
        let of: [&[u8]; 4] = [b"SCAN", cursor.as_bytes(), b"MATCH", pattern];
        let how: [&[u8]; 4] = [b"COUNT", SCAN_COUNT, b"TYPE", b"string"];
        query.only(node, &[of, how].concat())
    })
}

/// The result of a step of a SCAN: the cursor of the next one, and the keys.
fn scanned(answers: &NodeAnswers) -> Result<(u64, Vec<&[u8]>), Cause> {
    let parts = match answers.replies.first() {
        _ if answers.cause != Cause::None => return Err(answers.cause),
        Some(Reply::List(parts)) => &parts[..],
        Some(Reply::Error(cause)) => return Err(*cause),
        _ => &[],
    };
    let [next, Reply::List(keys)] = parts else { return Err(Cause::OddReply) };
    let next = next.text().and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    Ok((next.ok_or(Cause::OddReply)?, keys.iter().filter_map(Reply::text).collect()))
}

/// The key without the prefix; `None` if no lock can have this key.
fn lock_key(wire: &[u8], prefix: &[u8]) -> Option<Vec<u8>> {
    let key = wire.strip_prefix(prefix).filter(|key| !key.is_empty())?;
    (!is_beside(key) && !wire.starts_with(MARKER)).then(|| key.to_owned())
}

/// The bytes as a pattern that matches nothing else.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let quoted = |byte: &u8| match byte {
        b'*' | b'?' | b'[' | b']' | b'^' | b'-' | b'\\' => vec![b'\\', *byte],
        other => vec![*other],
    };
    bytes.iter().flat_map(quoted).collect()
}

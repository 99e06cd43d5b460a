//! What a search for locks has found.

use super::{SeenLock, answer, refusal};
use crate::command::{MARKER_PREFIX, is_reserved};
use crate::engine::NodeReplies;
use crate::error::Cause;
use crate::resp::Reply;

/// The locks that were found on the nodes.
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

/// What a step of a SCAN says: the cursor of the next one, and the keys that locks may have, as callers
/// know them.
pub(crate) fn scanned(replies: &NodeReplies, prefix: &[u8]) -> Result<(u64, Vec<Vec<u8>>), Cause> {
    let found = answer(replies, 0, |reply| {
        let Reply::Array(mut parts) = reply else { return None };
        let next = parts.next()?;
        let next: u64 = std::str::from_utf8(next.text()?).ok()?.parse().ok()?;
        let mut keys = Vec::new();
        if let Some(Reply::Array(found)) = parts.next() {
            keys.extend(found.filter_map(|key| lock_key(key.text()?, prefix)));
        }
        Some((next, keys))
    });
    found.ok_or_else(|| refusal(replies, 0))
}

/// The key that callers know, if a lock may have it.
fn lock_key(wire: &[u8], prefix: &[u8]) -> Option<Vec<u8>> {
    let key = wire.strip_prefix(prefix).filter(|key| !key.is_empty())?;
    let is_beside = is_reserved(key) || wire.starts_with(MARKER_PREFIX.as_bytes());
    (!is_beside).then(|| key.to_owned())
}

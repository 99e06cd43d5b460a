//! What the user of each node may do, asked by commands that change nothing. No part of locking.

use super::Client;
use crate::command::{Answer, classify};
use crate::error::{Cause, LockError};
use crate::status::answer;

/// What the user of one node may not do, or the node does not do now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodePermissions {
    /// `host:port` or the socket's path.
    pub node: String,
    /// Commands that it refuses, and why. [`Cause::Unsupported`]: the server does not know it.
    pub refused: Vec<(&'static str, Cause)>,
    /// Why answers are missing; [`Cause::None`] if none are.
    pub cause: Cause,
}

/// A value that is no one's token.
const NOBODY: &[u8] = b"redbolt:nobody";

/// A key of the kind that tells since when a master is one.
const MARKER: &[u8] = b"redbolt:since:permissions";

/// The name under which a refusal of the marker is reported.
const SET_MARKER: &str = "SET redbolt:since:*";

/// The channel that is asked for: locks use those of the same beginning.
const CHANNEL: &[u8] = b"redbolt:permissions";

/// Asks every connected node whether the user may run the commands of a lock named `key`: SET, SET of
/// the marker by which new clients believe a master that was a replica once (`SET redbolt:since:*`),
/// GET, PTTL, PUBLISH, those that release one (DELIFEQ, DELEX, EVAL), of which one is
/// enough, and those by which a watched lock is told of (CLIENT TRACKING, CLIENT CACHING). Nothing is written: a SET with a TTL of zero is refused, but only after permissions,
/// memory, role and disk were looked at. Takes one round trip to the slowest node, at most
/// `node_timeout`.
///
/// # Errors
///
/// [`LockError::InvalidKey`], [`LockError::Full`] and [`LockError::System`].
pub fn permissions(
    client: &mut Client,
    key: impl AsRef<[u8]>,
) -> Result<Vec<NodePermissions>, LockError> {
    let (key, engine) = (key.as_ref(), client.driver.engine());
    let key = engine.wire_key(key)?;
    let key = key.as_ref();
    let answers = client.ask(&[
        &[b"SET", key, NOBODY, b"NX", b"PX", b"0"],
        &[b"SET", MARKER, b"1", b"NX", b"PX", b"0"],
        &[b"GET", key],
        &[b"PTTL", key],
        &[b"PUBLISH", CHANNEL, b""],
        &[b"DELIFEQ", key, NOBODY],
        &[b"DELEX", key, b"IFEQ", NOBODY],
        &[b"EVAL", b"return 0", b"1", key],
        // There are no such words, which says no more either.
        &[b"CLIENT", b"TRACKING", b"PROBE"],
        &[b"CLIENT", b"CACHING", b"PROBE"],
    ])?;
    let refused = |answers: &_| {
        let commands = NAMES.into_iter().enumerate();
        commands
            .filter_map(|(index, name)| {
                let refusal = answer(answers, index, |reply| {
                    if let Answer::Refused(cause) = classify(&reply) { Some(cause) } else { None }
                });
                refusal.map(|cause| (name, cause))
            })
            .collect()
    };
    Ok(client
        .nodes()
        .into_iter()
        .zip(&answers)
        .map(|(node, answers)| NodePermissions {
            node: node.name,
            refused: refused(answers),
            cause: answers.cause,
        })
        .collect())
}

/// The commands, in the order in which they are asked for.
const NAMES: [&str; 10] = [
    "SET",
    SET_MARKER,
    "GET",
    "PTTL",
    "PUBLISH",
    "DELIFEQ",
    "DELEX",
    "EVAL",
    "CLIENT TRACKING",
    "CLIENT CACHING",
];

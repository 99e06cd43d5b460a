//! What the user may do at each node, found by commands that change nothing. No part of locking.

use super::Client;
use crate::command::{Answer, classify};
use crate::error::{Cause, LockError};
use crate::status::answer;

/// What the user may not do at one node, or the node refuses at present.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodePermissions {
    /// `host:port` or the socket's path.
    pub node: String,
    /// Commands that the node refuses, and why. [`Cause::Unsupported`]: the server does not know
    /// the command.
    pub refused: Vec<(&'static str, Cause)>,
    /// Why answers are missing; [`Cause::None`] if none are.
    pub cause: Cause,
}

/// A value that is not any client's token.
const NOBODY: &[u8] = b"redbolt:nobody";

/// A key like the markers that say since when a node has been a master.
const MARKER: &[u8] = b"redbolt:since:permissions";

/// The name under which a refusal of the marker is reported.
const SET_MARKER: &str = "SET redbolt:since:*";

/// The channel to try: locks use channels with the same prefix.
const CHANNEL: &[u8] = b"redbolt:permissions";

/// Asks every connected node whether the user may run the commands of a lock named `key`: SET; SET
/// of the marker by which new clients trust a master that was once a replica (`SET
/// redbolt:since:*`); GET, PTTL and PUBLISH; those that release a lock (DELIFEQ, DELEX, EVAL), of
/// which one is enough; and EVAL and DEL, which hand one over. Nothing is written: a server refuses a SET with a TTL of zero, but only after it has checked permissions,
/// memory, role and disk. Takes one round trip to the slowest node, at most `node_timeout`.
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
        // Of a marker that nobody has written.
        &[b"DEL", MARKER],
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

/// The commands, in the order in which they are tried.
const NAMES: [&str; 9] =
    ["SET", SET_MARKER, "GET", "PTTL", "PUBLISH", "DELIFEQ", "DELEX", "EVAL", "DEL"];

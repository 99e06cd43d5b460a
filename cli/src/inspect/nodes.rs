//! The setup of each node and the rights of its user there, found by commands that change nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use redbolt::inspect::{NodeAnswers, NodeHealth, Query, Reply};
use redbolt::{Cause, Client, LockError};

/// The setup of one node, as it has just answered.
#[derive(Clone, Debug)]
pub(crate) struct NodeReport {
    /// The client's knowledge of the node.
    pub(crate) health: NodeHealth,
    /// The fields of INFO.
    info: BTreeMap<String, String>,
    /// `appendfsync`, if the user may ask for it.
    pub(crate) append_fsync: Option<String>,
    /// Whether `no-appendfsync-on-rewrite` lets the node answer before a write is on disk, if the
    /// user may ask for it.
    pub(crate) fsync_pauses: Option<bool>,
    /// The node's wall clock in microseconds since 1970.
    pub(crate) time_us: Option<i64>,
    /// From the request to the first answer.
    pub(crate) round_trip: Option<Duration>,
    /// Commands of locks that the node refuses, and why. [`Cause::Unsupported`]: the server does
    /// not know the command.
    pub(crate) refused: Vec<(&'static str, Cause)>,
    /// Why answers are missing.
    pub(crate) cause: Cause,
}

impl NodeReport {
    /// A field of INFO.
    pub(crate) fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }
}

/// A value that is not any client's token.
const NOBODY: &[u8] = b"redbolt:nobody";

/// The trial to write a marker that tells since when a node has been a master.
pub(crate) const SET_MARKER: &str = "SET redbolt:since:*";

/// A key like those markers.
const MARKER_KEY: &[u8] = b"redbolt:since:permissions";

/// The channel to try: locks use channels with the same prefix.
const CHANNEL: &[u8] = b"redbolt:permissions";

/// Asks every connected node about its setup, and whether the user may run the commands of a lock
/// named `key`. It writes nothing: a server refuses a SET with a TTL of zero, but only after it has
/// checked permissions, memory, role and disk.
pub(crate) fn examine(client: &Client, key: &[u8]) -> Result<Vec<NodeReport>, LockError> {
    let key = client.wire_key(key)?;
    let query = Query::new()
        .all(&[b"TIME"])
        .all(&[b"INFO"])
        .all(&[b"CONFIG", b"GET", b"appendfsync"])
        .all(&[b"CONFIG", b"GET", b"no-appendfsync-on-rewrite"]);
    let query = trials(&key).iter().fold(query, |query, (_, words)| query.all(words));
    let answers = client.query(&query).wait()?;
    let nodes = client.nodes().wait().into_iter().zip(&answers);
    Ok(nodes.map(|(health, it)| report(health, it)).collect())
}

/// The place of the first reply to a trial.
const TRIALS_AT: usize = 4;

/// A command to try, by the name under which its refusal is reported.
type Trial<'a> = (&'static str, Vec<&'a [u8]>);

fn trials(key: &[u8]) -> [Trial<'_>; 9] {
    [
        ("SET", vec![b"SET", key, NOBODY, b"NX", b"PX", b"0"]),
        (SET_MARKER, vec![b"SET", MARKER_KEY, b"1", b"NX", b"PX", b"0"]),
        ("GET", vec![b"GET", key]),
        ("PTTL", vec![b"PTTL", key]),
        ("PUBLISH", vec![b"PUBLISH", CHANNEL, b""]),
        ("DELIFEQ", vec![b"DELIFEQ", key, NOBODY]),
        ("DELEX", vec![b"DELEX", key, b"IFEQ", NOBODY]),
        ("EVAL", vec![b"EVAL", b"return 0", b"1", key]),
        // No client writes this marker.
        ("DEL", vec![b"DEL", MARKER_KEY]),
    ]
}

fn report(health: NodeHealth, answers: &NodeAnswers) -> NodeReport {
    let setting = |at| {
        let Some(Reply::List(parts)) = answers.replies.get(at) else { return None };
        parts.get(1).and_then(text)
    };
    let info = answers.replies.get(1).and_then(text).unwrap_or_default();
    let info = info.lines().filter_map(|line| line.split_once(':'));
    let trials = trials(&[]).into_iter().zip(answers.replies.iter().skip(TRIALS_AT));
    let refused = trials.filter_map(|((name, _), reply)| {
        let Reply::Error(cause) = reply else { return None };
        // An odd error is no refusal: the user may run the command.
        (*cause != Cause::OddReply).then_some((name, *cause))
    });
    NodeReport {
        health,
        info: info.map(|(name, value)| (plain(name), plain(value))).collect(),
        append_fsync: setting(2),
        fsync_pauses: setting(3).map(|value| value == "yes"),
        time_us: answers.replies.first().and_then(time_us),
        round_trip: (!answers.replies.is_empty()).then_some(answers.round_trip),
        refused: refused.collect(),
        cause: answers.cause,
    }
}

/// The text without control characters, on which a terminal would act.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn text(reply: &Reply) -> Option<String> {
    reply.text().map(|text| String::from_utf8_lossy(text).into_owned())
}

/// The answer to TIME: seconds and microseconds.
fn time_us(reply: &Reply) -> Option<i64> {
    let Reply::List(parts) = reply else { return None };
    let mut numbers = parts.iter().map(|part| text(part)?.parse::<i64>().ok());
    numbers.next()??.checked_mul(1_000_000)?.checked_add(numbers.next()??)
}

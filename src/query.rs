//! [`Query`]: commands that change nothing on the nodes; [`NodeAnswers`]: what each node answered.
//!
//! Layer: above `command`, below `engine`. No lock depends on an answer.

use std::fmt;
use std::time::Duration;

use crate::command::{Answer, classify};
use crate::error::Cause;
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::resp::encode::append_command;
use crate::resp::{Decoder, Limits, Reply as Read};

/// The most commands that one query puts to one node.
pub(crate) const COMMANDS_MAX: usize = 255;

/// Commands for nodes, at most 255 for each. They go over the connections of a client or driver:
/// see [`Client::query`](crate::Client::query).
///
/// **Each command must only read, answer at once, and give one reply.** SUBSCRIBE, MULTI, SELECT and
/// CLIENT REPLY change the connection, and break the client. A node serves no other
/// client while it runs a long command, so put such a command to one node at a time.
///
/// ```
/// use redbolt::inspect::Query;
///
/// let query = Query::new().all(&[b"GET", b"sku:42"]).all(&[b"PTTL", b"sku:42"]);
/// # drop(query);
/// ```
#[derive(Clone, Default)]
pub struct Query {
    commands: Vec<(NodeMask, Vec<u8>)>,
}

impl Query {
    /// A query without a command.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a command, given as its words, to every node.
    /// [`Driver::wire_key`](crate::driver::Driver::wire_key) gives the name under which the nodes
    /// know a lock's key.
    #[must_use]
    pub fn all(self, words: &[&[u8]]) -> Self {
        self.put(NodeMask::first(NODES_MAX), words)
    }

    /// Puts a command to one node alone.
    #[must_use]
    pub fn only(self, node: NodeId, words: &[&[u8]]) -> Self {
        self.put(NodeMask::of(node), words)
    }

    fn put(mut self, nodes: NodeMask, words: &[&[u8]]) -> Self {
        let mut command = Vec::new();
        append_command(&mut command, words);
        self.commands.push((nodes, command));
        self
    }

    /// The commands for a node, in their order.
    pub(crate) fn of(&self, node: NodeId) -> impl Iterator<Item = &[u8]> {
        let commands = self.commands.iter().filter(move |(nodes, _)| nodes.contains(node));
        commands.map(|(_, command)| command.as_slice())
    }
}

impl fmt::Debug for Query {
    /// Without the commands: a command may name a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("commands", &self.commands.len()).finish()
    }
}

/// The answers of one node to a [`Query`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeAnswers {
    /// The node.
    pub node: NodeId,
    /// Its replies so far, in the order of its commands.
    pub replies: Vec<Reply>,
    /// Why replies are missing; [`Cause::None`] if none is missing.
    pub cause: Cause,
    /// Why the replies prove nothing: the node may have lost locks in a restart, or is not fit to
    /// hold any. [`Cause::None`] if the node had a vote when it replied, and if it did not reply.
    pub doubt: Cause,
    /// From the request to the first reply.
    pub round_trip: Duration,
    /// How many replies are wanted.
    pub(crate) wanted: usize,
}

/// One reply of a node.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// No value: for GET, no such key.
    Nil,
    /// A number, or a truth value as 0 or 1.
    Integer(i64),
    /// A string of any kind.
    Text(Vec<u8>),
    /// An error. [`Cause::OddReply`] stands for each error that Redbolt does not know. The client
    /// drops the server's text, because servers quote arguments in it.
    Error(Cause),
    /// Several replies; a map is its keys and values in turn.
    List(Vec<Self>),
}

impl Reply {
    /// The bytes of a string.
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The reply in a whole frame that the client has just read.
    pub(crate) fn of_frame(bytes: &[u8]) -> Self {
        let frame = Decoder::new(Limits::LONG).frame(bytes).ok().flatten();
        frame.map_or(Self::Error(Cause::OddReply), |frame| Self::from(frame.reply()))
    }
}

impl From<Read<'_>> for Reply {
    fn from(reply: Read<'_>) -> Self {
        match reply {
            Read::Null => Self::Nil,
            Read::Integer(number) => Self::Integer(number),
            Read::Boolean(is_so) => Self::Integer(is_so.into()),
            Read::Simple(text) | Read::Bulk(text) | Read::Number(text) | Read::Verbatim(text) => {
                Self::Text(text.to_vec())
            }
            Read::Array(items) | Read::Set(items) | Read::Map(items) | Read::Push(items) => {
                Self::List(items.map(Self::from).collect())
            }
            Read::Error(_) => {
                let answer = classify(&reply);
                let Answer::Refused(cause) = answer else { return Self::Error(Cause::OddReply) };
                Self::Error(cause)
            }
        }
    }
}

impl fmt::Debug for Reply {
    /// Without the text: a key's value is a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("Nil"),
            Self::Integer(number) => write!(f, "Integer({number})"),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Error(cause) => write!(f, "Error({cause:?})"),
            Self::List(replies) => f.debug_tuple("List").field(replies).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_all_kinds_become_values() {
        let text = |text: &str| Reply::Text(text.into());
        let table = [
            ("_\r\n", Reply::Nil),
            ("$-1\r\n", Reply::Nil),
            (":-7\r\n", Reply::Integer(-7)),
            ("#t\r\n", Reply::Integer(1)),
            ("+OK\r\n", text("OK")),
            ("$2\r\na\n\r\n", text("a\n")),
            ("=6\r\ntxt:ab\r\n", text("ab")),
            ("-OOM command not allowed\r\n", Reply::Error(Cause::OutOfMemory)),
            ("-ERR something else\r\n", Reply::Error(Cause::OddReply)),
            ("%1\r\n+a\r\n*1\r\n:1\r\n", {
                Reply::List(vec![text("a"), Reply::List(vec![Reply::Integer(1)])])
            }),
            ("*2\r\n", Reply::Error(Cause::OddReply)),
        ];
        for (frame, reply) in table {
            assert_eq!(Reply::of_frame(frame.as_bytes()), reply, "{frame:?}");
        }
    }

    #[test]
    fn debug_shows_no_text() {
        let replies = Reply::List(vec![Reply::Text(b"secret".to_vec()), Reply::Nil]);
        let query = Query::new().all(&[b"GET", b"secret"]);
        let text = format!("{replies:?}{query:?}");
        assert!(!text.contains("secret") && text.contains("6 bytes"), "{text}");
    }

    #[test]
    fn a_node_is_asked_what_is_put_to_it_in_that_order() {
        let nodes = [0, 1].map(|index| NodeId::new(index).unwrap());
        let query = Query::new().all(&[b"A"]).only(nodes[1], &[b"B"]).all(&[b"C"]);
        let of = |node| query.of(node).map(|command| command[8]).collect::<Vec<_>>();
        assert_eq!((of(nodes[0]), of(nodes[1])), (b"AC".to_vec(), b"ABC".to_vec()));
    }
}

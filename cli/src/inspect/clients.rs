//! The clients of Redbolt, read from their names at the nodes. Other clients are left out.

use std::collections::BTreeMap;

use redbolt::inspect::{Agreement, ClientId, ClientName, NodeAnswers, NodeId, Query, Reply};
use redbolt::{Cause, Client, LockError};

/// The command asks no node with more connections for its list: each connection adds up to 1 KiB to
/// the reply.
const CLIENTS_MAX: u32 = 16_000;

/// Longer than any address and port.
const ADDRESS_LEN_MAX: usize = 128;

/// A client of Redbolt, as a node lists it.
#[derive(Clone, Debug)]
pub(crate) struct SeenClient {
    pub(crate) name: ClientName,
    /// The address of its connection, as that node sees it.
    pub(crate) address: String,
}

/// Why a node has not listed its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unlisted {
    /// It has too many connections, and was not asked: making the list would take it too long.
    TooLong,
    /// It did not answer, or this user may not list its clients.
    Refused(Cause),
}

impl Unlisted {
    /// As a word, for JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TooLong => "too_many_connections",
            Self::Refused(cause) => cause.name(),
        }
    }
}

/// The clients of Redbolt that the nodes list, without the client that asks.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// The client's own settings.
    pub(crate) own: Agreement,
    /// The other clients of Redbolt that any node lists, each once.
    pub(crate) others: Vec<SeenClient>,
    /// A node, and why it has not listed its clients, if it has not.
    pub(crate) nodes: Vec<(String, Option<Unlisted>)>,
}

/// Asks one node after the other for the clients of Redbolt that are connected to it.
pub(crate) fn clients(client: &Client) -> Result<Clients, LockError> {
    let (id, own) = client.identity().wait().ok_or(LockError::Closed)?;
    let counts = client.query(&Query::new().all(&[b"INFO", b"clients"])).wait()?;
    let mut others: BTreeMap<ClientId, SeenClient> = BTreeMap::new();
    let mut nodes = Vec::new();
    for (node, counts) in client.nodes().wait().into_iter().zip(&counts) {
        let listed = match may_list(counts, 0) {
            Ok(()) => list(client, counts.node)?,
            Err(why) => Err(why),
        };
        nodes.push((node.name, listed.as_ref().err().copied()));
        for seen in listed.unwrap_or_default() {
            others.entry(seen.name.client).or_insert(seen);
        }
    }
    others.remove(&id);
    Ok(Clients { own, others: others.into_values().collect(), nodes })
}

/// Whether a node may be asked for the list of its clients, by its reply to INFO clients at place
/// `at`.
pub(super) fn may_list(answers: &NodeAnswers, at: usize) -> Result<(), Unlisted> {
    let info = String::from_utf8_lossy(text(answers, at)?);
    let count = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
    match count.and_then(|count| count.trim().parse::<u32>().ok()) {
        Some(count) if count > CLIENTS_MAX => Err(Unlisted::TooLong),
        Some(_) => Ok(()),
        None => Err(Unlisted::Refused(Cause::OddReply)),
    }
}

/// Asks one node for the list of its clients. A list of 1,000 takes a node about 5 ms, during which
/// it serves no other client. So asking many nodes at once would cost all clients their quorum.
pub(super) fn list(
    client: &Client,
    node: NodeId,
) -> Result<Result<Vec<SeenClient>, Unlisted>, LockError> {
    let answers = client.query(&Query::new().only(node, &[b"CLIENT", b"LIST"])).wait()?;
    let its = answers.iter().find(|answers| answers.node == node);
    let list = its.map(|answers| text(answers, 0).map(String::from_utf8_lossy));
    Ok(list.unwrap_or_else(|| Ok("".into())).map(|list| list.lines().filter_map(entry).collect()))
}

/// The reply at this place, or why there is none.
fn text(answers: &NodeAnswers, at: usize) -> Result<&[u8], Unlisted> {
    match answers.replies.get(at) {
        _ if answers.cause != Cause::None => Err(Unlisted::Refused(answers.cause)),
        Some(Reply::Text(text)) => Ok(text),
        Some(Reply::Error(cause)) => Err(Unlisted::Refused(*cause)),
        _ => Err(Unlisted::Refused(Cause::OddReply)),
    }
}

/// One line of CLIENT LIST.
fn entry(line: &str) -> Option<SeenClient> {
    let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
    let name = ClientName::parse(field("name=")?)?;
    let address = field("addr=")?.chars().filter(|c| !c.is_control()).take(ADDRESS_LEN_MAX);
    Some(SeenClient { name, address: address.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "id=5 addr=10.0.0.9:50412 laddr=10.0.0.1:6379 fd=8 \
                        name=redbolt:1:00010203fcfdfeff:web-7:4711:till age=3 idle=0 flags=P";

    #[test]
    fn a_line_of_the_list_names_a_client_and_where_it_comes_from() {
        let SeenClient { name, address } = entry(LINE).unwrap();
        assert_eq!(name.client.to_string(), "00010203fcfdfeff");
        assert_eq!(address, "10.0.0.9:50412");
        let name = (name.host.as_deref(), name.pid, name.program.as_deref());
        assert_eq!(name, (Some("web-7"), Some(4711), Some("till")));
    }

    #[test]
    fn other_clients_and_cut_lines_are_no_entries() {
        for line in ["", "id=5 addr=h:1 name= age=3", "id=5 addr=h:1 name=till age=3"] {
            assert!(entry(line).is_none(), "{line}");
        }
        assert!(entry(&LINE.replace("addr=", "x=")).is_none());
    }
}

//! [`SeenClient`] and [`Listed`]: the clients of Redbolt, read from the names that they have at the
//! nodes. Other clients are left out.

use std::collections::BTreeMap;

use super::{Answers, answer, refusal};
use crate::agreement::Agreement;
use crate::client_name::{ClientId, ClientName};
use crate::engine::NodeReplies;
use crate::error::Cause;
use crate::quorum::NodeMask;
use crate::resp::Reply;

/// The most connections of a node that is asked for a list of them: each takes up to 1 KiB of it.
const CLIENTS_MAX: u32 = 16_000;

/// A client of Redbolt, as a node lists it. Names are claims of the clients themselves: for people,
/// and for nothing else.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenClient {
    /// How its tokens begin.
    pub client: ClientId,
    /// Its host, as the client calls it.
    pub host: Option<String>,
    /// Its process id.
    pub pid: Option<u32>,
    /// The name of its program, or its [`client_name`](crate::Config::client_name).
    pub program: Option<String>,
    /// Where its connection comes from, as that node sees it.
    pub address: String,
    /// What it says of its settings; `None` for a version that does not.
    pub agreement: Option<Agreement>,
}

/// The clients of Redbolt that the nodes list.
#[derive(Debug, Default)]
pub(crate) struct Listed(BTreeMap<ClientId, SeenClient>);

impl Listed {
    /// Reads the answer to CLIENT LIST.
    pub(crate) fn read(answers: &Answers) -> Self {
        let mut listed = Self::default();
        listed.add(answers);
        listed
    }

    /// Adds what another answer lists; of several entries of a client the first counts.
    pub(crate) fn add(&mut self, answers: &Answers) {
        for answers in &answers.replies {
            answer(answers, 0, |reply| {
                let text = String::from_utf8_lossy(reply.text()?);
                for client in text.lines().filter_map(entry) {
                    self.0.entry(client.client).or_insert(client);
                }
                Some(())
            });
        }
    }

    pub(crate) fn get(&self, client: ClientId) -> Option<&SeenClient> {
        self.0.get(&client)
    }

    /// All but one.
    pub(crate) fn others(mut self, client: ClientId) -> Vec<SeenClient> {
        self.0.remove(&client);
        self.0.into_values().collect()
    }
}

/// One line of CLIENT LIST.
fn entry(line: &str) -> Option<SeenClient> {
    let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
    let ClientName { client, host, pid, program, agreement } = ClientName::parse(field("name=")?)?;
    let address = field("addr=")?.chars().filter(|c| !c.is_control()).take(ADDRESS_LEN_MAX);
    Some(SeenClient { client, host, pid, program, address: address.collect(), agreement })
}

/// Longer than any address and port.
const ADDRESS_LEN_MAX: usize = 128;

/// Whether a node is asked for the list of its clients, by its `index`-th answer, to INFO clients.
pub(crate) fn may_list(answers: &NodeReplies, index: usize) -> Result<(), Unlisted> {
    let clients = given(answers, index, |reply| connected_clients(&reply))?;
    if clients > CLIENTS_MAX { Err(Unlisted::TooLong) } else { Ok(()) }
}

/// Whether a node has listed its clients.
pub(crate) fn has_listed(answers: &NodeReplies) -> Result<(), Unlisted> {
    given(answers, 0, |reply| reply.text().map(drop))
}

/// The `index`-th answer, as `read` understands it, or why there is none.
fn given<T>(
    answers: &NodeReplies,
    index: usize,
    read: impl FnOnce(Reply<'_>) -> Option<T>,
) -> Result<T, Unlisted> {
    if answers.cause != Cause::None {
        return Err(Unlisted::Refused(answers.cause));
    }
    answer(answers, index, read).ok_or_else(|| Unlisted::Refused(refusal(answers, index)))
}

/// Why a node has not listed its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unlisted {
    /// It has more than 16,000 connections, and was not asked: the list would keep it for too long.
    TooLong,
    /// It did not answer, or may not list them to this user.
    Refused(Cause),
}

/// The nodes whose answers to INFO clients alone promise short lists.
pub(crate) fn short_lists(answers: &Answers) -> NodeMask {
    with_short_lists(answers, 0)
}

/// The nodes whose `index`-th answer, to INFO clients, promises a list of bearable length.
pub(super) fn with_short_lists(answers: &Answers, index: usize) -> NodeMask {
    let is_short = |answers: &&NodeReplies| may_list(answers, index).is_ok();
    let mut nodes = NodeMask::EMPTY;
    answers.replies.iter().filter(is_short).for_each(|answers| nodes.insert(answers.node));
    nodes
}

fn connected_clients(info: &Reply<'_>) -> Option<u32> {
    let text = String::from_utf8_lossy(info.text()?);
    text.lines().find_map(|line| line.strip_prefix("connected_clients:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "id=5 addr=10.0.0.9:50412 laddr=10.0.0.1:6379 fd=8 \
                        name=redbolt:1:00010203fcfdfeff:web-7:4711:till age=3 idle=0 flags=P";

    #[test]
    fn a_line_of_the_list_names_a_client_and_where_it_comes_from() {
        let entry = entry(LINE).unwrap();
        assert_eq!(entry.client.to_string(), "00010203fcfdfeff");
        assert_eq!(entry.address, "10.0.0.9:50412");
        let name = (entry.host.as_deref(), entry.pid, entry.program.as_deref());
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

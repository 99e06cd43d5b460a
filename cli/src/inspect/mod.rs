//! The value of a key on each node, and its holder: questions to the nodes, and the meaning of
//! their answers.
//!
//! # Invariants
//!
//! - Only the library counts the votes for a lock ([`Led::read`]).

mod clients;
mod nodes;
mod search;

use std::time::Duration;

use redbolt::inspect::{
    ClientName, Leader, Led, NodeAnswers, NodeHealth, NodeId, NodeMask, NodeState, Query, Reply,
};
use redbolt::{Cause, Client, LockError};

pub(crate) use clients::{Clients, SeenClient, Unlisted, clients};
use clients::{list, may_list};
pub(crate) use nodes::{NodeReport, SET_MARKER, examine};
pub(crate) use search::{Listing, Searched, search};

/// A lock as the nodes show it at one moment.
#[derive(Clone, Debug)]
pub(crate) struct SeenLock {
    /// Without the prefix.
    pub(crate) key: Vec<u8>,
    pub(crate) verdict: Verdict,
    /// The holder, if a quorum holds one token.
    pub(crate) holder: Option<Holder>,
    /// The lock is held without a vote to spare, although a lock on all nodes would have a vote to
    /// spare.
    pub(crate) is_tight: bool,
    pub(crate) nodes: Vec<NodeKey>,
    /// Other data than a token is on so many nodes that the rest makes no quorum.
    is_foreign: bool,
}

/// The holder of a lock. Clients choose their names themselves.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    /// The result of the votes, and the holder's claim beside the lock.
    pub(crate) by: Box<Leader>,
    /// A node's entry for the holder in its list of clients.
    pub(crate) listed: Option<SeenClient>,
}

impl Holder {
    /// Its name in a node's list, or else in its own claim.
    pub(crate) fn name(&self) -> Option<&ClientName> {
        self.listed.as_ref().map(|listed| &listed.name).or(self.by.name.as_ref())
    }
}

/// The state of a key over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No token can have a quorum, and no node that counts has a key.
    Free,
    /// A quorum holds one token.
    Held,
    /// There are keys, and no token can have a quorum: an attempt is under way, or has failed.
    Split,
    /// Too few nodes with a vote answered: a quorum may hold a token that they did not show.
    Unknown,
}

impl Verdict {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Split => "split",
            Self::Unknown => "unknown",
        }
    }
}

/// The value of a key on one node.
#[derive(Clone, Debug)]
pub(crate) struct NodeKey {
    /// `host:port` or the socket's path.
    pub(crate) node: String,
    pub(crate) state: KeyState,
    /// Why this node counts neither for a lock nor against one; [`Cause::None`] if it has a vote,
    /// or did not answer.
    pub(crate) doubt: Cause,
    /// How long until the node gets its vote, if time alone gives it one.
    pub(crate) waits: Option<Duration>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// No such key, on a node that may vote. On another node a missing key is an error.
    Free,
    /// A string, which is the holder's token, for so long; `None` for ever.
    Held { token: Vec<u8>, ttl: Option<Duration> },
    /// The node did not answer, or has neither the key nor a vote, or the key holds other data.
    Error(Cause),
}

impl NodeKey {
    /// By the replies to GET or GETRANGE at this place, and to PTTL behind it.
    fn read(node: &NodeHealth, answers: &NodeAnswers, at: usize) -> Self {
        let waits = if let NodeState::Quarantined(left) = node.state { Some(left) } else { None };
        let state = KeyState::read(answers, at);
        Self { node: node.name.clone(), state, doubt: answers.doubt, waits }
    }

    /// Why the node's answer does not count.
    pub(crate) fn silence(&self) -> Option<Cause> {
        let cause = if let KeyState::Error(cause) = self.state { cause } else { self.doubt };
        (cause != Cause::None).then_some(cause)
    }

    /// The token that the node holds and its remaining TTL, whether it counts or not.
    pub(crate) fn held(&self) -> Option<(&[u8], Option<Duration>)> {
        let KeyState::Held { token, ttl } = &self.state else { return None };
        Some((token, *ttl))
    }

    /// Whether the key holds other data than a token.
    fn is_foreign(&self) -> bool {
        self.state == KeyState::Error(Cause::WrongType)
    }

    /// Whether the node has the key, and its answer counts.
    pub(crate) fn counts(&self) -> bool {
        self.held().is_some() && self.doubt == Cause::None
    }
}

impl KeyState {
    fn read(answers: &NodeAnswers, at: usize) -> Self {
        if answers.cause != Cause::None {
            return Self::Error(answers.cause);
        }
        let doubt = answers.doubt;
        let missing = if doubt == Cause::None { Self::Free } else { Self::Error(doubt) };
        match answers.replies.get(at..) {
            Some([Reply::Nil, ..]) => missing,
            // GETRANGE gives this for a missing key.
            Some([Reply::Text(token), Reply::Integer(-2), ..]) if token.is_empty() => missing,
            Some([Reply::Text(token), Reply::Integer(ms), ..]) => {
                let ttl = u64::try_from(*ms).ok().map(Duration::from_millis);
                Self::Held { token: token.clone(), ttl }
            }
            Some([Reply::Error(cause), ..] | [_, Reply::Error(cause), ..]) => Self::Error(*cause),
            Some(_) | None => Self::Error(Cause::OddReply),
        }
    }
}

impl SeenLock {
    /// By what the nodes answer to a question for the leader.
    pub(crate) fn of(
        key: &[u8],
        nodes: &[NodeHealth],
        answers: &[NodeAnswers],
        has_quorum: &dyn Fn(NodeMask) -> bool,
    ) -> Self {
        let nodes = nodes.iter().zip(answers);
        let nodes = nodes.map(|(node, answers)| NodeKey::read(node, answers, 0));
        Self::read(key, nodes.collect(), answers, 0, has_quorum)
    }

    /// Reads the lock from each node's replies. [`Led::read`] reads the replies from place `at` on.
    fn read(
        key: &[u8],
        nodes: Vec<NodeKey>,
        answers: &[NodeAnswers],
        at: usize,
        has_quorum: &dyn Fn(NodeMask) -> bool,
    ) -> Self {
        let led = Led::read(answers, at, has_quorum);
        let verdict = match led {
            Led::By(_) => Verdict::Held,
            Led::Nobody if nodes.iter().any(NodeKey::counts) => Verdict::Split,
            Led::Nobody => Verdict::Free,
            Led::Unknown | _ => Verdict::Unknown,
        };
        let holder = if let Led::By(by) = led { Some(Holder { by, listed: None }) } else { None };
        let of = |keeps: &dyn Fn(&NodeKey) -> bool| {
            let kept = nodes.iter().zip((0..).map_while(NodeId::new));
            kept.filter(|(node, _)| keeps(node)).map(|(_, id)| id).collect::<NodeMask>()
        };
        let is_tight = holder.as_ref().is_some_and(|holder| {
            let token = holder.by.token.as_bytes();
            let votes = of(&|node| node.counts() && node.held().is_some_and(|(it, _)| it == token));
            has_spare(of(&|_| true), has_quorum) && !has_spare(votes, has_quorum)
        });
        let is_foreign =
            !has_quorum(of(&|node| !node.is_foreign())) && nodes.iter().any(NodeKey::is_foreign);
        Self { key: key.to_owned(), verdict, holder, is_tight, nodes, is_foreign }
    }

    /// When the keys of a lock without a holder end.
    pub(crate) fn end_of_keys(&self) -> &'static str {
        let mut ttls = self.nodes.iter().filter_map(NodeKey::held).map(|(_, ttl)| ttl);
        if ttls.any(|ttl| ttl.is_none()) {
            "a key without a TTL never ends: delete it there"
        } else {
            "the keys end with their TTL"
        }
    }

    /// A message, if other data than a token keeps all clients from the lock.
    pub(crate) fn other_data(&self) -> Option<String> {
        let count = self.nodes.iter().filter(|node| node.is_foreign()).count();
        let nodes = self.nodes.len();
        self.is_foreign.then(|| {
            format!(
                "other data is under this name on {count} of {nodes} nodes: delete it there, or \
                 name another lock"
            )
        })
    }

    /// Whether a list of clients may tell more about the holder.
    fn wants_list(&self) -> bool {
        self.holder.as_ref().is_some_and(|it| it.by.client.is_some() && it.listed.is_none())
    }

    /// Notes the entry for the holder in a list of clients.
    fn find_in(&mut self, listed: &[SeenClient]) {
        if let Some(holder) = &mut self.holder {
            let is_it = |seen: &&SeenClient| holder.by.client == Some(seen.name.client);
            holder.listed = listed.iter().find(is_it).cloned();
        }
    }
}

/// Whether these votes still make a quorum after any single one of them is lost.
fn has_spare(votes: NodeMask, has_quorum: &dyn Fn(NodeMask) -> bool) -> bool {
    let without = |id| votes.into_iter().filter(|other| *other != id).collect();
    votes.into_iter().all(|id| has_quorum(without(id)))
}

/// The holder of the lock `key`, or the leader of the election of that name, as far as one round
/// trip shows it.
pub(crate) fn leader(client: &Client, key: &[u8]) -> Result<SeenLock, LockError> {
    let query = Query::leader(&client.wire_key(key)?);
    let answers = client.query(&query).wait()?;
    Ok(SeenLock::of(key, &client.nodes().wait(), &answers, &|nodes| client.has_quorum(nodes)))
}

/// The holder of the lock `key`. If a client of Redbolt holds it, the command asks one node after
/// the other for its clients. It stops once a node lists the holder.
pub(crate) fn holder(client: &Client, key: &[u8]) -> Result<SeenLock, LockError> {
    let query = Query::leader(&client.wire_key(key)?).all(&[b"INFO", b"clients"]);
    let answers = client.query(&query).wait()?;
    let mut seen =
        SeenLock::of(key, &client.nodes().wait(), &answers, &|nodes| client.has_quorum(nodes));
    name_holders(client, std::slice::from_mut(&mut seen), &answers, 3)?;
    Ok(seen)
}

/// Asks one node after the other for the list of its clients, until all holders have names. The
/// reply of each node to INFO clients is at place `at`.
fn name_holders(
    client: &Client,
    locks: &mut [SeenLock],
    answers: &[NodeAnswers],
    at: usize,
) -> Result<(), LockError> {
    for answers in answers.iter().filter(|answers| may_list(answers, at).is_ok()) {
        if !locks.iter().any(SeenLock::wants_list) {
            break;
        }
        if let Ok(listed) = list(client, answers.node)? {
            let locks = locks.iter_mut().filter(|lock| lock.wants_list());
            locks.for_each(|lock| lock.find_in(&listed));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: &[usize]) -> NodeMask {
        numbers.iter().filter_map(|number| NodeId::new(*number)).collect()
    }

    #[test]
    fn a_lock_of_two_lists_has_a_vote_to_spare_in_each_of_them() {
        let has = |votes: NodeMask, list: &[usize], quorum: usize| {
            votes.into_iter().filter(|id| nodes(list).contains(*id)).count() >= quorum
        };
        let has_quorum =
            |votes: NodeMask| has(votes, &[0, 1, 2, 3, 4], 3) && has(votes, &[3, 4, 5], 2);
        // Four votes are more than either list needs; the old list has three of them.
        assert!(!has_spare(nodes(&[0, 3, 4, 5]), &has_quorum));
        assert!(!has_spare(nodes(&[0, 1, 2, 3, 4]), &has_quorum));
        assert!(has_spare(nodes(&[0, 1, 3, 4, 5]), &has_quorum));
    }
}

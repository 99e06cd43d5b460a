//! [`Led`]: which client leads an election, or holds any lock, by the votes of the nodes.
//! [`Sighting`]: when an observer asks again.
//!
//! Layer: above `query`, beside `engine`. Sends nothing and reads no clock.

use std::time::{Duration, SystemTime};

use crate::claim::{CLAIM_SUFFIX, Claim};
use crate::client_name::{ClientId, ClientName};
use crate::error::Cause;
use crate::query::{NodeAnswers, Query, Reply};
use crate::quorum::{NodeId, NodeMask};
use crate::time::Instant;
use crate::token::LockToken;

/// Which client leads an election: the client that holds its lock. A caller may ask for any lock.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Led {
    /// A quorum of nodes holds the token of this client.
    By(Box<Leader>),
    /// No token has a quorum: no client leads.
    Nobody,
    /// Too few nodes with a vote answered: a quorum may hold a token that they did not show.
    Unknown,
}

/// A client that holds a lock. Clients choose their names themselves: show a name to people, and
/// rely on it for nothing else.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leader {
    /// The token that a quorum holds. `Debug` does not show it.
    pub token: LockToken,
    /// How many nodes hold it.
    pub votes: u32,
    /// How long until no quorum holds it, unless the client extends it; `None` for ever.
    pub ends_in: Option<Duration>,
    /// The client, by its token; `None` if the token does not have Redbolt's form.
    pub client: Option<ClientId>,
    /// The name that the client wrote beside the lock. `None` if its caller did not ask for that
    /// ([`announced`](crate::LockOptions::announced)), or the client has not written it yet. A name
    /// counts only beside the token of the lock; of several names, the one on most nodes counts.
    pub name: Option<ClientName>,
    /// Since when the client has held the lock, by its own wall clock; `None` as above.
    pub since: Option<SystemTime>,
}

impl Query {
    /// The commands whose replies [`Led::read`] reads: GET and PTTL of the key, and GET of the
    /// claim that its holder writes beside it. `key` is the key as the nodes know it.
    #[must_use]
    pub fn leader(key: &[u8]) -> Self {
        let claim = [key, CLAIM_SUFFIX].concat();
        Self::new().all(&[b"GET", key]).all(&[b"PTTL", key]).all(&[b"GET", &claim])
    }
}

impl Led {
    /// Counts the votes of the nodes by their replies to [`Query::leader`]. `at` is the place of the
    /// first of the three replies. GETRANGE may stand for GET. `has_quorum` says whether nodes are a
    /// quorum, as [`Client::has_quorum`](crate::Client::has_quorum) does.
    #[must_use]
    pub fn read(answers: &[NodeAnswers], at: usize, has_quorum: impl Fn(NodeMask) -> bool) -> Self {
        let votes: Vec<(NodeId, HolderVote<'_>)> =
            answers.iter().map(|node| (node.node, vote(node, at))).collect();
        let ends_of = |token: &[u8]| -> Vec<(Duration, NodeId)> {
            let ends = votes.iter().filter_map(|(node, vote)| match vote {
                HolderVote::Token(other, end) => (*other == token).then_some((*end, *node)),
                HolderVote::Free | HolderVote::Silent => None,
            });
            ends.collect()
        };
        let tokens = votes.iter().filter_map(|(_, vote)| match vote {
            HolderVote::Token(token, _) => Some((*token, ends_of(token))),
            HolderVote::Free | HolderVote::Silent => None,
        });
        let silent = votes.iter().filter(|(_, vote)| *vote == HolderVote::Silent);
        let silent: NodeMask = silent.map(|(node, _)| *node).collect();
        // With two lists, a token without a quorum of each may be on more nodes than a token that
        // has both.
        let strength = |(_, ends): &(&[u8], Vec<(Duration, NodeId)>)| {
            let holders: NodeMask = ends.iter().map(|(_, node)| *node).collect();
            (has_quorum(holders), has_quorum(holders.union(silent)), ends.len())
        };
        let (token, mut ends) = tokens.max_by_key(strength).unwrap_or_default();
        // The last end first: the quorum ends with the node that completes it.
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let mut holders = NodeMask::EMPTY;
        let last = ends.iter().find(|(_, node)| {
            holders.insert(*node);
            has_quorum(holders)
        });
        let Some(&(ends_in, _)) = last else {
            let possible = holders.union(silent);
            return if has_quorum(possible) { Self::Unknown } else { Self::Nobody };
        };
        let claim = claim(answers, at, token);
        let (name, since) = claim.map_or((None, None), |claim| (Some(claim.name), claim.since));
        Self::By(Box::new(Leader {
            token: LockToken::seen(token),
            votes: u32::try_from(ends.len()).unwrap_or(u32::MAX),
            ends_in: Some(ends_in).filter(|end| *end < Duration::MAX),
            client: ClientId::of_token(token),
            name,
            since,
        }))
    }

    /// The leader, if there is one and the nodes show it.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        if let Self::By(leader) = self { Some(leader) } else { None }
    }

    /// Whether this is news to an observer that last saw `before`: another leader, no leader, or
    /// the name of a leader that had none. Too few answers are no news.
    fn is_news(&self, before: Option<&Self>) -> bool {
        let Some(before) = before else { return true };
        let (now, then) = (self.leader(), before.leader());
        let is_other = now.map(|leader| &leader.token) != then.map(|leader| &leader.token);
        let is_named = |leader: Option<&Leader>| leader.is_some_and(|it| it.name.is_some());
        !matches!(self, Self::Unknown) && (is_other || is_named(now) && !is_named(then))
    }
}

/// One node's evidence for or against a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HolderVote<'a> {
    /// It holds this token, for so long.
    Token(&'a [u8], Duration),
    Free,
    /// Nothing: the node does not answer, may have lost a lock, or is not fit to hold one.
    Silent,
}

fn vote(node: &NodeAnswers, at: usize) -> HolderVote<'_> {
    if node.cause != Cause::None || node.doubt != Cause::None {
        return HolderVote::Silent;
    }
    match node.replies.get(at..) {
        Some([Reply::Nil, ..]) => HolderVote::Free,
        // GETRANGE gives an empty string for a missing key, too. A key may also end between the two
        // commands.
        Some([Reply::Text(_), Reply::Integer(-2), ..]) => HolderVote::Free,
        Some([Reply::Text(token), Reply::Integer(ms), ..]) => HolderVote::Token(
            token,
            u64::try_from(*ms).map_or(Duration::MAX, Duration::from_millis),
        ),
        Some(_) | None => HolderVote::Silent,
    }
}

/// The claim of the holder of `token` that most nodes have.
fn claim(answers: &[NodeAnswers], at: usize, token: &[u8]) -> Option<Claim> {
    let claim = |node: &NodeAnswers| {
        let [_, _, claim, ..] = node.replies.get(at..)? else { return None };
        Claim::read(claim.text()?, token)
    };
    let claims: Vec<Claim> = answers.iter().filter_map(claim).collect();
    let votes = |claim: &&Claim| claims.iter().filter(|other| other == claim).count();
    claims.iter().max_by_key(votes).cloned()
}

/// The shortest time between two looks.
const PACE_MIN: Duration = Duration::from_millis(1);

/// The leader that an observer saw last, and the time of its next look.
#[derive(Debug)]
pub(crate) struct Sighting {
    pub(crate) key: Vec<u8>,
    pace: Duration,
    last: Option<Led>,
    /// When the next look is due.
    pub(crate) due: Instant,
}

impl Sighting {
    pub(crate) fn new(key: &[u8], pace: Duration) -> Self {
        Self { key: key.to_owned(), pace: pace.max(PACE_MIN), last: None, due: Instant::default() }
    }

    /// A look begins at `now`.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.due = now + self.pace;
    }

    /// The result of a look, if it is news.
    pub(crate) fn take(&mut self, seen: Led) -> Option<Led> {
        if seen.is_news(self.last.as_ref()) {
            self.last = Some(seen.clone());
            Some(seen)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::NodeId;

    fn node(replies: Vec<Reply>) -> NodeAnswers {
        let (node, cause) = (NodeId::new(0).unwrap(), Cause::None);
        let round_trip = Duration::ZERO;
        NodeAnswers { node, replies, cause, doubt: cause, round_trip, wanted: 3 }
    }

    fn placed<const N: usize>(mut nodes: [NodeAnswers; N]) -> [NodeAnswers; N] {
        for (answers, place) in nodes.iter_mut().zip(0..) {
            answers.node = NodeId::new(place).unwrap();
        }
        nodes
    }

    fn holds(token: &str, ttl_ms: i64) -> NodeAnswers {
        node(vec![Reply::Text(token.into()), Reply::Integer(ttl_ms), Reply::Nil])
    }

    fn free() -> NodeAnswers {
        node(vec![Reply::Nil, Reply::Integer(-2), Reply::Nil])
    }

    fn silent() -> NodeAnswers {
        NodeAnswers { cause: Cause::Timeout, ..node(Vec::new()) }
    }

    #[test]
    fn a_silent_node_counts_for_the_strongest_token() {
        let (a, b) = (holds("a", 9), holds("b", 9));
        let doubtful = NodeAnswers { doubt: Cause::Quarantined, ..a.clone() };
        let no_lock = node(vec![Reply::Error(Cause::WrongType), Reply::Integer(9), Reply::Nil]);
        let range = node(vec![Reply::Text(Vec::new()), Reply::Integer(-2), Reply::Nil]);
        let table = [
            ([&a, &a, &a, &free(), &silent()], "held"),
            ([&a, &a, &b, &free(), &silent()], "unknown"),
            ([&a, &a, &doubtful, &free(), &b], "unknown"),
            ([&a, &a, &b, &b, &free()], "nobody"),
            ([&a, &free(), &range, &free(), &silent()], "nobody"),
            ([&free(), &free(), &free(), &silent(), &no_lock], "nobody"),
            ([&free(), &range, &silent(), &silent(), &no_lock], "unknown"),
        ];
        for (nodes, expected) in table {
            let nodes = placed(nodes.map(Clone::clone));
            let led = match Led::read(&nodes, 0, |nodes| nodes.count() >= 3) {
                Led::By(_) => "held",
                Led::Nobody => "nobody",
                Led::Unknown => "unknown",
            };
            assert_eq!(led, expected, "{nodes:?}");
        }
    }

    /// Nodes 0 to 2 are in both lists, and each list has two nodes more.
    #[test]
    fn of_two_lists_a_token_with_a_quorum_of_each_counts_though_more_nodes_hold_another() {
        let has_quorum = |nodes: NodeMask| {
            [[0, 1, 2, 3, 4], [0, 1, 2, 5, 6]].into_iter().all(|list| {
                let holds = |place: &usize| nodes.contains(NodeId::new(*place).unwrap());
                list.iter().filter(|place| holds(place)).count() >= 3
            })
        };
        let (a, b) = (|| holds("a", 9), || holds("b", 9));
        let led = |nodes: [NodeAnswers; 7]| Led::read(&placed(nodes), 0, has_quorum);
        let held = led([a(), a(), a(), b(), b(), b(), b()]);
        assert_eq!(held.leader().map(|leader| leader.votes), Some(3), "{held:?}");
        let unknown = led([a(), a(), silent(), b(), b(), b(), free()]);
        assert!(matches!(unknown, Led::Unknown), "{unknown:?}");
        let nobody = led([a(), a(), b(), free(), silent(), b(), free()]);
        assert!(matches!(nobody, Led::Nobody), "{nobody:?}");
    }

    #[test]
    fn a_lock_ends_with_the_key_that_leaves_no_quorum() {
        let ends = |ttls: [i64; 3]| {
            let Led::By(leader) =
                Led::read(&placed(ttls.map(|ttl| holds("a", ttl))), 0, |nodes| nodes.count() >= 2)
            else {
                panic!("it is held")
            };
            (leader.votes, leader.ends_in)
        };
        let ms = Duration::from_millis;
        assert_eq!(ends([3, 1, 2]), (3, Some(ms(2))));
        assert_eq!(ends([3, -1, 2]), (3, Some(ms(3))));
        assert_eq!(ends([3, -1, -1]), (3, None));
        // The key ended between the two commands.
        assert_eq!(ends([3, -2, 2]), (2, Some(ms(2))));
    }
}

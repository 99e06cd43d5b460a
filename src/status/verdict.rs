//! [`Verdict`]: what the nodes together say of a lock, by the votes of those that count.

use std::time::Duration;

use super::{KeyState, NodeKey};
use crate::error::Cause;

/// What the nodes together hold for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// No token can have a quorum, and no node that counts has a key.
    Free,
    /// One token is held by a quorum.
    Held,
    /// There are keys, and no token can have a quorum: an attempt is under way, or has failed.
    Split,
    /// Too few nodes with a vote answered: the others may hold a quorum.
    Unknown,
}

impl Verdict {
    /// The verdict as a word, for labels and JSON fields: `free`, `held`, `split` or `unknown`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Split => "split",
            Self::Unknown => "unknown",
        }
    }
}

/// What a node says for or against a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vote<'a> {
    Token(&'a [u8]),
    Free,
    /// Nothing: the node does not answer, may have lost a lock, or is not fit to hold one.
    Silent,
}

fn vote(node: &NodeKey) -> Vote<'_> {
    match &node.state {
        KeyState::Held { token, .. } if node.doubt == Cause::None => Vote::Token(token),
        KeyState::Free => Vote::Free,
        KeyState::Held { .. } | KeyState::Error(_) => Vote::Silent,
    }
}

/// The verdict on a lock that needs so many votes.
pub(crate) fn judge(nodes: &[NodeKey], quorum: u32) -> Verdict {
    judge_votes(&nodes.iter().map(vote).collect::<Vec<_>>(), quorum)
}

fn judge_votes(votes: &[Vote<'_>], quorum: u32) -> Verdict {
    let quorum = usize::try_from(quorum).unwrap_or(usize::MAX);
    let most = votes.iter().map(|vote| holders_with(votes, *vote)).max().unwrap_or(0);
    let silent = votes.iter().filter(|vote| **vote == Vote::Silent).count();
    match most {
        most if most >= quorum => Verdict::Held,
        most if most + silent >= quorum => Verdict::Unknown,
        0 => Verdict::Free,
        _ => Verdict::Split,
    }
}

/// How many nodes hold the token of `vote`.
fn holders_with(votes: &[Vote<'_>], vote: Vote<'_>) -> usize {
    let is_token = matches!(vote, Vote::Token(_));
    votes.iter().filter(|other| is_token && **other == vote).count()
}

/// The token that a quorum holds, how many nodes hold it, and when so many of their keys have ended
/// that no quorum is left; `None` for never.
pub(super) fn held_token(nodes: &[NodeKey], quorum: u32) -> Option<(&[u8], u32, Option<Duration>)> {
    let votes: Vec<_> = nodes.iter().map(vote).collect();
    let quorum = usize::try_from(quorum).ok()?;
    let (token, held) = votes.iter().find_map(|vote| match vote {
        Vote::Token(token) => {
            let held = holders_with(&votes, *vote);
            (held >= quorum).then_some((*token, held))
        }
        Vote::Free | Vote::Silent => None,
    })?;
    let mut ends: Vec<Duration> = nodes.iter().filter_map(|node| end(node, token)).collect();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    let end = ends.get(quorum.checked_sub(1)?).copied().filter(|end| *end < Duration::MAX);
    Some((token, u32::try_from(held).ok()?, end))
}

/// When the key of a node that votes for `token` ends.
fn end(node: &NodeKey, token: &[u8]) -> Option<Duration> {
    let KeyState::Held { ttl, .. } = &node.state else { return None };
    (vote(node) == Vote::Token(token)).then_some(ttl.unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_counts_the_silent_nodes_for_the_strongest_token() {
        use Vote::{Free, Silent, Token};
        let (a, b) = (Token(b"a"), Token(b"b"));
        let table = [
            ([a, a, a, Free, Silent], Verdict::Held),
            ([a, a, b, Free, Silent], Verdict::Unknown),
            ([a, a, b, b, Free], Verdict::Split),
            ([a, Free, Free, Free, Silent], Verdict::Split),
            ([Free, Free, Free, Silent, Silent], Verdict::Free),
            ([Free, Free, Silent, Silent, Silent], Verdict::Unknown),
        ];
        for (votes, verdict) in table {
            assert_eq!(judge_votes(&votes, 3), verdict, "{votes:?}");
        }
    }

    fn node(token: &str, ttl_s: Option<u64>, doubt: Cause) -> NodeKey {
        let ttl = ttl_s.map(Duration::from_secs);
        let state = KeyState::Held { token: token.into(), ttl };
        NodeKey { node: "n".into(), state, doubt, waits: None }
    }

    #[test]
    fn a_lock_ends_with_the_key_that_leaves_no_quorum() {
        let held = |ends: [Option<u64>; 3]| {
            let nodes = ends.map(|end| node("a", end, Cause::None));
            held_token(&nodes, 2).map(|(token, votes, end)| (token.to_owned(), votes, end))
        };
        let s = Duration::from_secs;
        assert_eq!(held([Some(3), Some(1), Some(2)]), Some((b"a".to_vec(), 3, Some(s(2)))));
        assert_eq!(held([Some(3), None, Some(2)]), Some((b"a".to_vec(), 3, Some(s(3)))));
        assert_eq!(held([Some(3), None, None]), Some((b"a".to_vec(), 3, None)));
        let doubtful = [node("a", Some(9), Cause::None), node("a", Some(9), Cause::Quarantined)];
        assert_eq!(held_token(&doubtful, 2), None);
    }
}

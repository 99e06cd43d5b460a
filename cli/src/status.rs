//! `redbolt status`: what each node holds for a key, and what that means.

use std::time::Duration;

use redbolt::inspect::{KeyState, NodeKey};
use redbolt::{Cause, Client};
use serde_json::{Value, json};

use crate::args::{Global, StatusArgs};
use crate::exit::{Failure, code_without_quorum};
use crate::output::{Paint, ms, say, short, shown};
use crate::table::Table;
use crate::terminal::wrap;
use crate::{look, settings, terminal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Free,
    Held,
    Split,
    /// Too few nodes with a vote answered: the others may hold a quorum.
    Unknown,
}

pub(crate) fn run(global: &Global, args: &StatusArgs) -> Result<(), Failure> {
    let (mut client, config) = look::client(global)?;
    let quorum = settings::quorum(global, &config)?;
    let look = Look::at(&mut client, &args.key.0, quorum)?;
    if global.json {
        say(look.json())?;
    } else {
        say(look.text(Paint::stdout(), terminal::width()))?;
    }
    if look.verdict != Verdict::Unknown {
        return Ok(());
    }
    let causes = look.nodes.iter().map(|node| silence(node).unwrap_or_default());
    Err(Failure::code(code_without_quorum(causes, quorum)))
}

/// What the nodes hold for a key at one moment.
#[derive(Debug)]
pub(crate) struct Look {
    key: Vec<u8>,
    quorum: usize,
    nodes: Vec<NodeKey>,
    verdict: Verdict,
}

impl Look {
    pub(crate) fn at(client: &mut Client, key: &[u8], quorum: usize) -> Result<Self, Failure> {
        let nodes = client.status(key)?;
        let verdict = judge(&votes(&nodes), quorum);
        Ok(Self { key: key.to_owned(), quorum, nodes, verdict })
    }

    pub(crate) fn json(&self) -> Value {
        let list: Vec<Value> = self.nodes.iter().map(node_json).collect();
        let key = shown(&self.key);
        json!({"key": key, "verdict": self.verdict.word(), "quorum": self.quorum, "nodes": list})
    }

    /// The verdict in a sentence, and a line for each node.
    pub(crate) fn text(&self, paint: Paint, columns: Option<usize>) -> String {
        let sentence = wrap(&self.sentence(paint), 2, columns);
        format!("{sentence}\n{}", table(&self.nodes).fit(columns))
    }

    /// Whether `other` differs by more than the passing of time.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        let without_time = |look: &Self| -> Vec<_> {
            let node = |node: &NodeKey| {
                let token = held(node).map(|(token, _)| token.to_owned());
                (state(node), token, silence(node))
            };
            look.nodes.iter().map(node).collect()
        };
        self.verdict != other.verdict || without_time(self) != without_time(other)
    }

    /// The verdict in a sentence.
    pub(crate) fn sentence(&self, paint: Paint) -> String {
        let (nodes, quorum) = (&self.nodes, self.quorum);
        let holders = nodes.iter().filter(|node| matches!(vote(node), Vote::Token(_))).count();
        let key = paint.bold(shown(&self.key));
        match self.verdict {
            Verdict::Free => format!("{key} is {}", paint.green("free")),
            Verdict::Held => {
                let ends = lock_end(nodes, quorum).map(short).map_or_else(
                    || "and never ends by itself".to_owned(),
                    |ends| format!("for another {ends} unless it is extended or released"),
                );
                format!(
                    "{key} is {} on {holders} of {} nodes, {ends}",
                    paint.yellow("held"),
                    nodes.len()
                )
            }
            Verdict::Split => format!(
                "{key} is {}: {holders} of {} nodes hold it, and no token has the {quorum} votes of \
                 a lock; an attempt is under way, or has failed and the keys end with their TTL",
                paint.red("split"),
                nodes.len(),
            ),
            Verdict::Unknown => format!(
                "{key} is {}: too few nodes with a vote answered to know (redbolt doctor says more)",
                paint.red("unknown")
            ),
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
    match held(node) {
        Some((token, _)) if node.doubt == Cause::None => Vote::Token(token),
        None if node.state == KeyState::Free => Vote::Free,
        Some(_) | None => Vote::Silent,
    }
}

fn votes(nodes: &[NodeKey]) -> Vec<Vote<'_>> {
    nodes.iter().map(vote).collect()
}

/// Held: one token on a quorum. Split: some keys, and no token that could have a quorum.
fn judge(votes: &[Vote<'_>], quorum: usize) -> Verdict {
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

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Split => "split",
            Self::Unknown => "unknown",
        }
    }
}

fn node_json(node: &NodeKey) -> Value {
    let key = held(node);
    json!({
        "node": node.node,
        "state": state(node),
        "token": key.map(|(token, _)| shown(token)),
        "ttl_ms": key.and_then(|(_, ttl)| ttl).map(ms),
        "cause": silence(node).map(Cause::name),
        "message": silence(node).map(Cause::text),
        "waits_ms": node.waits.map(ms),
    })
}

/// The token that a node holds and its remaining TTL, whether it counts or not.
fn held(node: &NodeKey) -> Option<(&[u8], Option<Duration>)> {
    let KeyState::Held { token, ttl } = &node.state else { return None };
    Some((token, *ttl))
}

fn state(node: &NodeKey) -> &'static str {
    match node.state {
        KeyState::Free => "free",
        KeyState::Held { .. } => "held",
        KeyState::Error(_) | _ => "error",
    }
}

/// Why what the node says does not count.
fn silence(node: &NodeKey) -> Option<Cause> {
    let cause = if let KeyState::Error(cause) = node.state { cause } else { node.doubt };
    (cause != Cause::None).then_some(cause)
}

fn table(nodes: &[NodeKey]) -> Table<4> {
    let mut table = Table::new(["node", "state", "ends in", "token"]);
    for node in nodes {
        let why = silence(node).map(|cause| match node.waits {
            Some(left) => format!("waits {}: may have forgotten locks", short(left)),
            None => cause.to_string(),
        });
        let state = match (why, state(node)) {
            (Some(why), "held") => format!("held; {why}"),
            (Some(why), _) => why,
            (None, state) => state.to_owned(),
        };
        let ends = |(_, ttl): (_, Option<_>)| ttl.map_or_else(|| "never".into(), short);
        let token = held(node).map(|(token, _)| shown(token));
        let ends = held(node).map(ends).unwrap_or_default();
        table.add([node.node.clone(), state, ends, token.unwrap_or_default()]);
    }
    table
}

/// When the keys of a held lock end to the point that no quorum is left; `None` for never.
fn lock_end(nodes: &[NodeKey], quorum: usize) -> Option<Duration> {
    let votes = votes(nodes);
    let holders = nodes.iter().filter(|node| holders_with(&votes, vote(node)) >= quorum);
    let ends = holders.filter_map(held).map(|(_, ttl)| ttl.unwrap_or(Duration::MAX));
    let mut ends: Vec<Duration> = ends.collect();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    ends.get(quorum - 1).copied().filter(|end| *end < Duration::MAX)
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
            assert_eq!(judge(&votes, 3), verdict, "{votes:?}");
        }
    }
}

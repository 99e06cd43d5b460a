//! `redbolt status`: what each node holds for a key, and what that means.

use std::time::Duration;

use redbolt::Client;
use redbolt::client::{KeyState, NodeKey};
use serde_json::{Value, json};

use crate::args::{Global, StatusArgs};
use crate::exit::{Failure, NO_QUORUM};
use crate::output::{Paint, ms, say, short, shown};
use crate::table::Table;
use crate::terminal::wrap;
use crate::{look, settings, terminal, watch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Free,
    Held,
    Split,
    /// So few nodes answered that the others may hold a quorum.
    Unknown,
}

pub(crate) fn run(global: &Global, args: &StatusArgs) -> Result<(), Failure> {
    if args.watch {
        return watch::run(global, args);
    }
    let (mut client, config) = look::client(global)?;
    let quorum = settings::quorum(global, &config)?;
    let look = Look::at(&mut client, &args.key.0, quorum)?;
    if global.json {
        say(look.json())?;
    } else {
        say(look.text(Paint::stdout(), terminal::width()))?;
    }
    if look.verdict == Verdict::Unknown { Err(Failure::code(NO_QUORUM)) } else { Ok(()) }
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
        let verdict = judge(&states(&nodes), quorum);
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

    /// Whether `other` says anything but that time has passed.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        let without_time = |look: &Self| -> Vec<KeyState> {
            let mut states = states(&look.nodes);
            for state in &mut states {
                if let KeyState::Held { ttl, .. } = state {
                    *ttl = None;
                }
            }
            states
        };
        self.verdict != other.verdict || without_time(self) != without_time(other)
    }

    /// The verdict in a sentence.
    pub(crate) fn sentence(&self, paint: Paint) -> String {
        let (nodes, quorum) = (&self.nodes, self.quorum);
        let is_held = |node: &&NodeKey| matches!(node.state, KeyState::Held { .. });
        let holders = nodes.iter().filter(is_held).count();
        let key = paint.bold(shown(&self.key));
        match self.verdict {
            Verdict::Free => format!("{key} is {}", paint.green("free")),
            Verdict::Held => {
                let ends = lock_end(&states(nodes), quorum).map(short).map_or_else(
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
                "{key} is {}: {holders} of {} nodes hold it, none of the tokens has the {quorum} \
                 votes of a lock; nobody holds the lock, the keys end with their TTL",
                paint.red("split"),
                nodes.len(),
            ),
            Verdict::Unknown => format!(
                "{key} is {}: too few nodes answered to know (redbolt doctor says more)",
                paint.red("unknown")
            ),
        }
    }
}

fn states(nodes: &[NodeKey]) -> Vec<KeyState> {
    nodes.iter().map(|node| node.state.clone()).collect()
}

/// Held: one token on a quorum. Split: some keys, and no token that could have a quorum.
fn judge(states: &[KeyState], quorum: usize) -> Verdict {
    let most = states.iter().map(|state| holders_with(states, state)).max().unwrap_or(0);
    let is_silent = |state: &&KeyState| !matches!(state, KeyState::Held { .. } | KeyState::Free);
    let silent = states.iter().filter(is_silent).count();
    match most {
        most if most >= quorum => Verdict::Held,
        most if most + silent >= quorum => Verdict::Unknown,
        0 => Verdict::Free,
        _ => Verdict::Split,
    }
}

/// How many nodes hold the token that `state` holds.
fn holders_with(states: &[KeyState], state: &KeyState) -> usize {
    let KeyState::Held { token, .. } = state else { return 0 };
    let is_same = |other: &&KeyState| matches!(other, KeyState::Held { token: theirs, .. } if theirs == token);
    states.iter().filter(is_same).count()
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
    let name = &node.node;
    match &node.state {
        KeyState::Free => {
            json!({"node": name, "state": "free", "token": null, "ttl_ms": null})
        }
        KeyState::Held { token, ttl } => json!({
            "node": name,
            "state": "held",
            "token": shown(token),
            "ttl_ms": ttl.map(ms),
        }),
        KeyState::Error(cause) => json!({
            "node": name, "state": "error", "token": null, "ttl_ms": null, "cause": cause.text(),
        }),
        _ => json!({"node": name, "state": "error", "token": null, "ttl_ms": null}),
    }
}

fn table(nodes: &[NodeKey]) -> Table<4> {
    let mut table = Table::new(["node", "state", "ends in", "token"]);
    for node in nodes {
        let row = match &node.state {
            KeyState::Free => [node.node.clone(), "free".into(), String::new(), String::new()],
            KeyState::Held { token, ttl } => {
                let ends = ttl.map_or_else(|| "never".into(), short);
                [node.node.clone(), "held".into(), ends, shown(token)]
            }
            KeyState::Error(cause) => {
                [node.node.clone(), cause.to_string(), String::new(), String::new()]
            }
            _ => [node.node.clone(), "?".into(), String::new(), String::new()],
        };
        table.add(row);
    }
    table
}

/// When so many keys of a held lock will have ended that no quorum is left; `None` for never.
fn lock_end(states: &[KeyState], quorum: usize) -> Option<Duration> {
    let mut ends: Vec<Duration> = states
        .iter()
        .filter(|state| holders_with(states, state) >= quorum)
        .filter_map(|state| {
            let KeyState::Held { ttl, .. } = state else { return None };
            Some(ttl.unwrap_or(Duration::MAX))
        })
        .collect();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    ends.get(quorum - 1).copied().filter(|end| *end < Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redbolt::Cause;

    fn held(token: &[u8]) -> KeyState {
        KeyState::Held { token: token.to_vec(), ttl: None }
    }

    #[test]
    fn a_verdict_counts_the_silent_nodes_for_the_strongest_token() {
        let silent = || KeyState::Error(Cause::Timeout);
        let table = [
            ([held(b"a"), held(b"a"), held(b"a"), KeyState::Free, silent()], Verdict::Held),
            ([held(b"a"), held(b"a"), held(b"b"), KeyState::Free, silent()], Verdict::Unknown),
            ([held(b"a"), held(b"a"), held(b"b"), held(b"b"), KeyState::Free], Verdict::Split),
            (
                [held(b"a"), KeyState::Free, KeyState::Free, KeyState::Free, silent()],
                Verdict::Split,
            ),
            ([KeyState::Free, KeyState::Free, KeyState::Free, silent(), silent()], Verdict::Free),
            ([KeyState::Free, KeyState::Free, silent(), silent(), silent()], Verdict::Unknown),
        ];
        for (states, verdict) in table {
            assert_eq!(judge(&states, 3), verdict, "{states:?}");
        }
    }
}

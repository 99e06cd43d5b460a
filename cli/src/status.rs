//! `redbolt status`: the values of keys on each node, and what they mean.

use redbolt::Cause;
use serde_json::{Value, json};

use crate::args::{Global, StatusArgs};
use crate::exit::{Failure, code_unseen};
use crate::inspect::{Holder, KeyState, NodeKey, SeenLock, Verdict};
use crate::names::names;
use crate::output::{Paint, ms, say, short, shown};
use crate::table::Table;
use crate::terminal::wrap;
use crate::{holders, inspect, look, terminal};

pub(crate) fn run(global: &Global, args: &StatusArgs) -> Result<(), Failure> {
    let (client, _) = look::client(global)?;
    let quorum = client.quorum();
    let show = |key| {
        let seen = inspect::holder(&client, key)?;
        if global.json {
            say(seen.json(quorum))?;
        } else {
            say(seen.text(Paint::stdout(), quorum, terminal::width()))?;
        }
        judge(&seen, quorum)
    };
    Failure::of_each(names(&args.keys).into_iter().map(show), global.json)
}

/// Fails if the nodes leave it unknown which client holds the lock.
pub(crate) fn judge(seen: &SeenLock, quorum: u32) -> Result<(), Failure> {
    if seen.verdict != Verdict::Unknown {
        return Ok(());
    }
    Err(Failure::code(code_unseen(&seen.nodes, quorum)))
}

impl SeenLock {
    pub(crate) fn json(&self, quorum: u32) -> Value {
        json!({
            "key": shown(&self.key),
            "verdict": self.verdict.name(),
            "quorum": quorum,
            "holder": self.holder.as_ref().map(holders::json),
            "nodes": self.nodes.iter().map(node_json).collect::<Vec<_>>(),
        })
    }

    /// The verdict in a sentence, the holder of the lock, and a line for each node.
    pub(crate) fn text(&self, paint: Paint, quorum: u32, columns: Option<usize>) -> String {
        let why = self.holder.as_ref().and_then(holders::why_unlisted);
        let risk = "no vote to spare: one more node that fails or restarts ends it";
        let risk = self.is_tight.then_some(risk);
        let [risk, why] = [risk, why].map(|line| line.map(str::to_owned));
        let lines = [Some(self.sentence(paint, quorum)), risk, why];
        let lines = lines.into_iter().flatten().map(|line| wrap(&line, 2, columns));
        let table = table(&self.nodes).fit(columns);
        lines.chain([table]).collect::<Vec<_>>().join("\n")
    }

    /// Whether the sentence of `other` differs by more than the passing of time.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        let without_time = |seen: &Self| {
            let by = |it: &Holder| (it.by.token.clone(), it.by.votes, holders::words(it));
            let with_key = seen.nodes.iter().filter(|node| node.counts()).count();
            (seen.verdict, seen.holder.as_ref().map(by), with_key, seen.other_data())
        };
        without_time(self) != without_time(other)
    }

    /// The verdict in a sentence.
    pub(crate) fn sentence(&self, paint: Paint, quorum: u32) -> String {
        let count = self.nodes.len();
        let with_key = self.nodes.iter().filter(|node| node.counts()).count();
        let key = paint.bold(shown(&self.key));
        match (&self.holder, self.verdict) {
            (Some(holder), _) => {
                let ends = holder.by.ends_in.map(short).map_or_else(
                    || "and never ends by itself".to_owned(),
                    |ends| format!("and for another {ends} unless it is extended or released"),
                );
                format!(
                    "{key} is {} on {} of {count} nodes by {}{}, {ends}",
                    paint.yellow("held"),
                    holder.by.votes,
                    holders::words(holder),
                    holders::for_now(holder),
                )
            }
            (None, Verdict::Free) => format!("{key} is {}", paint.green("free")),
            (None, Verdict::Split) => format!(
                "{key} is {}: {with_key} of {count} nodes hold it, and no token has the {quorum} \
                 votes of a lock. An attempt is under way, or has failed and {}",
                paint.red("split"),
                self.end_of_keys(),
            ),
            (None, _) => {
                let few = "too few nodes with a vote answered to know (redbolt doctor says more)";
                let why = self.other_data().unwrap_or_else(|| few.to_owned());
                format!("{key} is {}: {why}", paint.red("unknown"))
            }
        }
    }
}

fn node_json(node: &NodeKey) -> Value {
    let held = node.held();
    json!({
        "node": node.node,
        "state": state(node),
        "token": held.map(|(token, _)| shown(token)),
        "ttl_ms": held.and_then(|(_, ttl)| ttl).map(ms),
        "cause": node.silence().map(Cause::name),
        "message": node.silence().map(Cause::text),
        "waits_ms": node.waits.map(ms),
    })
}

fn state(node: &NodeKey) -> &'static str {
    match node.state {
        KeyState::Free => "free",
        KeyState::Held { .. } => "held",
        KeyState::Error(_) => "error",
    }
}

fn table(nodes: &[NodeKey]) -> Table<4> {
    let mut table = Table::new(["node", "state", "ends in", "token"]);
    for node in nodes {
        let why = node.silence().map(|cause| match node.waits {
            Some(left) => format!("waits {}: may have forgotten locks", short(left)),
            None => cause.to_string(),
        });
        let state = match (why, state(node)) {
            (Some(why), "held") => format!("held; {why}"),
            (Some(why), _) => why,
            (None, state) => state.to_owned(),
        };
        let ends = |(_, ttl): (_, Option<_>)| ttl.map_or_else(|| "never".into(), short);
        let token = node.held().map(|(token, _)| shown(token));
        let ends = node.held().map(ends).unwrap_or_default();
        table.add([node.node.clone(), state, ends, token.unwrap_or_default()]);
    }
    table
}

//! The setup of a benchmark: its nodes, and how it calls them.

use redbolt::Config;
use redbolt_embedded::Nodes;
use serde_json::{Value, json};

use crate::args::{Global, word};
use crate::bench_args::{BenchArgs, Mode, Polling};
use crate::exit::Failure;
use crate::output::note;
use crate::settings;

#[derive(Debug)]
pub(super) struct Setup {
    node_count: usize,
    quorum: usize,
    in_flight: usize,
    mode: Mode,
    poll: Polling,
    is_embedded: bool,
}

impl Setup {
    pub(super) fn new(
        global: &Global,
        args: &BenchArgs,
        config: &Config,
        in_flight: usize,
        is_embedded: bool,
    ) -> Result<Self, Failure> {
        let node_count = config.nodes().len();
        // Of two lists, the larger quorum.
        let quorums = settings::quorums(global, config)?;
        let quorum = quorums.into_iter().map(|(_, quorum)| quorum).max().unwrap_or_default();
        Ok(Self { node_count, quorum, in_flight, mode: args.mode, poll: args.poll, is_embedded })
    }

    /// Tells the user if the nodes are embedded ones.
    pub(super) fn tell(&self) {
        if self.is_embedded {
            note(
                "no nodes named: measuring on five embedded ones, which share this machine's processors",
            );
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "nodes": self.node_count,
            "quorum": self.quorum,
            "embedded": self.is_embedded,
            "mode": word(&self.mode),
            "poll": word(&self.poll),
            "in_flight": self.in_flight,
        })
    }

    pub(super) fn text(&self) -> String {
        let Self { node_count, quorum, in_flight, .. } = self;
        let (mode, poll) = (word(&self.mode), word(&self.poll));
        let embedded = if self.is_embedded { " embedded" } else { "" };
        format!(
            "{node_count}{embedded} nodes, quorum {quorum}; {mode} with {in_flight} in flight, {poll}"
        )
    }
}

/// The nodes to measure on; embedded ones live as long as the second value.
pub(super) fn nodes(global: &Global) -> Result<(Config, Option<Nodes>), Failure> {
    if let Some(named) = &global.nodes {
        return Ok((settings::config_of(global, named)?, None));
    }
    let nodes = Nodes::start(5)?;
    Ok((settings::config_of(global, &nodes.urls().join(","))?, Some(nodes)))
}

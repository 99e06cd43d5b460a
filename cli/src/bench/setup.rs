//! What a benchmark measures: how many nodes, and how they are called.

use std::time::Duration;

use redbolt::{Config, IdleStrategy};
use redbolt_embedded::Nodes;
use serde_json::{Value, json};

use crate::args::{BenchArgs, Global, Mode, Polling};
use crate::exit::Failure;
use crate::output::{add, note, us};
use crate::settings;
use crate::times::precise;

#[derive(Debug)]
pub(super) struct Setup {
    node_count: usize,
    quorum: usize,
    load: Load,
    mode: Mode,
    poll: Polling,
    is_embedded: bool,
}

/// What the nodes have to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// So many locks are under way at once.
    InFlight(usize),
    /// So many processes want one lock, and hold it for this long.
    Clients { count: u16, hold: Duration },
}

impl Setup {
    pub(super) fn new(
        global: &Global,
        args: &BenchArgs,
        config: &Config,
        load: Load,
        is_embedded: bool,
    ) -> Result<Self, Failure> {
        let (node_count, quorum) = (config.nodes().len(), settings::quorum(global, config)?);
        Ok(Self { node_count, quorum, load, mode: args.mode, poll: args.poll, is_embedded })
    }

    /// Says so where the nodes are embedded ones.
    pub(super) fn tell(&self) {
        if self.is_embedded {
            note(
                "no nodes named: measuring on five embedded ones, which share this machine's processors",
            );
        }
    }

    pub(super) fn json(&self) -> Value {
        let mut object = json!({
            "nodes": self.node_count,
            "quorum": self.quorum,
            "embedded": self.is_embedded,
            "mode": self.mode_word(),
            "poll": self.poll_word(),
        });
        let load = match self.load {
            Load::InFlight(count) => json!({"in_flight": count}),
            Load::Clients { count, hold } => json!({"clients": count, "hold_us": us(hold)}),
        };
        add(&mut object, load);
        object
    }

    pub(super) fn text(&self) -> String {
        let Self { node_count, quorum, .. } = self;
        let (mode, poll) = (self.mode_word(), self.poll_word());
        let embedded = if self.is_embedded { " embedded" } else { "" };
        let load = match self.load {
            Load::InFlight(count) => format!("with {count} in flight"),
            Load::Clients { count, hold } => {
                format!("among {count} clients, held for {}", precise(hold))
            }
        };
        format!("{node_count}{embedded} nodes, quorum {quorum}; {mode} {load}, {poll}")
    }

    const fn mode_word(&self) -> &'static str {
        match self.mode {
            Mode::Latency => "latency",
            Mode::Throughput => "throughput",
            Mode::Handover => "handover",
        }
    }

    const fn poll_word(&self) -> &'static str {
        match self.poll {
            Polling::Spin => "spin",
            Polling::Park => "park",
        }
    }
}

pub(super) const fn idle_strategy(poll: Polling) -> IdleStrategy {
    match poll {
        Polling::Spin => IdleStrategy::Spin,
        Polling::Park => IdleStrategy::Park,
    }
}

const HOLD: Duration = Duration::from_micros(100);

/// Well below the TTL of the key.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// How long each client holds the lock.
pub(super) fn hold(args: &BenchArgs) -> Result<Duration, Failure> {
    let hold = args.hold.unwrap_or(HOLD);
    if hold > HOLD_MAX {
        return Err(Failure::usage("--hold is at most 1s"));
    }
    Ok(hold)
}

/// The nodes to measure on; embedded ones live as long as the second value.
pub(super) fn nodes(global: &Global) -> Result<(Config, Option<Nodes>), Failure> {
    if let Some(named) = &global.nodes {
        return Ok((settings::config_of(global, named)?, None));
    }
    let nodes = Nodes::start(5)?;
    Ok((settings::config_of(global, &nodes.urls().join(","))?, Some(nodes)))
}

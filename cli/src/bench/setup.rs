//! What a benchmark measures: how many nodes, and how they are called.

use serde_json::{Value, json};

use crate::args::{Mode, Polling};

#[derive(Debug)]
pub(super) struct Setup {
    pub(super) node_count: usize,
    pub(super) quorum: usize,
    pub(super) in_flight: usize,
    pub(super) mode: Mode,
    pub(super) poll: Polling,
    pub(super) is_embedded: bool,
}

impl Setup {
    pub(super) fn json(&self) -> Value {
        json!({
            "nodes": self.node_count,
            "quorum": self.quorum,
            "embedded": self.is_embedded,
            "mode": self.mode_word(),
            "poll": self.poll_word(),
            "in_flight": self.in_flight,
        })
    }

    pub(super) fn text(&self) -> String {
        let Self { node_count, quorum, in_flight, .. } = self;
        let (mode, poll) = (self.mode_word(), self.poll_word());
        let embedded = if self.is_embedded { " embedded" } else { "" };
        format!(
            "{node_count}{embedded} nodes, quorum {quorum}; {mode} with {in_flight} in flight, {poll}"
        )
    }

    const fn mode_word(&self) -> &'static str {
        match self.mode {
            Mode::Latency => "latency",
            Mode::Throughput => "throughput",
        }
    }

    const fn poll_word(&self) -> &'static str {
        match self.poll {
            Polling::Spin => "spin",
            Polling::Park => "park",
        }
    }
}

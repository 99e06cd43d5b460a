//! The node's wall clock, as the node last told it. Only fences depend on it.

use super::core::Node;
use super::state::Now;
use crate::time::{Instant, WallClock};

impl Node {
    /// The node's last reading of its clock, on this connection.
    pub(crate) const fn clock(&self) -> Option<WallClock> {
        self.clock
    }

    /// The number of the answer that was just read.
    pub(crate) const fn number(&self) -> u64 {
        self.reading.number
    }

    /// The node told its time. The client had asked at `asked_at` on the attended clock.
    pub(crate) const fn told_time(&mut self, micros: u64, asked_at: Instant, now: Now) {
        let error = now.attended.nanos_since(asked_at) / 1_000;
        self.clock = Some(WallClock { read_at: now.real, micros, error });
    }
}

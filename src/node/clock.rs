//! The node's wall clock, as the node last told it. Only fences depend on it.

use super::core::Node;
use crate::time::{Instant, WallClock};

impl Node {
    /// The node's last reading of its clock, on this connection.
    pub(crate) const fn clock(&self) -> Option<WallClock> {
        self.clock
    }

    /// The number of the answer that the client has just read.
    pub(crate) const fn number(&self) -> u64 {
        self.reading.number
    }

    /// The client has asked for the node's time.
    pub(crate) fn asked_time(&mut self, now: Instant) {
        self.reading.times.push_back(now);
    }

    /// When the client asked the question that the node has just answered.
    pub(crate) fn time_asked_at(&mut self) -> Instant {
        self.reading.times.pop_front().unwrap_or_default()
    }

    /// The node told its time. Its answer may lie unread, so the error counts the time in which the
    /// client stood still, too.
    pub(crate) const fn told_time(&mut self, micros: u64, asked_at: Instant, now: Instant) {
        let error = now.nanos_since(asked_at) / 1_000;
        self.clock = Some(WallClock { read_at: now, micros, error });
    }
}

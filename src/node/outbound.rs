//! The bytes to write to one node, and how much may wait for it.

use bytes::Buf as _;

use super::core::Node;
use super::debt::Debt;
#[cfg(any(test, feature = "sim"))]
use super::debt::Debts;
use super::pending::{Pending, Request};
#[cfg(any(test, feature = "sim"))]
use super::state::Room;
use super::state::State;
use crate::time::Instant;

/// If a node does not answer, releases fill at most this part of its output; further ones become
/// debts.
const STALLED_PART: usize = 16;

/// Debts fill at most this part of the output, so that they never crowd other requests out.
const DEBT_PART: usize = 4;

impl Node {
    /// Sets bounds so small that a simulation, or a test, reaches them.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn limit(&mut self, room: Room) {
        (self.room, self.debts) = (room, Debts::new(room.debts));
    }

    /// Writes a request, unless too much waits for the node.
    pub(crate) fn request(&mut self, request: Request, bytes: &[u8], attended: Instant) -> bool {
        let limit = self.room.output_len;
        let limit = if self.is_stalled() { limit / STALLED_PART } else { limit };
        if !self.has_room(bytes.len(), limit) {
            return false;
        }
        self.append(request, bytes, attended);
        true
    }

    /// Whether a request of `len` bytes may go to the output.
    #[inline]
    pub(super) fn has_room(&self, len: usize, limit: usize) -> bool {
        self.pending.len() < self.room.answers && self.output.len() + len <= limit
    }

    /// Writes a request however much waits: other means bound these requests.
    pub(crate) fn append(&mut self, request: Request, bytes: &[u8], attended: Instant) {
        self.append_bytes(bytes);
        self.expect_answer(Pending { request, written_at: attended });
    }

    /// Whether the client may write a request of `len` bytes to a node that is not stalled.
    #[inline]
    pub(crate) fn has_room_in_step(&self, len: usize) -> bool {
        self.has_room(len, self.room.output_len)
    }

    #[inline]
    pub(crate) fn append_bytes(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Appends the first `len` bytes of `block`.
    #[inline]
    pub(crate) fn append_block<const N: usize>(&mut self, block: &[u8; N], len: usize) {
        let end = self.output.len() + len;
        self.output.extend_from_slice(block);
        self.output.truncate(end);
    }

    /// Notes that the client awaits an answer to the bytes that it has just appended.
    #[inline]
    pub(crate) fn expect_answer(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// The bytes that wait for the socket.
    #[inline]
    pub(crate) fn output(&self) -> &[u8] {
        &self.output
    }

    /// The socket took `len` bytes. Returns whether that was all.
    #[inline]
    pub(crate) fn output_taken(&mut self, len: usize) -> bool {
        if len < self.output.len() {
            self.output.advance(len);
            return false;
        }
        // Advancing to the end instead would leave less room for the next bytes.
        self.output.clear();
        true
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Removes and returns the next debt that the caller can write now. The caller writes it, or
    /// puts it back.
    pub(crate) fn next_debt(&mut self, now: Instant) -> Option<Debt> {
        if self.takes_debts() { self.debts.pop_due(now) } else { None }
    }

    /// If the node is away, and the client owes it a release for a key that may live, the client
    /// connects at once. Until that fails the node counts as on its way.
    pub(crate) fn reach_if_owed(&mut self, now: Instant) {
        if matches!(self.state, State::Disconnected { .. }) && self.debts.living(now) > 0 {
            self.is_settled = false;
            self.enter(State::Disconnected { retry_at: now });
        }
    }

    /// Whether the client could write a debt now.
    pub(super) fn takes_debts(&self) -> bool {
        let has_room = self.has_room(0, self.room.output_len / DEBT_PART);
        self.is_greeted() && !self.is_stalled() && self.dialect.release.is_some() && has_room
    }
}

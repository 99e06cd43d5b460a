//! What is written to one node, and how much of it may wait.

use super::{Debt, Node, Pending, Request};
use crate::resp::encode::append_block;
use crate::time::Instant;

/// Bytes that may wait for a node's socket.
pub(crate) const OUTPUT_LEN_MAX: usize = 1 << 20;

/// Answers that may be awaited from a node.
pub(crate) const PENDING_MAX: usize = 1 << 15;

/// Releases are queued for a node that does not answer up to here; beyond it they become debts.
const STALLED_OUTPUT_MAX: usize = 64 << 10;

/// Debts are written in portions, so that they never crowd out the rest.
const DEBT_OUTPUT_MAX: usize = 256 << 10;

impl Node {
    /// Writes a request, unless the node has too much before it. `attended` is the time on the
    /// attended clock.
    pub(crate) fn request(
        &mut self,
        request: Request,
        slot: u32,
        bytes: &[u8],
        attended: Instant,
    ) -> bool {
        let limit = if self.is_stalled() { STALLED_OUTPUT_MAX } else { OUTPUT_LEN_MAX };
        if !self.has_room(bytes.len(), limit) {
            return false;
        }
        self.append(request, slot, bytes, attended);
        true
    }

    /// Whether a request of `len` bytes may go to the output.
    #[inline]
    pub(super) const fn has_room(&self, len: usize, limit: usize) -> bool {
        self.pending.len() < PENDING_MAX && self.output.len() + len <= limit
    }

    /// Writes a request whatever waits: for what is bounded by other means.
    pub(crate) fn append(&mut self, request: Request, slot: u32, bytes: &[u8], attended: Instant) {
        self.append_bytes(bytes);
        self.expect_answer(Pending { request, slot, written_at: attended });
    }

    /// Whether a request of `len` bytes may be written to a node that is not stalled.
    #[inline]
    pub(crate) const fn has_room_in_step(&self, len: usize) -> bool {
        self.has_room(len, OUTPUT_LEN_MAX)
    }

    #[inline]
    pub(crate) fn append_bytes(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Appends the first `len` bytes of `block`.
    #[inline]
    pub(crate) fn append_block<const N: usize>(&mut self, block: &[u8; N], len: usize) {
        append_block(&mut self.output, block, len);
    }

    /// Notes that what was just appended will be answered.
    #[inline]
    pub(crate) fn expect_answer(&mut self, pending: Pending) {
        self.pending.push_back(pending);
    }

    /// Takes what waits for the answer to a slot's SET out of the list, as nothing but a mutant
    /// does; how many there were.
    pub(crate) fn forget(&mut self, slot: u32) -> u16 {
        let is_wanted = |pending: &Pending| pending.request == Request::Set && pending.slot == slot;
        let place = self.pending.iter().position(is_wanted);
        place.map_or(0, |place| {
            self.pending.remove(place);
            1
        })
    }

    /// The bytes that wait for the socket.
    #[inline]
    pub(crate) fn output(&self) -> &[u8] {
        if self.output_sent == 0 {
            return &self.output;
        }
        self.output.get(self.output_sent..).unwrap_or_default()
    }

    /// The socket took `len` bytes; whether that was all.
    #[inline]
    pub(crate) fn output_taken(&mut self, len: usize) -> bool {
        let sent = self.output_sent.saturating_add(len);
        if sent >= self.output.len() {
            self.output_all_taken();
            return true;
        }
        self.output_sent = sent;
        if sent > self.output.len() / 2 {
            self.output.drain(..sent);
            self.output_sent = 0;
        }
        false
    }

    #[inline]
    pub(crate) fn output_all_taken(&mut self) {
        self.output.clear();
        self.output_sent = 0;
    }

    pub(crate) const fn has_output(&self) -> bool {
        self.output_sent < self.output.len()
    }

    /// The next debt that can be written now. It is out of the list: the caller writes it, or puts
    /// it back.
    pub(crate) fn next_debt(&mut self, now: Instant) -> Option<Debt> {
        if self.takes_debts() { self.debts.pop_due(now) } else { None }
    }

    /// Whether a debt could be written now.
    pub(super) fn takes_debts(&self) -> bool {
        let has_room = self.output.len() < DEBT_OUTPUT_MAX && self.pending.len() < PENDING_MAX;
        self.is_greeted() && !self.is_stalled() && self.dialect.release.is_some() && has_room
    }
}

//! Compare-and-deletes that the client owes a node because it could not reach the node.
//!
//! # Invariants
//!
//! - A debt ends with the node's answer to it. Time ends it only if the node can no longer run a
//!   command that makes or extends the key. A SET in a frozen server's buffer has not begun its
//!   TTL.
//! - If the node did not answer the SET, the client pays its debt twice, `node_timeout` apart. A
//!   server reads an old connection 16 KiB at a time, between others, so the SET may still run
//!   after the first payment.
//! - A node has at most as many debts as there is [`Room`](super::Room) for. To make room, the
//!   client drops a debt, a refused debt first, and counts it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::slab::SlotIndex;
use crate::time::Instant;

/// How long the client waits before it repeats a release that a node answered with an error.
pub(crate) const REFUSED_DELAY: Duration = Duration::from_secs(1);

/// One compare-and-delete owed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Debt {
    /// The slot that knows key and token.
    pub(crate) slot: SlotIndex,
    /// When a debt that waits is due.
    pub(crate) due: Instant,
    /// The key is certainly gone by then; [`Instant::MAX`] if the node may still run a command that
    /// makes or extends it.
    pub(crate) expires: Instant,
    /// Whether to send it once more, `node_timeout` after the first answer.
    pub(crate) again: bool,
}

/// When a new debt is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DebtDue {
    /// As soon as the client reaches the node.
    OnceReached,
    /// `node_timeout` from now: the second payment.
    Again,
    /// [`REFUSED_DELAY`] from now: the node refused its payment.
    Refused,
}

/// The debts of one node, in three lists by when they are due.
#[derive(Clone, Debug)]
pub(crate) struct Debts {
    /// How many debts there may be.
    most: usize,
    /// Due at once.
    ready: VecDeque<Debt>,
    /// Due `node_timeout` after they were put here, so in order.
    again: VecDeque<Debt>,
    /// Due [`REFUSED_DELAY`] after they were put here, so in order.
    refused: VecDeque<Debt>,
    dropped: u64,
}

impl Debts {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            most,
            ready: VecDeque::new(),
            again: VecDeque::new(),
            refused: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Adds a debt. Returns the slot of a debt that had to make room for it.
    pub(crate) fn push(&mut self, debt: Debt, due: DebtDue) -> Option<SlotIndex> {
        let mut dropped = None;
        if self.len() >= self.most {
            self.dropped += 1;
            dropped = self.pop_any().map(|debt| debt.slot);
        }
        let queue = match due {
            DebtDue::OnceReached => &mut self.ready,
            DebtDue::Again => &mut self.again,
            DebtDue::Refused => &mut self.refused,
        };
        queue.push_back(debt);
        dropped
    }

    /// Removes and returns a debt, due or not.
    pub(crate) fn pop_any(&mut self) -> Option<Debt> {
        let queues = [&mut self.refused, &mut self.again, &mut self.ready];
        queues.into_iter().find_map(VecDeque::pop_front)
    }

    /// Removes and returns the first debt that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Debt> {
        for queue in [&mut self.again, &mut self.refused] {
            if queue.front().is_some_and(|debt| debt.due <= now) {
                return queue.pop_front();
            }
        }
        self.ready.pop_front()
    }

    /// How many debts are due by `until`.
    pub(crate) fn due_by(&self, until: Instant) -> usize {
        let waiting = self.again.iter().chain(&self.refused);
        self.ready.len() + waiting.filter(|debt| debt.due <= until).count()
    }

    /// How many debts are for keys that may still live at `now`.
    pub(crate) fn living(&self, now: Instant) -> usize {
        let all = self.ready.iter().chain(&self.again).chain(&self.refused);
        all.filter(|debt| debt.expires > now).count()
    }

    /// Whether there are debts that the client has not sent on this connection.
    pub(crate) fn is_owing(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next debt that has to wait is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let due = |queue: &VecDeque<Debt>| queue.front().map(|debt| debt.due);
        [due(&self.again), due(&self.refused)].into_iter().flatten().min()
    }

    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.again.len() + self.refused.len()
    }

    /// How many debts the client dropped for lack of room.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

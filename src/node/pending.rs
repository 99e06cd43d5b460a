//! The first-in first-out list of requests that one connection has not answered yet.
//!
//! # Invariants
//!
//! - Answer n on a connection is for request n. A reply, the push that confirms a subscription, or
//!   the end of the connection removes an entry. The end of its caller does not.

use crate::command::{ExtendStep, ReleaseStep};
use crate::slab::{BatchIndex, OpIndex, SlotIndex, WakeIndex};
use crate::time::Instant;

/// The purpose of an answer, and the slot, operation or wake that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Part of the greeting; the node reads the answer itself.
    Greeting(GreetingPart),
    /// `INFO replication`, to see whether the node has failed over and back.
    Look,
    /// The SET of an attempt.
    Set(SlotIndex),
    /// The command that stands for the SETs of several attempts.
    Batch(BatchIndex),
    /// The command that takes a fenced lock.
    FencedSet(SlotIndex),
    /// The second round of a fenced attempt.
    Raise(SlotIndex),
    /// `TIME`.
    Time,
    /// The compare-and-delete of a slot.
    Release { slot: SlotIndex, step: ReleaseStep },
    /// A compare-and-delete that the client owed; `again`: the client will send it once more.
    Debt { slot: SlotIndex, step: ReleaseStep, again: bool },
    /// The compare-and-extend of a slot. `phase` numbers it.
    Extend { slot: SlotIndex, step: ExtendStep, phase: Phase },
    /// The subscription to this client's own channel for messages.
    Subscribe,
    /// The subscription to its channel for transfers, or the end of that subscription.
    SubscribeTransfers,
    /// The script that hands a slot's lock over.
    Transfer(SlotIndex),
    /// A question of a waiting acquisition; the phase shows whether that wait has ended since.
    Wait { op: OpIndex, part: WaitPart, phase: Phase },
    /// A message that wakes a waiter.
    Wake(WakeIndex),
    /// Another message; its answer changes nothing.
    Tell,
    /// Part `part` of a query; `phase` is the low bits of the operation's generation.
    Query { op: OpIndex, part: u8, phase: Phase },
}

impl Request {
    /// The slot that this entry names until the answer comes.
    #[inline]
    pub(crate) const fn slot(self) -> Option<SlotIndex> {
        match self {
            Self::Set(slot)
            | Self::FencedSet(slot)
            | Self::Raise(slot)
            | Self::Transfer(slot)
            | Self::Release { slot, .. }
            | Self::Debt { slot, .. }
            | Self::Extend { slot, .. } => Some(slot),
            Self::Greeting(_)
            | Self::Look
            | Self::Batch(_)
            | Self::Time
            | Self::Subscribe
            | Self::SubscribeTransfers
            | Self::Wait { .. }
            | Self::Wake(_)
            | Self::Tell
            | Self::Query { .. } => None,
        }
    }
}

/// A count that tells a late answer from a current one. Two bytes, so that a request takes eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Phase([u8; 2]);

impl Phase {
    /// The low bits of `count`.
    #[inline]
    pub(crate) const fn of(count: u32) -> Self {
        let [low, high, ..] = count.to_le_bytes();
        Self([low, high])
    }

    /// The next count.
    #[inline]
    pub(crate) const fn next(self) -> Self {
        Self(u16::from_le_bytes(self.0).wrapping_add(1).to_le_bytes())
    }
}

/// The questions of a waiting acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitPart {
    /// `GET`: the holder's token.
    Holder,
    /// `PUBLISH`: how many clients received it.
    Announced,
    /// The script that asks for the holder and the time left, and tells that holder's client.
    Introduced,
}

/// The commands of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GreetingPart {
    Hello,
    Auth,
    SetName,
    Select,
    InfoServer,
    InfoMemory,
    InfoPersistence,
    InfoReplication,
    /// A command that shows whether the user may release by the next step.
    Prove,
    /// `SET` of the marker: since when clients have met this master as a master.
    Mark,
    /// `PTTL` of the marker.
    MarkAge,
    /// `CONFIG GET` of how many replicas a write needs.
    Floor,
}

/// One awaited answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    /// When the client wrote the request, on the attended clock.
    pub(crate) written_at: Instant,
}

const _: () = assert!(size_of::<Pending>() == 16, "four awaited answers fill a cache line");

/// The awaited answers of one connection, in a ring whose length is a power of two.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingQueue {
    ring: Box<[Pending]>,
    /// How many entries have left and entered this ring; the low bits are places in it.
    head: usize,
    tail: usize,
}

/// Places of a new ring.
const RING_LEN_MIN: usize = 64;

impl PendingQueue {
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    #[inline]
    const fn place(&self, count: usize) -> usize {
        count & self.ring.len().wrapping_sub(1)
    }

    #[inline]
    pub(crate) fn push_back(&mut self, pending: Pending) {
        if self.len() == self.ring.len() {
            self.grow();
        }
        let place = self.place(self.tail);
        if let Some(free) = self.ring.get_mut(place) {
            *free = pending;
            self.tail = self.tail.wrapping_add(1);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let vacant = Pending { request: Request::Tell, written_at: Instant::MAX };
        let mut ring = vec![vacant; (self.ring.len() * 2).max(RING_LEN_MIN)].into_boxed_slice();
        for (free, pending) in ring.iter_mut().zip(self.iter()) {
            *free = *pending;
        }
        (self.head, self.tail) = (0, self.len());
        self.ring = ring;
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Pending> {
        if self.head == self.tail {
            return None;
        }
        self.ring.get(self.place(self.head))
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<Pending> {
        let front = self.front().copied()?;
        self.drop_front();
        Some(front)
    }

    /// Removes the entry that [`front`](Self::front) has just shown.
    #[inline]
    pub(crate) const fn drop_front(&mut self) {
        self.head = self.head.wrapping_add(1);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pending> {
        let nth = |nth| self.ring.get(self.place(self.head.wrapping_add(nth)));
        (0..self.len()).filter_map(nth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Index;

    fn pending(place: u32) -> Pending {
        let slot = SlotIndex::at(place as usize).unwrap();
        Pending { request: Request::Set(slot), written_at: Instant::default() }
    }

    fn place(pending: &Pending) -> u32 {
        u32::try_from(pending.request.slot().unwrap().place()).unwrap()
    }

    #[test]
    fn a_ring_keeps_its_order_while_it_grows_and_turns() {
        let mut queue = PendingQueue::default();
        let (mut pushed, mut popped) = (0, 0);
        for step in 0..2_000_u32 {
            for _ in 0..step % 7 {
                queue.push_back(pending(pushed));
                pushed += 1;
            }
            for _ in 0..step % 5 {
                if let Some(front) = queue.pop_front() {
                    assert_eq!(place(&front), popped);
                    popped += 1;
                }
            }
            assert_eq!(queue.len(), (pushed - popped) as usize);
            assert_eq!(queue.front().map(place), (popped < pushed).then_some(popped));
        }
        assert!(queue.len() > RING_LEN_MIN, "it grew");
        assert!(queue.iter().map(place).eq(popped..pushed));
    }
}

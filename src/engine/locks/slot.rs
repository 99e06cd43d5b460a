//! The slots: one token each, of an attempt, an offer or a named lock, until its last answer.
//!
//! # Invariants
//!
//! - A slot is freed only when no pending answer, debt, offer, operation or lease names it. So a late
//!   answer always finds the attempt to which it belongs.
//! - Handles carry a generation, so a handle to a freed slot finds nothing.

use super::fences::Fences;
use super::steps::{TokenInput, TokenState};
use crate::key::{self, Key};
use crate::node::Phase;
use crate::quorum::NodeMask;
#[cfg(test)]
use crate::slab::Index;
use crate::slab::{OpIndex, Slab, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;

/// A lease of an [`Engine`](crate::engine::Engine): its slot and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId {
    pub(in crate::engine) slot: SlotIndex,
    pub(in crate::engine) generation: u32,
}

#[cfg(test)]
impl LeaseId {
    /// A lease of no engine.
    pub(crate) fn nth(place: usize) -> Self {
        let slot = SlotIndex::at(place).expect("a small number");
        Self { slot, generation: 0 }
    }
}

#[derive(Clone, Debug)]
pub(in crate::engine) struct Slot {
    pub(in crate::engine) generation: u32,
    /// The operation under way, or not yet reported.
    pub(in crate::engine) op: Option<OpIndex>,
    /// A number of the caller's: the place of the lease in its pool.
    pub(in crate::engine) word: u32,
    pub(in crate::engine) ttl_ms: u32,
    /// The longest TTL that any command for this slot carried.
    pub(in crate::engine) ttl_longest_ms: u32,
    /// The nodes that granted, less those that have forgotten it since. A node that granted and does
    /// not hold the key was told to delete it.
    pub(in crate::engine) granted: NodeMask,
    /// The nodes that may hold the key.
    pub(in crate::engine) holds: NodeMask,
    /// The nodes whose SET has no answer. A lost connection does not remove its node: the SET may
    /// still run.
    pub(in crate::engine) unanswered: NodeMask,
    /// The nodes that may still run a late command for the token: an extension whose connection was
    /// lost, or the delete of an ended offer.
    pub(in crate::engine) tainted: NodeMask,
    /// When the lease began, to limit how long it is held in all.
    pub(in crate::engine) began: Instant,
    /// The deadline. After the release: when a key whose SET was answered is certainly gone.
    pub(in crate::engine) ends: Instant,
    pub(in crate::engine) key: Key,
    pub(in crate::engine) token: TokenBytes,
    /// Pending answers, debts and offers that name this slot.
    pub(in crate::engine) refs: u16,
    pub(in crate::engine) extensions: u16,
    /// Counts extensions and the release, to tell a late answer from a current one.
    pub(in crate::engine) phase: Phase,
    state: TokenState,
    marks: u8,
}

/// What may be true of a slot.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Mark(u8);

impl Mark {
    /// The engine looks after the lease: see [`care`](crate::engine::care).
    pub(in crate::engine) const KEPT: Self = Self(1);
    /// In the list of changes, for the lease that the slot has when the caller reads the list. The
    /// list holds each slot once, so even unread it stays short.
    pub(in crate::engine) const CHANGED: Self = Self(2);
    /// The attempt, or the lease, has an entry in [`Fences`].
    pub(in crate::engine) const FENCED: Self = Self(4);
    /// A call has offered the token: holders hand locks over to no other.
    pub(in crate::engine) const OFFERED: Self = Self(8);
    /// A late command at a tainted node could take the key, or shorten its life.
    pub(in crate::engine) const DOUBTED: Self = Self(16);
    /// Another client won the lease, or says that it deleted it. This client does not know what
    /// others told the nodes.
    pub(in crate::engine) const SHARED: Self = Self(32);
    /// The lists before the last change decide: no extension has carried the lease on since.
    pub(in crate::engine) const FORMER: Self = Self(64);
}

const _: () = assert!(size_of::<Slot>() == 128, "a million leases have a slot each");

/// All slots of an engine.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Slots {
    pub(super) slots: Slab<SlotIndex, Slot>,
    pub(in crate::engine) fences: Fences,
}

impl Slots {
    /// Takes a slot for a token whose life begins with `input`.
    #[inline(always)]
    pub(in crate::engine) fn open(
        &mut self,
        key: &[u8],
        token: TokenBytes,
        input: TokenInput,
    ) -> SlotIndex {
        let index = self.slots.take(Slot::empty).expect("memory ends before indices do");
        let slot = self.at_mut(index);
        slot.step(input);
        slot.op = None;
        // The list of changes may still name the slot.
        slot.marks &= Mark::CHANGED.0;
        slot.refs = 0;
        slot.phase = Phase::default();
        slot.extensions = 0;
        key::replace(&mut slot.key, key);
        slot.token = token;
        slot.granted = NodeMask::EMPTY;
        slot.holds = NodeMask::EMPTY;
        slot.unanswered = NodeMask::EMPTY;
        slot.tainted = NodeMask::EMPTY;
        index
    }

    #[inline]
    pub(in crate::engine) fn at(&self, index: SlotIndex) -> &Slot {
        self.slots.at(index)
    }

    #[inline]
    pub(in crate::engine) fn at_mut(&mut self, index: SlotIndex) -> &mut Slot {
        self.slots.at_mut(index)
    }

    pub(in crate::engine) fn get(&self, index: SlotIndex) -> Option<&Slot> {
        self.slots.get(index)
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (SlotIndex, &Slot)> {
        self.slots.iter()
    }

    /// The place that the next attempt's slot will have.
    pub(in crate::engine) fn next(&self) -> u32 {
        u32::try_from(self.slots.next()).unwrap_or(u32::MAX)
    }

    /// The slot of a lease that is still held.
    pub(in crate::engine) fn held(&self, lease: LeaseId) -> Option<&Slot> {
        self.slots
            .get(lease.slot)
            .filter(|slot| slot.generation == lease.generation && slot.state == TokenState::Held)
    }

    pub(in crate::engine) fn lease_id(&self, index: SlotIndex) -> LeaseId {
        LeaseId { slot: index, generation: self.at(index).generation }
    }

    /// An answer or debt no longer names the slot.
    #[inline]
    pub(in crate::engine) fn unref(&mut self, index: SlotIndex) {
        let slot = self.at_mut(index);
        debug_assert!(slot.refs > 0, "{index:?} was named more often than counted");
        slot.refs = slot.refs.saturating_sub(1);
        self.free_if_unnamed(index);
    }

    /// Frees the slot if nothing names it any more.
    #[inline]
    pub(in crate::engine) fn free_if_unnamed(&mut self, index: SlotIndex) {
        let slot = self.at_mut(index);
        if matches!(slot.state, TokenState::Released | TokenState::GivenAway)
            && slot.refs == 0
            && slot.op.is_none()
        {
            slot.step(TokenInput::Forget);
            slot.generation = slot.generation.wrapping_add(1);
            if slot.has(Mark::FENCED) {
                self.fences.remove(index);
            }
            self.slots.give_back(index);
        }
    }

    /// How many slots are in use.
    pub(in crate::engine) fn in_use(&self) -> usize {
        self.slots.in_use()
    }
}

impl Slot {
    #[inline]
    pub(in crate::engine) const fn state(&self) -> TokenState {
        self.state
    }

    /// An input to the token: see the [table](super::steps).
    #[inline(always)]
    pub(in crate::engine) fn step(&mut self, input: TokenInput) {
        let next = self.state.next(input);
        debug_assert!(next.is_some(), "{input:?} of a token that is {:?}", self.state);
        self.state = next.unwrap_or(self.state);
    }

    #[inline]
    pub(in crate::engine) const fn has(&self, mark: Mark) -> bool {
        self.marks & mark.0 != 0
    }

    #[inline]
    pub(in crate::engine) const fn set(&mut self, mark: Mark, is_so: bool) {
        self.marks = if is_so { self.marks | mark.0 } else { self.marks & !mark.0 };
    }

    /// Marks the slot as listed. Returns whether it was not listed before.
    #[inline]
    pub(in crate::engine) const fn enter(&mut self, list: Mark) -> bool {
        let is_new = !self.has(list);
        self.set(list, true);
        is_new
    }

    /// The nodes where a late command could do harm. A late extension does none if it is as long as
    /// those behind it: it finds the key with the token and extends it, or does nothing.
    pub(in crate::engine) const fn doubted(&self) -> NodeMask {
        if self.has(Mark::DOUBTED) { self.tainted } else { NodeMask::EMPTY }
    }

    /// The nodes that hold the key, as far as the client knows.
    pub(in crate::engine) const fn votes(&self) -> NodeMask {
        self.granted.intersection(self.holds)
    }

    fn empty() -> Self {
        Self {
            generation: 0,
            refs: 0,
            op: None,
            word: 0,
            state: TokenState::Free,
            marks: 0,
            phase: Phase::default(),
            key: Key::new(),
            token: TokenBytes::Drawn([0; 20]),
            ttl_ms: 0,
            ttl_longest_ms: 0,
            began: Instant::default(),
            extensions: 0,
            ends: Instant::default(),
            granted: NodeMask::EMPTY,
            holds: NodeMask::EMPTY,
            unanswered: NodeMask::EMPTY,
            tainted: NodeMask::EMPTY,
        }
    }
}

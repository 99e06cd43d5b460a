//! The slots, and the table of a token's states and inputs. A slot has the token of an attempt, an
//! offer or a named lock until its last answer.
//!
//! # Invariants
//!
//! - A slot is freed only when no pending answer, debt, offer, operation or lease names it. So a late
//!   answer always finds the attempt to which it belongs.
//! - Handles carry a generation, so a handle to a freed slot finds nothing.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::fences::Fences;
use crate::beside::Beside;
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

/// The state of a token for its client. States that the code tests together are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum TokenState {
    Free,
    /// Offered by a waiting call: a holder may hand its lock over to it.
    Offered,
    /// An attempt that has asked one node, and asks the others once that node grants.
    Gated,
    /// An attempt whose votes are out.
    Asking,
    /// A quorum granted, and the caller has not taken its lease.
    Won,
    /// A lease.
    Held,
    /// A failed attempt, whose keys are deleted or being deleted. Its call tries again, or ends.
    Between,
    /// No longer a lock: its keys are deleted or being deleted.
    Released,
    /// Another client may have the lock: this client writes no more commands that change its keys.
    GivenAway,
}

/// An event in the life of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum TokenInput {
    /// An attempt draws the token.
    Begin,
    /// A waiting call offers the token.
    Offer,
    /// A caller names the token, to adopt or to unlock the lock.
    Name,
    /// The attempt asks one node before the others.
    Gate,
    /// That node has granted.
    Open,
    /// A quorum has granted, or has handed the lock over.
    Win,
    /// The caller takes its lease.
    Take,
    /// The attempt gives no lease, and its call has no result yet.
    Fail,
    /// The call makes its next attempt, or ends.
    Leave,
    Release,
    GiveAway,
    /// No answer, debt, offer, operation or lease names the token any more.
    Forget,
}

impl TokenState {
    /// The table: for each input, the states in which it may come, and the next state. `None`: this
    /// cannot happen to the token. Inputs are constants, so each step is a comparison.
    #[inline(always)]
    pub(in crate::engine) const fn next(self, input: TokenInput) -> Option<Self> {
        use TokenInput as I;
        let (may_come, next) = match input {
            I::Begin => (matches!(self, Self::Free), Self::Asking),
            I::Offer => (matches!(self, Self::Free), Self::Offered),
            I::Name => (matches!(self, Self::Free), Self::Held),
            I::Gate => (matches!(self, Self::Asking), Self::Gated),
            I::Open => (matches!(self, Self::Gated), Self::Asking),
            I::Win => (matches!(self, Self::Asking | Self::Offered), Self::Won),
            I::Take => (matches!(self, Self::Won), Self::Held),
            I::Fail => (self.is_attempt() || matches!(self, Self::Won), Self::Between),
            I::Leave => (matches!(self, Self::Between), Self::Released),
            I::Release => (self.is_alive(), Self::Released),
            I::GiveAway => (matches!(self, Self::Held), Self::GivenAway),
            I::Forget => (matches!(self, Self::Released | Self::GivenAway), Self::Free),
        };
        if may_come { Some(next) } else { None }
    }

    /// Whether the token is an attempt that is not decided.
    pub(in crate::engine) const fn is_attempt(self) -> bool {
        matches!(self, Self::Gated | Self::Asking)
    }

    /// Whether the token is a lock of this client, or may become one by an attempt.
    pub(in crate::engine) const fn is_lock(self) -> bool {
        matches!(self, Self::Gated | Self::Asking | Self::Won | Self::Held)
    }

    /// Whether its keys may be on nodes, and the client has not released the token.
    pub(in crate::engine) const fn is_alive(self) -> bool {
        self.is_lock() || matches!(self, Self::Offered)
    }

    /// Whether the client has the lock, may get it, or is releasing it.
    pub(in crate::engine) const fn is_in_hand(self) -> bool {
        !matches!(self, Self::Free | Self::GivenAway)
    }

    /// Whether its keys are deleted, or being deleted.
    pub(in crate::engine) const fn is_released(self) -> bool {
        matches!(self, Self::Between | Self::Released)
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
    /// The nodes that granted the key and have not forgotten it since. If `holds` lacks such a
    /// node, a client has deleted the key there.
    pub(in crate::engine) granted: NodeMask,
    /// The nodes that may hold the key.
    pub(in crate::engine) holds: NodeMask,
    /// The nodes that may still run a SET, or may have run a transfer unheard. A lost connection
    /// does not remove its node.
    pub(in crate::engine) unanswered: NodeMask,
    /// The nodes that may still run a late command for the token: the delete of an offer, or an
    /// extension or its SET on a lost connection.
    pub(in crate::engine) tainted: NodeMask,
    /// When the lease began, to limit how long it is held in all.
    pub(in crate::engine) began: Instant,
    /// The deadline. After the release: when the TTL of a key with an answered SET ends; drift
    /// comes on top.
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
    /// The engine looks after the lease, which has an entry in `Keeps`.
    pub(in crate::engine) const KEPT: Self = Self(1);
    /// The slot is in the list of changes. The change counts for the lease that the slot has when
    /// the caller reads the list. The list holds each slot once, so even unread it stays short.
    pub(in crate::engine) const CHANGED: Self = Self(2);
    /// The attempt, or the lease, has an entry in [`Fences`].
    pub(in crate::engine) const FENCED: Self = Self(4);
    /// A call has offered the token. Holders hand locks over only to such tokens.
    pub(in crate::engine) const OFFERED: Self = Self(8);
    /// A late command at a tainted node could take the key, or shorten its life.
    pub(in crate::engine) const DOUBTED: Self = Self(16);
    /// Another client won the lease, or says that it has deleted the lease's keys. This client does
    /// not know what others told the nodes.
    pub(in crate::engine) const SHARED: Self = Self(32);
    /// The lists of nodes before the last change still decide: no extension has won by the new
    /// lists.
    pub(in crate::engine) const FORMER: Self = Self(64);
    /// A delete of the offer was lost with its connection. The node may run it at any time.
    pub(in crate::engine) const DELETE_LOST: Self = Self(128);
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

    pub(in crate::engine) fn in_use(&self) -> usize {
        self.slots.in_use()
    }
}

impl Slot {
    #[inline]
    pub(in crate::engine) const fn state(&self) -> TokenState {
        self.state
    }

    /// An input to the token: see the [table](TokenState::next).
    #[inline(always)]
    pub(in crate::engine) fn step(&mut self, input: TokenInput) {
        let next = self.state.next(input);
        debug_assert!(next.is_some(), "{input:?} of a token that is {:?}", self.state);
        self.state = next.unwrap_or(self.state);
    }

    /// Whether an extension has begun. Its SETs give the token to nodes again. A node may run such
    /// a SET late, and sends no message about it.
    #[inline]
    pub(in crate::engine) const fn is_extended(&self) -> bool {
        self.extensions > 0
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

    /// The nodes where a late command could do harm. A late extension does no harm if no later
    /// extension has a longer TTL: it only extends a key that has the token.
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

/// All offers of an engine. Each counts as a reference to its slot.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Offers {
    /// The offers that have not ended, each with the call that would take a lock over by it.
    pub(in crate::engine) open: Beside<SlotIndex, OpIndex>,
    /// The offers that have ended, in the order of their ends.
    pub(super) past: VecDeque<Past>,
}

/// An offer that has ended.
#[derive(Clone, Debug)]
pub(super) struct Past {
    pub(super) slot: SlotIndex,
    /// Until when the client remembers it.
    pub(super) until: Instant,
    /// The token that the key had before a holder last handed it over to the offer.
    pub(super) from: Option<[u8; 20]>,
}

impl Offers {
    /// The open offers of one call, the oldest first.
    pub(super) fn of(&self, op: OpIndex) -> SmallVec<[SlotIndex; 4]> {
        self.open.iter().filter(|(_, of)| **of == op).map(|(slot, _)| slot).collect()
    }

    /// All offers, even those that have ended.
    pub(super) fn all(&self) -> SmallVec<[SlotIndex; 8]> {
        let past = self.past.iter().map(|past| past.slot);
        self.open.iter().map(|(slot, _)| slot).chain(past).collect()
    }
}

/// A lock that the client has left while nodes might still run an extension of it.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Unsettled {
    pub(super) key: Key,
    pub(super) token: TokenBytes,
    pub(super) ttl_ms: u32,
    /// The nodes whose connection ended before they answered.
    pub(in crate::engine) nodes: NodeMask,
    /// The lease whose extensions the nodes may still have to answer.
    pub(super) lease: LeaseId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_over_never_comes_back_before_it_is_forgotten() {
        let all = [
            TokenInput::Begin,
            TokenInput::Offer,
            TokenInput::Name,
            TokenInput::Gate,
            TokenInput::Open,
            TokenInput::Win,
            TokenInput::Take,
            TokenInput::Fail,
            TokenInput::Leave,
            TokenInput::Release,
            TokenInput::GiveAway,
            TokenInput::Forget,
        ];
        for over in [TokenState::Between, TokenState::Released, TokenState::GivenAway] {
            let next: Vec<_> = all.iter().filter_map(|&input| over.next(input)).collect();
            let expected =
                if over == TokenState::Between { TokenState::Released } else { TokenState::Free };
            assert_eq!(next, [expected], "{over:?}");
        }
    }
}

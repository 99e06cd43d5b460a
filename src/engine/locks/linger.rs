//! Leases that linger: their callers have unlocked them, and the nodes do not know yet. The next call
//! of this client for the key has its lock at once.
//!
//! # Invariants
//!
//! - A lease lingers only while nobody waits for it, until half of its TTL is over, no longer than its
//!   caller allowed behind the last SET or extension that a quorum answered, and for so many turns.
//! - The handle of a caller ends with its unlock: the slot's generation moves on when the lease begins
//!   to linger.
//! - A token that a user has seen, and a fence, belong to one holder: such a lease does not linger.

use std::time::Duration;

use super::lingers::Linger;
use super::observe::Happening;
use super::op::{OpKind, Outcome};
use super::slot::{LeaseId, SlotState};
use super::state::{Done, Locks};
use super::timers::Timer;
use crate::error::{Cause, LockError, Unlocked};
use crate::key::hash;
use crate::node::Node;
use crate::options::LockOptions;
use crate::quorum::NODES_MAX;
use crate::round::Round;
use crate::rules;
use crate::slab::{Index as _, OpIndex, SlotIndex};
use crate::time::Instant;

/// How many turns one SET or extension is good for: then clients of other kinds, who cannot ask for
/// the lock, have a moment in which it is free.
const TURNS_MAX: u8 = 64;

/// A lock is taken again without a look at the sockets only if they were read this recently: whoever
/// waits must be heard.
const LOOKED_NANOS: u64 = 1_000_000;

impl Locks {
    /// Refuses a lock that is to linger and cannot.
    #[cold]
    pub(in crate::engine) fn check_linger(&self, options: &LockOptions) -> Result<(), LockError> {
        let settings = &self.settings;
        let has_limits = settings.max_extensions < u32::MAX || settings.max_hold < Duration::MAX;
        options.check_linger(settings.direct_wake, has_limits)
    }

    /// The lease that was just won may linger.
    #[cold]
    pub(super) fn note_linger(&mut self, slot_index: SlotIndex, limit_ms: u32) {
        let place = slot_index.place();
        if self.lingers.entries.len() <= place {
            self.lingers.entries.resize_with(place + 1, || None);
        }
        let Some(entry) = self.lingers.entries.get_mut(place) else { return };
        let limit = Duration::from_millis(limit_ms.into());
        *entry = Some(Linger { limit, turns: 0, ends: Instant::default(), due: None });
        self.slots.at_mut(slot_index).set_lingers(true);
    }

    /// The lease is released or given away.
    #[cold]
    pub(super) fn close_linger(&mut self, slot_index: SlotIndex) {
        let slot = self.slots.at_mut(slot_index);
        slot.set_lingering(false);
        slot.set_lingers(false);
        self.lingers.forget(hash(slot.key.as_slice()), slot_index);
        let entry = self.lingers.entries.get_mut(slot_index.place()).and_then(Option::take);
        if entry.is_some_and(|linger| linger.due.is_some()) {
            self.timers.remove(Timer::Linger(slot_index));
        }
    }

    /// When the SET or extension began from which a lease's deadline counts, and its validity.
    pub(in crate::engine) fn answered_at(&self, ends: Instant, ttl_ms: u32) -> (Instant, Duration) {
        let validity = Instant::default().until(self.deadline_from(Instant::default(), ttl_ms));
        (ends.minus_nanos(u64::try_from(validity.as_nanos()).unwrap_or(0)), validity)
    }

    /// Until when the lease may linger.
    fn lingers_until(&self, slot_index: SlotIndex) -> Option<Instant> {
        let (slot, linger) = (self.slots.at(slot_index), self.lingers.get(slot_index)?);
        let (answered, validity) = self.answered_at(slot.ends, slot.ttl_ms);
        Some(rules::linger_ends(answered + linger.limit.min(validity / 2)))
    }

    /// Whether the lease may linger from now on, as far as the locks know.
    fn may_linger(&mut self, slot_index: SlotIndex) -> bool {
        let slot = self.slots.at(slot_index);
        let (ends, is_idle) = (slot.ends, slot.op.is_none());
        let is_held = slot.holds.has_at_least(self.settings.quorum);
        let is_reached = !self.nodes.is_closing() && self.nodes.iter().any(Node::has_channel);
        let Some(linger) = self.lingers.get_mut(slot_index) else { return false };
        if linger.ends != ends {
            // A quorum has answered a SET or an extension since.
            (linger.ends, linger.turns) = (ends, 0);
        }
        let has_turns = linger.turns < TURNS_MAX && !linger.limit.is_zero();
        is_idle && is_held && is_reached && has_turns
    }

    /// Its caller unlocks the lease, and nobody waits for it. Returns whether it lingers from now
    /// on: the handle is dead then.
    pub(in crate::engine) fn begin_linger(&mut self, slot_index: SlotIndex, now: Instant) -> bool {
        let until = self.lingers_until(slot_index).filter(|until| now < *until);
        let Some(until) = until.filter(|_| self.may_linger(slot_index)) else { return false };
        if !self.lingers.keep(hash(self.slots.at(slot_index).key.as_slice()), slot_index) {
            return false;
        }
        self.set_linger_timer(slot_index, until);
        if self.slots.at(slot_index).is_kept() {
            self.end_keeping(slot_index);
        }
        let slot = self.slots.at_mut(slot_index);
        slot.set_lingering(true);
        slot.generation = rules::generation_of_next(slot.generation);
        self.observe(Happening::Lingers { slot: slot_index });
        true
    }

    /// One that is due then already stays as it is, from turn to turn.
    fn set_linger_timer(&mut self, slot_index: SlotIndex, at: Instant) {
        let Some(linger) = self.lingers.get_mut(slot_index) else { return };
        if linger.due.replace(at) != Some(at) {
            self.timers.set(Timer::Linger(slot_index), at);
        }
    }

    /// The lease that lingers for the caller's key.
    pub(in crate::engine) fn lingering(&self, key: &[u8]) -> Option<SlotIndex> {
        let key = self.prefix.wire_key(key).ok()?;
        let slot_index = self.lingers.of(hash(&key))?;
        let slot = self.slots.at(slot_index);
        (slot.is_lingering() && slot.key.as_slice() == &*key).then_some(slot_index)
    }

    /// Whether the sockets were read so lately that a lease may be taken again.
    #[inline]
    pub(in crate::engine) fn has_looked(&self, now: Instant) -> bool {
        now.nanos_since(self.last_pass) <= LOOKED_NANOS
    }

    /// Whether a call may take the lease that lingers.
    pub(in crate::engine) fn may_retake(
        &self,
        slot_index: SlotIndex,
        options: &LockOptions,
        ttl_ms: u32,
        now: Instant,
    ) -> bool {
        let slot = self.slots.at(slot_index);
        let is_valid = self.lingers_until(slot_index).is_some_and(|until| now < until);
        let is_enough = rules::lasts_for_call(now + options.min_validity <= slot.ends);
        let is_suited = slot.ttl_ms == ttl_ms && !options.is_fenced && !options.is_announced;
        is_valid && is_enough && is_suited && self.has_looked(now)
    }

    /// A call takes the lease that lingers.
    pub(in crate::engine) fn retake(
        &mut self,
        index: OpIndex,
        slot_index: SlotIndex,
        limit_ms: u32,
    ) {
        if let Some(linger) = self.lingers.get_mut(slot_index) {
            linger.limit = Duration::from_millis(limit_ms.into());
            linger.turns += 1;
        }
        let slot = self.slots.at_mut(slot_index);
        slot.set_lingering(false);
        (slot.state, slot.op) = (SlotState::Acquiring, Some(index));
        slot.set_retaken();
        let granted = slot.granted;
        let op = self.ops.at_mut(index);
        op.set_slot(slot_index);
        op.round = Round::of(granted);
        op.causes = [Cause::None; NODES_MAX];
        op.outcome = Outcome::Won;
        self.observe(Happening::Retaken { op: index });
        self.done.push_back(Done::Op(index));
    }

    /// The timer of a lease that may linger is due. Returns the lease if its time is over.
    pub(in crate::engine) fn linger_due(
        &mut self,
        slot_index: SlotIndex,
        now: Instant,
    ) -> Option<LeaseId> {
        self.lingers.get_mut(slot_index)?.due = None;
        if !self.slots.at(slot_index).is_lingering() {
            return None;
        }
        let until = self.lingers_until(slot_index).filter(|until| now < *until);
        if let Some(until) = until {
            self.set_linger_timer(slot_index, until);
            return None;
        }
        Some(self.slots.lease_id(slot_index))
    }

    /// An unlock is reported whose lease lingers.
    pub(in crate::engine) fn report_lingers(&mut self, slot_index: SlotIndex) -> Option<OpIndex> {
        let index = self.ops.open(OpKind::Release)?;
        self.ops.at_mut(index).set_slot(slot_index);
        self.finish(index, Outcome::Unlocked(Ok(Unlocked::Released)));
        Some(index)
    }
}

//! Fenced attempts: locks whose leases have a number above that of every earlier lease.
//!
//! # Invariants
//!
//! - The client never sends the command that takes a fenced lock twice: an unclear answer is an
//!   unknown vote, and the client releases the key.
//! - The client asks only nodes whose clock agrees with its own: one clock years ahead would raise
//!   the counter for all clients.

use super::core::Locks;
use super::fences::{FenceProgress, Fencing};
use super::slot::{LeaseId, Mark, Slots};
use crate::command::{append_fenced_set, append_raise, append_time};
use crate::engine::happenings::Happening;
use crate::error::{Cause, LockError};
use crate::node::{Now, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::{Instant, WallClock};

use std::time::Duration;

/// How long a node's reading of its clock is good for.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// An hour, the greatest `max_clock_skew`.
const AHEAD_MAX_US: u64 = 3_600_000_000;

impl Locks {
    /// Whether the configuration allows fences.
    #[cold]
    pub(in crate::engine) fn check_fences(&self) -> Result<(), LockError> {
        match self.settings.no_fences {
            Some(why) => Err(LockError::NoFences { why }),
            None => Ok(()),
        }
    }

    /// A fenced attempt begins and chooses its number. The client asks each voter for its clock,
    /// unless a recent reading of that clock agrees with the client's.
    #[cold]
    pub(super) fn propose_fence(&mut self, slot_index: SlotIndex, now: Now) {
        let wall = self.wall_clock(now.real);
        let Slots { slots, fences } = &mut self.slots;
        let number = fences.propose(slots.at(slot_index).key.as_slice(), wall, now.real);
        fences.put(slot_index, Fencing::propose(number));
        for id in self.nodes.voters() {
            let clock = self.nodes.at(id).clock;
            let is_old = clock.is_none_or(|clock| clock.read_at + CLOCK_CHECK_INTERVAL <= now.real);
            // A reading that looks off may have been read late, or the clock may have been set
            // since.
            if is_old || !self.does_clock_agree(id) {
                self.scratch.clear();
                append_time(&mut self.scratch);
                if self.write(id, Request::Time, now) {
                    self.nodes.at_mut(id).asked_time(now.real);
                }
            }
        }
    }

    /// Without a wall clock the number grows only by one, and no node's clock agrees.
    pub(super) fn wall_clock(&self, now: Instant) -> WallClock {
        self.wall.unwrap_or(WallClock { read_at: now, micros: 0, error: 0 })
    }

    /// The nodes that may vote for a fence.
    #[cold]
    pub(super) fn voters_by_clock(&self) -> NodeMask {
        self.nodes.voters().into_iter().filter(|&id| self.does_clock_agree(id)).collect()
    }

    /// Whether the node's clock and the client's are near enough to each other for fences.
    pub(super) fn does_clock_agree(&self, id: NodeId) -> bool {
        let clocks = self.wall.zip(self.nodes.at(id).clock);
        let skew = clocks.map(|(wall, clock)| wall.skew(clock));
        rules::may_propose(skew.is_some_and(|skew| skew <= self.settings.max_clock_skew_us))
    }

    #[cold]
    pub(super) fn encode_fenced_set(&mut self, slot_index: SlotIndex) {
        let slot = self.slots.at(slot_index);
        let number = self.slots.fences.of(slot_index).map_or(0, Fencing::proposed);
        let lasts = self.settings.fence_ttl_ms;
        self.scratch.clear();
        append_fenced_set(&mut self.scratch, &slot.key, &slot.token, slot.ttl_ms, number, lasts);
    }

    /// A quorum granted. Returns whether the attempt is won, because a quorum accepted one number;
    /// `None` while that is open. A second round may follow.
    #[cold]
    #[must_use]
    pub(super) fn decide_fence(
        &mut self,
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) -> Option<bool> {
        let round = self.ops.at(index).round;
        let unheard = round.open().union(round.awaited);
        let lists = self.settings.electorate_of(self.slots.at(slot_index));
        let electorate = rules::lists_of_fence(*lists, lists.first_alone());
        let fencing = self.slots.fences.of_mut(slot_index)?;
        match fencing.judge(&electorate, unheard) {
            FenceProgress::Fenced => {
                // A raised number may be ahead of the clock: the next one must be above it.
                if let Some(fence) = fencing.fence().filter(|_| rules::is_own_fence_seen(true)) {
                    self.see_fence(slot_index, fence, now);
                }
                Some(true)
            }
            FenceProgress::Open => None,
            FenceProgress::Raise(number) => {
                fencing.begin_raise(number);
                self.observe(Happening::SecondRound);
                for id in round.granted {
                    self.send_raise(id, slot_index, now);
                }
                self.begin_round(index, now);
                // The call may end within the second round.
                self.end_with_call(index);
                // The nodes may have had no room for the commands.
                self.decide_fence(index, slot_index, now)
            }
            FenceProgress::Lost => {
                // A grant without a fence does not count: the ballot gives its node the cause
                // `FenceRefused`.
                for id in round.granted {
                    self.ops.at_mut(index).round.withdraw(id);
                    self.ops.at_mut(index).blame(id, Cause::FenceRefused);
                }
                Some(false)
            }
        }
    }

    /// Sends the number of the second round, if there is one, to a node that granted.
    pub(super) fn send_raise(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        let raise = self.slots.fences.of(slot_index).and_then(|fencing| fencing.raise);
        let Some(number) = raise.map(|raise| raise.number) else { return };
        // The node may have lost its vote since it granted.
        if !self.nodes.voters().contains(id) {
            return;
        }
        let slot = self.slots.at(slot_index);
        self.scratch.clear();
        let lasts = self.settings.fence_ttl_ms;
        append_raise(&mut self.scratch, &slot.key, &slot.token, number, lasts);
        if self.write(id, Request::Raise(slot_index), now)
            && let Some(fencing) = self.slots.fences.of_mut(slot_index)
        {
            fencing.ask(id);
        }
    }

    /// The client has seen a number of the slot's key.
    pub(super) fn see_fence(&mut self, slot_index: SlotIndex, number: u64, now: Now) {
        let wall = self.wall_clock(now.real);
        let Slots { slots, fences } = &mut self.slots;
        fences.see(slots.at(slot_index).key.as_slice(), number, wall, now.real);
    }

    /// Another client says which fence its lease had. A message may be forged, so it moves this
    /// client's next number no further than a clock may be ahead.
    #[cold]
    pub(in crate::engine) fn hear_of_fence(&mut self, key: &[u8], fence: u64, now: Now) {
        let wall = self.wall_clock(now.real);
        let ahead = self.settings.max_clock_skew_us.min(AHEAD_MAX_US);
        if fence <= wall.at(now.real).saturating_add(ahead) {
            self.slots.fences.see(key, fence, wall, now.real);
        }
    }

    /// The fence of a held lease.
    pub(in crate::engine) fn fence(&self, lease: LeaseId) -> Option<u64> {
        self.slots.held(lease)?;
        self.fence_of(lease.slot)
    }

    /// The fence of a lease that is held, or was held until now.
    pub(in crate::engine) fn fence_of(&self, slot_index: SlotIndex) -> Option<u64> {
        let is_fenced = self.slots.at(slot_index).has(Mark::FENCED);
        if is_fenced { self.slots.fences.of(slot_index)?.fence() } else { None }
    }
}

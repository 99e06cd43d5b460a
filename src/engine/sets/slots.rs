//! Locks that several callers may hold at once: a slot of a lock, or all of its slots.
//!
//! Each slot is a key of its own, `name:slot:0` and so on. A holder has one of them, a writer has
//! all, and before them the gate, the key `name:slot`. No holder of a single slot touches the gate.
//!
//! # Invariants
//!
//! - A call that waits holds no slot, except a writer that has the gate, or has an attempt at the
//!   gate under way. So a call that has a single slot waits for no other call, and no two writers
//!   wait for each other.

use super::core::{Member, MemberState, SetCall, Wanted};
use crate::engine::core::Engine;
use crate::engine::locks::op::{OpId, Verdict};
use crate::engine::locks::timers::Timer;
use crate::engine::wait::safety_poll;
use crate::error::LockError;
use crate::key::{self, Key};
use crate::options::LockOptions;
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;

/// How many slots a call asks for first. While half of the slots are free, nearly every call wins one
/// of these. If all of these are taken, the call asks for all others at once.
const FIRST_ASKED: usize = 8;

impl Engine {
    /// Begins a call for one slot of a lock.
    pub(super) fn acquire_slot(
        &mut self,
        name: &[u8],
        count: u8,
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        let mut keys = self.slots_of(name, count, options)?;
        // Each call begins at a random slot, and all go on in the same order.
        let drawn = self.draw_below(keys.len());
        keys.rotate_left(drawn);
        let left = self.sets.slots_left.get_mut(name).filter(|left| **left != 0);
        let has_left_first = left.is_some();
        if let Some(left) = left {
            let bit = 1 << left.trailing_zeros();
            *left &= !bit;
            let is_left = |key: &Key| key::slot_of(key).is_some_and(|slot| 1 << slot == bit);
            keys.sort_by_key(|key| !is_left(key));
        }
        let room = keys.len().min(FIRST_ASKED);
        let call = SetCall { has_left_first, ..SetCall::new(Wanted::One, keys, options.clone()) };
        self.open_set(call, room, now)
    }

    /// Begins a call for the gate and all slots of a lock.
    pub(super) fn acquire_all_slots(
        &mut self,
        name: &[u8],
        count: u8,
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        let mut keys = self.slots_of(name, count, options)?;
        keys.push(key::gate(name));
        keys.sort_unstable();
        let room = keys.len();
        self.open_set(SetCall::new(Wanted::AllBehindGate, keys, options.clone()), room, now)
    }

    fn slots_of(
        &self,
        name: &[u8],
        count: u8,
        options: &LockOptions,
    ) -> Result<Vec<Key>, LockError> {
        options.share.check(name)?;
        self.locks.prefix.check(&key::slot(name, count))?;
        Ok((0..count).map(|slot| key::slot(name, slot)).collect())
    }

    /// The first slot that is won ends the call. If all are denied, the call waits for the slot that
    /// this client left, else for a slot with split votes, else for any. It asks for others now and
    /// then.
    pub(super) fn go_on_with_one(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        if call.is_won() {
            if call.is_under_way() {
                // An attempt that has won and is not reported yet gives its slot back.
                return self.cancel_members(call, now);
            }
            return self.locks.finish(index, Verdict::Won);
        }
        if call.is_asking() {
            return;
        }
        if self.ask_by_sets_instead(index, call, now) {
            return;
        }
        self.ask_in_batch(index, call, usize::MAX, now);
        if call.is_asking() {
            return;
        }
        if self.repeat_if_split(index, call, now) {
            return;
        }
        let is_waiting = call.is_under_way();
        if !is_waiting && call.may_wait() && self.locks.ops.at(index).plan.is_patient {
            let split = call.members.iter().position(Member::is_split);
            let left = call.has_left_first.then_some(0);
            let drawn = left.or(split).unwrap_or_else(|| self.draw_below(call.members.len()));
            self.wait_for(index, call, drawn, now);
        }
        if call.is_under_way() {
            self.plan_poll(index, now);
        } else if !self.waits_for_room(index, call, now) {
            self.end_call(index, call, now);
        }
    }

    /// Each node takes the first slot that is free there. If a holder lacks votes on some nodes, the
    /// nodes grant different slots, and none has a quorum. A call that may wait then waits for one of
    /// these. A call that may not wait asks once more, in another order.
    fn repeat_if_split(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) -> bool {
        let is_split = call.members.iter().any(Member::is_split);
        let is_patient = self.locks.ops.at(index).plan.is_patient;
        if !is_split
            || is_patient
            || self.is_over(index, now)
            || std::mem::replace(&mut call.has_repeated, true)
        {
            return false;
        }
        let drawn = self.draw_below(call.members.len());
        call.members.rotate_left(drawn);
        call.forget_denials();
        self.ask_in_batch(index, call, usize::MAX, now);
        call.is_asking()
    }

    /// Plans when a call that waits for one slot asks for others.
    fn plan_poll(&mut self, index: OpIndex, now: Instant) {
        if !self.locks.ops.at(index).plan.is_woken {
            let _goes_on = self.plan_retry(index, now);
            return;
        }
        let poll = safety_poll(self.locks.round_trip());
        let at = now + poll.mul_f64(1.0 + self.locks.random_share());
        if at < self.locks.ops.at(index).plan.deadline {
            self.locks.set_timer(index, Timer::Retry, at);
        }
    }

    /// The time has come to ask for some slots other than the slot for which the call waits.
    pub(super) fn ask_for_some(&mut self, call: &mut SetCall) {
        for _ in 0..FIRST_ASKED {
            let drawn = self.draw_below(call.members.len());
            if let Some(member) = call.members.get_mut(drawn).filter(|it| it.is_denied()) {
                member.state = MemberState::Free;
            }
        }
    }

    fn draw_below(&mut self, len: usize) -> usize {
        self.locks.random.bits() as usize % len.max(1)
    }

    /// A writer that has the gate keeps all that it wins, and waits for all other slots at once.
    pub(super) fn go_on_behind_gate(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        if call.is_asking() || self.ask_by_sets_instead(index, call, now) {
            return;
        }
        let has_gate = call.members.first().is_some_and(|gate| gate.lease().is_some());
        if !has_gate {
            return self.go_back_to_gate(index, call, now);
        }
        if call.is_won() {
            return self.locks.finish(index, Verdict::Won);
        }
        if call.may_wait() && self.locks.ops.at(index).plan.is_patient {
            self.wait_for_rest(index, call, now);
        }
        let is_short = call.members.iter().any(|member| member.is_denied() || member.is_free());
        if is_short && !self.waits_for_room(index, call, now) {
            self.end_call(index, call, now);
        }
    }

    /// The gate was denied or lost: without it a writer holds no slot.
    fn go_back_to_gate(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        let is_waiting = |member: &Member| matches!(member.state, MemberState::Waiting(_));
        if call.members.first().is_some_and(is_waiting) {
            return;
        }
        self.give_back(call, rules::slots_kept_without_gate(), now);
        if call.is_under_way() {
            return self.cancel_members(call, now);
        }
        if call.may_wait() && self.locks.ops.at(index).plan.is_patient {
            self.wait_for(index, call, 0, now);
        }
        self.wait_or_end(index, call, now);
    }
}

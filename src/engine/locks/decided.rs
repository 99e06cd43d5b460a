//! The end of a call for a lock, and of its attempt, once it is decided.

use super::core::Locks;
use super::op::Verdict;
use super::slot::{TokenInput, TokenState};
use crate::engine::happenings::Happening;
use crate::slab::{OpIndex, SlotIndex};

impl Locks {
    /// The call has its lock: its slot is a lease once the caller takes it.
    #[inline(always)]
    pub(in crate::engine) fn win(&mut self, index: OpIndex, slot_index: SlotIndex) {
        self.slots.at_mut(slot_index).step(TokenInput::Win);
        self.observe(Happening::Won { op: index });
        self.finish(index, Verdict::Won);
    }

    /// The call ends without a lock.
    pub(in crate::engine) fn end_call(&mut self, index: OpIndex, outcome: Verdict) {
        let slot = self.slots.at_mut(self.ops.at(index).slot());
        if slot.state() == TokenState::Between {
            slot.step(TokenInput::Leave);
        }
        self.finish(index, outcome);
    }

    /// The call goes on without this attempt, which has failed and is released.
    pub(in crate::engine) fn leave_attempt(&mut self, slot_index: SlotIndex) {
        let slot = self.slots.at_mut(slot_index);
        slot.step(TokenInput::Leave);
        slot.op = None;
        self.slots.free_if_unnamed(slot_index);
    }
}

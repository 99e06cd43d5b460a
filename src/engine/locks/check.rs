//! The invariants of the locks between two inputs.

use super::core::Locks;
use super::op::{Op, OpKind, Verdict};
use super::slot::{Mark, Slot, TokenState};
use super::timers::Timer;
use crate::slab::{OpIndex, SlotIndex};

impl Locks {
    /// Panics if an invariant is broken.
    pub(in crate::engine) fn check(&self) {
        for (index, slot) in self.slots.iter() {
            let op = slot.op.map(|op| self.ops.at(op));
            assert!(self.is_sound(index, slot, op), "{slot:?} with {op:?}");
            let is_open = self.offers.open.contains(index);
            assert_eq!(is_open, slot.state() == TokenState::Offered, "{slot:?} is offered");
            let has_keep = self.keep_of(index).is_some();
            assert!(!slot.has(Mark::KEPT) || has_keep, "{slot:?} is kept by nothing");
        }
        for (index, op) in self.ops.indexed() {
            assert!(self.is_placed(index, op), "{op:?} has no slot of its own");
            assert!(op.kind != OpKind::Free || op.part.is_none(), "{op:?} is reported to its set");
        }
    }

    /// Whether a token's state fits its operation.
    fn is_sound(&self, index: SlotIndex, slot: &Slot, op: Option<&Op>) -> bool {
        let is_call = op.is_some_and(|op| op.kind == OpKind::Acquire && op.slot() == index);
        let outcome = op.map(|op| op.outcome);
        match slot.state() {
            TokenState::Free => op.is_none() && slot.refs == 0,
            TokenState::Asking => {
                // The last vote decides a round; a fence may need another one.
                let waits =
                    op.is_some_and(|op| !op.round.open().union(op.round.awaited).is_empty());
                is_call && outcome == Some(Verdict::Open) && (waits || slot.has(Mark::FENCED))
            }
            TokenState::Gated | TokenState::Between => is_call && outcome == Some(Verdict::Open),
            TokenState::Won => is_call && outcome == Some(Verdict::Won),
            TokenState::Offered => op.is_none() && slot.has(Mark::OFFERED),
            TokenState::Held => !is_call,
            TokenState::Released => !is_call || outcome != Some(Verdict::Open),
            TokenState::GivenAway => slot.holds.is_empty(),
        }
    }

    /// Whether an operation under way has a slot that names it, and a time at which it ends.
    fn is_placed(&self, index: OpIndex, op: &Op) -> bool {
        if matches!(op.kind, OpKind::Free | OpKind::Query | OpKind::Set)
            || op.outcome != Verdict::Open
        {
            return true;
        }
        let ends = op.is_listed() || self.timers.is_set(Timer::Judge(index));
        let waits =
            self.timers.is_set(Timer::Retry(index)) || self.timers.is_set(Timer::Wait(index));
        self.slots.at(op.slot()).op == Some(index) && (ends || waits)
    }
}

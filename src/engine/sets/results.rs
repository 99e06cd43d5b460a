//! The results of sets, from those of their parts.

use std::mem::replace;

use super::core::{Change, Changed, SetOwner};
use crate::engine::core::Engine;
use crate::engine::event::{Event, LostCause};
use crate::engine::locks::op::OpId;
use crate::engine::locks::slot::LeaseId;
use crate::slab::OpIndex;
use crate::time::Instant;

impl Engine {
    /// Takes the event of a part of a set. Returns the event for the caller, if there is one.
    #[cold]
    pub(in crate::engine) fn gather(&mut self, event: Event, now: Instant) -> Option<Event> {
        if let Event::Lost { op, lease, cause } = event {
            return self.gather_loss(op, lease, cause, now);
        }
        let Some(part) = self.locks.ops.at_mut(event.op().op).part.take() else {
            return Some(event);
        };
        match event {
            Event::Lock { op, result } => self.member_decided(part, op, result, now),
            Event::Adopt { .. }
            | Event::Extend { .. }
            | Event::Unlock { .. }
            | Event::Lost { .. }
            | Event::Query { .. } => self.part_changed(part.whole, event),
        }
        None
    }

    /// A lease is lost. The engine reports the loss of a set once, however many of its keys are
    /// lost.
    fn gather_loss(
        &mut self,
        op: OpId,
        lease: LeaseId,
        cause: LostCause,
        now: Instant,
    ) -> Option<Event> {
        match self.sets.owners.get(&lease).copied() {
            None => Some(Event::Lost { op, lease, cause }),
            Some(SetOwner::Held(lease)) => {
                let held = self.sets.held.get_mut(&lease)?;
                let is_told = replace(&mut held.is_loss_told, true);
                (!is_told).then_some(Event::Lost { op: held.op, lease, cause })
            }
            Some(SetOwner::Call(whole)) => {
                self.member_lost(whole, lease, now);
                None
            }
        }
    }

    /// A call for a set, or a change of a set, has ended. `None`: the call goes on.
    #[cold]
    pub(in crate::engine) fn report_set(&mut self, index: OpIndex, now: Instant) -> Option<Event> {
        if let Some(Change { result, .. }) = self.sets.changes.remove(&index) {
            let op = self.locks.ops.id(index);
            self.locks.close_op(index);
            return Some(match result {
                Changed::Extend(lease, result) => self.report_extension(op, lease, result, now),
                Changed::Adopt(leases, result) => self.report_adoption(op, leases, result, now),
                Changed::Unlock(result) => Event::Unlock { op, result },
            });
        }
        self.report_call(index, now)
    }
}

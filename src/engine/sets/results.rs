//! The results of sets, from those of their parts.

use std::mem::replace;

use super::core::{Change, Changed, Owner};
use crate::engine::core::Engine;
use crate::engine::event::Event;
use crate::slab::OpIndex;
use crate::time::Instant;

impl Engine {
    /// Takes an event of a part of a set. Returns the event for the caller, if there is one.
    #[cold]
    pub(in crate::engine) fn gather(&mut self, event: Event, now: Instant) -> Option<Event> {
        match event {
            Event::Lock { op, result } => {
                let Some(whole) = self.sets.wholes.remove(&op.op) else {
                    return Some(Event::Lock { op, result });
                };
                self.member_decided(whole, op, result, now);
                None
            }
            Event::Extend { op, lease, result } => {
                let Some(whole) = self.sets.wholes.remove(&op.op) else {
                    return Some(Event::Extend { op, lease, result });
                };
                self.part_changed(whole, op, Changed::Extend(lease, result));
                None
            }
            Event::Unlock { op, result } => {
                let Some(whole) = self.sets.wholes.remove(&op.op) else {
                    return Some(Event::Unlock { op, result });
                };
                self.part_changed(whole, op, Changed::Unlock(result));
                None
            }
            Event::Lost { op, lease, cause } => match self.sets.owners.get(&lease).copied() {
                None => Some(Event::Lost { op, lease, cause }),
                Some(Owner::Call(whole)) => {
                    self.member_lost(whole, lease, now);
                    None
                }
                Some(Owner::Held(lease)) => {
                    let held = self.sets.held.get_mut(&lease)?;
                    let is_told = replace(&mut held.is_loss_told, true);
                    (!is_told).then_some(Event::Lost { op: held.op, lease, cause })
                }
            },
            Event::Adopt { op, result } => {
                let Some(whole) = self.sets.wholes.remove(&op.op) else {
                    return Some(Event::Adopt { op, result });
                };
                self.key_adopted(whole, op, result);
                None
            }
            Event::Query { .. } => Some(event),
        }
    }

    /// A call for a set, or a change of one, has ended. `None`: the call goes on.
    #[cold]
    pub(in crate::engine) fn report_set(&mut self, index: OpIndex, now: Instant) -> Option<Event> {
        if let Some(Change { result, .. }) = self.sets.changes.remove(&index) {
            let op = self.locks.ops.id(index);
            self.locks.close_op(index);
            return Some(match result {
                Changed::Extend(lease, result) => Event::Extend { op, lease, result },
                Changed::Adopt(leases, result) => self.report_adoption(op, leases, result),
                Changed::Unlock(result) => Event::Unlock { op, result },
            });
        }
        self.report_call(index, now)
    }
}

//! The results of extensions and adoptions.

use super::core::Locks;
use super::op::{OpKind, Verdict};
use super::slot::Mark;
use crate::engine::event::Event;
use crate::engine::happenings::Happening;
use crate::error::ExtendError;
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;

impl Locks {
    /// Takes the result, judged at `now`.
    pub(in crate::engine) fn report_extend(&mut self, index: OpIndex, now: Instant) -> Event {
        let op = self.ops.at(index);
        let (slot_index, kind, outcome, keep) = (op.slot(), op.kind, op.outcome, op.keep);
        let is_whole = op.part.is_none();
        let lease = self.slots.lease_id(slot_index);
        let slot = self.slots.at(slot_index);
        let all = self.nodes.all();
        let (yes, gone) = (op.tally.yes, all.without(slot.holds));
        // A node may still run an extension from a dead connection.
        let open = op.tally.open.union(slot.tainted).without(yes);
        let ballot = || self.ballot(index, yes, gone.without(yes), open.without(gone), now);
        let is_late = outcome == Verdict::Won && !rules::is_extended_in_time(now, slot.ends);
        let judged = if is_late { Verdict::Expired } else { outcome };
        let result = match judged {
            Verdict::Won => Ok(()),
            Verdict::Expired => Err(ExtendError::Expired),
            Verdict::Lost => Err(ExtendError::Lost(ballot())),
            Verdict::Cancelled => Err(ExtendError::Cancelled),
            Verdict::NoQuorum
            | Verdict::Open
            | Verdict::Taken
            | Verdict::Unlocked(_)
            | Verdict::Answered => Err(ExtendError::NoQuorum(ballot())),
        };
        let op = self.ops.id(index);
        self.observe(Happening::Extended { op: index, outcome: judged });
        self.close_op(index);
        // A release may have taken the slot over meanwhile.
        if self.slots.at(slot_index).op == Some(index) {
            self.slots.at_mut(slot_index).op = None;
        }
        if kind == OpKind::Adopt {
            if result.is_ok() {
                // Another client won the lock; this client knows only which nodes extended it.
                let slot = self.slots.at_mut(slot_index);
                // Any client may have told the other nodes to delete the key.
                slot.granted = yes.union(gone.intersection(self.nodes.voters()));
                slot.set(Mark::SHARED, true);
                self.observe(Happening::Adopted { slot: slot_index, now });
                if let Some(keep) = keep {
                    self.begin_keeping(slot_index, keep, self.both_clocks(now));
                    if is_whole {
                        self.claim(slot_index, self.both_clocks(now));
                    }
                }
            } else {
                if let Some(keep) = keep {
                    self.close_keep(keep);
                }
                self.leave_slot(slot_index);
            }
            return Event::Adopt { op, result: result.map(|()| lease) };
        }
        self.slots.free_if_unnamed(slot_index);
        self.plan_extension(slot_index, outcome, self.both_clocks(now));
        Event::Extend { op, lease, result }
    }
}

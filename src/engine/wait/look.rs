//! Waiting where nobody can be told: a lock of another kind, a holder that hears nothing, nodes that
//! carry no messages. One node after the other is asked how it is with the key, now and then, and to
//! tell when the key changes.

use super::message::client_of;
use super::state::Step;
use super::{POLL_MIN, TRACKED_POLL};
use crate::command::append_get;
use crate::engine::door::{Engine, RETRY_WAIT_MIN};
use crate::node::{Now, Request, WaitPart};
use crate::quorum::{NodeId, NodeMask};
use crate::slab::OpIndex;

use std::time::Duration;

impl Engine {
    /// Nobody can be told. The key is looked at once, so that its node tells of changes from there
    /// on; then when it ends, and after a while.
    pub(super) fn wait_without_word(&mut self, index: OpIndex, now: Now) {
        let delay = self.look_delay(index);
        let Some(wait) = self.wait_of(index) else { return };
        (wait.step, wait.is_heard) = (Step::Listening, false);
        if !wait.has_looked {
            return self.look(index, now);
        }
        // A key that is about to end is no reason to ask sooner than others may.
        let ends = wait.ends.max(now.real + RETRY_WAIT_MIN);
        self.wait_until(index, ends.min(now.real + delay));
    }

    /// When the next look comes: after the plan's delay, until each denier is to tell of the next
    /// change. From then on a look is for what was not told. No node tells a client of its own changes.
    fn look_delay(&mut self, index: OpIndex) -> Duration {
        let share = self.locks.random_share();
        let op = self.locks.ops.at(index);
        let delay = op.plan.delay.saturating_add(op.plan.jitter.mul_f64(share)).max(POLL_MIN);
        let Some(wait) = op.wait.map(|wait| self.waits.at(wait)) else { return delay };
        let (tracked, holder) = (wait.tracked, wait.holder.map(|token| client_of(&token)));
        let is_silent = |id: NodeId| {
            let node = self.locks.nodes.at(id);
            node.can_be_asked() && !(tracked.contains(id) && node.can_track())
        };
        let is_own = holder == Some(self.locks.client_id);
        if is_own || tracked.is_empty() || self.deniers(index).into_iter().any(is_silent) {
            return delay;
        }
        delay.max(TRACKED_POLL.mul_f64(1.0 + share))
    }

    /// Asks the next of the deniers, each in its turn: the key that one of them has may be nobody's,
    /// and end much later than the lock.
    pub(super) fn look(&mut self, index: OpIndex, now: Now) {
        let op = self.locks.ops.at(index);
        let (denied, slot_index) = (self.deniers(index), op.slot());
        let Some(wait) = op.wait.map(|wait| self.waits.at(wait)) else { return };
        let (has_looked, last) = (wait.has_looked, wait.node.filter(|_| wait.has_looked));
        let key = self.locks.slots.at(slot_index).key.as_bytes();
        let able = |id: &NodeId| denied.contains(*id) && self.locks.nodes.at(*id).can_be_asked();
        let in_order = || self.in_key_order(key);
        let passed = last.map_or(0, |last| in_order().take_while(|&id| id != last).count() + 1);
        let next = in_order().skip(passed).chain(in_order()).find(able);
        let Some(wait) = self.wait_of(index) else { return };
        wait.has_looked = true;
        wait.looked_at = now.real;
        let Some(id) = next else {
            // None of them can say any more: an attempt will tell.
            return if has_looked {
                self.try_again(index, None, now);
            } else {
                self.wait_without_word(index, now);
            };
        };
        if !self.ask_holder(index, id, true, now) {
            self.wait_without_word(index, now);
        }
    }

    /// Asks who holds the key and for how long, and perhaps to be told of its next change. Whether
    /// there was room for it.
    pub(super) fn ask_holder(
        &mut self,
        index: OpIndex,
        id: NodeId,
        is_tracked: bool,
        now: Now,
    ) -> bool {
        let slot_index = self.locks.ops.at(index).slot();
        let phase = self.next_question(index, id, Step::Asking, now);
        self.locks.scratch.clear();
        append_get(&mut self.locks.scratch, &self.locks.slots.at(slot_index).key);
        if !self.ask(id, index, WaitPart::Holder, phase, now) {
            return false;
        }
        let request = Request::Wait { op: index, part: WaitPart::Remaining, phase };
        let key = &self.locks.slots.at(slot_index).key;
        if is_tracked && self.locks.nodes.track(id, key, request, now.attended) {
            if let Some(wait) = self.wait_of(index) {
                wait.tracked.insert(id);
            }
            return true;
        }
        self.ask_remaining(index, id, phase, now)
    }

    /// The node was greeted anew: those who counted on being told by it look again as their plans say.
    pub(in crate::engine) fn wait_untracked(&mut self, id: NodeId, now: Now) {
        let indices: Vec<OpIndex> = self.waits.ops().collect();
        for index in indices {
            let Some(wait) = self.wait_of(index).filter(|wait| wait.tracked.contains(id)) else {
                continue;
            };
            wait.tracked.remove(id);
            let (due, is_still) = (wait.due, wait.step == Step::Listening && !wait.is_heard);
            if is_still {
                let delay = self.look_delay(index);
                self.wait_until(index, due.min(now.real + delay));
            }
        }
    }

    /// A node tells that a key has changed; without one, that all may have.
    pub(in crate::engine) fn waited_key_changed(
        &mut self,
        id: NodeId,
        key: Option<&[u8]>,
        now: Now,
    ) {
        let is_about = |index: &OpIndex| {
            let slot = self.locks.slots.at(self.locks.ops.at(*index).slot());
            key.is_none_or(|key| slot.key.as_bytes() == key)
        };
        let indices: Vec<OpIndex> = self.waits.ops().filter(is_about).collect();
        for index in indices {
            let Some(wait) = self.wait_of(index) else { continue };
            // It tells once.
            wait.tracked.remove(id);
            if wait.step != Step::Listening || wait.is_heard || !wait.has_looked {
                continue;
            }
            // The next attempt asks it first.
            wait.node = Some(id);
            wait.ends = now.real.max(wait.looked_at + POLL_MIN);
            let due = wait.ends;
            self.wait_until(index, due);
        }
    }

    /// Whether any of `nodes` can be asked for a key.
    pub(super) fn can_any_be_asked(&self, nodes: NodeMask) -> bool {
        nodes.into_iter().any(|id| self.locks.nodes.at(id).can_be_asked())
    }
}

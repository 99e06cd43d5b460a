//! A call that has no holder to tell: it looks at the key, and is told of its next change.

use super::outside::View;
use super::state::{POLL_MIN, Question, REST_MIN, Scene, State, Still, TRACKED_POLL};
use super::waiter::Waiter;
use crate::client_name::ClientId;
use crate::quorum::NodeId;

use std::time::Duration;

impl Waiter {
    /// There is no holder to tell. The call looks at the key once, so that its node tracks it from
    /// then on; then when the key ends, and after a while.
    pub(super) fn rest(&mut self, scene: &mut Scene<'_, '_>) -> State {
        let delay = self.look_delay(scene.view);
        self.holder.is_heard = false;
        if self.looked_at.is_none() {
            return self.look(scene);
        }
        let now = scene.view.now;
        let ends = self.holder.ends.max(now + REST_MIN);
        self.wait_until(ends.min(now + delay), scene);
        State::Still(Still::Looking)
    }

    /// Asks the denying nodes in turn: the key on one of them may be a leftover, and end much later
    /// than the lock.
    pub(super) fn look(&mut self, scene: &mut Scene<'_, '_>) -> State {
        let reach = scene.view.reach;
        let able = self.denied.intersection(reach.asked);
        let in_order = || reach.in_key_order(self.call.key.as_slice());
        let last = self.node.filter(|_| self.looked_at.is_some());
        let passed = last.map_or(0, |last| in_order().take_while(|&node| node != last).count() + 1);
        let mut order = in_order().skip(passed).chain(in_order());
        let next = order.find(|&node| able.contains(node));
        let before = self.looked_at.replace(scene.view.now);
        match next {
            Some(node) => self.ask(node, Question::Look, scene),
            // None of the nodes can answer any more: an attempt will show.
            None if before.is_some() => self.try_at(None, scene),
            None => self.rest(scene),
        }
    }

    /// When the next look comes: after the call's delay, until every denying node tracks the next
    /// change. From then on looks are for missed changes. No node tells a client of its own
    /// changes.
    pub(super) fn look_delay(&self, view: &mut View<'_>) -> Duration {
        let share = view.source.share();
        let (call, reach) = (&self.call, view.reach);
        let delay = call.delay.saturating_add(call.jitter.mul_f64(share)).max(POLL_MIN);
        let told_by = self.tracked.intersection(reach.tracks);
        let silent = self.denied.intersection(reach.asked).without(told_by);
        if self.is_behind(ClientId::of(&self.id)) || self.tracked.is_empty() || !silent.is_empty() {
            return delay;
        }
        delay.max(TRACKED_POLL.mul_f64(1.0 + share))
    }

    /// The node says that the key has changed. It says so once, and the next attempt asks this node
    /// first.
    pub(super) fn changed(&mut self, node: NodeId, scene: &mut Scene<'_, '_>) -> State {
        self.tracked.remove(node);
        self.node = Some(node);
        let now = scene.view.now;
        self.holder.ends = self.looked_at.map_or(now, |at| now.max(at + POLL_MIN));
        self.wait_until(self.holder.ends, scene);
        State::Still(Still::Looking)
    }

    /// The node was greeted again, and tracks nothing any more.
    pub(super) fn untracked(&mut self, node: NodeId, scene: &mut Scene<'_, '_>) -> State {
        self.tracked.remove(node);
        let delay = self.look_delay(scene.view);
        self.wait_until(self.due.min(scene.view.now + delay), scene);
        State::Still(Still::Looking)
    }
}

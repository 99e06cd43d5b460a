//! The calls of this client that wait, and which call gets the turn.

use super::core::Waiting;
use super::list::List;
use super::message::{Listed, MessageKind, WaiterId, token_of_wake, waiter_id};
use super::outside::{Action, Input, View};
use super::state::Scene;
use super::waiter::Waiter;
use super::wakes::Wake;
use crate::client_name::ClientId;
use crate::key::{Key, hash};
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;
use crate::witness::{Sight, saw};

impl Waiting {
    /// Another input for a call, if it waits. An answer must be [awaited](Self::is_awaited).
    pub(in crate::engine) fn step(&mut self, op: OpIndex, input: Input, view: &mut View<'_>) {
        let Self { actions, questions, node_timeout, waiters, .. } = self;
        let mut scene = Scene { view, actions, questions, node_timeout: *node_timeout };
        if let Some(waiter) = waiters.get_mut(op) {
            waiter.step(input, &mut scene);
        }
    }

    /// The calls that wait for `key`, or have just won it, and their ids.
    pub(super) fn waiting_for(&self, key: &[u8]) -> impl Iterator<Item = (OpIndex, WaiterId)> {
        let is_meant = move |waiter: &Waiter| {
            !waiter.is_over() && rules::is_for_key(waiter.call.key.as_slice(), key)
        };
        let waiters = self.waiters.iter().filter(move |(_, waiter)| is_meant(waiter));
        waiters.map(|(op, waiter)| (op, waiter.id))
    }

    /// The call with this id that waits for `key`.
    pub(super) fn call_of(&self, id: WaiterId, key: &[u8]) -> Option<OpIndex> {
        self.waiting_for(key).find_map(|(op, other)| (other == id).then_some(op))
    }

    /// Whether the waiter is a call of this client.
    pub(super) fn is_own(&self, id: &WaiterId) -> bool {
        ClientId::of(id) == self.client_id
    }

    /// The turn came to a call that is over: it goes to the call that has waited longest, of this
    /// client or of another.
    pub(super) fn give_turn(
        &mut self,
        node: NodeId,
        key: &[u8],
        mut list: List,
        view: &mut View<'_>,
    ) {
        for (op, _) in self.waiting_for(key) {
            if let Some(entry) = self.waiters.get(op).map(|waiter| waiter.entry(node, view)) {
                list.add(entry);
            }
        }
        self.wake_first(true, Key::from_slice(key), list, 0, view);
    }

    /// Wakes the first call of the list that still waits. `is_turn`: this client may give the turn.
    /// `fence`: the fence of the lease that it released.
    pub(super) fn wake_first(
        &mut self,
        is_turn: bool,
        key: Key,
        mut list: List,
        fence: u64,
        view: &mut View<'_>,
    ) {
        list.drop_past(view.now);
        let Some(to) = rules::first_to_wake(list.take_first()) else { return };
        let rest = rules::carried_on(list);
        if !rest.is_empty() {
            saw(Sight::HandedOn);
        }
        self.wake(Wake { key, to, rest, fence, tried: NodeMask::EMPTY, is_turn }, view);
    }

    /// Sends a wake through the node that its waiter used, or the next that was not tried. A call
    /// of this client gets its turn at once: its SETs go behind the release.
    pub(super) fn wake(&mut self, mut wake: Wake, view: &mut View<'_>) {
        loop {
            let key = wake.key.as_slice();
            if self.is_own(&wake.to.id) {
                if let Some(op) = rules::sibling_to_wake(self.call_of(wake.to.id, key)) {
                    return self.pass_within(op, wake, view);
                }
                // The call has given up.
            } else {
                let left = view.reach.all.without(wake.tried);
                let near = Some(wake.to.node)
                    .filter(|&node| left.intersection(view.reach.channel).contains(node));
                if let Some(node) = near.or_else(|| view.reach.first_with_channel(left, key)) {
                    return self.send_wake(node, wake, view.now);
                }
                // No node reaches this call.
            }
            if !wake.turn_to_next() {
                return;
            }
        }
    }

    /// Gives the turn to the first call of a wake, a call of this client.
    fn pass_within(&mut self, op: OpIndex, wake: Wake, view: &mut View<'_>) {
        saw(Sight::PassedWithin);
        let successor = wake.successor(wake.to.node, view.now + self.node_timeout * 2);
        self.wakes.note(hash(wake.key.as_slice()), successor);
        self.actions.push(Action::Woken { op, node: None });
        self.step(op, Input::Turn(wake.rest), view);
    }

    fn send_wake(&mut self, node: NodeId, wake: Wake, now: Instant) {
        // The sender's call does not matter in a wake.
        let sender = Listed::named(waiter_id(self.client_id, 0));
        let (token, rest) = (token_of_wake(wake.to.id, wake.fence), wake.rest.listed(now));
        let key = wake.key.as_slice();
        let text = self.actions.write((MessageKind::Wake, 0), sender, &token, rest, key);
        if let Some(wake) = self.wakes.keep(wake) {
            self.actions.push(Action::Wake { wake, node, text });
        }
    }
}

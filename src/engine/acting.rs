//! The engine's side of waiting: it hands inputs to [`wait`](super::wait), and carries out the
//! actions that come back.

use super::core::Engine;
use super::happenings::Happening;
use super::locks::slot::{LeaseId, TokenState};
use super::locks::timers::Timer;
use super::wait::{
    Action, HolderAnswer, Input, Message, Offer, Reach, Text, View, WaitCall, Waiting, around_token,
};
use crate::command::{append_get, append_introduction, append_publish};
use crate::node::{ChannelName, Now, Request, WaitPart};
use crate::quorum::{NodeId, NodeMask};
use crate::resp::{Items, Reply};
use crate::slab::{OpIndex, SlotIndex, WakeIndex};
use crate::token::unhex;

impl Engine {
    // ---- looking ----

    /// The slot whose lock a message is about, by the token that the message names, or by its key.
    pub(super) fn slot_meant(&self, message: &Message<'_>) -> Option<SlotIndex> {
        let is_meant = |slot_index: &SlotIndex| {
            let slot = self.locks.slots.get(*slot_index);
            slot.is_some_and(|it| it.state().is_lock() && it.key.as_slice() == message.key)
        };
        // The slot of an ended lease may hold the next lease for the key.
        let named = self.locks.slot_of_token(&message.token).filter(is_meant);
        named.or_else(|| self.waiting.queues_for(message.key).find(is_meant))
    }

    /// Whether a message names a lock that this client has held and released.
    pub(super) fn was_released(&self, message: &Message<'_>) -> bool {
        self.locks.slot_with(&message.token, message.key).is_some_and(|slot_index| {
            let state = self.locks.slots.at(slot_index).state();
            state.is_deleted() || state == TokenState::Free
        })
    }

    /// The leases for which other clients wait, and their keys.
    pub(crate) fn waited_for(&self) -> impl Iterator<Item = (LeaseId, &[u8])> {
        self.waiting.queues().filter_map(|slot_index| {
            let slot = self.locks.slots.get(slot_index)?;
            let lease = self.locks.slots.lease_id(slot_index);
            (slot.state() == TokenState::Held && self.sets.is_alone(lease))
                .then(|| (lease, self.locks.prefix.plain_key(slot.key.as_slice())))
        })
    }

    // ---- telling, and doing the machine's actions ----

    /// Takes the buffer `frame`, filled with the node's last answer. Put it back afterwards.
    pub(super) fn take_frame(&mut self, id: NodeId) -> Vec<u8> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.extend_from_slice(self.locks.nodes.at(id).frame());
        frame
    }

    pub(super) fn call(&self, index: OpIndex) -> WaitCall {
        let op = self.locks.ops.at(index);
        WaitCall {
            key: self.locks.slots.at(op.slot()).key.clone(),
            takes_over: self.locks.takes_over(index),
            deadline: op.plan.deadline,
            delay: op.plan.delay,
            jitter: op.plan.jitter,
        }
    }

    pub(super) fn reach(&self) -> Reach {
        let all = self.locks.nodes.all();
        let mut reach = Reach {
            all,
            channel: NodeMask::EMPTY,
            scripts: NodeMask::EMPTY,
            asked: NodeMask::EMPTY,
        };
        for id in all {
            let node = self.locks.nodes.at(id);
            if node.has_channel() {
                reach.channel.insert(id);
                reach.scripts.set(id, node.runs_scripts());
            }
            if node.can_be_asked() {
                reach.asked.insert(id);
            }
        }
        reach
    }

    pub(super) fn input<R>(
        &mut self,
        now: Now,
        input: impl FnOnce(&mut Waiting, &mut View<'_>) -> R,
    ) -> R {
        // A loop that is not late for anything was asleep, and wakes as soon as something comes.
        let is_prompt = self.locks.timers.next() > now.real;
        let last_pass = if is_prompt { now.real } else { self.locks.last_pass };
        let reach = self.reach();
        let round_trip = self.locks.round_trip();
        let share = &mut || self.locks.random_share();
        let view = &mut View { now: now.real, last_pass, reach, round_trip, share };
        self.waiting.actions.begin_input();
        input(&mut self.waiting, view)
    }

    /// Carries out an action. An action that could not be done is a new input, at once. Returns the
    /// attempt that the call is to make, and the node that it asks first.
    pub(super) fn perform(
        &mut self,
        action: Action,
        now: Now,
    ) -> Option<(OpIndex, Option<NodeId>)> {
        match action {
            Action::Timer { op, at } => self.locks.set_timer(op, Timer::Wait, at),
            Action::Listen { op, at } => {
                self.locks.observe(Happening::Waits { op });
                self.locks.set_timer(op, Timer::Wait, at);
            }
            Action::Poll { op, node, phase } => {
                let slot = self.locks.slots.at(self.locks.ops.at(op).slot());
                self.locks.scratch.clear();
                append_get(&mut self.locks.scratch, &slot.key);
                self.ask(node, Request::Wait { op, part: WaitPart::Holder, phase }, op, now);
            }
            Action::Announce { op, node, phase, text } => {
                self.put_offer(op, &text, now);
                self.encode_publish(&text);
                self.ask(node, Request::Wait { op, part: WaitPart::Announced, phase }, op, now);
            }
            Action::Introduce { op, node, phase, text } => {
                self.put_offer(op, &text, now);
                self.encode_introduction(op, &text);
                self.ask(node, Request::Wait { op, part: WaitPart::Introduced, phase }, op, now);
            }
            Action::Withdraw { op } => self.locks.withdraw_offers(op),
            Action::Wake { wake, node, text } => self.write_wake(wake, node, &text, now),
            Action::Tell { node, text } => {
                self.encode_publish(&text);
                if self.locks.nodes.at(node).has_channel() {
                    self.locks.write(node, Request::Tell, now);
                }
            }
            Action::Try { op, gate } => return Some((op, gate)),
            Action::Woken { op, node } => self.locks.observe(Happening::Woken { op, node }),
        }
        None
    }

    /// Writes the encoded question, whose answer the call awaits.
    fn ask(&mut self, node: NodeId, request: Request, op: OpIndex, now: Now) {
        if !self.locks.write(node, request, now) {
            self.input(now, |waiting, view| waiting.step(op, Input::Unwritten, view));
        }
    }

    /// A message that announces a waiting call also carries the call's offer.
    fn put_offer(&mut self, op: OpIndex, text: &Text, now: Now) {
        if let Some((token, ttl_ms)) = self.locks.offer(op, now) {
            self.waiting.actions.put_offer(text, Offer { token, ttl_ms });
        }
    }

    fn encode_publish(&mut self, text: &Text) {
        self.locks.scratch.clear();
        let channel = ChannelName::of(text.to);
        append_publish(
            &mut self.locks.scratch,
            channel.as_bytes(),
            self.waiting.actions.bytes(text),
        );
    }

    fn encode_introduction(&mut self, op: OpIndex, text: &Text) {
        let slot = self.locks.slots.at(self.locks.ops.at(op).slot());
        let message = around_token(self.waiting.actions.bytes(text));
        let out = &mut self.locks.scratch;
        out.clear();
        append_introduction(out, &slot.key, &slot.token, ChannelName::prefix(), message);
    }

    fn write_wake(&mut self, wake: WakeIndex, id: NodeId, text: &Text, now: Now) {
        self.encode_publish(text);
        if !self.locks.nodes.at(id).has_room_in_step(self.locks.scratch.len()) {
            return self.input(now, |waiting, view| waiting.wake_unwritten(wake, id, view));
        }
        let request = Request::Wake(wake);
        self.locks.nodes.wake(id, request, &self.locks.scratch, now.attended);
        self.waiting.wake_written(wake, id, now.real);
        let key = self.waiting.key_of(wake);
        self.locks.observe(Happening::WakeSent { node: id, key });
    }
}

/// The meaning of a node's reply to a question.
pub(super) fn answer_of(part: WaitPart, reply: Option<&Reply<'_>>) -> HolderAnswer {
    match (part, reply) {
        (WaitPart::Holder, Some(Reply::Null)) => HolderAnswer::Gone,
        (WaitPart::Holder, Some(Reply::Bulk(token))) => HolderAnswer::Holder(unhex(token)),
        // A lock of another library, or a node that does not answer the question.
        (WaitPart::Holder, _) => HolderAnswer::Holder(None),
        (WaitPart::Introduced, Some(Reply::Null)) => HolderAnswer::Gone,
        (WaitPart::Introduced, Some(Reply::Array(items))) => introduced(items.clone()),
        (WaitPart::Introduced, _) => HolderAnswer::Refused,
        (WaitPart::Announced, reply) => {
            HolderAnswer::Heard(matches!(reply, Some(Reply::Integer(1..))))
        }
    }
}

/// The meaning of the reply to the script by which a call introduces itself.
fn introduced(mut items: Items<'_>) -> HolderAnswer {
    let token = items.next().and_then(|item| item.text()).and_then(unhex);
    let remaining = match items.next() {
        Some(Reply::Integer(left @ 0..)) => Some(u32::try_from(left).unwrap_or(u32::MAX)),
        _ => None,
    };
    let is_heard = matches!(items.next(), Some(Reply::Integer(1..)));
    HolderAnswer::Introduced { holder: token, remaining, is_heard }
}

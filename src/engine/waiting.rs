//! The engine's side of waiting: hands inputs to [`wait`](super::wait), and carries out its
//! actions. Nothing is decided here.

use super::core::Engine;
use super::locks::observe::Happening;
use super::locks::op::Outcome;
use super::locks::slot::LeaseId;
use super::locks::state::Locks;
use super::locks::steps::{Input as SlotInput, State};
use super::locks::timers::Timer;
use super::wait::{
    Action, Answer, Call, Input, Message, Offer, Reach, Released, Scripts, Source, Text, View,
    Waiting, around_token,
};
use crate::command::{self, append_get, append_introduction, append_publish};
use crate::error::Cause;
use crate::node::{ChannelName, Now, Pending, Request, WaitPart};
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::resp::{Decoder, Items, Limits, Reply};
use crate::round::Round;
use crate::rules;
use crate::slab::{OpIndex, SlotIndex, WakeIndex};
use crate::token::{TokenBytes, unhex};

use std::time::Duration;

impl Engine {
    // ---- what happens to a call ----

    /// An attempt failed and is released: the operation waits, if it may. Returns whether it does.
    pub(super) fn begin_wait(&mut self, index: OpIndex, outcome: Outcome, now: Now) -> bool {
        let op = self.locks.ops.at(index);
        let (plan, denied) = (&op.plan, op.round.denied);
        let is_willing = outcome == Outcome::Taken && plan.wakes && now.real < plan.deadline;
        let is_able = || denied.into_iter().any(|id| self.locks.nodes.at(id).can_be_asked());
        if is_willing && self.locks.settings.direct_wake && is_able() {
            self.locks.note_denial(index, denied, now);
            let call = self.call(index);
            self.tell_waiting(now, |waiting, view| waiting.denied(index, denied, call, view));
            return true;
        }
        if self.waiting.has_waiter(index) {
            self.tell_call(index, Input::Failed, now);
        }
        false
    }

    /// A call's first attempt is under way. If its lock may linger here, it may linger at another client,
    /// which does not hear of an attempt that is denied: a node is asked to tell that client.
    #[cold]
    pub(super) fn introduce(&mut self, index: OpIndex, now: Now) {
        let call = self.call(index);
        self.tell_waiting(now, |waiting, view| waiting.introduce(index, call, view));
    }

    /// The next attempt of an operation's plan is due.
    pub(super) fn retry_due(&mut self, index: OpIndex, now: Now) {
        if self.waiting.has_waiter(index) {
            self.tell_call(index, Input::Retry, now);
        } else {
            self.retry(index, None, now);
        }
    }

    /// An attempt failed that other clients may have taken for a lock: they now wait behind its
    /// operation.
    #[cold]
    pub(super) fn carry_queue(&mut self, index: OpIndex, slot_index: SlotIndex, now: Now) {
        let call = self.call(index);
        self.waiting.carry(index, slot_index, call, now.real);
        self.act(now);
    }

    /// If this client woke another for the key a moment ago, the call makes no first attempt but
    /// goes to the end of that queue. Returns whether it does.
    #[cold]
    pub(super) fn queue_behind(&mut self, index: OpIndex, now: Now) -> bool {
        let op = self.locks.ops.at(index);
        let slot_index = op.slot();
        if !rules::queues_behind_woken(op.plan.wakes) {
            return false;
        }
        let call = self.call(index);
        if !self.input(now, |waiting, view| waiting.queue_behind(index, call, view)) {
            return false;
        }
        let slot = self.locks.slots.at_mut(slot_index);
        slot.step(SlotInput::Fail);
        slot.op = Some(index);
        let op = self.locks.ops.at_mut(index);
        (op.outcome, op.failed, op.round) = (Outcome::Open, Outcome::Taken, Round::default());
        op.causes = [Cause::Queued; NODES_MAX];
        self.locks.observe(Happening::Queued { op: index });
        self.locks.end_with_call(index);
        self.act(now);
        true
    }

    /// The timer of a wait is due.
    pub(super) fn wait_due(&mut self, index: OpIndex, now: Now) {
        if self.waiting.due(index).is_some_and(|due| due <= now.real) {
            self.tell_call(index, Input::Due, now);
        }
    }

    /// The operation is reported.
    #[cold]
    pub(super) fn end_wait(&mut self, index: OpIndex, now: Now) {
        let op = self.locks.ops.at(index);
        let outcome = op.outcome;
        let won = (outcome == Outcome::Won).then(|| op.slot());
        if matches!(outcome, Outcome::Taken | Outcome::NoQuorum) {
            self.locks.observe(Happening::WaitEnded);
        }
        self.locks.retire_offers(index, now);
        self.tell_waiting(now, |waiting, view| waiting.ended(index, won, view));
    }

    /// Behind the release: wakes the first waiter for the key.
    #[cold]
    pub(super) fn pass_lock_on(
        &mut self,
        slot_index: SlotIndex,
        scripts: Option<Scripts>,
        now: Now,
    ) {
        let key = self.locks.slots.at(slot_index).key.clone();
        let fence = self.locks.fence_of(slot_index).unwrap_or(0);
        let release = Released { key, fence, scripts };
        self.tell_waiting(now, |waiting, view| waiting.released(slot_index, release, view));
    }

    // ---- what comes in ----

    /// A node answered a question of an operation that waits.
    pub(super) fn waited(&mut self, id: NodeId, pending: Pending, now: Now) {
        let Request::Wait { op: index, part, phase } = pending.request else { return };
        if !self.waiting.is_awaited(index, id, phase) {
            return;
        }
        let frame = self.take_frame(id);
        let decoded = Decoder::new(Limits::default()).frame(&frame);
        let reply = decoded.ok().flatten().map(|frame| frame.reply());
        let answer = answer_of(part, reply.as_ref());
        if answer == Answer::Refused {
            let refusal = reply.as_ref().map_or(command::Answer::Odd, command::classify);
            self.locks.nodes.script_refused(id, refusal, now);
        }
        self.frame = frame;
        self.tell_call(index, Input::Answer(answer), now);
    }

    /// The connection ended with a question unanswered.
    pub(super) fn wait_lost(&mut self, id: NodeId, pending: Pending, now: Now) {
        let Request::Wait { op: index, phase, .. } = pending.request else { return };
        if self.waiting.is_awaited(index, id, phase) {
            self.tell_call(index, Input::Unanswered, now);
        }
    }

    /// A node said how many clients received a wake.
    pub(super) fn wake_answered(
        &mut self,
        id: NodeId,
        index: WakeIndex,
        answer: command::Answer,
        now: Now,
    ) {
        let is_heard = !matches!(answer, command::Answer::Zero | command::Answer::Refused(_));
        self.tell_waiting(now, |waiting, view| waiting.wake_answered(index, id, is_heard, view));
    }

    /// The connection ended before the wake was answered.
    pub(super) fn wake_lost(&mut self, id: NodeId, index: WakeIndex, now: Now) {
        self.tell_waiting(now, |waiting, view| waiting.wake_answered(index, id, false, view));
    }

    /// The slot whose lock a message is about: by the token that it names, or by its key.
    pub(super) fn slot_meant(&self, message: &Message<'_>) -> Option<SlotIndex> {
        let is_meant = |slot_index: SlotIndex, by_key: bool| {
            let slot = self.locks.slots.get(slot_index)?;
            let is_alive = slot.state().is_lock();
            let is_token = slot.token == TokenBytes::Drawn(message.token);
            let is_key = slot.key.as_slice() == message.key;
            (is_alive && is_key && (is_token || by_key)).then_some(slot_index)
        };
        // The slot of a lease that is over may have the next one for the key.
        let named = self.locks.slot_of_token(&message.token).and_then(|slot| is_meant(slot, true));
        named.or_else(|| {
            self.waiting.queues_for(message.key).find_map(|slot_index| is_meant(slot_index, true))
        })
    }

    /// Whether the lock that a message names was this client's, which has released it.
    pub(super) fn was_released(&self, message: &Message<'_>) -> bool {
        let slot = self.locks.slot_of_token(&message.token);
        slot.and_then(|slot| self.locks.slots.get(slot)).is_some_and(|slot| {
            (slot.state().is_deleted() || slot.state() == State::Free)
                && slot.token == TokenBytes::Drawn(message.token)
                && slot.key.as_slice() == message.key
        })
    }

    /// The leases that other clients wait for, and their keys.
    pub(crate) fn waited_for(&self) -> impl Iterator<Item = (LeaseId, &[u8])> {
        self.waiting.queues().filter_map(|slot_index| {
            let slot = self.locks.slots.get(slot_index)?;
            let lease = self.locks.slots.lease_id(slot_index);
            (slot.state() == State::Held)
                .then(|| (lease, self.locks.prefix.plain_key(slot.key.as_slice())))
        })
    }

    // ---- telling, and doing what is wanted ----

    /// Moves the node's last answer out of its buffer; `frame` gives it back.
    pub(super) fn take_frame(&mut self, id: NodeId) -> Vec<u8> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.extend_from_slice(self.locks.nodes.at(id).frame());
        frame
    }

    fn call(&self, index: OpIndex) -> Call {
        let op = self.locks.ops.at(index);
        Call {
            key: self.locks.slots.at(op.slot()).key.clone(),
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
        for (id, node) in all.into_iter().zip(self.locks.nodes.iter()) {
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
        // A loop that is not late for anything was asleep, and comes as soon as something has come.
        let is_prompt = self.locks.timers.next() > now.real;
        let last_pass = if is_prompt { now.real } else { self.locks.last_pass };
        let reach = self.reach();
        let source = &mut Outside { locks: &mut self.locks, now };
        let view = &mut View { now: now.real, last_pass, reach, source };
        self.waiting.begin_input();
        input(&mut self.waiting, view)
    }

    /// Gives the machine an input, and carries out its actions.
    pub(super) fn tell_waiting(
        &mut self,
        now: Now,
        input: impl FnOnce(&mut Waiting, &mut View<'_>),
    ) {
        self.input(now, input);
        self.act(now);
    }

    /// The same, for one call.
    pub(super) fn tell_call(&mut self, index: OpIndex, input: Input, now: Now) {
        self.tell_waiting(now, |waiting, view| waiting.step(index, input, view));
    }

    /// What could not be done is a new input, whose actions this loop does too: a list of hundreds that
    /// cannot be woken must not fill the stack.
    fn act(&mut self, now: Now) {
        if std::mem::replace(&mut self.is_acting, true) {
            return;
        }
        while let Some(action) = self.waiting.next_action() {
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
                    let request = Request::Wait { op, part: WaitPart::Holder, phase };
                    let is_written = self.locks.write(node, request, now);
                    self.note_written(op, is_written, now);
                }
                Action::Announce { op, node, phase, text } => {
                    self.encode_publish(&text);
                    let request = Request::Wait { op, part: WaitPart::Announced, phase };
                    let is_written = self.locks.write(node, request, now);
                    self.note_written(op, is_written, now);
                }
                Action::Introduce { op, node, phase, text } => {
                    self.encode_introduction(op, &text);
                    let request = Request::Wait { op, part: WaitPart::Introduced, phase };
                    let is_written = self.locks.write(node, request, now);
                    self.note_written(op, is_written, now);
                }
                Action::Withdraw { op } => self.locks.withdraw_offers(op),
                Action::Wake { wake, node, text } => self.write_wake(wake, node, &text, now),
                Action::Tell { node, text } => {
                    self.encode_publish(&text);
                    if self.locks.nodes.at(node).has_channel() {
                        self.locks.write(node, Request::Tell, now);
                    }
                }
                Action::Try { op, gate } => self.retry(op, gate, now),
                Action::Woken { op, node } => self.locks.observe(Happening::Woken { op, node }),
            }
        }
        self.is_acting = false;
    }

    fn note_written(&mut self, op: OpIndex, is_written: bool, now: Now) {
        if !is_written {
            self.input(now, |waiting, view| waiting.step(op, Input::Unwritten, view));
        }
    }

    fn encode_publish(&mut self, text: &Text) {
        self.locks.scratch.clear();
        let channel = ChannelName::of(text.to);
        append_publish(&mut self.locks.scratch, channel.as_bytes(), self.waiting.text(text));
    }

    fn encode_introduction(&mut self, op: OpIndex, text: &Text) {
        let slot = self.locks.slots.at(self.locks.ops.at(op).slot());
        let message = around_token(self.waiting.text(text));
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

/// What the machine may ask of the locks.
struct Outside<'a> {
    locks: &'a mut Locks,
    now: Now,
}

impl Source for Outside<'_> {
    fn share(&mut self) -> f64 {
        self.locks.random_share()
    }

    fn offer(&mut self, op: OpIndex) -> Option<Offer> {
        let (token, ttl_ms) = self.locks.offer(op, self.now)?;
        Some(Offer { token, ttl_ms })
    }

    fn round_trip(&self) -> Duration {
        self.locks.round_trip()
    }

    fn attempt(&self, key: &[u8]) -> Option<SlotIndex> {
        self.locks.attempt_for(key)
    }
}

/// What a node's reply to a question says.
fn answer_of(part: WaitPart, reply: Option<&Reply<'_>>) -> Answer {
    match (part, reply) {
        (WaitPart::Holder, Some(Reply::Null)) => Answer::Gone,
        (WaitPart::Holder, Some(Reply::Bulk(token))) => Answer::Holder(unhex(token)),
        // A lock of another library, or a node that does not say.
        (WaitPart::Holder, _) => Answer::Holder(None),
        (WaitPart::Introduced, Some(Reply::Null)) => Answer::Gone,
        (WaitPart::Introduced, Some(Reply::Array(items))) => introduced(items.clone()),
        (WaitPart::Introduced, _) => Answer::Refused,
        (WaitPart::Announced, reply) => Answer::Heard(matches!(reply, Some(Reply::Integer(1..)))),
    }
}

/// What the script says by which a call introduces itself.
fn introduced(mut items: Items<'_>) -> Answer {
    let token = items.next().and_then(|item| item.text()).and_then(unhex);
    let remaining = match items.next() {
        Some(Reply::Integer(left @ 0..)) => Some(u32::try_from(left).unwrap_or(u32::MAX)),
        _ => None,
    };
    let is_heard = matches!(items.next(), Some(Reply::Integer(1..)));
    Answer::Introduced { holder: token, remaining, is_heard }
}

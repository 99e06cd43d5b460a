//! The course of a call under way: from an attempt that fails to the next actions of the waiting
//! machine, and to the next attempt.
//!
//! # Invariants
//!
//! - The engine handles an attempt that has [`Failed`] before anything else happens to the locks.
//! - One loop carries out all actions of the waiting machine. A list of hundreds of calls, none of
//!   which can be woken, must not fill the stack.

use std::time::Duration;

use super::core::Engine;
use super::happenings::Happening;
use super::locks::core::Failed;
use super::locks::op::{OpKind, Verdict};
use super::locks::slot::{Mark, TokenInput, TokenState};
use super::locks::timers::Timer;
use super::wait::{
    Action, Heir, HolderAnswer, Input, Offer, Reach, Text, View, WaitCall, Waiting, around_token,
};
use crate::command::{self, append_get, append_introduction, append_publish};
use crate::error::Cause;
use crate::node::{ChannelName, Node, Now, Pending, Request, WaitPart};
use crate::quorum::{NODES_MAX, NodeId};
use crate::resp::{Decoder, Items, Limits, Reply};
use crate::round::Round;
use crate::rules;
use crate::slab::{OpIndex, SlotIndex, WakeIndex};
use crate::time::Instant;
use crate::token::{TokenBytes, unhex};

/// The shortest wait between two attempts.
const RETRY_WAIT_MIN: Duration = Duration::from_millis(1);

impl Engine {
    /// Handles an attempt that failed by the last change of the locks.
    #[inline]
    pub(super) fn follow(&mut self, failed: Option<Failed>, now: Now) {
        if let Some(Failed { op, outcome }) = failed {
            self.attempt_failed(op, outcome, now);
        }
    }

    /// Releases the keys that the attempt may have written, and plans the next attempt.
    #[cold]
    pub(super) fn attempt_failed(&mut self, index: OpIndex, outcome: Verdict, now: Now) {
        self.locks.ops.unlist(index);
        let outcome = self.weigh_denials(index, outcome, now);
        self.locks.ops.at_mut(index).failed = outcome;
        self.locks.observe(Happening::AttemptFailed { op: index, outcome });
        let slot_index = self.locks.ops.at(index).slot();
        if self.waiting.has_queue(slot_index) {
            self.carry_queue(index, slot_index, now);
        }
        self.release_slot(slot_index, None, now);
        self.locks.retire_parts(index, now);
        self.locks.end_with_call(index);
        if self.begin_wait(index, outcome, now) {
            return;
        }
        if !self.plan_retry(index, now.real) {
            self.fail(index, outcome);
        }
    }

    /// Returns how the call fails if this attempt was its last. The call's end may cut the attempt before
    /// nodes answer. Then the outcome of the attempts before it counts.
    #[cold]
    fn weigh_denials(&mut self, index: OpIndex, outcome: Verdict, now: Now) -> Verdict {
        let op = self.locks.ops.at(index);
        let began = self.locks.slots.at(op.slot()).began;
        let is_cut = op.plan.deadline <= now.real
            && began.until(op.plan.deadline) < self.locks.settings.node_timeout;
        let op = self.locks.ops.at_mut(index);
        if outcome == Verdict::Expired {
            op.late = op.round.granted;
        }
        op.note_denials(is_cut);
        let denied = op.denials();
        let mut round = op.round;
        round.failed = round.failed.without(denied);
        round.unknown = round.unknown.without(denied);
        round.awaited = round.awaited.without(denied);
        round.denied = denied;
        let was_late = op.failed == Verdict::Expired;
        let electorate =
            self.locks.settings.electorate_of(self.locks.slots.at(self.locks.ops.at(index).slot()));
        if outcome != Verdict::NoQuorum || !is_cut {
            outcome
        } else if was_late {
            Verdict::Expired
        } else if round.is_taken(electorate) {
            Verdict::Taken
        } else {
            outcome
        }
    }

    /// Plans the next attempt of a call, after its `delay` and a part of its `jitter`. Returns false
    /// if the call is not patient, or ends before.
    pub(super) fn plan_retry(&mut self, index: OpIndex, now: Instant) -> bool {
        if !self.locks.ops.at(index).plan.is_patient {
            return false;
        }
        // A share below one, so that the product never exceeds the jitter.
        let random = self.locks.random_share();
        let plan = &self.locks.ops.at(index).plan;
        let wait = plan.delay.saturating_add(plan.jitter.mul_f64(random));
        // If no node can be asked, an attempt ends at once: without a wait the call would spin.
        let retry_at = now + wait.max(RETRY_WAIT_MIN);
        // No attempt could follow a wait that ends at the deadline.
        let goes_on = retry_at < plan.deadline;
        if goes_on {
            self.locks.set_timer(index, Timer::Retry, retry_at);
        }
        goes_on
    }

    /// A call for a lock ends without one.
    pub(super) fn fail(&mut self, index: OpIndex, outcome: Verdict) {
        self.waiting.over(index);
        self.locks.end_call(index, outcome);
    }

    /// The next attempt, at the gate first. It has a new token, and follows the release of the last
    /// one.
    pub(super) fn retry(&mut self, index: OpIndex, gate: Option<NodeId>, now: Now) {
        let op = self.locks.ops.at(index);
        if op.kind != OpKind::Acquire || op.outcome != Verdict::Open {
            return;
        }
        let last = op.slot();
        if self.locks.slots.at(last).state() != TokenState::Between {
            return;
        }
        debug_assert_eq!(self.locks.slots.at(last).op, Some(index), "a waiting call has its slot");
        if op.plan.deadline <= now.real {
            // The caller did not drive until the call was over, for example because the machine was
            // suspended.
            return self.fail(index, self.locks.ops.at(index).failed);
        }
        self.locks.retire_parts(index, now);
        let token = TokenBytes::Drawn(self.locks.draw_token());
        let token = rules::token_of_retry(token, &self.locks.slots.at(last).token);
        let key = self.locks.slots.at(last).key.clone();
        let is_fenced = self.locks.slots.at(last).has(Mark::FENCED);
        let slot = self.locks.slots.open(key.as_slice(), token, TokenInput::Begin);
        if is_fenced {
            self.locks.slots.at_mut(slot).set(Mark::FENCED, true);
        }
        self.locks.leave_attempt(last);
        let failed = self.locks.attempt(index, slot, gate, now);
        self.follow(failed, now);
    }

    /// The next attempt of an operation's plan is due.
    pub(super) fn retry_due(&mut self, index: OpIndex, now: Now) {
        if self.waiting.has_waiter(index) {
            self.tell_call(index, Input::Retry, now);
        } else {
            self.retry(index, None, now);
        }
    }

    /// An attempt has failed and is released: the call waits, if it may. Returns whether it does.
    pub(super) fn begin_wait(&mut self, index: OpIndex, outcome: Verdict, now: Now) -> bool {
        let op = self.locks.ops.at(index);
        let (plan, denied) = (&op.plan, op.round.denied);
        let is_willing = outcome == Verdict::Taken && plan.is_woken && now.real < plan.deadline;
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

    /// While a call's first attempt is under way, the call asks a node to announce it to the holder. A
    /// client whose lock lingers learns of a waiter only by this. A writer announces itself at once,
    /// too, because the nodes are likely to deny some slots.
    #[cold]
    pub(super) fn introduce(&mut self, index: OpIndex, now: Now) {
        let call = self.call(index);
        self.tell_waiting(now, |waiting, view| waiting.introduce(index, call, view));
    }

    /// Other clients may have taken a failed attempt for a lock, and announced themselves to it.
    /// They now wait behind its call.
    #[cold]
    pub(super) fn carry_queue(&mut self, index: OpIndex, slot_index: SlotIndex, now: Now) {
        let call = self.call(index);
        self.waiting.carry(index, slot_index, call, now.real);
        self.act(now);
    }

    /// If this client woke another for the key a moment ago, the call makes no first attempt but
    /// goes to the end of that queue. Returns whether it does.
    #[cold]
    pub(super) fn queue_behind(&mut self, index: OpIndex, slot_index: SlotIndex, now: Now) -> bool {
        let op = self.locks.ops.at_mut(index);
        op.set_slot(slot_index);
        if !rules::queues_behind_woken(op.plan.is_woken) {
            return false;
        }
        let call = self.call(index);
        if !self.input(now, |waiting, view| waiting.queue_behind(index, call, view)) {
            return false;
        }
        let slot = self.locks.slots.at_mut(slot_index);
        slot.step(TokenInput::Fail);
        slot.op = Some(index);
        let op = self.locks.ops.at_mut(index);
        (op.outcome, op.failed, op.round) = (Verdict::Open, Verdict::Taken, Round::default());
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

    /// The operation is about to be reported.
    #[cold]
    pub(super) fn end_wait(&mut self, index: OpIndex, now: Now) {
        let op = self.locks.ops.at(index);
        let outcome = op.outcome;
        let won = (outcome == Verdict::Won).then(|| op.slot());
        if matches!(outcome, Verdict::Taken | Verdict::NoQuorum) {
            self.locks.observe(Happening::WaitEnded);
        }
        self.locks.retire_offers(index, now);
        self.tell_waiting(now, |waiting, view| waiting.ended(index, won, view));
    }

    /// Releases a slot, and gives the turn to the first of its waiters. If that waiter is the heir,
    /// the hand-over itself does so.
    #[inline(always)]
    pub(super) fn release_slot(&mut self, slot_index: SlotIndex, heir: Option<Heir>, now: Now) {
        let nodes = self.locks.release_slot(slot_index, heir, now);
        if self.waiting.has_queue(slot_index) {
            self.pass_lock_on(slot_index, heir.map(|heir| Heir { nodes, ..heir }), now);
        }
        self.locks.slots.free_if_unnamed(slot_index);
    }

    /// Behind the release: wakes the first waiter, or watches the hand-over to it.
    #[cold]
    fn pass_lock_on(&mut self, slot_index: SlotIndex, heir: Option<Heir>, now: Now) {
        let key = self.locks.slots.at(slot_index).key.clone();
        let lock = (key, self.locks.fence_of(slot_index).unwrap_or(0));
        self.tell_waiting(now, |waiting, view| waiting.released(slot_index, lock, heir, view));
    }

    /// A node answered a question of a waiting call.
    pub(super) fn waited(&mut self, id: NodeId, pending: Pending, now: Now) {
        let Request::Wait { op: index, part, phase } = pending.request else { return };
        if !self.waiting.is_awaited(index, id, phase) {
            return;
        }
        let frame = self.take_frame(id);
        let decoded = Decoder::new(Limits::default()).frame(&frame);
        let reply = decoded.ok().flatten().map(|frame| frame.reply());
        let answer = answer_of(part, reply.as_ref());
        if answer == HolderAnswer::Refused {
            let refusal = reply.as_ref().map_or(command::Answer::Odd, command::classify);
            self.locks.nodes.at_mut(id).script_refused(refusal, now);
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

    /// A node returned how many clients received a wake.
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

    /// Gives the machine an input, and carries out its actions.
    pub(super) fn tell_waiting(
        &mut self,
        now: Now,
        input: impl FnOnce(&mut Waiting, &mut View<'_>),
    ) {
        self.input(now, input);
        self.act(now);
    }

    /// As [`tell_waiting`](Self::tell_waiting), for one call.
    pub(super) fn tell_call(&mut self, index: OpIndex, input: Input, now: Now) {
        self.tell_waiting(now, |waiting, view| waiting.step(index, input, view));
    }

    /// Carries out the actions of the machine, and the attempts that follow from them.
    fn act(&mut self, now: Now) {
        if std::mem::replace(&mut self.is_acting, true) {
            return;
        }
        while let Some(action) = self.waiting.actions.pop() {
            if let Some((op, gate)) = self.perform(action, now) {
                self.retry(op, gate, now);
            }
        }
        self.is_acting = false;
    }

    // ---- the machine's inputs and actions ----

    /// Takes the buffer `frame`, filled with the node's last answer. Put it back afterwards.
    pub(super) fn take_frame(&mut self, id: NodeId) -> Vec<u8> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.extend_from_slice(self.locks.nodes.at(id).frame());
        frame
    }

    fn call(&self, index: OpIndex) -> WaitCall {
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
        let nodes = &self.locks.nodes;
        Reach {
            all: nodes.all(),
            channel: nodes.those(Node::has_channel),
            scripts: nodes.those(|node| node.has_channel() && node.runs_scripts()),
            askable: nodes.those(Node::can_be_asked),
        }
    }

    pub(super) fn input<R>(
        &mut self,
        now: Now,
        input: impl FnOnce(&mut Waiting, &mut View<'_>) -> R,
    ) -> R {
        // If no timer is overdue, the loop slept until this input. So this input counts as a pass.
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
    fn perform(&mut self, action: Action, now: Now) -> Option<(OpIndex, Option<NodeId>)> {
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
        if !self.locks.nodes.at(id).has_room_unstalled(self.locks.scratch.len()) {
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
fn answer_of(part: WaitPart, reply: Option<&Reply<'_>>) -> HolderAnswer {
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

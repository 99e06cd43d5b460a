//! Waiting for a held lock: instead of trying again and again, a waiter tells the holder, and is
//! woken by the holder's release.
//!
//! After a denied attempt one node that denied it is asked who holds the key. If the holder is a
//! client of this kind, it is told by a message over that node, and the waiter is still until it is
//! woken, the key's time is over, or a slow safety poll finds the key gone. What is told is only a
//! hint: nobody holds a lock but by the votes of a quorum.
//!
//! # Invariants
//!
//! - A waiter has a timer in every state, so a lost message costs a safety poll and no more.
//! - A list of waiters is in one place: with the waiter that was woken by it, the slot it won, or a
//!   wake that is under way.

mod look;
mod message;
mod queue;
mod state;
mod wake;

use super::door::Engine;
use super::locks::op::Outcome;
use super::locks::slot::SlotState;
use super::locks::timers::Timer;
use super::spans::traced;
use crate::command::{append_get, append_pttl, append_publish};
use crate::error::Cause;
use crate::mutant::{self, Mutant};
use crate::node::{ChannelName, Now, Pending, Phase, Request, WaitPart};
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::resp::{Decoder, Limits, Reply};
use crate::round::Round;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::unhex;
use crate::witness::{Sight, saw};

use std::time::Duration;

pub(super) use message::{ClientId, RawToken};
pub(super) use queue::{ListIndex, Queues};
pub(super) use state::{WaitIndex, Waits};
pub(super) use wake::Wakes;

use message::{Kind, Listed, client_of, token_of, wait_ms, waiter_id};
use state::{Step, Wait};

/// The safety poll comes after this, and up to as long again.
const POLL: Duration = Duration::from_millis(100);

/// The first poll of one that queued behind another, where nobody was seen to hold the key: two
/// that wait for each other find out by it. So much later for each that has its turn before.
const FIRST_POLL: Duration = Duration::from_millis(10);
const POLL_A_TURN: Duration = Duration::from_millis(2);

/// A poll that finds the key gone looks again after this, and up to as long again.
const SECOND_LOOK: Duration = Duration::from_millis(1);

/// Where all nodes that deny it tell of the key's next change, a call looks at it after this and up to
/// as long again.
const TRACKED_POLL: Duration = Duration::from_secs(1);

/// Where nobody wakes it, no client looks at a key more often.
const POLL_MIN: Duration = Duration::from_millis(5);

/// From the third attempt in a row one waits this long, and up to five times as long.
const PAUSE: Duration = Duration::from_millis(1);

/// So many changes of hands are told to all nodes anew, before a waiter is still or tries again.
const CHANGES_MAX: u8 = 4;

impl Engine {
    /// The nodes in the order in which all clients ask them about `key`: so that messages for one
    /// lock mostly go one way, and those for different locks do not all go over one node.
    fn in_key_order(&self, key: &[u8]) -> impl Iterator<Item = NodeId> + use<> {
        let count = self.locks.nodes.len();
        let start = usize::try_from(hash(key) % count.max(1) as u64).unwrap_or(0);
        (0..count).filter_map(move |nth| NodeId::new((start + nth) % count))
    }

    /// The first node of `nodes`, in the key's order, that messages go over.
    fn first_with_channel(&self, nodes: NodeMask, key: &[u8]) -> Option<NodeId> {
        self.in_key_order(key)
            .find(|&id| nodes.contains(id) && self.locks.nodes.at(id).has_channel())
    }

    fn wait_of(&mut self, index: OpIndex) -> Option<&mut Wait> {
        let wait = self.locks.ops.at(index).wait?;
        Some(self.waits.at_mut(wait))
    }

    /// An attempt was denied and is released: the operation waits, if it may, and whether it does.
    pub(super) fn begin_wait(&mut self, index: OpIndex, now: Now) -> bool {
        let op = self.locks.ops.at(index);
        let (wait, ends) = (op.wait, op.plan.deadline);
        if !op.plan.wakes || ends <= now.real {
            return false;
        }
        if !self.locks.settings.direct_wake || !self.can_any_be_asked(op.round.denied) {
            return false;
        }
        if wait.is_none() {
            self.open_wait(index);
        }
        if let Some(wait) = self.wait_of(index) {
            (wait.asked, wait.changes) = (NodeMask::EMPTY, 0);
            wait.unheard = None;
            (wait.has_looked, wait.tracked) = (false, NodeMask::EMPTY);
            (wait.is_gone, wait.is_listed, wait.ahead) = (false, false, 0);
            wait.tries = wait.tries.saturating_add(1);
        }
        self.ask_next(index, now);
        true
    }

    /// A place among those that wait, until the end of the call at the latest.
    fn open_wait(&mut self, index: OpIndex) {
        let wait = self.waits.open(index);
        let op = self.locks.ops.at_mut(index);
        op.wait = wait;
        if op.plan.deadline < Instant::MAX && !mutant::is(Mutant::WaitWithoutEnd) {
            self.locks.timers.set(op.plan.deadline, Timer::Judge, self.locks.ops.id(index));
        }
    }

    /// The first node, in the key's order, that has denied the attempt by now and was not asked in
    /// vain.
    fn first_denier(&self, index: OpIndex) -> Option<NodeId> {
        let op = self.locks.ops.at(index);
        let asked = self.waits.at(op.wait?).asked;
        let key = self.locks.slots.at(op.slot()).key.as_bytes();
        self.first_with_channel(self.deniers(index).without(asked), key)
    }

    /// The nodes that have denied the attempt by now. Who queued behind another has made none: for
    /// it any node may have the key.
    fn deniers(&self, index: OpIndex) -> NodeMask {
        let round = &self.locks.ops.at(index).round;
        if round.written.is_empty() { self.locks.nodes.all() } else { round.denied }
    }

    /// Asks the next of the deniers who holds the key. Without one, nobody can be told.
    fn ask_next(&mut self, index: OpIndex, now: Now) {
        let Some(node) = self.first_denier(index) else {
            if let Some(wait) = self.wait_of(index) {
                wait.unheard = wait.holder;
            }
            return self.wait_without_word(index, now);
        };
        if !self.ask_holder(index, node, false, now) {
            self.asked_in_vain(index, node, now);
        }
    }

    fn ask_remaining(&mut self, index: OpIndex, id: NodeId, phase: Phase, now: Now) -> bool {
        self.locks.scratch.clear();
        append_pttl(
            &mut self.locks.scratch,
            &self.locks.slots.at(self.locks.ops.at(index).slot()).key,
        );
        self.ask(id, index, WaitPart::Remaining, phase, now)
    }

    /// A new question begins; answers to older ones mean nothing from now on.
    fn next_question(&mut self, index: OpIndex, node: NodeId, step: Step, now: Now) -> Phase {
        let due = now.real + self.locks.settings.node_timeout;
        self.waits.questions = self.waits.questions.wrapping_add(1);
        let questions = self.waits.questions;
        let Some(wait) = self.wait_of(index) else { return Phase::default() };
        wait.phase = Phase::of(questions);
        wait.node = Some(node);
        wait.step = step;
        let phase = wait.phase;
        self.wait_until(index, due);
        phase
    }

    /// Sets the one timer of a wait.
    fn wait_until(&mut self, index: OpIndex, due: Instant) {
        if let Some(wait) = self.wait_of(index) {
            wait.due = due;
            self.locks.timers.set(due, Timer::Wait, self.locks.ops.id(index));
        }
    }

    /// Writes the scratch buffer as a question of an operation.
    fn ask(&mut self, id: NodeId, index: OpIndex, part: WaitPart, phase: Phase, now: Now) -> bool {
        let request = Request::Wait { op: index, part, phase };
        self.locks.nodes.request(id, request, &self.locks.scratch, now.attended)
    }

    fn asked_in_vain(&mut self, index: OpIndex, node: NodeId, now: Now) {
        if let Some(wait) = self.wait_of(index) {
            wait.asked.insert(node);
        }
        self.ask_next(index, now);
    }

    /// Whether the operation still waits for the node's answer to the question of that phase.
    fn is_awaited(&self, index: OpIndex, id: NodeId, phase: Phase) -> bool {
        let op = self.locks.ops.at(index);
        let is_current = |wait: &Wait| wait.phase == phase && wait.node == Some(id);
        op.outcome == Outcome::Open
            && op
                .wait
                .map(|wait| self.waits.at(wait))
                .is_some_and(|wait| is_current(wait) && wait.step.is_asking())
    }

    /// A node answered a question of an operation that waits.
    pub(super) fn waited(&mut self, id: NodeId, pending: Pending, now: Now) {
        let Request::Wait { op: index, part, phase } = pending.request else { return };
        if !self.is_awaited(index, id, phase) {
            return;
        }
        let frame = self.take_frame(id);
        let decoded = Decoder::new(Limits::default()).frame(&frame);
        let reply = decoded.ok().flatten().map(|frame| frame.reply());
        match part {
            WaitPart::Holder => self.holder_told(index, id, reply.as_ref(), now),
            WaitPart::Remaining => self.remaining_told(index, id, reply.as_ref(), now),
            WaitPart::Announced => {
                let is_heard = matches!(reply, Some(Reply::Integer(1..)));
                self.announcement_told(index, is_heard, now);
            }
        }
        self.frame = frame;
    }

    /// The connection ended with a question unanswered.
    pub(super) fn wait_lost(&mut self, id: NodeId, pending: Pending, now: Now) {
        let Request::Wait { op: index, phase, .. } = pending.request else { return };
        if self.is_awaited(index, id, phase) {
            self.asked_in_vain(index, id, now);
        }
    }

    /// The node said who holds the key.
    fn holder_told(&mut self, index: OpIndex, id: NodeId, reply: Option<&Reply<'_>>, now: Now) {
        let Some(wait) = self.wait_of(index) else { return };
        let (step, before) = (wait.step, wait.holder);
        let holder = match reply {
            Some(Reply::Null) => return self.found_gone(index, id, now),
            Some(Reply::Bulk(token)) => unhex(token),
            // A lock of another kind, or a node that will not say.
            _ => None,
        };
        wait.holder = holder;
        wait.is_gone = false;
        // Nodes that hold different tokens, each left behind by somebody, look like a lock that
        // changes hands all the time: that is believed a few times only.
        if holder != before && wait.changes < CHANGES_MAX {
            wait.changes += 1;
            wait.asked = NodeMask::EMPTY;
        }
        match (step, holder) {
            // What is left of the key's time comes next.
            (Step::Asking, _) => {}
            (Step::Announcing, Some(token)) if Some(token) == before => {
                if wait.is_heard {
                    wait.is_listed = true;
                    self.listen(index, POLL, now);
                } else {
                    self.asked_in_vain(index, id, now);
                }
            }
            (Step::Polling, Some(token)) if Some(token) == before => self.listen(index, POLL, now),
            (Step::Announcing | Step::Polling, Some(token)) => {
                self.announce(index, id, token, now);
            }
            (Step::Announcing | Step::Polling, None) => self.wait_without_word(index, now),
            (Step::Trying | Step::Queueing | Step::Listening, _) => {}
        }
    }

    /// The node said how long the key is still there.
    fn remaining_told(&mut self, index: OpIndex, id: NodeId, reply: Option<&Reply<'_>>, now: Now) {
        let ends = match reply {
            Some(Reply::Integer(-2)) => return self.key_gone(index, id, now),
            Some(&Reply::Integer(left @ 0..)) => {
                // A key lives strictly longer than its milliseconds.
                let left = u32::try_from(left).unwrap_or(u32::MAX).saturating_add(1);
                now.real.plus_millis(left)
            }
            _ => Instant::MAX,
        };
        let Some(wait) = self.wait_of(index) else { return };
        wait.ends = ends;
        match wait.holder {
            Some(token) if wait.unheard != Some(token) => self.announce(index, id, token, now),
            _ => self.wait_without_word(index, now),
        }
    }

    /// Tells the holder of `token` that this client waits, and looks at the key again. By the first
    /// of the deniers, also where it denied too late to be asked: a holder that hears all by one
    /// node hears them in the order in which they came.
    fn announce(&mut self, index: OpIndex, id: NodeId, token: RawToken, now: Now) {
        let Some(id) = self.first_denier(index) else {
            return self.asked_in_vain(index, id, now);
        };
        let phase = self.next_question(index, id, Step::Announcing, now);
        let Some(wait) = self.wait_of(index) else { return };
        wait.is_heard = false;
        let is_told = self.tell_wait(index, id, &token, phase, now);
        self.locks.scratch.clear();
        let slot_index = self.locks.ops.at(index).slot();
        append_get(&mut self.locks.scratch, &self.locks.slots.at(slot_index).key);
        if !is_told || !self.ask(id, index, WaitPart::Holder, phase, now) {
            self.asked_in_vain(index, id, now);
        }
    }

    /// Publishes that the operation waits, and who waits behind it.
    fn tell_wait(
        &mut self,
        index: OpIndex,
        id: NodeId,
        token: &RawToken,
        phase: Phase,
        now: Now,
    ) -> bool {
        let op = self.locks.ops.at(index);
        let (deadline, slot_index) = (op.plan.deadline, op.slot());
        let Some(wait) = op.wait.map(|wait| self.waits.at_mut(wait)) else { return false };
        let own = waiter_id(self.locks.client_id, wait.call);
        let sender = Listed { id: own, wait_ms: wait_ms(now.real, deadline) };
        wait.named = wait.carried.len();
        let list = wait.carried.iter().map(|waiter| waiter.listed(now.real));
        let key = self.locks.slots.at(slot_index).key.as_bytes();
        self.text.clear();
        message::append(&mut self.text, (Kind::Announce, 0), sender, token, list, key);
        self.locks.scratch.clear();
        let channel = ChannelName::of(client_of(token));
        append_publish(&mut self.locks.scratch, channel.as_bytes(), &self.text);
        self.ask(id, index, WaitPart::Announced, phase, now)
    }

    /// The node said whether anybody heard the announcement.
    fn announcement_told(&mut self, index: OpIndex, is_heard: bool, now: Now) {
        if !is_heard {
            saw(Sight::Unheard);
        }
        let is_heard = is_heard && !mutant::is(Mutant::AnnouncementUnheard);
        let Some(wait) = self.wait_of(index) else { return };
        wait.is_heard = is_heard;
        if is_heard {
            // The list is with the holder now.
            wait.hand_list_on();
        }
        if wait.step == Step::Queueing {
            if is_heard {
                let poll = FIRST_POLL + POLL_A_TURN.saturating_mul(wait.ahead);
                self.listen(index, poll.min(POLL), now);
            } else {
                self.try_again(index, None, now);
            }
        }
    }

    /// Is still until it is woken, the key's time is over or the safety poll is due.
    fn listen(&mut self, index: OpIndex, poll: Duration, now: Now) {
        let mut poll = now.real + poll.mul_f64(1.0 + self.locks.random_share());
        if mutant::is(Mutant::PollLate) {
            poll = poll + Duration::from_secs(2);
        }
        let Some(wait) = self.wait_of(index) else { return };
        wait.step = Step::Listening;
        (wait.tries, wait.changes) = (0, 0);
        traced!(DEBUG: self.locks.trace_wait(index));
        let Some(wait) = self.wait_of(index) else { return };
        let due = poll.min(wait.ends.max(now.real));
        self.wait_until(index, due);
    }

    /// The node asked does not have the key. Where one polls who is listed with a holder, the lock may
    /// just be on its way from one to the next: only if it still is at a second look was nobody woken.
    fn found_gone(&mut self, index: OpIndex, id: NodeId, now: Now) {
        let Some(wait) = self.wait_of(index) else { return };
        let is_poll = match wait.step {
            Step::Polling => wait.is_listed,
            Step::Announcing => wait.is_listed && wait.is_heard,
            Step::Trying | Step::Asking | Step::Queueing | Step::Listening => false,
        };
        if is_poll && !wait.is_gone {
            wait.is_gone = true;
            return self.listen(index, SECOND_LOOK, now);
        }
        if wait.step == Step::Polling {
            saw(Sight::PollFoundGone);
        }
        self.key_gone(index, id, now);
    }

    /// The node does not have the key: it is tried there first, and with the others only when it
    /// grants, for many may have seen the same.
    fn key_gone(&mut self, index: OpIndex, id: NodeId, now: Now) {
        self.try_again(index, Some(id), now);
    }

    /// The timer of a wait.
    pub(super) fn wait_due(&mut self, index: OpIndex, now: Now) {
        let slot_index = self.locks.ops.at(index).slot();
        let Some(wait) = self.wait_of(index) else { return };
        if wait.due > now.real {
            return;
        }
        let (step, node, ends, is_heard) = (wait.step, wait.node, wait.ends, wait.is_heard);
        wait.due = Instant::MAX;
        match step {
            Step::Trying => {
                let gate = wait.node.filter(|_| wait.tries > 0);
                self.attempt_again(index, gate, now);
            }
            // It did not answer in time, which does for a node that is down.
            Step::Asking | Step::Announcing | Step::Polling => {
                if let Some(node) = node {
                    self.asked_in_vain(index, node, now);
                }
            }
            Step::Queueing => self.try_again(index, None, now),
            Step::Listening if ends <= now.real => self.try_again(index, node, now),
            Step::Listening if !is_heard => self.look(index, now),
            Step::Listening => {
                let key = self.locks.slots.at(slot_index).key.as_bytes();
                let all = self.locks.nodes.all();
                let node = node.filter(|&node| self.locks.nodes.at(node).has_channel());
                let node = node.or_else(|| self.first_with_channel(all, key));
                let Some(node) = node else { return self.try_again(index, None, now) };
                let phase = self.next_question(index, node, Step::Polling, now);
                self.locks.scratch.clear();
                append_get(&mut self.locks.scratch, &self.locks.slots.at(slot_index).key);
                if !self.ask(node, index, WaitPart::Holder, phase, now) {
                    self.try_again(index, None, now);
                }
            }
        }
    }

    /// The next attempt, at once or, where several failed in a row, after a short pause.
    fn try_again(&mut self, index: OpIndex, gate: Option<NodeId>, now: Now) {
        let pause = PAUSE.mul_f64(1.0 + 4.0 * self.locks.random_share());
        let Some(wait) = self.wait_of(index) else { return };
        wait.step = Step::Trying;
        wait.node = gate;
        if wait.tries >= 3 {
            self.wait_until(index, now.real + pause);
        } else {
            wait.due = Instant::MAX;
            self.attempt_again(index, gate, now);
        }
    }

    fn attempt_again(&mut self, index: OpIndex, gate: Option<NodeId>, now: Now) {
        self.locks.ops.at_mut(index).gate = gate;
        self.retry(index, now);
        // Not left for whoever has the place next, where no attempt was made.
        self.locks.ops.at_mut(index).gate = None;
    }

    /// This client woke somebody for `key` a moment ago: it goes to the end of that queue instead
    /// of racing. Whether it did.
    pub(super) fn queue_behind(&mut self, index: OpIndex, now: Now) -> bool {
        let op = self.locks.ops.at(index);
        let slot_index = op.slot();
        if !op.plan.wakes || mutant::is(Mutant::ReleaserBarges) {
            return false;
        }
        self.wakes.forget_past(now.real);
        let key = self.locks.slots.at(slot_index).key.as_bytes();
        let successor = self.wakes.successor(hash(key), now.real);
        let Some(successor) = successor.filter(|last| last.is_turn) else { return false };
        let (ahead, node, token) = (successor.behind, successor.node, token_of(successor.id));
        if !self.locks.nodes.at(node).has_channel() {
            return false;
        }
        saw(Sight::QueuedBehind);
        self.open_wait(index);
        let slot = self.locks.slots.at_mut(slot_index);
        slot.state = SlotState::Released;
        slot.op = Some(index);
        let op = self.locks.ops.at_mut(index);
        (op.outcome, op.failed, op.round) = (Outcome::Open, Outcome::Taken, Round::default());
        op.causes = [Cause::Queued; NODES_MAX];
        op.began.note(now.real);
        let phase = self.next_question(index, node, Step::Queueing, now);
        // It will say so to the same if it gives up.
        if let Some(wait) = self.wait_of(index) {
            wait.holder = Some(token);
            wait.ahead = ahead;
        }
        if !self.tell_wait(index, node, &token, phase, now) {
            self.try_again(index, None, now);
        }
        true
    }

    /// An attempt failed that others have heard of as a lock: they wait behind its operation now.
    #[cold]
    pub(super) fn carry_list(&mut self, index: OpIndex, slot_index: SlotIndex) {
        let list = self.queues.take(&mut self.locks.slots, slot_index);
        if self.locks.ops.at(index).wait.is_none() {
            self.open_wait(index);
        }
        if let Some(wait) = self.wait_of(index) {
            for waiter in list {
                queue::append(&mut wait.carried, waiter);
            }
        }
    }

    /// The operation has ended: whoever waits behind it is not forgotten, and a holder that was
    /// told hears that it waits no more.
    pub(super) fn end_wait(&mut self, index: OpIndex, now: Now) {
        let op = self.locks.ops.at_mut(index);
        let wait = op.wait.take();
        let (slot_index, outcome) = (op.slot(), op.outcome);
        let Some(wait) = wait else { return };
        let place = self.waits.at(wait);
        let (is_told, holder, node) = (place.is_heard, place.holder, place.node);
        let id = waiter_id(self.locks.client_id, place.call);
        let list = self.waits.close(wait);
        if matches!(outcome, Outcome::Taken | Outcome::NoQuorum) {
            saw(Sight::WaitEnded);
        }
        if outcome == Outcome::Won {
            self.wakes.forget(hash(self.locks.slots.at(slot_index).key.as_bytes()));
            self.queues.begin(&mut self.locks.slots, slot_index, list);
            return;
        }
        let is_told = is_told && !mutant::is(Mutant::GiveUpNotTold);
        if let (true, Some(token), Some(node)) = (is_told, holder, node) {
            saw(Sight::GaveUp);
            self.give_up(id, slot_index, node, &token, now);
        }
        if !list.is_empty() {
            let key = self.locks.slots.at(slot_index).key.clone();
            self.wake_first(key, list, now);
        }
    }
}

/// FNV-1a: the same on every client.
fn hash(key: &[u8]) -> u64 {
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

//! Releases and debts: every key that this client may have written and does not hold is deleted,
//! behind its SET, by compare-and-delete.
//!
//! # Invariants
//!
//! - A release goes behind the SET on the same connection, or over a later connection to a node
//!   that lost the one before (then twice, see [`crate::node::Debt`]).
//! - A key is given up only when its node answered, or when time has surely ended it.

use super::op::{OpId, OpKind, Outcome};
use super::slot::{LeaseId, NO_OP, SlotState};
use super::trace::traced;
use super::wait::NO_LIST;
use super::{Engine, Event};
use crate::command::{Answer, ReleaseStep, append_release};
use crate::error::{Cause, UnlockError, Unlocked};
use crate::mutant::{self, Mutant};
use crate::node::{Debt, Debts, Node, Now, REFUSED_DELAY, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::round::{Decision, Tally};
use crate::time::Instant;
use crate::token::TokenBytes;

impl Engine {
    /// Releases a lease and reports how that went.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotOurs`] if the lease is not held any more; [`UnlockError::Full`] if the
    /// result cannot be reported: it is released all the same.
    pub fn unlock(&mut self, lease: LeaseId, now: Instant) -> Result<OpId, UnlockError> {
        if self.slots.held(lease).is_none() {
            return Err(UnlockError::NotOurs);
        }
        self.release_reported(lease.slot, now)
    }

    /// Releases a lease without a report: nothing waits for the answers. Harmless when the lease is
    /// not held any more.
    pub fn release(&mut self, lease: LeaseId, now: Instant) {
        if self.slots.held(lease).is_some() {
            let now = self.now(now);
            self.cancel_extension(lease.slot);
            self.counts.unreported.up();
            self.release_slot(lease.slot, now);
        }
    }

    /// An extension under way ends with the release: the two never race.
    fn cancel_extension(&mut self, slot_index: u32) {
        self.end_keep_alive(slot_index);
        let extension = self.slots.at(slot_index).op;
        if extension != NO_OP && self.ops.at(extension).outcome == Outcome::Open {
            self.finish(extension, Outcome::Cancelled);
        }
    }

    /// Deletes `key` on every node where it holds `token`, whoever made it.
    ///
    /// # Errors
    ///
    /// [`UnlockError::InvalidName`] for a key or token of impossible length, [`UnlockError::Full`].
    pub fn unlock_token(
        &mut self,
        key: &[u8],
        token: &[u8],
        now: Instant,
    ) -> Result<OpId, UnlockError> {
        let token = TokenBytes::from_wire(token).ok_or(UnlockError::InvalidName)?;
        let key = self.wire_key(key).map_err(|_| UnlockError::InvalidName)?;
        let slot_index = self.open_foreign(&key, token);
        let result = self.release_reported(slot_index, now);
        self.slots.free_if_unnamed(slot_index);
        result
    }

    /// A slot for a key and token from elsewhere: any node may hold it.
    pub(super) fn open_foreign(&mut self, key: &[u8], token: TokenBytes) -> u32 {
        let ttl_ms = self.settings.max_ttl_ms;
        let all = NodeMask::first(self.nodes.len());
        let slot_index = self.slots.open(key, token);
        let slot = self.slots.at_mut(slot_index);
        slot.state = SlotState::Held;
        slot.holds = all;
        slot.ttl_ms = ttl_ms;
        slot.ttl_longest_ms = ttl_ms;
        slot.ends = Instant::MAX;
        slot_index
    }

    /// Gives a lease away: its keys stay, and whoever has key and token may end or extend it.
    pub fn detach(&mut self, lease: LeaseId) {
        if self.slots.held(lease).is_some() {
            self.end_keep_alive(lease.slot);
            self.forget_slot(lease.slot);
        }
    }

    /// Ends a slot without deleting its keys.
    pub(super) fn forget_slot(&mut self, slot_index: u32) {
        let slot = self.slots.at_mut(slot_index);
        slot.state = SlotState::Released;
        slot.holds = NodeMask::EMPTY;
        if slot.is_kept() {
            self.end_keeping(slot_index);
        }
        // Whoever has it now is not told of them: they find out for themselves.
        drop(self.queues.take(&mut self.slots, slot_index));
        self.slots.free_if_unnamed(slot_index);
    }

    fn release_reported(&mut self, slot_index: u32, now: Instant) -> Result<OpId, UnlockError> {
        let now = self.now(now);
        // First of all: an extension of the engine's own gives its place back.
        self.cancel_extension(slot_index);
        let Some(index) = self.ops.open(OpKind::Release) else {
            self.counts.unreported.up();
            self.release_slot(slot_index, now);
            return Err(UnlockError::Full);
        };
        self.slots.at_mut(slot_index).op = index;
        self.ops.at_mut(index).slot = slot_index;
        self.begin_round(index, now);
        self.release_slot(slot_index, now);
        if !self.ops.at(index).tally.open.has_at_least(self.settings.quorum) {
            self.decide_release(slot_index);
        }
        Ok(self.ops.id(index))
    }

    /// Sends a compare-and-delete to every node that may hold the slot's key, or owes it.
    pub(super) fn release_slot(&mut self, slot_index: u32, now: Now) {
        let all = NodeMask::first(self.nodes.len());
        let slot = self.slots.at_mut(slot_index);
        if matches!(slot.state, SlotState::Released | SlotState::Free) {
            return;
        }
        slot.state = SlotState::Released;
        slot.phase = slot.phase.next();
        slot.ends = now.real.plus_millis(slot.ttl_longest_ms);
        let (mut holds, op, is_kept) = (slot.holds, slot.op, slot.is_kept());
        traced!(DEBUG: self.trace_release(slot_index));
        if op != NO_OP && mutant::is(Mutant::ReleaseNotBehindSet) {
            let unknown = self.ops.at(op).round.unknown;
            let unanswered = self.slots.at(slot_index).unanswered;
            holds = holds.without(unanswered.without(unknown));
        }
        if op != NO_OP && mutant::is(Mutant::UnknownNotReleased) {
            holds = holds.without(self.ops.at(op).round.unknown);
        }
        if op != NO_OP {
            self.ops.at_mut(op).tally = Tally::begin(holds, all.without(holds));
        }
        if is_kept {
            self.end_keeping(slot_index);
        }
        let step = self.cohort.step;
        let mut others = holds;
        if !holds.intersection(self.cohort.nodes).is_empty() {
            self.encode_release(slot_index, step);
            let request = Request::Release(step);
            others = holds.without(self.write_cohort(holds, request, slot_index, now));
        }
        let mut encoded = None;
        for id in others {
            self.send_release(id, slot_index, &mut encoded, now);
        }
        if self.slots.at(slot_index).list != NO_LIST {
            self.pass_lock_on(slot_index, now);
        }
        self.slots.free_if_unnamed(slot_index);
    }

    /// Behind the release: wakes the first of those who wait for the key.
    #[cold]
    fn pass_lock_on(&mut self, slot_index: u32, now: Now) {
        let list = self.queues.take(&mut self.slots, slot_index);
        let key = self.slots.at(slot_index).key.clone();
        self.wake_first(key, list, now);
    }

    /// Writes the release to one node, or notes it as owed. `encoded` is the step that the scratch
    /// buffer holds.
    fn send_release(
        &mut self,
        id: NodeId,
        slot_index: u32,
        encoded: &mut Option<ReleaseStep>,
        now: Now,
    ) {
        let Some(step) = self.release_step(id) else {
            return self.owe(id, slot_index, now);
        };
        if *encoded != Some(step) {
            self.encode_release(slot_index, step);
            *encoded = Some(step);
        }
        if !self.write(id, Request::Release(step), slot_index, now) {
            self.owe(id, slot_index, now);
        }
    }

    fn encode_release(&mut self, slot_index: u32, step: ReleaseStep) {
        let slot = self.slots.at(slot_index);
        self.scratch.clear();
        append_release(&mut self.scratch, step, &slot.key, &slot.token);
    }

    /// Writes the scratch buffer to one node as a request for the slot.
    #[inline]
    pub(super) fn write(
        &mut self,
        id: NodeId,
        request: Request,
        slot_index: u32,
        now: Now,
    ) -> bool {
        let Some(node) = self.nodes.get_mut(id.index()) else { return false };
        let is_written = node.request(request, slot_index, &self.scratch, now.attended);
        if is_written {
            self.slots.at_mut(slot_index).refs += 1;
            self.with_output.insert(id);
        }
        is_written
    }

    /// The debt that the slot's key is to a node.
    fn debt(&self, id: NodeId, slot_index: u32) -> Debt {
        let slot = self.slots.at(slot_index);
        let may_still_run = slot.unanswered.union(slot.tainted).contains(id)
            && !mutant::is(Mutant::DebtEndsBeforeSet);
        Debt {
            slot: slot_index,
            due: Instant::default(),
            expires: if may_still_run { Instant::MAX } else { slot.ends },
            again: slot.unanswered.contains(id) && !mutant::is(Mutant::DebtPaidOnce),
        }
    }

    /// Owes a node the release: it cannot be reached now.
    fn owe(&mut self, id: NodeId, slot_index: u32, now: Now) {
        let debt = self.debt(id, slot_index);
        if debt.expires <= now.real || mutant::is(Mutant::DebtDropped) {
            return self.release_unpaid(id, slot_index);
        }
        self.note_debt(id, debt, Debts::push);
        self.release_unpaid(id, slot_index);
    }

    /// A node answered a release with an error: it is asked again later.
    fn owe_refused(&mut self, id: NodeId, slot_index: u32, again: bool, now: Now) {
        let debt = Debt { due: now.real + REFUSED_DELAY, again, ..self.debt(id, slot_index) };
        if debt.expires > now.real {
            self.note_debt(id, debt, Debts::push_refused);
        }
        self.release_unpaid(id, slot_index);
    }

    /// Puts a debt into one of the node's lists; the oldest may have to go.
    fn note_debt(&mut self, id: NodeId, debt: Debt, push: fn(&mut Debts, Debt) -> Option<u32>) {
        self.slots.at_mut(debt.slot).refs += 1;
        self.restless.insert(id);
        self.node_mut(id).counts.debts.up();
        traced!(DEBUG: self.trace_debt(id, debt.slot));
        if let Some(dropped) = push(&mut self.node_mut(id).debts, debt) {
            traced!(WARN: self.trace_debt_dropped(id));
            self.slots.unref(dropped);
        }
    }

    /// A release that waits for its result will not get this node's answer in time, unless the
    /// node is just coming back.
    fn release_unpaid(&mut self, id: NodeId, slot_index: u32) {
        if !self.node(id).is_on_the_way() {
            let op = self.slots.at(slot_index).op;
            if op != NO_OP {
                self.ops.at_mut(op).tally.open.remove(id);
            }
        }
        self.decide_release(slot_index);
    }

    /// Writes as many debts as the node takes now, before anything else.
    pub(super) fn pay_debts(&mut self, id: NodeId, now: Now) {
        while let Some(debt) = self.node_mut(id).next_debt(now.real) {
            let Some(step) = self.release_step(id) else { return };
            if debt.expires > now.real {
                self.encode_release(debt.slot, step);
                let request = Request::Debt { step, again: debt.again };
                if !self.write(id, request, debt.slot, now) {
                    self.note_debt(id, debt, Debts::push);
                    return self.slots.unref(debt.slot);
                }
                traced!(DEBUG: self.trace_debt_paid(id, debt.slot));
            }
            self.slots.unref(debt.slot);
        }
    }

    /// A node answered a release.
    pub(super) fn release_answered(
        &mut self,
        id: NodeId,
        slot_index: u32,
        step: ReleaseStep,
        answer: Answer,
        now: Now,
    ) {
        match answer {
            Answer::One | Answer::Zero | Answer::Refused(Cause::WrongType) => {
                self.release_done(id, slot_index, answer == Answer::One, now);
            }
            Answer::Ok | Answer::Null | Answer::NoScript | Answer::Refused(_) | Answer::Odd => {
                if let Some(step) = self.next_release_step(id, step, answer, now) {
                    self.encode_release(slot_index, step);
                    if !self.write(id, Request::Release(step), slot_index, now) {
                        self.owe(id, slot_index, now);
                    }
                } else {
                    let again = self.slots.at(slot_index).unanswered.contains(id);
                    self.owe_refused(id, slot_index, again, now);
                }
            }
        }
    }

    /// A node in good standing deleted the key.
    #[inline(always)]
    pub(super) fn key_deleted(&mut self, id: NodeId, slot_index: u32, now: Instant) {
        let slot = self.slots.at_mut(slot_index);
        if slot.unanswered.contains(id) {
            return self.release_read(id, slot_index, true, now);
        }
        slot.holds.remove(id);
        slot.refs -= u16::from(!mutant::is(Mutant::SlotLeaked));
        let (index, refs) = (slot.op, slot.refs);
        if index != NO_OP {
            let tally = &mut self.ops.at_mut(index).tally;
            tally.yes(id);
            if tally.may_just_be_decided(self.settings.quorum) {
                self.decide_release(slot_index);
            }
        } else if refs == 0 {
            self.slots.free_if_unnamed(slot_index);
        }
    }

    /// The answer to a release was read; it names its slot no more.
    #[inline(never)]
    pub(super) fn release_read(
        &mut self,
        id: NodeId,
        slot_index: u32,
        deleted: bool,
        now: Instant,
    ) {
        self.release_done(id, slot_index, deleted, self.both_clocks(now));
        self.answer_taken(slot_index);
    }

    /// An awaited answer has come, and names its slot no more.
    #[inline]
    pub(super) fn answer_taken(&mut self, slot_index: u32) {
        if !mutant::is(Mutant::SlotLeaked) {
            self.slots.unref(slot_index);
        }
    }

    /// A node has deleted the key, or does not have it.
    pub(super) fn release_done(&mut self, id: NodeId, slot_index: u32, deleted: bool, now: Now) {
        let slot = self.slots.at_mut(slot_index);
        if slot.op != NO_OP {
            let tally = &mut self.ops.at_mut(slot.op).tally;
            if deleted {
                tally.yes(id);
            } else {
                tally.no(id);
            }
        }
        if slot.unanswered.contains(id) {
            // The SET went over a connection that died: it may run behind this release.
            self.owe_again(id, slot_index, now);
        } else {
            slot.holds.remove(id);
        }
        self.decide_release(slot_index);
    }

    /// A node answered a debt.
    pub(super) fn debt_answered(
        &mut self,
        id: NodeId,
        slot_index: u32,
        step: ReleaseStep,
        again: bool,
        answer: Answer,
        now: Now,
    ) {
        match answer {
            Answer::One | Answer::Zero | Answer::Refused(Cause::WrongType) => {
                let slot = self.slots.at_mut(slot_index);
                // The first answer is the release's result; it may still be waited for.
                if slot.op != NO_OP {
                    let tally = &mut self.ops.at_mut(slot.op).tally;
                    if tally.open.contains(id) {
                        if answer == Answer::One {
                            tally.yes(id);
                        } else {
                            tally.no(id);
                        }
                    }
                }
                if again {
                    self.owe_again(id, slot_index, now);
                } else {
                    slot.unanswered.remove(id);
                    slot.holds.remove(id);
                }
                self.decide_release(slot_index);
            }
            Answer::Ok | Answer::Null | Answer::NoScript | Answer::Refused(_) | Answer::Odd => {
                if let Some(step) = self.next_release_step(id, step, answer, now) {
                    self.encode_release(slot_index, step);
                    if self.write(id, Request::Debt { step, again }, slot_index, now) {
                        return;
                    }
                }
                self.owe_refused(id, slot_index, again, now);
            }
        }
    }

    /// The connection ended before the release was answered.
    pub(super) fn release_lost(&mut self, id: NodeId, slot_index: u32, now: Now) {
        self.owe(id, slot_index, now);
    }

    /// The connection ended before the debt was answered.
    pub(super) fn debt_lost(&mut self, id: NodeId, slot_index: u32, again: bool) {
        let debt = Debt { again, ..self.debt(id, slot_index) };
        self.note_debt(id, debt, Debts::push);
    }

    fn owe_again(&mut self, id: NodeId, slot_index: u32, now: Now) {
        let due = now.real + self.settings.node_timeout;
        let debt = Debt { due, again: false, ..self.debt(id, slot_index) };
        self.note_debt(id, debt, Debts::push_again);
    }

    /// What to send instead of a release that was answered with an error; `None` to try the same
    /// later.
    fn next_release_step(
        &mut self,
        id: NodeId,
        step: ReleaseStep,
        answer: Answer,
        now: Now,
    ) -> Option<ReleaseStep> {
        match answer {
            Answer::NoScript if mutant::is(Mutant::NoScriptNotFollowed) => None,
            Answer::NoScript => Some(ReleaseStep::Eval),
            Answer::Refused(Cause::Unsupported | Cause::NoPermission) => {
                let node = self.node_mut(id);
                node.dialect.leave_release(step);
                if node.dialect.release.is_none() {
                    node.refuse(Cause::NoDialect, now.real);
                }
                self.gather_cohort();
                self.release_step(id)
            }
            Answer::Refused(cause) => {
                self.note_refusal(id, cause, now);
                None
            }
            Answer::Ok | Answer::Null | Answer::Zero | Answer::One | Answer::Odd => None,
        }
    }

    /// Decides a release whose result is awaited, if the answers suffice.
    pub(super) fn decide_release(&mut self, slot_index: u32) {
        let slot = self.slots.at(slot_index);
        if slot.op == NO_OP || slot.state != SlotState::Released {
            return;
        }
        let index = slot.op;
        let op = self.ops.at(index);
        let tally = op.tally;
        if op.kind != OpKind::Release || op.outcome != Outcome::Open {
            return;
        }
        let unlocked = match tally.decide(self.settings.node_count, self.settings.quorum) {
            Decision::Won => Ok(Unlocked::Released),
            Decision::Lost => Err(UnlockError::NotHeld),
            Decision::Open if tally.open.is_empty() => Ok(Unlocked::Unknown),
            Decision::Open => return,
        };
        self.finish(index, Outcome::Unlocked(unlocked));
    }

    #[inline(never)]
    pub(super) fn report_release(&mut self, index: u32) -> Option<Event> {
        let op = self.ops.at(index);
        let (slot_index, outcome) = (op.slot, op.outcome);
        let op = self.ops.id(index);
        self.ops.close(index);
        debug_assert_eq!(self.slots.at(slot_index).op, index, "a release has its slot");
        self.slots.at_mut(slot_index).op = NO_OP;
        self.slots.free_if_unnamed(slot_index);
        let result =
            if let Outcome::Unlocked(result) = outcome { result } else { Ok(Unlocked::Unknown) };
        self.counts.note_release(result);
        traced!(DEBUG: self.trace_released(index, result));
        Some(Event::Unlock { op, result })
    }

    /// How many releases are owed or unanswered that can be settled by `until`, over all nodes.
    #[must_use]
    pub(crate) fn releases_open(&self, until: Instant) -> usize {
        self.nodes
            .iter()
            .filter(|node| node.is_greeted() || node.is_on_the_way())
            .map(|node| {
                let is_mute = node.is_stalled();
                unanswered(node) + if is_mute { 0 } else { node.debts.due_by(until) }
            })
            .sum()
    }

    /// How many releases are owed or unanswered at `now`, over all nodes, those that are away too. Each
    /// is one key at one node, which lives until the release is done or its TTL ends.
    #[must_use]
    pub fn releases_owed(&self, now: Instant) -> usize {
        self.nodes.iter().map(|node| owed(node, now)).sum()
    }

    /// The client is gone: says which nodes are owed releases whose answer nobody reads.
    pub(crate) fn note_left(&mut self, now: Instant) {
        for id in NodeMask::first(self.nodes.len()) {
            let owed = owed(self.node(id), now);
            self.node_mut(id).counts.left.add(owed);
            if owed > 0 {
                traced!(WARN: self.trace_left(id, owed));
            }
        }
    }
}

fn owed(node: &Node, now: Instant) -> usize {
    unanswered(node) + node.debts.living(now)
}

/// The releases that were written to a node and are not answered.
fn unanswered(node: &Node) -> usize {
    let is_release = |request| matches!(request, Request::Release(_) | Request::Debt { .. });
    node.pending().filter(|pending| is_release(pending.request)).count()
}

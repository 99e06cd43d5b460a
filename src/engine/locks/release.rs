//! Releases and debts: the client deletes every key that it may have written and does not hold. The
//! compare-and-delete goes behind the SET. A release may hand its lock over: a script per node
//! writes a waiter's token in place of the holder's, and tells the waiter.
//!
//! # Invariants
//!
//! - A release goes behind the SET on the same connection. If that connection was lost, the client
//!   sends the release on a later connection, and twice if the SET was not answered (see
//!   [`crate::node::Debt`]).
//! - The client stops deleting a key only when the node has answered, or when the key's TTL has
//!   certainly ended. The exception: when the list of debts is full, the client drops a debt.
//! - The holder counts its lease as ended from the moment at which the scripts are written,
//!   whatever the nodes answer.
//! - The answer to a delete counts in the release of its lock, and nowhere else.
//! - A node that answers a script with an error gets the plain release at once, and no script for a
//!   while. After a lost script the client owes the delete of the holder's own token, never the
//!   waiter's.

use super::core::Locks;
use super::op::{OpId, OpKind, Verdict};
use super::slot::{Mark, TokenInput, TokenState};
use crate::command::{Answer, ReleaseStep, append_release, append_transfer};
use crate::engine::event::{Event, LostCause};
use crate::engine::happenings::Happening;
use crate::engine::wait::{Heir, MARK_AT};
use crate::error::{Cause, UnlockError, Unlocked};
use crate::node::{Debt, DebtDue, Now, REFUSED_DELAY, Request, TransfersName};
use crate::quorum::{NodeId, NodeMask};
use crate::round::{Decision, Tally};
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;

use std::time::Duration;

impl Locks {
    /// Deletes `key` on every node where it holds `token`.
    pub(in crate::engine) fn release_token(
        &mut self,
        key: &[u8],
        token: &[u8],
        now: Instant,
    ) -> Result<OpId, UnlockError> {
        let token = TokenBytes::from_wire(token).ok_or(UnlockError::InvalidName)?;
        let key = self.prefix.wire_key(key).map_err(|_| UnlockError::InvalidName)?;
        let (own, now) = (self.slot_in_hand(&key, &token), self.called_at(now));
        if let Some(own) = own {
            self.lose_lease(own, LostCause::Gone, now);
        }
        let slot_index = self.open_foreign(&key, token);
        let result = self.open_release(slot_index, now);
        self.release_slot(slot_index, None, now);
        self.slots.free_if_unnamed(slot_index);
        result
    }

    /// An extension under way ends with the release: the two never race.
    pub(in crate::engine) fn cancel_extension(&mut self, slot_index: SlotIndex) {
        self.end_keep_alive(slot_index);
        let op = self.slots.at(slot_index).op;
        if let Some(extension) = op.filter(|&op| self.ops.at(op).outcome == Verdict::Open) {
            self.finish(extension, Verdict::Cancelled);
        }
    }

    /// Takes a place for the report of a release that follows. [`UnlockError::Full`]: the release
    /// will not be reported.
    #[inline(always)]
    pub(in crate::engine) fn open_release(
        &mut self,
        slot_index: SlotIndex,
        now: Now,
    ) -> Result<OpId, UnlockError> {
        // This comes first, so that an extension of the engine's own gives its place back.
        self.cancel_extension(slot_index);
        let Some(index) = self.ops.open(OpKind::Release) else {
            self.observe(Happening::Unreported);
            return Err(UnlockError::Full);
        };
        self.slots.at_mut(slot_index).op = Some(index);
        self.ops.at_mut(index).set_slot(slot_index);
        self.begin_round(index, now);
        Ok(self.ops.id(index))
    }

    /// Decides a release that has just begun, if too few nodes are still to answer.
    pub(in crate::engine) fn conclude_release(&mut self, op: OpId) {
        let op = self.ops.at(op.op);
        if !op.tally.open.has_at_least(self.settings.quorum) {
            self.decide_release(op.slot());
        }
    }

    /// Sends a compare-and-delete to every node that may hold the slot's key, or notes it as owed.
    /// With an heir, the nodes that can hand the lock over get the script instead; returns those
    /// nodes. The caller frees the slot, once it has told the slot's waiters.
    pub(in crate::engine) fn release_slot(
        &mut self,
        slot_index: SlotIndex,
        heir: Option<Heir>,
        now: Now,
    ) -> NodeMask {
        let (all, is_handed_over) = (self.nodes.all(), heir.is_some());
        let slot = self.slots.at_mut(slot_index);
        if !slot.state().is_alive() {
            return NodeMask::EMPTY;
        }
        let is_attempt =
            matches!(slot.state(), TokenState::Gated | TokenState::Asking | TokenState::Won);
        let call = slot.op.filter(|_| is_attempt);
        let goes_on = call.is_some_and(|call| self.ops.at(call).goes_on());
        if rules::ends_lease(is_handed_over) {
            // Each branch calls `step` with its own input, so that the compiler sees a constant.
            if goes_on {
                slot.step(TokenInput::Fail);
            } else {
                slot.step(TokenInput::Release);
            }
        }
        slot.phase = slot.phase.next();
        slot.ends = now.real.plus_millis(slot.ttl_longest_ms);
        let (mut holds, unanswered) = (slot.holds, slot.unanswered);
        let (op, is_kept) = (slot.op, slot.has(Mark::KEPT));
        self.observe(Happening::Release { slot: slot_index });
        if let Some(op) = op {
            let op = self.ops.at_mut(op);
            holds = rules::with_unanswered(holds, unanswered.without(op.round.unknown));
            holds = rules::with_unknown(holds, op.round.unknown);
            holds = rules::with_cancelled(holds, op.outcome == Verdict::Cancelled);
            op.tally = Tally::begin(holds, all.without(holds));
        }
        let claim = if is_kept { self.take_claim(slot_index) } else { None };
        if rules::ends_keeping(is_kept) {
            self.end_keeping(slot_index);
        }
        let (mut others, mut scripts) = (holds, NodeMask::EMPTY);
        if let Some(heir) = heir {
            scripts = self.write_transfers(slot_index, heir, holds, now);
            others = holds.without(scripts);
        } else if let Some(step) = self.nodes.common_release(holds) {
            self.encode_release(slot_index, step);
            let request = Request::Release { slot: slot_index, step };
            others = holds.without(self.write_cohort(holds, request, now));
        }
        let mut encoded = None;
        for id in others {
            self.send_release(id, slot_index, &mut encoded, now);
        }
        if let Some(claim) = claim {
            self.delete_claim(&claim, slot_index, now);
        }
        scripts
    }

    /// Writes the script to those of `holds` that can run it. Returns those nodes.
    #[cold]
    fn write_transfers(
        &mut self,
        slot_index: SlotIndex,
        heir: Heir,
        holds: NodeMask,
        now: Now,
    ) -> NodeMask {
        let channel = TransfersName::of(&heir.offer.token);
        let to = (&TokenBytes::Drawn(heir.offer.token), heir.offer.ttl_ms);
        let mut written = NodeMask::EMPTY;
        for id in holds.intersection(heir.nodes) {
            let node = self.nodes.at(id);
            let Some(mark) = node.mark() else { continue };
            let text = &mut self.heir_text;
            if let Some(place) = text.get_mut(MARK_AT..).and_then(<[u8]>::first_chunk_mut) {
                *place = rules::mark_of(mark);
            }
            let slot = self.slots.at(slot_index);
            self.scratch.clear();
            let by = (channel.as_bytes(), text.as_slice());
            append_transfer(&mut self.scratch, &slot.key, &slot.token, to, by);
            if self.write(id, Request::Transfer(slot_index), now) {
                written.insert(id);
            }
        }
        written
    }

    /// Writes the release to one node, or notes it as owed. `encoded` is the step that the scratch
    /// buffer holds.
    pub(super) fn send_release(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        encoded: &mut Option<ReleaseStep>,
        now: Now,
    ) {
        let Some(step) = self.nodes.release_step(id) else {
            return self.owe(id, slot_index, now);
        };
        if *encoded != Some(step) {
            self.encode_release(slot_index, step);
            *encoded = Some(step);
        }
        if !self.write(id, Request::Release { slot: slot_index, step }, now) {
            self.owe(id, slot_index, now);
        }
    }

    fn encode_release(&mut self, slot_index: SlotIndex, step: ReleaseStep) {
        let slot = self.slots.at(slot_index);
        debug_assert_ne!(slot.state(), TokenState::GivenAway, "another client may have the lock");
        self.scratch.clear();
        append_release(&mut self.scratch, step, &slot.key, &slot.token);
    }

    /// The debt to a node for the slot's key.
    fn debt(&self, id: NodeId, slot_index: SlotIndex) -> Debt {
        let slot = self.slots.at(slot_index);
        let may_still_run =
            rules::may_set_still_run(slot.unanswered.union(slot.tainted).contains(id));
        // If the node's clock is slow, the key lives longer.
        let drift = self.settings.drift.of_ms(slot.ttl_longest_ms.into());
        let gone_at = slot.ends + Duration::from_millis(drift);
        Debt {
            slot: slot_index,
            due: Instant::default(),
            expires: if may_still_run { Instant::MAX } else { gone_at },
            again: rules::is_owed_twice(slot.unanswered.contains(id)),
        }
    }

    /// Notes the release as owed to a node that cannot be reached now.
    pub(in crate::engine) fn owe(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        let debt = self.debt(id, slot_index);
        if !rules::is_debt_over(debt.expires, now.real) {
            self.note_debt(id, debt, DebtDue::OnceReached);
        }
        self.release_unpaid(id, slot_index);
    }

    /// A node answered a release with an error: the client repeats the release later.
    fn owe_refused(&mut self, id: NodeId, slot_index: SlotIndex, again: bool, now: Now) {
        let debt = Debt { due: now.real + REFUSED_DELAY, again, ..self.debt(id, slot_index) };
        if debt.expires > now.real {
            self.note_debt(id, debt, DebtDue::Refused);
        }
        self.release_unpaid(id, slot_index);
    }

    /// Adds a debt to one of the node's lists. If they are full, the client drops another debt.
    fn note_debt(&mut self, id: NodeId, debt: Debt, due: DebtDue) {
        self.slots.at_mut(debt.slot).refs += 1;
        self.observe(Happening::DebtOwed { node: id, slot: debt.slot });
        if let Some(dropped) = self.nodes.owe(id, debt, due) {
            self.observe(Happening::DebtDropped { node: id });
            self.slots.unref(dropped);
        }
    }

    /// The release stops waiting for this node's answer, unless the node is just coming back.
    fn release_unpaid(&mut self, id: NodeId, slot_index: SlotIndex) {
        if !self.nodes.at(id).is_on_the_way()
            && let Some(tally) = self.tally_of_release(slot_index)
        {
            tally.open.remove(id);
        }
        self.decide_release(slot_index);
    }

    /// Writes as many debts as the node accepts now, before anything else.
    pub(in crate::engine) fn pay_debts(&mut self, id: NodeId, now: Now) {
        while let Some(debt) = self.nodes.at_mut(id).next_debt(now.real) {
            let Some(step) = self.nodes.release_step(id) else { return };
            if debt.expires > now.real && !self.is_debt_void(debt.slot) {
                self.encode_release(debt.slot, step);
                let request = Request::Debt { slot: debt.slot, step, again: debt.again };
                if !self.write(id, request, now) {
                    self.note_debt(id, debt, DebtDue::OnceReached);
                    return self.slots.unref(debt.slot);
                }
                self.observe(Happening::DebtPaid { node: id, slot: debt.slot });
                if self.slots.at(debt.slot).state() == TokenState::Offered {
                    self.end_votes(id, debt.slot);
                }
            }
            self.slots.unref(debt.slot);
        }
    }

    /// The client deletes an offered token at a node. From now on no grant by the node's server
    /// counts, not even one through another node's address.
    pub(super) fn end_votes(&mut self, id: NodeId, slot_index: SlotIndex) {
        let slot = self.slots.at_mut(slot_index);
        slot.set(Mark::DOUBTED, true);
        for node in self.nodes.elsewhere(id).union(NodeMask::of(id)) {
            slot.tainted.insert(node);
            rules::take_vote_back(&mut slot.granted, node);
        }
    }

    /// An offer has become a lease. A node that has answered the delete of the offer gets the
    /// extensions of the lease, unless the node may still run another such delete.
    pub(super) fn end_doubt(&mut self, id: NodeId, slot_index: SlotIndex) {
        let is_delete =
            |request| matches!(request, Request::Debt { slot, .. } if slot == slot_index);
        let may_run = self.nodes.at(id).pending().any(|pending| is_delete(pending.request));
        let is_alone = self.nodes.elsewhere(id).is_empty();
        let slot = self.slots.at_mut(slot_index);
        // An extension may be the cause of a doubt, too.
        let is_unclear = slot.has(Mark::DELETE_LOST) || slot.is_extended();
        if slot.state().is_lock() && is_alone && !may_run && !is_unclear {
            slot.tainted.remove(id);
            slot.set(Mark::DOUBTED, !slot.tainted.is_empty());
        }
    }

    /// Whether the client owes nothing for a slot any more. Its offer has become a lease, which has
    /// its own release, or the lock is given away.
    fn is_debt_void(&self, slot_index: SlotIndex) -> bool {
        let slot = self.slots.at(slot_index);
        let is_lease = slot.has(Mark::OFFERED) && slot.state().is_lock();
        rules::is_debt_void(is_lease) || slot.state() == TokenState::GivenAway
    }

    /// A node answered a release.
    pub(in crate::engine) fn release_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        step: ReleaseStep,
        answer: Answer,
        now: Now,
    ) {
        if let Some(deleted) = answer.deleted() {
            self.release_done(id, slot_index, deleted, now);
        } else if let Some(step) = self.next_step(id, step, answer, now) {
            self.encode_release(slot_index, step);
            if !self.write(id, Request::Release { slot: slot_index, step }, now) {
                self.owe(id, slot_index, now);
            }
        } else {
            let again = self.slots.at(slot_index).unanswered.contains(id);
            self.owe_refused(id, slot_index, again, now);
        }
    }

    /// A node answered the script that hands the lock over. Returns whether the waiter was told.
    pub(in crate::engine) fn transfer_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Answer,
        now: Now,
    ) -> bool {
        let is_told = answer == Answer::Ok;
        let deleted = if is_told { Some(true) } else { answer.deleted() };
        if let Some(deleted) = deleted {
            self.release_done(id, slot_index, deleted, now);
            return is_told;
        }
        self.nodes.at_mut(id).script_refused(answer, now);
        if let Answer::Refused(cause) = answer
            && !matches!(cause, Cause::NoPermission | Cause::KeyDenied)
        {
            self.nodes.note_refusal(id, cause, now.real);
        }
        if rules::is_released_plainly(true) {
            self.send_release(id, slot_index, &mut None, now);
        }
        false
    }

    /// A node in good standing deleted the key.
    #[inline(always)]
    pub(in crate::engine) fn key_deleted(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        now: Instant,
    ) {
        let slot = self.slots.at_mut(slot_index);
        if slot.unanswered.contains(id) {
            return self.release_read(id, slot_index, true, now);
        }
        slot.holds.remove(id);
        slot.refs = rules::names_left(slot.refs);
        let (index, refs) = (slot.op, slot.refs);
        if let Some(index) = index {
            let tally = &mut self.ops.at_mut(index).tally;
            tally.yes(id);
            if tally.may_just_be_decided(self.settings.quorum) {
                self.decide_release(slot_index);
            }
        } else if refs == 0 {
            self.slots.free_if_unnamed(slot_index);
        }
    }

    /// The engine has read the answer to a release: it no longer names its slot.
    #[inline(never)]
    pub(in crate::engine) fn release_read(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        deleted: bool,
        now: Instant,
    ) {
        self.release_done(id, slot_index, deleted, self.both_clocks(now));
        self.slots.unref(slot_index);
    }

    /// A node has deleted the key, or does not have it.
    pub(in crate::engine) fn release_done(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        deleted: bool,
        now: Now,
    ) {
        // The first answer of a node counts. A second delete finds nothing.
        let tally = self.tally_of_release(slot_index);
        if let Some(tally) = tally.filter(|tally| tally.open.contains(id)) {
            if rules::has_released(deleted) {
                tally.yes(id);
            } else {
                tally.no(id);
            }
        }
        let slot = self.slots.at_mut(slot_index);
        // A SET from a dead connection may still run, or a holder's script may be on its way:
        // either may run after this release. The node tells the client of a script, and the client
        // then deletes the key. The node tells nothing of a SET, and only an extension sends a SET
        // for an offer.
        let is_of_script = slot.has(Mark::OFFERED) && !slot.is_extended();
        let is_told = is_of_script && self.nodes.at(id).takes_transfers();
        if rules::may_run_behind(slot.unanswered.contains(id), is_told) {
            self.owe_again(id, slot_index, now);
        } else {
            slot.holds.remove(id);
            slot.unanswered.remove(id);
        }
        self.decide_release(slot_index);
    }

    /// A node answered a debt.
    pub(in crate::engine) fn debt_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        step: ReleaseStep,
        again: bool,
        answer: Answer,
        now: Now,
    ) {
        self.end_doubt(id, slot_index);
        let Some(deleted) = answer.deleted() else {
            if let Some(step) = self.next_step(id, step, answer, now)
                && !self.is_debt_void(slot_index)
            {
                self.encode_release(slot_index, step);
                if self.write(id, Request::Debt { slot: slot_index, step, again }, now) {
                    return;
                }
            }
            return self.owe_refused(id, slot_index, again, now);
        };
        // The first answer is the release's result, which a caller may still await. If the lock was an
        // offer when the client paid, the release itself is still to come.
        let is_behind = |request| {
            matches!(request, Request::Release { slot, .. } | Request::Transfer(slot)
                if slot == slot_index)
        };
        let is_first = self.slots.at(slot_index).op.is_some()
            && !self.nodes.at(id).pending().any(|pending| is_behind(pending.request));
        if let Some(tally) = self.tally_of_release(slot_index).filter(|_| is_first) {
            // A missing key proves nothing: the release may have run before its connection
            // ended, or the node may have restarted without the key.
            if rules::has_released(deleted) && tally.open.contains(id) {
                tally.yes(id);
            } else {
                tally.open.remove(id);
            }
        }
        if again {
            self.owe_again(id, slot_index, now);
        } else {
            let slot = self.slots.at_mut(slot_index);
            slot.unanswered.remove(id);
            slot.holds.remove(id);
        }
        self.decide_release(slot_index);
    }

    /// The votes of a release, if one is under way. The slot's operation may be an extension,
    /// during which a node answers the delete of the offer.
    fn tally_of_release(&mut self, slot_index: SlotIndex) -> Option<&mut Tally> {
        let op = self.ops.at_mut(self.slots.at(slot_index).op?);
        (op.kind == OpKind::Release).then_some(&mut op.tally)
    }

    /// The connection ended before the debt was answered.
    pub(in crate::engine) fn debt_lost(&mut self, id: NodeId, slot_index: SlotIndex, again: bool) {
        self.slots.at_mut(slot_index).set(Mark::DELETE_LOST, true);
        let debt = Debt { again, ..self.debt(id, slot_index) };
        self.note_debt(id, debt, DebtDue::OnceReached);
    }

    fn owe_again(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        let due = now.real + self.settings.node_timeout;
        let debt = Debt { due, again: false, ..self.debt(id, slot_index) };
        self.note_debt(id, debt, DebtDue::Again);
    }

    /// Decides a release whose result a caller awaits, if the answers suffice.
    pub(in crate::engine) fn decide_release(&mut self, slot_index: SlotIndex) {
        let slot = self.slots.at(slot_index);
        let Some(index) = slot.op.filter(|_| slot.state() == TokenState::Released) else { return };
        let op = self.ops.at(index);
        let tally = op.tally;
        if op.kind != OpKind::Release || op.outcome != Verdict::Open {
            return;
        }
        let unlocked = match tally.decide(self.settings.electorate_of(slot)) {
            Decision::Won => Ok(Unlocked::Released),
            Decision::Lost => Err(UnlockError::NotHeld),
            Decision::Open if tally.open.is_empty() => Ok(Unlocked::Unknown),
            Decision::Open => return,
        };
        self.finish(index, Verdict::Unlocked(unlocked));
    }

    #[inline(never)]
    pub(in crate::engine) fn report_release(&mut self, index: OpIndex) -> Event {
        let op = self.ops.at(index);
        let (slot_index, outcome) = (op.slot(), op.outcome);
        let op = self.ops.id(index);
        self.close_op(index);
        debug_assert_eq!(self.slots.at(slot_index).op, Some(index), "a release has its slot");
        self.slots.at_mut(slot_index).op = None;
        self.slots.free_if_unnamed(slot_index);
        let result =
            if let Verdict::Unlocked(result) = outcome { result } else { Ok(Unlocked::Unknown) };
        self.observe(Happening::Released { op: index, result });
        Event::Unlock { op, result }
    }
}

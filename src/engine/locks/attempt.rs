//! One attempt at a lock: a round of SETs with its own token, from the first byte to the lease.

use super::core::{Failed, Locks};
use super::op::{Op, OpKind, Verdict};
use super::slot::{LeaseId, Mark, TokenInput, TokenState};
use crate::command::Answer;
use crate::engine::event::Event;
use crate::engine::happenings::Happening;
use crate::error::{Cause, LockError, Vote};
use crate::node::{Now, Request};
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::round::Round;
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;

impl Locks {
    /// The slot of an attempt for the key that is under way, or has won and is not reported yet.
    /// Costs a look at every operation.
    pub(in crate::engine) fn attempt_for(&self, key: &[u8]) -> Option<SlotIndex> {
        let acquisitions = self.ops.iter().filter(|op| op.kind == OpKind::Acquire);
        let mut slots = acquisitions.map(Op::slot);
        slots.find(|&index| {
            self.slots
                .get(index)
                .is_some_and(|slot| slot.state().is_lock() && slot.key.as_slice() == key)
        })
    }

    /// An attempt begins. Nothing is written yet.
    #[inline(always)]
    pub(in crate::engine) fn prepare_attempt(
        &mut self,
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) -> Instant {
        self.nodes.look_again(now);
        let t0 = rules::validity_begins(now.real);
        let deadline = self.deadline_from(t0, self.ops.at(index).plan.ttl_ms);
        let op = self.ops.at_mut(index);
        op.outcome = Verdict::Open;
        op.round = Round::default();
        op.set_slot(slot_index);
        op.causes = [Cause::None; NODES_MAX];
        op.judge_at = Instant::MAX;
        let (ttl_ms, call_ends) = (op.plan.ttl_ms, op.plan.deadline);
        let slot = self.slots.at_mut(slot_index);
        slot.op = Some(index);
        slot.ttl_ms = ttl_ms;
        slot.ttl_longest_ms = ttl_ms;
        slot.ends = deadline;
        slot.began = now.real;
        self.observe(Happening::Attempt { op: index });
        call_ends
    }

    /// One attempt: the SET goes to every node that may vote, in one encoding, or first to the
    /// gate.
    #[must_use]
    pub(in crate::engine) fn attempt(
        &mut self,
        index: OpIndex,
        slot_index: SlotIndex,
        gate: Option<NodeId>,
        now: Now,
    ) -> Option<Failed> {
        let call_ends = self.prepare_attempt(index, slot_index, now);
        let (mut voters, mut request) = (self.nodes.voters(), Request::Set(slot_index));
        if self.slots.at(slot_index).has(Mark::FENCED) {
            self.propose_fence(slot_index, now);
            self.encode_fenced_set(slot_index);
            (voters, request) = (self.voters_by_clock(), Request::FencedSet(slot_index));
        } else {
            self.encode_plain_set(slot_index);
        }
        if let Some(gate) = gate
            && let Some(gated) = self.gated_by(gate, voters)
        {
            return self.try_gate((gate, gated), index, slot_index, now);
        }
        let written = self.write_sets(index, slot_index, (voters, request), now);
        for node in voters.without(written) {
            self.send_set(node, slot_index, now);
        }
        let absent = self.nodes.all().without(voters);
        let mut awaited = NodeMask::EMPTY;
        if !absent.is_empty() {
            awaited = self.nodes.awaitable(voters, absent, &self.settings.electorate);
            for node in absent.without(awaited) {
                self.fail_vote(node, slot_index);
            }
        }
        if awaited.is_empty() {
            self.begin_round(index, now);
        } else {
            self.ops.at_mut(index).round.awaited = awaited;
            self.awaiting.push(index);
            self.judge_at(index, now.real + self.settings.connect_timeout);
        }
        self.judge_by_call(index, call_ends, now);
        if written == self.nodes.all() { None } else { self.decide(slot_index) }
    }

    /// An attempt ends with its call.
    #[inline(always)]
    pub(super) fn judge_by_call(&mut self, index: OpIndex, call_ends: Instant, now: Now) {
        if call_ends < now.real.plus_nanos(self.settings.longest_wait_nanos) {
            self.judge_at(index, call_ends);
        }
    }

    /// Whether a call for a lock has no attempt under way: it waits for its next one.
    pub(in crate::engine) fn is_between_attempts(&self, index: OpIndex) -> bool {
        self.slots.at(self.ops.at(index).slot()).state() == TokenState::Between
    }

    /// The attempt's time is up.
    #[must_use]
    pub(in crate::engine) fn judge_attempt(&mut self, index: OpIndex, now: Now) -> Option<Failed> {
        let slot_index = self.ops.at(index).slot();
        let op = self.ops.at_mut(index);
        let (open, awaited) = (op.round.open(), std::mem::take(&mut op.round.awaited));
        let vote = Vote::Unknown(Cause::Timeout);
        for node in open {
            op.round.enter(node, vote);
        }
        op.blame_all(open, Cause::Timeout);
        for node in open {
            self.observe(Happening::Vote { node, slot: slot_index, vote });
        }
        for node in awaited {
            self.fail_vote(node, slot_index);
        }
        if self.slots.at(slot_index).has(Mark::FENCED) {
            self.give_up_raise(slot_index);
        }
        self.go_on_or_decide(slot_index, now)
    }

    /// After a vote: an attempt that has asked one node goes on by that node's vote, and another is
    /// decided if its votes suffice.
    #[inline]
    #[must_use]
    fn go_on_or_decide(&mut self, slot_index: SlotIndex, now: Now) -> Option<Failed> {
        if self.slots.at(slot_index).state() == TokenState::Gated {
            self.gate_answered(slot_index, now)
        } else {
            self.decide(slot_index)
        }
    }

    /// A node in good standing granted, and the number of grants decides. Counts the vote, if there
    /// is nothing else to do. Returns whether it did.
    #[inline(always)]
    pub(in crate::engine) fn set_granted(&mut self, id: NodeId, slot_index: SlotIndex) -> bool {
        debug_assert!(self.settings.electorate.takes_any(), "of two lists, the nodes decide");
        let slot = self.slots.at_mut(slot_index);
        let is_counted = matches!(slot.state(), TokenState::Asking | TokenState::Won);
        let Some(op) = slot.op.filter(|_| is_counted) else { return false };
        slot.unanswered.remove(id);
        slot.refs = rules::names_left(slot.refs);
        self.observe(Happening::Vote { node: id, slot: slot_index, vote: Vote::Granted });
        let round = &mut self.ops.at_mut(op).round;
        // Only the end of its connection, or of the round, makes a vote unknown before its answer.
        round.grant(id);
        if round.is_quorum_just_met(self.settings.quorum) {
            let failed = self.decide(slot_index);
            debug_assert!(failed.is_none(), "a grant rules no quorum out");
        }
        true
    }

    /// A node answered the SET of an attempt.
    #[inline]
    #[must_use]
    pub(in crate::engine) fn set_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Answer,
        now: Now,
    ) -> Option<Failed> {
        let vote = match answer {
            Answer::Ok => self.vote_of_grant(id, now),
            Answer::Null => Vote::Denied,
            Answer::Refused(cause) => Vote::Failed(cause),
            Answer::Zero | Answer::One | Answer::Number | Answer::Odd => {
                Vote::Unknown(Cause::OddReply)
            }
        };
        self.voted(id, slot_index, vote, now)
    }

    /// The vote of a node that granted. A grant that was read after the node said that it is not a
    /// master does not count. Nor does one that came too long behind the last look at the node.
    #[inline]
    pub(super) fn vote_of_grant(&mut self, id: NodeId, now: Now) -> Vote {
        let is_trusted = self.nodes.at(id).is_plain() || self.is_believed_in_trouble(id, now);
        if !rules::is_grant_trusted(is_trusted) {
            Vote::Unknown(Cause::Quarantined)
        } else if self.nodes.at(id).is_watched(now) {
            Vote::Granted
        } else {
            Vote::Unknown(Cause::Timeout)
        }
    }

    /// A node has voted in an attempt.
    #[inline]
    #[must_use]
    pub(super) fn voted(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        vote: Vote,
        now: Now,
    ) -> Option<Failed> {
        self.observe(Happening::Vote { node: id, slot: slot_index, vote });
        let slot = self.slots.at_mut(slot_index);
        if vote == Vote::Granted {
            slot.granted.insert(id);
        }
        // A first SET may still run at a node that gets the token of a lease again.
        let is_second = slot.state() == TokenState::Held && slot.tainted.contains(id);
        if !is_second {
            slot.unanswered.remove(id);
        }
        if matches!(vote, Vote::Denied | Vote::Failed(_)) && !is_second {
            // The node wrote nothing, unless a release already went to it; its answer will tell.
            slot.holds.remove(id);
        }
        if let Some(op) = slot.op {
            let op = self.ops.at_mut(op);
            if op.kind == OpKind::Acquire {
                op.round.enter(id, vote);
            }
        }
        match slot.state() {
            TokenState::Asking | TokenState::Won | TokenState::Gated => {
                if let (Vote::Failed(cause) | Vote::Unknown(cause), Some(op)) = (vote, slot.op) {
                    self.ops.at_mut(op).blame(id, cause);
                }
                return self.go_on_or_decide(slot_index, now);
            }
            TokenState::Between | TokenState::Released => {
                // The key's TTL may have begun only now.
                let gone_at = now.real.plus_millis(slot.ttl_longest_ms);
                slot.ends = rules::debt_ends(slot.ends, gone_at);
            }
            TokenState::Held => self.late_vote(id, slot_index, vote, now),
            TokenState::Free | TokenState::Offered | TokenState::GivenAway => {}
        }
        None
    }

    /// Notes a grant of a node that is in trouble or not admitted. The grant counts only if the
    /// node is admitted.
    #[cold]
    fn is_believed_in_trouble(&mut self, id: NodeId, now: Now) -> bool {
        self.nodes.at_mut(id).granted_in_trouble(now.real);
        self.nodes.at(id).is_admitted()
    }

    /// The connection ended before the SET was answered.
    #[must_use]
    pub(in crate::engine) fn set_lost(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        now: Now,
    ) -> Option<Failed> {
        let slot = self.slots.at_mut(slot_index);
        let vote = Vote::Unknown(Cause::ConnectionLost);
        if !slot.state().is_deleted() && slot.state() != TokenState::GivenAway {
            self.observe(Happening::Vote { node: id, slot: slot_index, vote });
        }
        let slot = self.slots.at_mut(slot_index);
        if slot.state().is_attempt() || slot.state() == TokenState::Won {
            if let Some(op) = slot.op {
                let op = self.ops.at_mut(op);
                op.round.enter(id, vote);
                op.blame(id, Cause::ConnectionLost);
            }
            return self.go_on_or_decide(slot_index, now);
        }
        if slot.state() == TokenState::Held {
            self.late_vote(id, slot_index, vote, now);
        }
        None
    }

    /// The client's id, the masked slot of the token, and 8 random bytes.
    pub(in crate::engine) fn draw_token(&mut self) -> TokenBytes {
        let mut raw = [0; 20];
        let (words, _) = raw.as_chunks_mut::<4>();
        let client = self.client_id.bytes();
        let (id, _) = client.as_chunks::<4>();
        for (word, part) in words.iter_mut().zip(id) {
            *word = *part;
        }
        let slot = self.slots.next() ^ self.slot_mask;
        for (word, nth) in words.iter_mut().skip(id.len()).zip(0..) {
            let bits = if nth == 0 { slot } else { self.random.bits() };
            *word = bits.to_le_bytes();
        }
        TokenBytes::Drawn(raw)
    }

    /// Takes the result.
    #[inline(never)]
    pub(in crate::engine) fn report_acquire(
        &mut self,
        index: OpIndex,
        now: Instant,
    ) -> Option<Event> {
        let op = self.ops.at(index);
        let (slot_index, outcome, keep) = (op.slot(), op.outcome, op.keep);
        let is_whole = op.part.is_none();
        let granted = op.round.granted;
        let op = self.ops.id(index);
        if outcome == Verdict::Won {
            self.observe(Happening::Lease { op: index, slot: slot_index, now });
            self.close_op(index);
            let slot = self.slots.at_mut(slot_index);
            slot.op = None;
            slot.step(TokenInput::Take);
            slot.granted = granted;
            let lease = LeaseId { slot: slot_index, generation: slot.generation };
            if let Some(keep) = keep {
                self.begin_keeping(slot_index, keep, self.both_clocks(now));
                if is_whole {
                    self.claim(slot_index, self.both_clocks(now));
                }
            }
            return Some(Event::Lock { op, result: Ok(lease) });
        }
        let error = self.lock_error(index, now);
        self.observe(Happening::Refused { op: index, outcome, error: &error, now });
        self.close_op(index);
        if let Some(keep) = keep {
            self.close_keep(keep);
        }
        debug_assert_eq!(
            self.slots.at(slot_index).op,
            Some(index),
            "a call that failed has its slot"
        );
        self.slots.at_mut(slot_index).op = None;
        self.slots.free_if_unnamed(slot_index);
        Some(Event::Lock { op, result: Err(error) })
    }

    /// Why the call has no lease.
    fn lock_error(&self, index: OpIndex, now: Instant) -> LockError {
        let op = self.ops.at(index);
        let (round, outcome) = (op.round, op.outcome);
        let granted = if outcome == Verdict::Expired { op.late } else { round.granted };
        let unknown = round.unknown.union(round.open()).without(granted);
        let denied = if outcome == Verdict::Taken { op.denials() } else { round.denied };
        let denied = denied.without(granted);
        let ballot = self.ballot(index, granted, denied, unknown, now);
        match outcome {
            Verdict::Taken => LockError::Taken(ballot),
            Verdict::Expired => LockError::Expired(ballot),
            Verdict::Cancelled => LockError::Cancelled,
            Verdict::NoQuorum
            | Verdict::Won
            | Verdict::Open
            | Verdict::Lost
            | Verdict::Unlocked(_)
            | Verdict::Answered => LockError::NoQuorum(ballot),
        }
    }
}

//! One attempt at a lock: a round of SETs with its own token, from the first byte to the decision.
//!
//! # Invariants
//!
//! - A node that may not vote gets no request. Its vote fails at once, unless the attempt waits for
//!   the node to connect.
//! - An accept of a fence counts only where a grant would count: the client read it from an
//!   admitted node.

use super::core::{Failed, Locks};
use super::op::{OpKind, Verdict};
use super::slot::{Mark, TokenInput, TokenState};
use crate::command::Answer;
use crate::engine::happenings::Happening;
use crate::error::{Cause, Vote};
use crate::node::{Now, Request};
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::round::{Decision, Round};
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;

impl Locks {
    /// Begins an attempt, and writes nothing yet. Returns the end of its call.
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
            && voters.contains(gate)
            && voters != NodeMask::of(gate)
            && self.settings.electorate.has_quorum(voters)
        {
            return self.try_gate((gate, voters), index, slot_index, now);
        }
        let written = self.write_cohort(voters, request, now);
        self.ops.at_mut(index).round.written = written;
        let slot = self.slots.at_mut(slot_index);
        (slot.holds, slot.unanswered) = (written, written);
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

    /// Judges the attempt at the end of its call, if that may come before the attempt's other
    /// limits.
    #[inline(always)]
    pub(super) fn judge_by_call(&mut self, index: OpIndex, call_ends: Instant, now: Now) {
        if call_ends < now.real.plus_nanos(self.settings.longest_wait_nanos) {
            self.judge_at(index, call_ends);
        }
    }

    /// Encodes the SET of an attempt, or the command in its place.
    fn encode_set(&mut self, slot_index: SlotIndex) {
        if self.slots.at(slot_index).has(Mark::FENCED) {
            self.encode_fenced_set(slot_index);
        } else {
            self.encode_plain_set(slot_index);
        }
    }

    /// Writes the encoded SET to one node.
    #[inline]
    fn send_set(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        let request = self.set_request(slot_index);
        if self.clock_allows(id, slot_index) && self.write(id, request, now) {
            let slot = self.slots.at_mut(slot_index);
            slot.holds.insert(id);
            slot.unanswered.insert(id);
            if let Some(op) = slot.op {
                self.ops.at_mut(op).round.written.insert(id);
            }
        } else {
            self.fail_vote(id, slot_index);
        }
    }

    #[inline]
    fn set_request(&self, slot_index: SlotIndex) -> Request {
        if self.slots.at(slot_index).has(Mark::FENCED) {
            Request::FencedSet(slot_index)
        } else {
            Request::Set(slot_index)
        }
    }

    #[inline]
    fn clock_allows(&self, id: NodeId, slot_index: SlotIndex) -> bool {
        !self.slots.at(slot_index).has(Mark::FENCED) || self.does_clock_agree(id)
    }

    /// The attempt does not ask the node: it wrote nothing there.
    pub(super) fn fail_vote(&mut self, id: NodeId, slot_index: SlotIndex) {
        let is_off = self.nodes.voters().contains(id) && !self.clock_allows(id, slot_index);
        let cause = if is_off { Cause::ClockOff } else { self.nodes.at(id).cause() };
        let vote = Vote::Failed(cause);
        if let Some(op) = self.slots.at(slot_index).op {
            let op = self.ops.at_mut(op);
            op.round.enter(id, vote);
            op.blame(id, cause);
        }
        self.observe(Happening::Vote { node: id, slot: slot_index, vote });
    }

    /// Writes the encoded SET to one node, the gate, first. The attempt asks the others once the
    /// gate has granted. So clients that all saw the key end do not split the votes. The gate of a
    /// lock with slots is a key: see `sets/slots.rs`.
    #[cold]
    #[must_use]
    fn try_gate(
        &mut self,
        (gate, voters): (NodeId, NodeMask),
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) -> Option<Failed> {
        self.observe(Happening::Gated);
        self.slots.at_mut(slot_index).step(TokenInput::Gate);
        self.send_set(gate, slot_index, now);
        self.ops.at_mut(index).gated = voters.without(NodeMask::of(gate));
        for node in self.nodes.all().without(voters) {
            self.fail_vote(node, slot_index);
        }
        self.begin_round(index, now);
        // The gate may have had no room for the SET.
        self.gate_answered(slot_index, now)
    }

    /// Continues an attempt that has asked one node only, by that node's vote.
    #[must_use]
    fn gate_answered(&mut self, slot_index: SlotIndex, now: Now) -> Option<Failed> {
        let slot = self.slots.at_mut(slot_index);
        let index = slot.op?;
        let round = self.ops.at(index).round;
        if !round.granted.is_empty() {
            slot.step(TokenInput::Open);
            let gated = std::mem::take(&mut self.ops.at_mut(index).gated);
            self.encode_set(slot_index);
            for node in gated {
                // The node may have lost its vote since.
                if rules::may_be_asked(self.nodes.voters().contains(node)) {
                    self.send_set(node, slot_index, now);
                } else {
                    self.fail_vote(node, slot_index);
                }
            }
            self.begin_round(index, now);
            self.decide(slot_index)
        } else if round.open().is_empty() {
            let is_taken = !round.denied.is_empty();
            let outcome = if is_taken { Verdict::Taken } else { Verdict::NoQuorum };
            let gated = std::mem::take(&mut self.ops.at_mut(index).gated);
            for node in gated {
                let round = &mut self.ops.at_mut(index).round;
                round.enter(node, Vote::Failed(Cause::Gated));
                self.ops.at_mut(index).blame(node, Cause::Gated);
                self.observe(Happening::NotAsked { node });
            }
            Some(Failed { op: index, outcome })
        } else {
            None
        }
    }

    /// A node for which the attempt waits may vote now, or never will.
    #[must_use]
    pub(in crate::engine) fn settle_awaited_set(
        &mut self,
        id: NodeId,
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) -> Option<Failed> {
        if !self.nodes.voters().contains(id) {
            self.fail_vote(id, slot_index);
            return self.decide(slot_index);
        }
        let t0 = rules::validity_begins(now.real);
        let deadline = self.deadline_from(t0, self.ops.at(index).plan.ttl_ms);
        let is_first = self.ops.at(index).round.written.is_empty();
        if rules::begins_validity(is_first) {
            // `t0` is the time of the first byte.
            self.slots.at_mut(slot_index).ends = deadline;
        }
        self.encode_set(slot_index);
        self.send_set(id, slot_index, now);
        let round = &self.ops.at(index).round;
        if self.settings.electorate.has_quorum(round.written) {
            self.judge_at(index, now.real + self.settings.node_timeout);
        }
        self.decide(slot_index)
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
        if let Some(fencing) = self.slots.fences.of_mut(slot_index) {
            fencing.give_up();
        }
        self.go_on_or_decide(slot_index, now)
    }

    /// After a vote: a gated attempt goes on by the gate's vote. Any other attempt is decided once
    /// its votes suffice.
    #[inline]
    #[must_use]
    fn go_on_or_decide(&mut self, slot_index: SlotIndex, now: Now) -> Option<Failed> {
        if self.slots.at(slot_index).state() == TokenState::Gated {
            self.gate_answered(slot_index, now)
        } else {
            self.decide(slot_index)
        }
    }

    /// A node in good standing granted, and the number of grants decides. Counts the vote of an
    /// attempt that is asking or has won. Returns whether it counted.
    #[inline(always)]
    pub(in crate::engine) fn set_granted(&mut self, id: NodeId, slot_index: SlotIndex) -> bool {
        debug_assert!(
            self.settings.electorate.takes_any(),
            "with two lists, the number of grants does not decide"
        );
        let slot = self.slots.at_mut(slot_index);
        let is_counted = matches!(slot.state(), TokenState::Asking | TokenState::Won);
        let Some(op) = slot.op.filter(|_| is_counted) else { return false };
        slot.unanswered.remove(id);
        slot.refs = rules::names_left(slot.refs);
        self.observe(Happening::Vote { node: id, slot: slot_index, vote: Vote::Granted });
        let round = &mut self.ops.at_mut(op).round;
        // The node has no vote yet: no answer follows a lost connection, and a round's end decides
        // its attempt.
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

    /// A node answered the command of a fenced attempt.
    #[must_use]
    pub(in crate::engine) fn fenced_set_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Answer,
        now: Now,
    ) -> Option<Failed> {
        let vote = match answer {
            Answer::One | Answer::Number => self.vote_of_grant(id, now),
            Answer::Zero => Vote::Denied,
            Answer::Refused(Cause::Unsupported) => Vote::Failed(Cause::NoScripts),
            Answer::Refused(Cause::NoPermission) => Vote::Unknown(Cause::NoScripts),
            Answer::Refused(cause) => Vote::Unknown(cause),
            Answer::Ok | Answer::Null | Answer::Odd => Vote::Unknown(Cause::OddReply),
        };
        if rules::is_accept_trusted(vote == Vote::Granted)
            && let Some(fencing) = self.slots.fences.of_mut(slot_index)
        {
            if answer == Answer::Number {
                fencing.refuse(self.nodes.at(id).number());
            } else if answer == Answer::One {
                fencing.accept(id);
            }
        }
        if answer == Answer::Number {
            self.see_fence(slot_index, self.nodes.at(id).number(), now);
        }
        if vote == Vote::Granted {
            self.send_raise(id, slot_index, now);
        }
        self.voted(id, slot_index, vote, now)
    }

    /// A node answered the second round, or its connection ended before. An accept does not count if
    /// it was read after the node said that it is not a master.
    #[must_use]
    pub(in crate::engine) fn raise_ended(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        answer: Option<Answer>,
        now: Now,
    ) -> Option<Failed> {
        if answer == Some(Answer::Number) {
            self.see_fence(slot_index, self.nodes.at(id).number(), now);
        }
        let is_accepted = answer == Some(Answer::One)
            && rules::is_accept_trusted(self.vote_of_grant(id, now) == Vote::Granted);
        let slot = self.slots.at(slot_index);
        if let (TokenState::Asking, Some(op)) = (slot.state(), slot.op) {
            if let Some(fencing) = self.slots.fences.of_mut(slot_index) {
                fencing.raised(id, is_accepted);
            }
            if answer == Some(Answer::Zero) {
                // The node no longer holds the key for this client.
                self.ops.at_mut(op).round.withdraw(id);
                self.ops.at_mut(op).blame(id, Cause::Gone);
            }
        }
        self.decide(slot_index)
    }

    /// The vote of a node that granted. A grant that was read after the node said that it is not a
    /// master does not count. Nor does a grant that came too long after the last look at the node.
    #[inline]
    pub(super) fn vote_of_grant(&mut self, id: NodeId, now: Now) -> Vote {
        let is_trusted = self.nodes.at(id).is_plain() || self.note_grant_in_trouble(id, now);
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
        // The node's first SET may still run if an extension gave the token to the node again.
        let is_second = slot.tainted.contains(id);
        if !is_second {
            slot.unanswered.remove(id);
        }
        if matches!(vote, Vote::Denied | Vote::Failed(_)) && !is_second {
            // This SET wrote nothing, so the client has nothing to delete there.
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
    fn note_grant_in_trouble(&mut self, id: NodeId, now: Now) -> bool {
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
        if !slot.state().is_released() && slot.state() != TokenState::GivenAway {
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
            if slot.is_extended() {
                // As after a lost extension, the node may run this SET late, and a client that
                // adopts the lease cannot know.
                slot.tainted.insert(id);
            }
            self.late_vote(id, slot_index, vote, now);
        }
        None
    }

    /// Decides the attempt if its votes suffice.
    #[inline]
    #[must_use]
    pub(super) fn decide(&mut self, slot_index: SlotIndex) -> Option<Failed> {
        let slot = self.slots.at(slot_index);
        let index = slot.op.filter(|_| slot.state() == TokenState::Asking)?;
        let op = self.ops.at(index);
        let is_won = match op.round.decide(self.settings.electorate_of(slot)) {
            Decision::Open => return None,
            Decision::Lost => return Some(Failed { op: index, outcome: self.loss(index) }),
            Decision::Won if !slot.has(Mark::FENCED) => true,
            Decision::Won => {
                self.decide_fence(index, slot_index, self.both_clocks(self.last_call))?
            }
        };
        if is_won {
            self.win(index, slot_index);
            return None;
        }
        Some(Failed { op: index, outcome: Verdict::NoQuorum })
    }

    /// Why an attempt has no lease, by its votes.
    fn loss(&self, index: OpIndex) -> Verdict {
        let op = self.ops.at(index);
        let (round, slot) = (&op.round, self.slots.at(op.slot()));
        let electorate = self.settings.electorate_of(slot);
        if electorate.has_quorum(round.granted) {
            Verdict::Expired
        } else if round.is_taken(electorate) {
            Verdict::Taken
        } else {
            Verdict::NoQuorum
        }
    }

    /// The call has its lock: its slot is a lease once the caller takes it.
    #[inline(always)]
    pub(in crate::engine) fn win(&mut self, index: OpIndex, slot_index: SlotIndex) {
        self.slots.at_mut(slot_index).step(TokenInput::Win);
        self.observe(Happening::Won { op: index });
        self.finish(index, Verdict::Won);
    }

    /// The call ends without a lock.
    pub(in crate::engine) fn end_call(&mut self, index: OpIndex, outcome: Verdict) {
        let slot = self.slots.at_mut(self.ops.at(index).slot());
        if slot.state() == TokenState::Between {
            slot.step(TokenInput::Leave);
        }
        self.finish(index, outcome);
    }

    /// The call goes on without this attempt, which has failed and is released.
    pub(in crate::engine) fn leave_attempt(&mut self, slot_index: SlotIndex) {
        let slot = self.slots.at_mut(slot_index);
        slot.step(TokenInput::Leave);
        slot.op = None;
        self.slots.free_if_unnamed(slot_index);
    }
}

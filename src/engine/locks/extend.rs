//! Extensions: the client sends a compare-and-extend to each node that may hold the key, and a SET
//! to each node that forgot it. A quorum of both wins.
//!
//! # Invariants
//!
//! - A written extension moves the deadline at once to the earlier of the old and the new one,
//!   because it may shorten the lease. Only a quorum moves the deadline on.
//! - A quorum that confirms an extension after the old deadline comes too late: the lease is lost.
//! - A compare-and-extend creates no key: each form compares first. Only the SET does.
//! - If a node that held the key answers that the key is gone, a client deleted the key there. The
//!   node never gets the token again, unless it restarted, was a replica, or was silent for a TTL.
//!   A node that never answered the SET gets the token again, though a client may have deleted it.
//! - An extension by a master that may fail over counts only while the master has a vote: another
//!   master may grant in its name.
//! - A server has one vote in an extension, even if the addresses of several nodes lead to it. The
//!   client sends the extensions of a lease to only one of these addresses.
//! - Only a node that may vote gets the token. A node that has restarted gives no client a vote
//!   until every lock that it may have forgotten is over.
//! - An extension's SET follows the rules of any SET: the release goes behind it, and until then
//!   the node may hold the key.
//! - Where a shorter extension of the lease may still run, the client sends no extension that is
//!   longer. Where a delete may still run, it sends none.

use super::core::Locks;
use super::op::{OpId, OpKind, Verdict};
use super::slot::{LeaseId, Mark, TokenState};
use super::timers::Timer;
use crate::command::{Answer, ExtendStep, append_extend};
use crate::engine::event::{Event, LostCause};
use crate::engine::happenings::Happening;
use crate::error::{Cause, ExtendError, Vote};
use crate::node::{Now, Phase, Request};
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::round::{Decision, Round, Tally};
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;

use std::time::Duration;

impl Locks {
    /// Begins to move the end of `lease` to `ttl` from `now`, a clock reading from just before this
    /// call.
    pub(in crate::engine) fn extend(
        &mut self,
        lease: LeaseId,
        ttl: Duration,
        now: Instant,
    ) -> Result<OpId, ExtendError> {
        let ttl_ms = self.may_extend(lease, ttl, now)?;
        let index = self.ops.open(OpKind::Extend).ok_or(ExtendError::Full)?;
        // The caller's extension takes precedence over the engine's own.
        self.end_keep_alive(lease.slot);
        self.begin_extension(index, lease.slot, ttl_ms, now);
        self.caller_extends(lease.slot, now);
        Ok(self.ops.id(index))
    }

    /// Whether the caller may extend the lease now. Returns the TTL in milliseconds.
    pub(in crate::engine) fn may_extend(
        &self,
        lease: LeaseId,
        ttl: Duration,
        now: Instant,
    ) -> Result<u32, ExtendError> {
        let ttl_ms = self.extension_ttl(ttl)?;
        let slot = self.slots.held(lease).ok_or(ExtendError::NotOurs)?;
        let is_busy = slot.op.is_some_and(|op| self.ops.at(op).kind != OpKind::Keep);
        if rules::is_extension_refused(is_busy) {
            return Err(ExtendError::Busy);
        }
        if rules::is_past_extending(slot.ends, now) {
            return Err(ExtendError::Expired);
        }
        if self.is_at_limit(lease.slot, self.deadline_from(now, ttl_ms)) {
            return Err(ExtendError::LimitReached);
        }
        Ok(ttl_ms)
    }

    /// Whether an extension to `ends` is more than the configuration allows.
    pub(in crate::engine) fn is_at_limit(&self, slot_index: SlotIndex, ends: Instant) -> bool {
        let slot = self.slots.at(slot_index);
        u32::from(slot.extensions) >= self.settings.max_extensions
            || ends > slot.began + self.settings.max_hold
    }

    pub(super) fn extension_ttl(&self, ttl: Duration) -> Result<u32, ExtendError> {
        self.checked_ttl(ttl).ok_or_else(|| {
            let (least, most) = self.ttl_range();
            ExtendError::InvalidTtl { ttl, least, most }
        })
    }

    pub(in crate::engine) fn begin_extension(
        &mut self,
        index: OpIndex,
        slot_index: SlotIndex,
        ttl_ms: u32,
        now: Instant,
    ) {
        let new_deadline = self.deadline_from(now, ttl_ms);
        let now = self.called_at(now);
        self.nodes.look_again(now);
        self.observe(Happening::Extension { op: index, slot: slot_index, ttl_ms });
        let op = self.ops.at_mut(index);
        op.set_slot(slot_index);
        op.new_deadline = new_deadline;
        op.causes = [Cause::None; NODES_MAX];
        let all = self.nodes.all();
        let slot = self.slots.at_mut(slot_index);
        slot.op = Some(index);
        slot.extensions = slot.extensions.saturating_add(1);
        slot.phase = slot.phase.next();
        if ttl_ms > slot.ttl_ms {
            slot.set(Mark::DOUBTED, true);
        }
        slot.ttl_ms = ttl_ms;
        slot.ttl_longest_ms = slot.ttl_longest_ms.max(ttl_ms);
        slot.ends = rules::deadline_once_written(slot.ends, new_deadline);
        let candidates = rules::nodes_to_extend(slot.holds, slot.doubted()).intersection(all);
        let lacking = all.without(self.slots.at(slot_index).holds);
        let healed = self.nodes_to_heal(lacking, index, slot_index);
        let absent = all.without(self.slots.at(slot_index).holds).without(healed);
        let op = self.ops.at_mut(index);
        op.round = Round::default();
        op.tally = Tally::begin(NodeMask::EMPTY, absent);
        op.blame_all(absent, Cause::Held);
        let mut encoded = None;
        let (mut sent, mut away) = (healed, all.without(absent).without(healed));
        for id in candidates {
            if self.send_extension(id, slot_index, &mut encoded, now) {
                sent.insert(id);
                away.remove(id);
            }
        }
        self.heal(healed, index, slot_index, now);
        let coming = away.intersection(candidates);
        let awaited = self.nodes.awaitable(sent, coming, &self.settings.electorate);
        for id in away.without(awaited) {
            self.extension_not_sent(id, index, slot_index);
        }
        if awaited.is_empty() {
            self.begin_round(index, now);
        } else {
            let op = self.ops.at_mut(index);
            op.round.awaited = awaited;
            op.tally.open = op.tally.open.union(awaited);
            self.awaiting.push(index);
            // No extension can be written after the lease's deadline.
            let ends = self.slots.at(slot_index).ends;
            self.judge_at(index, ends.min(now.real + self.settings.connect_timeout));
        }
        self.decide_extension(slot_index, now);
    }

    fn extension_not_sent(&mut self, id: NodeId, index: OpIndex, slot_index: SlotIndex) {
        let slot = self.slots.at(slot_index);
        let is_tainted = slot.doubted().contains(id);
        let node = self.nodes.at(id);
        let cause = match node.dialect.extend {
            _ if is_tainted => Cause::ConnectionLost,
            None if node.is_greeted() => Cause::NoDialect,
            _ => node.cause(),
        };
        self.ops.at_mut(index).blame(id, cause);
        self.ops.at_mut(index).tally.no(id);
    }

    /// A node for which an extension waits can be reached now, or never will be.
    pub(in crate::engine) fn settle_awaited_extension(
        &mut self,
        id: NodeId,
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) {
        // Its address may have led back to a process that may still run a shorter extension.
        let doubted = self.slots.at(slot_index).doubted();
        let is_sure = !rules::nodes_to_extend(NodeMask::of(id), doubted).is_empty();
        if !is_sure || !self.send_extension(id, slot_index, &mut None, now) {
            self.extension_not_sent(id, index, slot_index);
        }
        self.decide_extension(slot_index, now);
    }

    fn send_extension(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        encoded: &mut Option<ExtendStep>,
        now: Now,
    ) -> bool {
        let node = self.nodes.at(id);
        // This extension would run before or after the extension that goes to the server's other
        // address.
        let is_second = self.nodes.is_second_address(id);
        let step = node.dialect.extend.filter(|_| node.can_be_asked() && !is_second);
        let Some(step) = step else { return false };
        // The count of references has 16 bits and must not wrap around; half of it is left for the
        // release.
        if self.slots.at(slot_index).refs > u16::MAX / 2 {
            return false;
        }
        if *encoded != Some(step) {
            self.encode_extension(slot_index, step);
            *encoded = Some(step);
        }
        let phase = self.slots.at(slot_index).phase;
        let is_sent = self.write(id, Request::Extend { slot: slot_index, step, phase }, now);
        if is_sent {
            let refusal = self.nodes.at(id).state().refused_for();
            if let Some(op) = self.slots.at(slot_index).op {
                let op = self.ops.at_mut(op);
                op.tally.open.insert(id);
                // The cause is set now: the extension may be decided before this node answers.
                op.blame(id, refusal);
            }
        }
        is_sent
    }

    /// The nodes among `absent` to which this extension gives the token again. All of `absent` lack
    /// the key. An adoption heals none: the client does not know yet whether a quorum holds the
    /// lease.
    pub(super) fn nodes_to_heal(
        &self,
        absent: NodeMask,
        index: OpIndex,
        slot_index: SlotIndex,
    ) -> NodeMask {
        let slot = self.slots.at(slot_index);
        if absent.is_empty() || !rules::may_heal(self.ops.at(index).kind != OpKind::Adopt) {
            return NodeMask::EMPTY;
        }
        let forgetful = rules::nodes_that_forgot(absent, slot.granted);
        // The client asks no tainted node of a doubted lease, and a second SET taints its node.
        let twice = if slot.has(Mark::DOUBTED) { slot.unanswered } else { NodeMask::EMPTY };
        let sure = rules::nodes_to_heal(forgetful, slot.doubted().union(twice));
        rules::nodes_healed(sure, self.nodes.voters())
    }

    /// Writes the SETs of an extension.
    pub(super) fn heal(
        &mut self,
        nodes: NodeMask,
        index: OpIndex,
        slot_index: SlotIndex,
        now: Now,
    ) {
        if nodes.is_empty() {
            return;
        }
        self.encode_plain_set(slot_index);
        for id in nodes {
            // As for an extension: half of the count of references is left for the release.
            let has_room = self.slots.at(slot_index).refs <= u16::MAX / 2;
            if !has_room || !self.write(id, Request::Set(slot_index), now) {
                let cause = self.nodes.at(id).cause();
                let op = self.ops.at_mut(index);
                op.tally.no(id);
                op.blame(id, cause);
                continue;
            }
            self.observe(Happening::Healed { node: id, slot: slot_index });
            let slot = self.slots.at_mut(slot_index);
            if slot.unanswered.contains(id) {
                // The answer to this SET says nothing of the first, which may still run.
                slot.tainted.insert(id);
            }
            slot.holds = rules::with_healed(slot.holds, NodeMask::of(id));
            slot.unanswered.insert(id);
            let op = self.ops.at_mut(index);
            op.round.written.insert(id);
            op.tally.open.insert(id);
        }
    }

    fn encode_extension(&mut self, slot_index: SlotIndex, step: ExtendStep) {
        let slot = self.slots.at(slot_index);
        debug_assert_eq!(slot.state(), TokenState::Held, "nothing is extended behind its end");
        let ttl_ms = slot.ttl_ms.into();
        self.scratch.clear();
        append_extend(&mut self.scratch, step, &slot.key, &slot.token, ttl_ms);
    }

    /// A node answered an extension.
    pub(in crate::engine) fn extension_answered(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        step: ExtendStep,
        phase: Phase,
        answer: Answer,
        now: Now,
    ) {
        let slot = self.slots.at_mut(slot_index);
        // No later command has begun: decided or not, this extension still applies.
        let is_wanted = slot.phase == phase && slot.state() == TokenState::Held;
        // Numbers repeat after 65,536 extensions, so an old answer may have the number of this one.
        let current = slot.op.filter(|&op| is_wanted && self.ops.at(op).tally.open.contains(id));
        let is_missing = matches!(answer, Answer::Null | Answer::Zero);
        let answer = rules::answer_to_extension(answer, is_missing, Answer::Ok);
        match answer {
            Answer::Ok | Answer::One => {
                let has_granted = self.slots.at(slot_index).granted.contains(id);
                let counted = current.map_or(NodeMask::EMPTY, |index| self.ops.at(index).tally.yes);
                let is_believed = self.is_extension_believed(id, has_granted, now)
                    && self.is_first_of_server(id, counted);
                // A node that extends the key holds it: a vote, even if the node never answered its
                // SET.
                if is_wanted && is_believed && !has_granted {
                    self.slots.at_mut(slot_index).granted.insert(id);
                    self.note_change(slot_index);
                }
                if is_wanted {
                    self.write_claim(id, slot_index, now);
                }
                if let Some(index) = current {
                    let node = self.nodes.at(id);
                    let cause = if node.is_admitted() { Cause::Timeout } else { node.cause() };
                    let op = self.ops.at_mut(index);
                    if is_believed {
                        op.tally.yes(id);
                    } else {
                        op.tally.no(id);
                        op.blame(id, cause);
                    }
                    self.decide_extension(slot_index, now);
                }
            }
            Answer::Null | Answer::Zero | Answer::Refused(Cause::WrongType) => {
                let is_valid = slot.ends > now.real;
                self.note_missing(id, slot_index);
                if let Some(index) = current {
                    let healed = self.nodes_to_heal(NodeMask::of(id), index, slot_index);
                    if healed.is_empty() || !is_valid {
                        self.ops.at_mut(index).tally.no(id);
                        self.ops.at_mut(index).blame(id, Cause::Held);
                    } else {
                        self.heal(healed, index, slot_index, now);
                    }
                    self.decide_extension(slot_index, now);
                }
                self.check_holders(slot_index, now);
            }
            Answer::Refused(_) | Answer::Number | Answer::Odd => {
                if let Some(step) = self.next_step(id, step, answer, now)
                    && rules::is_sent_again(is_wanted)
                {
                    self.encode_extension(slot_index, step);
                    if self.write(id, Request::Extend { slot: slot_index, step, phase }, now) {
                        return;
                    }
                }
                if let Some(index) = current {
                    self.ops.at_mut(index).tally.no(id);
                    self.ops.at_mut(index).blame_answer(id, answer);
                    self.decide_extension(slot_index, now);
                }
            }
        }
    }

    /// A node says that it lacks the key.
    fn note_missing(&mut self, id: NodeId, slot_index: SlotIndex) {
        let slot = self.slots.at_mut(slot_index);
        // Only a SET from a dead connection may still bring the key.
        if !slot.unanswered.contains(id) {
            slot.holds.remove(id);
        }
        if rules::has_forgotten(!self.nodes.at(id).is_admitted()) {
            slot.granted.remove(id);
        } else if slot.has(Mark::SHARED) {
            slot.granted.insert(id);
        }
        self.note_change(slot_index);
    }

    /// Whether a node that has extended the key counts. A node that is not admitted may have lost
    /// another client's lock: it counts only if it granted this one and no other server may be in
    /// its place.
    fn is_extension_believed(&self, id: NodeId, has_granted: bool, now: Now) -> bool {
        let node = self.nodes.at(id);
        let may_be_another = node.may_be_another(&self.settings.admission);
        node.is_admitted() && node.is_watched(now)
            || has_granted && rules::extends_without_vote(may_be_another)
    }

    /// Whether the node's server has no vote yet under another node's address. Two nodes that both
    /// [serve](crate::node::Node::serves) are two servers.
    fn is_first_of_server(&self, id: NodeId, counted: NodeMask) -> bool {
        let serves = |id: NodeId| self.nodes.at(id).serves();
        let is_doubtful = |other: &NodeId| !serves(id) || !serves(*other);
        let doubtful: NodeMask = counted.into_iter().filter(is_doubtful).collect();
        doubtful.is_empty() || self.nodes.elsewhere(id).intersection(doubtful).is_empty()
    }

    /// The connection ended before the extension was answered.
    pub(in crate::engine) fn extension_lost(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        phase: Phase,
        now: Now,
    ) {
        for node in self.nodes.elsewhere(id).union(NodeMask::of(id)) {
            self.doubt(node, slot_index);
        }
        let slot = self.slots.at(slot_index);
        let is_wanted = slot.phase == phase && slot.state() == TokenState::Held;
        if let Some(index) = slot.op.filter(|_| is_wanted) {
            self.ops.at_mut(index).tally.no(id);
            self.ops.at_mut(index).blame(id, Cause::ConnectionLost);
            self.decide_extension(slot_index, now);
        }
    }

    /// A node answered a SET of a lease, or its connection ended before. It is the late SET of the
    /// lease's attempt, or one that gives the token to the node again.
    pub(super) fn late_vote(&mut self, id: NodeId, slot_index: SlotIndex, vote: Vote, now: Now) {
        if vote == Vote::Granted {
            self.note_change(slot_index);
            self.write_claim(id, slot_index, now);
        }
        if let Some(index) = self.slots.at(slot_index).op
            && rules::is_of_round(self.ops.at(index).round.written.contains(id))
        {
            let is_counted =
                vote == Vote::Granted && self.is_first_of_server(id, self.ops.at(index).tally.yes);
            let op = self.ops.at_mut(index);
            op.round.written.remove(id);
            match vote {
                Vote::Granted => {}
                Vote::Denied => op.blame(id, Cause::Held),
                Vote::Failed(cause) | Vote::Unknown(cause) => op.blame(id, cause),
            }
            if is_counted {
                op.tally.yes(id);
            } else {
                op.tally.no(id);
            }
            self.decide_extension(slot_index, now);
        }
        self.check_holders(slot_index, now);
    }

    /// An extension is decided; the engine does not report its own extensions.
    pub(in crate::engine) fn end_extension(&mut self, index: OpIndex, outcome: Verdict) {
        if self.ops.at(index).kind == OpKind::Keep {
            self.ops.unlist(index);
            self.ops.at_mut(index).outcome = outcome;
            self.set_timer(index, Timer::Extended, Instant::default());
        } else {
            self.finish(index, outcome);
        }
    }

    /// The time of an extension is up: the client blames the nodes that have not answered.
    pub(in crate::engine) fn extension_timed_out(&mut self, index: OpIndex) {
        let op = self.ops.at_mut(index);
        for node in op.tally.open {
            if let Some(cause @ Cause::None) = op.causes.get_mut(node.index()) {
                *cause = Cause::Timeout;
            }
        }
        self.end_extension(index, Verdict::NoQuorum);
    }

    fn decide_extension(&mut self, slot_index: SlotIndex, now: Now) {
        let slot = self.slots.at(slot_index);
        let Some(index) = slot.op else { return };
        if self.ops.at(index).outcome != Verdict::Open {
            return;
        }
        let mut tally = self.ops.at(index).tally;
        tally.yes = rules::votes_of_extension(tally.yes, slot.votes());
        let is_former =
            rules::by_former_lists(self.ops.at(index).is_former, slot.has(Mark::FORMER));
        let electorate = if is_former { &self.settings.former } else { &self.settings.electorate };
        let electorate = rules::lists_of_extension(*electorate, electorate.first_alone());
        match tally.decide(&electorate) {
            Decision::Open => {}
            Decision::Won => {
                let (new_deadline, kind) =
                    (self.ops.at(index).new_deadline, self.ops.at(index).kind);
                let is_late = slot.ends <= now.real && kind != OpKind::Adopt;
                if rules::is_won_too_late(is_late) {
                    // Another client may have had the lock since.
                    return self.lose_lease(slot_index, LostCause::Expired, now);
                }
                let slot = self.slots.at_mut(slot_index);
                slot.ends = new_deadline;
                slot.set(Mark::FORMER, is_former);
                self.end_extension(index, Verdict::Won);
            }
            Decision::Lost => {
                let lost = !self.settings.electorate_of(slot).has_quorum(slot.holds);
                let is_adoption = self.ops.at(index).kind == OpKind::Adopt;
                if is_adoption && !lost && !tally.open.is_empty() {
                    // The other answers may show that the lock is over.
                    return;
                }
                let (ends, new_deadline) = (slot.ends, self.ops.at(index).new_deadline);
                self.slots.at_mut(slot_index).ends = rules::deadline_after_miss(ends, new_deadline);
                self.end_extension(index, if lost { Verdict::Lost } else { Verdict::NoQuorum });
                if lost && !is_adoption {
                    self.lose_votes(slot_index, now);
                }
            }
        }
    }

    /// Takes the result, judged at `now`.
    pub(in crate::engine) fn report_extend(&mut self, index: OpIndex, now: Instant) -> Event {
        let op = self.ops.at(index);
        let (slot_index, kind, outcome, keep) = (op.slot(), op.kind, op.outcome, op.keep);
        let is_whole = op.part.is_none();
        let lease = self.slots.lease_id(slot_index);
        let slot = self.slots.at(slot_index);
        let all = self.nodes.all();
        let (yes, gone) = (op.tally.yes, all.without(slot.holds));
        // A node may still run an extension from a dead connection.
        let open = op.tally.open.union(slot.tainted).without(yes);
        let ballot = || self.ballot(index, yes, gone.without(yes), open.without(gone), now);
        let is_late = outcome == Verdict::Won && !rules::is_extended_in_time(now, slot.ends);
        let judged = if is_late { Verdict::Expired } else { outcome };
        let result = match judged {
            Verdict::Won => Ok(()),
            Verdict::Expired => Err(ExtendError::Expired),
            Verdict::Lost => Err(ExtendError::Lost(ballot())),
            Verdict::Cancelled => Err(ExtendError::Cancelled),
            Verdict::NoQuorum
            | Verdict::Open
            | Verdict::Taken
            | Verdict::Unlocked(_)
            | Verdict::Answered => Err(ExtendError::NoQuorum(ballot())),
        };
        let op = self.ops.id(index);
        self.observe(Happening::Extended { op: index, outcome: judged });
        self.close_op(index);
        // A release may have taken the slot over meanwhile.
        if self.slots.at(slot_index).op == Some(index) {
            self.slots.at_mut(slot_index).op = None;
        }
        if kind == OpKind::Adopt {
            if result.is_ok() {
                // Another client won the lock; this client knows only which nodes extended it.
                let slot = self.slots.at_mut(slot_index);
                // Any client may have told the other nodes to delete the key.
                slot.granted = yes.union(gone.intersection(self.nodes.voters()));
                slot.set(Mark::SHARED, true);
                self.observe(Happening::Adopted { slot: slot_index, now });
                if let Some(keep) = keep {
                    self.begin_keeping(slot_index, keep, self.both_clocks(now));
                    if is_whole {
                        self.claim(slot_index, now);
                    }
                }
            } else {
                if let Some(keep) = keep {
                    self.close_keep(keep);
                }
                self.leave_slot(slot_index);
            }
            return Event::Adopt { op, result: result.map(|()| lease) };
        }
        self.slots.free_if_unnamed(slot_index);
        self.plan_extension(slot_index, outcome, self.both_clocks(now));
        Event::Extend { op, lease, result }
    }
}

//! The keys of a call under way: how it asks for them, waits for them and gives them back.

use super::core::{Member, MemberState, SetCall, Wanted};
use crate::engine::core::Engine;
use crate::engine::locks::op::{OpId, OpKind, Part, Verdict};
use crate::error::{Ballot, Cause, LockError, SEVERAL_KEYS};
use crate::options::{LockOptions, Share};
use crate::quorum::{NODES_MAX, NodeMask};
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;

impl Engine {
    /// Begins a call that needs `room` for operations of its own.
    pub(super) fn open_set(
        &mut self,
        call: SetCall,
        room: usize,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if call.options.linger_ms > 0 {
            return Err(LockError::NoLinger { why: SEVERAL_KEYS });
        }
        if self.locks.ops.room() <= room {
            return Err(LockError::Full);
        }
        let index = self.locks.ops.open(OpKind::Set).ok_or(LockError::Full)?;
        self.sets.is_used = true;
        self.locks.ops.at_mut(index).plan.retry_as(&call.options, now);
        let mut call = Box::new(call);
        if call.wanted == Wanted::AllBehindGate && self.locks.ops.at(index).plan.is_patient {
            self.ask_for_gate(index, &mut call, now);
        } else {
            self.ask_in_batch(index, &mut call, room, now);
        }
        if !call.is_under_way() {
            self.locks.close_op(index);
            return Err(call.first_error().cloned().unwrap_or(LockError::Full));
        }
        self.sets.calls.insert(index, call);
        Ok(self.locks.ops.id(index))
    }

    /// Begins one attempt at each of the first `most` free keys, all at once. No attempt begins if
    /// the call's time is over.
    pub(super) fn ask_for_free(
        &mut self,
        index: OpIndex,
        call: &mut SetCall,
        most: usize,
        now: Instant,
    ) {
        let Some(options) = self.options_left(index, call, now).map(LockOptions::once) else {
            return;
        };
        call.is_batch = false;
        let members = call.members.iter_mut().zip(0..);
        for (member, place) in members.filter(|(member, _)| member.is_free()).take(most) {
            let begun = self.acquire_key(&member.key, &options, now);
            member.state = self.begun(Part { whole: index, place }, begun, MemberState::Asked);
        }
    }

    /// As [`ask_for_free`](Self::ask_for_free), with one command per node, or by SETs if not enough
    /// nodes have the command. By SETs, the first round of a call for one slot asks for a single
    /// slot.
    pub(super) fn ask_in_batch(
        &mut self,
        index: OpIndex,
        call: &mut SetCall,
        most: usize,
        now: Instant,
    ) {
        let Some(options) = self.options_left(index, call, now).map(LockOptions::once) else {
            return;
        };
        let is_first = !call.has_repeated && call.members.iter().all(Member::is_free);
        let most_by_set = if is_first && call.wanted == Wanted::One { 1 } else { most };
        let free = call.members.iter().filter(|member| member.is_free()).take(most);
        let mut keys: Vec<&[u8]> = Vec::with_capacity(call.members.len());
        keys.extend(free.map(|member| member.key.as_slice()));
        let begun = if keys.len() > 1 {
            self.acquire_in_batch(call.batch_kind(), &keys, &options, now)
        } else {
            None
        };
        let Some(begun) = begun else {
            return self.ask_for_free(index, call, most_by_set, now);
        };
        call.is_batch = true;
        let free = call.members.iter_mut().zip(0..).filter(|(member, _)| member.is_free());
        for ((member, place), begun) in free.zip(begun) {
            member.state = self.begun(Part { whole: index, place }, begun, MemberState::Asked);
        }
    }

    /// The options for one key, which may take as long as the call has left.
    fn options_left(&self, index: OpIndex, call: &SetCall, now: Instant) -> Option<LockOptions> {
        let ends = self.locks.ops.at(index).plan.deadline;
        call.options.clone().sharing(Share::Part).until(ends, now)
    }

    /// The state of a key whose attempt or call has begun, or was refused.
    fn begun(
        &mut self,
        part: Part,
        begun: Result<OpId, LockError>,
        state: fn(OpId) -> MemberState,
    ) -> MemberState {
        match begun {
            Ok(op) => {
                self.locks.ops.at_mut(op.op).part = Some(part);
                state(op)
            }
            Err(error) => MemberState::Denied(error),
        }
    }

    /// Begins one attempt at the gate, and waits for all slots at once. A writer whose attempt is
    /// denied gives up the slots.
    fn ask_for_gate(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        self.ask_for_free(index, call, 1, now);
        self.wait_for_rest(index, call, now);
    }

    /// Waits for all keys that the call neither holds nor asks for, and keeps those that it holds.
    pub(super) fn wait_for_rest(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        self.keep_all(index, call, now);
        for place in 0..call.members.len() {
            if call.members.get(place).is_some_and(|it| it.is_denied() || it.is_free()) {
                self.wait_for(index, call, place, now);
            }
        }
    }

    /// A denied batch does not show which key is held, so a call that waits asks for each key by its
    /// own SET command. So does any call if nodes turn out to lack the command of the batch. Returns
    /// whether attempts are under way.
    pub(super) fn ask_by_sets_instead(
        &mut self,
        index: OpIndex,
        call: &mut SetCall,
        now: Instant,
    ) -> bool {
        let wants_one = call.wanted == Wanted::One;
        let lacks_command = self.locks.able_to_batch(call.batch_kind()).is_none();
        let is_patient = self.locks.ops.at(index).plan.is_patient;
        let may_ask = lacks_command || is_patient && !wants_one;
        if !call.is_batch || call.is_won() || !may_ask || self.is_over(index, now) {
            return false;
        }
        self.give_back(call, 0, now);
        call.forget_denials();
        self.ask_for_free(index, call, if wants_one { 1 } else { usize::MAX }, now);
        call.is_asking()
    }

    /// Waits for a key.
    pub(super) fn wait_for(
        &mut self,
        index: OpIndex,
        call: &mut SetCall,
        place: usize,
        now: Instant,
    ) {
        let Some(options) = self.options_left(index, call, now) else { return };
        let is_behind_gate = call.wanted == Wanted::AllBehindGate && place > 0;
        if let Some(member) = call.members.get_mut(place) {
            let begun = if is_behind_gate {
                self.acquire_introduced(&member.key, &options, now)
            } else {
                self.acquire_key(&member.key, &options, now)
            };
            let part = Part { whole: index, place: u8::try_from(place).unwrap_or(u8::MAX) };
            member.state = self.begun(part, begun, MemberState::Waiting);
        }
    }

    /// Releases what the call holds from this place on.
    pub(super) fn give_back(&mut self, call: &mut SetCall, from: usize, now: Instant) {
        for member in call.members.iter_mut().skip(from) {
            if let Some(lease) = member.lease().filter(|_| rules::is_given_back(true)) {
                member.state = MemberState::Free;
                self.sets.owners.remove(&lease);
                self.release_key(lease, now);
            }
        }
    }

    /// Cancels all attempts under way. Each reports its end.
    pub(super) fn cancel_members(&mut self, call: &SetCall, now: Instant) {
        for op in call.members.iter().filter_map(Member::op) {
            self.cancel_call(op, now);
        }
    }

    /// The call ends without what it wants, as soon as none of its attempts is under way.
    pub(super) fn wind_up(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        self.give_back(call, 0, now);
        self.cancel_members(call, now);
        if !call.is_under_way() && self.is_open(index) {
            self.locks.finish(index, Verdict::Answered);
        }
    }

    /// Whether the result of the call is still open.
    pub(super) fn is_open(&self, index: OpIndex) -> bool {
        self.locks.ops.at(index).outcome == Verdict::Open
    }

    /// From now on the engine extends what the call holds while it waits.
    pub(super) fn keep_all(&mut self, index: OpIndex, call: &SetCall, now: Instant) {
        let op = self.locks.ops.id(index);
        for lease in call.leases() {
            if self.locks.keep_of(lease.slot).is_none()
                && let Some(keep) = self.locks.keeps.open(op)
            {
                self.locks.begin_keeping(lease.slot, keep, self.locks.both_clocks(now));
            }
        }
    }

    /// Whether the time of the call is over, so that it asks for nothing more.
    pub(super) fn is_over(&self, index: OpIndex, now: Instant) -> bool {
        self.locks.ops.at(index).plan.deadline <= now
    }

    /// A call that waits will ask for each denied key again. A call that does not wait ends.
    pub(super) fn wait_or_end(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        if call.is_under_way() || self.waits_for_room(index, call, now) {
            call.forget_denials();
        } else {
            self.end_call(index, call, now);
        }
    }

    /// Whether the call asks again later, because other operations have taken the room for its own.
    pub(super) fn waits_for_room(&mut self, index: OpIndex, call: &SetCall, now: Instant) -> bool {
        call.lacks_room() && self.plan_retry(index, now)
    }

    /// The call ends without what it wants, for the reason of its first denied key.
    pub(super) fn end_call(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        let error = call.first_error().cloned();
        self.end_for(index, call, error, now);
    }

    /// The call ends without what it wants. If its end has cut the last round before the nodes could
    /// answer, their earlier answers count.
    pub(super) fn end_for(
        &mut self,
        index: OpIndex,
        call: &mut SetCall,
        error: Option<LockError>,
        now: Instant,
    ) {
        let (is_over, timeout) = (self.is_over(index, now), self.locks.settings.node_timeout);
        let before = call.failed.take().filter(|(at, _)| {
            let is_cut = is_over && now < *at + timeout;
            error.as_ref().is_none_or(|error| is_cut && matches!(error, LockError::NoQuorum(_)))
        });
        let queued = || LockError::Taken(self.ballot_of(NodeMask::EMPTY, Cause::Queued, now));
        call.error = Some(before.map(|(_, error)| error).or(error).unwrap_or_else(queued));
        self.wind_up(index, call, now);
    }

    /// A ballot without denials: each node that did not grant has the same cause.
    pub(super) fn ballot_of(&self, granted: NodeMask, cause: Cause, now: Instant) -> Ballot {
        let votes = (granted, NodeMask::EMPTY, NodeMask::EMPTY);
        self.locks.ballot_of(votes, [cause; NODES_MAX], now)
    }
}

//! Calls for several keys: how they begin, ask for keys, wait and end.

use super::core::{Call, Held, KEYS_MAX, Member, Owner, State, Wanted};
use super::slots::FIRST_ASKED;
use crate::engine::core::Engine;
use crate::engine::event::Event;
use crate::engine::locks::op::{OpId, OpKind, Verdict};
use crate::engine::locks::slot::LeaseId;
use crate::error::{Cause, LockError, SEVERAL_KEYS};
use crate::key::Key;
use crate::node::Now;
use crate::options::{LockOptions, Share};
use crate::quorum::{NODES_MAX, NodeMask};
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;

impl Engine {
    /// Begins one attempt at the locks of all `keys`, in any order: all are won, or none. The event
    /// is that of [`try_lock`](Self::try_lock). The lease ends with the first of its keys to end.
    ///
    /// It costs one write per node, with one SET per key. Votes are counted per key, so sets and
    /// single keys of any client exclude each other.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), and [`LockError::InvalidKeys`] for no key, for more than 64,
    /// and for a key that is there twice. [`LockError::Full`] if there is no room for one operation
    /// per key and one more. Nothing is written then.
    pub fn try_lock_all<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        self.acquire_all(keys, options.clone().once(), now)
    }

    /// Begins attempts at the locks of all `keys`, until all are won or the call ends, as the `retry`
    /// of the options or of the configuration says. Otherwise like
    /// [`try_lock_all`](Self::try_lock_all).
    ///
    /// A call that is denied keeps the keys that it won before the first denied one, in the order of
    /// their bytes. It waits for that key, and extends the keys that it keeps meanwhile. Then it asks
    /// for the others at once.
    ///
    /// # Errors
    ///
    /// As [`try_lock_all`](Self::try_lock_all).
    pub fn lock_all<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        self.acquire_all(keys, options.clone().patient(self.default_retry()), now)
    }

    /// As [`lock_all`](Self::lock_all) if the options have a retry.
    pub(crate) fn acquire_all<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        options: LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        let keys = in_order(keys)?;
        if options.share != Share::Whole {
            return Err(LockError::InvalidKeys { why: "only a single key has slots" });
        }
        if let [key] = keys.as_slice() {
            return self.acquire(key, &options, now);
        }
        for key in &keys {
            self.locks.prefix.check_taken(key)?;
        }
        let room = keys.len();
        self.open_set(Call::new(Wanted::All, keys, options), room, now)
    }

    /// Begins a call that needs `room` for operations of its own.
    pub(super) fn open_set(
        &mut self,
        mut call: Call,
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
        self.locks.ops.at_mut(index).plan.retry_as(&call.options, now);
        match call.wanted {
            Wanted::All | Wanted::AllBehindGate => self.ask_for_free(index, &mut call, room, now),
            Wanted::One => self.ask_for_first(index, &mut call, room, now),
        }
        if !call.is_under_way() {
            self.locks.close_op(index);
            return Err(call.first_error().unwrap_or(LockError::Full));
        }
        self.sets.calls.insert(index, call);
        Ok(self.locks.ops.id(index))
    }

    /// Begins one attempt at each of the first `most` free keys, all at once. No attempt begins if
    /// the call's time is over.
    pub(super) fn ask_for_free(
        &mut self,
        index: OpIndex,
        call: &mut Call,
        most: usize,
        now: Instant,
    ) {
        let ends = self.locks.ops.at(index).plan.deadline;
        let Some(options) = call.options.clone().once().until(ends, now) else { return };
        for member in call.members.iter_mut().filter(|member| member.is_free()).take(most) {
            member.state = match self.begin_member(index, &member.key, &options, now) {
                Ok(op) => State::Asked(op),
                Err(error) => State::Denied(error),
            };
        }
    }

    /// As [`ask_for_free`](Self::ask_for_free), for a call that wants one key: each node takes the
    /// first of them that is free there. Where too few nodes run scripts, a SET asks for one.
    pub(super) fn ask_for_first(
        &mut self,
        index: OpIndex,
        call: &mut Call,
        most: usize,
        now: Instant,
    ) {
        let ends = self.locks.ops.at(index).plan.deadline;
        let Some(options) = call.options.clone().once().until(ends, now) else { return };
        let options = options.sharing(Share::Part);
        let free = call.members.iter().filter(|member| member.is_free()).take(most);
        let keys: Vec<Key> = free.map(|member| member.key.clone()).collect();
        let Some(begun) = self.acquire_first_free(&keys, &options, now) else {
            return self.ask_for_free(index, call, if most == FIRST_ASKED { 1 } else { most }, now);
        };
        let free = call.members.iter_mut().filter(|member| member.is_free());
        for (member, begun) in free.zip(begun) {
            member.state = match begun {
                Ok(op) => {
                    self.sets.wholes.insert(op.op, index);
                    State::Asked(op)
                }
                Err(error) => State::Denied(error),
            };
        }
    }

    /// Waits for a key that was denied, with all keys that are held kept alive.
    pub(super) fn wait_for(&mut self, index: OpIndex, call: &mut Call, place: usize, now: Instant) {
        let ends = self.locks.ops.at(index).plan.deadline;
        let Some(options) = call.options.clone().until(ends, now) else { return };
        self.keep_all(index, call, now);
        if let Some(member) = call.members.get_mut(place) {
            member.state = match self.begin_member(index, &member.key, &options, now) {
                Ok(op) => State::Waiting(op),
                Err(error) => State::Denied(error),
            };
        }
    }

    fn begin_member(
        &mut self,
        index: OpIndex,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        let options = options.clone().sharing(Share::Part);
        let op = self.acquire(key, &options, now)?;
        self.sets.wholes.insert(op.op, index);
        Ok(op)
    }

    /// An attempt at one key is decided.
    pub(super) fn member_decided(
        &mut self,
        index: OpIndex,
        op: OpId,
        result: Result<LeaseId, LockError>,
        now: Instant,
    ) {
        let Some(mut call) = self.sets.calls.remove(&index) else { return };
        if let Some(member) = call.members.iter_mut().find(|member| member.op() == Some(op)) {
            let was_waiting = matches!(member.state, State::Waiting(_));
            member.state = match result {
                Ok(lease) => {
                    self.sets.owners.insert(lease, Owner::Call(index));
                    State::Held(lease)
                }
                // The call itself has cancelled the attempt.
                Err(LockError::Cancelled) => State::Free,
                Err(error) => {
                    let error = named(error, &member.key);
                    call.error = call.error.take().or_else(|| was_waiting.then(|| error.clone()));
                    State::Denied(error)
                }
            };
        }
        self.go_on(index, &mut call, now);
        self.sets.calls.insert(index, call);
    }

    /// Something has changed: the call has won, asks for more, waits or ends.
    fn go_on(&mut self, index: OpIndex, call: &mut Call, now: Instant) {
        if call.error.is_some() {
            return self.wind_up(index, call, now);
        }
        match call.wanted {
            Wanted::All => self.go_on_with_all(index, call, now),
            Wanted::AllBehindGate => self.go_on_behind_gate(index, call, now),
            Wanted::One => self.go_on_with_one(index, call, now),
        }
    }

    fn go_on_with_all(&mut self, index: OpIndex, call: &mut Call, now: Instant) {
        if call.is_under_way() {
            return;
        }
        self.ask_for_free(index, call, KEYS_MAX, now);
        if call.is_asking() {
            return;
        }
        let Some(first) = call.members.iter().position(|member| member.lease().is_none()) else {
            return self.locks.finish(index, Verdict::Won);
        };
        if call.may_wait() && self.locks.ops.at(index).plan.is_patient {
            self.give_back(call, rules::keys_kept(first), now);
            self.wait_for(index, call, first, now);
            call.forget_denials();
        }
        if !call.is_under_way() {
            self.end_call(index, call, now);
        }
    }

    /// A lease was lost before its call had all keys: the call asks for that key again.
    pub(super) fn member_lost(&mut self, index: OpIndex, lease: LeaseId, now: Instant) {
        let Some(mut call) = self.sets.calls.remove(&index) else { return };
        let is_lost = |member: &&mut Member| member.lease() == Some(lease);
        if let Some(member) = call.members.iter_mut().find(is_lost) {
            member.state = State::Free;
        }
        self.sets.owners.remove(&lease);
        self.release_key(lease, now);
        if call.wanted == Wanted::AllBehindGate && self.is_open(index) {
            self.go_on(index, &mut call, now);
        }
        self.sets.calls.insert(index, call);
    }

    /// Releases what the call holds from this place on.
    pub(super) fn give_back(&mut self, call: &mut Call, from: usize, now: Instant) {
        for member in call.members.iter_mut().skip(from) {
            if let Some(lease) = member.lease().filter(|_| rules::is_given_back(true)) {
                member.state = State::Free;
                self.sets.owners.remove(&lease);
                self.release_key(lease, now);
            }
        }
    }

    /// Cancels all attempts under way. Each reports its end.
    pub(super) fn cancel_members(&mut self, call: &Call, now: Instant) {
        for op in call.members.iter().filter_map(Member::op) {
            self.cancel_call(op, now);
        }
    }

    /// The caller gives the call up.
    pub(in crate::engine) fn cancel_set(&mut self, index: OpIndex, now: Instant) {
        if let Some(change) = self.sets.changes.get(&index) {
            for op in change.ops.clone() {
                self.cancel_call(op, now);
            }
        }
        let Some(mut call) = self.sets.calls.remove(&index) else { return };
        call.error = Some(LockError::Cancelled);
        self.wind_up(index, &mut call, now);
        self.sets.calls.insert(index, call);
    }

    /// The call ends without what it wants, as soon as none of its attempts is under way.
    fn wind_up(&mut self, index: OpIndex, call: &mut Call, now: Instant) {
        self.give_back(call, 0, now);
        self.cancel_members(call, now);
        if !call.is_under_way() && self.is_open(index) {
            self.locks.finish(index, Verdict::Answered);
        }
    }

    /// Whether the result of the call is still open.
    fn is_open(&self, index: OpIndex) -> bool {
        self.locks.ops.at(index).outcome == Verdict::Open
    }

    /// Takes the result of a call. A lease with too little validity left is given back, and the
    /// call begins anew if it may: then there is no result.
    pub(super) fn report_call(&mut self, index: OpIndex, now: Instant) -> Option<Event> {
        let mut call = self.sets.calls.remove(&index)?;
        let ends = call.leases().map(|lease| self.locks.deadline(lease).unwrap_or_default());
        let ends = ends.min().filter(|_| call.is_won()).unwrap_or_default();
        let is_late = rules::is_too_late_to_hand_over(now, ends, call.options.min_validity);
        if call.error.is_none() && is_late {
            self.give_back(&mut call, 0, now);
            if self.plan_retry(index, now) {
                self.locks.ops.at_mut(index).outcome = Verdict::Open;
                self.sets.calls.insert(index, call);
                return None;
            }
            call.error = Some(LockError::Expired(self.no_ballot(Cause::None, now)));
        }
        let op = self.locks.ops.id(index);
        self.locks.close_op(index);
        let result = match call.error.take() {
            Some(error) => Err(error),
            None => Ok(self.hand_set_over(&call, op)?),
        };
        Some(Event::Lock { op, result })
    }

    /// From now on the caller holds the keys.
    fn hand_set_over(&mut self, call: &Call, op: OpId) -> Option<LeaseId> {
        let leases: Vec<LeaseId> = call.leases().collect();
        let first = *leases.first()?;
        for &lease in &leases {
            self.sets.owners.insert(lease, Owner::Held(first));
            if !call.options.keep_alive && self.locks.keep_of(lease.slot).is_some() {
                self.locks.end_keep_alive(lease.slot);
                self.locks.end_keeping(lease.slot);
            }
        }
        self.sets.held.insert(first, Held { op, leases, is_loss_told: false });
        Some(first)
    }

    /// From now on the engine extends what the call holds while it waits.
    pub(super) fn keep_all(&mut self, index: OpIndex, call: &Call, now: Instant) {
        let op = self.locks.ops.id(index);
        for lease in call.leases() {
            if self.locks.keep_of(lease.slot).is_none()
                && let Some(keep) = self.locks.keeps.open(op)
            {
                self.locks.begin_keeping(lease.slot, keep, self.locks.both_clocks(now));
            }
        }
    }

    /// The time to ask again has come: for what had too little validity left, or for any slot.
    pub(in crate::engine) fn ask_again(&mut self, index: OpIndex, now: Now) {
        let Some(mut call) = self.sets.calls.remove(&index) else { return };
        if call.error.is_none() && self.is_open(index) {
            if call.wanted == Wanted::One {
                self.ask_for_some(&mut call);
            }
            self.go_on(index, &mut call, now.real);
        }
        self.sets.calls.insert(index, call);
    }

    /// The call ends without what it wants; no attempt is under way.
    pub(super) fn end_call(&mut self, index: OpIndex, call: &mut Call, now: Instant) {
        let is_over = || LockError::Taken(self.no_ballot(Cause::Queued, now));
        call.error = Some(call.first_error().unwrap_or_else(is_over));
        self.wind_up(index, call, now);
    }

    fn no_ballot(&self, cause: Cause, now: Instant) -> crate::error::Ballot {
        let none = (NodeMask::EMPTY, NodeMask::EMPTY, NodeMask::EMPTY);
        self.locks.ballot_of(none, [cause; NODES_MAX], now)
    }
}

/// The error with the key that its votes were for.
fn named(mut error: LockError, key: &[u8]) -> LockError {
    if let LockError::Taken(ballot) | LockError::NoQuorum(ballot) | LockError::Expired(ballot) =
        &mut error
    {
        ballot.key = Some(key.into());
    }
    error
}

/// The keys of a set in the order of their bytes.
pub(crate) fn in_order<K: AsRef<[u8]>>(keys: &[K]) -> Result<Vec<Key>, LockError> {
    if keys.is_empty() || keys.len() > KEYS_MAX {
        return Err(LockError::InvalidKeys { why: "1 to 64 keys may be locked together" });
    }
    let mut keys: Vec<Key> = keys.iter().map(|key| Key::from_slice(key.as_ref())).collect();
    keys.sort_unstable();
    if keys.windows(2).any(|pair| matches!(pair, [a, b] if a == b)) {
        return Err(LockError::InvalidKeys { why: "a key is there twice" });
    }
    Ok(keys)
}

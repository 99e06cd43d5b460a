//! Calls for sets.

use super::core::{Call, Held, KEYS_MAX, Member, Owner, State};
use crate::engine::core::Engine;
use crate::engine::course::RETRY_WAIT_MIN;
use crate::engine::event::Event;
use crate::engine::locks::op::{OpId, OpKind, Verdict};
use crate::engine::locks::slot::LeaseId;
use crate::engine::locks::timers::Timer;
use crate::error::{Cause, LockError, SEVERAL_KEYS};
use crate::key::Key;
use crate::node::Now;
use crate::options::LockOptions;
use crate::quorum::{NODES_MAX, NodeMask};
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;

use std::time::Duration;

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
        if let [key] = keys.as_slice() {
            return self.acquire(key, &options, now);
        }
        for key in &keys {
            self.locks.prefix.check(key)?;
        }
        if options.linger_ms > 0 {
            return Err(LockError::NoLinger { why: SEVERAL_KEYS });
        }
        if self.locks.ops.room() <= keys.len() {
            return Err(LockError::Full);
        }
        let index = self.locks.ops.open(OpKind::Set).ok_or(LockError::Full)?;
        let patience = options.patience(now);
        let mut call = Call {
            members: keys.into_iter().map(|key| Member { key, state: State::Free }).collect(),
            options,
            ends: patience.ends,
            is_patient: patience.is_patient,
            open: 0,
            waits_for: None,
            error: None,
        };
        self.ask_for_rest(index, &mut call, now);
        if call.open == 0 {
            self.locks.close_op(index);
            return Err(call.first_error().unwrap_or(LockError::Full));
        }
        self.sets.calls.insert(index, call);
        Ok(self.locks.ops.id(index))
    }

    /// Asks for all keys that the call does not hold, at once. No attempt begins if its time is over.
    fn ask_for_rest(&mut self, index: OpIndex, call: &mut Call, now: Instant) {
        let Some(options) = call.options.clone().once().until(call.ends, now) else { return };
        for member in call.members.iter_mut().filter(|member| member.lease().is_none()) {
            member.state = match self.acquire(&member.key, &options, now) {
                Ok(op) => {
                    self.sets.wholes.insert(op.op, index);
                    call.open += 1;
                    State::Asked(op)
                }
                Err(error) => State::Denied(error),
            };
        }
    }

    /// Waits for a key that was denied, with the keys before it held and kept alive. Returns whether
    /// the call waits.
    fn wait_for(&mut self, index: OpIndex, call: &mut Call, place: usize, now: Instant) -> bool {
        let Some(options) = call.options.clone().until(call.ends, now) else { return false };
        let op = self.locks.ops.id(index);
        for lease in call.members.iter().take(place).filter_map(Member::lease) {
            self.keep(lease, op, now);
        }
        let Some(member) = call.members.get_mut(place) else { return false };
        match self.acquire(&member.key, &options, now) {
            Ok(op) => {
                member.state = State::Asked(op);
                self.sets.wholes.insert(op.op, index);
                (call.open, call.waits_for) = (1, Some(place));
                true
            }
            Err(error) => {
                member.state = State::Denied(error);
                false
            }
        }
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
        let asked = |member: &&mut Member| matches!(member.state, State::Asked(its) if its == op);
        if let Some(member) = call.members.iter_mut().find(asked) {
            call.open = call.open.saturating_sub(1);
            member.state = match result {
                Ok(lease) => {
                    self.sets.owners.insert(lease, Owner::Call(index));
                    State::Held(lease)
                }
                Err(error) => State::Denied(named(error, &member.key)),
            };
        }
        if call.open == 0 {
            self.go_on(index, &mut call, now);
        }
        self.sets.calls.insert(index, call);
    }

    /// All attempts are decided: the call has won, asks for more, waits or ends.
    fn go_on(&mut self, index: OpIndex, call: &mut Call, now: Instant) {
        let waited_for = call.waits_for.take();
        if call.error.is_some() {
            self.give_back(call, 0, now);
            return self.locks.finish(index, Verdict::Answered);
        }
        let is_missing = |member: &Member| member.lease().is_none();
        if let Some(place) = waited_for
            && !call.members.get(place).is_none_or(is_missing)
            && call.members.iter().any(is_missing)
        {
            self.ask_for_rest(index, call, now);
            if call.open > 0 {
                return;
            }
        }
        let Some(first) = call.members.iter().position(is_missing) else {
            return self.locks.finish(index, Verdict::Won);
        };
        self.give_back(call, rules::keys_kept(first), now);
        let is_denied = call.first_error().is_none_or(|error| may_pass(&error));
        let may_wait = call.is_patient && waited_for.is_none() && is_denied;
        if may_wait && self.wait_for(index, call, first, now) {
            return;
        }
        self.end_call(index, call, now);
    }

    /// A lease was lost before its call had all keys: the call asks for that key again.
    pub(super) fn member_lost(&mut self, index: OpIndex, lease: LeaseId, now: Instant) {
        let Some(call) = self.sets.calls.get_mut(&index) else { return };
        let is_lost = |member: &&mut Member| member.lease() == Some(lease);
        if let Some(member) = call.members.iter_mut().find(is_lost) {
            member.state = State::Free;
        }
        self.sets.owners.remove(&lease);
        self.release_key(lease, now);
    }

    /// Releases what the call holds from this place on.
    fn give_back(&mut self, call: &mut Call, from: usize, now: Instant) {
        for member in call.members.iter_mut().skip(from) {
            if let Some(lease) = member.lease().filter(|_| rules::is_given_back(true)) {
                member.state = State::Free;
                self.sets.owners.remove(&lease);
                self.release_key(lease, now);
            }
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
        self.give_back(&mut call, 0, now);
        for member in &call.members {
            if let State::Asked(op) = member.state {
                self.cancel_call(op, now);
            }
        }
        if call.open == 0 && self.locks.ops.at(index).outcome == Verdict::Open {
            self.locks.finish(index, Verdict::Cancelled);
        }
        self.sets.calls.insert(index, call);
    }

    /// Takes the result of a call. A set that has too little validity left is given back, and the
    /// call begins anew if it may: then there is no result.
    pub(super) fn report_call(&mut self, index: OpIndex, now: Instant) -> Option<Event> {
        let mut call = self.sets.calls.remove(&index)?;
        let ends = call.members.iter().map(|it| it.lease().and_then(|id| self.locks.deadline(id)));
        let ends = ends.min().flatten().unwrap_or_default();
        let is_late = rules::is_too_late_to_hand_over(now, ends, call.options.min_validity);
        if call.error.is_none() && is_late {
            self.give_back(&mut call, 0, now);
            let random = self.locks.random_share();
            let retry_at = now + call.pause(random);
            if call.is_patient && retry_at < call.ends {
                self.locks.ops.at_mut(index).outcome = Verdict::Open;
                self.locks.set_timer(index, Timer::Retry, retry_at);
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

    /// From now on the caller holds the set.
    fn hand_set_over(&mut self, call: &Call, op: OpId) -> Option<LeaseId> {
        let leases: Vec<LeaseId> = call.members.iter().filter_map(Member::lease).collect();
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

    /// From now on the engine extends a lease of a call that waits.
    fn keep(&mut self, lease: LeaseId, op: OpId, now: Instant) {
        if self.locks.keep_of(lease.slot).is_some() {
            return;
        }
        if let Some(keep) = self.locks.keeps.open(op) {
            self.locks.begin_keeping(lease.slot, keep, self.locks.both_clocks(now));
        }
    }

    /// A call whose set had too little validity left asks for it again.
    pub(in crate::engine) fn ask_again(&mut self, index: OpIndex, now: Now) {
        let Some(mut call) = self.sets.calls.remove(&index) else { return };
        if call.open == 0 && call.error.is_none() {
            self.ask_for_rest(index, &mut call, now.real);
            if call.open == 0 {
                self.end_call(index, &mut call, now.real);
            }
        }
        self.sets.calls.insert(index, call);
    }

    /// The call ends without its set.
    fn end_call(&mut self, index: OpIndex, call: &mut Call, now: Instant) {
        let error = call.first_error().unwrap_or_else(|| self.is_over(now));
        call.error = Some(error);
        self.give_back(call, 0, now);
        self.locks.finish(index, Verdict::Answered);
    }

    /// The error of a call whose time is over.
    fn is_over(&self, now: Instant) -> LockError {
        LockError::Taken(self.no_ballot(Cause::Queued, now))
    }

    fn no_ballot(&self, cause: Cause, now: Instant) -> crate::error::Ballot {
        let none = (NodeMask::EMPTY, NodeMask::EMPTY, NodeMask::EMPTY);
        self.locks.ballot_of(none, [cause; NODES_MAX], now)
    }
}

impl Call {
    /// How long the call waits between two attempts that no holder denied.
    fn pause(&self, random: f64) -> Duration {
        let retry = self.options.retry.unwrap_or_default();
        retry.delay.saturating_add(retry.jitter.mul_f64(random)).max(RETRY_WAIT_MIN)
    }

    /// Why the first key that was denied is not held.
    fn first_error(&self) -> Option<LockError> {
        self.members.iter().find_map(|member| match &member.state {
            State::Denied(error) => Some(error.clone()),
            State::Free | State::Asked(_) | State::Held(_) => None,
        })
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

/// Whether a later attempt may win the key.
const fn may_pass(error: &LockError) -> bool {
    matches!(error, LockError::Taken(_) | LockError::NoQuorum(_) | LockError::Expired(_))
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

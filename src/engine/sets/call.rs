//! Calls for sets.

use super::core::{Call, Held, KEYS_MAX, Member, Owner, State};
use crate::engine::core::Engine;
use crate::engine::event::Event;
use crate::engine::locks::op::{OpId, OpKind, Verdict};
use crate::engine::locks::slot::LeaseId;
use crate::error::{Cause, LockError, SEVERAL_KEYS};
use crate::key::Key;
use crate::node::Now;
use crate::options::LockOptions;
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
        self.locks.ops.at_mut(index).plan.retry_as(&options, now);
        let members = keys.into_iter().map(|key| Member { key, state: State::Free }).collect();
        let mut call = Call { members, options, waits_for: None, error: None };
        self.ask_for_rest(index, &mut call, now);
        if !call.is_asking() {
            self.locks.close_op(index);
            return Err(call.first_error().unwrap_or(LockError::Full));
        }
        self.sets.calls.insert(index, call);
        Ok(self.locks.ops.id(index))
    }

    /// Asks for all keys that the call does not hold, at once. No attempt begins if its time is over.
    fn ask_for_rest(&mut self, index: OpIndex, call: &mut Call, now: Instant) {
        let ends = self.locks.ops.at(index).plan.deadline;
        let Some(options) = call.options.clone().once().until(ends, now) else { return };
        for member in call.members.iter_mut().filter(|member| member.lease().is_none()) {
            self.ask_for_key(index, member, &options, now);
        }
    }

    /// Begins an attempt at one key, or several as the options say.
    fn ask_for_key(
        &mut self,
        index: OpIndex,
        member: &mut Member,
        options: &LockOptions,
        now: Instant,
    ) {
        member.state = match self.acquire(&member.key, options, now) {
            Ok(op) => {
                self.sets.wholes.insert(op.op, index);
                State::Asked(op)
            }
            Err(error) => State::Denied(error),
        };
    }

    /// Waits for a key that was denied, with the keys before it held and kept alive.
    fn wait_for(&mut self, index: OpIndex, call: &mut Call, place: usize, now: Instant) {
        let ends = self.locks.ops.at(index).plan.deadline;
        let Some(options) = call.options.clone().until(ends, now) else { return };
        let op = self.locks.ops.id(index);
        for lease in call.members.iter().take(place).filter_map(Member::lease) {
            self.keep(lease, op, now);
        }
        if let Some(member) = call.members.get_mut(place) {
            self.ask_for_key(index, member, &options, now);
            call.waits_for = Some(place);
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
            member.state = match result {
                Ok(lease) => {
                    self.sets.owners.insert(lease, Owner::Call(index));
                    State::Held(lease)
                }
                Err(error) => State::Denied(named(error, &member.key)),
            };
        }
        if !call.is_asking() {
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
            if call.is_asking() {
                return;
            }
        }
        let Some(first) = call.members.iter().position(is_missing) else {
            return self.locks.finish(index, Verdict::Won);
        };
        self.give_back(call, rules::keys_kept(first), now);
        let may_wait = call.first_error().is_none_or(|error| error.is_transient());
        if may_wait && waited_for.is_none() && self.locks.ops.at(index).plan.is_patient {
            self.wait_for(index, call, first, now);
        }
        if !call.is_asking() {
            self.end_call(index, call, now);
        }
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
        if !call.is_asking() && self.locks.ops.at(index).outcome == Verdict::Open {
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
        if !call.is_asking() && call.error.is_none() {
            self.ask_for_rest(index, &mut call, now.real);
            if !call.is_asking() {
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
    /// Whether an attempt is under way.
    fn is_asking(&self) -> bool {
        self.members.iter().any(|member| matches!(member.state, State::Asked(_)))
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

//! Calls for several keys: how they begin, ask for keys, wait and end.

use super::core::{KEYS_MAX, Member, MemberState, SetCall, SetOwner, Wanted};
use crate::engine::core::Engine;
use crate::engine::event::Event;
use crate::engine::locks::op::{OpId, Part, Verdict};
use crate::engine::locks::slot::LeaseId;
use crate::error::{Cause, LockError, NO_CLIENT, ONLY_ONE_HAS_SLOTS};
use crate::key::Key;
use crate::node::Now;
use crate::options::{LockOptions, Share};
use crate::quorum::NodeMask;
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;

impl Engine {
    /// Begins one attempt at the locks of all `keys`, in any order: all are won, or none. The event
    /// is that of [`try_lock`](Self::try_lock). The lease ends with the first of its keys to end.
    ///
    /// It costs one write per node: `MSETEX` where all nodes have it and no fence is asked for, and
    /// otherwise one SET per key.
    /// Votes are counted per key, so sets and single keys of any client exclude each other. Where a
    /// node turns out to lack the command, the call takes a second round.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), and [`LockError::InvalidKeys`] for no key, for more than 64,
    /// and for a key that appears twice. [`LockError::Full`] if there is no room for one operation
    /// per key and one more. Nothing is written then.
    pub fn try_lock_all<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        self.acquire_all(keys, options.clone().once(), now)
    }

    /// Begins a call for the locks of all `keys`. The call tries until it has won all, or until the
    /// `retry` of the options or of the configuration ends it. Otherwise like
    /// [`try_lock_all`](Self::try_lock_all).
    ///
    /// A call that is denied keeps the keys that it won before the first denied one, in the order of
    /// their bytes. It waits for that key, and extends the keys that it keeps meanwhile. Then it asks
    /// for the others at once.
    ///
    /// # Errors
    ///
    /// As [`try_lock_all`](Self::try_lock_all). A call that waits fails with [`LockError::Full`]
    /// too, if other operations take its room until its time is over.
    pub fn lock_all<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        self.acquire_all(keys, options.clone().patient(self.default_retry()), now)
    }

    /// Begins a call for one slot or for all slots, and refuses a lock that may linger.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn acquire_special(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        match options.share {
            Share::Slot(count) => self.acquire_slot(key, count, options, now),
            Share::AllSlots(count) => self.acquire_all_slots(key, count, options, now),
            Share::Whole | Share::Part => Err(LockError::NoLinger { why: NO_CLIENT }),
        }
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
            return if options.is_special {
                self.acquire_special(key, &options, now)
            } else {
                self.acquire_key(key, &options, now)
            };
        }
        if options.share != Share::Whole {
            return Err(LockError::InvalidKeys { why: ONLY_ONE_HAS_SLOTS });
        }
        for key in keys.iter().filter(|key| !self.locks.prefix.is_plain(key)) {
            self.locks.prefix.check_taken(key)?;
        }
        let room = keys.len();
        self.open_set(SetCall::new(Wanted::All, keys, options), room, now)
    }

    /// An attempt at one key is decided.
    pub(super) fn member_decided(
        &mut self,
        Part { whole: index, place }: Part,
        op: OpId,
        result: Result<LeaseId, LockError>,
        now: Instant,
    ) {
        let Some(call) = self.sets.calls.get_mut(&index) else { return };
        // A node that denies several keys at once does not say which of them is held.
        let names_key = !call.is_batch || call.wanted == Wanted::One;
        let member =
            call.members.get_mut(usize::from(place)).filter(|member| member.op() == Some(op));
        debug_assert!(member.is_some(), "{op:?} is the operation of the key at {place}");
        if let Some(member) = member {
            let was_waiting = matches!(member.state, MemberState::Waiting(_));
            member.state = match result {
                Ok(lease) => {
                    self.sets.owners.insert(lease, SetOwner::Call(index));
                    MemberState::Held(lease)
                }
                // The call itself has cancelled the attempt.
                Err(LockError::Cancelled) => MemberState::Free,
                Err(error) => {
                    let error = if names_key { named(error, &member.key) } else { error };
                    call.error = call.error.take().or_else(|| was_waiting.then(|| error.clone()));
                    if error.is_taken() {
                        call.denied_at = now;
                    }
                    MemberState::Denied(error)
                }
            };
        }
        if call.error.is_none() && call.wanted == Wanted::All && call.is_under_way() {
            return;
        }
        let Some(mut call) = self.sets.calls.remove(&index) else { return };
        self.go_on(index, &mut call, now);
        self.sets.calls.insert(index, call);
    }

    /// Something has changed: the call has won, asks for more, waits or ends.
    fn go_on(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        if let Some(error) = call.error.take() {
            return self.end_for(index, call, Some(error), now);
        }
        if let Some(error) = call.first_error().filter(|error| error.is_taken()) {
            call.failed = Some((call.denied_at, error.clone()));
        }
        match call.wanted {
            Wanted::All => self.go_on_with_all(index, call, now),
            Wanted::AllBehindGate => self.go_on_behind_gate(index, call, now),
            Wanted::One => self.go_on_with_one(index, call, now),
        }
    }

    fn go_on_with_all(&mut self, index: OpIndex, call: &mut SetCall, now: Instant) {
        debug_assert!(!call.is_under_way(), "all answers are there");
        if self.ask_by_sets_instead(index, call, now) {
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
            self.keep_all(index, call, now);
            self.wait_for(index, call, first, now);
        }
        self.wait_or_end(index, call, now);
    }

    /// A lease was lost before its call had all keys: the call asks for that key again.
    pub(super) fn member_lost(&mut self, index: OpIndex, lease: LeaseId, now: Instant) {
        let Some(mut call) = self.sets.calls.remove(&index) else { return };
        let is_lost = |member: &&mut Member| member.lease() == Some(lease);
        if let Some(member) = call.members.iter_mut().find(is_lost) {
            member.state = MemberState::Free;
        }
        self.sets.owners.remove(&lease);
        self.release_key(lease, now);
        if call.wanted == Wanted::AllBehindGate && self.is_open(index) {
            self.go_on(index, &mut call, now);
        }
        self.sets.calls.insert(index, call);
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

    /// Takes the result of a call. A lease with too little validity left is given back, and the
    /// call begins anew if it may: then there is no result.
    pub(super) fn report_call(&mut self, index: OpIndex, now: Instant) -> Option<Event> {
        let mut call = self.sets.calls.remove(&index)?;
        let first = call.leases().min_by_key(|lease| self.locks.deadline(*lease));
        let first = first.filter(|_| call.is_won());
        let ends = first.and_then(|lease| self.locks.deadline(lease)).unwrap_or_default();
        let is_late = rules::is_too_late_to_hand_over(now, ends, call.options.min_validity);
        if call.error.is_none() && is_late {
            let granted = first.map_or(NodeMask::EMPTY, |lease| self.locks.votes(lease));
            let error = LockError::Expired(self.ballot_of(granted, Cause::None, now));
            self.give_back(&mut call, 0, now);
            call.failed = Some((now, error.clone()));
            if self.plan_retry(index, now) {
                self.locks.ops.at_mut(index).outcome = Verdict::Open;
                self.sets.calls.insert(index, call);
                return None;
            }
            call.error = Some(error);
        }
        let op = self.locks.ops.id(index);
        self.locks.close_op(index);
        let result = match call.error.take() {
            Some(error) => Err(error),
            None => Ok(self.hand_set_over(&call, op, now)?),
        };
        Some(Event::Lock { op, result })
    }

    /// From now on the caller holds the keys.
    fn hand_set_over(&mut self, call: &SetCall, op: OpId, now: Instant) -> Option<LeaseId> {
        let mut leases: Vec<LeaseId> = Vec::with_capacity(call.members.len());
        leases.extend(call.leases());
        for &lease in &leases {
            if !call.options.keep_alive && self.locks.keep_of(lease.slot).is_some() {
                self.locks.end_keep_alive(lease.slot);
                self.locks.end_keeping(lease.slot);
            }
        }
        self.hand_keys_over(op, leases, now)
    }

    /// From now on the caller holds these leases as one. Their claims name the holder.
    pub(super) fn hand_keys_over(
        &mut self,
        op: OpId,
        leases: Vec<LeaseId>,
        now: Instant,
    ) -> Option<LeaseId> {
        for lease in &leases {
            self.locks.claim(lease.slot, now);
        }
        self.sets.hold(op, leases)
    }

    /// The timer for another round is due: a set asks for its missing keys, and a call for a slot asks
    /// for other slots.
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
    let is_ordered = |keys: &[Key]| keys.is_sorted_by(|a, b| a < b);
    if !is_ordered(&keys) {
        keys.sort_unstable();
        if !is_ordered(&keys) {
            return Err(LockError::InvalidKeys { why: "a key appears twice" });
        }
    }
    Ok(keys)
}

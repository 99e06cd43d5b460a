//! Extensions, releases and the state of leases that hold a set.

use super::core::{Change, Changed, SetOwner};
use crate::engine::core::Engine;
use crate::engine::event::Event;
use crate::engine::locks::op::{OpId, OpKind, Part, Verdict};
use crate::engine::locks::slot::LeaseId;
use crate::error::{ExtendError, UnlockError, Unlocked};
use crate::key;
#[cfg(feature = "sim")]
use crate::quorum::NodeMask;
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;
use crate::token::TokenBytes;

use std::mem::replace;
use std::time::Duration;

/// For at most this many locks, the client remembers the slots that it left.
const NAMES_MAX: usize = 1024;

impl Engine {
    /// Key, token and fence of each key of a set behind the first; none for a single key.
    pub(crate) fn more_names(
        &self,
        lease: LeaseId,
    ) -> impl Iterator<Item = (&[u8], &TokenBytes, Option<u64>)> {
        self.sets.leases(lease).iter().skip(1).filter_map(|&lease| {
            let (key, token) = self.locks.held_name(lease)?;
            Some((key, token, self.locks.fence(lease)))
        })
    }

    /// The nodes that granted each key of a lease.
    #[cfg(feature = "sim")]
    pub(crate) fn votes_by_key(&self, lease: LeaseId) -> Vec<NodeMask> {
        let more = self.sets.leases(lease).iter().skip(1);
        std::iter::once(&lease).chain(more).map(|lease| self.locks.votes(*lease)).collect()
    }

    /// Extends all keys of a set at once.
    #[cold]
    pub(in crate::engine) fn extend_set(
        &mut self,
        lease: LeaseId,
        ttl: Duration,
        now: Instant,
    ) -> Result<OpId, ExtendError> {
        let held = self.sets.held.get(&lease).ok_or(ExtendError::NotOurs)?;
        if rules::is_extension_refused(held.is_extending) {
            return Err(ExtendError::Busy);
        }
        let leases = held.leases.clone();
        for &lease in &leases {
            self.locks.may_extend(lease, ttl, now)?;
        }
        if self.locks.ops.room() <= leases.len() {
            return Err(ExtendError::Full);
        }
        let index = self.locks.ops.open(OpKind::Set).ok_or(ExtendError::Full)?;
        let (mut ops, mut result) = (Vec::with_capacity(leases.len()), Ok(()));
        for lease in leases {
            match self.locks.extend(lease, ttl, now) {
                Ok(op) => ops.push(op),
                Err(error) => result = worse_extension(result, Err(error)),
            }
        }
        if let Some(held) = self.sets.held.get_mut(&lease) {
            held.is_extending = true;
        }
        Ok(self.begin_change(index, ops, Changed::Extend(lease, result)))
    }

    /// Takes the result of an extension out.
    pub(super) fn report_extension(
        &mut self,
        op: OpId,
        lease: LeaseId,
        result: Result<(), ExtendError>,
        now: Instant,
    ) -> Event {
        let Some(held) = self.sets.held.get_mut(&lease) else {
            // The caller has let the set go since its keys were extended.
            return Event::Extend { op, lease, result };
        };
        held.is_extending = false;
        Event::Extend { op, lease, result: judged_again(result, self.deadline(lease), now) }
    }

    /// Releases all keys of a set at once, and reports the result.
    #[cold]
    pub(in crate::engine) fn unlock_set(
        &mut self,
        lease: LeaseId,
        now: Instant,
    ) -> Result<OpId, UnlockError> {
        let Some(index) = self.locks.ops.open(OpKind::Set) else {
            self.release_set(lease, now);
            return Err(UnlockError::Full);
        };
        let leases = self.leave_set(lease);
        let (mut ops, mut result) = (Vec::with_capacity(leases.len()), Ok(Unlocked::Released));
        for lease in leases {
            match self.unlock_key(lease, now) {
                Ok(op) => ops.push(op),
                Err(error) => result = worse_release(result, Err(error)),
            }
        }
        Ok(self.begin_change(index, ops, Changed::Unlock(result)))
    }

    /// Releases all keys of a set without a report.
    #[cold]
    pub(in crate::engine) fn release_set(&mut self, lease: LeaseId, now: Instant) {
        for lease in self.leave_set(lease) {
            self.release_key(lease, now);
        }
    }

    /// Forgets a set that its caller releases. If at most one call waits for its slot, the next call of
    /// this client asks for that slot first.
    fn leave_set(&mut self, lease: LeaseId) -> Vec<LeaseId> {
        let leases = self.sets.forget(lease);
        if let [lease] = leases.as_slice()
            && self.waiting.count_for(lease.slot) <= 1
            && let Some((key, _)) = self.locks.held_name(*lease)
            && let Some((name, slot)) = key::name_and_slot(key)
        {
            let left = &mut self.sets.slots_left;
            if left.len() >= NAMES_MAX {
                left.clear();
            }
            *left.entry(name.into()).or_default() |= 1_u64.checked_shl(slot.into()).unwrap_or(0);
        }
        leases
    }

    pub(super) fn begin_change(&mut self, index: OpIndex, ops: Vec<OpId>, result: Changed) -> OpId {
        for (op, place) in ops.iter().zip(0..) {
            self.locks.ops.at_mut(op.op).part = Some(Part { whole: index, place });
        }
        let open = ops.len();
        self.sets.changes.insert(index, Change { ops, open, result });
        if open == 0 {
            self.locks.finish(index, Verdict::Answered);
        }
        self.locks.ops.id(index)
    }

    /// The extension, adoption or release of one key has its result.
    pub(super) fn part_changed(&mut self, index: OpIndex, event: Event) {
        let Some(change) = self.sets.changes.get_mut(&index) else { return };
        match (&mut change.result, event) {
            (Changed::Adopt(leases, _), Event::Adopt { result: Ok(lease), .. }) => {
                leases.push(lease);
                self.sets.owners.insert(lease, SetOwner::Call(index));
            }
            (Changed::Adopt(_, result), Event::Adopt { result: Err(error), .. }) => {
                *result = worse_extension(replace(result, Ok(())), Err(error));
            }
            (Changed::Extend(_, result), Event::Extend { result: part, .. }) => {
                *result = worse_extension(replace(result, Ok(())), part);
            }
            (Changed::Unlock(result), Event::Unlock { result: part, .. }) => {
                *result = worse_release(*result, part);
            }
            _ => debug_assert!(false, "a part of another change"),
        }
        change.open = change.open.saturating_sub(1);
        if change.open == 0 {
            self.locks.finish(index, Verdict::Answered);
        }
    }
}

/// Judges the result of all keys once more when it is reported: a lease may have ended since.
pub(super) fn judged_again(
    result: Result<(), ExtendError>,
    ends: Option<Instant>,
    now: Instant,
) -> Result<(), ExtendError> {
    let is_in_time = rules::is_extended_in_time(now, ends.unwrap_or_default());
    if is_in_time { result } else { result.and(Err(ExtendError::Expired)) }
}

/// The set is extended if each key is. Of two errors, one that ends the lease counts.
pub(super) fn worse_extension(
    a: Result<(), ExtendError>,
    b: Result<(), ExtendError>,
) -> Result<(), ExtendError> {
    let rank = |result: &Result<(), ExtendError>| match result {
        Ok(()) => 0,
        Err(ExtendError::Lost(_)) => 3,
        Err(ExtendError::Expired) => 2,
        Err(_) => 1,
    };
    if rank(&a) >= rank(&b) { a } else { b }
}

/// The set is released if each key is.
fn worse_release(
    a: Result<Unlocked, UnlockError>,
    b: Result<Unlocked, UnlockError>,
) -> Result<Unlocked, UnlockError> {
    let rank = |result: &Result<Unlocked, UnlockError>| match result {
        Ok(Unlocked::Released) => 0,
        Ok(Unlocked::Unknown) => 1,
        Err(UnlockError::NotHeld) => 3,
        Err(_) => 2,
    };
    if rank(&a) >= rank(&b) { a } else { b }
}

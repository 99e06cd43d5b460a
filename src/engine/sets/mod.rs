//! Several keys under one lease.
//!
//! A set is no lock of its own. Each of its keys is an ordinary attempt with its own token, and then
//! an ordinary lease, in its own slot. So exclusion, ownership, debts and fences are those of single
//! keys. This module asks for several keys at once, and makes one result of several.
//!
//! A call asks for all its keys at once. If one is denied, the call keeps the keys that it won before
//! the first denied one, in the order of their bytes. It gives back the others, and waits for that
//! key as any call does. When it has the key, it asks for all that is left at once, and so on.
//!
//! # Invariants
//!
//! - A call waits for one key, and then holds only keys before it in the order of bytes. All clients
//!   share that order, so no calls wait for each other in a circle.
//! - A set ends with the first of its keys to end, and is judged by that key at the hand-over.
//! - A lease of a set goes by the id of its first lease. No caller knows the ids of the others.

mod call;
mod lease;

use std::collections::HashMap;

pub(crate) use call::in_order;

use super::core::Engine;
use super::event::Event;
use super::locks::op::OpId;
use super::locks::slot::LeaseId;
use crate::error::{ExtendError, LockError, UnlockError, Unlocked};
use crate::key::Key;
use crate::options::LockOptions;
use crate::slab::OpIndex;
use crate::time::Instant;

/// The most keys of a set.
pub(crate) const KEYS_MAX: usize = 64;

/// All sets of an engine.
#[derive(Default)]
pub(super) struct Sets {
    calls: HashMap<OpIndex, Call>,
    changes: HashMap<OpIndex, Change>,
    /// The operation of the whole, by those of its parts.
    wholes: HashMap<OpIndex, OpIndex>,
    held: HashMap<LeaseId, Held>,
    /// Every lease of a set.
    owners: HashMap<LeaseId, Owner>,
}

/// A call for a set.
struct Call {
    members: Vec<Member>,
    options: LockOptions,
    ends: Instant,
    is_patient: bool,
    /// How many attempts are under way.
    open: usize,
    /// The place of the key for which the call waits.
    waits_for: Option<usize>,
    /// The call ends with this error, as soon as no attempt is under way.
    error: Option<LockError>,
}

struct Member {
    key: Key,
    state: State,
}

enum State {
    Free,
    Asked(OpId),
    Held(LeaseId),
    Denied(LockError),
}

impl Member {
    const fn lease(&self) -> Option<LeaseId> {
        if let State::Held(lease) = self.state { Some(lease) } else { None }
    }
}

/// An extension or a release of a set.
struct Change {
    lease: LeaseId,
    ops: Vec<OpId>,
    /// How many of them are under way.
    open: usize,
    result: Changed,
}

enum Changed {
    Extend(Result<(), ExtendError>),
    Unlock(Result<Unlocked, UnlockError>),
}

/// A set that a caller holds.
struct Held {
    /// The call from which it came.
    op: OpId,
    leases: Vec<LeaseId>,
    is_loss_told: bool,
}

/// Which set a lease belongs to.
#[derive(Clone, Copy)]
enum Owner {
    Call(OpIndex),
    Held(LeaseId),
}

impl Sets {
    /// Whether no operation and no lease belongs to a set.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.wholes.is_empty() && self.owners.is_empty()
    }

    /// The leases of a set that a caller holds, in the order of their keys; empty for another lease.
    pub(super) fn leases(&self, lease: LeaseId) -> &[LeaseId] {
        self.held.get(&lease).map_or(&[], |held| &held.leases)
    }

    /// The id by which a caller knows a lease.
    pub(super) fn known_as(&self, lease: LeaseId) -> LeaseId {
        match self.owners.get(&lease) {
            Some(Owner::Held(first)) => *first,
            Some(Owner::Call(_)) | None => lease,
        }
    }

    /// The caller does not hold the set any more. Returns its leases.
    fn forget(&mut self, lease: LeaseId) -> Vec<LeaseId> {
        let leases = self.held.remove(&lease).map(|held| held.leases).unwrap_or_default();
        for lease in &leases {
            self.owners.remove(lease);
        }
        leases
    }

    /// Panics if an invariant is broken.
    pub(super) fn check(&self) {
        for call in self.calls.values() {
            let asked = call.members.iter().filter(|it| matches!(it.state, State::Asked(_)));
            assert_eq!(asked.count(), call.open, "an attempt of a set is under way");
            let is_in_order = |pair: &[Member]| matches!(pair, [a, b] if a.key < b.key);
            assert!(call.members.windows(2).all(is_in_order), "the keys are in order");
        }
    }
}

impl Engine {
    /// Takes an event of a part of a set. Returns the event for the caller, if there is one.
    #[cold]
    pub(super) fn gather(&mut self, event: Event, now: Instant) -> Option<Event> {
        match event {
            Event::Lock { op, result } => {
                let Some(whole) = self.sets.wholes.remove(&op.op) else {
                    return Some(Event::Lock { op, result });
                };
                self.member_decided(whole, op, result, now);
                None
            }
            Event::Extend { op, lease, result } => {
                let Some(whole) = self.sets.wholes.remove(&op.op) else {
                    return Some(Event::Extend { op, lease, result });
                };
                self.part_changed(whole, Changed::Extend(result));
                None
            }
            Event::Unlock { op, result } => {
                let Some(whole) = self.sets.wholes.remove(&op.op) else {
                    return Some(Event::Unlock { op, result });
                };
                self.part_changed(whole, Changed::Unlock(result));
                None
            }
            Event::Lost { op, lease, cause } => match self.sets.owners.get(&lease).copied() {
                None => Some(Event::Lost { op, lease, cause }),
                Some(Owner::Call(whole)) => {
                    self.member_lost(whole, lease, now);
                    None
                }
                Some(Owner::Held(lease)) => {
                    let held = self.sets.held.get_mut(&lease)?;
                    let is_told = std::mem::replace(&mut held.is_loss_told, true);
                    (!is_told).then_some(Event::Lost { op: held.op, lease, cause })
                }
            },
            Event::Adopt { .. } | Event::Query { .. } => Some(event),
        }
    }

    /// A call for a set, or a change of one, has ended. `None`: the call goes on.
    #[cold]
    pub(super) fn report_set(&mut self, index: OpIndex, now: Instant) -> Option<Event> {
        if let Some(Change { lease, result, .. }) = self.sets.changes.remove(&index) {
            let op = self.locks.ops.id(index);
            self.locks.close_op(index);
            return Some(match result {
                Changed::Extend(result) => Event::Extend { op, lease, result },
                Changed::Unlock(result) => Event::Unlock { op, result },
            });
        }
        self.report_call(index, now)
    }
}

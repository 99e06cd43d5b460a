//! The parts of sets: calls under way, changes, and sets that are held.

use std::collections::HashMap;

use crate::engine::locks::op::OpId;
use crate::engine::locks::slot::LeaseId;
use crate::error::{ExtendError, LockError, UnlockError, Unlocked};
use crate::key::Key;
use crate::options::LockOptions;
use crate::slab::OpIndex;

/// The most keys of a set.
pub(super) const KEYS_MAX: usize = 64;

/// All sets of an engine.
#[derive(Default)]
pub(in crate::engine) struct Sets {
    pub(super) calls: HashMap<OpIndex, Call>,
    pub(super) changes: HashMap<OpIndex, Change>,
    /// The operation of the whole, by those of its parts.
    pub(super) wholes: HashMap<OpIndex, OpIndex>,
    pub(super) held: HashMap<LeaseId, Held>,
    /// Every lease of a set.
    pub(super) owners: HashMap<LeaseId, Owner>,
}

/// A call for a set.
pub(super) struct Call {
    pub(super) members: Vec<Member>,
    pub(super) options: LockOptions,
    /// The place of the key for which the call waits.
    pub(super) waits_for: Option<usize>,
    /// The call ends with this error, as soon as no attempt is under way.
    pub(super) error: Option<LockError>,
}

pub(super) struct Member {
    pub(super) key: Key,
    pub(super) state: State,
}

pub(super) enum State {
    Free,
    Asked(OpId),
    Held(LeaseId),
    Denied(LockError),
}

impl Member {
    pub(super) const fn lease(&self) -> Option<LeaseId> {
        if let State::Held(lease) = self.state { Some(lease) } else { None }
    }
}

/// An extension or a release of a set.
pub(super) struct Change {
    pub(super) lease: LeaseId,
    /// Its operations under way.
    pub(super) ops: Vec<OpId>,
    pub(super) result: Changed,
}

pub(super) enum Changed {
    Extend(Result<(), ExtendError>),
    Unlock(Result<Unlocked, UnlockError>),
}

/// A set that a caller holds.
pub(super) struct Held {
    /// The call from which it came.
    pub(super) op: OpId,
    pub(super) leases: Vec<LeaseId>,
    pub(super) is_loss_told: bool,
}

/// Which set a lease belongs to.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    Call(OpIndex),
    Held(LeaseId),
}

impl Sets {
    /// Whether no operation and no lease belongs to a set.
    #[inline]
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.wholes.is_empty() && self.owners.is_empty()
    }

    /// The leases of a set that a caller holds, in the order of their keys; empty for another lease.
    pub(in crate::engine) fn leases(&self, lease: LeaseId) -> &[LeaseId] {
        self.held.get(&lease).map_or(&[], |held| &held.leases)
    }

    /// The id by which a caller knows a lease.
    pub(in crate::engine) fn known_as(&self, lease: LeaseId) -> LeaseId {
        match self.owners.get(&lease) {
            Some(Owner::Held(first)) => *first,
            Some(Owner::Call(_)) | None => lease,
        }
    }

    /// The caller does not hold the set any more. Returns its leases.
    pub(super) fn forget(&mut self, lease: LeaseId) -> Vec<LeaseId> {
        let leases = self.held.remove(&lease).map(|held| held.leases).unwrap_or_default();
        for lease in &leases {
            self.owners.remove(lease);
        }
        leases
    }

    /// Panics if an invariant is broken.
    pub(in crate::engine) fn check(&self) {
        for call in self.calls.values() {
            let is_in_order = |pair: &[Member]| matches!(pair, [a, b] if a.key < b.key);
            assert!(call.members.windows(2).all(is_in_order), "the keys are in order");
        }
    }
}

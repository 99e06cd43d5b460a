//! The parts of sets: calls under way, changes, and sets that are held.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::engine::locks::batch::BatchKind;
use crate::engine::locks::op::OpId;
use crate::engine::locks::slot::LeaseId;
use crate::error::{ExtendError, LockError, UnlockError, Unlocked};
use crate::key::Key;
use crate::options::LockOptions;
use crate::slab::OpIndex;
use crate::time::Instant;

/// The most keys of a set.
pub(super) const KEYS_MAX: usize = 64;

/// All sets of an engine.
#[derive(Clone, Default)]
pub(in crate::engine) struct Sets {
    /// A caller has asked for several keys or for a slot, so events may belong to a set.
    pub(in crate::engine) is_used: bool,
    pub(super) calls: FxHashMap<OpIndex, Box<SetCall>>,
    pub(super) changes: FxHashMap<OpIndex, Change>,
    /// By the lease of their first key.
    pub(super) held: FxHashMap<LeaseId, HeldSet>,
    /// Every lease of a set.
    pub(super) owners: FxHashMap<LeaseId, SetOwner>,
    /// By lock name, one bit for each slot that this client released while at most one other call
    /// waited for it.
    pub(super) slots_left: HashMap<Key, u64>,
}

/// A call for a set, or for one of several keys.
#[derive(Clone)]
pub(super) struct SetCall {
    pub(super) wanted: Wanted,
    pub(super) members: Vec<Member>,
    /// The attempts of the last round shared one command.
    pub(super) is_batch: bool,
    /// The call for a slot has asked again because nodes named different slots.
    pub(super) has_repeated: bool,
    /// The first slot is the slot that this client left. If all slots are taken, the call waits for it.
    pub(super) has_left_first: bool,
    pub(super) options: LockOptions,
    /// When nodes last denied a key.
    pub(super) denied_at: Instant,
    /// When and why the call last failed to get a key, or the whole set.
    pub(super) failed: Option<(Instant, LockError)>,
    /// The call ends with this error, as soon as no attempt is under way.
    pub(super) error: Option<LockError>,
}

/// Which of its keys a call wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// All. The first is the gate: a call that is denied the gate gives the others back.
    AllBehindGate,
    /// Any single key.
    One,
}

#[derive(Clone)]
pub(super) struct Member {
    pub(super) key: Key,
    pub(super) state: MemberState,
}

#[derive(Clone)]
pub(super) enum MemberState {
    Free,
    /// One attempt is under way.
    Asked(OpId),
    /// A call of its own waits for the key.
    Waiting(OpId),
    Held(LeaseId),
    Denied(LockError),
}

impl Member {
    pub(super) const fn lease(&self) -> Option<LeaseId> {
        if let MemberState::Held(lease) = self.state { Some(lease) } else { None }
    }

    /// The operation under way.
    pub(super) const fn op(&self) -> Option<OpId> {
        if let MemberState::Asked(op) | MemberState::Waiting(op) = self.state {
            Some(op)
        } else {
            None
        }
    }

    pub(super) const fn is_denied(&self) -> bool {
        matches!(self.state, MemberState::Denied(_))
    }

    /// Whether some nodes granted the key, but too few. Either several calls split the votes, or the
    /// holder lacks votes on these nodes.
    pub(super) fn is_split(&self) -> bool {
        let MemberState::Denied(LockError::Taken(ballot) | LockError::NoQuorum(ballot)) =
            &self.state
        else {
            return false;
        };
        !ballot.granted.is_empty()
    }

    pub(super) const fn is_free(&self) -> bool {
        matches!(self.state, MemberState::Free)
    }
}

impl SetCall {
    pub(super) fn new(wanted: Wanted, keys: Vec<Key>, options: LockOptions) -> Self {
        let members =
            keys.into_iter().map(|key| Member { key, state: MemberState::Free }).collect();
        Self {
            wanted,
            members,
            is_batch: false,
            has_repeated: false,
            has_left_first: false,
            options,
            denied_at: Instant::default(),
            failed: None,
            error: None,
        }
    }

    /// The command that asks a node for several keys at once.
    pub(super) const fn batch_kind(&self) -> BatchKind {
        match self.wanted {
            Wanted::One => BatchKind::FirstFree,
            Wanted::All | Wanted::AllBehindGate => BatchKind::All,
        }
    }

    /// Whether single attempts are under way.
    pub(super) fn is_asking(&self) -> bool {
        self.members.iter().any(|member| matches!(member.state, MemberState::Asked(_)))
    }

    /// Whether any attempt is under way. Nodes answer for the keys in their order, so the search
    /// begins with the last.
    pub(super) fn is_under_way(&self) -> bool {
        self.members.iter().rev().any(|member| member.op().is_some())
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.members.iter().filter_map(Member::lease)
    }

    /// Whether the call has what it wants.
    pub(super) fn is_won(&self) -> bool {
        match self.wanted {
            Wanted::All | Wanted::AllBehindGate => self.leases().count() == self.members.len(),
            Wanted::One => self.leases().next().is_some(),
        }
    }

    /// The call may ask again for each key that it does not hold.
    pub(super) fn forget_denials(&mut self) {
        for member in &mut self.members {
            if member.is_denied() {
                member.state = MemberState::Free;
            }
        }
    }

    /// The error of the first denied key. For slots, `Full` outranks other errors, because a slot
    /// that the call did not ask for may be free.
    pub(super) fn first_error(&self) -> Option<&LockError> {
        let mut errors = self.members.iter().filter_map(|member| match &member.state {
            MemberState::Denied(error) => Some(error),
            MemberState::Free
            | MemberState::Asked(_)
            | MemberState::Waiting(_)
            | MemberState::Held(_) => None,
        });
        match self.wanted {
            Wanted::All | Wanted::AllBehindGate => errors.next(),
            Wanted::One => errors.reduce(|a, b| if matches!(b, LockError::Full) { b } else { a }),
        }
    }

    /// Whether other operations have taken the room that the call needs.
    pub(super) fn lacks_room(&self) -> bool {
        matches!(self.first_error(), Some(LockError::Full))
    }

    /// Whether a denied call may wait: a wait can mend the error of its first denied key.
    pub(super) fn may_wait(&self) -> bool {
        self.first_error().is_none_or(LockError::is_transient)
    }
}

/// An extension, a release or an adoption of a set.
#[derive(Clone)]
pub(super) struct Change {
    /// Its operations, one per key.
    pub(super) ops: Vec<OpId>,
    /// How many of them are under way.
    pub(super) open: usize,
    pub(super) result: Changed,
}

#[derive(Clone)]
pub(super) enum Changed {
    Extend(LeaseId, Result<(), ExtendError>),
    /// The keys that are adopted so far.
    Adopt(Vec<LeaseId>, Result<(), ExtendError>),
    Unlock(Result<Unlocked, UnlockError>),
}

/// A set that a caller holds.
#[derive(Clone)]
pub(super) struct HeldSet {
    /// The call from which it came.
    pub(super) op: OpId,
    pub(super) leases: Vec<LeaseId>,
    pub(super) is_loss_told: bool,
    /// An extension is under way, or not reported yet.
    pub(super) is_extending: bool,
}

/// The set that a lease belongs to.
#[derive(Clone, Copy)]
pub(super) enum SetOwner {
    /// A call or an adoption under way.
    Call(OpIndex),
    /// Known to its caller by the lease of its first key.
    Held(LeaseId),
}

impl Sets {
    /// The leases of a set that a caller holds, in the order of their keys; empty for another lease.
    pub(in crate::engine) fn leases(&self, lease: LeaseId) -> &[LeaseId] {
        self.held.get(&lease).map_or(&[], |held| &held.leases)
    }

    /// From now on a caller holds these leases as one set. Returns the id by which the caller knows
    /// it.
    pub(super) fn hold(&mut self, op: OpId, leases: Vec<LeaseId>) -> Option<LeaseId> {
        let first = *leases.first()?;
        for &lease in &leases {
            self.owners.insert(lease, SetOwner::Held(first));
        }
        self.held.insert(first, HeldSet { op, leases, is_loss_told: false, is_extending: false });
        Some(first)
    }

    /// The id by which a caller knows a lease; `None` if a call under way has it.
    pub(in crate::engine) fn known_as(&self, lease: LeaseId) -> Option<LeaseId> {
        match self.owners.get(&lease) {
            Some(SetOwner::Held(first)) => Some(*first),
            Some(SetOwner::Call(_)) => None,
            None => Some(lease),
        }
    }

    /// Whether a caller holds this lease, and no other with it.
    pub(in crate::engine) fn is_alone(&self, lease: LeaseId) -> bool {
        match self.owners.get(&lease) {
            Some(SetOwner::Held(first)) => self.leases(*first).len() == 1,
            Some(SetOwner::Call(_)) => false,
            None => true,
        }
    }

    /// The caller does not hold the set any more. Returns its leases.
    pub(in crate::engine) fn forget(&mut self, lease: LeaseId) -> Vec<LeaseId> {
        let leases = self.held.remove(&lease).map(|held| held.leases).unwrap_or_default();
        for lease in &leases {
            self.owners.remove(lease);
        }
        leases
    }

    /// How many calls, changes, sets and owners there are.
    #[cfg(feature = "sim")]
    pub(in crate::engine) fn in_use(&self) -> [(&'static str, usize); 4] {
        let (calls, changes) = (self.calls.len(), self.changes.len());
        let (held, owners) = (self.held.len(), self.owners.len());
        [("set calls", calls), ("set changes", changes), ("sets", held), ("owners", owners)]
    }

    /// Panics if an invariant is broken.
    pub(in crate::engine) fn check(&self) {
        for call in self.calls.values() {
            let is_in_order = |pair: &[Member]| matches!(pair, [a, b] if a.key < b.key);
            let is_ordered = call.members.windows(2).all(is_in_order);
            assert!(is_ordered || call.wanted == Wanted::One, "the keys are in order");
            let is_single = call.leases().count() <= 1;
            assert!(is_single || call.wanted != Wanted::One, "a call for a slot keeps one");
        }
    }
}

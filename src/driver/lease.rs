//! [`Lease`]: a held lock as its holder sees it; the pool that leases come from; and the results of
//! operations, some of which bring a lease.
//!
//! # Invariants
//!
//! - Dropping a lease allocates nothing and makes no system call, on any thread. It pushes the
//!   place of the lease's state on a list, and the driving thread empties that list.
//! - An unlocked lease goes back to its pool at once, not through that list.
//! - The pool uses a state for another lease only once it has no other reference.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::clock;
use crate::engine::{Engine, Event, LeaseId, LostCause, OpId};
use crate::error::{ExtendError, LockError, UnlockError, Unlocked};
use crate::key::{self, Key};
use crate::query::NodeAnswers;
use crate::quorum::NodeMask;
use crate::time::Instant;
use crate::token::{LockToken, TokenBytes};

/// A lock that a quorum granted, valid until [`deadline`](Self::deadline).
///
/// Dropping it releases the lock without waiting: the next pass of its driver, or the driver's own
/// drop, sends the release. A lease may outlive its driver. Then no release follows, and the TTL
/// ends the key. To know that the lock is free, pass the lease to
/// [`Driver::unlock`](crate::driver::Driver::unlock).
///
/// The lock is held until the deadline and no longer, whatever the process does. Check
/// [`remaining`](Self::remaining) right before each effect that needs the lock. A lease's methods
/// make no system call and wait for no mutex; any thread may call them.
#[must_use = "dropping a lease releases its lock"]
pub struct Lease {
    state: Arc<LeaseState>,
}

pub(crate) struct LeaseState {
    inbox: Arc<Inbox>,
    place: u32,
    id: LeaseId,
    key: Key,
    token: TokenBytes,
    fence: Option<NonZeroU64>,
    /// The other keys, if the lease holds several, in the order of their bytes.
    rest: Box<[LockedKey]>,
    deadline: AtomicU64,
    votes: AtomicU32,
    is_lost: AtomicBool,
    /// Other programs may know the token, and act on the lock.
    is_exposed: AtomicBool,
    /// The caller gave up the adoption of the lock: its last holder may still hold it.
    is_left: AtomicBool,
    /// The lease is back in its pool: dropping it does nothing.
    is_reclaimed: AtomicBool,
    /// The next place in the list of dropped leases.
    next: AtomicU32,
}

/// A key of a lease that holds several.
pub(crate) struct LockedKey {
    key: Key,
    token: TokenBytes,
    fence: Option<NonZeroU64>,
}

/// The list of dropped leases: a stack whose owner always takes all of it.
#[derive(Debug)]
struct Inbox {
    head: AtomicU32,
}

const END: u32 = u32::MAX;

impl Lease {
    /// How long the lock is still certainly held; zero when it is over.
    ///
    /// Costs one clock read and one atomic load; no system call.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.remaining_at(clock::now())
    }

    pub(crate) fn remaining_at(&self, now: Instant) -> Duration {
        if self.is_lost() { Duration::ZERO } else { now.until(self.deadline()) }
    }

    /// Whether the lock is still certainly held.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Whether the client knows that the lock is over: no quorum can hold it any more, its deadline
    /// has come while it was kept alive, or the holder gave it away. Costs an atomic load; once true,
    /// it stays true.
    ///
    /// Alone it suffices only if a thread drives the sockets all the time. Otherwise use
    /// [`is_valid`](Self::is_valid), which reads the clock too.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.state.is_lost.load(Ordering::Acquire)
    }

    /// The end of the lease on the clock of [`redbolt::now`](crate::now): the TTL less the
    /// allowance for drift, counted from before the first byte.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        Instant::from_nanos(self.state.deadline.load(Ordering::Acquire))
    }

    /// The key; of several, the first in the order of their bytes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.state.key
    }

    /// Which [slot](crate::LockOptions::slots) of its lock the lease holds, from 0 on; `None` for a
    /// lock without slots, and for all slots together.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        key::slot_of(self.key()).map(usize::from)
    }

    /// The value that the nodes hold. With key and token any process can extend and release the
    /// lock. The token does not order the holders: to let a resource refuse an earlier one, use
    /// [`fence`](Self::fence).
    #[must_use]
    pub fn token(&self) -> LockToken {
        self.state.is_exposed.store(true, Ordering::Relaxed);
        LockToken::new(&self.state.token)
    }

    /// All keys, in the order of their bytes: several if the lock was taken with `lock_all`, or to
    /// [write](crate::LockOptions::write).
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let rest = self.state.rest.iter().map(|locked| locked.key.as_slice());
        std::iter::once(self.key()).chain(rest)
    }

    /// The [token](Self::token) of one of the keys; `None` for a key that the lease does not hold.
    #[must_use]
    pub fn token_of(&self, key: impl AsRef<[u8]>) -> Option<LockToken> {
        let key = key.as_ref();
        if key == self.key() {
            return Some(self.token());
        }
        let locked = self.state.rest.iter().find(|locked| locked.key.as_slice() == key)?;
        Some(LockToken::new(&locked.token))
    }

    /// The [fence](Self::fence) of one of the keys. Each key has its own.
    #[must_use]
    pub fn fence_of(&self, key: impl AsRef<[u8]>) -> Option<u64> {
        let key = key.as_ref();
        if key == self.key() {
            return self.fence();
        }
        let locked = self.state.rest.iter().find(|locked| locked.key.as_slice() == key)?;
        locked.fence.map(NonZeroU64::get)
    }

    /// Whether the lease holds several keys.
    pub(crate) fn is_set(&self) -> bool {
        !self.state.rest.is_empty()
    }

    /// The nodes that granted the lock and still hold it; for several keys, the nodes that hold all
    /// of them. Late answers add nodes, and take away nodes that lost a key.
    #[must_use]
    pub fn votes(&self) -> NodeMask {
        NodeMask::from_bits(self.state.votes.load(Ordering::Relaxed))
    }

    /// The fence, if the caller asked for one
    /// ([`LockOptions::fenced`](crate::LockOptions::fenced)): higher than that of every earlier
    /// lease of this key. Hand it to the resource with each write; an extension keeps it.
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        self.state.fence.map(NonZeroU64::get)
    }

    pub(crate) fn id(&self) -> LeaseId {
        self.state.id
    }

    pub(crate) fn is_exposed(&self) -> bool {
        self.state.is_exposed.load(Ordering::Relaxed)
    }

    /// Drops an adopted lease whose caller has given its call up: the client forgets the lock and
    /// deletes nothing.
    pub(crate) fn leave(self) {
        self.state.is_left.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_of(&self, pool: &LeasePool) -> bool {
        Arc::ptr_eq(&self.state.inbox, &pool.inbox)
    }

    /// The holder gave the lock away: this lease is over, and its drop releases nothing.
    pub(crate) fn end(&self) {
        self.state.is_lost.store(true, Ordering::Release);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let state = &self.state;
        if state.is_reclaimed.load(Ordering::Relaxed) {
            return;
        }
        let mut head = state.inbox.head.load(Ordering::Relaxed);
        loop {
            state.next.store(head, Ordering::Relaxed);
            match state.inbox.head.compare_exchange_weak(
                head,
                state.place,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key().escape_ascii().to_string())
            .field("deadline", &self.deadline())
            .field("votes", &self.votes())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

/// An operation that has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The id that [`Driver::try_lock`](crate::driver::Driver::try_lock) or a similar call returned. For a loss: the id of the call
    /// that took or adopted the lease.
    pub id: OpId,
    /// How it ended.
    pub result: Outcome,
}

/// How an operation ended, by its kind.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The result of [`Driver::try_lock`](crate::driver::Driver::try_lock), [`Driver::lock`](crate::driver::Driver::lock), and of both for several keys.
    Lock(Result<Lease, LockError>),
    /// The result of [`Driver::extend`](crate::driver::Driver::extend); the lease itself knows its new deadline.
    Extend(Result<(), ExtendError>),
    /// The result of [`Driver::adopt`](crate::driver::Driver::adopt).
    Adopt(Result<Lease, ExtendError>),
    /// The result of [`Driver::unlock`](crate::driver::Driver::unlock) and [`Driver::unlock_token`](crate::driver::Driver::unlock_token).
    Unlock(Result<Unlocked, UnlockError>),
    /// A lease that is kept alive ended without its release. The driver reports that at the
    /// deadline at the latest, and at once if no quorum can hold the key any more.
    /// [`Lease::is_lost`] is already true; dropping the lease still deletes keys that may be left.
    Lost(LostCause),
    /// The result of [`Driver::query`](crate::driver::Driver::query): each node's answers, in the order of the configuration.
    Query(Vec<NodeAnswers>),
}

/// The states of all leases of one client, reused.
pub(crate) struct LeasePool {
    inbox: Arc<Inbox>,
    states: Vec<Arc<LeaseState>>,
    free: Vec<u32>,
    /// A lease was lost, or its deadline moved nearer, since the caller last asked.
    pub(crate) has_lost: bool,
}

impl LeasePool {
    pub(crate) fn new() -> Self {
        Self {
            inbox: Arc::new(Inbox { head: AtomicU32::new(END) }),
            states: Vec::new(),
            free: Vec::new(),
            has_lost: false,
        }
    }

    /// Turns an event of the engine into a completion for the caller.
    pub(super) fn complete(&mut self, engine: &mut Engine, event: Event) -> Completion {
        match event {
            Event::Lock { op, result } => {
                let result =
                    result.and_then(|id| self.lease_of(engine, id).ok_or(LockError::Cancelled));
                Completion { id: op, result: Outcome::Lock(result) }
            }
            Event::Adopt { op, result } => {
                let result =
                    result.and_then(|id| self.lease_of(engine, id).ok_or(ExtendError::NotOurs));
                Completion { id: op, result: Outcome::Adopt(result) }
            }
            Event::Extend { op, lease, result } => {
                self.copy_change(engine, lease);
                Completion { id: op, result: Outcome::Extend(result) }
            }
            Event::Unlock { op, result } => Completion { id: op, result: Outcome::Unlock(result) },
            Event::Lost { op, lease, cause } => {
                self.copy_change(engine, lease);
                Completion { id: op, result: Outcome::Lost(cause) }
            }
            Event::Query { op, answers } => Completion { id: op, result: Outcome::Query(answers) },
        }
    }

    /// Makes a lease from the engine's data, and tells the engine the place of the lease's state.
    /// `None` if the engine holds none.
    pub(crate) fn lease_of(&mut self, engine: &mut Engine, id: LeaseId) -> Option<Lease> {
        let (key, token) = engine.held_name(id)?;
        let deadline = engine.deadline(id)?;
        let (votes, fence) = (engine.votes(id), engine.fence(id));
        let more = engine.more_names(id).map(|(key, token, fence)| LockedKey {
            key: Key::from_slice(key),
            token: token.clone(),
            fence: fence.and_then(NonZeroU64::new),
        });
        let mut rest = Vec::with_capacity(more.size_hint().1.unwrap_or_default());
        rest.extend(more);
        let (lease, place) =
            self.make(id, (key, token, fence), rest.into_boxed_slice(), deadline, votes);
        engine.set_word(id, place);
        self.copy_exposure(engine, place, id);
        Some(lease)
    }

    /// Makes a lease. Returns it and the place of its state.
    pub(crate) fn make(
        &mut self,
        id: LeaseId,
        (key, token, fence): (&[u8], &TokenBytes, Option<u64>),
        rest: Box<[LockedKey]>,
        deadline: Instant,
        votes: NodeMask,
    ) -> (Lease, u32) {
        let fence = fence.and_then(NonZeroU64::new);
        let place = self.free.pop();
        let reusable = place.and_then(|place| self.states.get_mut(place as usize));
        if let Some(arc) = reusable
            && let Some(state) = Arc::get_mut(arc)
        {
            state.id = id;
            key::replace(&mut state.key, key);
            state.token.clone_from(token);
            state.fence = fence;
            state.rest = rest;
            *state.deadline.get_mut() = deadline.as_nanos();
            *state.votes.get_mut() = votes.bits();
            *state.is_lost.get_mut() = false;
            *state.is_exposed.get_mut() = false;
            *state.is_left.get_mut() = false;
            *state.is_reclaimed.get_mut() = false;
            return (Lease { state: Arc::clone(arc) }, place.unwrap_or(END));
        }
        // No state is free, or another thread is still letting go of this one.
        let place = place.unwrap_or_else(|| u32::try_from(self.states.len()).unwrap_or(END));
        let state = Arc::new(LeaseState {
            inbox: Arc::clone(&self.inbox),
            place,
            id,
            key: Key::from_slice(key),
            token: token.clone(),
            fence,
            rest,
            deadline: AtomicU64::new(deadline.as_nanos()),
            votes: AtomicU32::new(votes.bits()),
            is_lost: AtomicBool::new(false),
            is_exposed: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            is_reclaimed: AtomicBool::new(false),
            next: AtomicU32::new(END),
        });
        match self.states.get_mut(place as usize) {
            Some(old) => *old = Arc::clone(&state),
            None => self.states.push(Arc::clone(&state)),
        }
        (Lease { state }, place)
    }

    /// Takes a lease of this pool back and frees its state.
    pub(crate) fn reclaim(&mut self, lease: Lease) {
        lease.state.is_reclaimed.store(true, Ordering::Relaxed);
        self.free.push(lease.state.place);
    }

    /// Whether leases were dropped since the last [`take_dropped`](Self::take_dropped).
    #[inline]
    pub(crate) fn has_dropped(&self) -> bool {
        self.inbox.head.load(Ordering::Relaxed) != END
    }

    /// Hands every dropped lease to `each`, with whether it is left, and frees its state.
    pub(crate) fn take_dropped(&mut self, mut each: impl FnMut(LeaseId, bool)) {
        let mut place = self.inbox.head.swap(END, Ordering::Acquire);
        while let Some(state) = self.states.get(place as usize) {
            each(state.id, state.is_left.load(Ordering::Relaxed));
            self.free.push(place);
            place = state.next.load(Ordering::Relaxed);
        }
    }

    /// Copies the engine's deadline and votes to the lease, and whether the lease is lost.
    pub(crate) fn copy_change(&mut self, engine: &Engine, id: LeaseId) {
        let (Some(place), Some(deadline)) = (engine.word(id), engine.deadline(id)) else { return };
        if let Some(state) = self.states.get(place as usize).filter(|state| state.id == id) {
            let before = state.deadline.swap(deadline.as_nanos(), Ordering::Release);
            // A caller that waits until this lease ends must look at the deadline again.
            self.has_lost |= deadline.as_nanos() < before;
            state.votes.store(engine.votes(id).bits(), Ordering::Relaxed);
        }
        if engine.is_lost(id) {
            self.set_lost(place, id);
        }
        self.copy_exposure(engine, place, id);
    }

    /// Notes whether other programs may act on the lock.
    fn copy_exposure(&self, engine: &Engine, place: u32, id: LeaseId) {
        if engine.is_shared(id)
            && let Some(state) = self.states.get(place as usize).filter(|state| state.id == id)
        {
            state.is_exposed.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_lost(&mut self, place: u32, id: LeaseId) {
        if let Some(state) = self.states.get(place as usize).filter(|state| state.id == id) {
            self.has_lost |= !state.is_lost.swap(true, Ordering::Release);
        }
    }
}

//! The queues, one for each key that this client holds or wants. Each has the holder, the call that
//! competes for the key on the network, and the waiters, first-in first-out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::calls::{CallIndex, Calls, QueueIndex, Stage};
use super::counting::Moment;
use crate::driver::Lease;
use crate::engine::LeaseId;
use crate::key::{self, Key, SLOTS_MAX};
use crate::options::{LockOptions, Share};
use crate::quorum::NodeMask;
use crate::rules;
use crate::slab::Slab;
use crate::time::Instant;

/// The lease of a key that this client holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) id: LeaseId,
    /// Its deadline at the last check.
    pub(super) valid_until: Instant,
    pub(super) votes: NodeMask,
    /// When its present caller got it; unknown until the table first looks.
    pub(super) held_since: Moment,
    /// How often callers of this client have handed the lease on.
    pub(super) turns: u32,
    /// Another client waits for it.
    pub(super) is_wanted_elsewhere: bool,
    /// Whether the client keeps it alive.
    pub(super) keep_alive: bool,
    pub(super) is_fenced: bool,
    /// The holder's name is beside the lock.
    pub(super) is_announced: bool,
    pub(super) ttl: Duration,
    /// For how long it may linger; zero if it may not.
    pub(super) linger: Duration,
    /// A caller extended the lease by another TTL, so its deadline does not tell when its time to
    /// linger ends.
    pub(super) is_extended: bool,
    /// The last noted end of its time to linger.
    pub(super) lingers_until: Instant,
}

impl Holder {
    /// Another caller of this client gets the lease.
    pub(super) fn hand_on(&mut self, held_since: Moment, wanted: &LockOptions) {
        self.turns += 1;
        self.held_since = held_since;
        self.linger = if self.is_extended { Duration::ZERO } else { wanted.linger_limit() };
    }
}

#[derive(Debug)]
pub(super) struct KeyQueue {
    pub(super) key: Key,
    pub(super) holder: Option<Holder>,
    /// The holder's lease while no caller uses it: it lingers.
    pub(super) lingering: Option<Lease>,
    /// The call that competes on the network for all calls of the queue.
    pub(super) competitor: Option<CallIndex>,
    /// The calls behind the competitor.
    pub(super) first: Option<CallIndex>,
    last: Option<CallIndex>,
    /// Calls that name this queue and have not ended.
    refs: u32,
    /// How many slots the lock has; zero if it has none.
    pub(super) slots: u8,
    /// The queue is in the index of keys.
    is_named: bool,
}

/// All queues of a client.
#[derive(Debug, Default)]
pub(super) struct Queues {
    queues: Slab<QueueIndex, KeyQueue>,
    by_key: HashMap<Key, QueueIndex>,
}

impl Queues {
    /// The queue of a key that a caller adopts. The adopter of a slot does not say how many slots
    /// the lock has, so the lock counts as one with `SLOTS_MAX`.
    pub(super) fn enter_adopted(&mut self, key: &[u8]) -> Option<QueueIndex> {
        let slots = key::slot_of(key).map_or(0, |_| SLOTS_MAX);
        self.enter_with(key, slots)
    }

    /// The queue of `key`; one more call names it from now on. `None` if all indices of
    /// queues are in use.
    fn enter_with(&mut self, key: &[u8], slots: u8) -> Option<QueueIndex> {
        let queues = &mut self.queues;
        match self.by_key.entry(Key::from_slice(key)) {
            Entry::Occupied(entry) => {
                let queue = queues.at_mut(*entry.get());
                queue.refs += 1;
                queue.slots = queue.slots.max(slots);
                Some(*entry.get())
            }
            Entry::Vacant(entry) => {
                let index = queues.take(KeyQueue::empty)?;
                let queue = queues.at_mut(index);
                key::replace(&mut queue.key, key);
                (queue.refs, queue.slots, queue.is_named) = (1, slots, true);
                Some(*entry.insert(index))
            }
        }
    }

    /// The queue of a key, if there is one.
    pub(super) fn of(&self, key: &[u8]) -> Option<QueueIndex> {
        self.by_key.get(key).copied()
    }

    /// The queue of a call for the lock `name`. A lock with slots has one queue per slot. The call
    /// enters the shortest, and may still win another slot. A call that may not wait prefers a slot
    /// that this client does not hold.
    pub(super) fn enter_for(
        &mut self,
        name: &[u8],
        share: Share,
        is_patient: bool,
        now: Instant,
    ) -> Option<QueueIndex> {
        let slots = match share {
            Share::Whole | Share::Part => return self.enter_with(name, 0),
            Share::AllSlots(_) => return self.enter_with(&key::gate(name), 0),
            Share::Slot(slots) => slots,
        };
        let len = |key: &Key| {
            let queue = self.by_key.get(key).map(|index| self.at(*index));
            let holder = queue.and_then(|queue| queue.holder);
            // The client may have extended a lease whose time seems to be over.
            let len = queue.map_or(0, |queue| queue.refs).saturating_add(holder.is_some().into());
            (!is_patient && holder.is_some_and(|it| it.valid_until > now), len)
        };
        let key = (0..slots).map(|slot| key::slot(name, slot)).min_by_key(len)?;
        self.enter_with(&key, slots)
    }

    /// If no call waits in the queue of a slot, the first call of the longest queue of another slot
    /// moves there.
    #[inline]
    pub(super) fn pull(&mut self, index: QueueIndex, calls: &mut Calls) {
        let queue = self.at(index);
        if queue.slots > 0 && queue.first.is_none() {
            self.pull_from_siblings(index, calls);
        }
    }

    #[cold]
    fn pull_from_siblings(&mut self, index: QueueIndex, calls: &mut Calls) {
        let siblings = self.siblings(&self.at(index).key, self.at(index).slots);
        let longest = siblings.into_iter().filter(|it| self.at(*it).first.is_some());
        let Some(longest) = longest.max_by_key(|it| self.at(*it).refs) else { return };
        let Some(call) = self.at(longest).first else { return };
        self.unlink(longest, call, calls);
        calls.at_mut(call).queue = Some(index);
        self.at_mut(index).refs += 1;
        self.push(index, call, calls);
        self.leave(longest);
    }

    /// The queues of a lock with slots.
    fn siblings(&self, key: &[u8], slots: u8) -> Vec<QueueIndex> {
        let Some((name, _)) = key::name_and_slot(key) else { return Vec::new() };
        let keys = (0..slots).map(|slot| key::slot(name, slot));
        keys.filter_map(|key| self.by_key.get(&key).copied()).collect()
    }

    /// A call that names the queue has ended.
    pub(super) fn leave(&mut self, index: QueueIndex) {
        let queue = self.at_mut(index);
        queue.refs = queue.refs.saturating_sub(1);
        self.free_if_unused(index);
    }

    pub(super) fn free_if_unused(&mut self, index: QueueIndex) {
        let queue = self.at_mut(index);
        let is_unused = queue.refs == 0 && queue.holder.is_none();
        if !is_unused || !std::mem::take(&mut queue.is_named) {
            return;
        }
        let Self { queues, by_key } = self;
        by_key.remove(&queues.at(index).key);
        queues.give_back(index);
    }

    /// Whether this lease holds the queue's key.
    pub(super) fn is_held_by(&self, index: QueueIndex, id: LeaseId) -> bool {
        self.at(index).holder.is_some_and(|holder| holder.id == id)
    }

    /// A call has won the lease of the queue's key.
    pub(super) fn won(&mut self, index: QueueIndex, lease: &Lease, options: &LockOptions) {
        self.at_mut(index).holder = Some(Holder {
            id: lease.id(),
            valid_until: lease.deadline(),
            votes: lease.votes(),
            held_since: Moment::default(),
            turns: 0,
            is_wanted_elsewhere: false,
            keep_alive: options.keep_alive,
            is_fenced: options.is_fenced || options.fence.is_some(),
            is_announced: options.is_announced,
            ttl: options.ttl,
            linger: options.linger_limit(),
            is_extended: false,
            lingers_until: Instant::default(),
        });
    }

    /// Another client waits for a lease of this client. Returns the lease if it lingers.
    pub(super) fn note_wanted_elsewhere(&mut self, lease: LeaseId, key: &[u8]) -> Option<Lease> {
        let is_of = |index: &QueueIndex| self.is_held_by(*index, lease);
        let siblings = || self.siblings(key, SLOTS_MAX).into_iter().find(is_of);
        let index = self.by_key.get(key).copied().filter(is_of).or_else(siblings)?;
        let queue = self.at_mut(index);
        let holder = queue.holder.as_mut().filter(|holder| holder.id == lease)?;
        holder.is_wanted_elsewhere = true;
        let lingering = queue.lingering.take_if(|_| rules::ends_lingering(true))?;
        queue.holder = None;
        self.free_if_unused(index);
        Some(lingering)
    }

    /// Puts a call at the end of the queue.
    pub(super) fn push(&mut self, index: QueueIndex, call: CallIndex, calls: &mut Calls) {
        let queue = self.at_mut(index);
        let last = queue.last.replace(call);
        let place = calls.at_mut(call);
        place.stage = Stage::Queued;
        place.prev = last;
        place.next = None;
        match last {
            None => queue.first = Some(call),
            Some(last) => calls.at_mut(last).next = Some(call),
        }
    }

    /// Takes a call out of the queue, wherever it stands.
    pub(super) fn unlink(&mut self, index: QueueIndex, call: CallIndex, calls: &mut Calls) {
        let place = calls.at_mut(call);
        let (prev, next) = (place.prev, place.next);
        place.stage = Stage::UnderWay;
        let queue = self.at_mut(index);
        match prev {
            None => queue.first = next,
            Some(prev) => calls.at_mut(prev).next = next,
        }
        match next {
            None => queue.last = prev,
            Some(next) => calls.at_mut(next).prev = prev,
        }
    }

    /// Every queue, in use or free; a free one has no holder and no calls.
    pub(super) fn indices(&self) -> impl Iterator<Item = QueueIndex> + use<> {
        self.queues.indices()
    }

    /// How many keys this client holds or wants.
    pub(super) fn in_use(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn at(&self, index: QueueIndex) -> &KeyQueue {
        self.queues.at(index)
    }

    pub(super) fn at_mut(&mut self, index: QueueIndex) -> &mut KeyQueue {
        self.queues.at_mut(index)
    }
}

impl KeyQueue {
    fn empty() -> Self {
        Self {
            key: Key::new(),
            holder: None,
            lingering: None,
            competitor: None,
            first: None,
            last: None,
            refs: 0,
            slots: 0,
            is_named: false,
        }
    }
}

//! The queues: for each key that this process holds or wants, its holder, the call that competes
//! for it on the network, and the waiters, first-in first-out.

use std::collections::HashMap;

use super::NONE;
use super::calls::{Calls, Stage};
use crate::driver::Lease;
use crate::engine::LeaseId;
use crate::key::{self, Key};
use crate::options::{KeepAlive, LockOptions};
use crate::quorum::NodeMask;
use crate::time::Instant;

/// The lease of a key that this process holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) id: LeaseId,
    /// Its deadline when last checked.
    pub(super) valid_until: Instant,
    pub(super) voters: NodeMask,
    /// How often the lease was handed on in this process.
    pub(super) turns: u32,
    /// Another process waits for it.
    pub(super) is_wanted_elsewhere: bool,
    /// How it is kept alive.
    pub(super) keep_alive: Option<KeepAlive>,
    pub(super) is_watched: bool,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) key: Key,
    pub(super) holder: Option<Holder>,
    /// The call that competes on the network for all.
    pub(super) competitor: u32,
    /// The calls behind it.
    pub(super) first: u32,
    last: u32,
    /// Calls that name this queue and have not ended.
    refs: u32,
}

/// All queues of a handle.
#[derive(Debug, Default)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    free: Vec<u32>,
    by_key: HashMap<Key, u32>,
}

impl Queues {
    /// The queue of `key`; one more call names it from now on.
    pub(super) fn enter(&mut self, key: &[u8]) -> u32 {
        if let Some(&index) = self.by_key.get(key) {
            self.at_mut(index).refs += 1;
            return index;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.queues.push(Queue {
                key: Key::new(),
                holder: None,
                competitor: NONE,
                first: NONE,
                last: NONE,
                refs: 0,
            });
            u32::try_from(self.queues.len() - 1).unwrap_or(NONE)
        });
        let queue = self.at_mut(index);
        key::replace(&mut queue.key, key);
        queue.refs = 1;
        let key = queue.key.clone();
        self.by_key.insert(key, index);
        index
    }

    /// A call that names the queue has ended.
    pub(super) fn leave(&mut self, index: u32) {
        let queue = self.at_mut(index);
        queue.refs = queue.refs.saturating_sub(1);
        self.free_if_unused(index);
    }

    pub(super) fn free_if_unused(&mut self, index: u32) {
        let queue = self.at(index);
        let is_named = self.by_key.get(&queue.key) == Some(&index);
        if queue.refs > 0 || queue.holder.is_some() || !is_named {
            return;
        }
        let Self { queues, by_key, .. } = self;
        if let Some(queue) = queues.get(index as usize) {
            by_key.remove(&queue.key);
        }
        self.free.push(index);
    }

    /// Whether this lease holds the queue's key.
    pub(super) fn is_held_by(&self, index: u32, id: LeaseId) -> bool {
        self.at(index).holder.is_some_and(|holder| holder.id == id)
    }

    /// A call won the lease of the queue's key.
    pub(super) fn won(&mut self, index: u32, lease: &Lease, options: &LockOptions) {
        self.at_mut(index).holder = Some(Holder {
            id: lease.id(),
            valid_until: lease.deadline(),
            voters: lease.votes(),
            turns: 0,
            is_wanted_elsewhere: false,
            keep_alive: options.keep_alive,
            is_watched: options.is_watched,
        });
    }

    /// Another process waits for a lease of this process.
    pub(super) fn note_wanted_elsewhere(&mut self, lease: LeaseId, key: &[u8]) {
        let Some(&index) = self.by_key.get(key) else { return };
        if let Some(holder) = &mut self.at_mut(index).holder
            && holder.id == lease
        {
            holder.is_wanted_elsewhere = true;
        }
    }

    /// Puts a call at the end of the queue.
    pub(super) fn push(&mut self, index: u32, call: u32, calls: &mut Calls) {
        let queue = self.at_mut(index);
        let last = std::mem::replace(&mut queue.last, call);
        let place = calls.at_mut(call);
        place.stage = Stage::Queued;
        place.prev = last;
        place.next = NONE;
        if last == NONE {
            queue.first = call;
        } else {
            calls.at_mut(last).next = call;
        }
    }

    /// Takes a call out, wherever it stands.
    pub(super) fn unlink(&mut self, index: u32, call: u32, calls: &mut Calls) {
        let place = calls.at_mut(call);
        let (prev, next) = (place.prev, place.next);
        place.stage = Stage::UnderWay;
        let queue = self.at_mut(index);
        if prev == NONE {
            queue.first = next;
        } else {
            calls.at_mut(prev).next = next;
        }
        if next == NONE {
            queue.last = prev;
        } else {
            calls.at_mut(next).prev = prev;
        }
    }

    /// Every queue, in use or free; a free one has no holder and no calls.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> + use<> {
        0..u32::try_from(self.queues.len()).unwrap_or(NONE)
    }

    /// How many keys this process holds or wants.
    pub(super) fn in_use(&self) -> usize {
        self.by_key.len()
    }

    #[expect(clippy::indexing_slicing, reason = "whoever names a queue keeps it in the table")]
    pub(super) fn at(&self, index: u32) -> &Queue {
        &self.queues[index as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "whoever names a queue keeps it in the table")]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Queue {
        &mut self.queues[index as usize]
    }
}

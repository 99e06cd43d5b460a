//! Wakes whose answers are awaited, and calls that were woken a moment ago.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::list::{Entry, List};
use super::message::WaiterId;
use crate::key::{Key, hash};
use crate::quorum::{NodeId, NodeMask};
use crate::slab::{Slab, WakeIndex};
use crate::time::Instant;

/// How many wakes are remembered, to queue behind the calls that they woke.
const RECENT_MAX: usize = 64;

/// A wake for the first call of a list; the others wait behind it.
#[derive(Clone, Debug)]
pub(super) struct Wake {
    pub(super) key: Key,
    pub(super) to: Entry,
    pub(super) rest: List,
    /// The fence of the lease before.
    pub(super) fence: u64,
    /// The nodes through which the call was not reached.
    pub(super) tried: NodeMask,
    /// Whether the wake passes the turn on, rather than being a guess.
    pub(super) is_turn: bool,
}

impl Wake {
    /// Turns to the next call of the list. Returns whether there is one.
    pub(super) fn turn_to_next(&mut self) -> bool {
        let Some(next) = self.rest.take_first() else { return false };
        (self.to, self.tried) = (next, NodeMask::EMPTY);
        true
    }

    /// The facts of the wake that the client remembers until `until`.
    pub(super) fn successor(&self, node: NodeId, until: Instant) -> Successor {
        let behind = self.rest.ids().collect();
        Successor { id: self.to.id, behind, node, is_turn: self.is_turn, is_handed: false, until }
    }
}

/// A call that was woken a moment ago.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Successor {
    pub(super) id: WaiterId,
    /// The node that carried the wake: later messages through it come behind the wake.
    pub(super) node: NodeId,
    /// The call was given the turn.
    pub(super) is_turn: bool,
    /// The lock was handed over to it, rather than released for it.
    pub(super) is_handed: bool,
    /// The calls that wait behind it, in the order of their turns.
    pub(super) behind: SmallVec<[WaiterId; 4]>,
    until: Instant,
}

impl Successor {
    /// The call to which later calls are announced: the last in the queue.
    pub(super) fn last(&self) -> WaiterId {
        self.behind.last().copied().unwrap_or(self.id)
    }

    /// Whether the call has its turn, or its place in the list, already.
    pub(super) fn has(&self, id: WaiterId) -> bool {
        self.id == id || self.behind.contains(&id)
    }
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Wakes {
    under_way: Slab<WakeIndex, Option<Wake>>,
    /// With the hashes of their keys.
    recent: VecDeque<(u64, Successor)>,
}

impl Wakes {
    /// Keeps a wake until it is answered.
    pub(super) fn keep(&mut self, wake: Wake) -> Option<WakeIndex> {
        self.under_way.insert(Some(wake))
    }

    pub(super) fn at(&self, index: WakeIndex) -> Option<&Wake> {
        self.under_way.at(index).as_ref()
    }

    pub(super) fn take(&mut self, index: WakeIndex) -> Option<Wake> {
        let wake = self.under_way.at_mut(index).take()?;
        self.under_way.give_back(index);
        Some(wake)
    }

    /// The call that this client woke for a key a moment ago.
    pub(super) fn successor(&self, hash: u64, now: Instant) -> Option<&Successor> {
        let mut recent = self.recent.iter().rev();
        recent.find(|(other, last)| *other == hash && now < last.until).map(|(_, last)| last)
    }

    /// Whether any call was woken lately.
    #[inline]
    pub(super) fn has_recent(&self) -> bool {
        !self.recent.is_empty()
    }

    /// Forgets old wakes, so that they cost the next acquisitions nothing.
    pub(super) fn forget_past(&mut self, now: Instant) {
        self.recent.retain(|(_, last)| now < last.until);
    }

    pub(super) fn forget(&mut self, hash: u64) {
        self.recent.retain(|&(other, _)| other != hash);
    }

    /// The wake was written to `node`.
    pub(super) fn note_sent(&mut self, index: WakeIndex, node: NodeId, until: Instant) {
        let Some(wake) = self.at(index) else { return };
        let (hash, successor) = (hash(wake.key.as_slice()), wake.successor(node, until));
        self.note(hash, successor);
    }

    /// Remembers a woken call: late announcements are passed on to it, and new calls queue behind
    /// it.
    pub(super) fn note(&mut self, hash: u64, mut successor: Successor) {
        // A call that was given the turn, and is woken again, still has it.
        let mut known = self.recent.iter().filter(|&&(other, _)| other == hash);
        successor.is_turn |= known.any(|(_, last)| last.id == successor.id && last.is_turn);
        self.forget(hash);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((hash, successor));
    }
}

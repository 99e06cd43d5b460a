//! Calls that wait for a key, in the order of their turns.

use smallvec::SmallVec;

use super::message::{Listed, Offer, WAITERS_MAX, WaiterId, wait_ms};
use crate::client_name::ClientId;
use crate::quorum::NodeId;
use crate::rules;
use crate::time::Instant;

/// A call that waits, and the node through which this client learnt that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: WaiterId,
    pub(super) until: Instant,
    pub(super) node: NodeId,
    /// When it surely was still there.
    pub(super) seen: Instant,
    pub(super) offer: Option<Offer>,
}

impl Entry {
    /// What a message that came through `node` says about a call. It may lie unread since the
    /// sockets were read before, at `read_since`.
    pub(super) fn of(listed: Listed, node: NodeId, read_since: Instant, now: Instant) -> Self {
        Self {
            id: listed.id,
            until: now.plus_millis(listed.wait_ms),
            node,
            seen: read_since.minus_nanos(u64::from(listed.age_ms) * 1_000_000),
            offer: listed.offer,
        }
    }

    pub(super) fn listed(&self, now: Instant) -> Listed {
        Listed {
            id: self.id,
            wait_ms: wait_ms(now, self.until),
            age_ms: u16::try_from(wait_ms(self.seen, now)).unwrap_or(u16::MAX),
            offer: self.offer,
        }
    }

    /// Whether a message that the call with this id has given up strikes the entry off.
    fn is_struck_by(&self, id: WaiterId) -> bool {
        rules::is_struck_off(ClientId::of(&self.id) == ClientId::of(&id), self.id == id)
    }
}

/// Calls that wait, each of them once, and no more than a message holds.
#[derive(Debug, Default)]
pub(in crate::engine) struct List(SmallVec<[Entry; IN_PLACE]>);

/// A list that is no longer than this is copied from message to message without an allocation.
const IN_PLACE: usize = 4;

impl FromIterator<Entry> for List {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut list = Self::default();
        entries.into_iter().for_each(|entry| list.append(entry));
        list
    }
}

impl List {
    /// Adds a call at the end. A call that is already there keeps its place; the younger entry says
    /// how it is reached, and what it offers.
    pub(super) fn append(&mut self, entry: Entry) {
        if let Some(known) = self.0.iter_mut().find(|other| other.id == entry.id) {
            if entry.seen >= known.seen {
                *known = entry;
            }
        } else if self.0.len() < WAITERS_MAX {
            self.0.push(entry);
        }
    }

    /// Adds all of another list.
    pub(super) fn append_all(&mut self, list: Self) {
        list.0.into_iter().for_each(|entry| self.append(entry));
    }

    pub(super) fn first(&self) -> Option<&Entry> {
        self.0.first()
    }

    /// Removes and returns the first.
    pub(super) fn take_first(&mut self) -> Option<Entry> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Drops the calls whose wait is over.
    pub(super) fn drop_past(&mut self, now: Instant) {
        self.0.retain(|entry| now < entry.until);
    }

    /// Removes a call that has given up. Returns the place that it had.
    pub(super) fn strike(&mut self, id: WaiterId) -> Option<usize> {
        let place = self.0.iter().position(|entry| rules::is_struck(entry.is_struck_by(id)))?;
        self.0.remove(place);
        Some(place)
    }

    /// The list as it goes into messages.
    pub(super) fn listed(&self, now: Instant) -> impl ExactSizeIterator<Item = Listed> {
        self.0.iter().map(move |entry| entry.listed(now))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The list behind a call that has no lock, and how much of it an announcement under way names.
#[derive(Debug, Default)]
pub(super) struct Carried {
    list: List,
    named: usize,
}

impl Carried {
    pub(super) fn append_all(&mut self, list: List) {
        self.list.append_all(list);
    }

    /// Puts the waiters of the lock before those that announced themselves to the call, who came
    /// later.
    pub(super) fn put_first(&mut self, list: List) {
        let later = std::mem::replace(&mut self.list, list);
        self.named = 0;
        self.list.append_all(later);
    }

    /// The whole list, for an announcement.
    pub(super) fn name_all(&mut self, now: Instant) -> impl ExactSizeIterator<Item = Listed> {
        self.named = self.list.len();
        self.list.listed(now)
    }

    /// The holder received the announcement and has the waiters that it named; later ones stay.
    pub(super) fn hand_on(&mut self) {
        let named = std::mem::take(&mut self.named).min(self.list.len());
        self.list.0.drain(..named);
    }

    /// A call behind this one has given up.
    pub(super) fn strike(&mut self, id: WaiterId) {
        if let Some(place) = self.list.strike(id) {
            self.named -= usize::from(place < self.named);
        }
    }

    pub(super) fn into_list(self) -> List {
        self.list
    }
}

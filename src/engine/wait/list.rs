//! Calls that wait for a key, in the order of their turns. The call that has surely waited longer
//! is first, however each client heard of it.

use smallvec::SmallVec;

use super::message::{Listed, Offer, WAITERS_MAX, WaiterId, wait_ms, waited_us};
use crate::client_name::ClientId;
use crate::quorum::NodeId;
use crate::rules;
use crate::time::Instant;

/// A call that waits, and the node through which this client learnt that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: WaiterId,
    pub(super) until: Instant,
    /// When it began to wait: no later than `since`, and no earlier than `not_before`.
    pub(super) since: Instant,
    pub(super) not_before: Instant,
    pub(super) node: NodeId,
    /// When it surely was still there.
    pub(super) seen: Instant,
    pub(super) offer: Option<Offer>,
}

/// How a message came.
pub(super) struct Receipt {
    pub(super) node: NodeId,
    pub(super) now: Instant,
    /// When it was sent: no later than `sent`, and no earlier than `sent_after`.
    pub(super) sent: Instant,
    pub(super) sent_after: Instant,
}

impl Entry {
    /// The entry for a call that a message lists.
    pub(super) fn of(listed: Listed, receipt: &Receipt) -> Self {
        let waited_ns = u64::from(listed.waited_us) * 1000;
        Self {
            id: listed.id,
            until: receipt.now.plus_millis(listed.wait_ms),
            since: receipt.sent.minus_nanos(waited_ns),
            not_before: receipt.sent_after.minus_nanos(waited_ns),
            node: receipt.node,
            seen: receipt.now.minus_nanos(u64::from(listed.age_ms) * 1_000_000),
            offer: listed.offer,
        }
    }

    pub(super) fn listed(&self, now: Instant) -> Listed {
        Listed {
            id: self.id,
            wait_ms: wait_ms(now, self.until),
            waited_us: waited_us(self.since, now),
            age_ms: u16::try_from(wait_ms(self.seen, now)).unwrap_or(u16::MAX),
            offer: self.offer,
        }
    }

    /// Whether the entry is of this call, which has given up.
    fn is_struck_by(&self, id: WaiterId) -> bool {
        rules::is_struck_off(ClientId::of(&self.id) == ClientId::of(&id), self.id == id)
    }
}

/// Calls that wait, each of them once, and no more than a message holds.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct List(SmallVec<[Entry; IN_PLACE]>);

/// A list that is no longer than this is copied from message to message without an allocation.
const IN_PLACE: usize = 4;

impl FromIterator<Entry> for List {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut list = Self::default();
        entries.into_iter().for_each(|entry| list.add(entry));
        list
    }
}

impl List {
    /// Adds a call. A call that is already listed keeps its place. The younger entry says how the
    /// call is reached, and what it offers.
    pub(super) fn add(&mut self, entry: Entry) {
        if let Some(known) = self.0.iter_mut().find(|other| other.id == entry.id) {
            if entry.seen >= known.seen {
                let Entry { since, not_before, .. } = *known;
                *known = Entry { since, not_before, ..entry };
            }
            return;
        }
        // If it is uncertain which call came first, the order in which the client heard of them
        // stays.
        let is_behind = |other: &Entry| !rules::is_before(entry.since < other.not_before);
        let place = self.0.iter().rposition(is_behind).map_or(0, |last| last.saturating_add(1));
        self.0.insert(place, entry);
        self.0.truncate(WAITERS_MAX);
    }

    /// Adds all of another list.
    pub(super) fn add_all(&mut self, list: Self) {
        list.0.into_iter().for_each(|entry| self.add(entry));
    }

    pub(super) fn first(&self) -> Option<&Entry> {
        self.0.first()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = WaiterId> {
        self.0.iter().map(|entry| entry.id)
    }

    pub(super) fn retain(&mut self, keeps: impl FnMut(&mut Entry) -> bool) {
        self.0.retain(keeps);
    }

    /// Drops the calls that are gone, unless all are.
    pub(super) fn drop_unless_all(&mut self, mut is_gone: impl FnMut(&Entry) -> bool) {
        if !self.0.iter().all(&mut is_gone) {
            self.0.retain(|entry| !is_gone(entry));
        }
    }

    /// Removes and returns the first.
    pub(super) fn take_first(&mut self) -> Option<Entry> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Drops the calls whose wait is over.
    pub(super) fn drop_past(&mut self, now: Instant) {
        self.0.retain(|entry| now < entry.until);
    }

    /// Removes a call that has given up.
    pub(super) fn strike(&mut self, id: WaiterId) {
        if let Some(place) =
            self.0.iter().position(|entry| rules::is_struck(entry.is_struck_by(id)))
        {
            self.0.remove(place);
        }
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

/// The list behind a call that has no lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Carried {
    list: List,
    /// The waiters that an announcement under way names.
    named: List,
}

impl Carried {
    pub(super) fn add_all(&mut self, list: List) {
        self.list.add_all(list);
    }

    /// The whole list, for an announcement.
    pub(super) fn name_all(&mut self, now: Instant) -> impl ExactSizeIterator<Item = Listed> {
        let later = std::mem::take(&mut self.list);
        self.named.add_all(later);
        self.named.listed(now)
    }

    /// The holder received the announcement and has the waiters that it named; later ones stay.
    pub(super) fn hand_on(&mut self) {
        self.named = List::default();
    }

    /// A call behind this one has given up.
    pub(super) fn strike(&mut self, id: WaiterId) {
        self.list.strike(id);
        self.named.strike(id);
    }

    pub(super) fn into_list(mut self) -> List {
        self.named.add_all(self.list);
        self.named
    }
}

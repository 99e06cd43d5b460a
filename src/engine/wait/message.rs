//! The messages that clients send each other over their channels, and the lists of waiting calls in
//! them. In a list, a call that has surely waited longer comes first, whichever way the client
//! heard of it.
//!
//! # Contract
//!
//! - Messages are hints. Safety does not depend on them: a message may be forged or lost. The one
//!   exception is a [transfer](MessageKind::Transfer), by which a node votes. A quorum of nodes
//!   must send it.
//! - Anything that is not a message is ignored. The version is in the name of the channel.
//! - Bounded: at most [`WAITERS_MAX`] waiters of 38 bytes each, and the longest key that is
//!   allowed.

use smallvec::SmallVec;

use crate::client_name::ClientId;
use crate::quorum::NodeId;
use crate::rules;
use crate::time::Instant;

/// The most waiters in a list; the others depend on their timers.
pub(in crate::engine) const WAITERS_MAX: usize = 256;

/// The raw bytes of a drawn token.
pub(in crate::engine) type RawToken = [u8; 20];

/// A waiter's id: its client's, and the number of the call. Several calls of one client wait like
/// calls of several clients, and a message about one says nothing about another.
pub(in crate::engine) type WaiterId = [u8; 12];

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum MessageKind {
    /// The sender and the listed calls wait for the key.
    Announce = 1,
    /// The key was released for the named call; the listed calls wait behind it.
    Wake,
    /// The call of the sender has given up.
    GiveUp,
    /// The node has written the receiver's offered token to the key: its vote for the receiver's
    /// lease. The listed calls wait behind it.
    Transfer,
    /// The sender has deleted the keys of the named token.
    Removal,
}

impl MessageKind {
    const ALL: [Self; 5] =
        [Self::Announce, Self::Wake, Self::GiveUp, Self::Transfer, Self::Removal];
}

/// A call that waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Listed {
    pub(in crate::engine) id: WaiterId,
    /// How long it still waits, in milliseconds.
    pub(in crate::engine) wait_ms: u32,
    /// How many microseconds it has waited: the call that has waited longest has its turn first.
    pub(in crate::engine) waited_us: u32,
    /// How long ago it was last heard of, in milliseconds, rounded up.
    pub(in crate::engine) age_ms: u16,
    pub(in crate::engine) offer: Option<Offer>,
}

/// The lease that a waiter would take over: a token that no client has used, and the TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Offer {
    pub(in crate::engine) token: RawToken,
    pub(in crate::engine) ttl_ms: u32,
}

/// A message as it was received.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Message<'a> {
    pub(in crate::engine) kind: MessageKind,
    /// How often clients passed it on. A transfer instead counts the transfers in a row, itself
    /// included.
    pub(in crate::engine) hops: u8,
    /// In a transfer: the receiver, as the sender knew it, with the token that was written.
    pub(in crate::engine) sender: Listed,
    /// The receiver: the token of the holder, or the id of the waiter. In a wake, the fence of the
    /// sender's lease follows the id. In a transfer, this is the token that the key had before.
    pub(in crate::engine) token: RawToken,
    /// In a transfer: the node that has run it.
    pub(in crate::engine) mark: NodeMark,
    list: &'a [u8],
    pub(in crate::engine) key: &'a [u8],
}

/// The name of a node: the beginning of its `run_id`. Clients may number the nodes differently, and a
/// replica delivers its master's messages too.
pub(in crate::engine) type NodeMark = [u8; 8];

const LISTED_LEN: usize = 38;

/// The place of the sender's offer in a message: the TTL, and the token without the client's id.
const OFFER_AT: usize = 24;

/// The place of the token in a message. If the sender does not know it, a node puts it in.
const TOKEN_AT: usize = 2 + LISTED_LEN;

/// The place of the mark in a message. The client writes the message without the mark, and sends it
/// through several nodes.
pub(in crate::engine) const MARK_AT: usize = TOKEN_AT + size_of::<RawToken>();

impl<'a> Message<'a> {
    pub(in crate::engine) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&[kind, hops], rest) = bytes.split_first_chunk()?;
        let kind = MessageKind::ALL.into_iter().find(|known| *known as u8 == kind)?;
        let (sender, rest) = rest.split_first_chunk()?;
        let (&token, rest) = rest.split_first_chunk()?;
        let (&mark, rest) = rest.split_first_chunk()?;
        let (&count, rest) = rest.split_first_chunk()?;
        let count = usize::from(u16::from_le_bytes(count));
        if count > WAITERS_MAX {
            return None;
        }
        let (list, key) = rest.split_at_checked(count * LISTED_LEN)?;
        let is_key = (1..=crate::config::KEY_LEN_MAX).contains(&key.len());
        is_key.then_some(Self { kind, hops, sender: Listed::parse(sender), token, mark, list, key })
    }

    /// The fence that a wake names: the receiver's must be higher.
    pub(in crate::engine) fn fence(&self) -> Option<u64> {
        let fence = u64::from_le_bytes(*self.token.last_chunk()?);
        (self.kind == MessageKind::Wake && fence > 0).then_some(fence)
    }

    /// The calls that wait behind the sender, or behind the receiver of a wake.
    pub(in crate::engine) fn list(&self) -> impl Iterator<Item = Listed> + use<'a> {
        self.list.as_chunks().0.iter().map(Listed::parse)
    }
}

impl Listed {
    /// A call of which only the id matters.
    pub(in crate::engine) const fn named(id: WaiterId) -> Self {
        Self { id, wait_ms: 0, waited_us: 0, age_ms: 0, offer: None }
    }

    fn parse(bytes: &[u8; LISTED_LEN]) -> Self {
        let (id, rest) = bytes.split_at(12);
        let id: WaiterId = id.try_into().unwrap_or_default();
        let (wait_ms, rest) = rest.split_at(4);
        let (waited_us, rest) = rest.split_at(4);
        let (age_ms, rest) = rest.split_at(2);
        let (ttl_ms, drawn) = rest.split_at(4);
        let ttl_ms = ttl_ms.try_into().map_or(0, u32::from_le_bytes);
        let mut token = [0; 20];
        let (client, last) = token.split_at_mut(ClientId::LEN);
        client.copy_from_slice(&ClientId::of(&id).bytes());
        last.copy_from_slice(drawn);
        Self {
            id,
            wait_ms: wait_ms.try_into().map_or(0, u32::from_le_bytes),
            waited_us: waited_us.try_into().map_or(0, u32::from_le_bytes),
            age_ms: age_ms.try_into().map_or(u16::MAX, u16::from_le_bytes),
            offer: (ttl_ms > 0).then_some(Offer { token, ttl_ms }),
        }
    }

    fn append(self, out: &mut Vec<u8>) {
        let (ttl_ms, token) = self.offer.map_or((0, [0; 20]), |offer| (offer.ttl_ms, offer.token));
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.wait_ms.to_le_bytes());
        out.extend_from_slice(&self.waited_us.to_le_bytes());
        out.extend_from_slice(&self.age_ms.to_le_bytes());
        out.extend_from_slice(&ttl_ms.to_le_bytes());
        // A token begins with its client's id, as the waiter's id does.
        out.extend_from_slice(token.split_at(8).1);
    }
}

pub(in crate::engine) fn append(
    out: &mut Vec<u8>,
    (kind, hops): (MessageKind, u8),
    sender: Listed,
    token: &RawToken,
    list: impl ExactSizeIterator<Item = Listed>,
    key: &[u8],
) {
    out.extend_from_slice(&[kind as u8, hops]);
    sender.append(out);
    out.extend_from_slice(token);
    out.extend_from_slice(&[0; size_of::<NodeMark>()]);
    let count = list.len().min(WAITERS_MAX);
    out.extend_from_slice(&u16::try_from(count).unwrap_or(0).to_le_bytes());
    for listed in list.take(count) {
        listed.append(out);
    }
    out.extend_from_slice(key);
}

/// Puts the sender's offer into a message that was written without it.
pub(super) fn put_offer(message: &mut [u8], offer: Offer) {
    let (_, drawn) = offer.token.split_at(ClientId::LEN);
    let bytes = offer.ttl_ms.to_le_bytes().into_iter().chain(drawn.iter().copied());
    let place = message.get_mut(OFFER_AT..).into_iter().flatten();
    place.zip(bytes).for_each(|(place, byte)| *place = byte);
}

/// The parts of a message in front of its token and behind it.
pub(in crate::engine) fn around_token(message: &[u8]) -> (&[u8], &[u8]) {
    let (before, rest) = message.split_at_checked(TOKEN_AT).unwrap_or_default();
    (before, rest.get(size_of::<RawToken>()..).unwrap_or_default())
}

/// The id of a client's call.
pub(in crate::engine) fn waiter_id(client: ClientId, call: u32) -> WaiterId {
    let mut id = [0; 12];
    let (first, last) = id.split_at_mut(ClientId::LEN);
    first.copy_from_slice(&client.bytes());
    last.copy_from_slice(&call.to_le_bytes());
    id
}

/// A waiter's id in the form of a token, for a message that names a waiter in place of a holder.
pub(in crate::engine) fn token_of(waiter: WaiterId) -> RawToken {
    let mut token = [0; 20];
    let (first, _) = token.split_at_mut(waiter.len());
    first.copy_from_slice(&waiter);
    token
}

/// As [`token_of`], for a wake: with the fence of the sender's lease.
pub(super) fn token_of_wake(waiter: WaiterId, fence: u64) -> RawToken {
    let mut token = token_of(waiter);
    if let Some(place) = token.last_chunk_mut() {
        *place = fence.to_le_bytes();
    }
    token
}

/// The waiter that a message is for, if it is for a waiter.
pub(in crate::engine) fn waiter_of(token: &RawToken) -> WaiterId {
    token.first_chunk().copied().unwrap_or_default()
}

/// The time from `now` to `until` for messages. This client rounds up, because clients pass over a
/// waiter that seems to have given up. A waiter that is woken in vain passes the list on.
pub(in crate::engine) fn wait_ms(now: Instant, until: Instant) -> u32 {
    u32::try_from(now.until(until).as_micros().div_ceil(1000)).unwrap_or(u32::MAX)
}

/// The time since `from` for messages.
pub(in crate::engine) fn waited_us(from: Instant, now: Instant) -> u32 {
    u32::try_from(from.until(now).as_micros()).unwrap_or(u32::MAX)
}

// ---- lists of waiting calls ----

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
    /// It may have lain unread since then.
    pub(super) last_pass: Instant,
    /// An estimate of its way in nanoseconds: half a round trip.
    pub(super) on_its_way: u64,
}

impl Entry {
    /// The entry for a call that a message lists.
    pub(super) fn of(listed: Listed, receipt: &Receipt) -> Self {
        let waited_ns = (u64::from(listed.waited_us) * 1000).saturating_add(receipt.on_its_way);
        Self {
            id: listed.id,
            until: receipt.now.plus_millis(listed.wait_ms),
            since: receipt.now.minus_nanos(waited_ns),
            not_before: receipt.last_pass.minus_nanos(waited_ns),
            node: receipt.node,
            seen: receipt.last_pass.minus_nanos(u64::from(listed.age_ms) * 1_000_000),
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
pub(in crate::engine) struct Waitlist(SmallVec<[Entry; IN_PLACE]>);

/// A list that is no longer than this is copied from message to message without an allocation.
const IN_PLACE: usize = 4;

impl FromIterator<Entry> for Waitlist {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut list = Self::default();
        entries.into_iter().for_each(|entry| list.add(entry));
        list
    }
}

impl Waitlist {
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
    list: Waitlist,
    /// The waiters that an announcement under way names.
    named: Waitlist,
}

impl Carried {
    pub(super) fn add_all(&mut self, list: Waitlist) {
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
        self.named = Waitlist::default();
    }

    /// A call behind this one has given up.
    pub(super) fn strike(&mut self, id: WaiterId) {
        self.list.strike(id);
        self.named.strike(id);
    }

    pub(super) fn into_list(mut self) -> Waitlist {
        self.named.add_all(self.list);
        self.named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(byte: u8) -> Listed {
        let offer = Offer { token: [byte; 20], ttl_ms: 30_000 };
        Listed {
            id: [byte; 12],
            wait_ms: u32::from(byte) * 1000,
            waited_us: u32::from(byte) * 70_000,
            age_ms: byte.into(),
            offer: (byte > 1).then_some(offer),
        }
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        for (kind, count) in [
            (MessageKind::Announce, 0),
            (MessageKind::Wake, 3),
            (MessageKind::GiveUp, 0),
            (MessageKind::Transfer, 4),
        ] {
            let list: Vec<_> = (0..count).map(listed).collect();
            let mut bytes = Vec::new();
            append(&mut bytes, (kind, 1), listed(9), &[7; 20], list.iter().copied(), b"a\r\nkey");
            bytes[MARK_AT..MARK_AT + 8].copy_from_slice(b"12345678");
            let message = Message::parse(&bytes).unwrap();
            assert_eq!((message.kind, message.hops, message.sender), (kind, 1, listed(9)));
            assert_eq!((message.token, message.key), ([7; 20], &b"a\r\nkey"[..]));
            assert_eq!(message.mark, *b"12345678");
            assert!(message.list().eq(list));
        }
    }

    #[test]
    fn an_offer_is_put_into_a_message_as_if_it_had_been_written_with_it() {
        let written = |offer| {
            let (mut bytes, sender) = (Vec::new(), Listed { offer, ..listed(9) });
            append(
                &mut bytes,
                (MessageKind::Announce, 0),
                sender,
                &[7; 20],
                [listed(3)].into_iter(),
                b"k",
            );
            bytes
        };
        let offer = listed(9).offer.unwrap();
        let mut bytes = written(None);
        put_offer(&mut bytes, offer);
        assert_eq!(bytes, written(Some(offer)));
        put_offer(&mut bytes[..30], Offer { token: [1; 20], ttl_ms: 1 });
        put_offer(&mut [], offer);
    }

    #[test]
    fn a_wake_names_the_waiter_and_the_fence_before() {
        for (fence, read) in [(0, None), (1_795_000_000_000_000, Some(1_795_000_000_000_000))] {
            let (mut bytes, token) = (Vec::new(), token_of_wake([5; 12], fence));
            append(&mut bytes, (MessageKind::Wake, 0), listed(9), &token, std::iter::empty(), b"k");
            let message = Message::parse(&bytes).unwrap();
            assert_eq!((waiter_of(&message.token), message.fence()), ([5; 12], read));
        }
    }

    #[test]
    fn garbage_is_no_message() {
        let mut bytes = Vec::new();
        let list = [listed(1), listed(2)];
        append(&mut bytes, (MessageKind::Wake, 0), listed(9), &[7; 20], list.into_iter(), b"k");
        for len in 0..bytes.len() {
            assert!(Message::parse(&bytes[..len]).is_none(), "cut at {len}");
        }
        let count_at = MARK_AT + size_of::<NodeMark>();
        for (at, byte) in [(0, 0), (0, 6), (count_at, 3), (count_at + 1, 255)] {
            let mut broken = bytes.clone();
            broken[at] = byte;
            assert!(Message::parse(&broken).is_none(), "byte {at} is {byte}");
        }
        assert!(Message::parse(&vec![1; 9_000]).is_none());
    }
}

//! The messages that clients send each other over their channels.
//!
//! # Contract
//!
//! - Messages are hints: safety does not depend on them, they may be forged or lost. Anything that
//!   is not a message of this version is ignored.
//! - Bounded: at most [`WAITERS_MAX`] waiters, and the longest key that is allowed.

use crate::time::Instant;

/// The most waiters in a list; the others depend on their timers.
pub(in crate::engine) const WAITERS_MAX: usize = 256;

const VERSION: u8 = 2;

/// The raw bytes of a drawn token.
pub(in crate::engine) type RawToken = [u8; 20];

/// A client's id: its tokens begin with it.
pub(in crate::engine) type ClientId = [u8; 8];

/// A waiter's id: its client's, and the number of the call. Several calls of one client wait like
/// calls of several clients, and a message about one says nothing about another.
pub(in crate::engine) type WaiterId = [u8; 12];

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Kind {
    /// The sender and the listed calls wait for the key.
    Announce,
    /// The key was released for the named call; the listed calls wait behind it.
    Wake,
    /// The call of the sender has given up.
    GiveUp,
}

/// A call that waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Listed {
    pub(in crate::engine) id: WaiterId,
    /// How long it still waits, in milliseconds.
    pub(in crate::engine) wait_ms: u32,
}

/// A message as it was received.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Message<'a> {
    pub(in crate::engine) kind: Kind,
    /// How often it was passed on.
    pub(in crate::engine) hops: u8,
    pub(in crate::engine) sender: Listed,
    /// The token of the holder that it is for, or the id of the waiter, and in a wake the fence of
    /// the sender's lease.
    pub(in crate::engine) token: RawToken,
    list: &'a [u8],
    pub(in crate::engine) key: &'a [u8],
}

const LISTED_LEN: usize = 16;

impl<'a> Message<'a> {
    pub(in crate::engine) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&[version, kind, hops], rest) = bytes.split_first_chunk()?;
        if version != VERSION {
            return None;
        }
        let kind = match kind {
            1 => Kind::Announce,
            2 => Kind::Wake,
            3 => Kind::GiveUp,
            _ => return None,
        };
        let (sender, rest) = rest.split_first_chunk()?;
        let (&token, rest) = rest.split_first_chunk()?;
        let (&count, rest) = rest.split_first_chunk()?;
        let count = usize::from(u16::from_le_bytes(count));
        if count > WAITERS_MAX {
            return None;
        }
        let (list, key) = rest.split_at_checked(count * LISTED_LEN)?;
        let is_key = (1..=crate::config::KEY_LEN_MAX).contains(&key.len());
        is_key.then_some(Self { kind, hops, sender: Listed::parse(sender), token, list, key })
    }

    /// The fence that a wake names: the receiver's must be higher.
    pub(in crate::engine) fn fence(&self) -> Option<u64> {
        let fence = u64::from_le_bytes(*self.token.last_chunk()?);
        (self.kind == Kind::Wake && fence > 0).then_some(fence)
    }

    /// The calls that wait behind the sender, or behind the receiver of a wake.
    pub(in crate::engine) fn list(&self) -> impl Iterator<Item = Listed> + use<'a> {
        self.list.as_chunks().0.iter().map(Listed::parse)
    }
}

impl Listed {
    fn parse(bytes: &[u8; LISTED_LEN]) -> Self {
        let (id, wait_ms) = bytes.split_at(12);
        Self {
            id: id.try_into().unwrap_or_default(),
            wait_ms: wait_ms.try_into().map_or(0, u32::from_le_bytes),
        }
    }

    fn append(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.wait_ms.to_le_bytes());
    }
}

/// Appends a message.
pub(in crate::engine) fn append(
    out: &mut Vec<u8>,
    (kind, hops): (Kind, u8),
    sender: Listed,
    token: &RawToken,
    list: impl ExactSizeIterator<Item = Listed>,
    key: &[u8],
) {
    let kind = match kind {
        Kind::Announce => 1,
        Kind::Wake => 2,
        Kind::GiveUp => 3,
    };
    out.extend_from_slice(&[VERSION, kind, hops]);
    sender.append(out);
    out.extend_from_slice(token);
    let count = list.len().min(WAITERS_MAX);
    out.extend_from_slice(&u16::try_from(count).unwrap_or(0).to_le_bytes());
    for listed in list.take(count) {
        listed.append(out);
    }
    out.extend_from_slice(key);
}

/// The id of a client's call.
pub(super) fn waiter_id(client: ClientId, call: u32) -> WaiterId {
    let mut id = [0; 12];
    let (first, last) = id.split_at_mut(client.len());
    first.copy_from_slice(&client);
    last.copy_from_slice(&call.to_le_bytes());
    id
}

/// The field for the holder's token, in a message for a waiter.
pub(super) fn token_of(waiter: WaiterId) -> RawToken {
    let mut token = [0; 20];
    let (first, _) = token.split_at_mut(waiter.len());
    first.copy_from_slice(&waiter);
    token
}

/// The same of a wake: with the fence of the sender's lease.
pub(super) fn token_of_wake(waiter: WaiterId, fence: u64) -> RawToken {
    let mut token = token_of(waiter);
    if let Some(place) = token.last_chunk_mut() {
        *place = fence.to_le_bytes();
    }
    token
}

/// The waiter that a message is for, if it is for one.
pub(super) fn waiter_of(token: &RawToken) -> WaiterId {
    token.first_chunk().copied().unwrap_or_default()
}

/// The client that drew a token, or the client of a waiter.
pub(super) fn client_of<const LEN: usize>(name: &[u8; LEN]) -> ClientId {
    name.first_chunk().copied().unwrap_or_default()
}

/// The time from `now` to `until` for messages. Rounded up: a waiter that seems to have given up is
/// passed over, whereas one that is woken in vain passes the list on.
pub(in crate::engine) fn wait_ms(now: Instant, until: Instant) -> u32 {
    u32::try_from(now.until(until).as_micros().div_ceil(1000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(byte: u8) -> Listed {
        Listed { id: [byte; 12], wait_ms: u32::from(byte) * 1000 }
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        for (kind, count) in [(Kind::Announce, 0), (Kind::Wake, 3), (Kind::GiveUp, 0)] {
            let list: Vec<_> = (0..count).map(listed).collect();
            let mut bytes = Vec::new();
            append(&mut bytes, (kind, 1), listed(9), &[7; 20], list.iter().copied(), b"a\r\nkey");
            let message = Message::parse(&bytes).unwrap();
            assert_eq!((message.kind, message.hops, message.sender), (kind, 1, listed(9)));
            assert_eq!((message.token, message.key), ([7; 20], &b"a\r\nkey"[..]));
            assert!(message.list().eq(list));
        }
    }

    #[test]
    fn a_wake_names_the_waiter_and_the_fence_before() {
        for (fence, read) in [(0, None), (1_795_000_000_000_000, Some(1_795_000_000_000_000))] {
            let (mut bytes, token) = (Vec::new(), token_of_wake([5; 12], fence));
            append(&mut bytes, (Kind::Wake, 0), listed(9), &token, std::iter::empty(), b"k");
            let message = Message::parse(&bytes).unwrap();
            assert_eq!((waiter_of(&message.token), message.fence()), ([5; 12], read));
        }
    }

    #[test]
    fn garbage_is_no_message() {
        let mut bytes = Vec::new();
        let list = [listed(1), listed(2)];
        append(&mut bytes, (Kind::Wake, 0), listed(9), &[7; 20], list.into_iter(), b"k");
        for len in 0..bytes.len() {
            assert!(Message::parse(&bytes[..len]).is_none(), "cut at {len}");
        }
        for (at, byte) in [(0, 1), (0, 3), (1, 0), (1, 4), (39, 1), (40, 255)] {
            let mut broken = bytes.clone();
            broken[at] = byte;
            assert!(at == 39 || Message::parse(&broken).is_none(), "byte {at} is {byte}");
        }
        assert!(Message::parse(&vec![1; 9_000]).is_none());
    }
}

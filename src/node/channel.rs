//! The channels on which other clients reach this one through the node: subscriptions beside the
//! ordinary commands of a RESP3 connection. One channel carries messages. The other carries
//! transfers. At its end a client first leaves this channel, because it will not read of a later
//! hand-over. Without a listener the script finds nobody to tell and deletes the key that it handed
//! over.
//!
//! # Invariants
//!
//! - The client writes SUBSCRIBE only after HELLO answered `proto 3`: over RESP2 a subscribed
//!   connection takes no ordinary commands.
//! - Only two things answer an awaited SUBSCRIBE or UNSUBSCRIBE: the push that confirms it for this
//!   client's own channel, or an error. Any other reply or confirmation ends the connection. No
//!   other push ever answers a request.

use super::debt::REFUSED_DELAY;
use super::pending::{PendingQueue, Request};
use super::state::Now;
use crate::client_name::ClientId;
use crate::command::{Answer, classify};
use crate::error::Cause;
use crate::resp::{Items, Reply};
use crate::time::Instant;
use crate::token::digit;

/// The prefix of every client's channels, with the version of the messages.
const PREFIX: &[u8; 10] = b"redbolt:3:";

/// The suffix that makes a client's channel for transfers from the name of its channel.
const TRANSFERS: &[u8; 2] = b":t";

/// The name of a client's channel for messages: the prefix and the client's id in hexadecimal
/// digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelName([u8; 26]);

/// The name of a client's channel for transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransfersName([u8; 28]);

impl ChannelName {
    /// The channel of the client with that id.
    pub(crate) fn of(client: ClientId) -> Self {
        let mut name = [0; 26];
        let (prefix, digits) = name.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX);
        write_hex(digits, &client.bytes());
        Self(name)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The beginning of the names of all clients' channels, in front of their ids.
    pub(crate) const fn prefix() -> &'static [u8] {
        PREFIX
    }

    pub(super) fn transfers(&self) -> TransfersName {
        let mut name = [0; 28];
        let (first, mark) = name.split_at_mut(self.0.len());
        first.copy_from_slice(&self.0);
        mark.copy_from_slice(TRANSFERS);
        TransfersName(name)
    }

    /// Whether this is the client's channel for transfers.
    fn has_transfers(&self, channel: &[u8]) -> bool {
        channel.strip_prefix(&self.0) == Some(TRANSFERS)
    }
}

impl TransfersName {
    /// The channel on which the client that offers the token hears that a node wrote it.
    pub(crate) fn of(token: &[u8; 20]) -> Self {
        ChannelName::of(ClientId::of(token)).transfers()
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn write_hex(out: &mut [u8], bytes: &[u8]) {
    for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
}

/// The state of the subscription to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Subscription {
    #[default]
    None,
    Asked,
    Open,
    /// The user may not subscribe, on this connection.
    Denied,
}

/// One end of the channels.
#[derive(Clone, Debug, Default)]
pub(super) struct Channel {
    pub(super) subscription: Subscription,
    /// The client has written SUBSCRIBE for transfers on this connection, and no UNSUBSCRIBE behind
    /// it.
    pub(super) takes_transfers: bool,
    /// The client takes transfers, on this connection and later ones.
    pub(super) wants_transfers: bool,
    /// The user may not subscribe to transfers, on this connection.
    pub(super) denies_transfers: bool,
    /// The node answered the script that hands a lock over, or introduces a call, with an error.
    pub(super) refuses_scripts: bool,
    /// When the client repeats a request that the node has refused for now.
    pub(super) again_at: Option<Instant>,
    /// The mark that names the node in transfers, from its last greeting on this connection.
    pub(super) mark: Option<[u8; 8]>,
}

impl Channel {
    /// Takes a push. Returns whether it was a message; its payload is then in `payload`.
    pub(super) fn take(
        &mut self,
        items: &Items<'_>,
        name: Option<&ChannelName>,
        pending: &mut PendingQueue,
        payload: &mut Vec<u8>,
    ) -> Result<bool, Cause> {
        let mut items = items.clone();
        let kind = items.next().and_then(|item| item.text());
        let channel = items.next().and_then(|item| item.text());
        let own = name.zip(channel);
        let is_messages = own.is_some_and(|(name, channel)| name.as_bytes() == channel);
        let is_transfers = own.is_some_and(|(name, channel)| name.has_transfers(channel));
        let is_ours = is_messages || is_transfers;
        let awaited = pending.front().map(|it| it.request);
        let is_confirmed = match kind {
            Some(b"subscribe") if is_messages => Some(awaited == Some(Request::Subscribe)),
            Some(b"subscribe" | b"unsubscribe") => {
                Some(is_transfers && awaited == Some(Request::SubscribeTransfers))
            }
            _ => None,
        };
        if let Some(is_awaited) = is_confirmed {
            if !is_awaited {
                return Err(Cause::Protocol);
            }
            pending.drop_front();
            if is_messages {
                self.subscription = Subscription::Open;
            }
            return Ok(false);
        }
        let bytes = items.next().and_then(|item| item.text());
        let Some(bytes) = bytes.filter(|_| is_ours && kind == Some(b"message")) else {
            return Ok(false);
        };
        payload.clear();
        payload.extend_from_slice(bytes);
        Ok(true)
    }

    /// A reply answered SUBSCRIBE: only an error may do that. Any other reply belongs to another
    /// request, and the client would match every later answer to the wrong request.
    pub(super) fn refused(
        &mut self,
        request: Request,
        reply: &Reply<'_>,
        now: Now,
    ) -> Result<(), Cause> {
        if !matches!(reply, Reply::Error(_)) {
            return Err(Cause::Protocol);
        }
        let is_for_now = self.ask_again(classify(reply), now);
        if request == Request::SubscribeTransfers {
            (self.takes_transfers, self.denies_transfers) = (false, !is_for_now);
        } else if is_for_now {
            self.subscription = Subscription::None;
        } else {
            self.subscription = Subscription::Denied;
        }
        Ok(())
    }

    /// If the refusal may pass, the client asks again later; if the user lacks the right, it does
    /// not. Returns whether it asks again.
    pub(super) fn ask_again(&mut self, answer: Answer, now: Now) -> bool {
        let is_denied = matches!(
            answer,
            Answer::Refused(Cause::NoPermission | Cause::KeyDenied | Cause::Unsupported)
        );
        if !is_denied {
            self.again_at = Some(now.real + REFUSED_DELAY);
        }
        !is_denied
    }

    /// The connection has ended.
    pub(super) const fn close(&mut self) {
        self.subscription = Subscription::None;
        (self.takes_transfers, self.denies_transfers) = (false, false);
        self.refuses_scripts = false;
        (self.mark, self.again_at) = (None, None);
    }
}

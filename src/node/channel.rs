//! The channel on which other clients reach this one through the node: a subscription beside the
//! ordinary commands of a RESP3 connection.
//!
//! # Invariants
//!
//! - SUBSCRIBE is written only after HELLO answered `proto 3`: over RESP2 a subscribed connection
//!   takes no ordinary commands.
//! - At the head of the list of awaited answers, SUBSCRIBE is answered by the push that confirms
//!   this client's own channel, or by an error. Anything else ends the connection. No other push
//!   ever answers a request.

use super::Node;
use super::pending::{Pending, PendingQueue, Request};
use super::state::Now;
use crate::error::Cause;
use crate::resp::encode::append_command;
use crate::resp::{Items, Reply};

/// The prefix of every client's channel.
const PREFIX: &[u8; 8] = b"redbolt:";

/// The name of a client's channel: the prefix and the client's id in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelName([u8; 24]);

impl ChannelName {
    /// The channel of the client with that id.
    pub(crate) fn of(client_id: [u8; 8]) -> Self {
        let mut name = [0; 24];
        let (prefix, digits) = name.split_at_mut(PREFIX.len());
        prefix.copy_from_slice(PREFIX);
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(client_id) {
            *pair = [digit(byte >> 4), digit(byte & 15)];
        }
        Self(name)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

const fn digit(nibble: u8) -> u8 {
    nibble + b'0' + if nibble > 9 { b'a' - b'0' - 10 } else { 0 }
}

/// The state of the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Subscription {
    #[default]
    None,
    Asked,
    Open,
}

/// One end of the channel.
#[derive(Debug, Default)]
pub(super) struct Channel {
    subscription: Subscription,
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
        let is_ours = channel.is_some() && channel == name.map(ChannelName::as_bytes);
        if kind == Some(b"subscribe") {
            let is_awaited = pending.front().is_some_and(|it| it.request == Request::Subscribe);
            if !(is_awaited && is_ours) {
                return Err(Cause::Protocol);
            }
            pending.drop_front();
            self.subscription = Subscription::Open;
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
    /// request, and every answer behind it would be matched to the wrong request.
    pub(super) const fn refused(&mut self, reply: &Reply<'_>) -> Result<(), Cause> {
        self.close();
        if matches!(reply, Reply::Error(_)) { Ok(()) } else { Err(Cause::Protocol) }
    }

    /// The connection has ended, or SUBSCRIBE was refused.
    pub(super) const fn close(&mut self) {
        self.subscription = Subscription::None;
    }
}

impl Node {
    /// After a greeting in RESP3: subscribes to this client's channel, unless that is done.
    pub(super) fn subscribe(&mut self, now: Now) {
        let Some(name) = self.login.channel.filter(|_| self.reading.facts.resp3) else { return };
        if self.channel.subscription == Subscription::None {
            append_command(&mut self.output, &[b"SUBSCRIBE", name.as_bytes()]);
            let written_at = now.attended;
            let pending = Pending { request: Request::Subscribe, written_at };
            self.pending.push_back(pending);
            self.channel.subscription = Subscription::Asked;
        }
    }

    /// Whether this client can receive and send messages through this node.
    pub(crate) fn has_channel(&self) -> bool {
        self.channel.subscription == Subscription::Open && self.is_greeted() && !self.is_stalled()
    }
}

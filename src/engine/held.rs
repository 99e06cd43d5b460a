//! What people ask a holder: how long it has held its lock, and how many wait for it. A question and
//! an answer over the channels of the two clients; no lock depends on either.

use std::iter;
use std::time::Duration;

use rand::Rng as _;

use super::core::Engine;
use super::locks::op::{Heard, OpId};
use super::locks::query::Say;
use super::locks::slot::SlotState;
use super::wait::{Kind, Listed, Message, RawToken, append_message, token_of, waiter_id};
use crate::client_name::ClientId;
use crate::command::append_publish;
use crate::error::LockError;
use crate::node::{ChannelName, Node, Now, Request};
use crate::quorum::NodeId;
use crate::time::Instant;
use crate::token::TokenBytes;

impl Engine {
    /// Asks the holder of `token` over every node that both may use. The answers are in when the
    /// holder has said so over one of them, when no node has it, or after `node_timeout`.
    ///
    /// # Errors
    ///
    /// Those of [`query`](Self::query), and of a key that cannot be.
    pub(crate) fn ask_holder(
        &mut self,
        key: &[u8],
        token: &RawToken,
        now: Instant,
    ) -> Result<OpId, LockError> {
        // Drawn, so that nobody else can answer.
        let number = self.locks.rng.next_u32();
        let sender = Listed::named(waiter_id(self.locks.client_id, number));
        let mut text = Vec::new();
        let key = self.locks.prefix.wire_key(key)?;
        append_message(&mut text, (Kind::Question, 0), sender, token, iter::empty(), &key);
        let channel = ChannelName::of(ClientId::of(token));
        let usable: Vec<bool> = self.locks.nodes.iter().map(Node::has_channel).collect();
        let publish: [&[u8]; 3] = [b"PUBLISH", channel.as_bytes(), &text];
        let choose = |node: NodeId, part, say: Say<'_>| {
            if part == 0 && usable.get(node.index()) == Some(&true) {
                say(&publish);
            }
        };
        let op = self.locks.query(choose, now)?;
        self.locks.expect_word(op, number);
        Ok(op)
    }

    /// Another client asks how long this one has held a lock.
    pub(super) fn tell_held(&mut self, id: NodeId, message: &Message<'_>, now: Now) {
        let Some(slot_index) = self.slot_meant(message) else { return };
        let slot = self.locks.slots.at(slot_index);
        let is_it = slot.token == TokenBytes::Drawn(message.token);
        if slot.state != SlotState::Held || !is_it || !self.locks.nodes.at(id).has_channel() {
            return;
        }
        let held = now.real.saturating_since(slot.began).as_millis();
        let sender = Listed {
            wait_ms: u32::try_from(held).unwrap_or(u32::MAX),
            age_ms: u16::try_from(self.waiting.count_for(slot_index)).unwrap_or(u16::MAX),
            ..Listed::named(waiter_id(self.locks.client_id, 0))
        };
        let (asker, mut text) = (message.sender.id, Vec::new());
        let nobody = iter::empty();
        append_message(&mut text, (Kind::Answer, 0), sender, &token_of(asker), nobody, message.key);
        let channel = ChannelName::of(ClientId::of(&asker));
        self.locks.scratch.clear();
        append_publish(&mut self.locks.scratch, channel.as_bytes(), &text);
        self.locks.write(id, Request::Tell, now);
    }

    /// A holder has answered.
    pub(super) fn hear_held(&mut self, id: NodeId, message: &Message<'_>) {
        let (_, number) = message.token.split_at(ClientId::LEN);
        let number = number.first_chunk().copied().map(u32::from_le_bytes);
        let is_own = ClientId::of(&message.token) == self.locks.client_id;
        if let Some(number) = number.filter(|_| is_own) {
            let said = message.sender;
            let heard = Heard {
                held_for: Duration::from_millis(said.wait_ms.into()),
                waiters: said.age_ms.into(),
            };
            self.locks.hear_word(id, number, heard);
        }
    }
}

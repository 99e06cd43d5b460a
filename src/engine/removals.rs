//! A lock that a caller takes away by its token: the client that drew the token is told, as a hint. It
//! extends its lease at once, and so learns of the loss.

use std::iter;

use super::core::Engine;
use super::locks::slot::SlotState;
use super::wait::{Kind, Listed, Message, append_message, waiter_id};
use crate::client_name::ClientId;
use crate::command::append_publish;
use crate::node::{ChannelName, Now, Request};
use crate::token::{TokenBytes, unhex};

impl Engine {
    /// Tells the client that drew the token, behind the delete at one node. A token of another library
    /// names no client.
    pub(super) fn tell_of_removal(&mut self, key: &[u8], token: &[u8], now: Now) {
        let Some(token) = unhex(token).filter(|_| self.locks.settings.direct_wake) else { return };
        let Ok(key) = self.locks.prefix.wire_key(key) else { return };
        let asked = self.reach().asked;
        let Some(node) = self.reach().first_of(asked, &key) else { return };
        let sender = Listed::named(waiter_id(self.locks.client_id, 0));
        let mut text = Vec::new();
        append_message(&mut text, (Kind::Removal, 0), sender, &token, iter::empty(), &key);
        let channel = ChannelName::of(ClientId::of(&token));
        self.locks.scratch.clear();
        append_publish(&mut self.locks.scratch, channel.as_bytes(), &text);
        self.locks.write(node, Request::Tell, now);
    }

    /// A client says that it has deleted the keys of a lease. Nothing is believed: a lease that is kept
    /// alive is extended before its time.
    pub(super) fn hear_of_removal(&mut self, message: &Message<'_>, now: Now) {
        let Some(slot_index) = self.locks.slot_of_token(&message.token) else { return };
        let is_it = self.locks.slots.get(slot_index).is_some_and(|slot| {
            slot.state == SlotState::Held
                && slot.token == TokenBytes::Drawn(message.token)
                && slot.key.as_slice() == message.key
        });
        if is_it {
            self.locks.extend_soon(slot_index, now);
        }
    }
}

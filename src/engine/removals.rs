//! Locks that a caller takes away by their token. The client tells the client that drew the token,
//! as a hint. That client extends its lease at once, and so learns of the loss.

use std::iter;

use super::core::Engine;
use super::locks::op::Verdict;
use super::locks::slot::TokenState;
use super::wait::{Listed, Message, MessageKind, RawToken, append_message, waiter_id};
use crate::client_name::ClientId;
use crate::command::append_publish;
use crate::error::Unlocked;
use crate::node::{ChannelName, Now, Request};
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;

impl Engine {
    /// A release is about to be reported. If another client drew the token, one node tells that
    /// client, behind the deletes: by then they have run.
    #[inline]
    pub(super) fn tell_of_removal(&mut self, index: OpIndex, now: Instant) {
        let op = self.locks.ops.at(index);
        let slot = self.locks.slots.at(op.slot());
        let is_removal = op.outcome == Verdict::Unlocked(Ok(Unlocked::Released))
            && slot.op == Some(index)
            && self.locks.settings.direct_wake;
        if let TokenBytes::Drawn(token) = slot.token
            && ClientId::of(&token) != self.locks.client_id
            && is_removal
        {
            self.tell_drawer(token, op.slot(), now);
        }
    }

    #[cold]
    fn tell_drawer(&mut self, token: RawToken, slot_index: SlotIndex, now: Instant) {
        let (slot, drawn_by) = (self.locks.slots.at(slot_index), ClientId::of(&token));
        let reach = self.reach();
        let node = reach.first_of(reach.asked, slot.key.as_slice());
        let Some(node) = node else { return };
        let sender = Listed::named(waiter_id(self.locks.client_id, 0));
        let mut text = Vec::new();
        let key = slot.key.as_slice();
        append_message(&mut text, (MessageKind::Removal, 0), sender, &token, iter::empty(), key);
        self.locks.scratch.clear();
        append_publish(&mut self.locks.scratch, ChannelName::of(drawn_by).as_bytes(), &text);
        self.locks.write(node, Request::Tell, self.locks.both_clocks(now));
    }

    /// A client says that it has deleted the keys of a lease. This client does not believe it. But it
    /// extends a lease that it keeps alive before its time, and gives the lease to no further caller.
    pub(super) fn hear_of_removal(&mut self, message: &Message<'_>, now: Now) {
        let slot_index = self.locks.slot_with(&message.token, message.key);
        let is_held = |index: &SlotIndex| self.locks.slots.at(*index).state() == TokenState::Held;
        if let Some(slot_index) = slot_index.filter(is_held) {
            self.locks.share(slot_index);
            self.locks.extend_soon(slot_index, now);
        }
    }
}

//! Releases that hand the lock over: at each node one script writes the token of a waiter in the
//! place of the holder's, and tells that waiter.
//!
//! # Invariants
//!
//! - The holder counts its lease as ended from the moment at which the scripts are written,
//!   whatever the nodes answer.
//! - A node that answers with an error gets the plain release at once, and no script for a while.
//! - After a lost script the client owes the delete of the holder's own token, never the waiter's.

use super::core::Locks;
use super::handover::Heir;
use crate::command::append_transfer;
use crate::node::{Now, Request, TransfersName};
use crate::quorum::NodeMask;
use crate::rules;
use crate::slab::SlotIndex;
use crate::token::TokenBytes;

impl Locks {
    /// The nodes that granted the lock and can hand it over.
    pub(in crate::engine) fn able_to_transfer(&self, slot_index: SlotIndex) -> NodeMask {
        self.slots.at(slot_index).granted.intersection(self.running_transfers())
    }

    /// The nodes that can hand a key over. Most nodes that have not answered the SET yet have the key
    /// when the script runs.
    pub(in crate::engine) fn running_transfers(&self) -> NodeMask {
        let all = self.nodes.all().into_iter();
        all.filter(|&id| self.nodes.at(id).runs_transfers()).collect()
    }

    /// Writes the script to those of `holds` that can run it. Returns those nodes.
    #[cold]
    pub(super) fn write_transfers(
        &mut self,
        slot_index: SlotIndex,
        heir: Heir,
        holds: NodeMask,
        now: Now,
    ) -> NodeMask {
        let channel = TransfersName::of(&heir.token);
        let to = (&TokenBytes::Drawn(heir.token), heir.ttl_ms);
        let mut written = NodeMask::EMPTY;
        for id in holds.intersection(heir.nodes) {
            let node = self.nodes.at(id);
            let Some(mark) = node.mark() else { continue };
            let text = &mut self.heir_text;
            if let Some(place) = text.get_mut(heir.mark_at..).and_then(<[u8]>::first_chunk_mut) {
                *place = rules::mark_of(mark);
            }
            let slot = self.slots.at(slot_index);
            self.scratch.clear();
            let by = (channel.as_bytes(), text.as_slice());
            append_transfer(&mut self.scratch, &slot.key, &slot.token, to, by);
            if self.write(id, Request::Transfer(slot_index), now) {
                written.insert(id);
            }
        }
        written
    }
}

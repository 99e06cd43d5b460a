//! The claims of holders: a key beside the lock of an [`announced`](crate::LockOptions::announced)
//! lease. It names the holder.
//!
//! # Invariants
//!
//! - No vote, no deadline and no call depends on a claim: the client ignores the answers to its
//!   commands.
//! - The client writes a claim only while its term lasts, to a node that has just shown that it
//!   holds the lease's token. The claim stays there no longer than the TTL of that lease.

use super::Claimed;
use crate::claim::{CLAIM_SUFFIX, Claim};
use crate::command::{append_claim, append_release};
use crate::engine::locks::core::Locks;
use crate::key::Key;
use crate::node::{Now, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::resp::encode::append_command;
use crate::rules;
use crate::slab::SlotIndex;
use crate::token::{LockToken, TokenBytes};

impl Locks {
    /// The engine begins to care for a lease. If the lease is announced, the engine writes its
    /// claim.
    #[cold]
    pub(in crate::engine) fn claim(&mut self, slot_index: SlotIndex, now: Now) {
        let Some(keep_index) = self.keep_of(slot_index) else { return };
        if !self.keeps.at(keep_index).is_announced {
            return;
        }
        let slot = self.slots.at(slot_index);
        let granted = rules::nodes_to_claim(slot.votes(), self.nodes.all());
        let token = LockToken::new(&slot.token);
        let since_ms = self.wall.map_or(0, |wall| wall.at(now.real) / 1_000);
        let value = Claim::write(since_ms, &self.own_name, token.as_bytes());
        self.keeps.at_mut(keep_index).claim =
            Some(Claimed { value: TokenBytes::Given(value), nodes: NodeMask::EMPTY });
        for id in granted {
            self.write_claim(id, slot_index, now);
        }
    }

    /// A node has just shown that it holds the lease's token. If the lease has a claim, the engine
    /// writes the claim to that node. If the term is over, another client may lead, and its claim
    /// may stand there.
    pub(in crate::engine) fn write_claim(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        let Some(keep_index) = self.keep_of(slot_index) else { return };
        let Some(claim) = &mut self.keeps.at_mut(keep_index).claim else { return };
        let slot = self.slots.at(slot_index);
        // A vote may be older than the end of its connection.
        if slot.ends <= now.real || !self.nodes.at(id).is_greeted() {
            return;
        }
        let ttl_ms = rules::claim_ttl_ms(slot.ttl_ms, self.settings.max_ttl_ms);
        self.scratch.clear();
        append_claim(&mut self.scratch, &claim_key(&slot.key), &claim.value, ttl_ms);
        if self.nodes.request(id, Request::Tell, &self.scratch, now.attended) {
            claim.nodes.insert(id);
        }
    }

    /// Takes the claim of a lease that is about to be released.
    pub(in crate::engine) fn take_claim(&mut self, slot_index: SlotIndex) -> Option<Claimed> {
        let keep_index = self.keep_of(slot_index)?;
        self.keeps.at_mut(keep_index).claim.take().filter(|_| rules::ends_claim(true))
    }

    /// The lease was released: deletes its claim from the nodes that have it. A node that cannot be
    /// reached drops it after its TTL.
    #[cold]
    pub(in crate::engine) fn delete_claim(
        &mut self,
        claim: &Claimed,
        slot_index: SlotIndex,
        now: Now,
    ) {
        let key = claim_key(&self.slots.at(slot_index).key);
        for id in claim.nodes {
            let Some(step) = self.nodes.release_step(id) else { continue };
            self.scratch.clear();
            if rules::is_claim_compared(true) {
                append_release(&mut self.scratch, step, &key, &claim.value);
            } else {
                append_command(&mut self.scratch, &[&b"DEL"[..], &key]);
            }
            self.nodes.request(id, Request::Tell, &self.scratch, now.attended);
        }
    }
}

/// The key beside the lock with this key, both as the nodes know them.
fn claim_key(key: &Key) -> Key {
    let mut claim = key.clone();
    claim.extend_from_slice(CLAIM_SUFFIX);
    claim
}

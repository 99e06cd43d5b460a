//! Locks that are handed over: the receiver, and whether the lock reached it.
//!
//! # Invariants
//!
//! - If fewer than a quorum of nodes can still tell the waiter, the client wakes it instead. The
//!   waiter then gives up the votes that came, and makes an attempt behind them.
//! - Each node's message carries the list: a waiter with a quorum of messages has it too.

use std::time::Duration;

use super::core::{Handover, Waiting};
use super::list::Entry;
use super::message::{self, MessageKind, Offer, RawToken};
use super::outside::View;
use super::wakes::Wake;
use crate::client_name::ClientId;
use crate::key::{Key, hash};
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::SlotIndex;
use crate::witness::{Sight, saw};

/// A client wakes a waiter that was silent for longer, instead of handing the lock over to it. A
/// frozen waiter that is given a lock costs the others its TTL.
const SILENT_MAX: Duration = Duration::from_millis(500);

/// A waiter that was silent for this part of its TTL would have too little of it left.
const SILENT_PARTS: u32 = 4;

/// The waiter that gets a lock next, as the nodes must be told.
#[derive(Debug)]
pub(in crate::engine) struct NextHolder {
    pub(in crate::engine) offer: Offer,
    /// The node by which later messages come behind the hand-over.
    pub(in crate::engine) near: NodeId,
    /// Where the message names the node by which it goes.
    pub(in crate::engine) mark_at: usize,
}

/// The limits within which a release may hand its lock over.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Terms {
    /// The nodes that can hand a lock over.
    pub(in crate::engine) able: NodeMask,
    /// How many transfers may follow each other before clients of other kinds get their turn.
    pub(in crate::engine) in_row: u8,
    pub(in crate::engine) ttl_max_ms: u32,
}

/// The scripts by which a release hands its lock over.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Scripts {
    /// The nodes to which they are written.
    pub(in crate::engine) nodes: NodeMask,
    /// The node by which later messages come behind them.
    pub(in crate::engine) near: NodeId,
}

/// The release of a lock for which other calls may wait.
#[derive(Debug)]
pub(in crate::engine) struct Released {
    pub(in crate::engine) key: Key,
    /// The fence of the lease; zero for none.
    pub(in crate::engine) fence: u64,
    /// How the lock is handed over; `None` if it is not.
    pub(in crate::engine) scripts: Option<Scripts>,
}

impl Waiting {
    /// The waiter that gets the lock of a slot which is about to be released. `None` if the client
    /// is to wake the first waiter instead. Writes the message for the waiter into `text`.
    pub(in crate::engine) fn next_holder(
        &mut self,
        slot: SlotIndex,
        (key, token): (&Key, &RawToken),
        terms: Terms,
        text: &mut Vec<u8>,
        view: &View<'_>,
    ) -> Option<NextHolder> {
        let now = view.now;
        let queue = self.queues.get_mut(slot)?;
        queue.list.drop_past(now);
        let is_heard = |entry: &Entry| {
            let silent = entry.seen.until(now);
            let ttl = Duration::from_millis(entry.offer.map_or(0, |offer| offer.ttl_ms).into());
            rules::is_alive(silent <= SILENT_MAX) && rules::is_fresh(silent <= ttl / SILENT_PARTS)
        };
        // A silent waiter is over, or frozen, or about to announce itself again: then it has its place.
        queue.list.drop_unless_all(|entry| entry.offer.is_some() && !is_heard(entry));
        let is_in_row = rules::is_in_row(queue.row < terms.in_row);
        let first = *queue.list.first()?;
        let offer = first.offer?;
        let has_time = now + self.node_timeout * 2 < first.until;
        let is_allowed = rules::is_handed_ttl_allowed(offer.ttl_ms <= terms.ttl_max_ms);
        let is_able = self.electorate.has_quorum(terms.able) && is_allowed;
        if ClientId::of(&first.id) == self.client_id
            || !(is_in_row && is_heard(&first) && has_time && is_able)
        {
            return None;
        }
        let near = Some(first.node).filter(|&node| terms.able.contains(node));
        let near = near.or_else(|| view.reach.first_of(terms.able, key.as_slice()))?;
        text.clear();
        let header = (MessageKind::Transfer, queue.row.saturating_add(1));
        let rest = queue.list.listed(now).skip(rules::listed_from(1, queue.list.len()));
        message::append(text, header, first.listed(now), token, rest, key);
        Some(NextHolder { offer, near, mark_at: message::MARK_AT })
    }

    /// The scripts that hand the lock of a slot over were written.
    pub(super) fn handed_over(
        &mut self,
        slot: SlotIndex,
        wake: Wake,
        scripts: Scripts,
        view: &mut View<'_>,
    ) {
        if !wake.rest.is_empty() {
            saw(Sight::HandedOn);
        }
        let until = view.now + self.node_timeout * 2;
        let mut successor = wake.successor(scripts.near, until);
        successor.is_handed = true;
        self.wakes.note(hash(wake.key.as_slice()), successor);
        let handover = Handover { wake, told: NodeMask::EMPTY, open: scripts.nodes };
        self.handovers.enter(slot, || handover);
        self.settle_handover(slot, view);
    }

    /// A node has answered the script, or never will. `is_told`: the node told the waiter.
    pub(in crate::engine) fn transfer_answered(
        &mut self,
        slot: SlotIndex,
        node: NodeId,
        is_told: bool,
        view: &mut View<'_>,
    ) {
        let Some(handover) = self.handovers.get_mut(slot) else { return };
        handover.open.remove(node);
        // A waiter that this node did not tell may still receive messages.
        if is_told {
            handover.told.insert(node);
        }
        self.settle_handover(slot, view);
    }

    fn settle_handover(&mut self, slot: SlotIndex, view: &mut View<'_>) {
        let Some(handover) = self.handovers.get_mut(slot) else { return };
        let possible = handover.told.union(handover.open);
        if !self.electorate.has_quorum(possible) {
            saw(Sight::TransferFailed);
            if let Some(Handover { wake, .. }) = rules::to_wake_instead(self.handovers.remove(slot))
            {
                self.wake(wake, view);
            }
            return;
        }
        if self.handovers.get(slot).is_some_and(|handover| handover.open.is_empty()) {
            self.handovers.remove(slot);
        }
    }
}

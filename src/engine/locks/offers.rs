//! The offers of waiting calls: a token and a TTL each, to which a holder may hand its lock over.
//!
//! An offer is a slot of its own. A node that writes its token for a holder tells this client so.
//! That message is the node's vote: a quorum of them is a lease, as after a SET.
//!
//! # Invariants
//!
//! - The deadline counts from a clock reading from before the call first made the offer. Each node
//!   writes the token later, so its key lives at least until the deadline. The deadline depends
//!   neither on another client's clock nor on the time of receipt.
//! - From the moment at which a compare-and-delete of the token is written to a node, no grant by
//!   that node counts: the node is tainted. A grant by the same server under another node's address
//!   does not count, either. A delete that is only owed is void once the offer is a lease. Once the
//!   node has answered the delete, it gets the extensions of that lease.
//! - The client deletes a token only while it knows that the token belongs to one of its own ended
//!   offers. A token that it does not know, or has given away, stays until its TTL ends.
//! - The client remembers an ended offer, used or not, for as long as a late script may still write
//!   its token. If a connection ends meanwhile, a hand-over may have gone unheard, so the client
//!   owes a compare-and-delete of the token. When a node is back, the client also owes this delete
//!   for each offer that it made before. A node counts a lost connection as a listener until it
//!   notices the loss.

use super::core::Locks;
use super::op::Verdict;
use super::slot::{Mark, Past, TokenInput, TokenState};
use super::timers::Timer;
use crate::engine::happenings::Happening;
use crate::error::{Cause, Vote};
use crate::node::{Node, Now};
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::round::Round;
use crate::rules;
use crate::slab::{OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::TokenBytes;
use crate::witness::{Sight, saw};

use std::time::Duration;

/// A call replaces an offer that is older than its TTL divided by this.
const FRESH_PARTS: u32 = 4;

/// A call whose `min_validity` is more than its TTL divided by this makes no offer. A holder may
/// still take up an offer that is half a TTL old.
const WANTED_PARTS: u32 = 3;

/// A holder may take up an offer until this long after the offer's end. No holder hands a lock over
/// to a call that was silent for 500 ms. The other 500 ms are for messages on their way.
const TAKEN_UP: Duration = Duration::from_secs(1);

/// How many ended offers the client remembers. A key that a late script writes for an older offer
/// stays until its TTL ends.
const REMEMBERED_MAX: usize = 4096;

/// The client forgets ended offers at most this often.
const SWEEP: Duration = Duration::from_millis(100);

/// The result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum TransferResult {
    /// No call of this client takes the lock: the client must wake the first waiter on the list.
    Unwanted,
    /// No call takes the lock, and no waiter needs a wake: an earlier message led to one, or this
    /// message is forged.
    Ignored,
    /// Another vote for a lease that this client has, or has won.
    Late(SlotIndex),
    /// A message about an offer of this call, whether or not the message is a vote. There is no
    /// quorum yet.
    Partly(OpIndex),
    /// The vote that made a quorum for the call.
    Quorum(OpIndex, SlotIndex),
}

/// A transfer, as a node tells it.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Transfer<'a> {
    pub(in crate::engine) key: &'a [u8],
    /// The token that the key had before.
    pub(in crate::engine) from: [u8; 20],
    pub(in crate::engine) token: [u8; 20],
    pub(in crate::engine) ttl_ms: u32,
}

impl Locks {
    /// The token and TTL of the lease that a call would take over; `None` if it takes none over. A
    /// call makes the same offer for a quarter of the TTL.
    pub(in crate::engine) fn offer(&mut self, op: OpIndex, now: Now) -> Option<([u8; 20], u32)> {
        if !self.takes_over(op) {
            return None;
        }
        self.nodes.take_transfers(now);
        let made = self.offers.of(op);
        if let Some(slot) = made.last().map(|&newest| self.slots.at(newest))
            && slot.began + ttl(slot.ttl_ms) / FRESH_PARTS > now.real
            && rules::may_offer_again(slot.tainted.is_empty())
            && let TokenBytes::Drawn(token) = slot.token
        {
            return Some((token, slot.ttl_ms));
        }
        for old in made {
            if self.slots.at(old).ends <= now.real {
                self.end_offer(old, now);
            }
        }
        Some(self.new_offer(op, now.real))
    }

    /// Whether the call may take a lock over. The call needs no fence, and a lease that counts from
    /// its offer lasts long enough.
    pub(in crate::engine) fn takes_over(&self, index: OpIndex) -> bool {
        let op = self.ops.at(index);
        let has_enough = op.plan.min_validity <= ttl(op.plan.ttl_ms) / WANTED_PARTS;
        self.settings.transfers_in_row > 0
            && has_enough
            && !self.slots.at(op.slot()).has(Mark::FENCED)
    }

    /// An attempt was denied. Its time shows how far the nodes are, unless the attempt asked one
    /// node first.
    pub(in crate::engine) fn note_denial(&mut self, op: OpIndex, denied: NodeMask, now: Now) {
        if !self.settings.electorate.is_blocked_by(denied) {
            return;
        }
        let began = self.slots.at(self.ops.at(op).slot()).began;
        self.last_denial = Some(now.real.saturating_since(began));
    }

    /// The time from a request to the answers of a quorum. A denial counts if it came sooner,
    /// because the answer to a greeting may have lain unread.
    pub(in crate::engine) fn round_trip(&self) -> Duration {
        let greeted = self.nodes.round_trip(self.settings.quorum);
        self.last_denial.map_or(greeted, |denial| denial.min(greeted))
    }

    fn new_offer(&mut self, index: OpIndex, now: Instant) -> ([u8; 20], u32) {
        let token = self.draw_token();
        let op = self.ops.at(index);
        let (key, ttl_ms) = (self.slots.at(op.slot()).key.clone(), op.plan.ttl_ms);
        let deadline = self.deadline_from(now, ttl_ms);
        let slot_index =
            self.slots.open(key.as_slice(), TokenBytes::Drawn(token), TokenInput::Offer);
        let slot = self.slots.at_mut(slot_index);
        slot.set(Mark::OFFERED, true);
        (slot.ttl_ms, slot.ttl_longest_ms) = (ttl_ms, ttl_ms);
        (slot.began, slot.ends) = (now, deadline);
        slot.refs = 1;
        self.offers.open.enter(slot_index, || index);
        (token, ttl_ms)
    }

    /// A node has written the token of a transfer, and tells this client.
    pub(in crate::engine) fn transferred(
        &mut self,
        id: NodeId,
        transfer: Transfer<'_>,
        now: Now,
    ) -> TransferResult {
        let Some(slot_index) = self.slot_with(&transfer.token, transfer.key) else {
            return TransferResult::Unwanted;
        };
        if !rules::is_of_offer(self.slots.at(slot_index).has(Mark::OFFERED)) {
            // Forged: every client can read the tokens of attempts and leases on the nodes.
            return TransferResult::Ignored;
        }
        let is_trusted = self.vote_of_grant(id, now) == Vote::Granted;
        let is_trusted = rules::is_transfer_trusted(is_trusted);
        let slot = self.slots.at_mut(slot_index);
        let is_clean = rules::counts_where_deleted(!slot.tainted.contains(id));
        let is_vote =
            is_clean && is_trusted && rules::is_with_offered_ttl(slot.ttl_ms == transfer.ttl_ms);
        match slot.state() {
            TokenState::Offered => {
                let op = self.offers.open.get(slot_index).copied();
                let Some(op) =
                    op.filter(|&op| rules::takes_up(self.ops.at(op).outcome == Verdict::Open))
                else {
                    self.end_offer(slot_index, now);
                    return self.handed_in_vain(id, slot_index, transfer.from, now);
                };
                if !is_clean {
                    self.delete_transferred(id, slot_index, now);
                    return TransferResult::Partly(op);
                }
                slot.holds.insert(id);
                if !is_vote {
                    return TransferResult::Partly(op);
                }
                slot.granted.insert(id);
                let granted = slot.granted;
                let electorate = *self.settings.electorate_of(slot);
                self.observe(Happening::Vote { node: id, slot: slot_index, vote: Vote::Granted });
                if electorate.has_quorum(granted) {
                    TransferResult::Quorum(op, slot_index)
                } else {
                    TransferResult::Partly(op)
                }
            }
            TokenState::Asking | TokenState::Gated | TokenState::Won | TokenState::Held => {
                if !rules::is_left_to_lease(true) {
                    return self.handed_in_vain(id, slot_index, transfer.from, now);
                }
                self.another_vote(id, slot_index, is_vote, now);
                TransferResult::Late(slot_index)
            }
            TokenState::Between | TokenState::Released => {
                self.handed_in_vain(id, slot_index, transfer.from, now)
            }
            TokenState::Free | TokenState::GivenAway => TransferResult::Unwanted,
        }
    }

    /// One more node has told of a lock that the client has, or has won.
    fn another_vote(&mut self, id: NodeId, slot_index: SlotIndex, is_vote: bool, now: Now) {
        let slot = self.slots.at_mut(slot_index);
        slot.holds.insert(id);
        // The message says nothing of a SET of an extension.
        if !slot.is_extended() {
            slot.unanswered.remove(id);
        }
        if rules::is_late_vote(is_vote) && !slot.granted.contains(id) {
            slot.granted.insert(id);
            let op = slot.op.filter(|_| slot.state() != TokenState::Held);
            if let Some(op) = op {
                self.ops.at_mut(op).round.enter(id, Vote::Granted);
            } else {
                self.note_change(slot_index);
                self.write_claim(id, slot_index, now);
            }
        }
    }

    /// The call that offers to take the key over by this token.
    pub(in crate::engine) fn receiver(&self, token: &[u8; 20], key: &[u8]) -> Option<OpIndex> {
        self.offers.open.get(self.slot_with(token, key)?).copied()
    }

    /// A quorum of nodes has the token of the offer: the call has its lease.
    pub(in crate::engine) fn take_over(
        &mut self,
        index: OpIndex,
        slot_index: SlotIndex,
        transfer: Transfer<'_>,
        now: Now,
    ) {
        let last = self.ops.at(index).slot();
        let newest = || {
            let newest = self.offers.of(index).last().copied();
            self.slots.at(newest.unwrap_or(slot_index)).ends
        };
        let ends = rules::offer_ends(self.slots.at(slot_index).ends, &newest);
        // The client releases the attempt under way: one key cannot have two valid locks.
        self.ops.unlist(index);
        let attempt = self.slots.at_mut(last);
        attempt.holds = rules::holds_of_attempt(attempt.holds);
        self.release_slot(last, None, now);
        self.leave_attempt(last);
        self.offers.open.remove(slot_index);
        self.remember(slot_index, Some(transfer.from), now.real);
        // A node that can tell this client of transfers may have run a script, or may still run it.
        let heard = self.nodes.those(Node::takes_transfers);
        let received = self.deadline_from(now.real, self.slots.at(slot_index).ttl_ms);
        let slot = self.slots.at_mut(slot_index);
        slot.op = Some(index);
        slot.ends = rules::transfer_ends(ends, received);
        slot.holds = rules::with_late_scripts(slot.holds, heard);
        slot.unanswered = rules::with_untold(slot.unanswered, slot.holds.without(slot.granted));
        let granted = slot.granted;
        let op = self.ops.at_mut(index);
        op.set_slot(slot_index);
        op.round = Round::of(granted);
        op.causes = [Cause::None; NODES_MAX];
        self.win(index, slot_index);
        for id in self.slots.at(slot_index).tainted {
            self.end_doubt(id, slot_index);
        }
    }

    /// The call takes no lock over any more.
    pub(in crate::engine) fn retire_offers(&mut self, op: OpIndex, now: Now) {
        for slot_index in self.offers.of(op) {
            self.end_offer(slot_index, now);
        }
    }

    /// No client has heard of the call's offers, so this client need not remember them.
    pub(in crate::engine) fn withdraw_offers(&mut self, op: OpIndex) {
        for slot_index in self.offers.of(op) {
            self.offers.open.remove(slot_index);
            self.slots.at_mut(slot_index).step(TokenInput::Release);
            self.slots.unref(slot_index);
        }
    }

    /// Gives up locks that were handed over in part: an attempt that follows goes behind the
    /// deletes.
    pub(in crate::engine) fn retire_parts(&mut self, op: OpIndex, now: Now) {
        for slot_index in self.offers.of(op) {
            if !self.slots.at(slot_index).holds.is_empty() {
                saw(Sight::TransferPartly);
                self.end_offer(slot_index, now);
            }
        }
    }

    /// The offer ends: the client deletes the keys that holders handed over to it. If a node has
    /// reported no script, it has run none, or its report is still to come.
    fn end_offer(&mut self, slot_index: SlotIndex, now: Now) {
        if self.offers.open.remove(slot_index).is_none() {
            return;
        }
        self.remember(slot_index, None, now.real);
        let slot = self.slots.at_mut(slot_index);
        slot.tainted = rules::with_held(slot.tainted, slot.holds);
        slot.set(Mark::DOUBTED, true);
        if slot.holds.is_empty() {
            slot.step(TokenInput::Release);
        } else {
            self.release_slot(slot_index, None, now);
        }
    }

    /// Remembers an ended offer for long enough: a holder's script compares with the holder's
    /// token, which no node has for longer than `max_ttl` and drift.
    fn remember(&mut self, slot: SlotIndex, from: Option<[u8; 20]>, now: Instant) {
        let ends = now + TAKEN_UP + self.settings.admission.guard_time;
        let until = rules::remembered_until(ends, now);
        if self.offers.past.is_empty() {
            self.timers.set(Timer::Offers, until);
        }
        if self.offers.past.len() >= REMEMBERED_MAX
            && let Some(oldest) = self.offers.past.pop_front()
        {
            self.slots.unref(oldest.slot);
        }
        self.offers.past.push_back(Past { slot, until, from });
    }

    /// Forgets offers that ended a while ago.
    pub(in crate::engine) fn sweep_offers(&mut self, now: Now) {
        while let Some(&Past { slot, until, .. }) = self.offers.past.front() {
            if until > now.real {
                return self.timers.set(Timer::Offers, until.max(now.real + SWEEP));
            }
            self.offers.past.pop_front();
            self.slots.unref(slot);
        }
    }

    /// The client is about to end: from now on it reads no message about a hand-over.
    pub(in crate::engine) fn leave_transfers(&mut self, now: Now) {
        let heard = self.nodes.those(Node::takes_transfers);
        self.nodes.leave_transfers(now);
        for slot_index in self.offers.all() {
            self.end_offer(slot_index, now);
            let slot = self.slots.at_mut(slot_index);
            let rest = heard.without(slot.holds);
            slot.holds = rules::with_late_scripts(slot.holds, heard);
            if slot.state().is_released() {
                // A script that runs behind this delete finds no listener, and takes its key back.
                slot.tainted = slot.tainted.union(heard);
                if !slot.is_extended() {
                    slot.unanswered = slot.unanswered.without(heard);
                }
                for id in rules::left_behind(rules::with_unanswered_releases(rest, heard)) {
                    self.send_release(id, slot_index, &mut None, now);
                }
            } else {
                // A lease deletes its keys by its own release.
                slot.unanswered = slot.unanswered.union(rest);
            }
        }
        while let Some(Past { slot, .. }) = self.offers.past.pop_front() {
            self.slots.unref(slot);
        }
        self.timers.remove(Timer::Offers);
    }

    /// The connection to the node has ended, or the next one has begun: the node's messages about
    /// offers may be lost.
    pub(in crate::engine) fn offers_unheard(&mut self, id: NodeId, now: Now) {
        // No client hands a lock over at a node that was in no list yet.
        if !self.nodes.all().contains(id) && self.settings.electorate.takes_any() {
            return;
        }
        for slot_index in self.offers.all() {
            let slot = self.slots.at_mut(slot_index);
            // A delete may be on its way there already.
            if !rules::is_unheard_owed(!slot.holds.contains(id))
                || rules::is_over_offer_left(slot.state() != TokenState::Offered)
            {
                continue;
            }
            slot.holds.insert(id);
            slot.unanswered.insert(id);
            // A lease deletes its key by its own release.
            if slot.state() == TokenState::Offered || slot.state().is_released() {
                self.owe(id, slot_index, now);
            }
        }
    }

    /// The token that was last offered.
    #[cfg(test)]
    pub(in crate::engine) fn last_offered(&self) -> Option<TokenBytes> {
        let (slot, _) = self.offers.open.iter().last()?;
        Some(self.slots.at(slot).token.clone())
    }

    /// How many offers are only remembered: nothing else names their slots.
    #[cfg(any(test, feature = "sim", feature = "fuzzing"))]
    pub(in crate::engine) fn offers_remembered(&self) -> usize {
        let slots = self.offers.past.iter().map(|past| self.slots.at(past.slot));
        slots.filter(|slot| slot.state() == TokenState::Released && slot.refs == 1).count()
    }

    /// A lock was handed over to an offer that is over. The first message about it deletes its key
    /// at all nodes that may know the offer. So the waiter that is woken next comes behind the
    /// deletes.
    fn handed_in_vain(
        &mut self,
        id: NodeId,
        slot_index: SlotIndex,
        from: [u8; 20],
        now: Now,
    ) -> TransferResult {
        let slot = self.slots.at_mut(slot_index);
        // An unanswered release runs behind the script, which has run. The release may run before
        // an extension's SET.
        if rules::runs_behind(slot.holds.contains(id)) && !slot.is_extended() {
            slot.unanswered.remove(id);
        }
        self.delete_transferred(id, slot_index, now);
        let past = self.offers.past.iter_mut().rev().find(|past| past.slot == slot_index);
        if rules::has_had_turn(past.is_some_and(|past| past.from.replace(from) == Some(from))) {
            return TransferResult::Ignored;
        }
        let mut others = self.nodes.those(Node::takes_transfers);
        others.remove(id);
        for other in rules::others_told(others) {
            self.delete_transferred(other, slot_index, now);
        }
        TransferResult::Unwanted
    }

    /// A token was handed over for which no call waits: deletes it at the node.
    fn delete_transferred(&mut self, id: NodeId, slot_index: SlotIndex, now: Now) {
        self.observe(Happening::TransferUnwanted { node: id });
        if !rules::is_unwanted_deleted(true) {
            return;
        }
        self.end_votes(id, slot_index);
        let slot = self.slots.at_mut(slot_index);
        if slot.state().is_released() && rules::runs_behind(slot.holds.contains(id)) {
            return;
        }
        slot.holds.insert(id);
        // The count of references has 16 bits and must not wrap around, however often a message
        // repeats. By now many deletes are on their way.
        let has_room = slot.refs < u16::MAX / 2;
        if has_room && slot.state() == TokenState::Offered {
            // A debt is void once the offer is a lease.
            self.owe(id, slot_index, now);
        } else if has_room {
            self.send_release(id, slot_index, &mut None, now);
        }
    }
}

fn ttl(ttl_ms: u32) -> Duration {
    Duration::from_millis(ttl_ms.into())
}

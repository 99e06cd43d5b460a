//! Leases: how the engine cares for a lease, how its deadline moves, and how it is lost or given
//! away. Beside an announced lease stands its claim, a key that names the holder.
//!
//! # Invariants
//!
//! - A lost lease stays lost: its deadline is not later than its loss, and no extension moves it
//!   again.
//! - The engine reports the loss of a lease that it keeps alive once no quorum can hold the key,
//!   and by the deadline.
//! - Once a lease is given away, the client writes no command that changes a key by its token: it
//!   forgets the token.
//! - A caller gives a lease away only while no node may still run an earlier delete or extension of
//!   it. Run later, such a command would change what the client that adopts the lease has written.
//! - A client adopts no lock that it has, or of which it owes a delete: its own commands would end
//!   the lease.
//! - An adoption that fails may leave an extension on a connection that ends. The client remembers
//!   the node. Unless the node has surely restarted since, it does not count in a longer adoption
//!   of the lock.
//! - A node whose address has led back to an older process counts in no adoption until it restarts.
//! - If a process may still run a command for one node, it may do so for each node whose address
//!   leads to that process.
//! - No vote, no deadline and no call depends on the claim of an
//!   [`announced`](crate::LockOptions::announced) lease: the client ignores the answers to its
//!   commands.
//! - The client writes a claim only while its term lasts, to a node that has just shown that it
//!   holds the lease's token. The claim stays there no longer than the TTL of that lease.

use super::core::{Claimed, Done, Locks, third};
use super::op::{OpKind, Verdict};
use super::slot::{LeaseId, Mark, Slot, TokenInput, TokenState, Unsettled};
use super::timers::Timer;
use crate::claim::{CLAIM_SUFFIX, Claim};
use crate::command::{append_claim, append_release};
use crate::engine::event::LostCause;
use crate::engine::happenings::Happening;
use crate::error::DetachError;
use crate::key::Key;
use crate::node::{Now, ProcessChange, Request};
use crate::quorum::{NodeId, NodeMask};
use crate::resp::encode::append_command;
use crate::rules;
use crate::slab::{KeepIndex, OpIndex, SlotIndex};
use crate::time::Instant;
use crate::token::{LockToken, TokenBytes};

use std::time::Duration;

/// After an extension that missed its quorum, the random part of the wait is at most a
/// `node_timeout` divided by this.
const JITTER_PARTS: u32 = 4;

/// The client remembers at most this many locks that it has left, and forgets the oldest first.
const UNSETTLED_MAX: usize = 1024;

impl Locks {
    /// Makes an entry for an acquisition or adoption whose lease is to be kept alive.
    #[cold]
    pub(in crate::engine) fn open_keep(&mut self, index: OpIndex, is_announced: bool) {
        let Some(keep) = self.keeps.open(self.ops.id(index)) else { return };
        self.ops.at_mut(index).keep = Some(keep);
        self.keeps.at_mut(keep).is_announced = is_announced;
    }

    /// The entry of the operation's lease belongs to this slot until the next attempt takes it.
    #[cold]
    pub(in crate::engine) fn bind_keep(&mut self, index: OpIndex, slot_index: SlotIndex) {
        let Some(keep) = self.ops.at(index).keep else { return };
        self.keeps.bind(keep, slot_index);
        self.slots.at_mut(slot_index).set(Mark::KEPT, true);
    }

    /// From now on the engine keeps a lease alive.
    #[cold]
    pub(in crate::engine) fn begin_keeping(
        &mut self,
        slot_index: SlotIndex,
        keep_index: KeepIndex,
        now: Now,
    ) {
        let slot = self.slots.at_mut(slot_index);
        slot.set(Mark::KEPT, true);
        let (began, ttl_ms) = (slot.began, slot.ttl_ms);
        self.keeps.bind(keep_index, slot_index);
        let keep = self.keeps.at_mut(keep_index);
        keep.is_held = true;
        keep.began = began;
        keep.extend_at = began + third(ttl_ms);
        self.schedule_keep(keep_index);
        self.check_holders(slot_index, now);
    }

    /// Ends the engine's care for a lease: the lease is over, or there was none.
    pub(in crate::engine) fn close_keep(&mut self, index: KeepIndex) {
        self.timers.remove(Timer::Keep(index));
        self.keeps.close(index);
    }

    /// The lease is released or given away: ends the engine's care for it.
    #[cold]
    pub(in crate::engine) fn end_keeping(&mut self, slot_index: SlotIndex) {
        self.slots.at_mut(slot_index).set(Mark::KEPT, false);
        // A failed attempt leaves the entry to the next attempt.
        let keep = self.keeps.of_slot(slot_index);
        if let Some(index) = keep.filter(|&index| self.keeps.at(index).is_held) {
            self.close_keep(index);
        }
    }

    /// The entry of a slot's lease.
    pub(in crate::engine) fn keep_of(&self, slot_index: SlotIndex) -> Option<KeepIndex> {
        let is_kept = self.slots.at(slot_index).has(Mark::KEPT);
        if is_kept { self.keeps.of_slot(slot_index) } else { None }
    }

    pub(in crate::engine) fn schedule_keep(&mut self, index: KeepIndex) {
        let keep = self.keeps.at(index);
        let deadline = keep.slot.map_or(Instant::MAX, |slot| self.slots.at(slot).ends);
        let at = keep.extend_at.min(deadline);
        self.timers.set(Timer::Keep(index), at);
    }

    /// The caller's or the engine's extension of a lease has ended: plans the next extension.
    pub(in crate::engine) fn plan_extension(
        &mut self,
        slot_index: SlotIndex,
        outcome: Verdict,
        now: Now,
    ) {
        let slot = self.slots.at(slot_index);
        let (keep, ttl_ms) = (self.keep_of(slot_index), slot.ttl_ms);
        let Some(index) = keep.filter(|_| slot.state() == TokenState::Held) else { return };
        let keep = self.keeps.at_mut(index);
        if !keep.is_held || keep.is_lost {
            return;
        }
        let began = keep.began;
        if outcome == Verdict::Won {
            keep.extend_at = began + third(ttl_ms);
        } else {
            self.extend_again(index, began, now);
        }
        self.note_change(slot_index);
        self.schedule_keep(index);
    }

    /// Plans to repeat an extension that began at `began` and missed its quorum.
    pub(in crate::engine) fn extend_again(&mut self, index: KeepIndex, began: Instant, now: Now) {
        let timeout = self.settings.node_timeout;
        let random = self.random_share();
        let earliest = (began + timeout).max(now.real);
        self.keeps.at_mut(index).extend_at = earliest + (timeout / JITTER_PARTS).mul_f64(random);
    }

    /// A caller extends the lease at `now`: the TTL counts from then on.
    pub(in crate::engine) fn caller_extends(&mut self, slot_index: SlotIndex, now: Instant) {
        if let Some(index) = self.keep_of(slot_index) {
            let keep = self.keeps.at_mut(index);
            keep.began = now;
            keep.extend_at = Instant::MAX;
            self.schedule_keep(index);
        }
    }

    /// Ends an extension of the engine's own, in favour of the caller's request.
    pub(in crate::engine) fn end_keep_alive(&mut self, slot_index: SlotIndex) {
        let slot = self.slots.at_mut(slot_index);
        if let Some(op) = slot.op.filter(|&op| self.ops.at(op).kind == OpKind::Keep) {
            slot.op = None;
            self.close_own_extension(op);
        }
    }

    /// Gives the place of an extension by the engine itself back.
    pub(in crate::engine) fn close_own_extension(&mut self, op: OpIndex) {
        self.ops.ends_own_extension();
        self.close_op(op);
    }

    /// Fewer than a quorum can hold the key, or its time is over: the lease is lost for good. The
    /// deadline of an attempt or an offer moves to now, so a later quorum comes too late.
    #[cold]
    pub(in crate::engine) fn lose_lease(
        &mut self,
        slot_index: SlotIndex,
        cause: LostCause,
        now: Now,
    ) {
        let lease = self.slots.lease_id(slot_index);
        let slot = self.slots.at_mut(slot_index);
        let is_held = slot.state() == TokenState::Held;
        let may_be_held = rules::ends_before_it_is_held(slot.state().is_alive());
        if slot.ends > now.real && (is_held || may_be_held) {
            slot.ends = now.real;
            self.note_change(slot_index);
        }
        if !is_held {
            return;
        }
        let op = self.slots.at(slot_index).op;
        let keep_index = self.keep_of(slot_index);
        if let Some(op) = op.filter(|&op| self.ops.at(op).outcome == Verdict::Open) {
            let kind = self.ops.at(op).kind;
            if kind == OpKind::Keep {
                self.end_keep_alive(slot_index);
            } else if matches!(kind, OpKind::Extend | OpKind::Adopt) {
                let is_expired = cause == LostCause::Expired;
                self.finish(op, if is_expired { Verdict::Expired } else { Verdict::Lost });
            }
        }
        let Some(keep_index) = keep_index else { return };
        self.timers.remove(Timer::Keep(keep_index));
        let keep = self.keeps.at_mut(keep_index);
        if keep.is_held && !std::mem::replace(&mut keep.is_lost, true) {
            let op = keep.op;
            self.observe(Happening::Lost { slot: slot_index, cause });
            self.done.push_back(Done::Loss { op, lease, cause });
            self.note_change(slot_index);
        }
    }

    /// Ends a lease whose key no quorum can hold any more, unless its adoption is under way.
    pub(in crate::engine) fn check_holders(&mut self, slot_index: SlotIndex, now: Now) {
        let slot = self.slots.at(slot_index);
        if slot.state() == TokenState::Held
            && slot.op.is_none_or(|op| self.ops.at(op).kind != OpKind::Adopt)
            && !self.settings.electorate_of(slot).has_quorum(slot.holds)
        {
            self.lose_votes(slot_index, now);
        }
    }

    /// No quorum can hold the key any more.
    pub(super) fn lose_votes(&mut self, slot_index: SlotIndex, now: Now) {
        let slot = self.slots.at(slot_index);
        let absent = self.nodes.all().without(slot.holds);
        // A node that cannot be reached, or is refused, may have the key.
        let is_new = |id: &NodeId| self.nodes.at(*id).quarantine(now.real).is_some();
        let forgetful: NodeMask = absent.into_iter().filter(is_new).collect();
        let deleted = absent.intersection(slot.granted);
        let is_deleted = self.settings.electorate_of(slot).is_blocked_by(deleted);
        let is_forgotten = !is_deleted && !forgetful.is_empty();
        let cause = if is_forgotten { LostCause::Forgotten } else { LostCause::Gone };
        self.lose_lease(slot_index, cause, now);
    }

    /// Other clients act on the lease.
    #[cold]
    pub(in crate::engine) fn share(&mut self, slot_index: SlotIndex) {
        self.slots.at_mut(slot_index).set(Mark::SHARED, true);
        self.note_change(slot_index);
    }

    /// Notes that the lease's deadline or votes have changed.
    pub(in crate::engine) fn note_change(&mut self, slot_index: SlotIndex) {
        if self.slots.at_mut(slot_index).enter(Mark::CHANGED) {
            self.keeps.changed.push_back(slot_index);
        }
    }

    /// As [`Engine::poll_change`](crate::engine::Engine::poll_change), and the keys of sets too.
    pub(in crate::engine) fn poll_change(&mut self) -> Option<LeaseId> {
        while let Some(slot_index) = self.keeps.changed.pop_front() {
            let slot = self.slots.at_mut(slot_index);
            slot.set(Mark::CHANGED, false);
            if slot.state() == TokenState::Held {
                return Some(self.slots.lease_id(slot_index));
            }
        }
        None
    }

    /// Whether the engine knows that a lease is over: no quorum can hold its key, or it was kept
    /// alive and its deadline has come. True for a lease that is no longer held.
    #[must_use]
    pub(in crate::engine) fn is_lost(&self, lease: LeaseId) -> bool {
        self.slots.held(lease).is_none_or(|slot| {
            self.keep_of(lease.slot).is_some_and(|keep| self.keeps.at(keep).is_lost)
                || !self.settings.electorate_of(slot).has_quorum(slot.holds)
        })
    }

    /// The end of a lease; `None` if it is not held.
    #[must_use]
    pub(in crate::engine) fn deadline(&self, lease: LeaseId) -> Option<Instant> {
        self.slots.held(lease).map(|slot| slot.ends)
    }

    /// The nodes that granted a lease, late ones included, and still hold its key.
    #[must_use]
    pub(in crate::engine) fn votes(&self, lease: LeaseId) -> NodeMask {
        self.slots.held(lease).map_or(NodeMask::EMPTY, Slot::votes)
    }

    pub(in crate::engine) fn held_name(&self, lease: LeaseId) -> Option<(&[u8], &TokenBytes)> {
        let slot = self.slots.held(lease)?;
        Some((self.prefix.plain_key(slot.key.as_slice()), &slot.token))
    }

    /// A node answers again after this silence. A new process runs no command that the client sent
    /// to an earlier process. But the address may lead back to that process.
    #[cold]
    pub(in crate::engine) fn node_is_back(
        &mut self,
        id: NodeId,
        silence: Duration,
        process: ProcessChange,
    ) {
        let least_ttl = Duration::from_millis(self.settings.least_ttl_ms.into());
        let is_reborn = process == ProcessChange::New;
        let may_be_first =
            rules::may_be_first(process == ProcessChange::Other, self.reborn.contains(id));
        if !is_reborn && !may_be_first && silence < least_ttl {
            return;
        }
        if is_reborn {
            self.reborn.insert(id);
            self.led_back.remove(id);
            self.unsettled.iter_mut().for_each(|left| left.nodes.remove(id));
        } else if may_be_first {
            self.led_back.insert(id);
        }
        for index in self.locks() {
            let slot = self.slots.at_mut(index);
            if is_reborn {
                slot.tainted.remove(id);
                slot.unanswered.remove(id);
            } else if may_be_first {
                // The client has forgotten whether that process has answered its SET.
                slot.tainted.insert(id);
                slot.unanswered.insert(id);
                slot.holds.insert(id);
            }
            // The key's time there is over, unless another command has extended it.
            if silence >= Duration::from_millis(slot.ttl_longest_ms.into())
                && slot.holds.contains(id)
            {
                slot.granted.remove(id);
                self.note_change(index);
            }
        }
    }

    /// The process of the node `to` has answered at the address of the node `from`, too. It may still
    /// run what the client sent to it there.
    #[cold]
    pub(in crate::engine) fn share_doubt(&mut self, from: NodeId, to: NodeId) {
        let is_gone =
            self.nodes.at(from).identity() != self.nodes.at(to).facts().identity().as_deref();
        // The client has forgotten its commands to an earlier process.
        let is_any = self.led_back.contains(from) || is_gone && self.reborn.contains(from);
        if is_any {
            self.led_back.insert(to);
        }
        for left in self.unsettled.iter_mut().filter(|left| left.nodes.contains(from)) {
            left.nodes.insert(to);
        }
        // An extension that goes to the other address may run before these pending extensions.
        let pending: Vec<Request> = self.nodes.at(from).pending().map(|it| it.request).collect();
        for request in pending {
            if let Request::Extend { slot, .. } = request {
                self.doubt(to, slot);
            }
        }
        // An open offer may become a lease, and the delete of that offer may still run.
        for (index, _) in self.offers.open.iter() {
            let slot = self.slots.at_mut(index);
            if slot.tainted.contains(from) {
                slot.tainted.insert(to);
            }
        }
        for index in self.locks() {
            let slot = self.slots.at_mut(index);
            if is_any || slot.tainted.contains(from) {
                slot.tainted.insert(to);
            }
            if is_any || slot.unanswered.contains(from) {
                slot.unanswered.insert(to);
                slot.holds.insert(to);
            }
        }
    }

    /// The server that the node's address leads to may run an extension of the lease late.
    pub(super) fn doubt(&mut self, id: NodeId, slot_index: SlotIndex) {
        let slot = self.slots.at_mut(slot_index);
        slot.tainted.insert(id);
        if slot.state() == TokenState::GivenAway {
            let lease = self.slots.lease_id(slot_index);
            let left = self.unsettled.iter_mut().find(|left| left.lease == lease);
            left.into_iter().for_each(|left| left.nodes.insert(id));
        }
    }

    /// The slots of all leases, and of all attempts that may become leases.
    fn locks(&self) -> Vec<SlotIndex> {
        let locks = self.slots.iter().filter(|(_, slot)| slot.state().is_lock());
        locks.map(|(index, _)| index).collect()
    }

    // ---- claims ----

    /// The engine begins to care for a lease. If the lease is announced, the engine writes its
    /// claim.
    #[cold]
    pub(in crate::engine) fn claim(&mut self, slot_index: SlotIndex, now: Instant) {
        let Some(keep_index) = self.keep_of(slot_index) else { return };
        if !self.keeps.at(keep_index).is_announced {
            return;
        }
        let now = self.called_at(now);
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
        // The node may have granted on a connection that has ended since.
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

    // ---- leases that are given away ----

    /// Leaves a lease to its TTL, or to another client with its token.
    pub(in crate::engine) fn give_up(&mut self, slot_index: SlotIndex) {
        self.end_keep_alive(slot_index);
        self.leave_slot(slot_index);
    }

    /// Whether the lease may be given away now.
    pub(in crate::engine) fn may_detach(&self, lease: LeaseId) -> Result<(), DetachError> {
        self.slots.held(lease).ok_or(DetachError::NotOurs)?;
        let unsettled = self.nodes_unsettled(lease.slot);
        if !rules::is_settled(unsettled.is_empty()) {
            let names = self.nodes.names().iter().zip(self.nodes.every());
            let names = names.filter(|&(_, id)| unsettled.contains(id)).map(|(name, _)| &**name);
            let nodes = names.collect::<Vec<_>>().join(", ");
            return Err(DetachError::Unsettled { nodes });
        }
        Ok(())
    }

    /// The nodes that may still run a command which deletes or extends the slot's keys.
    fn nodes_unsettled(&self, slot_index: SlotIndex) -> NodeMask {
        let slot = self.slots.at(slot_index);
        let mut unsettled = slot.tainted;
        if let Some(op) = slot.op {
            unsettled = unsettled.union(self.ops.at(op).round.awaited);
        }
        // A SET of an extension gives the token again. The adopter could not know of it.
        let is_extended = slot.is_extended();
        for (id, node) in self.nodes.every().into_iter().zip(self.nodes.iter()) {
            let is_changing = |request| {
                matches!(request, Request::Release { slot, .. }
                    | Request::Debt { slot, .. }
                    | Request::Extend { slot, .. }
                    | Request::Transfer(slot) if slot == slot_index)
                    || is_extended && matches!(request, Request::Set(slot) if slot == slot_index)
            };
            // No client of the lock asks a node that has left the lists.
            if node.is_given_up() {
                unsettled.remove(id);
            } else if node.pending().any(|pending| is_changing(pending.request)) {
                unsettled.insert(id);
            }
        }
        unsettled
    }

    /// The client is about to leave a lock. It remembers the lock if a node may run an extension
    /// later than the commands on another connection.
    fn remember_unsettled(&mut self, slot_index: SlotIndex) {
        let (open, slot) = (self.nodes_unsettled(slot_index), self.slots.at(slot_index));
        let (nodes, ttl_ms) = (slot.tainted, slot.ttl_ms);
        let is_same = |left: &Unsettled| left.key == slot.key && left.token == slot.token;
        let is_known =
            |left: &Unsettled| is_same(left) && (left.nodes, left.ttl_ms) == (nodes, ttl_ms);
        if open.is_empty() || open == nodes && self.unsettled.iter().any(is_known) {
            return;
        }
        let (key, token, lease) =
            (slot.key.clone(), slot.token.clone(), self.slots.lease_id(slot_index));
        let slots = &self.slots;
        // No extension is on its way for a slot that was freed.
        self.unsettled
            .retain(|it| !it.nodes.is_empty() || slots.lease_id(it.lease.slot) == it.lease);
        if self.unsettled.len() >= UNSETTLED_MAX {
            self.unsettled.pop_front();
        }
        self.unsettled.push_back(Unsettled { key, token, ttl_ms, nodes, lease });
    }

    /// Ends a slot without deleting its keys: the client forgets the token.
    pub(in crate::engine) fn leave_slot(&mut self, slot_index: SlotIndex) {
        if rules::is_forgotten(true) {
            self.remember_unsettled(slot_index);
            // Late messages about the token concern another client.
            let past = self.offers.past.iter().position(|past| past.slot == slot_index);
            if let Some(place) = past {
                self.offers.past.remove(place);
                self.slots.unref(slot_index);
            }
            let slot = self.slots.at_mut(slot_index);
            slot.step(TokenInput::GiveAway);
            slot.token = TokenBytes::Drawn([0; 20]);
        } else {
            self.slots.at_mut(slot_index).step(TokenInput::Release);
        }
        let slot = self.slots.at_mut(slot_index);
        slot.holds = NodeMask::EMPTY;
        if slot.has(Mark::KEPT) {
            self.end_keeping(slot_index);
        }
        self.slots.free_if_unnamed(slot_index);
    }
}

/// The key of the claim beside the lock `key`, both as the nodes know them.
fn claim_key(key: &Key) -> Key {
    let mut claim = key.clone();
    claim.extend_from_slice(CLAIM_SUFFIX);
    claim
}

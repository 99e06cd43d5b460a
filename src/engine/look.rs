//! The views of an engine: its nodes, its leases, its counts. This file changes only the word that
//! a caller keeps with a lease, and the count of debts that a client leaves.

use std::borrow::Cow;
use std::time::Duration;

use super::core::Engine;
use super::happenings::Happening;
#[cfg(feature = "metrics")]
use super::happenings::counts::Series;
#[cfg(feature = "metrics")]
use super::locks::op::OpKind;
#[cfg(feature = "metrics")]
use super::locks::slot::Slot;
use super::locks::slot::{LeaseId, Mark, TokenState};
use super::locks::view::NodeHealth;
use crate::agreement::Agreement;
use crate::client_name::ClientId;
use crate::config::Config;
#[cfg(feature = "metrics")]
use crate::count::{CallCounts, Oldest};
use crate::error::{Cause, ConnectError, LockError};
#[cfg(feature = "metrics")]
use crate::histogram::Histogram;
use crate::node::Node;
use crate::quorum::{NODES_MAX, NodeMask};
use crate::retry::Retry;
use crate::rules;
use crate::time::Instant;
use crate::token::{LockToken, TokenBytes};

/// Within this time after a pass, the client expects no message from a new waiter.
const ROUND_TRIP_MIN_NANOS: u64 = 50_000;

impl Engine {
    /// The configuration's retry.
    pub(crate) const fn default_retry(&self) -> Retry {
        self.locks.settings.retry
    }

    /// The state of each node at `now`.
    #[must_use]
    pub fn nodes(&self, now: Instant) -> Vec<NodeHealth> {
        let every = self.locks.nodes.every().into_iter();
        every.filter_map(|id| self.locks.health(id, now)).collect()
    }

    /// Whether a quorum may vote now.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.locks.settings.electorate.has_quorum(self.locks.nodes.voters())
    }

    /// The nodes that may vote now.
    #[must_use]
    pub const fn voters(&self) -> NodeMask {
        self.locks.nodes.voters()
    }

    /// The configuration, with the lists of nodes that were set last.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The nodes of the lists that decide.
    #[cfg(feature = "sim")]
    pub(crate) const fn listed(&self) -> NodeMask {
        self.locks.nodes.all()
    }

    /// Whether these nodes are a quorum; with [next nodes](crate::Config::next_nodes), of each list.
    #[must_use]
    pub const fn has_quorum(&self, nodes: NodeMask) -> bool {
        self.locks.settings.electorate.among_others().has_quorum(nodes)
    }

    /// How many votes make a quorum; with [next nodes](crate::Config::next_nodes) the larger of the two.
    #[must_use]
    pub const fn quorum(&self) -> u32 {
        self.locks.settings.quorum
    }

    /// Whether every node is settled: admitted, or known not to be.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.locks.nodes.all().into_iter().all(|id| self.locks.nodes.at(id).is_settled)
    }

    /// Why too few nodes may vote; `None` if a quorum may.
    #[must_use]
    pub(crate) fn connect_error(&self, now: Instant) -> Option<ConnectError> {
        if self.is_ready() {
            return None;
        }
        let mut causes = [Cause::None; NODES_MAX];
        for (cause, id) in causes.iter_mut().zip(self.locks.nodes.every()) {
            *cause = self.locks.cause_of(id);
        }
        let masks = (self.voters(), NodeMask::EMPTY, NodeMask::EMPTY);
        Some(ConnectError::NoQuorum(self.locks.ballot_of(masks, causes, now)))
    }

    /// The end of a lease; `None` if it is not held. A set ends with the first of its keys to end.
    #[must_use]
    pub fn deadline(&self, lease: LeaseId) -> Option<Instant> {
        match self.sets.leases(lease) {
            [] => self.locks.deadline(lease),
            leases => {
                let ends = leases.iter().filter_map(|lease| self.locks.deadline(*lease));
                ends.reduce(rules::first_to_end)
            }
        }
    }

    /// The fence of a lease ([`LockOptions::fenced`](crate::LockOptions::fenced)).
    #[must_use]
    pub fn fence(&self, lease: LeaseId) -> Option<u64> {
        self.locks.fence(lease)
    }

    /// How long a lease is still valid at `now`; zero if it is not held.
    #[must_use]
    pub fn remaining_at(&self, lease: LeaseId, now: Instant) -> Duration {
        self.deadline(lease).map_or(Duration::ZERO, |deadline| now.until(deadline))
    }

    /// The nodes that granted a lease, late ones included, and still hold its key. Of a set: the
    /// nodes for which this is true of each key.
    #[must_use]
    pub fn votes(&self, lease: LeaseId) -> NodeMask {
        let more = self.sets.leases(lease).iter().map(|lease| self.locks.votes(*lease));
        more.fold(self.locks.votes(lease), NodeMask::intersection)
    }

    /// How long a node may take to answer.
    pub(crate) const fn node_timeout(&self) -> Duration {
        self.locks.settings.node_timeout
    }

    /// Whether the engine knows that a lease is over: no quorum can hold its key, or it was kept
    /// alive and its deadline has come. True for a lease that is no longer held.
    #[must_use]
    pub fn is_lost(&self, lease: LeaseId) -> bool {
        let more = self.sets.leases(lease);
        self.locks.is_lost(lease)
            || more.iter().any(|lease| rules::is_lost_with(self.locks.is_lost(*lease)))
    }

    /// Whether other clients may act on a lease: another client won it, or says that it deleted the
    /// keys.
    pub(crate) fn is_shared(&self, lease: LeaseId) -> bool {
        self.locks.slots.held(lease).is_some_and(|slot| slot.has(Mark::SHARED))
    }

    /// Whether an extension of the lease is under way.
    #[must_use]
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn is_extending(&self, lease: LeaseId) -> bool {
        self.locks.slots.held(lease).is_some_and(|slot| slot.op.is_some())
    }

    /// Key and token of a lease.
    #[must_use]
    pub fn lease_name(&self, lease: LeaseId) -> Option<(&[u8], LockToken)> {
        self.held_name(lease).map(|(key, token)| (key, LockToken::new(token)))
    }

    pub(crate) fn held_name(&self, lease: LeaseId) -> Option<(&[u8], &TokenBytes)> {
        self.locks.held_name(lease)
    }

    /// The leases for which other clients wait, and their keys.
    pub(crate) fn waited_for(&self) -> impl Iterator<Item = (LeaseId, &[u8])> {
        self.waiting.queues().filter_map(|slot_index| {
            let slot = self.locks.slots.get(slot_index)?;
            let lease = self.locks.slots.lease_id(slot_index);
            (slot.state() == TokenState::Held && self.sets.is_alone(lease))
                .then(|| (lease, self.locks.prefix.plain_key(slot.key.as_slice())))
        })
    }

    /// Stores a word of the caller with a lease.
    pub(crate) fn set_word(&mut self, lease: LeaseId, word: u32) {
        if self.locks.slots.held(lease).is_some() {
            self.locks.slots.at_mut(lease.slot).word = word;
        }
    }

    /// The word stored with a lease.
    #[must_use]
    pub(crate) fn word(&self, lease: LeaseId) -> Option<u32> {
        self.locks.slots.held(lease).map(|slot| slot.word)
    }

    /// How many operations are under way, or have ended and not been reported yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.locks.ops.in_flight()
    }

    /// The mark that names the node in its messages about transfers.
    #[cfg(feature = "sim")]
    pub(crate) fn mark(&self, id: crate::quorum::NodeId) -> Option<[u8; 8]> {
        self.locks.nodes.at(id).mark()
    }

    /// How many slots are in use: leases, and attempts that late answers and debts may still name.
    #[cfg(any(test, feature = "sim", feature = "fuzzing"))]
    pub(crate) fn slots_in_use(&self) -> usize {
        self.locks.slots.in_use() - self.locks.offers_remembered()
    }

    /// What is left of work that is over, by its name, once no slot is in use.
    #[cfg(feature = "sim")]
    pub(crate) fn leftovers(&self) -> Vec<(&'static str, usize)> {
        let locks = &self.locks;
        let mut all = vec![
            ("keeps", locks.keeps.in_use()),
            ("batches", locks.batches.in_use()),
            ("fences", locks.slots.fences.in_use()),
            ("timers", locks.timers.of_work()),
            ("awaiting", locks.awaiting.len()),
        ];
        all.extend(self.waiting.in_use());
        all.extend(self.sets.in_use());
        all.retain(|(_, count)| *count > 0);
        all
    }

    /// How many slots with keys and tokens from elsewhere there are.
    #[cfg(test)]
    pub(crate) const fn foreign_slots(&self) -> usize {
        self.locks.foreign.len()
    }

    /// How many releases the client owes or has unanswered, over all nodes, that may be done by
    /// `until`.
    #[must_use]
    pub(crate) fn releases_open(&self, until: Instant) -> usize {
        let nodes = self.locks.nodes.iter();
        let reachable = nodes.filter(|node| node.is_greeted() || node.is_on_the_way());
        let open = reachable.map(|node| {
            let due = if node.is_stalled() { 0 } else { node.debts.due_by(until) };
            node.releases_unanswered() + due
        });
        open.sum()
    }

    /// How many releases are owed or unanswered at `now`, over all nodes, even unreachable ones.
    /// Each is one key at one node; the key lives until the release is done or its TTL ends.
    #[must_use]
    pub fn releases_owed(&self, now: Instant) -> usize {
        self.locks.nodes.iter().map(|node| node.releases_owed(now)).sum()
    }

    /// Whether the client has dropped a release that it owed a node, because it had no room for it.
    #[cfg(feature = "sim")]
    pub(crate) fn has_dropped_debts(&self) -> bool {
        self.locks.nodes.iter().any(|node| node.debts.dropped() > 0)
    }

    /// The client ends: reports the nodes to which it owes releases, or whose answers it will not
    /// read.
    pub(crate) fn note_left(&mut self, now: Instant) {
        for id in self.locks.nodes.every() {
            let count = self.locks.nodes.at(id).releases_owed(now);
            if count > 0 {
                self.locks.observe(Happening::DebtsLeft { node: id, count });
            }
        }
    }

    /// Whether the client is about to end.
    pub(crate) const fn is_closing(&self) -> bool {
        self.locks.settings.is_closing
    }

    /// The key as the nodes know it.
    pub(crate) fn wire_key<'key>(&self, key: &'key [u8]) -> Result<Cow<'key, [u8]>, LockError> {
        self.locks.prefix.wire_key(key)
    }

    /// The client's id, and the settings that all clients of the same locks must share.
    pub(crate) fn identity(&self) -> (ClientId, Agreement) {
        let agreement =
            self.locks.settings.agreement(self.locks.nodes.names(), self.locks.prefix.as_bytes());
        (self.locks.client_id, agreement)
    }

    /// Whether to read the sockets before beginning an operation. After a long time without a pass,
    /// servers may have closed connections and late answers may have come. Without a quorum, unread
    /// bytes may make one.
    #[must_use]
    pub(crate) fn needs_pass(&self, now: Instant) -> bool {
        now.saturating_since(self.locks.last_pass) > self.locks.settings.node_timeout
            || !self.is_ready()
    }

    /// When the last pass began.
    pub(crate) const fn last_pass(&self) -> Instant {
        self.locks.last_pass
    }

    /// Whether to read the sockets before releasing a lease: waiters may have announced themselves
    /// since the last pass.
    #[must_use]
    pub(crate) fn may_have_word(&self, now: Instant) -> bool {
        now.nanos_since(self.locks.last_pass) > ROUND_TRIP_MIN_NANOS
            && self.locks.nodes.iter().any(Node::has_channel)
    }

    /// The counts since the engine began, one number per series; they never decrease.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn counts(&self) -> Vec<(Series, u64)> {
        self.counts_with(self.call_counts())
    }

    /// As [`counts`](Self::counts), for a handle that counts its calls itself.
    #[cfg(feature = "metrics")]
    pub(crate) fn counts_with(&self, calls: &CallCounts) -> Vec<(Series, u64)> {
        self.locks.counts.series(calls, &self.locks.nodes)
    }

    #[cfg(feature = "metrics")]
    pub(crate) const fn call_counts(&self) -> &CallCounts {
        &self.locks.counts.calls
    }

    /// When the oldest call for a lock began, and since when the oldest lease has its caller. It
    /// looks at every operation and slot, so that taking a lock notes nothing for this.
    #[cfg(feature = "metrics")]
    pub(crate) fn oldest(&self) -> Oldest {
        let locks = &self.locks;
        let mut oldest = Oldest::default();
        let is_announced =
            |keep: Option<_>| keep.is_some_and(|keep| locks.keeps.at(keep).is_announced);
        for (_, op) in locks.ops.iter().filter(|(_, op)| op.kind == OpKind::Acquire) {
            if !is_announced(op.keep) {
                oldest.note_call(op.called.at);
            }
        }
        for (index, slot) in locks.slots.iter() {
            if slot.state() == TokenState::Held && !is_announced(locks.keep_of(index)) {
                locks.counts.hold_began(index).into_iter().for_each(|at| oldest.note_hold(at));
            }
        }
        oldest
    }

    /// How many leases have no more votes than they need, though there are more nodes. Costs a look
    /// at every slot.
    #[cfg(feature = "metrics")]
    pub(crate) fn without_spare_vote(&self) -> usize {
        let (settings, all) = (&self.locks.settings, self.locks.nodes.all());
        let is_tight = |slot: &Slot| {
            let has_spare = settings.electorate_of(slot).has_spare(slot.votes());
            slot.state() == TokenState::Held && !has_spare
        };
        let tight = || self.locks.slots.iter().filter(|(_, it)| is_tight(it)).count();
        if settings.electorate.has_spare(all) { tight() } else { 0 }
    }

    /// How long winning attempts took, from before their first byte to the hand-over.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub const fn attempt_times(&self) -> &Histogram {
        &self.locks.counts.attempt_times
    }
}

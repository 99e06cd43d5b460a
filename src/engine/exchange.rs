//! The lists of nodes change while the client runs.
//!
//! # Invariants
//!
//! - The lists before and after a change share one list, so clients of either exclude each other.
//! - An attempt or a lease is decided by the lists that it began under. An extension that begins
//!   later needs a quorum of each present list, and carries the lease on.
//! - Between two changes lies the longest time of a lease. So a lease is over, or was carried on,
//!   when the lists change again.

use std::sync::Arc;

use super::core::Engine;
use super::locks::core::Locks;
use super::locks::op::Verdict;
use super::locks::settings::{nodes_of, transfers_in_row};
use super::locks::slot::{Mark, Slot, TokenState};
use super::locks::timers::Timer;
use crate::config::Config;
use crate::error::{Cause, ConfigError};
use crate::node::Now;
use crate::quorum::{Electorate, NodeId, NodeMask};
use crate::rules;
use crate::slab::SlotIndex;
use crate::time::Instant;

impl Engine {
    /// Changes the lists of nodes to those of `lists`. Its other settings change nothing, and
    /// neither do its logins for nodes that the engine knows. New nodes stand behind the others in
    /// [`nodes`](Self::nodes). The engine asks for connections to them. The new lists decide once
    /// a quorum of each may vote; until then the present lists decide. After a change it makes the
    /// next one no sooner than `max_ttl`, the drift and twice `max_clock_skew` later. A later call
    /// replaces lists that are still to come.
    ///
    /// Leases and calls under way go on. The next extension of a lease needs a quorum of each new list;
    /// from then on they decide on the lease.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoCommonList`] unless one list stays; [`ConfigError::TooManyNodes`] for more than 32
    /// nodes, those of earlier lists included.
    pub fn set_nodes(&mut self, lists: &Config, now: Instant) -> Result<(), ConfigError> {
        let config = self.config.with_lists_of(lists)?;
        let electorate = config.check()?.electorate();
        let present = self.locks.settings.electorate;
        if !rules::may_follow(electorate.excludes(&present)) {
            return Err(ConfigError::NoCommonList);
        }
        let now = self.locks.called_at(now);
        if electorate.is_same(&present) {
            // Nodes of lists that are not to come any more are given up.
            self.exchange.wanted = None;
            let at = self.exchange.settled_at.map_or(now.real, |at| at.max(now.real));
            self.locks.timers.set(Timer::Lists, at);
        } else {
            let known = self.locks.nodes.len();
            let told = self.locks.told_name();
            let nodes = nodes_of(&config, known, (self.locks.client_id, &told), now.real);
            let names = config.nodes.iter().map(|address| address.name().into());
            self.locks.nodes.add(nodes, names.skip(known), now.real);
            for id in electorate.nodes() {
                self.locks.nodes.take_back(id, now.real);
            }
            // Nodes outside these lists may be ready, too: only the nodes of these lists count.
            self.exchange.wanted = Some((electorate.among_others(), transfers_in_row(&config)));
        }
        self.exchange.is_changed = true;
        *self.config = config;
        for id in self.locks.nodes.every() {
            self.refresh(id, now);
        }
        Ok(())
    }

    /// Whether the client has lists of nodes that do not decide yet.
    #[must_use]
    pub const fn is_exchanging(&self) -> bool {
        self.exchange.wanted.is_some()
    }

    /// The names of all nodes and the lists that decide, if they have changed since the last call.
    pub(crate) fn take_lists(&mut self) -> Option<(Arc<[Box<str>]>, Electorate)> {
        let is_changed = std::mem::take(&mut self.exchange.is_changed);
        let names = || Arc::clone(self.locks.nodes.names());
        is_changed.then(|| (names(), self.locks.settings.electorate))
    }

    /// In each pass: the lists to come decide from now on, if their nodes are ready.
    #[cold]
    pub(super) fn exchange_if_ready(&mut self, now: Now) {
        let Some((electorate, in_row)) = self.exchange.wanted else { return };
        let is_early = self.exchange.settled_at.is_some();
        if rules::is_too_early(is_early) || !electorate.has_quorum(self.locks.nodes.able()) {
            return;
        }
        self.exchange.wanted = None;
        self.exchange.is_changed = true;
        // An attempt may have begun as late as the last call, so the pause counts from that call.
        let settled_at = self.locks.last_call + self.locks.settings.exchange_pause;
        self.exchange.settled_at = Some(settled_at);
        self.locks.timers.set(Timer::Lists, settled_at);
        let kept = self.locks.change_lists(electorate, in_row, now);
        self.waiting.change_lists(self.locks.settings.electorate);
        for id in self.locks.nodes.every() {
            self.refresh(id, now);
        }
        for lease in kept {
            self.locks.extend_soon(lease, now);
        }
    }

    /// No lease of the lists before the present ones is left.
    #[cold]
    pub(super) fn lists_settled(&mut self, now: Now) {
        // After this change the quick paths only count votes. So no round of the former lists may be
        // open.
        if self.locks.is_decided_by_former() {
            let at = now.real + self.locks.settings.node_timeout;
            return self.locks.timers.set(Timer::Lists, at);
        }
        let coming = self.exchange.wanted.map_or(NodeMask::EMPTY, |(lists, _)| lists.nodes());
        let left = self.locks.nodes.every().without(self.locks.nodes.all()).without(coming);
        for id in left {
            self.drop_connection(id, Cause::Unlisted, now);
        }
        // The end of one connection may have left a debt at another node.
        for id in left {
            self.locks.give_up_node(id);
        }
        self.locks.settle_lists();
        self.exchange.settled_at = None;
        self.exchange.is_changed = true;
        self.waiting.change_lists(self.locks.settings.electorate);
        for id in self.locks.nodes.every() {
            self.refresh(id, now);
        }
    }
}

impl Locks {
    /// The client's name at the nodes, with the settings on which clients must agree.
    fn told_name(&self) -> String {
        format!(
            "{}:{}",
            self.own_name,
            self.settings.agreement(self.nodes.names(), self.prefix.as_bytes())
        )
    }

    /// From now on these lists decide on what begins. Returns the leases that the engine keeps alive.
    fn change_lists(&mut self, electorate: Electorate, in_row: u8, now: Now) -> Vec<SlotIndex> {
        let settings = &mut self.settings;
        settings.former = settings.electorate.among_others();
        settings.electorate =
            rules::lists_from_now_on(electorate, electorate.first_alone()).among_others();
        settings.quorum = electorate.least();
        if !settings.is_closing {
            settings.transfers_in_row = in_row;
        }
        self.nodes.list(&self.settings.electorate);
        self.nodes.rename(&self.told_name(), now);
        let slots: Vec<SlotIndex> = self.slots.iter().map(|(index, _)| index).collect();
        for &index in &slots {
            self.slots.at_mut(index).set(Mark::FORMER, rules::decided_as_begun(true));
        }
        for op in self.ops.ids() {
            self.ops.at_mut(op.op).is_former = rules::decided_as_begun(true);
        }
        slots.into_iter().filter(|&index| self.keep_of(index).is_some()).collect()
    }

    /// Whether a round is under way that the lists before the present ones decide.
    fn is_decided_by_former(&self) -> bool {
        let is_so = |slot: &Slot| {
            let is_open = slot.op.is_some_and(|op| self.ops.at(op).outcome == Verdict::Open);
            // A call between two attempts begins the next one under the present lists.
            slot.has(Mark::FORMER) && is_open && slot.state() != TokenState::Between
        };
        self.slots.iter().any(|(_, slot)| is_so(slot))
    }

    /// Forgets the votes of nodes that have left the lists. Such a node may be frozen, run an old
    /// command later, and come back to the lists.
    fn settle_lists(&mut self) {
        self.settings.electorate = self.settings.electorate.alone();
        let left = self.nodes.every().without(self.nodes.all());
        let slots: Vec<SlotIndex> = self.slots.iter().map(|(index, _)| index).collect();
        for index in slots {
            let slot = self.slots.at_mut(index);
            (slot.granted, slot.holds) = (slot.granted.without(left), slot.holds.without(left));
        }
        self.nodes.list(&self.settings.electorate);
    }

    fn give_up_node(&mut self, id: NodeId) {
        for slot in self.nodes.at_mut(id).give_up() {
            self.slots.unref(slot);
        }
    }
}

//! Clients of different settings in one seed: some have another `max_ttl` than the others, another
//! prefix, or a second list of nodes.
//!
//! # Oracles
//!
//! - A holder hands its lock over for no longer than its own `max_ttl`.
//! - A key behind one prefix is another lock than the same key behind another prefix. The keys of a
//!   prefix are a range of the judge's keys.

use std::ops::Range;
use std::time::Duration;

use super::client::SimClient;
use super::clock::{Global, MS};
use super::counts::{Path, Setting};
use super::plan::Plan;
use super::random::Random;
use super::sets::SLOTTED;
use super::task::key_name;
use super::world::{Phase, World};
use crate::config::Config;
use crate::quorum::{NodeId, NodeMask, Quorum};
use crate::rules::Kind;

/// How the clients differ.
#[derive(Debug, Default)]
pub(super) struct Unlike {
    /// The divisor for each client's own `max_ttl`: 2 stands for half of the longest.
    ttl_parts: Vec<u64>,
    /// Clients whose keys have the other prefix: a bit each.
    others: u64,
    /// The list of all clients, and the next list; and the clients that have the next list, too: a bit
    /// each.
    lists: Option<(NodeMask, NodeMask, u64)>,
    /// If all clients change their lists: how far they are.
    change: Option<Change>,
    /// The other prefix, if some clients have it. Its keys are the second half of the judge's keys.
    prefix: Option<&'static str>,
}

/// How far clients are that go from the old list to both, and from both to the new one. Then they go
/// back in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Old,
    /// They go to both lists.
    ToBoth,
    /// All have both, since this time.
    Both(Global),
    ToNew,
}

impl Plan {
    /// Holders and waiters, some of which have another `max_ttl` or prefix.
    pub(super) fn look_at_unlike(&mut self, random: &mut Random) {
        self.clients = random.between(4, 5) as usize;
        (self.tasks, self.direct_wake) = (random.between(1, 2) as usize, true);
        (self.hold, self.gap) = (random.between(10, 60) * MS, 20 * MS);
        if matches!(self.setting, Setting::Lists | Setting::Exchange) {
            let (nodes, list, next) = random.pick(&[
                (4, 3, 0b1110),
                (5, 3, 0b1_1100),
                (6, 3, 0b11_1000),
                (5, 3, 0b1_1111),
                (5, 5, 0b1_1100),
            ]);
            // Few nodes are away at once, so that there are quorums of both lists.
            self.draw_nodes(nodes, nodes - 1, random);
            self.spare = 0;
            self.mute = 0;
            let joint = random.pick(&[0b1, 0b101, 0b11110]);
            self.rare.unlike.lists = Some((NodeMask::first(list), mask(next), joint));
            if self.setting == Setting::Exchange {
                self.rare.unlike.change = Some(Change::Old);
                self.max_ttl_ms = random.pick(&[400, 1000]);
                self.kept = random.pick(&[300, 800]);
            }
        } else if self.setting == Setting::MaxTtls {
            self.keep_memory(random);
            (self.keys, self.transfers_in_row) = (1, 16);
            self.max_ttl_ms = random.pick(&[1000, 4000, 20_000]);
            self.rare.unlike.ttl_parts =
                (0..self.clients).map(|_| random.pick(&[1, 2, 4])).collect();
        } else {
            self.keys *= 2;
            let (one, other) = random.pick(&[("", "shop:"), ("shop:", ""), ("shop:", "shop:2:")]);
            (self.prefix, self.rare.unlike.prefix) = (one, Some(other));
            self.rare.unlike.others = random.pick(&[0b1, 0b101, 0b11010]);
        }
    }

    /// The configuration of one client, where `config` is that of all.
    pub(super) fn config_of(&self, client: usize, config: &Config) -> Config {
        let max_ttl = Duration::from_millis(self.max_ttl_of(client));
        let prefix = self.prefix_of(self.keys_of(client).start);
        let mut config = config.clone().max_ttl(max_ttl).key_prefix(prefix);
        let lists = self.lists_of(client);
        let [list, next @ ..] = lists.as_slice() else { return config };
        config = config.quorum(Quorum::Majority).max_clock_skew(Duration::from_millis(1));
        (config.list, config.next_list) = (*list, next.first().copied());
        // The nodes of the old list come first. A client of that list alone knows no others.
        let last = lists.iter().flat_map(|list| *list).map(NodeId::index).max();
        config.nodes.truncate(last.map_or(0, |last| last + 1));
        config
    }

    /// Whether clients change their lists while they run.
    pub(super) const fn changes_lists(&self) -> bool {
        self.rare.unlike.change.is_some()
    }

    /// The lists that a client has been given; it needs a quorum of each. No lists if clients do
    /// not differ in that.
    pub(super) fn lists_of(&self, client: usize) -> Vec<NodeMask> {
        let Some((old, next, joint)) = self.rare.unlike.lists else { return Vec::new() };
        match self.rare.unlike.change {
            None if joint >> client & 1 == 1 => vec![old, next],
            None | Some(Change::Old) => vec![old],
            Some(Change::ToBoth | Change::Both(_)) => vec![old, next],
            Some(Change::ToNew) => vec![next],
        }
    }

    /// The longest TTL that a client may ask for.
    pub(super) fn max_ttl_of(&self, client: usize) -> u64 {
        self.max_ttl_ms / self.rare.unlike.ttl_parts.get(client).unwrap_or(&1)
    }

    /// How many keys have the same prefix.
    pub(super) const fn keys_alike(&self) -> usize {
        if self.rare.unlike.prefix.is_some() { self.keys / 2 } else { self.keys }
    }

    /// The keys that a client locks.
    pub(super) const fn keys_of(&self, client: usize) -> Range<usize> {
        let start = if self.rare.unlike.others >> client & 1 == 1 { self.keys_alike() } else { 0 };
        start..start + self.keys_alike()
    }

    fn prefix_of(&self, key: usize) -> &'static str {
        self.rare.unlike.prefix.filter(|_| key >= self.keys_alike()).unwrap_or(self.prefix)
    }

    /// A key as its clients know it.
    pub(super) fn plain(&self, key: usize) -> Vec<u8> {
        let key = key % self.keys_alike();
        match key.checked_sub(1) {
            None if self.slots => format!("{SLOTTED}:slot").into_bytes(),
            Some(slot) if self.slots => format!("{SLOTTED}:slot:{slot}").into_bytes(),
            None | Some(_) => key_name(key),
        }
    }

    /// Names the keys once: the judge looks at all of them at each command.
    pub(super) fn with_names(mut self) -> Self {
        let name = |key| [self.prefix_of(key).as_bytes(), &self.plain(key)].concat();
        self.names = (0..self.keys).map(name).collect();
        self
    }

    /// A key as the nodes know it.
    pub(super) fn on_nodes(&self, key: usize) -> &[u8] {
        &self.names[key]
    }
}

/// The nodes of a mask.
fn mask(bits: u32) -> NodeMask {
    (0..).map_while(NodeId::new).filter(|node| bits >> node.index() & 1 == 1).collect()
}

impl World {
    /// Clients go on to their next lists, once all have taken the step before.
    pub(super) fn change_lists(&mut self) {
        let Some(change) = self.plan.rare.unlike.change else { return };
        let is_exchanging =
            |client: &SimClient| client.has_new_lists || client.engine.is_exchanging();
        let is_done = !self.clients.iter().any(is_exchanging);
        // At the end the judge wants every node to vote, so no client connects anew by then.
        let goes_on = self.phase != Phase::Progress
            || self.clients.iter().any(|client| !client.goals.is_empty());
        // After this wait all earlier leases are over: a lease is shorter than its TTL by the
        // drift.
        let wait = self.plan.max_ttl_ms * MS;
        let next = match change {
            Change::Old if goes_on && self.random.chance(100) => Change::ToBoth,
            Change::ToBoth if is_done => Change::Both(self.now),
            Change::Both(since) if self.now >= since + wait => Change::ToNew,
            Change::ToNew if is_done => {
                if let Some((old, next, _)) = &mut self.plan.rare.unlike.lists {
                    std::mem::swap(old, next);
                }
                Change::Old
            }
            Change::Old | Change::ToBoth | Change::Both(_) | Change::ToNew => change,
        };
        self.plan.rare.unlike.change = Some(next);
        if next != change && matches!(next, Change::ToBoth | Change::ToNew) {
            self.log(|_| format!("{next:?}"));
            self.counts.path(Path::ListsChanged);
            for client in 0..self.clients.len() {
                self.clients[client].has_new_lists = true;
                self.wake(client, self.now);
            }
        }
        self.after(50 * MS, super::world::Event::Lists);
    }

    /// A client whose lists have changed tells its engine.
    pub(super) fn set_lists(&mut self, client: usize) {
        let this = &mut self.clients[client];
        if std::mem::take(&mut this.has_new_lists) {
            let config = self.plan.config_of(client, &self.config);
            let now = this.local(self.now);
            this.engine.set_nodes(&config, now).expect("a list stays");
        }
    }

    /// Notes which lists decide, once the engine says that it has gone over to those that it was
    /// given.
    pub(super) fn note_lists(&mut self, client: usize) {
        let this = &self.clients[client];
        if this.has_new_lists || this.engine.is_exchanging() {
            return;
        }
        let lists = self.plan.lists_of(client);
        if this.lists.last().is_none_or(|(_, last)| *last != lists) {
            self.clients[client].lists.push((self.now, lists));
        }
    }

    /// One of the keys that a client locks.
    pub(super) fn some_key(&mut self, client: usize) -> usize {
        let keys = self.plan.keys_of(client);
        keys.start + self.random.index(keys.len())
    }

    /// A client has handed a lock over at a node just now.
    pub(super) fn look_at_transfer(&mut self, client: usize, index: usize, key: usize) {
        let name = self.plan.on_nodes(key);
        let node = &mut self.nodes[index];
        let ttl_ms = node.server.ttl_ms(name, node.clock.on_server(self.now)).unwrap_or(i64::MAX);
        let most = self.plan.max_ttl_of(client);
        self.oracle.check(Kind::LimitIgnored, ttl_ms.unsigned_abs() <= most, || {
            format!("client {client} hands key {key} over for {ttl_ms} ms of {most}")
        });
    }
}

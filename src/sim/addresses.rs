//! Addresses that lead to other servers than before: two change places, or one leads to the server
//! of another. Open connections keep their server, unless the simulation resets them.
//!
//! # Oracles
//!
//! A server stands for each vote ([`World::check_votes`]), and a quorum of servers for each lease
//! ([`World::check_ground`]). A client cannot delete a key at a server that its addresses no longer
//! lead to, so such a key is left to its TTL.

use super::clock::MS;
use super::counts::Fault;
use super::plan::Plan;
use super::random::Random;
use super::world::World;

impl Plan {
    pub(super) fn look_at_addresses(&mut self, random: &mut Random) {
        let (nodes, quorum) = random.pick(&[(3, 2), (3, 2), (4, 3), (5, 3)]);
        self.draw_nodes(nodes, quorum, random);
        (self.spare, self.rare.leads) = (0, (0..nodes).collect());
        self.max_ttl_ms = random.pick(&[150, 400, 1000]);
        self.node_timeout = random.pick(&[20, 50]) * MS;
        self.latency = random.between(MS / 10, 4 * MS);
        (self.clients, self.tasks, self.ghosts) = (4, 2, false);
        self.kept = random.pick(&[0, 300, 800]);
        let ttl = self.max_ttl_ms * MS;
        (self.hold, self.gap) = (random.pick(&[20 * MS, ttl / 3, ttl]), 20 * MS);
        self.fault_every = random.pick(&[60, 200, 600]) * MS;
        let moved = [Fault::Moved; 3];
        // With these faults a client may refuse a server at one address, and meet it at another.
        let more = [Fault::Reset, Fault::LinkStall, Fault::Freeze, Fault::Policy, Fault::Denied];
        self.faults = moved.into_iter().chain(more).collect();
        for fault in [Fault::RestartKept, Fault::RestartLost] {
            if random.chance(300) {
                self.faults.push(fault);
            }
        }
    }

    /// The server that an address leads to.
    pub(super) fn server_of(&self, address: usize) -> usize {
        self.rare.leads.get(address).copied().unwrap_or_else(|| address % self.servers())
    }

    /// Whether addresses lead to other servers from time to time.
    pub(super) const fn moves_addresses(&self) -> bool {
        !self.rare.leads.is_empty()
    }
}

impl World {
    /// An address leads to another server. A quorum of servers can still be reached.
    pub(super) fn move_address(&mut self, address: usize) {
        let other = self.random.index(self.plan.nodes);
        let mut leads = self.plan.rare.leads.clone();
        if self.random.chance(500) {
            leads.swap(address, other);
        } else {
            leads[address] = leads[other];
        }
        let is_reached = |server: &usize| leads.contains(server);
        if leads == self.plan.rare.leads
            || (0..self.plan.nodes).filter(is_reached).count() < self.plan.quorum
        {
            return;
        }
        self.scheduled(Fault::Moved, address);
        self.log(|_| format!("the addresses lead to {leads:?}"));
        self.plan.rare.leads = leads;
        for client in 0..self.plan.clients {
            for address in [address, other] {
                if self.random.chance(500) {
                    self.reset(client, address);
                }
            }
        }
    }

    /// Each address leads to its first server again.
    pub(super) fn lead_home(&mut self) {
        if !self.plan.moves_addresses() {
            return;
        }
        self.plan.rare.leads = (0..self.plan.nodes).collect();
        for client in 0..self.plan.clients {
            for address in 0..self.plan.nodes {
                let Some(id) = self.clients[client].links[address] else { continue };
                let conn = &mut self.conns[id];
                if conn.session.is_none() && conn.news.is_none() {
                    conn.node = address;
                } else if conn.node != address {
                    self.reset(client, address);
                }
            }
        }
    }
}

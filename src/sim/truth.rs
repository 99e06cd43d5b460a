//! What the servers really hold, seen from outside: the ground of a holder's belief.

use super::clock::{Global, MS};
use super::world::World;
use crate::engine::LeaseId;
use crate::quorum::{NodeId, NodeMask};
use crate::rules::Kind;
use crate::token::LockToken;

use std::time::Duration;

impl World {
    /// The keys of a task's lease as nodes know them, with their tokens, unless these are deleted by
    /// force.
    fn names_held(&self, client: usize, task: usize) -> Vec<(Vec<u8>, LockToken)> {
        let lease = self.clients[client].tasks[task].lease;
        lease.map(|lease| self.names_of(client, task, lease)).unwrap_or_default()
    }

    fn names_of(&self, client: usize, task: usize, lease: LeaseId) -> Vec<(Vec<u8>, LockToken)> {
        let this = &self.clients[client];
        let names = this.names(lease);
        let keys = this.tasks[task].keys().into_iter().map(|key| self.plan.on_nodes(key).to_vec());
        let names = keys.zip(names).map(|(key, (_, token))| (key, token));
        names.filter(|(_, token)| !self.ledger.is_forced(token.as_bytes())).collect()
    }

    /// Whether a key stands on a node with this token, and until when.
    fn held_until(&mut self, (key, token): &(Vec<u8>, LockToken), node: usize) -> Option<Global> {
        let node = &mut self.nodes[node];
        let (local, on_server) = (node.clock.local(self.now), node.clock.on_server(self.now));
        if node.server.value(key, on_server) != Some(token.as_bytes()) {
            return None;
        }
        let ttl_ms = node.server.ttl_ms(key, on_server)?.unsigned_abs();
        Some(node.clock.global(local + Duration::from_millis(ttl_ms)))
    }

    /// When a task's lease ends, unless it is over.
    fn lease_end(&self, client: usize, task: usize) -> Option<Global> {
        let this = &self.clients[client];
        let deadline = this.engine.deadline(this.tasks[task].lease?)?;
        Some(this.clock.global(deadline)).filter(|end| *end > self.now)
    }

    /// As long as a holder believes in its lease, a quorum of servers holds the token beyond the
    /// deadline that the holder was told. Servers that forgot it since the round of this deadline
    /// are excused: the guard and the spare votes are for them.
    pub(super) fn check_ground(&mut self, client: usize, task: usize) {
        let Some(end) = self.lease_end(client, task) else { return };
        let began = self.clients[client].tasks[task].began;
        for name in self.names_held(client, task) {
            let mut held = NodeMask::EMPTY;
            for (node, id) in (0..self.plan.servers()).zip((0..).map_while(NodeId::new)) {
                let until = self.held_until(&name, self.granter(node)).unwrap_or(0);
                // A key lives up to a millisecond longer than its TTL, so this is less than the
                // truth.
                held.set(id, until + 2_000_000 >= end || self.has_forgotten(node, began));
            }
            let is_quorum = self.is_quorum(client, held, began);
            self.oracle.check(Kind::NoGround, is_quorum, || {
                format!("client {client} holds a lease of task {task} until {end} by {held:?}")
            });
        }
    }

    /// The servers that may have given these votes. An address that moves does not tell which.
    pub(super) fn servers_of(&self, votes: NodeMask) -> NodeMask {
        if self.plan.moves_addresses() {
            return NodeMask::first(self.plan.servers());
        }
        let server = |node: NodeId| NodeId::new(self.plan.server_of(node.index()));
        votes.into_iter().filter_map(server).collect()
    }

    /// Whether these servers are a quorum for a call of this client that began at `began`: of each
    /// of the lists that it had at some moment since.
    pub(super) fn is_quorum(&self, client: usize, servers: NodeMask, began: Global) -> bool {
        let is_of = |list: &NodeMask| servers.intersection(*list).count() > list.count() / 2;
        let history = &self.clients[client].lists;
        let until = history.iter().skip(1).map(|(since, _)| *since).chain([Global::MAX]);
        let mut had = history.iter().zip(until).filter(|(_, until)| *until >= began);
        had.any(|((_, lists), _)| match lists.as_slice() {
            [] => servers.has_at_least(u32::try_from(self.plan.quorum).unwrap_or(u32::MAX)),
            lists => lists.iter().all(is_of),
        })
    }

    /// A lease that was released is over, whether it was handed over, lingers or was deleted.
    pub(super) fn check_over(&mut self, client: usize, lease: LeaseId) {
        let deadline = self.clients[client].engine.deadline(lease);
        self.oracle.check(Kind::NoGround, deadline.is_none(), || {
            format!("client {client} has released a lease, and holds it until {deadline:?}")
        });
    }

    /// The server that grants for a node: the old master, as long as it goes on.
    fn granter(&self, node: usize) -> usize {
        let behind = node + self.plan.servers();
        if self.nodes.get(behind).is_some_and(|old| old.goes_on) { behind } else { node }
    }

    fn has_forgotten(&self, node: usize, since: Global) -> bool {
        self.nodes[node].forgot_at.is_some_and(|at| at >= since)
    }

    /// A lock was won just now: each vote for it was given by its node.
    pub(super) fn check_votes(&mut self, client: usize, task: usize, called_at: Global) {
        if self.lease_end(client, task).is_none() {
            return;
        }
        let this = &self.clients[client];
        let place = &this.tasks[task];
        let names = self.names_held(client, task);
        // A call for several keys, or for all slots, may have kept some for long. A node that had no
        // room for an extension has lost those since, and sooner if its clock is fast.
        let ttl = place.ttl_ms * MS;
        let shortest = ttl - ttl / 1_000_000 * self.plan.drift_ppm.unsigned_abs();
        let has_waited = place.is_retried || self.now > called_at + shortest;
        if !place.more.is_empty() && has_waited {
            return;
        }
        let Some(lease) = place.lease else { return };
        let (votes, began) = (this.engine.votes(lease), place.began);
        if self.plan.moves_addresses() {
            // Any server may have given a vote, and no server two.
            let servers = (0..self.plan.servers()).filter(|&server| {
                let mut is_held = |name| self.held_until(name, server).is_some();
                names.iter().all(&mut is_held) || self.has_forgotten(server, began)
            });
            let servers = servers.count();
            return self.oracle.check(
                Kind::Misattributed,
                votes.count() as usize <= servers,
                || format!("client {client} counts the votes {votes:?} of {servers} servers"),
            );
        }
        let strange = votes.into_iter().find(|node| {
            let node = self.plan.server_of(node.index());
            let servers = [node, self.granter(node)];
            let mut is_held = |name| servers.iter().any(|it| self.held_until(name, *it).is_some());
            let is_held = names.iter().all(&mut is_held);
            !is_held && !self.has_forgotten(node, began)
        });
        self.oracle.check(Kind::Misattributed, strange.is_none(), || {
            format!("client {client} counts a vote of node {strange:?}, which did not grant")
        });
    }

    /// These nodes voted in a round that has ended. None of them had forgotten, before the call
    /// began, a valid lock for which it had voted.
    pub(super) fn check_memory(
        &mut self,
        (client, task): (usize, usize),
        granted: NodeMask,
        won: Option<LeaseId>,
    ) {
        let names = won.map(|lease| self.names_of(client, task, lease)).unwrap_or_default();
        let (keys, began) =
            (self.clients[client].tasks[task].keys(), self.clients[client].tasks[task].began);
        // An address that moves does not tell which server has voted.
        let granted = if self.plan.moves_addresses() { NodeMask::EMPTY } else { granted };
        for id in granted {
            let node = self.plan.server_of(id.index());
            // A node that forgot during the call and holds its token has voted since.
            let has_voted_since = |it: &mut Self| {
                !names.is_empty() && names.iter().all(|name| it.held_until(name, node).is_some())
            };
            // A promoted master knows no lock that the old one grants.
            let is_alone = self.granter(node) == node;
            let forgot_at = if is_alone { self.nodes[node].forgot_at } else { Some(self.now) };
            let Some(forgot_at) = forgot_at.filter(|at| *at <= began || has_voted_since(self))
            else {
                continue;
            };
            // The quorum has votes to spare for such nodes.
            if node < self.plan.spare {
                continue;
            }
            for (other, this) in self.clients.iter().enumerate() {
                for (nth, place) in this.tasks.iter().enumerate() {
                    let is_same = place.keys().iter().any(|key| keys.contains(key));
                    let is_other = is_same && (other, nth) != (client, task);
                    let votes = place.lease.map(|lease| this.engine.votes(lease));
                    let goes_on = is_other
                        && place.began <= forgot_at
                        && votes.is_some_and(|votes| votes.contains(id))
                        && self.lease_end(other, nth).is_some();
                    self.oracle.check(Kind::Amnesia, !goes_on, || {
                        format!("node {node} votes for client {client}, and had for client {other}")
                    });
                }
            }
        }
    }
}

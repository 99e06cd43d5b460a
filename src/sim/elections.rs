//! Elections: clients campaign, and the claims of leaders stand beside their locks.
//!
//! # Oracles
//!
//! - A client writes a claim only to a node that has held the token of the claim since the node's
//!   process began. Where nothing is late, the node holds it when the claim comes.
//! - A claim lasts no longer than the longest TTL that its client asked for the lock.
//! - A client deletes no claim of another client's term.
//! - Where nothing is late, a client that remembers no lock has left no claim at a node to which it
//!   is still connected. In the end no client has left one (`healed`).

use std::collections::{BTreeMap, BTreeSet};

use super::clock::{MS, US};
use super::counts::{Fault, Path};
use super::ledger::{Token, Tokens};
use super::plan::Plan;
use super::random::Random;
use super::world::World;
use crate::claim::CLAIM_SUFFIX;
use crate::rules::Kind;

/// The settings of an election.
#[derive(Debug)]
pub(super) struct Elections {
    /// Of a thousand calls for a lock, how many campaign.
    campaigns: u64,
    /// Nothing is late, and no node refuses or forgets anything.
    is_calm: bool,
}

/// What is known of claims from the true history.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The tokens that nodes have held: the node and the life of its process, the key, the token.
    held: BTreeSet<(usize, u64, usize, Token)>,
    /// The longest TTL that was asked for a token.
    ttls: BTreeMap<Vec<u8>, u64>,
    /// The connection through which the last claim of a key came to a node.
    came_by: BTreeMap<(usize, usize), usize>,
}

impl History {
    /// A client asks for the lock with this token and this TTL.
    pub(super) fn asked(&mut self, token: &[u8], ttl_ms: u64) {
        let longest = self.ttls.entry(token.to_vec()).or_default();
        *longest = ttl_ms.max(*longest);
    }
}

/// The claims at a node by key, and how long each lasts.
pub(super) type Claims = Vec<Option<(Vec<u8>, i64)>>;

impl Plan {
    /// Clients campaign; leaders extend their terms, resign, die, or are cut off.
    pub(super) fn look_at_elections(&mut self, random: &mut Random) {
        self.three_nodes(random);
        self.max_ttl_ms = random.pick(&[1000, 2000, 10_000]);
        self.node_timeout = 50 * MS;
        self.latency = random.between(30 * US, MS);
        (self.clients, self.keys) = (4, random.between(1, 2) as usize);
        self.tasks = random.between(1, 2) as usize;
        (self.ghosts, self.fenced, self.forged) = (false, 0, 0);
        (self.hold, self.gap) = (self.max_ttl_ms * MS / 2, 20 * MS);
        self.fault_every = random.between(100, 600) * MS;
        let is_calm = random.chance(500);
        self.rare.elections = Some(Elections { campaigns: random.pick(&[500, 1000]), is_calm });
        if is_calm {
            (self.late, self.cut, self.pause, self.one_byte) = (0, 0, 0, 0);
            (self.message_lost, self.message_late) = (0, 0);
            self.faults = vec![Fault::Reset, Fault::Death];
        } else {
            (self.late, self.late_by, self.pause) = (20, 400 * MS, 10);
            self.faults = vec![
                Fault::Reset,
                Fault::Freeze,
                Fault::LinkStall,
                Fault::Suspend,
                Fault::RestartKept,
                Fault::RestartLost,
                Fault::OutOfMemory,
                Fault::Denied,
                Fault::Death,
            ];
        }
    }

    /// Whether nothing makes a claim late.
    fn is_calm(&self) -> bool {
        // A client that strays from its loop reads late the answers that came meanwhile.
        let is_calm = self.rare.elections.as_ref().is_some_and(|elections| elections.is_calm);
        is_calm && self.strays.is_none()
    }
}

impl World {
    /// Whether a call campaigns.
    pub(super) fn campaigns(&mut self) -> bool {
        let permille = self.plan.rare.elections.as_ref().map(|elections| elections.campaigns);
        permille.is_some_and(|permille| self.random.chance(permille))
    }

    /// The claims that a node holds now.
    pub(super) fn claims_at(&mut self, index: usize) -> Claims {
        if self.plan.rare.elections.is_none() {
            return Claims::new();
        }
        let node = &mut self.nodes[index];
        let local = node.clock.on_server(self.now);
        let names = (0..self.plan.keys).map(|key| [self.plan.on_nodes(key), CLAIM_SUFFIX].concat());
        let claim = |name: Vec<u8>| {
            let value = node.server.value(&name, local)?.to_vec();
            Some((value, node.server.ttl_ms(&name, local).unwrap_or(i64::MAX)))
        };
        names.map(claim).collect()
    }

    /// A node has just run a command of a client, which came through this connection: the tokens
    /// before it and behind it, and the claims before it.
    pub(super) fn look_at_claims(&mut self, conn: usize, tokens: [&Tokens; 2], claims: Claims) {
        if self.plan.rare.elections.is_none() {
            return;
        }
        let (client, index) = (self.conns[conn].client, self.conns[conn].node);
        let life = self.nodes[index].life;
        for (key, (before, after)) in claims.into_iter().zip(self.claims_at(index)).enumerate() {
            let held: Vec<_> = tokens.iter().filter_map(|tokens| tokens[key].clone()).collect();
            for token in &held {
                self.claims.held.insert((index, life, key, token.clone()));
            }
            if before == after {
                continue;
            }
            match (before, after) {
                (_, Some((value, ttl_ms))) => {
                    self.counts.path(Path::Claimed);
                    self.claims.came_by.insert((index, key), conn);
                    let token = Token::from_slice(token_of(&value));
                    let longest = self.claims.ttls.get(token.as_slice()).copied().unwrap_or(0);
                    let is_due = if self.plan.is_calm() {
                        held.contains(&token)
                    } else {
                        self.claims.held.contains(&(index, life, key, token))
                    };
                    self.oracle.check(Kind::FalseClaim, is_due, || {
                        format!("client {client} claims key {key} at node {index}, which does not hold it")
                    });
                    self.oracle.check(Kind::FalseClaim, ttl_ms.unsigned_abs() <= longest, || {
                        format!("client {client} claims key {key} for {ttl_ms} ms, its lock for {longest}")
                    });
                }
                (Some((value, _)), None) => {
                    self.counts.path(Path::ClaimDeleted);
                    let may = self.ledger.may_delete(client, token_of(&value));
                    self.oracle.check(Kind::ForeignDelete, may, || {
                        format!(
                            "client {client} deletes at node {index} another's claim of key {key}"
                        )
                    });
                }
                (None, None) => {}
            }
        }
    }

    /// A client remembers no lock: it has left no claim behind.
    pub(super) fn look_for_claims(&mut self, client: usize) {
        if !self.plan.is_calm() || !self.clients[client].engine.nodes_with_output().is_empty() {
            return;
        }
        for index in 0..self.nodes.len() {
            for (key, claim) in self.claims_at(index).into_iter().enumerate() {
                let Some((value, _)) = claim else { continue };
                let this = &self.clients[client];
                let token = token_of(&value);
                let is_its = token.starts_with(this.token_start.as_bytes());
                let is_reached =
                    this.links[index] == self.claims.came_by.get(&(index, key)).copied();
                let is_given_away = self.given_away.iter().any(|given| given == token);
                self.oracle.check(Kind::Orphan, !(is_its && is_reached) || is_given_away, || {
                    format!("client {client} has left a claim of key {key} at node {index}")
                });
            }
        }
    }
}

/// The token that a claim names, behind the time and the name of the leader.
fn token_of(claim: &[u8]) -> &[u8] {
    claim.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default()
}

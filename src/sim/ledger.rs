//! The ledger of tokens: for each, which client may delete it, from the true history.
//!
//! # Oracles
//!
//! - No client deletes a key with a token that another client holds. After a token was given away,
//!   no client deletes its key until another client has adopted it. This holds for the client that
//!   drew the token, and for a client that a node told of it by mistake. A client whose caller
//!   named the token is exempt.
//! - A caller that is told `Released` had its keys deleted, or handed over, by a quorum.
//! - A lease whose token another client's caller deletes by force excludes no client any more. Once
//!   that caller is told `Released`, no later extension of the lease wins.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smallvec::SmallVec;

use super::client::SimClient;
use super::clock::Global;
use super::counts::Path;
use super::node::SimNode;
use super::task::TaskState;
use super::world::World;
use crate::engine::LeaseId;
use crate::quorum::{NodeId, NodeMask};
use crate::rules::Kind;
use crate::time::Instant;

/// Which client may delete a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Title {
    Client(usize),
    Nobody,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Ledger {
    titles: BTreeMap<Vec<u8>, Title>,
    /// Clients whose callers named a token.
    named: BTreeSet<(usize, Vec<u8>)>,
    /// The servers at which a client has deleted a token that was held.
    deleted: BTreeMap<Vec<u8>, NodeMask>,
    /// The tokens that callers delete by force, and when the first of these callers was told so.
    forced: BTreeMap<Vec<u8>, Option<Global>>,
}

impl Ledger {
    /// The client holds a lease with this token: it won, or adopted it.
    pub(super) fn held(&mut self, client: usize, token: &[u8]) {
        self.titles.insert(token.to_vec(), Title::Client(client));
    }

    pub(super) fn given_away(&mut self, token: &[u8]) {
        self.titles.insert(token.to_vec(), Title::Nobody);
    }

    /// Whether the client may delete a key with this token. Any client may if no client has held
    /// the token.
    pub(super) fn may_delete(&self, client: usize, token: &[u8]) -> bool {
        self.is_of(client, token) || self.named.contains(&(client, token.to_vec()))
    }

    /// A client has deleted a token at a server, or put another one in its place.
    fn deleted(&mut self, token: &[u8], server: usize) {
        if let Some(id) = NodeId::new(server).filter(|_| self.titles.contains_key(token)) {
            self.deleted.entry(token.to_vec()).or_default().insert(id);
        }
    }

    /// Whether no other client has held the token since, and the client has not given it away.
    fn is_of(&self, client: usize, token: &[u8]) -> bool {
        self.titles.get(token).is_none_or(|title| *title == Title::Client(client))
    }

    /// Whether a caller of another client deletes the token by force.
    pub(super) fn is_forced(&self, token: &[u8]) -> bool {
        self.forced.contains_key(token)
    }

    /// When a caller of another client was told that the token is deleted.
    pub(super) fn taken_at(&self, token: &[u8]) -> Option<Global> {
        self.forced.get(token).copied().flatten()
    }

    /// The client's caller asks to adopt or to unlock the token.
    pub(super) fn named(&mut self, client: usize, token: &[u8]) {
        self.named.insert((client, token.to_vec()));
    }
}

/// A token as a node holds it. Most are as long as those that clients draw.
pub(super) type Token = SmallVec<[u8; 64]>;

/// The tokens that a node holds, by key.
pub(super) type Tokens = Vec<Option<Token>>;

impl SimClient {
    /// The tokens of a lease.
    pub(super) fn tokens(&self, lease: LeaseId) -> Vec<Vec<u8>> {
        let names = self.names(lease).into_iter();
        names.map(|(_, token)| token.as_bytes().to_vec()).collect()
    }
}

impl World {
    /// A caller was told that a quorum had done its unlock.
    pub(super) fn look_at_release(&mut self, client: usize, task: usize) {
        let place = &mut self.clients[client].tasks[task];
        // The lists by which the lease was won decide on its release.
        let began = place.began;
        for token in std::mem::take(&mut place.released) {
            let deleted = self.ledger.deleted.get(&token).copied().unwrap_or_default();
            let is_quorum = self.is_quorum(client, deleted, began);
            self.oracle.check(Kind::FalseRelease, is_quorum, || {
                format!("client {client} is told of a release that {deleted:?} have done")
            });
            let forced = self.ledger.forced.get_mut(&token);
            forced.into_iter().for_each(|at| *at = at.or(Some(self.now)));
        }
    }

    /// A caller unlocks a token of its client that stands at a node: of a lease, of an attempt, or of
    /// an offer. Or it takes the lease of another client by force. Returns whether it does.
    pub(super) fn unlocks_own(&mut self, client: usize, task: usize, now: Instant) -> bool {
        let names_own = self.plan.rare.names_own;
        if names_own == 0 || !self.random.chance(names_own) {
            return false;
        }
        let (key, node) = (self.some_key(client), self.random.index(self.plan.servers()));
        let token = self.tokens_at(node).swap_remove(key).map(SmallVec::into_vec);
        let this = &mut self.clients[client];
        let is_own = |token: &Vec<u8>| token.starts_with(this.token_start.as_bytes());
        let is_its = |token: &Vec<u8>| is_own(token) && self.ledger.is_of(client, token);
        let is_others = |token: &Vec<u8>| {
            let title = self.ledger.titles.get(token);
            matches!(title, Some(Title::Client(other)) if *other != client)
        };
        let is_forced = self.plan.rare.forces && token.as_ref().is_some_and(is_others);
        let token = token.filter(|token| is_forced || is_its(token) && this.front.is_none());
        let Some(token) = token else { return false };
        if is_forced {
            self.ledger.named(client, &token);
            self.ledger.forced.entry(token.clone()).or_default();
        }
        let result = this.engine.unlock_token(&self.plan.plain(key), &token, now);
        self.log(|_| format!("client {client} unlocks its token of {key}: {result:?}"));
        let holders = if is_forced { 0..self.plan.clients } else { client..client + 1 };
        for holder in holders {
            for other in 0..self.plan.tasks {
                if self.clients[holder].tasks[other].lease.is_some() {
                    self.told_deadline(holder, other);
                }
            }
        }
        let Ok(op) = result else { return false };
        self.counts.path(if is_forced { Path::Forced } else { Path::OwnUnlocked });
        let ends = now + Duration::from_nanos(self.plan.node_timeout);
        self.begun(client, task, TaskState::Unlocking, op, ends);
        // Only a token that was held is counted where it is deleted.
        let is_held = self.ledger.titles.contains_key(&token);
        self.clients[client].tasks[task].released = is_held.then_some(token).into_iter().collect();
        true
    }

    /// The tokens that a node holds now.
    pub(super) fn tokens_at(&self, node: usize) -> Tokens {
        let SimNode { server, clock, .. } = &self.nodes[node];
        let local = clock.on_server(self.now);
        let token = |name: &Vec<u8>| server.value(name, local).map(Token::from_slice);
        self.plan.names.iter().map(token).collect()
    }

    /// Whether a node still holds these tokens, and no others.
    pub(super) fn holds_as_before(&self, node: usize, before: &Tokens) -> bool {
        let SimNode { server, clock, .. } = &self.nodes[node];
        let local = clock.on_server(self.now);
        let mut held = self.plan.names.iter().zip(before);
        held.all(|(name, token)| server.value(name, local) == token.as_deref())
    }

    /// A node has just run a command of a client: the tokens before it, and behind it.
    pub(super) fn look_at_deletes(
        &mut self,
        client: usize,
        node: usize,
        before: &Tokens,
        after: &Tokens,
    ) {
        for (key, (token, now)) in before.iter().zip(after).enumerate() {
            let Some(token) = token.as_ref().filter(|token| now.as_ref() != Some(*token)) else {
                continue;
            };
            if now.is_some() {
                self.look_at_transfer(client, node, key);
            }
            self.ledger.deleted(token, node % self.plan.servers());
            let may = self.ledger.may_delete(client, token);
            self.oracle.check(Kind::ForeignDelete, may, || {
                let title = self.ledger.titles.get(token.as_slice());
                format!("client {client} deletes at node {node} a token of {title:?}")
            });
        }
    }
}

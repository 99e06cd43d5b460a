//! [`SeenLock`] and [`Holder`]: who holds a lock, read from the names that clients have at the nodes.
//!
//! A holder is named by its token, which begins with the id of its client, and the client by its
//! entry in a node's CLIENT LIST. What is not known stays unknown: no entry is needed for a lock.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::clients::{Listed, with_short_lists};
use super::verdict::{held_token, judge};
use super::{Answers, NodeKey, Verdict, answer};
use crate::claim::Claim;
use crate::client_name::ClientId;
use crate::quorum::NodeMask;
use crate::token::{DRAWN_LEN, LockToken, unhex};

/// A lock as the nodes show it at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeenLock {
    /// Its key, without the prefix.
    pub key: Vec<u8>,
    /// What the nodes together say.
    pub verdict: Verdict,
    /// Who holds it, where a quorum holds one token.
    pub holder: Option<Holder>,
    /// What each node holds.
    pub nodes: Vec<NodeKey>,
}

/// Who holds a lock. Names are claims of the clients themselves: for people, and for nothing else.
#[derive(Clone)]
#[non_exhaustive]
pub struct Holder {
    /// The token that a quorum holds. `Debug` does not show it.
    pub token: LockToken,
    /// How many nodes hold it.
    pub votes: u32,
    /// How long until no quorum holds it, unless it is extended; `None` for ever.
    pub ends_in: Option<Duration>,
    /// The client, by its token; `None` for a token of another form than Redbolt's.
    pub client: Option<ClientId>,
    /// The client's host, as the client calls it. This and all that follows is `None` where no node
    /// lists the client: it has gone, is no client of Redbolt, or the user may not see the list. Of a
    /// leader ([`Client::leader`](crate::Client::leader)) host, process id and program are what it
    /// says beside its lock.
    pub host: Option<String>,
    /// Its process id.
    pub pid: Option<u32>,
    /// The name of its program, or its [`client_name`](crate::Config::client_name).
    pub program: Option<String>,
    /// Where its connection to a node comes from, as that node sees it.
    pub address: Option<String>,
    /// How long it has held the lock, as it says itself; `None` where it does not answer within a
    /// `node_timeout`: it reads nothing just now, or one of the two clients has no channel
    /// ([`direct_wake`](crate::Config::direct_wake)). Of a lock that was handed over to it up to half
    /// of a TTL more than it was; of a shared handle, how long the process has held it. In a list of
    /// locks it is not asked before [`Client::ask_holders`](crate::Client::ask_holders).
    pub held_for: Option<Duration>,
    /// How many calls of other clients it knows to wait for the lock; `None` as above.
    pub waiters: Option<u32>,
    /// Of a leader: since when it leads, by its own wall clock. `None` of any other holder, and where
    /// that is not asked.
    pub since: Option<SystemTime>,
}

impl Holder {
    /// It is called this by itself, or by a node that lists it.
    fn call(&mut self, host: &Option<String>, pid: Option<u32>, program: &Option<String>) {
        self.host.clone_from(host);
        self.pid = pid;
        self.program.clone_from(program);
    }

    /// Whether more is known of it than its token.
    fn is_named(&self) -> bool {
        self.host.is_some() || self.pid.is_some() || self.program.is_some()
    }
}

impl fmt::Debug for Holder {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("votes", &self.votes)
            .field("ends_in", &self.ends_in)
            .field("client", &self.client)
            .field("host", &self.host)
            .field("pid", &self.pid)
            .field("program", &self.program)
            .field("address", &self.address)
            .field("held_for", &self.held_for)
            .field("waiters", &self.waiters)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

impl SeenLock {
    /// What `nodes` say of a lock that needs so many votes; its client is not named yet.
    pub(crate) fn new(key: Vec<u8>, nodes: Vec<NodeKey>, quorum: u32) -> Self {
        let holder = held_token(&nodes, quorum).map(|(token, votes, ends_in)| Holder {
            token: LockToken::seen(token),
            votes,
            ends_in,
            client: ClientId::of_token(token),
            host: None,
            pid: None,
            program: None,
            address: None,
            held_for: None,
            waiters: None,
            since: None,
        });
        Self { key, verdict: judge(&nodes, quorum), holder, nodes }
    }

    /// A lock by the answers to the question for its leader, which is named as the most nodes name it.
    pub(crate) fn led(key: Vec<u8>, answers: &Answers, quorum: u32) -> Self {
        let mut seen = Self::new(key, answers.keys(), quorum);
        if let Some(holder) = &mut seen.holder {
            let token = holder.token.as_bytes();
            let claims = answers.replies.iter().filter_map(|answers| {
                answer(answers, 2, |reply| Claim::read(reply.text()?, token))
            });
            let claims: Vec<Claim> = claims.collect();
            let votes = |claim: &Claim| claims.iter().filter(|other| *other == claim).count();
            if let Some(claim) = claims.iter().max_by_key(|claim| votes(claim)) {
                holder.call(&claim.name.host, claim.name.pid, &claim.name.program);
                holder.since = claim.since;
            }
        }
        seen
    }

    /// Whether this is news to somebody who last saw `before`: another leader, none, or the name of one
    /// that had none. That too few nodes answered to know is no news.
    pub(crate) fn has_other_leader(&self, before: Option<&Self>) -> bool {
        let Some(before) = before else { return true };
        let (now, then) = (self.holder.as_ref(), before.holder.as_ref());
        let is_other = now.map(|holder| &holder.token) != then.map(|holder| &holder.token);
        let is_named = |holder: Option<&Holder>| holder.is_some_and(Holder::is_named);
        let is_named_now = is_named(now) && !is_named(then);
        self.verdict != Verdict::Unknown && (is_other || is_named_now)
    }

    /// Whether a list of clients may say more.
    pub(crate) fn has_client(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.client.is_some())
    }

    /// The nodes whose lists of clients may name the holder, by their answers to INFO clients behind
    /// those about the key.
    pub(crate) fn listing_nodes(&self, answers: &Answers) -> NodeMask {
        if self.has_client() { with_short_lists(answers, 2) } else { NodeMask::EMPTY }
    }

    /// The token, if its holder can be asked.
    pub(crate) fn drawn_token(&self) -> Option<[u8; DRAWN_LEN]> {
        unhex(self.holder.as_ref()?.token.as_bytes())
    }

    /// Notes what the holder has said.
    pub(crate) fn hear(&mut self, answers: &Answers) {
        let heard = answers.replies.iter().find_map(|answers| answers.heard);
        if let (Some(holder), Some(heard)) = (&mut self.holder, heard) {
            holder.held_for = Some(heard.held_for);
            holder.waiters = Some(heard.waiters);
        }
    }

    /// Names the holder's client, if it is listed. Returns whether it is named now.
    pub(crate) fn name(&mut self, listed: &Listed) -> bool {
        let Some(holder) = &mut self.holder else { return false };
        let Some(client) = holder.client.and_then(|client| listed.get(client)) else {
            return holder.address.is_some();
        };
        holder.call(&client.host, client.pid, &client.program);
        holder.address = Some(client.address.clone());
        true
    }
}

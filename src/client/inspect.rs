//! What people ask: what each node holds for a key, and how each node is set up. No part of
//! locking.

use std::time::Duration;

use super::Client;
use crate::driver::{Inquiry, Outcome, Question, Search};
use crate::engine::{NodeHealth, NodeReplies, OpId};
use crate::error::{Cause, LockError};
use crate::resp::Reply;
use crate::status::{Answers, Listing, NodeKey, SeenLock, answer};

/// Of how many locks the holders are asked at a time.
const ASKED_MAX: usize = 256;

/// How one node is set up, as it just answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeReport {
    /// What the client knows of the node.
    pub health: NodeHealth,
    /// The fields of INFO, as `(name, value)`.
    pub info: Vec<(String, String)>,
    /// `appendfsync`, if the user may ask for it.
    pub append_fsync: Option<String>,
    /// Whether `no-appendfsync-on-rewrite` lets the node answer before a write is on disk, if the
    /// user may ask for it.
    pub fsync_pauses: Option<bool>,
    /// The node's wall clock in microseconds since 1970.
    pub time_us: Option<u64>,
    /// From the request to the first answer.
    pub round_trip: Option<Duration>,
    /// Why answers are missing.
    pub cause: Cause,
}

impl NodeReport {
    /// A field of INFO.
    #[must_use]
    pub fn info(&self, name: &str) -> Option<&str> {
        self.info.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

impl Client {
    /// Asks every connected node what `key` holds. Takes one round trip to the slowest node, at
    /// most `node_timeout`.
    ///
    /// A lock is held if a quorum of nodes without [`doubt`](NodeKey::doubt) holds the same token.
    /// It is free if so many of these nodes are free that no quorum is left for a token. Each node
    /// answers on its own: a lock that is taken or released at that moment shows on some nodes
    /// only.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`], [`LockError::Full`] and [`LockError::System`].
    pub fn status(&mut self, key: impl AsRef<[u8]>) -> Result<Vec<NodeKey>, LockError> {
        Ok(self.put(&Question::Key(key.as_ref().to_owned()))?.keys())
    }

    /// Who holds the lock `key`: the process that has the token which a quorum holds, as far as the
    /// nodes list it. Where a client of Redbolt holds it one node after the other is then asked for the
    /// list of its clients (CLIENT LIST) until one lists the holder, and the holder for how long it
    /// has held the lock. That takes a round trip each, or a `node_timeout` where nobody answers. A
    /// list of 1,000 clients takes a node about 5 ms; one with more than 16,000 is not asked. A user
    /// that may not see the list is told the token's client and no more.
    ///
    /// # Errors
    ///
    /// As [`status`](Self::status).
    pub fn holder(&mut self, key: impl AsRef<[u8]>) -> Result<SeenLock, LockError> {
        let mut inquiry = Inquiry::new(key.as_ref(), self.driver.engine().quorum());
        while let Some(question) = inquiry.next() {
            inquiry.take(&self.put(&question)?);
        }
        Ok(inquiry.into_seen())
    }

    /// Lists the locks whose keys match `pattern` (as in SCAN: `*`, `?`, `[a-c]`), at most `limit`,
    /// with their holders: string keys of any library, without what is beside locks (the counters of
    /// fences, the names of leaders). Locks that are taken or released meanwhile may be missing or not.
    ///
    /// Each node is searched step by step, 500 keys at a time, so that others get their turn in
    /// between; each step takes one round trip. Then all nodes are asked what they hold for what was
    /// found, and one after the other for the list of its clients until all holders are named. A node
    /// that does not answer costs one `node_timeout` and is left out. A lock is found if one of its
    /// nodes was searched: all locks are, if so many nodes were searched that every quorum has one.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] for a pattern that is empty or longer than keys are,
    /// [`LockError::Full`] and [`LockError::System`].
    pub fn locks(&mut self, pattern: impl AsRef<[u8]>, limit: usize) -> Result<Listing, LockError> {
        let nodes = (self.nodes().len(), self.driver.engine().quorum());
        let mut search = Search::new(pattern.as_ref(), limit, nodes);
        while let Some(question) = search.next() {
            search.take(&self.put(&question)?);
        }
        Ok(search.into_listing())
    }

    /// Asks the holders of `locks` how long each has held its lock, and how many wait for it
    /// ([`Holder::held_for`](crate::inspect::Holder::held_for) and `waiters`), as
    /// [`holder`](Self::holder) does for one lock. One message goes to each holder over each node, for
    /// 256 locks at a time: these take a `node_timeout` at most. What a holder does not answer stays
    /// `None`.
    ///
    /// # Errors
    ///
    /// [`LockError::Full`] and [`LockError::System`].
    pub fn ask_holders(&mut self, locks: &mut [SeenLock]) -> Result<(), LockError> {
        for locks in locks.chunks_mut(ASKED_MAX) {
            self.catch_up()?;
            let mut open = Vec::with_capacity(locks.len());
            for lock in locks {
                if let Some(token) = lock.drawn_token() {
                    let op = self.driver.ask(&Question::Held { key: lock.key.clone(), token })?;
                    open.push((op, lock));
                }
            }
            self.driver.flush();
            while !open.is_empty() {
                while let Some(done) = self.driver.completion() {
                    let place = open.iter().position(|(op, _)| *op == done.id);
                    match (done.result, place) {
                        (Outcome::Lost(_), _) => self.note_loss(),
                        (Outcome::Query(replies), Some(place)) => {
                            let (_, lock) = open.swap_remove(place);
                            lock.hear(&self.driver.answers(replies));
                        }
                        _ => {}
                    }
                }
                if !open.is_empty() {
                    self.pass(None)?;
                }
            }
        }
        Ok(())
    }

    /// Puts a question to the nodes and waits for the answers.
    pub(super) fn put(&mut self, question: &Question) -> Result<Answers, LockError> {
        self.catch_up()?;
        let op = self.driver.ask(question)?;
        let replies = self.answers(op)?;
        Ok(self.driver.answers(replies))
    }

    pub(super) fn ask(&mut self, commands: &[&[&[u8]]]) -> Result<Vec<NodeReplies>, LockError> {
        self.catch_up()?;
        let op = self.driver.query(commands)?;
        self.answers(op)
    }

    fn answers(&mut self, op: OpId) -> Result<Vec<NodeReplies>, LockError> {
        let Outcome::Query(answers) = self.wait_for(op)? else { return Err(LockError::Cancelled) };
        Ok(answers)
    }
}

/// Asks every connected node how it is set up. Takes one round trip to the slowest node, at most
/// `node_timeout`.
///
/// # Errors
///
/// [`LockError::Full`] and [`LockError::System`].
pub fn examine(client: &mut Client) -> Result<Vec<NodeReport>, LockError> {
    let answers = client.ask(&[
        &[b"TIME"],
        &[b"INFO"],
        &[b"CONFIG", b"GET", b"appendfsync"],
        &[b"CONFIG", b"GET", b"no-appendfsync-on-rewrite"],
    ])?;
    Ok(client
        .nodes()
        .into_iter()
        .zip(answers)
        .map(|(health, answers)| report(health, &answers))
        .collect())
}

/// The text without control characters, on which a terminal would act.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn text(reply: &Reply<'_>) -> Option<String> {
    reply.text().map(|text| String::from_utf8_lossy(text).into_owned())
}

fn report(health: NodeHealth, answers: &NodeReplies) -> NodeReport {
    let time_us = answer(answers, 0, |reply| {
        let Reply::Array(mut parts) = reply else { return None };
        let mut number = || text(&parts.next()?)?.parse::<u64>().ok();
        Some(number()?.checked_mul(1_000_000)?.saturating_add(number()?))
    });
    let info = answer(answers, 1, |reply| text(&reply)).unwrap_or_default();
    let info = info.lines().filter_map(|line| line.split_once(':'));
    let setting = |index| {
        answer(answers, index, |reply| {
            let (Reply::Array(mut parts) | Reply::Map(mut parts)) = reply else { return None };
            parts.nth(1).and_then(|value| text(&value))
        })
    };
    NodeReport {
        health,
        info: info.map(|(name, value)| (shown(name), shown(value))).collect(),
        append_fsync: setting(2),
        fsync_pauses: setting(3).map(|value| value == "yes"),
        time_us,
        round_trip: (!answers.replies.is_empty()).then_some(answers.round_trip),
        cause: answers.cause,
    }
}

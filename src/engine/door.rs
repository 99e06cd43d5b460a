//! The door of the engine: what a loop calls. Whatever is done to the locks is followed here by what
//! that means for the calls that wait.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::event::{Connection, Event};
use super::locks::op::{OpId, OpKind};
use super::locks::prefix::Prefix;
#[cfg(feature = "metrics")]
use super::locks::series::Series;
use super::locks::settings::{Settings, nodes_of};
use super::locks::slot::LeaseId;
use super::locks::state::{Done, Locks};
use super::locks::timers::Timer;
use super::locks::view::NodeHealth;
use super::nodes::Nodes;
use super::notice::Notice;
use super::wait::Waiting;
use crate::config::{Config, Retry};
use crate::error::{Cause, ConfigError, ConnectError, ExtendError, LockError, UnlockError};
#[cfg(feature = "metrics")]
use crate::histogram::Histogram;
use crate::node::{ChannelName, Node, Now, Wish};
use crate::options::LockOptions;
use crate::quorum::{NodeId, NodeMask};
use crate::rules;
use crate::slab::OpIndex;
use crate::time::Instant;
use crate::token::{LockToken, TokenBytes};

/// The shortest wait between two attempts.
pub(super) const RETRY_WAIT_MIN: Duration = Duration::from_millis(1);

/// Shorter than any round trip.
const ROUND_TRIP_MIN_NANOS: u64 = 50_000;

/// A Redlock client without its sockets. See the [module](crate::engine) for how to drive it.
pub struct Engine {
    pub(super) locks: Locks,
    pub(super) waiting: Waiting,
    /// A frame or a message that came in, while something is done with it.
    pub(super) frame: Vec<u8>,
}

impl Engine {
    /// An engine over the nodes of `config`. `seed` must come from the operating system's generator
    /// (a fixed one is for tests): tokens are drawn from it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a setting is out of its range.
    pub fn new(config: &Config, seed: [u8; 32], now: Instant) -> Result<Self, ConfigError> {
        let checked = config.check()?;
        let mut rng = StdRng::from_seed(seed);
        let mut client_id = [0; 8];
        rng.fill_bytes(&mut client_id);
        let channel = config.direct_wake.then(|| ChannelName::of(client_id));
        let settings = Settings::of(config, &checked);
        let names: Arc<[_]> = config.nodes.iter().map(|address| address.name().into()).collect();
        let nodes = nodes_of(config, channel, now);
        let nodes = Nodes::new(nodes, names, settings.admission, now);
        let prefix = Prefix::new(&config.key_prefix);
        let drawn = (config.in_flight_max, client_id, rng);
        Ok(Self {
            locks: Locks::new(settings, nodes, prefix, drawn, now),
            waiting: Waiting::new(client_id, config.node_timeout),
            frame: Vec::new(),
        })
    }

    /// Lets so much wait for each node, before it is used.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn limit(&mut self, room: crate::node::Room) {
        self.locks.nodes.limit(room);
    }

    // ---- operations ----

    /// Begins one attempt at the lock `key`. `now` is `t0`: the clock, read just before this call.
    /// Nothing is sent before the node's [`output`](Self::output) is.
    ///
    /// # Errors
    ///
    /// Those of [`LockError`] that concern the call itself; then nothing was begun.
    pub fn try_lock(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if options.retry.is_none() {
            return self.begin_acquire(key, options, now);
        }
        self.acquire_retried(key, options, None, now)
    }

    /// Begins to try for the lock `key` until it is won, as the options' `retry` says or, where they
    /// have none, the configuration's. Else as [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    pub fn lock(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if options.retry.is_some() {
            return self.begin_acquire(key, options, now);
        }
        self.acquire_retried(key, options, Some(self.default_retry()), now)
    }

    #[cold]
    #[inline(never)]
    fn acquire_retried(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        retry: Option<Retry>,
        now: Instant,
    ) -> Result<OpId, LockError> {
        self.begin_acquire(key, &LockOptions { retry, ..options.clone() }, now)
    }

    /// How the configuration tries again.
    pub(crate) const fn default_retry(&self) -> Retry {
        self.locks.settings.retry
    }

    /// Begins to take a lock: one attempt, unless the options have a `retry`.
    pub(crate) fn acquire(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        self.begin_acquire(key, options, now)
    }

    /// Gives an operation up. An acquisition ends as cancelled and its keys are released. So does an
    /// extension, but what is written goes on. A release and a query go on and are reported.
    pub fn cancel(&mut self, op: OpId, now: Instant) {
        self.cancel_call(op, now);
    }

    /// Gives every operation up, each as [`cancel`](Self::cancel) does.
    pub(crate) fn cancel_all(&mut self, now: Instant) {
        for op in self.locks.ops.ids() {
            self.cancel(op, now);
        }
    }

    /// Begins to move the end of `lease` to `ttl` from `now`, which is the clock read just before
    /// this call.
    ///
    /// # Errors
    ///
    /// Those of [`ExtendError`] that concern the call itself; then nothing was begun.
    pub fn extend(
        &mut self,
        lease: LeaseId,
        ttl: Duration,
        now: Instant,
    ) -> Result<OpId, ExtendError> {
        self.locks.extend(lease, ttl, now)
    }

    /// Begins to make a lease of a key and token from elsewhere, by extending it as `acquire` says:
    /// its TTL, and how the lease is kept. The rest of `acquire` is for acquisitions.
    ///
    /// # Errors
    ///
    /// Those of [`ExtendError`] that concern the call itself; then nothing was begun.
    pub fn adopt(
        &mut self,
        key: &[u8],
        token: &[u8],
        acquire: &LockOptions,
        now: Instant,
    ) -> Result<OpId, ExtendError> {
        self.locks.adopt(key, token, acquire, now)
    }

    /// Releases a lease and reports how that went.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotOurs`] if the lease is not held any more; [`UnlockError::Full`] if the
    /// result cannot be reported: it is released all the same.
    pub fn unlock(&mut self, lease: LeaseId, now: Instant) -> Result<OpId, UnlockError> {
        let op = self.locks.release(lease, now);
        self.pass_on(lease.slot, self.locks.both_clocks(now));
        op.inspect(|&op| self.locks.conclude_release(op))
    }

    /// Deletes `key` on every node where it holds `token`, whoever made it.
    ///
    /// # Errors
    ///
    /// [`UnlockError::InvalidName`] for a key or token of impossible length, [`UnlockError::Full`].
    pub fn unlock_token(
        &mut self,
        key: &[u8],
        token: &[u8],
        now: Instant,
    ) -> Result<OpId, UnlockError> {
        let op = self.locks.release_token(key, token, now);
        op.inspect(|&op| self.locks.conclude_release(op))
    }

    /// Releases a lease without a report: nothing waits for the answers. Harmless when the lease is
    /// not held any more.
    pub fn release(&mut self, lease: LeaseId, now: Instant) {
        if self.locks.release_quietly(lease, now) {
            self.pass_on(lease.slot, self.locks.both_clocks(now));
        }
    }

    /// Gives a lease away: its keys stay, and whoever has key and token may end or extend it.
    pub fn detach(&mut self, lease: LeaseId) {
        if self.locks.slots.held(lease).is_some() {
            self.waiting.forget_queue(lease.slot);
            self.locks.detach(lease);
        }
    }

    /// Puts `commands`, at most 255 of them, to every connected node. They must not write, and
    /// answer with one reply each.
    ///
    /// # Errors
    ///
    /// [`LockError::Full`] if too many operations are under way.
    pub(crate) fn query(&mut self, commands: &[&[&[u8]]], now: Instant) -> Result<OpId, LockError> {
        self.locks.query(commands, now)
    }

    // ---- inputs ----

    /// Whether the engine waits for a connection to the node.
    #[must_use]
    pub(crate) fn wants_connection(&self, id: NodeId) -> bool {
        self.locks.nodes.wants_connection(id)
    }

    /// Whether the engine reads what the node sends: false once it has given the connection up.
    #[must_use]
    pub(crate) fn is_connected(&self, id: NodeId) -> bool {
        self.locks.nodes.get(id).is_some_and(Node::is_connected)
    }

    /// The connection that was asked for stands, and is being encrypted: what it waits for now says
    /// another thing of the node.
    #[cfg(feature = "tls")]
    pub(crate) fn handle_securing(&mut self, id: NodeId) {
        if self.wants_connection(id) {
            self.locks.nodes.handle_securing(id);
        }
    }

    /// Whether the node is connected and has not sent a byte yet.
    pub(crate) fn is_mute(&self, id: NodeId) -> bool {
        self.locks.nodes.get(id).is_some_and(Node::is_mute)
    }

    /// Whether the node was greeted on its connection and taken for one to lock on.
    pub(crate) fn serves(&self, id: NodeId) -> bool {
        self.locks.nodes.get(id).is_some_and(Node::serves)
    }

    /// The connection that was asked for is open.
    pub fn handle_connected(&mut self, id: NodeId, now: Instant) {
        if self.wants_connection(id) {
            let now = self.locks.now(now);
            self.locks.nodes.handle_connected(id, now);
            self.refresh(id, now);
        }
    }

    /// The connection is lost, or the attempt at it failed. Votes on it are unknown from now on,
    /// releases on it are owed.
    pub fn handle_lost(&mut self, id: NodeId, cause: Cause, now: Instant) {
        if self.is_connected(id) || self.wants_connection(id) {
            let now = self.locks.now(now);
            self.lose(id, cause, now);
            self.refresh(id, now);
        }
    }

    /// The node sent these bytes. Any split of its stream gives the same result. `now` was read after
    /// the bytes were: an age or a time left that they tell counts from it, and counted from an earlier
    /// one a restarted node would vote too soon.
    pub fn handle_bytes(&mut self, id: NodeId, bytes: &[u8], now: Instant) {
        self.read(id, bytes, now);
    }

    /// Ends a pass over the sockets, after all that they held was handed in: does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.locks.last_pass = now;
        let now = self.locks.now(now);
        if self.locks.nodes.needs_care(now) {
            self.look_after_nodes(now);
        }
        while let Some((index, judged_at)) = self.locks.ops.first_judged() {
            if rules::has_time_left(judged_at, now.attended) {
                break;
            }
            self.judge(index, now);
        }
        if self.locks.keeps.next() <= now.real {
            self.locks.handle_keeps(now);
        }
        if self.locks.timers.needs_care(now.real) {
            self.handle_timers(now);
        }
    }

    /// Does what is due at the nodes themselves.
    #[cold]
    fn look_after_nodes(&mut self, now: Now) {
        for id in self.locks.nodes.all() {
            if self.locks.nodes.at(id).is_quiet(now) {
                continue;
            }
            if let Some(cause) = self.locks.nodes.handle_timeout(id, now) {
                self.drop_connection(id, cause, now);
            }
            self.refresh(id, now);
        }
        self.locks.nodes.cared_for(now);
    }

    #[cold]
    fn handle_timers(&mut self, now: Now) {
        while let Some((timer, id)) = self.locks.timers.pop_due(now.real) {
            let Some(index) = self.locks.ops.find(id) else { continue };
            match timer {
                Timer::Retry if self.locks.ops.at(index).retry_at <= now.real => {
                    self.retry_due(index, now);
                }
                Timer::Retry => {}
                Timer::Wait => self.wait_due(index, now),
                Timer::Judge => {
                    let op = self.locks.ops.at(index);
                    let is_due = op.judge_at.min(op.plan.deadline) <= now.real;
                    if is_due && !self.locks.has_time_left(index, now) {
                        self.judge(index, now);
                    }
                }
            }
        }
        let (ops, waiting) = (&self.locks.ops, &self.waiting);
        self.locks.timers.sweep(|at, timer, id| {
            let op = ops.find(id).map(|index| (index, ops.at(index)));
            op.is_some_and(|(index, op)| match timer {
                Timer::Retry => op.retry_at == at,
                Timer::Wait => waiting.due(index) == Some(at),
                Timer::Judge => op.judge_at == at || op.plan.deadline == at,
            })
        });
    }

    // ---- outputs ----

    /// The next result, judged at `now`: a lease whose deadline has passed is not handed out.
    pub fn poll_event(&mut self, now: Instant) -> Option<Event> {
        while let Some(done) = self.locks.done.pop_front() {
            let Done::Op(index) = done else {
                match self.locks.next_loss() {
                    None => continue,
                    loss => return loss,
                }
            };
            let kind = self.locks.ops.at(index).kind;
            match kind {
                OpKind::Acquire if !self.is_hand_over_late(index, now) => {
                    return self.report_acquire(index, now);
                }
                OpKind::Extend | OpKind::Adopt => return Some(self.report_extend(index, now)),
                OpKind::Release => return self.locks.report_release(index),
                OpKind::Query => return Some(self.locks.report_query(index)),
                OpKind::Acquire | OpKind::Keep | OpKind::Free => {}
            }
        }
        None
    }

    /// Takes the result of an extension out.
    fn report_extend(&mut self, index: OpIndex, now: Instant) -> Event {
        let slot = self.locks.ops.at(index).slot();
        let event = self.locks.report_extend(index, now);
        if let Event::Adopt { result: Err(_), .. } = event {
            self.waiting.forget_queue(slot);
        }
        event
    }

    /// Whether [`poll_event`](Self::poll_event) has something to report.
    #[must_use]
    pub(crate) fn has_event(&self) -> bool {
        !self.locks.done.is_empty()
    }

    /// The next thing to do with a connection.
    pub fn poll_connection(&mut self) -> Option<(NodeId, Connection)> {
        loop {
            let (id, wish) = self.locks.nodes.poll_wish()?;
            match wish {
                Wish::Nothing => {}
                Wish::Connect => return Some((id, Connection::Open)),
                Wish::Close => return Some((id, Connection::Close)),
            }
        }
    }

    /// The nodes that have bytes to send.
    #[must_use]
    #[inline]
    pub const fn nodes_with_output(&self) -> NodeMask {
        self.locks.nodes.with_output()
    }

    /// The nodes that have bytes to send, in two groups, to be written to one after the other. Those whose
    /// output wakes somebody who waits for a lock come behind all others: the woken asks every node at
    /// once, and one that has not heard of the release denies it its vote.
    #[inline]
    pub const fn poll_writes(&mut self) -> [NodeMask; 2] {
        self.locks.nodes.poll_writes()
    }

    /// The bytes that wait for the node's socket.
    #[must_use]
    pub fn output(&self, id: NodeId) -> &[u8] {
        self.locks.nodes.output(id)
    }

    /// The node's socket took the first `len` bytes of its output.
    pub fn handle_sent(&mut self, id: NodeId, len: usize) {
        self.locks.nodes.output_taken(id, len);
    }

    /// Hands the bytes that wait for the sockets of `nodes` to `write`, which says how many the
    /// socket took: [`output`](Self::output) and [`handle_sent`](Self::handle_sent) in one.
    #[inline]
    pub fn drain_output(&mut self, nodes: NodeMask, write: impl FnMut(NodeId, &[u8]) -> usize) {
        self.locks.nodes.drain_output(nodes, write);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.has_event() { Some(self.locks.last_pass) } else { self.next_due() }
    }

    /// As [`next_deadline`](Self::next_deadline), whatever waits to be taken.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.locks.next_due()
    }

    /// The next lease whose deadline the engine moved by itself: it extended the lease, began to, or
    /// lost it. Each is there once, so a list that nobody reads does not grow beyond the leases.
    pub fn poll_change(&mut self) -> Option<LeaseId> {
        self.locks.poll_change()
    }

    /// The next lease that a late answer gave another vote. Each is there once, so a list that
    /// nobody reads does not grow beyond the leases.
    pub fn poll_late_vote(&mut self) -> Option<LeaseId> {
        self.locks.poll_late_vote()
    }

    /// The next thing that people should hear of a node. What nobody takes is kept: the last of
    /// each node.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        let (node, cause) = self.locks.nodes.poll_news()?;
        Some(Notice::new(node, cause, self.locks.nodes.names()))
    }

    /// What was last told of a node.
    #[cfg(feature = "tracing")]
    pub(crate) fn last_notice(&self, node: NodeId) -> Option<Notice> {
        let cause = self.locks.nodes.get(node)?.last_news();
        Some(Notice::new(node, cause, self.locks.nodes.names()))
    }

    // ---- time ----

    /// Whether the sockets should be read before anything is begun: so much time passed without a
    /// pass that servers may have closed connections and stragglers answered, or there is no quorum,
    /// and what comes in may make one.
    #[must_use]
    pub(crate) fn needs_pass(&self, now: Instant) -> bool {
        now.saturating_since(self.locks.last_pass) > self.locks.settings.node_timeout
            || self.locks.nodes.voters().count() < self.locks.settings.quorum
    }

    /// Whether the sockets should be read before a lease is released: those who wait for it may have
    /// said so since the last pass, which is one round trip ago at least.
    #[must_use]
    pub(crate) fn may_have_word(&self, now: Instant) -> bool {
        now.nanos_since(self.locks.last_pass) > ROUND_TRIP_MIN_NANOS
            && self.locks.nodes.iter().any(Node::has_channel)
    }

    /// Draws tokens from fresh randomness from now on; the client's id stays.
    pub(crate) fn reseed(&mut self, seed: [u8; 32]) {
        self.locks.reseed(seed)
    }

    /// From now on releases are sent in a form that needs no second step: the client is about to
    /// end.
    pub fn begin_close(&mut self) {
        self.locks.nodes.begin_close();
    }

    // ---- how things are ----

    /// How each node is at `now`.
    #[must_use]
    pub fn nodes(&self, now: Instant) -> Vec<NodeHealth> {
        self.locks.nodes(now)
    }

    /// Whether a quorum may vote now.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.locks.nodes.voters().count() >= self.locks.settings.quorum
    }

    /// The nodes that may vote now.
    #[must_use]
    pub const fn voters(&self) -> NodeMask {
        self.locks.nodes.voters()
    }

    /// How many votes make a quorum.
    #[must_use]
    pub const fn quorum(&self) -> u32 {
        self.locks.settings.quorum
    }

    /// Whether every node is admitted or known not to be.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.locks.nodes.iter().all(|node| node.is_settled)
    }

    /// Why too few nodes may vote; `None` if a quorum may.
    #[must_use]
    pub(crate) fn connect_error(&self, now: Instant) -> Option<ConnectError> {
        self.locks.connect_error(now)
    }

    /// The end of a lease; `None` if it is not held.
    #[must_use]
    pub fn deadline(&self, lease: LeaseId) -> Option<Instant> {
        self.locks.deadline(lease)
    }

    /// How long a lease is still valid at `now`; zero if it is not held.
    #[must_use]
    pub fn remaining_at(&self, lease: LeaseId, now: Instant) -> Duration {
        self.deadline(lease).map_or(Duration::ZERO, |deadline| now.until(deadline))
    }

    /// The nodes that granted a lease, late ones included.
    #[must_use]
    pub fn votes(&self, lease: LeaseId) -> NodeMask {
        self.locks.votes(lease)
    }

    /// The nodes that will tell at once when somebody else changes the key of `lease`, which is one
    /// to be watched.
    #[must_use]
    pub fn watched_by(&self, lease: LeaseId) -> NodeMask {
        self.locks.watched(lease)
    }

    /// Whether a lease was lost: known to be over, by its deadline or because no quorum can hold
    /// its key. True for one that is not held any more.
    #[must_use]
    pub fn is_lost(&self, lease: LeaseId) -> bool {
        self.locks.is_lost(lease)
    }

    /// Whether an extension of the lease is under way.
    #[must_use]
    pub(crate) fn is_extending(&self, lease: LeaseId) -> bool {
        self.locks.is_extending(lease)
    }

    /// Why a lease is not kept: it is over, or a limit is reached. `None` while it is.
    #[must_use]
    pub(crate) fn keep_error(&self, lease: LeaseId, now: Instant) -> Option<ExtendError> {
        self.locks.keep_error(lease, now)
    }

    /// Key and token of a lease.
    #[must_use]
    pub fn lease_name(&self, lease: LeaseId) -> Option<(&[u8], LockToken)> {
        self.held_name(lease).map(|(key, token)| (key, LockToken::new(token)))
    }

    pub(crate) fn held_name(&self, lease: LeaseId) -> Option<(&[u8], &TokenBytes)> {
        self.locks.held_name(lease)
    }

    /// Keeps a word of the caller's with a lease.
    pub(crate) fn set_word(&mut self, lease: LeaseId, word: u32) {
        self.locks.set_word(lease, word)
    }

    /// The word kept with a lease.
    #[must_use]
    pub(crate) fn word(&self, lease: LeaseId) -> Option<u32> {
        self.locks.word(lease)
    }

    /// How many operations are under way or not yet reported.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.locks.ops.in_flight()
    }

    /// How many attempts are remembered: leases, and what late answers and debts may still name.
    #[cfg(any(test, feature = "sim", feature = "fuzzing"))]
    pub(crate) fn slots_in_use(&self) -> usize {
        self.locks.slots.in_use()
    }

    /// How many releases are owed or unanswered that can be settled by `until`, over all nodes.
    #[must_use]
    pub(crate) fn releases_open(&self, until: Instant) -> usize {
        self.locks.releases_open(until)
    }

    /// How many releases are owed or unanswered at `now`, over all nodes, those that are away too. Each
    /// is one key at one node, which lives until the release is done or its TTL ends.
    #[must_use]
    pub fn releases_owed(&self, now: Instant) -> usize {
        self.locks.releases_owed(now)
    }

    /// The client is gone: says which nodes are owed releases whose answer nobody reads.
    pub(crate) fn note_left(&mut self, now: Instant) {
        self.locks.note_left(now)
    }

    /// The key as the nodes know it.
    pub(crate) fn wire_key<'key>(&self, key: &'key [u8]) -> Result<Cow<'key, [u8]>, LockError> {
        self.locks.wire_key(key)
    }

    /// What was counted since the engine began, one number a series; it never decreases.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn counts(&self) -> Vec<(Series, u64)> {
        self.locks.counts()
    }

    /// How long attempts that won took, from before their first byte to the hand-over.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub const fn attempt_times(&self) -> &Histogram {
        self.locks.attempt_times()
    }

    /// How long calls took that won at a later attempt than their first, from the begin of that.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub const fn wait_times(&self) -> &Histogram {
        self.locks.wait_times()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("nodes", self.locks.nodes.names())
            .field("voters", &self.locks.nodes.voters())
            .field("in_flight", &self.locks.ops.in_flight())
            .field("slots", &self.locks.slots.in_use())
            .finish_non_exhaustive()
    }
}

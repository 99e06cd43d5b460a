//! The entry points of the engine, for a loop to call.

use std::sync::Arc;
use std::time::Duration;

use super::core::{Engine, Exchange};
use super::event::{Event, Notice};
#[cfg(feature = "metrics")]
use super::happenings::Happening;
use super::locks::core::{Done, Locks};
use super::locks::op::{OpId, OpKind};
use super::locks::prefix::Prefix;
use super::locks::settings::{Settings, name_of, nodes_of};
use super::locks::slot::LeaseId;
use super::locks::timers::Timer;
use super::nodes::Nodes;
use super::sets::Sets;
use super::wait::Waiting;
use crate::client_name::{ClientId, ClientName};
use crate::config::Config;
use crate::error::{Cause, ConfigError, DetachError, ExtendError, LockError, UnlockError};
use crate::generator::Generator;
use crate::node::{Connection, Node, Now};
use crate::options::LockOptions;
use crate::query::Query;
use crate::quorum::{NodeId, NodeMask};
use crate::retry::Retry;
use crate::rules;
use crate::slab::OpIndex;
use crate::time::{Instant, WallClock};

impl Engine {
    /// An engine over the nodes of `config`. `seed` must come from the operating system's generator
    /// (a fixed one is for tests): the engine draws tokens from it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a setting is out of its range.
    pub fn new(config: &Config, seed: [u8; 32], now: Instant) -> Result<Self, ConfigError> {
        let settings = Settings::of(config, &config.check()?);
        let mut random = Generator::from_seed(seed);
        let mut client_id = [0; 8];
        random.fill(&mut client_id);
        let client_id = ClientId::new(client_id);
        let names: Arc<[_]> = config.nodes.iter().map(|address| address.name().into()).collect();
        let name = name_of(config, client_id);
        let agreement = settings.agreement(&names, &config.key_prefix);
        let told = ClientName { agreement: Some(agreement), ..name.clone() }.to_string();
        let nodes = nodes_of(config, 0, (client_id, &told), now);
        let nodes = Nodes::new(nodes, names, (settings.admission, &settings.electorate), now);
        let drawn = (config.in_flight_max, client_id, random);
        let prefix = Prefix::new(&config.key_prefix);
        Ok(Self {
            locks: Locks::new(settings, nodes, prefix, drawn, name.to_string().into(), now),
            waiting: Waiting::new(client_id, config.node_timeout, settings.electorate),
            sets: Sets::default(),
            config: Box::new(config.clone()),
            exchange: Exchange::default(),
            is_acting: false,
            frame: Vec::new(),
        })
    }

    /// Sets how much may wait for each node. Call it only before the engine is used.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn limit(&mut self, room: crate::node::Room) {
        self.locks.nodes.limit(room);
    }

    /// Assumes that every node's clock agrees with the client's. Call it only before the engine is
    /// used.
    #[cfg(feature = "sim")]
    pub(crate) const fn trust_clocks(&mut self) {
        self.locks.settings.max_clock_skew_us = u64::MAX;
        self.locks.settings.no_fences = None;
    }

    // ---- operations ----

    /// Begins one attempt at the lock `key`. `now` is `t0`: a clock reading from just before this
    /// call. Nothing reaches a node before you send its [`output`](Self::output).
    ///
    /// # Errors
    ///
    /// The errors of [`LockError`] that concern the call itself; then the attempt did not begin.
    pub fn try_lock(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if options.retry.is_none() {
            return self.acquire(key, options, now);
        }
        self.acquire_retried(key, options, None, now)
    }

    /// Begins attempts at the lock `key` until one wins, as the `retry` of the options or of the
    /// configuration says. Otherwise like [`try_lock`](Self::try_lock).
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
            return self.acquire(key, options, now);
        }
        self.acquire_retried(key, options, Some(self.default_retry()), now)
    }

    /// Begins to take a lock: one attempt, unless the options have a `retry`.
    #[inline]
    pub(crate) fn acquire(
        &mut self,
        key: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, LockError> {
        self.check_if_small();
        let op = if options.is_special {
            self.acquire_special(key, options, now)
        } else {
            self.begin_call(key, options, now)
        };
        // Without the feature `metrics` the engine does not even test for an error here.
        #[cfg(feature = "metrics")]
        let op = op.inspect_err(|error| self.locks.observe(Happening::CallRefused { error }));
        op
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
        self.acquire(key, &LockOptions { retry, ..options.clone() }, now)
    }

    /// Cancels an operation. An acquisition ends as cancelled, and the engine releases its keys. An
    /// extension ends as cancelled too, but the commands that are written go on. A release and a
    /// query go on, and the engine reports them.
    pub fn cancel(&mut self, op: OpId, now: Instant) {
        match self.locks.ops.find(op) {
            Some(index) if self.locks.ops.at(index).kind == OpKind::Set => {
                self.cancel_set(index, now);
            }
            _ => self.cancel_call(op, now),
        }
        self.check_if_small();
    }

    /// Cancels every operation, as [`cancel`](Self::cancel) does.
    pub(crate) fn cancel_all(&mut self, now: Instant) {
        for op in self.locks.ops.ids() {
            self.cancel(op, now);
        }
    }

    /// Begins to move the end of `lease` to `ttl` from `now`, a clock reading from just before this
    /// call.
    ///
    /// # Errors
    ///
    /// The errors of [`ExtendError`] that concern the call itself; then the extension did not
    /// begin.
    pub fn extend(
        &mut self,
        lease: LeaseId,
        ttl: Duration,
        now: Instant,
    ) -> Result<OpId, ExtendError> {
        let op = if self.sets.leases(lease).is_empty() {
            self.locks.extend(lease, ttl, now)
        } else {
            self.extend_set(lease, ttl, now)
        };
        self.check_if_small();
        op
    }

    /// Begins to take over the lock of a key and token, by extending it to the TTL of the options.
    /// Of the other options only keep-alive, announced and fence apply: they concern the lease
    /// itself.
    ///
    /// # Errors
    ///
    /// The errors of [`ExtendError`] that concern the call itself; then the extension did not
    /// begin.
    pub fn adopt(
        &mut self,
        key: &[u8],
        token: &[u8],
        options: &LockOptions,
        now: Instant,
    ) -> Result<OpId, ExtendError> {
        let op = self.locks.adopt(key, token, options, now);
        self.check_if_small();
        op
    }

    /// Releases a lease and reports the result.
    ///
    /// # Errors
    ///
    /// [`UnlockError::NotOurs`] if the lease is no longer held. [`UnlockError::Full`] if the engine
    /// cannot report the result; it still releases the lease.
    pub fn unlock(&mut self, lease: LeaseId, now: Instant) -> Result<OpId, UnlockError> {
        let op = if self.sets.leases(lease).is_empty() {
            self.unlock_key(lease, now)
        } else {
            self.unlock_set(lease, now)
        };
        self.check_if_small();
        op
    }

    /// Deletes `key` on every node where it holds `token`. The engine also tells the client that
    /// drew the token, at the cost of one PUBLISH at one node. If that client keeps the lease
    /// alive, it extends the lease at once, and so learns of the loss.
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
        let op = op.inspect(|&op| self.locks.conclude_release(op));
        self.check_if_small();
        op
    }

    /// Releases a lease without a report: no caller waits for the answers. Harmless if the lease is
    /// no longer held.
    pub fn release(&mut self, lease: LeaseId, now: Instant) {
        if self.sets.leases(lease).is_empty() {
            self.release_key(lease, now);
        } else {
            self.release_set(lease, now);
        }
        self.check_if_small();
    }

    /// Forgets an adopted lease that the process which gave it away may still hold. It deletes no
    /// key of the lease, only this client's claims.
    pub(crate) fn leave(&mut self, lease: LeaseId, now: Instant) {
        for key in self.forget_lease(lease) {
            self.withdraw_claim(key, now);
            self.give_up_key(key);
        }
        self.check_if_small();
    }

    /// Gives a lease away: its keys stay, and any client with key and token may release or extend
    /// it. From then on this engine writes no command that changes a key by that token.
    ///
    /// # Errors
    ///
    /// [`DetachError::Unsettled`] while a node may still run a delete or an extension that names
    /// the token; [`DetachError::NotOurs`]. The lease stays as it is.
    pub fn detach(&mut self, lease: LeaseId) -> Result<(), DetachError> {
        let keys = self.sets.leases(lease);
        let keys = if keys.is_empty() { &[lease] } else { keys };
        keys.iter().try_for_each(|&key| self.locks.may_detach(key))?;
        for key in self.forget_lease(lease) {
            self.give_up_key(key);
        }
        self.check_if_small();
        Ok(())
    }

    /// Puts the query to every connected node.
    pub(crate) fn query(&mut self, query: &Query, now: Instant) -> Result<OpId, LockError> {
        self.locks.query(query, now)
    }

    // ---- inputs ----

    /// Whether the engine waits for a connection to the node.
    #[must_use]
    pub(crate) fn wants_connection(&self, id: NodeId) -> bool {
        self.locks.nodes.wants_connection(id)
    }

    /// Whether the engine reads the node's bytes: false once it has given up the connection.
    #[must_use]
    pub(crate) fn is_connected(&self, id: NodeId) -> bool {
        self.locks.nodes.get(id).is_some_and(Node::is_connected)
    }

    /// The connection is made and its TLS handshake is under way, or the driver goes on to another
    /// address. The cause of a timeout depends on it.
    #[cfg(feature = "tls")]
    pub(crate) fn handle_securing(&mut self, id: NodeId, is_securing: bool) {
        if self.locks.nodes.awaits_connection(id) {
            self.locks.nodes.at_mut(id).is_securing = is_securing;
        }
    }

    /// Whether the node is connected and has not sent a byte yet.
    pub(crate) fn is_mute(&self, id: NodeId) -> bool {
        self.locks.nodes.get(id).is_some_and(|node| node.is_mute)
    }

    /// Whether the node has completed the greeting on its connection and is fit for locks.
    pub(crate) fn serves(&self, id: NodeId) -> bool {
        self.locks.nodes.get(id).is_some_and(Node::serves)
    }

    /// Whether you have set the wall clock. From then on, set it in every pass.
    #[must_use]
    pub const fn uses_wall_clock(&self) -> bool {
        self.locks.wall.is_some()
    }

    /// Tells the engine that the wall clock shows `micros` microseconds since 1970 at `now`. Call
    /// it before each call that takes a fenced or announced lock, and in each pass from then on.
    /// Nothing else depends on the wall clock.
    pub fn set_wall_clock(&mut self, micros: u64, now: Instant) {
        self.locks.wall = Some(WallClock { read_at: now, micros, error: 0 });
    }

    /// The connection that [`poll_connection`](Self::poll_connection) asked for is open.
    pub fn handle_connected(&mut self, id: NodeId, now: Instant) {
        if self.locks.nodes.awaits_connection(id) {
            let now = self.locks.called_at(now);
            self.locks.nodes.at_mut(id).handle_connected(now);
            self.refresh(id, now);
            self.check_if_small();
        }
    }

    /// The connection is lost, or the attempt at it failed. Open votes on it become unknown, and
    /// unanswered releases become debts.
    pub fn handle_lost(&mut self, id: NodeId, cause: Cause, now: Instant) {
        if self.is_connected(id) || self.wants_connection(id) {
            let now = self.locks.called_at(now);
            self.lose(id, cause, now);
            self.refresh(id, now);
            self.check_if_small();
        }
    }

    /// The node sent these bytes. Any split of its stream gives the same result. Read `now` after
    /// the bytes: ages and remaining times in them count from it. With an earlier clock reading a
    /// restarted node would vote too soon.
    pub fn handle_bytes(&mut self, id: NodeId, bytes: &[u8], now: Instant) {
        self.read(id, bytes, now);
        self.check_read(bytes);
    }

    /// Ends a pass over the sockets, after you have handed in their bytes: does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.locks.last_pass = now;
        let now = self.locks.called_at(now);
        if self.locks.nodes.needs_care(now) {
            self.look_after_nodes(now);
        }
        while let Some((index, round_ends)) = self.locks.ops.first_judged() {
            if rules::has_time_left(round_ends, now.attended) {
                break;
            }
            self.judge(index, now);
        }
        if self.locks.timers.next() <= now.real {
            self.handle_timers(now);
        }
        if self.is_exchanging() {
            self.exchange_if_ready(now);
        }
        self.check_if_small();
    }

    /// Does what is due for the nodes themselves.
    #[cold]
    fn look_after_nodes(&mut self, now: Now) {
        for id in self.locks.nodes.every() {
            if self.locks.nodes.at(id).is_quiet(now) {
                continue;
            }
            if let Some(cause) = self.locks.nodes.at_mut(id).handle_timeout(now) {
                self.drop_connection(id, cause, now);
            }
            self.refresh(id, now);
        }
        self.locks.nodes.cared_for(now);
    }

    #[cold]
    fn handle_timers(&mut self, now: Now) {
        while let Some(timer) = self.locks.timers.pop_due(now.real) {
            match timer {
                Timer::Retry(op) if self.locks.ops.at(op).kind == OpKind::Set => {
                    self.ask_again(op, now);
                }
                Timer::Retry(op) => self.retry_due(op, now),
                Timer::Wait(op) => self.wait_due(op, now),
                Timer::Judge(op) => self.judge(op, now),
                Timer::Offers => self.locks.sweep_offers(now),
                Timer::Lists => self.lists_settled(now),
                Timer::Extended(op) => self.locks.keep_alive_ended(op, now),
                Timer::Keep(keep) => self.locks.keep_due(keep, now),
            }
        }
    }

    // ---- outputs ----

    /// The next result, which is never a lease whose deadline has passed at `now`.
    pub fn poll_event(&mut self, now: Instant) -> Option<Event> {
        if self.sets.is_used { self.poll_with_sets(now) } else { self.poll_done(now) }
    }

    #[cold]
    fn poll_with_sets(&mut self, now: Instant) -> Option<Event> {
        loop {
            let event = self.poll_done(now)?;
            if let Some(event) = self.gather(event, now) {
                return Some(event);
            }
        }
    }

    /// The next result of an operation on one key, or of a whole set.
    #[inline(never)]
    fn poll_done(&mut self, now: Instant) -> Option<Event> {
        self.check_if_small();
        while let Some(done) = self.locks.done.pop_front() {
            let index = match done {
                Done::Op(index) => index,
                // The caller may have released the lease meanwhile.
                Done::Loss { lease, .. } if self.locks.slots.held(lease).is_none() => continue,
                Done::Loss { op, lease, cause } => return Some(Event::Lost { op, lease, cause }),
            };
            let kind = self.locks.ops.at(index).kind;
            match kind {
                OpKind::Acquire if !self.is_hand_over_late(index, now) => {
                    return Some(self.report_acquire(index, now));
                }
                OpKind::Extend | OpKind::Adopt => return Some(self.report_extend(index, now)),
                OpKind::Release => {
                    self.tell_of_removal(index, now);
                    return Some(self.locks.report_release(index));
                }
                OpKind::Query => return Some(self.locks.report_query(index)),
                OpKind::Set => {
                    if let Some(event) = self.report_set(index, now) {
                        return Some(event);
                    }
                }
                OpKind::Acquire | OpKind::Keep | OpKind::Free => {}
            }
        }
        None
    }

    /// Takes the result of an extension.
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

    /// The next connection to open or close.
    pub fn poll_connection(&mut self) -> Option<(NodeId, Connection)> {
        self.locks.nodes.poll_wish()
    }

    /// The nodes that have bytes to send.
    #[must_use]
    #[inline]
    pub const fn nodes_with_output(&self) -> NodeMask {
        self.locks.nodes.with_output()
    }

    /// The nodes that have bytes to send, in two groups to write one after the other. Nodes whose
    /// output wakes a waiter come last. The waiter asks all nodes at once, and a node that does not
    /// have the release yet would deny it.
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

    /// Hands the bytes that wait for the sockets of `nodes` to `write`, which returns how many
    /// bytes the socket took. It is [`output`](Self::output) and [`handle_sent`](Self::handle_sent)
    /// in one.
    #[inline]
    pub fn drain_output(&mut self, nodes: NodeMask, write: impl FnMut(NodeId, &[u8]) -> usize) {
        self.locks.nodes.drain_output(nodes, write);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.has_event() { Some(self.locks.last_pass) } else { self.next_due() }
    }

    /// As [`next_deadline`](Self::next_deadline), but ignores results that wait to be taken.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.locks.next_due()
    }

    /// The next lease that changed by itself. Its deadline moved, because the engine extended the
    /// lease, began to extend it, or lost it. Or a late answer changed its votes, or another client
    /// says that it deleted the keys. The list holds each lease once, so even unread it is never
    /// longer than the leases.
    pub fn poll_change(&mut self) -> Option<LeaseId> {
        std::iter::from_fn(|| self.locks.poll_change()).find_map(|lease| self.sets.known_as(lease))
    }

    /// The next notice to people about a node. The engine keeps the last notice of each node until
    /// you take it.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        let (node, cause) = self.locks.nodes.poll_news()?;
        Some(Notice::new(node, cause, self.locks.nodes.names()))
    }

    /// The last notice about a node.
    #[cfg(feature = "tracing")]
    pub(crate) fn last_notice(&self, node: NodeId) -> Option<Notice> {
        let cause = self.locks.nodes.get(node)?.trouble.told;
        Some(Notice::new(node, cause, self.locks.nodes.names()))
    }

    // ---- time ----

    /// From now on the engine draws tokens from fresh randomness; the client's id stays.
    pub(crate) fn reseed(&mut self, seed: [u8; 32]) {
        self.locks.random = Generator::from_seed(seed);
    }

    /// The client is about to wait for the nodes to which it owes releases. Each of them that is
    /// away gets one attempt to connect at once, and counts as on its way until that has failed.
    pub(crate) fn reach_owed(&mut self, now: Instant) {
        self.locks.nodes.reach_owed(now);
    }

    /// The client is about to end: from now on it hands no lock over. A hand-over needs a second step
    /// if a node refuses the script, or if no waiter hears of it.
    pub fn begin_close(&mut self) {
        let settings = &mut self.locks.settings;
        (settings.is_closing, settings.transfers_in_row) = (true, 0);
        if rules::leaves_at_end(true) {
            self.locks.leave_transfers(self.locks.both_clocks(self.locks.last_call));
        }
        self.check_if_small();
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

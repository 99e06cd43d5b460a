//! The work of the clients: each client has some tasks, and each task has one lock at a time.

use super::client::SimClient;
use super::clock::{Global, MS};
use super::counts::Path;
use super::sets::SLOTTED;
use super::world::{Offer, Phase, World};
use crate::client::front::{FrontLease, Ticket};
use crate::engine::{LeaseId, OpId};
use crate::error::{ExtendError, LockError};
use crate::options::LockOptions;
use crate::retry::Retry;
use crate::rules::Kind;
use crate::time::Instant;

use std::time::Duration;

/// One thread of work of a client.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) state: TaskState,
    /// When it goes on by itself.
    pub(super) next_at: Global,
    pub(super) key: usize,
    /// The keys that it locks with this one, all behind it in order.
    pub(super) more: Vec<usize>,
    pub(super) op: Option<OpId>,
    /// Its call, and its lease, where its client's callers share a table.
    pub(super) call: Option<Ticket>,
    pub(super) held: Option<FrontLease>,
    pub(super) lease: Option<LeaseId>,
    /// The name of this holding, for the oracle.
    pub(super) holder: u64,
    pub(super) min_validity: Duration,
    /// The deadline that a quorum last gave its lease.
    pub(super) deadline: Option<Instant>,
    /// The deadline that its holder was last told.
    pub(super) told: Option<Instant>,
    /// When the first round of its lease began, and how many extensions won since.
    pub(super) first: Instant,
    pub(super) extensions: u32,
    /// The text that a question sends, and that comes back in the answer.
    pub(super) question: Vec<u8>,
    /// The deadline before the extension under way.
    pub(super) old_deadline: Instant,
    pub(super) is_retried: bool,
    /// When the call began. For a lease, when the round began that set its deadline.
    pub(super) began: Global,
    /// The TTL of the last round of the lease.
    pub(super) ttl_ms: u64,
    /// When the call under way must have ended, on the client's clock, and how long the client had
    /// stood still in all when it began. Each round lasts longer by the time in which the client
    /// does not read.
    pub(super) ends: Instant,
    pub(super) stood: Global,
    /// The engine keeps the lease alive.
    pub(super) is_kept: bool,
    /// The tokens that are being unlocked.
    pub(super) released: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    Idle,
    Acquiring,
    Holding,
    Extending,
    Releasing,
    Adopting,
    Unlocking,
    Querying,
}

impl Task {
    pub(super) fn new(next_at: Global) -> Self {
        Self {
            state: TaskState::Idle,
            next_at,
            key: 0,
            more: Vec::new(),
            op: None,
            call: None,
            held: None,
            lease: None,
            holder: 0,
            min_validity: Duration::ZERO,
            deadline: None,
            told: None,
            first: Instant::default(),
            extensions: 0,
            question: Vec::new(),
            old_deadline: Instant::default(),
            is_retried: false,
            is_kept: false,
            released: Vec::new(),
            ends: Instant::MAX,
            stood: 0,
            began: 0,
            ttl_ms: 0,
        }
    }
}

/// The name of a key.
pub(super) fn key_name(key: usize) -> Vec<u8> {
    // One name is longer than the names that an engine keeps in place.
    if key == 2 { vec![b'k'; 60] } else { vec![b'k', b'0' + key as u8] }
}

impl World {
    /// A task's time has come. `now` is what its client has read on its clock.
    pub(super) fn begin(&mut self, client: usize, task: usize, now: Instant) {
        self.changed();
        self.check_ground(client, task);
        if self.calls_out_of_turn(client, task, now) {
            return;
        }
        self.clients[client].tasks[task].next_at = Global::MAX;
        let state = self.clients[client].tasks[task].state;
        match (state, self.phase) {
            (TaskState::Idle, Phase::Safety) => self.begin_something(client, task, now),
            (TaskState::Idle, Phase::Progress) => self.begin_goal(client, task, now),
            (TaskState::Idle, Phase::Settling | Phase::Done) => {}
            (TaskState::Acquiring, _) => {
                self.gives_up(client, task, now);
                if let Some(op) = self.clients[client].tasks[task].op {
                    self.clients[client].engine.cancel(op, now);
                }
            }
            (TaskState::Holding, Phase::Safety) => self.go_on(client, task, now),
            (TaskState::Holding, _) => self.release(client, task, now),
            (TaskState::Extending, _) => self.disturb_extension(client, task, now),
            (
                TaskState::Releasing
                | TaskState::Adopting
                | TaskState::Unlocking
                | TaskState::Querying,
                _,
            ) => {}
        }
    }

    fn begin_something(&mut self, client: usize, task: usize, now: Instant) {
        if self.plan.hand_over {
            return self.begin_turn(client, task, now);
        }
        if let Some(offer) = self.some_offer(client) {
            return self.take_over(client, task, &offer, now);
        }
        if self.unlocks_own(client, task, now) || self.asks(client, task, now) {
            return;
        }
        let key = self.some_key(client);
        let mut ttl_ms = self.plan.ttl_ms(client, &mut self.random);
        let is_invalid = self.random.chance(10);
        if is_invalid {
            ttl_ms = self.plan.max_ttl_of(client) + 1;
        }
        let mut acquire = LockOptions::new(Duration::from_millis(ttl_ms));
        let mut min_validity = Duration::ZERO;
        if self.random.chance(200) {
            min_validity = Duration::from_millis(self.random.between(0, ttl_ms));
            acquire = acquire.min_validity(min_validity);
        }
        let is_retried = self.random.chance(500);
        if is_retried {
            let retry = self.plan.retry(&mut self.random);
            acquire = acquire.retry(retry).direct_wake(self.random.chance(500));
        }
        if self.random.chance(100) {
            acquire = acquire.timeout(Duration::from_nanos(self.random.below(self.plan.gap)));
        }
        let is_campaign = self.campaigns();
        let is_kept = is_campaign || self.plan.kept > 0 && self.random.chance(self.plan.kept);
        if is_kept {
            acquire = acquire.keep_alive();
        }
        if is_campaign {
            acquire = acquire.announced();
        }
        if self.random.chance(self.plan.unwoken) {
            acquire = acquire.direct_wake(false);
        }
        if self.random.chance(self.plan.fenced) {
            acquire = acquire.fenced();
        }
        let acquire = self.lingering(acquire);
        let (key, more) = self.some_more(client, key);
        let this = &mut self.clients[client].tasks[task];
        (this.is_retried, this.is_kept, this.more) = (is_retried, is_kept, more);
        self.acquire(client, task, key, &acquire, min_validity, now);
        if is_invalid {
            let is_refused = self.clients[client].tasks[task].state == TaskState::Idle;
            self.oracle.check(Kind::LimitIgnored, is_refused, || {
                format!("a TTL of {ttl_ms} ms was not refused")
            });
        } else if self.random.chance(60) {
            let after = self.random.below(self.plan.node_timeout);
            self.clients[client].tasks[task].next_at = self.now + after;
        }
    }

    /// A lease that another client gave away, if this client wants it.
    fn some_offer(&mut self, client: usize) -> Option<Offer> {
        let keys = self.plan.keys_of(client);
        let is_for = |offer: &Offer| offer.from != client && keys.contains(&offer.key);
        let place = self.offers.iter().position(is_for)?;
        self.random.chance(600).then(|| self.offers.swap_remove(place))
    }

    /// The lock may linger for up to its TTL.
    pub(super) fn lingering(&mut self, acquire: LockOptions) -> LockOptions {
        if self.plan.lingers == 0 || !self.random.chance(self.plan.lingers) {
            return acquire;
        }
        let limit = self.random.between(1, self.plan.max_ttl_ms);
        let lingering = acquire.clone().linger(Duration::from_millis(limit));
        let may_linger = lingering.check_linger(true, self.plan.is_bounded()).is_ok();
        if may_linger { lingering } else { acquire }
    }

    pub(super) fn acquire(
        &mut self,
        client: usize,
        task: usize,
        key: usize,
        acquire: &LockOptions,
        min_validity: Duration,
        now: Instant,
    ) {
        self.look_at_the_wall(client);
        let name = self.plan.plain(key);
        let joined = self.joins(client, &name, acquire, now);
        let result = match joined {
            Some(joined) => joined.map(|ticket| (None, Some(ticket))),
            None => {
                let this = &mut self.clients[client];
                let more = this.tasks[task].more.iter().map(|key| self.plan.plain(*key));
                let mut names: Vec<Vec<u8>> = more.collect();
                let begun = if self.plan.slots {
                    let options = self.of_slots(acquire, !names.is_empty());
                    let engine = &mut self.clients[client].engine;
                    engine.acquire(SLOTTED.as_bytes(), &options, now)
                } else if names.is_empty() {
                    this.engine.acquire(&name, acquire, now)
                } else {
                    names.push(name);
                    this.engine.acquire_all(&names, acquire.clone(), now)
                };
                begun.map(|op| (Some(op), None))
            }
        };
        self.log(|_| format!("client {client} acquires {key} at {now:?}: {result:?}"));
        let pause = self.gap();
        let (began, at) = (self.now, self.now + pause);
        match result {
            Ok((op, call)) => {
                let ends = self.end_of(acquire, now);
                self.begun(client, task, TaskState::Acquiring, op, ends);
                self.counts.attempts += 1;
                let this = &mut self.clients[client].tasks[task];
                this.key = key;
                this.min_validity = min_validity;
                this.began = began;
                this.ttl_ms = acquire.ttl.as_millis() as u64;
                this.call = call;
                if op.is_some() {
                    self.call_began(client, task, key);
                }
                self.take_ended(client, now);
            }
            Err(error) => {
                self.clients[client].tasks[task].next_at = at;
                match error {
                    LockError::Full => self.counts.path(Path::Full),
                    LockError::InvalidTtl { .. } => self.counts.path(Path::InvalidTtl),
                    // Another call of the client has the lock.
                    LockError::Taken(_) if self.plan.lingers > 0 => self.counts.path(Path::Taken),
                    LockError::Closed if self.clients[client].closing.is_some() => {}
                    other => self.oracle.fail(Kind::OddError, || format!("acquire: {other}")),
                }
            }
        }
    }

    /// The next key that the client must lock in the end.
    fn begin_goal(&mut self, client: usize, task: usize, now: Instant) {
        let Some(&key) = self.clients[client].goals.last().filter(|_| task == 0) else { return };
        let keys = self.plan.keys_of(client);
        // A set needs room for each of its keys.
        let is_set = self.plan.sets > 0 && self.plan.in_flight_max > 4;
        let all = if is_set { keys } else { key..key + 1 };
        let delay = Duration::from_nanos(self.plan.guard() / 150);
        let acquire = LockOptions::new(Duration::from_millis(self.plan.max_ttl_of(client)));
        let acquire = acquire.retry(Retry::every(delay, delay));
        let this = &mut self.clients[client].tasks[task];
        this.is_kept = false;
        this.more = all.clone().skip(1).collect();
        self.acquire(client, task, all.start, &acquire, Duration::ZERO, now);
    }

    /// A task holds a lease: chooses its next step.
    fn go_on(&mut self, client: usize, task: usize, now: Instant) {
        if self.plan.hand_over {
            return match self.random.below(4) {
                0 => self.release_quietly(client, task, now),
                1 => self.drop_lease(client, task, now),
                _ => self.release(client, task, now),
            };
        }
        let lease = self.clients[client].tasks[task].lease;
        let is_over = lease
            .is_none_or(|lease| self.clients[client].engine.remaining_at(lease, now).is_zero());
        if self.plan.rare.gives_away > 0
            && !is_over
            && self.random.chance(self.plan.rare.gives_away)
            && self.give_away(client, task)
        {
            return;
        }
        match self.random.below(if is_over { 4 } else { 20 }) {
            0 | 1 => self.release(client, task, now),
            2 => self.release_quietly(client, task, now),
            4..=6 => self.release(client, task, now),
            7 => self.drop_lease(client, task, now),
            8 if self.give_away(client, task) => {}
            _ => self.extend(client, task, now),
        }
    }

    fn extend(&mut self, client: usize, task: usize, now: Instant) {
        let least_ttl_ms = (self.plan.max_ttl_of(client) / 4).max(8);
        let this = &mut self.clients[client];
        let Some(lease) = this.tasks[task].lease else { return };
        let is_over = this.engine.remaining_at(lease, now).is_zero();
        let old_deadline = this.engine.deadline(lease);
        let is_short = self.random.chance(400);
        let ttl_ms =
            if is_short { least_ttl_ms } else { self.plan.ttl_ms(client, &mut self.random) };
        let ttl = Duration::from_millis(ttl_ms);
        let result = match (&mut this.front, &this.tasks[task].held) {
            (Some(front), Some(held)) => front.extend(&mut this.engine, held, ttl, now),
            _ => this.engine.extend(lease, ttl, now),
        };
        self.log(|_| format!("client {client} extends by {ttl_ms} at {now:?}: {result:?}"));
        match result {
            Ok(op) => {
                self.oracle.check(Kind::LimitIgnored, !is_over, || {
                    "a lease that is over can be extended".to_owned()
                });
                let patience = self.plan.node_timeout;
                let disturbed = self.random.chance(100).then(|| self.random.below(patience));
                self.begun(client, task, TaskState::Extending, op, now + self.round_time());
                let this = &mut self.clients[client];
                for token in this.tokens(lease) {
                    self.claims.asked(&token, ttl_ms);
                }
                let this = &mut this.tasks[task];
                this.ttl_ms = ttl_ms;
                this.old_deadline = old_deadline.unwrap_or_default();
                this.next_at = disturbed.map_or(Global::MAX, |after| self.now + after);
                self.told_deadline(client, task);
            }
            Err(error) => {
                match error {
                    ExtendError::Expired if is_over => self.counts.path(Path::ExtendRefused),
                    ExtendError::Full => self.counts.path(Path::Full),
                    ExtendError::LimitReached if self.plan.is_bounded() => {
                        self.counts.path(Path::LimitReached);
                    }
                    other => self.oracle.fail(Kind::OddError, || format!("extend: {other}")),
                }
                self.hold_on(client, task);
            }
        }
    }

    /// An extension is under way: its holder does something else all the same.
    fn disturb_extension(&mut self, client: usize, task: usize, now: Instant) {
        let this = &mut self.clients[client];
        let (Some(lease), Some(op)) = (this.tasks[task].lease, this.tasks[task].op) else { return };
        match self.random.below(4) {
            0 => {
                let longest = Duration::from_millis(self.plan.max_ttl_of(client));
                let again = this.engine.extend(lease, longest, now);
                let is_busy = matches!(again, Err(ExtendError::Busy));
                self.oracle.check(Kind::LimitIgnored, is_busy, || {
                    format!("a second extension: {again:?}")
                });
                self.counts.path(Path::ExtendBusy);
            }
            1 => this.engine.cancel(op, now),
            2 => self.release(client, task, now),
            _ => self.drop_lease(client, task, now),
        }
    }

    pub(super) fn release(&mut self, client: usize, task: usize, now: Instant) {
        self.lets_go(client, task);
        if self.unlocks(client, task, now) {
            return;
        }
        let this = &mut self.clients[client];
        let Some(lease) = this.tasks[task].lease.take() else { return };
        this.tasks[task].released = this.tokens(lease);
        let result = this.engine.unlock(lease, now);
        self.log(|_| format!("client {client} releases at {now:?}: {result:?}"));
        self.check_over(client, lease);
        match result {
            Ok(op) => {
                let ends = now + Duration::from_nanos(self.plan.node_timeout);
                self.begun(client, task, TaskState::Releasing, op, ends);
            }
            Err(_) => {
                self.counts.path(Path::Full);
                self.idle(client, task);
            }
        }
    }

    fn release_quietly(&mut self, client: usize, task: usize, now: Instant) {
        self.lets_go(client, task);
        self.drops(client, task, now);
        let this = &mut self.clients[client];
        if let Some(lease) = this.tasks[task].lease.take() {
            this.engine.release(lease, now);
            self.check_over(client, lease);
        }
        self.counts.path(Path::Dropped);
        self.idle(client, task);
        self.turn_table(client, now);
    }

    pub(super) fn drop_lease(&mut self, client: usize, task: usize, now: Instant) {
        self.lets_go(client, task);
        self.drops(client, task, now);
        let this = &mut self.clients[client];
        this.dropped.extend(this.tasks[task].lease.take());
        self.counts.path(Path::Dropped);
        self.idle(client, task);
    }

    /// Gives key and token to any client that wants them. Until the deadline no other client may
    /// have the lock. Returns false if the lease cannot be given away, because an earlier command
    /// may still run at a node.
    fn give_away(&mut self, client: usize, task: usize) -> bool {
        let this = &mut self.clients[client];
        let Some(lease) = this.tasks[task].lease else { return false };
        let tokens = this.tokens(lease);
        if this.engine.detach(lease).is_err() {
            self.counts.path(Path::DetachRefused);
            return false;
        }
        let SimClient { front, tasks, .. } = &mut self.clients[client];
        tasks[task].lease = None;
        if let (Some(front), Some(held)) = (front, tasks[task].held.take()) {
            front.give_away(held);
        }
        let this = &self.clients[client].tasks[task];
        let (keys, holder) = (this.keys(), this.holder);
        for (key, token) in keys.into_iter().zip(tokens) {
            self.ledger.given_away(&token);
            self.given_away.push(token.clone());
            self.offers.push(Offer { from: client, key, token, holder });
        }
        self.counts.path(Path::Detached);
        self.idle(client, task);
        true
    }

    /// Takes over a lease that another client gave away, to hold it or to unlock it.
    pub(super) fn take_over(&mut self, client: usize, task: usize, offer: &Offer, now: Instant) {
        let key = self.plan.plain(offer.key);
        let ttl_ms = self.plan.ttl_ms(client, &mut self.random);
        let ttl = Duration::from_millis(ttl_ms);
        self.ledger.named(client, &offer.token);
        let is_adopted = self.random.chance(800);
        let is_campaign = is_adopted && self.campaigns();
        let is_kept = is_adopted && self.random.chance(self.plan.kept) || is_campaign;
        let mut acquire = LockOptions::new(ttl);
        if is_kept {
            acquire = acquire.keep_alive();
        }
        if is_campaign {
            acquire = acquire.announced();
        }
        let engine = &mut self.clients[client].engine;
        let (state, op) = if is_adopted {
            (TaskState::Adopting, engine.adopt(&key, &offer.token, &acquire, now).ok())
        } else {
            (TaskState::Unlocking, engine.unlock_token(&key, &offer.token, now).ok())
        };
        self.log(|_| format!("client {client} takes {} over: {state:?} {op:?}", offer.key));
        let Some(op) = op else {
            self.counts.path(Path::Full);
            if !is_adopted {
                // It is released all the same.
                self.oracle.stop(offer.holder, offer.key, self.now);
            }
            return self.idle(client, task);
        };
        self.clients[client].tasks[task].released = vec![offer.token.clone()];
        let holder = offer.holder;
        let ends = if is_adopted {
            // The adoption may shorten the lease.
            let end = now + Duration::from_millis(ttl_ms - self.drift_ms(ttl_ms));
            let end = self.clients[client].clock.global(end);
            self.oracle.stop(holder, offer.key, end);
            now + self.round_time()
        } else {
            self.oracle.stop(holder, offer.key, self.now);
            now + Duration::from_nanos(self.plan.node_timeout)
        };
        self.begun(client, task, state, op, ends);
        let this = &mut self.clients[client].tasks[task];
        this.is_kept = is_kept;
        (this.key, this.more) = (offer.key, Vec::new());
        this.holder = holder;
        this.ttl_ms = ttl_ms;
        this.min_validity = Duration::ZERO;
    }

    /// An operation is under way, which must have ended by `ends`.
    pub(super) fn begun(
        &mut self,
        client: usize,
        task: usize,
        state: TaskState,
        op: impl Into<Option<OpId>>,
        ends: Instant,
    ) {
        let stood = self.clients[client].stood_before;
        let this = &mut self.clients[client].tasks[task];
        (this.state, this.op) = (state, op.into());
        (this.ends, this.stood) = (ends, stood);
    }

    // ---- what the oracle is told ----

    /// The holder looks at its deadline.
    pub(super) fn told_deadline(&mut self, client: usize, task: usize) {
        let this = &self.clients[client];
        let place = &this.tasks[task];
        let (holder, keys) = (place.holder, place.keys());
        let deadline = place.lease.and_then(|lease| this.engine.deadline(lease));
        let end = deadline.map_or(0, |deadline| this.clock.global(deadline));
        let tokens = place.lease.map(|lease| this.tokens(lease)).unwrap_or_default();
        self.log(|_| format!("client {client} holds {keys:?} as {holder} until {end}"));
        self.clients[client].tasks[task].told = deadline;
        for (nth, key) in keys.into_iter().enumerate() {
            let is_forced = tokens.get(nth).is_some_and(|token| self.ledger.is_forced(token));
            self.oracle.hold(holder, key, self.now, if is_forced { self.now } else { end });
        }
    }

    /// The holder stops using the lock.
    pub(super) fn lets_go(&mut self, client: usize, task: usize) {
        let place = &self.clients[client].tasks[task];
        let (holder, keys) = (place.holder, place.keys());
        for key in keys {
            self.oracle.stop(holder, key, self.now);
            self.turn_ended(client, key);
        }
    }

    pub(super) fn idle(&mut self, client: usize, task: usize) {
        self.call_ended(client, task);
        let at = self.now + self.gap();
        let this = &mut self.clients[client].tasks[task];
        this.state = TaskState::Idle;
        this.op = None;
        this.lease = None;
        this.next_at = at;
    }

    /// The lock is held for some time from now on.
    pub(super) fn hold_on(&mut self, client: usize, task: usize) {
        let hold = self.plan.hold;
        let hold = match (self.phase, self.random.below(10)) {
            (Phase::Safety, _) if self.plan.hand_over => self.random.between(hold / 2, hold),
            (Phase::Safety, 0) => self.plan.max_ttl_ms * MS * self.random.between(5, 12) / 10,
            (Phase::Safety, 1..=3) => hold / 8,
            (Phase::Safety, _) => self.random.between(hold / 4, hold * 2),
            _ => hold / 20,
        };
        self.clients[client].tasks[task].next_at = self.now + hold;
    }

    fn gap(&mut self) -> Global {
        match self.random.below(4) {
            0 => self.random.below(self.plan.gap / 8 + 1),
            _ => self.random.between(self.plan.gap / 4, self.plan.gap * 2),
        }
    }
}

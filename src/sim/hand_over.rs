//! Turns, in seeds that only lost messages disturb. A held lock goes from one waiter to the next by
//! a wake, and in the order in which they came.
//!
//! # Oracles
//!
//! - While a call waits, the key is free for less than [`FREE_MAX`]. A lost wake would cost a poll
//!   of 10 ms or 100 ms at least. Where messages are lost, or waiters have raced for the key, the
//!   limit is [`FREE_AFTER_RACE_MAX`]. Such waiters may have told each other instead of the holder.
//! - No call overtakes another call that began earlier by more than some latencies, unless messages
//!   are lost. The judge excuses the calls that waited when a newcomer found the key free: the
//!   newcomer may win, and mix their order. A client that has just released the key is no newcomer.
//!   The judge also excuses the waiters of a key when one of them gives up, or just has. That call
//!   wakes the waiters on its list, although some may stand on another list by then.

use super::clock::{Global, MS};
use super::world::{Phase, World};
use crate::options::LockOptions;
use crate::retry::Retry;
use crate::rules::Kind;
use crate::time::Instant;

use std::time::Duration;

/// How long a key may be free while a call waits for it.
const FREE_MAX: Global = 8 * MS;

/// How often calls may be overtaken in one seed of some sixty turns. A call that is announced
/// through clients that wait themselves may stand in two lists, or behind later calls.
const OVERTAKEN_MAX: u64 = 2;

/// How long the key may be free after waiters have raced for it. This covers a safety poll, or the
/// poll of a call that no holder hears and that one node denied, and what follows.
const FREE_AFTER_RACE_MAX: Global = 350 * MS;
/// The same where a lock lingers. A waiter that no holder heard sees a holder, and announces itself
/// again after the poll that sees the same holder.
const LINGERS_AFTER_RACE_MAX: Global = 600 * MS;

/// A call that waits.
#[derive(Clone, Copy, Debug)]
struct SimCall {
    client: usize,
    task: usize,
    key: usize,
    began: Global,
    is_excused: bool,
    /// Another waiter gave up meanwhile: its place may go to a waiter on its list.
    may_be_overtaken: bool,
}

/// What last happened to a key.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    is_held: bool,
    free_since: Global,
    releaser: Option<usize>,
    /// The client whose call gave up last, and until when a new call may find others woken by that.
    stirred: Option<(usize, Global)>,
}

/// The waiters of each key, and since when they wait.
#[derive(Debug)]
pub(super) struct Turns {
    calls: Vec<SimCall>,
    overtaken: u64,
    keys: Vec<Turn>,
}

impl Turns {
    pub(super) fn new(keys: usize) -> Self {
        Self { calls: Vec::new(), overtaken: 0, keys: vec![Turn::default(); keys] }
    }
}

impl World {
    /// Begins a call in a seed about turns: it waits for its lock.
    pub(super) fn begin_turn(&mut self, client: usize, task: usize, now: Instant) {
        let key = task % self.plan.keys;
        let hold = self.plan.hold;
        let patience =
            if self.random.chance(100) { self.random.between(MS, 8 * hold) } else { 3000 * MS };
        let retry = Retry::every(Duration::from_millis(2), Duration::from_millis(1));
        let mut acquire = LockOptions::new(Duration::from_millis(self.plan.max_ttl_ms))
            .retry(retry.timeout(Duration::from_nanos(patience)));
        if self.random.chance(self.plan.fenced) {
            acquire = acquire.fenced();
        }
        let acquire = self.lingering(acquire);
        let this = &mut self.clients[client].tasks[task];
        (this.is_retried, this.is_kept) = (true, false);
        self.acquire(client, task, key, &acquire, Duration::ZERO, now);
        if self.random.chance(150) {
            let after = self.random.below(6 * hold);
            self.clients[client].tasks[task].next_at = self.now + after;
        }
    }

    /// How long it may take until the holder knows a call.
    const fn margin(&self) -> Global {
        16 * self.plan.latency + MS
    }

    /// A call began.
    pub(super) fn call_began(&mut self, client: usize, task: usize, key: usize) {
        if !self.plan.hand_over || self.phase != Phase::Safety {
            return;
        }
        let began = self.now;
        let turn = self.turns.keys[key];
        let may_be_overtaken =
            turn.stirred.is_some_and(|(other, until)| other != client && began < until);
        let is_excused = self.plan.message_lost > 0;
        let call = SimCall { client, task, key, began, is_excused, may_be_overtaken };
        self.turns.calls.push(call);
        if !turn.is_held && turn.releaser != Some(client) {
            self.excuse_all(key);
        }
    }

    /// A call ended without the lock.
    pub(super) fn call_ended(&mut self, client: usize, task: usize) {
        let is_its = |call: &mut SimCall| (call.client, call.task) == (client, task);
        let given_up: Vec<SimCall> = self.turns.calls.extract_if(.., is_its).collect();
        let stirred_until = self.now + self.margin();
        for call in &given_up {
            self.turns.keys[call.key].stirred = Some((client, stirred_until));
        }
        for call in &mut self.turns.calls {
            call.may_be_overtaken |= given_up.iter().any(|other| other.key == call.key);
        }
    }

    /// A call ended with the lock: checks that it was its turn.
    pub(super) fn call_won(&mut self, client: usize, task: usize) {
        let is_its = |call: &&SimCall| (call.client, call.task) == (client, task);
        let Some(&won) = self.turns.calls.iter().find(is_its) else { return };
        let (now, margin) = (self.now, self.margin());
        let turn = self.turns.keys[won.key];
        let mut others = self.turns.calls.iter().filter(|call| call.key == won.key);
        let is_overtaken = |call: &&SimCall| {
            !call.is_excused && !call.may_be_overtaken && call.began + margin < won.began
        };
        let overtaken = others.clone().find(is_overtaken).copied();
        let free = now - turn.free_since;
        let most = |call: &SimCall| match (call.is_excused, self.plan.lingers) {
            (false, _) => FREE_MAX,
            (true, 0) => FREE_AFTER_RACE_MAX,
            (true, _) => LINGERS_AFTER_RACE_MAX,
        };
        let has_waited =
            |call: &&SimCall| call.began + margin < turn.free_since && free > most(call);
        let waited = others.find(has_waited).copied();
        self.turns.overtaken += u64::from(overtaken.is_some());
        if let Some(other) = overtaken {
            self.log(|_| format!("{won:?} overtakes {other:?}"));
        }
        let is_order_kept = self.turns.overtaken <= OVERTAKEN_MAX;
        self.oracle
            .check(Kind::Order, is_order_kept, || format!("{won:?} overtakes {overtaken:?}"));
        self.oracle.check(Kind::LostWaiter, waited.is_none(), || {
            format!("{won:?}: the key was free for {free} ns, waited for by {waited:?}")
        });
        self.turns.keys[won.key].is_held = true;
        self.turns.calls.retain(|call| (call.client, call.task) != (client, task));
    }

    /// A call has its lock from another call of its client: no other client had a turn.
    pub(super) fn call_served(&mut self, client: usize, task: usize) {
        let key = self.clients[client].tasks[task].key;
        self.turns.keys[key].is_held = true;
        self.turns.calls.retain(|call| (call.client, call.task) != (client, task));
    }

    /// A holder has let go of its lock.
    pub(super) fn turn_ended(&mut self, client: usize, key: usize) {
        let (now, margin) = (self.now, self.margin());
        let turn = &mut self.turns.keys[key];
        (turn.is_held, turn.free_since, turn.releaser) = (false, now, Some(client));
        if self.plan.hand_over && self.phase == Phase::Safety && self.random.chance(60) {
            self.lose_patience(key);
        }
        let is_new = |call: &SimCall| call.key == key && call.began + margin > now;
        if self.turns.calls.iter().any(is_new) {
            self.excuse_all(key);
        }
    }

    /// A waiter gives up, about when it is woken.
    fn lose_patience(&mut self, key: usize) {
        let its: Vec<SimCall> =
            self.turns.calls.iter().filter(|it| it.key == key).copied().collect();
        if its.is_empty() {
            return;
        }
        let SimCall { client, task, .. } = its[self.random.index(its.len())];
        let at = self.now + self.random.below(6 * self.plan.latency);
        self.clients[client].tasks[task].next_at = at;
        self.wake(client, at);
    }

    fn excuse_all(&mut self, key: usize) {
        for call in self.turns.calls.iter_mut().filter(|call| call.key == key) {
            call.is_excused = true;
        }
    }
}

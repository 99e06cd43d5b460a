//! One client: a thread with many calls under way, a wall clock that lies, and leases that it
//! overruns.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt::driver::mio::{Events, Poll};
use redbolt::driver::{Completion, Driver, Outcome};
use redbolt::engine::OpId;
use redbolt::sim::with_wall_clock;
use redbolt::{Config, Instant, Lease, LockError, LockOptions, now};
use redbolt_rig::{PATIENCE, ms, uninterrupted};
use rustix::time::{ClockId, clock_gettime};

use crate::judge::Grant;
use crate::resource::Resource;

/// The clients have more calls than there are keys, so several clients want most keys at once.
pub(crate) const CLIENTS: usize = 6;
const CALLS: usize = 24;
pub(crate) const KEYS: usize = 96;

pub(crate) const SKEW: Duration = ms(500);
/// How far each wall clock is off; the rest of `SKEW` is for the time that a node's answer takes.
const OFF_US: i64 = 450_000;
/// The guard must be longer than twice `SKEW`, twice `NODE_TIMEOUT` and `CONNECT_TIMEOUT`.
const MAX_TTL: Duration = ms(1_650);
const NODE_TIMEOUT: Duration = ms(150);
const CONNECT_TIMEOUT: Duration = ms(300);

const TTL: Duration = ms(1_000);
/// The TTL of leases that are overrun; the next constant is the longest overrun, in microseconds.
const SHORT_TTL: Duration = ms(60);
const OVERRUN_US: u64 = 60_000;
const HOLD_US: u64 = 2_000;
/// How long a call waits for its lock.
const WAIT: Duration = ms(300);
const IDLE: Duration = ms(20);

/// The state that all threads of a run share.
pub(crate) struct Run {
    pub(crate) resources: Vec<Resource>,
    pub(crate) is_over: AtomicBool,
    pub(crate) acquired: AtomicU64,
    /// How many nodes each client counts as voters.
    pub(crate) voters: Vec<AtomicU32>,
}

/// The results of one client.
#[derive(Default)]
pub(crate) struct Played {
    pub(crate) grants: Vec<Grant>,
    pub(crate) overrun: u64,
    /// Fences above the clock of their own holder: another client's number was there before.
    pub(crate) ahead: u64,
    pub(crate) taken: u64,
    pub(crate) failed: u64,
    pub(crate) owed: usize,
}

impl Run {
    pub(crate) fn new() -> Self {
        Self {
            resources: (0..KEYS).map(|_| Resource::default()).collect(),
            is_over: AtomicBool::new(false),
            acquired: AtomicU64::new(0),
            voters: (0..CLIENTS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(crate) fn are_all_voting(&self, nodes: usize) -> bool {
        self.voters.iter().all(|voters| voters.load(Ordering::Relaxed) as usize == nodes)
    }
}

pub(crate) fn key(index: usize) -> String {
    format!("fences:{index}")
}

thread_local! {
    static OFF: Cell<i64> = const { Cell::new(0) };
}

/// The wall clock of the client of this thread, in microseconds.
fn lying_micros() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    let micros = time.tv_sec * 1_000_000 + time.tv_nsec / 1_000 + OFF.get();
    u64::try_from(micros).expect("1970 was long ago")
}

fn lying_clock() -> Duration {
    Duration::from_micros(lying_micros())
}

fn config(urls: &[String]) -> Config {
    let config = Config::new(urls)
        .expect("addresses of servers")
        .max_ttl(MAX_TTL)
        .node_timeout(NODE_TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        .max_clock_skew(SKEW);
    with_wall_clock(config, lying_clock)
}

/// A lease, and when its holder writes for the last time.
struct Held {
    lease: Lease,
    grant: usize,
    is_overrun: bool,
}

struct Player<'a> {
    me: usize,
    run: &'a Run,
    random: StdRng,
    driver: Driver,
    poll: Poll,
    events: Events,
    begun: HashMap<OpId, (usize, Instant, bool)>,
    held: BTreeMap<(Instant, u64), Held>,
    played: Played,
}

/// Takes and overruns locks until the run is over.
pub(crate) fn play(me: usize, run: &Run, urls: &[String], seed: u64) -> Played {
    let poll = Poll::new().expect("a poll");
    let driver = Driver::new(config(urls), poll.registry(), 0..64).expect("a driver");
    let mut player = Player {
        me,
        run,
        random: StdRng::seed_from_u64(seed.wrapping_add(me as u64)),
        driver,
        poll,
        events: Events::with_capacity(64),
        begun: HashMap::new(),
        held: BTreeMap::new(),
        played: Played::default(),
    };
    // The clocks begin as far apart as is allowed.
    OFF.set(if me.is_multiple_of(2) { OFF_US } else { -OFF_US });
    while !run.is_over.load(Ordering::Relaxed) {
        player.begin_calls();
        player.pass();
    }
    // The shutdown writes the releases of the leases that end here.
    while let Some((_, held)) = player.held.pop_first() {
        player.end(held);
    }
    player.played.owed = player.driver.shutdown(PATIENCE);
    player.played
}

impl Player<'_> {
    fn begin_calls(&mut self) {
        // Without a quorum every call fails at once.
        while self.begun.len() < CALLS && self.driver.voters().count() >= self.driver.quorum() {
            let is_overrun = self.random.random_ratio(1, 16);
            let ttl = if is_overrun { SHORT_TTL } else { TTL };
            let index = self.random.random_range(0..KEYS);
            let options = LockOptions::new(ttl).fenced();
            let began = now();
            let op = if self.random.random_ratio(1, 2) {
                self.driver.lock(key(index), options.timeout(WAIT))
            } else {
                self.driver.try_lock(key(index), options)
            };
            self.begun.insert(op.expect("room for the call"), (index, began, is_overrun));
        }
        self.driver.flush();
    }

    fn pass(&mut self) {
        let wait = self.driver.timeout().unwrap_or(IDLE).min(IDLE);
        let due = self.held.keys().next().map_or(IDLE, |(due, _)| now().until(*due));
        uninterrupted(|| self.poll.poll(&mut self.events, Some(wait.min(due)))).expect("a poll");
        for event in &self.events {
            self.driver.ready(event);
        }
        self.driver.drive();
        let voters = self.driver.voters().count();
        self.run.voters[self.me].store(voters, Ordering::Relaxed);
        while let Some(done) = self.driver.completion() {
            self.completed(done);
        }
        while let Some(first) = self.held.first_entry()
            && first.key().0 <= now()
        {
            let held = first.remove();
            self.end(held);
        }
        if self.random.random_ratio(1, 2_000) {
            self.set_clock();
        }
    }

    /// Sets the clock to either end of the allowed range, or anywhere between.
    fn set_clock(&mut self) {
        OFF.set(match self.random.random_range(0..4) {
            0 => self.random.random_range(-OFF_US..=OFF_US),
            1 | 2 => -OFF.get(),
            _ => OFF_US,
        });
    }

    fn completed(&mut self, done: Completion) {
        let Outcome::Lock(result) = done.result else { return };
        let handed = now();
        let (key, began, is_overrun) = self.begun.remove(&done.id).expect("it was begun");
        match result {
            Ok(lease) => self.won(lease, (key, began, handed), is_overrun),
            Err(LockError::Taken(_)) => self.played.taken += 1,
            Err(LockError::NoQuorum(_) | LockError::Expired(_)) => self.played.failed += 1,
            Err(error) => panic!("{error}"),
        }
    }

    fn won(
        &mut self,
        lease: Lease,
        (key, began, handed): (usize, Instant, Instant),
        is_overrun: bool,
    ) {
        let fence = lease.fence().expect("it was asked for");
        let deadline = lease.deadline();
        let grant = Grant { key, client: self.me, fence, began, handed, deadline, over: deadline };
        self.played.ahead += u64::from(fence > lying_micros());
        self.played.overrun += u64::from(is_overrun);
        // Most holders touch the resource at once. A holder that does not may be too late even with
        // a live lease.
        if self.random.random_ratio(3, 4) {
            self.run.resources[key].write(&grant);
        }
        let due = if is_overrun {
            deadline + Duration::from_micros(self.random.random_range(0..OVERRUN_US))
        } else {
            handed + Duration::from_micros(self.random.random_range(0..HOLD_US))
        };
        let held = Held { lease, grant: self.played.grants.len(), is_overrun };
        self.played.grants.push(grant);
        let count = self.run.acquired.fetch_add(1, Ordering::Relaxed);
        self.held.insert((due, count), held);
    }

    /// The last write of a holder, and its release. A holder that overruns does not look at the
    /// time.
    fn end(&mut self, held: Held) {
        let grant = &mut self.played.grants[held.grant];
        if held.is_overrun || held.lease.is_valid() {
            self.run.resources[grant.key].write(grant);
        }
        grant.over = grant.deadline.min(now());
        if held.is_overrun {
            drop(held.lease);
        } else {
            self.driver.unlock(held.lease).expect("it is this driver's");
        }
    }
}

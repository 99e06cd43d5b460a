//! [`Round`]: nodes, faults, and the judge of every belief and of every key that is left behind.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redbolt::inspect::{NodeHealth, NodeState, Query, Reply};
use redbolt::sim::{Kind, Oracle, Random};
use redbolt::{Client, Config, LockOptions, LockToken, Retry, UnlockError, now};
use redbolt_embedded::{Memory, Nodes};

use crate::reports;

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A player in a round, with choices of its own.
pub(crate) type Player = fn(&Round, Random);

pub(crate) const KEYS: [&str; 3] = ["k0", "k1", "k2"];
pub(crate) const NODE_TIMEOUT: Duration = ms(100);
const CONNECT_TIMEOUT: Duration = ms(500);
/// All clocks are this machine's, but a node's answer with its clock may be late.
const CLOCK_SKEW: Duration = ms(200);
/// The time that a loaded machine may add to the end of a call.
const SLACK: Duration = ms(4_000);
/// How long a node may take to carry out commands that were written.
const SETTLED: Duration = ms(1_000);
/// A limit for steps that must succeed before a round can go on.
const PATIENCE: Duration = ms(20_000);

pub(crate) struct Round {
    nodes: Nodes,
    /// Nodes lose their memory, so locks are short.
    forgets: bool,
    /// The faults are over before the clients end, so nothing excuses a key that is left.
    ends_calm: bool,
    judge: Mutex<Oracle>,
    holders: AtomicU64,
    faults_over: AtomicBool,
    /// All nodes are well again: a client that ends from now on leaves nothing.
    is_calm: AtomicBool,
    is_over: AtomicBool,
    /// Releases that clients and drivers reported as owed when they ended.
    owed: AtomicU64,
    /// Keys of guards that were alive when their client was shut down.
    outlived: AtomicU64,
    /// Locks that a player gave away and no player took over.
    given: Mutex<Vec<(Vec<u8>, LockToken)>>,
    /// The tokens of all locks that were given away. A late command of the giver may leave such a
    /// token at a node, and no client deletes it before its TTL ends.
    detached: Mutex<Vec<LockToken>>,
    calls: AtomicU64,
    faults: AtomicU64,
}

/// The events of the rounds, counted.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    calls: u64,
    locks: u64,
    faults: u64,
    calm: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.locks += other.locks;
        self.faults += other.faults;
        self.calm += other.calm;
    }

    pub(crate) const fn have_shown_something(&self) -> bool {
        self.locks > 20 && self.faults > 2
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, locks, faults, calm } = self;
        write!(f, "{calls} calls, {locks} locks held, {faults} faults, {calm} calm ends")
    }
}

impl Round {
    pub(crate) fn play(seed: u64, players: &[Player]) -> Totals {
        let mut random = Random::new(seed);
        let round = Self {
            nodes: Nodes::start(random.pick(&[3, 3, 5])).expect("ports are free"),
            forgets: random.chance(400),
            ends_calm: random.chance(600),
            judge: Mutex::new(Oracle::new(KEYS.len())),
            holders: AtomicU64::new(0),
            faults_over: AtomicBool::new(false),
            is_calm: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            owed: AtomicU64::new(0),
            outlived: AtomicU64::new(0),
            given: Mutex::default(),
            detached: Mutex::default(),
            calls: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        };
        thread::scope(|scope| {
            let faults = Random::new(random.next());
            let trouble = scope.spawn(|| round.trouble(faults));
            let players: Vec<_> = players
                .iter()
                .map(|player| {
                    let choices = Random::new(random.next());
                    let round = &round;
                    scope.spawn(move || player(round, choices))
                })
                .collect();
            thread::sleep(ms(random.between(800, 1_800)));
            round.faults_over.store(true, Ordering::SeqCst);
            trouble.join().expect("nodes obey");
            if round.ends_calm {
                // Restarted nodes vote again, and clients have paid what they owed.
                let quarantine = if round.forgets { round.ttl() * 5 / 4 } else { ms(0) };
                thread::sleep(quarantine + NODE_TIMEOUT * 3);
                round.is_calm.store(true, Ordering::SeqCst);
                thread::sleep(ms(random.between(200, 900)));
            }
            round.is_over.store(true, Ordering::SeqCst);
            for player in players {
                if player.join().is_err() {
                    round.fail(Kind::Panic, || "a player panicked".to_owned());
                }
            }
        });
        round.look_at_what_is_left();
        let violation = round.judge().violation.take();
        assert_eq!(violation, None, "REDBOLT_SEED={seed}");
        let get = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Totals {
            calls: get(&round.calls),
            locks: get(&round.holders),
            faults: get(&round.faults),
            calm: u64::from(round.ends_calm),
        }
    }

    fn judge(&self) -> std::sync::MutexGuard<'_, Oracle> {
        self.judge.lock().expect("it does not panic")
    }

    pub(crate) fn fail(&self, kind: Kind, what: impl FnOnce() -> String) {
        self.judge().fail(kind, what);
    }

    // ---- what players need ----

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst) || self.judge().violation.is_some()
    }

    /// Whether all nodes are well by now, for good.
    pub(crate) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }

    /// Whether a client that wants `steps` more steps goes on. `nodes` is what the client knows of
    /// its nodes. Where nothing excuses a key that is left, a client that has seen faults waits. It
    /// ends only when it knows that all nodes are well and it owes them nothing.
    pub(crate) fn goes_on(
        &self,
        began_calm: bool,
        steps: u64,
        nodes: impl FnOnce() -> Vec<NodeHealth>,
    ) -> bool {
        if self.judge().violation.is_some() {
            return false;
        }
        if steps > 0 && !self.is_over() {
            return true;
        }
        let is_well = |node: &NodeHealth| node.state == NodeState::Admitted && node.debts == 0;
        self.ends_calm && !began_calm && !(self.is_calm() && nodes().iter().all(is_well))
    }

    pub(crate) const fn ttl(&self) -> Duration {
        if self.forgets { ms(1_200) } else { ms(12_000) }
    }

    pub(crate) fn config(&self, random: &mut Random) -> Config {
        let retry = Retry::every(ms(random.between(1, 30)), ms(random.below(20)));
        Config::new(self.nodes.urls())
            .expect("addresses of nodes")
            .node_timeout(NODE_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .max_ttl(self.ttl())
            .max_clock_skew(CLOCK_SKEW)
            .retry(retry.timeout(ms(random.between(5, 200))))
            .direct_wake(random.chance(700))
            .local_turns(random.pick(&[0, 3, 64]))
    }

    /// The options of a lock, how long the call may take, and whether the lease may be given away.
    /// A lease that is kept alive may not, because its extension might run after the next owner's.
    pub(crate) fn acquire(&self, random: &mut Random) -> (LockOptions, Duration, bool) {
        let mut acquire = LockOptions::new(self.some_ttl(random));
        let is_kept = random.chance(300);
        if is_kept {
            acquire = acquire.keep_alive();
        }
        if random.chance(400) {
            acquire = acquire.fenced();
        }
        if random.chance(100) {
            acquire = acquire.min_validity(ms(random.below(600)));
        }
        if random.chance(400) {
            return (acquire.timeout(Duration::ZERO), CONNECT_TIMEOUT + NODE_TIMEOUT, !is_kept);
        }
        let longest = random.pick(&[20, 50, 50, 50, 50, 50, 600]);
        let limit = ms(random.between(2, longest));
        let retry = Retry::every(ms(random.between(1, 20)), ms(random.below(10)));
        (acquire.retry(retry).timeout(limit), limit, !is_kept)
    }

    pub(crate) fn some_ttl(&self, random: &mut Random) -> Duration {
        if random.chance(350) { ms(random.between(30, 600)) } else { self.ttl() }
    }

    /// Runs a call, which must end by `limit`.
    pub(crate) fn call<T>(&self, what: &str, limit: Duration, call: impl FnOnce() -> T) -> T {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let begin = now();
        let value = call();
        self.ends(what, begin.until(now()), limit);
        value
    }

    pub(crate) fn ends(&self, what: &str, took: Duration, limit: Duration) {
        if took > limit + SLACK {
            self.fail(Kind::Overdue, || format!("{what}: a call of {limit:?} took {took:?}"));
        }
    }

    // ---- what players believe ----

    /// A new holder has the lock: its belief begins once the lease is given.
    pub(crate) fn held(&self, key: usize, deadline: redbolt::Instant, fence: Option<u64>) -> u64 {
        let holder = self.holders.fetch_add(1, Ordering::Relaxed);
        if let Some(fence) = fence {
            let mut judge = self.judge();
            // If this lease is over, a later lease may have shown its higher fence already.
            if now() < deadline {
                judge.fenced(key, fence);
            }
        }
        self.still_held(holder, key, deadline);
        holder
    }

    /// The holder believes in the lock as long as its lease says now.
    pub(crate) fn still_held(&self, holder: u64, key: usize, deadline: redbolt::Instant) {
        let mut judge = self.judge();
        // Read with the judge in hand, so that the beliefs come in the order of their times.
        judge.hold(holder, key, now().as_nanos(), deadline.as_nanos());
    }

    /// The holder's belief ends before its release begins.
    pub(crate) fn stops(&self, holder: u64, key: usize) {
        let mut judge = self.judge();
        judge.stop(holder, key, now().as_nanos());
    }

    pub(crate) fn owes(&self, releases: usize) {
        self.owed.fetch_add(u64::try_from(releases).expect("few"), Ordering::SeqCst);
    }

    pub(crate) fn outlived(&self) {
        let nodes = u64::try_from(self.nodes.len()).expect("few");
        self.outlived.fetch_add(nodes, Ordering::SeqCst);
    }

    pub(crate) fn detached(&self, token: &LockToken) {
        self.detached.lock().expect("no panic").push(token.clone());
    }

    pub(crate) fn gave_away(&self, key: Vec<u8>, token: LockToken) {
        self.given.lock().expect("no panic").push((key, token));
    }

    // ---- faults ----

    fn trouble(&self, mut random: Random) {
        let mut restarts = 0;
        while !self.faults_over.load(Ordering::SeqCst) {
            thread::sleep(ms(random.between(5, 150)));
            let node = random.index(self.nodes.len());
            let time = ms(random.between(1, 350));
            self.faults.fetch_add(1, Ordering::Relaxed);
            match random.below(4) {
                0 | 1 => {
                    self.nodes.pause(node).expect("it runs");
                    thread::sleep(time);
                    if random.chance(200) {
                        self.nodes.hang_up(node).expect("it runs");
                    }
                    self.nodes.resume(node).expect("it runs");
                }
                2 if self.forgets && restarts < 3 => {
                    restarts += 1;
                    self.nodes.kill(node).expect("it runs");
                    thread::sleep(time);
                    let memory = random.pick(&[Memory::Lost, Memory::Kept]);
                    self.nodes.restart(node, memory).expect("its port is free");
                }
                _ => self.nodes.hang_up(node).expect("it runs"),
            }
        }
    }

    // ---- what is left ----

    /// Runs after everything has ended and all nodes go on: every key that is left was reported.
    fn look_at_what_is_left(&self) {
        let config = self.config(&mut Random::new(0)).connect_timeout(PATIENCE);
        let client = Client::open(config.node_timeout(SLACK)).expect("a poll");
        for (key, token) in self.given.lock().expect("no panic").drain(..) {
            let unlocked = client.unlock_token(key, token).wait();
            assert!(matches!(unlocked, Ok(_) | Err(UnlockError::NotHeld)), "{unlocked:?}");
        }
        let told: u64 = self
            .nodes
            .urls()
            .iter()
            .map(|url| reports::left(url.trim_start_matches("redis://")))
            .sum();
        let told = told + self.owed.load(Ordering::SeqCst);
        let excused = if self.ends_calm { 0 } else { told };
        let excused = excused + self.outlived.load(Ordering::SeqCst);
        let end = now() + SETTLED;
        let mut left = self.keys_left(&client);
        let is_excused = |left: &Vec<String>| u64::try_from(left.len()).expect("few") <= excused;
        while !is_excused(&left) && now() < end {
            thread::sleep(ms(5));
            left = self.keys_left(&client);
        }
        let is_clean = is_excused(&left);
        self.judge().check(Kind::Orphan, is_clean, || {
            format!("{left:?} left behind, {excused} keys are excused")
        });
    }

    fn keys_left(&self, client: &Client) -> Vec<String> {
        let mut left = Vec::new();
        let detached = self.detached.lock().expect("no panic");
        let is_detached =
            |reply: &Reply| detached.iter().any(|given| Some(given.as_bytes()) == reply.text());
        for key in KEYS {
            let query = Query::new().all(&[b"GET", key.as_bytes()]);
            let nodes = client.query(&query).wait().expect("it is asked for");
            let is_free = |reply: &Reply| *reply == Reply::Nil || is_detached(reply);
            let held = nodes.iter().filter(|node| !node.replies.first().is_some_and(is_free));
            left.extend(held.map(|node| format!("{key} {node:?}")));
        }
        left
    }
}

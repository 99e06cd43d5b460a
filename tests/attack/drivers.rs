//! Drivers in loops of their own: any number of operations under way, and ends at any time.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use redbolt::driver::{Completion, Driver, Outcome};
use redbolt::engine::OpId;
use redbolt::{Instant, Lease, LockToken, now};

use crate::round::{KEYS, NODE_TIMEOUT, Round, ms};
use redbolt::sim::{Kind, Random};
use std::time::Duration;

/// The most operations that one driver has under way.
const ASKED_MAX: usize = 12;

struct Asked {
    what: &'static str,
    key: usize,
    begin: Instant,
    limit: Duration,
    may_move: bool,
    /// For an adoption: the token of the lock to take over.
    token: Option<LockToken>,
}

struct Held {
    lease: Lease,
    key: usize,
    holder: u64,
    /// The player may give this lock away.
    may_move: bool,
}

struct Life<'round> {
    round: &'round Round,
    driver: Driver,
    asked: HashMap<OpId, Asked>,
    held: Vec<Held>,
    /// The player holds its locks until they end by themselves.
    is_lazy: bool,
}

pub(crate) fn play(round: &Round, mut random: Random) {
    while !round.is_over() {
        let began_calm = round.is_calm();
        let driver = Driver::standalone(round.config(&mut random)).expect("a poll");
        let mut life = Life {
            round,
            driver,
            asked: HashMap::new(),
            held: Vec::new(),
            is_lazy: random.chance(300),
        };
        let mut steps = random.between(5, 300);
        while round.goes_on(began_calm, steps, || life.driver.nodes()) {
            life.step(&mut random);
            steps = steps.saturating_sub(1);
        }
        life.end(&mut random);
    }
}

impl Life<'_> {
    fn ask(
        &mut self,
        op: OpId,
        what: &'static str,
        key: usize,
        limit: Duration,
        token: Option<LockToken>,
    ) {
        self.asked.insert(op, Asked { what, key, begin: now(), limit, may_move: false, token });
    }

    fn step(&mut self, random: &mut Random) {
        let Self { round, driver, .. } = self;
        let round = *round;
        match random.below(10) {
            0..3 if self.asked.len() < ASKED_MAX => {
                let key = random.index(KEYS.len());
                let (acquire, limit, may_move) = round.acquire(random);
                if let Ok(op) = driver.lock(KEYS[key], acquire) {
                    self.ask(op, "lock", key, limit, None);
                    self.asked.get_mut(&op).expect("just asked").may_move = may_move;
                }
            }
            3 if !self.held.is_empty() && !self.is_lazy => {
                let nth = random.index(self.held.len());
                let held = &mut self.held[nth];
                held.may_move = false;
                let (key, holder) = (held.key, held.holder);
                round.stops(holder, key);
                let op = driver.extend(&held.lease, round.some_ttl(random));
                // From now on the nearer of the two ends counts.
                round.still_held(holder, key, held.lease.deadline());
                if let Ok(op) = op {
                    self.ask(op, "extend", key, NODE_TIMEOUT, None);
                }
            }
            4..7 if !self.held.is_empty() && (!self.is_lazy || random.chance(30)) => {
                let Held { lease, key, holder, may_move } =
                    self.held.swap_remove(random.index(self.held.len()));
                round.stops(holder, key);
                match random.below(if may_move { 4 } else { 3 }) {
                    0 => drop(lease),
                    1 => thread::spawn(move || drop(lease)).join().expect("a drop"),
                    2 => {
                        if let Ok(op) = driver.unlock(lease) {
                            self.ask(op, "unlock", key, NODE_TIMEOUT, None);
                        }
                    }
                    _ => {
                        let Ok(token) = driver.detach(&lease) else { return };
                        round.detached(&token);
                        let name = lease.key().to_vec();
                        match driver.adopt(&name, &token, round.some_ttl(random)) {
                            Ok(op) => self.ask(op, "adopt", key, NODE_TIMEOUT, Some(token)),
                            Err(_) => round.gave_away(name, token),
                        }
                    }
                }
            }
            7 if !self.asked.is_empty() => {
                let nth = random.index(self.asked.len());
                let op = *self.asked.keys().nth(nth).expect("below their number");
                driver.cancel(op);
            }
            _ => thread::sleep(ms(random.below(4))),
        }
        if random.chance(900) {
            self.driver.drive();
        }
        if random.chance(800) {
            while let Some(done) = self.driver.completion() {
                self.take(done);
            }
            for Held { lease, key, holder, .. } in &self.held {
                if lease.is_valid() {
                    round.still_held(*holder, *key, lease.deadline());
                }
            }
        }
        for asked in self.asked.values() {
            round.ends(asked.what, asked.begin.until(now()), asked.limit);
        }
    }

    fn take(&mut self, done: Completion) {
        if matches!(done.result, Outcome::Lost(_)) {
            return;
        }
        let Some(asked) = self.asked.remove(&done.id) else {
            return self.round.fail(Kind::Unasked, || format!("a result of nothing: {done:?}"));
        };
        let lease = match done.result {
            Outcome::Lock(result) => result.ok(),
            Outcome::Adopt(result) => {
                if let (Err(_), Some(token)) = (&result, asked.token) {
                    self.round.gave_away(KEYS[asked.key].into(), token);
                }
                result.ok()
            }
            Outcome::Extend(_) | Outcome::Unlock(_) | Outcome::Lost(_) | _ => None,
        };
        if let Some(lease) = lease {
            let holder = self.round.held(asked.key, lease.deadline(), lease.fence());
            let may_move = asked.may_move;
            self.held.push(Held { lease, key: asked.key, holder, may_move });
        }
    }

    fn end(mut self, random: &mut Random) {
        for Held { lease, key, holder, .. } in self.held.drain(..) {
            self.round.stops(holder, key);
            drop(lease);
        }
        for asked in self.asked.into_values() {
            if let Some(token) = asked.token {
                self.round.gave_away(KEYS[asked.key].into(), token);
            }
        }
        let (round, mut driver) = (self.round, self.driver);
        match random.below(4) {
            0 | 1 => {
                let limit = ms(random.pick(&[0, 50, 1_000]));
                round.owes(round.call("shutdown", limit, || driver.shutdown(limit)));
            }
            2 => round.call("drop", ms(0), || drop(driver)),
            _ => {
                let panics = AssertUnwindSafe(|| {
                    let _driver = driver;
                    resume_unwind(Box::new("the program's own"));
                });
                round.call("drop", ms(0), || drop(catch_unwind(panics)));
            }
        }
    }
}

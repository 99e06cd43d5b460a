//! Clients: threads and futures queue for a few keys; calls and guards are given up and dropped,
//! and clients are shut down.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use redbolt::{Client, Guard, LockError, LockOptions};

use crate::round::{KEYS, NODE_TIMEOUT, Round, ms};
use redbolt::sim::{Kind, Random};

const THREADS: usize = 3;

struct Held {
    guard: Guard,
    key: usize,
    holder: u64,
    /// The player may give this lock away.
    may_move: bool,
}

/// One client, from its start to its end.
struct Life<'round> {
    round: &'round Round,
    shared: Client,
    /// While this is true, a guard that is given back may be too late for the I/O thread.
    is_ending: AtomicBool,
}

pub(crate) fn play(round: &Round, mut random: Random) {
    while !round.is_over() {
        let began_calm = round.is_calm();
        let shared = Client::open(round.config(&mut random)).expect("a thread");
        let life = Life { round, shared, is_ending: AtomicBool::new(false) };
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let mut choices = Random::new(random.next());
                let (life, is_over) = (&life, &is_over);
                scope.spawn(move || life.work(&mut choices, is_over));
            }
            let mut turns = random.between(5, 150);
            while round.goes_on(began_calm, turns, || life.shared.nodes().wait()) {
                thread::sleep(ms(5));
                turns = turns.saturating_sub(1);
            }
            if random.chance(500) {
                let limit = ms(random.pick(&[0, 50, 1_000]));
                life.is_ending.store(true, Ordering::SeqCst);
                round.owes(round.call("shutdown", limit, || life.shared.shutdown(limit).wait()));
            }
            is_over.store(true, Ordering::SeqCst);
        });
        if let Some(never) = unserved(&life.shared) {
            round.fail(Kind::Unasked, || never);
        }
    }
}

/// The calls that the client still counts although none is under way.
fn unserved(shared: &Client) -> Option<String> {
    let text = format!("{shared:?}");
    let is_idle = (0..400).any(|_| {
        thread::sleep(ms(1));
        format!("{shared:?}").contains("calls: 0")
    });
    (!is_idle).then(|| format!("the client counts a call that nobody makes: {text}"))
}

impl Life<'_> {
    fn work(&self, random: &mut Random, is_over: &AtomicBool) {
        let mut held: Vec<Held> = Vec::new();
        while !is_over.load(Ordering::SeqCst) {
            if !self.step(&mut held, random) {
                break;
            }
            for Held { guard, key, holder, .. } in &held {
                if guard.is_valid() {
                    self.round.still_held(*holder, *key, guard.deadline());
                }
            }
        }
        for held in held {
            self.give_back(held, random);
        }
    }

    /// Returns false once the client is closed.
    fn step(&self, held: &mut Vec<Held>, random: &mut Random) -> bool {
        let (round, shared) = (self.round, &self.shared);
        let key = random.index(KEYS.len());
        match random.below(10) {
            0..4 => {
                let (acquire, limit, may_move) = round.acquire(random);
                let call = || shared.lock(KEYS[key], acquire).wait();
                match round.call("lock", limit, call) {
                    Ok(guard) => self.hold(held, key, guard, may_move),
                    Err(LockError::Closed) => return false,
                    Err(_) => {}
                }
            }
            4 => {
                let (acquire, _, may_move) = round.acquire(random);
                if let Some(guard) = self.future(key, acquire, random) {
                    self.hold(held, key, guard, may_move);
                }
            }
            5 if !held.is_empty() => {
                let nth = random.index(held.len());
                let Held { guard, key, holder, may_move } = &mut held[nth];
                *may_move = false;
                round.stops(*holder, *key);
                let ttl = round.some_ttl(random);
                drop(round.call("extend", NODE_TIMEOUT, || guard.extend(ttl).wait()));
            }
            6..9 if !held.is_empty() => {
                let one = held.swap_remove(random.index(held.len()));
                if one.may_move && random.chance(200) {
                    self.change_hands(held, one, random);
                } else {
                    self.give_back(one, random);
                }
            }
            9 if random.chance(500) => self.with_lock(key, random),
            _ => thread::sleep(ms(random.below(6))),
        }
        true
    }

    /// The work under the lock may panic.
    fn with_lock(&self, key: usize, random: &mut Random) {
        let (round, time, panics) = (self.round, ms(random.below(6)), random.chance(300));
        let work = AssertUnwindSafe(|| {
            self.shared.with_lock::<_, LockError>(KEYS[key], round.ttl(), |guard| {
                let holder = round.held(key, guard.deadline(), guard.fence());
                thread::sleep(time);
                if guard.is_valid() {
                    round.still_held(holder, key, guard.deadline());
                }
                round.stops(holder, key);
                if panics {
                    resume_unwind(Box::new("the work's own"));
                }
                Ok(())
            })
        });
        // The call may last as long as the configuration's `retry` allows, plus its node calls.
        drop(round.call("with_lock", ms(1_500), || catch_unwind(work)));
        self.may_have_outlived();
    }

    fn hold(&self, held: &mut Vec<Held>, key: usize, guard: Guard, may_move: bool) {
        let holder = self.round.held(key, guard.deadline(), guard.fence());
        held.push(Held { guard, key, holder, may_move });
    }

    /// Polls a call a few times, and gives it up if it has not ended by then.
    fn future(&self, key: usize, acquire: LockOptions, random: &mut Random) -> Option<Guard> {
        let mut future = pin!(self.shared.lock(KEYS[key], acquire));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..random.below(5) {
            if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
                return result.ok();
            }
            thread::sleep(ms(random.below(3)));
        }
        None
    }

    fn give_back(&self, held: Held, random: &mut Random) {
        let Held { guard, key, holder, .. } = held;
        let round = self.round;
        round.stops(holder, key);
        match random.below(3) {
            0 => drop(round.call("unlock", NODE_TIMEOUT, || guard.unlock().wait())),
            1 => {
                drop(catch_unwind(AssertUnwindSafe(|| {
                    let _guard = guard;
                    resume_unwind(Box::new("the work's own"));
                })));
            }
            _ => drop(guard),
        }
        self.may_have_outlived();
    }

    /// A guard may outlive its client: its TTL ends the key.
    fn may_have_outlived(&self) {
        if self.is_ending.load(Ordering::SeqCst) {
            self.round.outlived();
        }
    }

    /// The player gives the lock away, and takes it over again.
    fn change_hands(&self, held: &mut Vec<Held>, one: Held, random: &mut Random) {
        let Held { mut guard, key, holder, .. } = one;
        let round = self.round;
        round.stops(holder, key);
        let name = guard.key().to_vec();
        let Ok(token) = guard.detach().wait() else { return };
        round.detached(&token);
        let ttl = round.some_ttl(random);
        match round.call("adopt", NODE_TIMEOUT, || self.shared.adopt(&name, &token, ttl).wait()) {
            Ok(guard) => self.hold(held, key, guard, false),
            Err(_) => round.gave_away(name, token),
        }
    }
}

//! Clients: blocking calls and batches, ended at any time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use redbolt::driver::Outcome;
use redbolt::{Client, Lease, LockError};

use crate::round::{KEYS, NODE_TIMEOUT, Round, ms};
use redbolt::sim::Random;

struct Held {
    lease: Lease,
    key: usize,
    holder: u64,
    /// It may be given away.
    may_move: bool,
}

pub(crate) fn play(round: &Round, mut random: Random) {
    while !round.is_over() {
        let began_calm = round.is_calm();
        let mut client = Client::open(round.config(&mut random)).expect("a poll");
        let mut held = Vec::new();
        let mut steps = random.between(3, 80);
        while round.goes_on(began_calm, steps, || client.nodes()) {
            step(round, &mut client, &mut held, &mut random);
            steps = steps.saturating_sub(1);
            for Held { lease, key, holder, .. } in &held {
                if lease.is_valid() {
                    round.still_held(*holder, *key, lease.deadline());
                }
            }
        }
        end(round, client, held, &mut random);
    }
}

fn step(round: &Round, client: &mut Client, held: &mut Vec<Held>, random: &mut Random) {
    let key = random.index(KEYS.len());
    match random.below(10) {
        0..3 => {
            let (acquire, limit, may_move) = round.acquire(random);
            let result = round.call("lock", limit, || client.lock(KEYS[key], acquire));
            if let Ok(lease) = result {
                hold(round, held, key, lease, may_move);
            }
        }
        3 if !held.is_empty() => {
            let nth = random.index(held.len());
            let Held { lease, key, holder, may_move } = &mut held[nth];
            *may_move = false;
            round.stops(*holder, *key);
            let ttl = round.some_ttl(random);
            drop(round.call("extend", NODE_TIMEOUT, || client.extend(lease, ttl)));
        }
        4..7 if !held.is_empty() => {
            let Held { lease, key, holder, may_move } = held.swap_remove(random.index(held.len()));
            round.stops(holder, key);
            match random.below(if may_move { 4 } else { 3 }) {
                0 => drop(lease),
                1 => thread::spawn(move || drop(lease)).join().expect("a drop"),
                2 => drop(round.call("unlock", NODE_TIMEOUT, || client.unlock(lease))),
                _ => {
                    let Ok(token) = client.detach(&lease) else { return };
                    round.detached(&token);
                    let name = lease.key().to_vec();
                    let ttl = round.some_ttl(random);
                    match round.call("adopt", NODE_TIMEOUT, || client.adopt(&name, &token, ttl)) {
                        Ok(lease) => hold(round, held, key, lease, false),
                        Err(_) => round.gave_away(name, token),
                    }
                }
            }
        }
        7 => batch(round, client, held, random),
        8 => with_lock(round, client, key, random),
        _ => {
            let time = ms(random.below(8));
            drop(round.call("keep", time, || client.drive_for(time)));
        }
    }
}

fn hold(round: &Round, held: &mut Vec<Held>, key: usize, lease: Lease, may_move: bool) {
    let holder = round.held(key, lease.deadline(), lease.fence());
    held.push(Held { lease, key, holder, may_move });
}

/// Some locks at once, of whose results some are taken.
fn batch(round: &Round, client: &mut Client, held: &mut Vec<Held>, random: &mut Random) {
    let mut batch = client.batch();
    let mut asked = Vec::new();
    let mut longest = NODE_TIMEOUT;
    for _ in 0..random.between(1, 5) {
        let key = random.index(KEYS.len());
        let (acquire, limit, may_move) = round.acquire(random);
        longest = longest.max(limit);
        if let Ok(op) = batch.lock(KEYS[key], acquire) {
            asked.push((op, key, may_move));
        }
    }
    for _ in 0..random.below(5) {
        if random.chance(100) {
            batch.cancel(asked[random.index(asked.len())].0);
        }
        let done =
            round.call("batch", longest, || batch.wait_completion()).expect("a healthy poll");
        let Some(done) = done else { break };
        if let Outcome::Lock(Ok(lease)) = done.result {
            let of = asked.iter().find(|(op, ..)| *op == done.id);
            let (_, key, may_move) = *of.expect("of this batch");
            hold(round, held, key, lease, may_move);
        }
    }
    if random.chance(100) {
        std::mem::forget(batch);
    } else {
        round.call("batch's drop", ms(0), || drop(batch));
    }
}

/// The work under the lock may end in a panic.
fn with_lock(round: &Round, client: &mut Client, key: usize, random: &mut Random) {
    let (time, panics) = (ms(random.below(6)), random.chance(300));
    let work = AssertUnwindSafe(|| {
        client.with_lock::<_, LockError>(KEYS[key], round.ttl(), |lock| {
            let holder = round.held(key, lock.deadline(), lock.fence());
            thread::sleep(time);
            if lock.extend_if_due().is_ok() {
                round.still_held(holder, key, lock.deadline());
            }
            round.stops(holder, key);
            if panics {
                resume_unwind(Box::new("the work's own"));
            }
            Ok(())
        })
    });
    // As long as the configuration's `retry` allows, and the calls under it.
    drop(round.call("with_lock", ms(1_500), || catch_unwind(work)));
}

fn end(round: &Round, mut client: Client, held: Vec<Held>, random: &mut Random) {
    for Held { lease, key, holder, .. } in held {
        round.stops(holder, key);
        drop(lease);
    }
    match random.below(3) {
        0 => {
            let limit = ms(random.pick(&[0, 50, 1_000]));
            round.owes(round.call("shutdown", limit, || client.shutdown(limit)));
        }
        1 => {
            let panics = AssertUnwindSafe(|| {
                let _client = client;
                resume_unwind(Box::new("the program's own"));
            });
            return round.call("drop", NODE_TIMEOUT, || drop(catch_unwind(panics)));
        }
        _ => {}
    }
    round.call("drop", NODE_TIMEOUT, || drop(client));
}

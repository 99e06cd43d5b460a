//! Drivers and clients under random calls, ends and faults, on real sockets and the real clock,
//! before the judge of the simulation.
//! No two holders hold a lock at a time, and every call ends. Every key that is left has a holder,
//! or a client reported it.
//!
//! `REDBOLT_ATTACK_SECONDS=N` lets each test run for N seconds; `REDBOLT_SEED=S` begins with that
//! seed. A seed draws the same choices each time, but threads and nodes meet differently.

#![expect(clippy::print_stdout, reason = "the seeds and the counts are what the test is for")]
#![expect(clippy::indexing_slicing, reason = "a test may end where it is wrong itself")]

mod clients;
mod drivers;
mod reports;
mod round;

use std::time::Duration;

use redbolt::sim::Random;
use round::{Player, Round};

/// How long each test runs by default.
const SECONDS: u64 = 4;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Plays rounds until the time is over; each has nodes, faults and clients of its own.
fn attack(name: &str, players: &[Player]) {
    reports::install();
    let mut seeds =
        Random::new(number("REDBOLT_SEED").unwrap_or_else(|| redbolt::now().as_nanos()));
    let time = Duration::from_secs(number("REDBOLT_ATTACK_SECONDS").unwrap_or(SECONDS));
    let (begin, mut rounds, mut totals) = (redbolt::now(), 0, round::Totals::default());
    let mut seed = number("REDBOLT_SEED").unwrap_or_else(|| seeds.next());
    while redbolt::now().saturating_since(begin) < time {
        println!("{name}: REDBOLT_SEED={seed}");
        totals.add(Round::play(seed, players));
        rounds += 1;
        seed = seeds.next();
    }
    println!("{name}: {rounds} rounds, {totals}");
    assert!(totals.have_shown_something(), "{name}: {totals}");
}

#[test]
fn drivers_keep_their_promises() {
    attack("drivers", &[drivers::play, drivers::play]);
}

#[test]
fn clients_keep_their_promises() {
    attack("clients", &[clients::play, clients::play]);
}

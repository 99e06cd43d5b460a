//! The simulation finds every deliberate breakage: each [`Mutant`] within so many seeds.
//!
//! `REDBOLT_MUTANT=NAME` runs that one alone; `REDBOLT_SEEDS=N` gives each so many seeds.

#![expect(clippy::print_stdout, reason = "the table of seeds is what the test is for")]

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use redbolt::sim::{self, Mutant};

/// Seeds in which a mutant must be found.
const SEEDS: u64 = 6_000;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Goal: a rule that the code forgets does not go unseen. Method: the code forgets it; the first
/// seed whose judge complains, or whose assertions do, has caught it.
#[test]
fn every_mutant_is_caught() {
    let seeds = variable("REDBOLT_SEEDS").map_or(SEEDS, |text| text.parse().unwrap());
    let chosen = variable("REDBOLT_MUTANT");
    let is_chosen =
        |mutant: &&Mutant| chosen.as_ref().is_none_or(|name| *name == format!("{mutant:?}"));
    let mutants: Vec<Mutant> = Mutant::ALL.iter().filter(is_chosen).copied().collect();
    assert!(!mutants.is_empty(), "no such mutant");
    // A mutant may trip an assertion; that is told below, not by a backtrace.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(&mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match hunt(mutant, seeds) {
                        Some((seed, how)) => {
                            println!("mutant {mutant:?} caught at seed {seed}: {how}");
                        }
                        None => survivors.lock().unwrap().push(mutant),
                    }
                }
            });
        }
    });
    std::panic::set_hook(hook);
    let survivors = survivors.into_inner().unwrap();
    assert!(survivors.is_empty(), "{survivors:?} survived {seeds} seeds");
}

/// The first seed that catches the mutant, and what it says.
fn hunt(mutant: Mutant, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| {
        let violation = match catch_unwind(|| sim::run(seed, Some(mutant), None)) {
            Ok(report) => report.violation,
            Err(panic) => Some(match panic.downcast::<String>() {
                Ok(text) => *text,
                Err(_) => "an assertion".to_owned(),
            }),
        };
        let line = violation?.lines().next().unwrap_or_default().to_owned();
        Some((seed, line))
    })
}

/// The judge complains of mutants, not of the code.
#[test]
fn the_first_seeds_are_clean_without_a_mutant() {
    let failed = AtomicU64::new(0);
    for seed in 0..20 {
        if sim::run(seed, None, None).violation.is_some() {
            failed.fetch_add(1, Ordering::Relaxed);
        }
    }
    assert_eq!(failed.into_inner(), 0);
}

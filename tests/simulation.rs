//! Many seeds of the simulation, on all cores.
//!
//! `REDBOLT_SEEDS=N` runs N seeds. `REDBOLT_SEED=S` runs the seed S alone and prints its events;
//! `REDBOLT_MUTANT=NAME` adds that breakage.

#![expect(clippy::print_stdout, reason = "the seeds and the counts are what the test is for")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use redbolt::sim::{self, Counts, Fault, Mutant, Path, Setting};

/// Seeds of a run without options.
const SEEDS: u64 = 20_000;

/// The test stops after this many failures.
const FAILURES_MAX: usize = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Goal: no two holders at a time, no key left behind, and an end for every call, whatever fails.
/// Method: seeds on all cores; each draws its own topology, work and faults.
#[test]
fn no_seed_breaks_a_promise_and_each_meets_its_faults() {
    if let Some(seed) = number("REDBOLT_SEED") {
        let name = std::env::var("REDBOLT_MUTANT").ok();
        let is_named = |mutant: &Mutant| name == Some(format!("{mutant:?}"));
        let mutant = Mutant::all().find(is_named);
        let report = sim::run(seed, mutant, Some(|line| println!("{line}")));
        println!("{}", report.counts);
        assert_eq!(report.violation, None, "seed {seed}");
        return;
    }
    let seeds = number("REDBOLT_SEEDS").unwrap_or(SEEDS);
    let begin = redbolt::now();
    let counts = run_all(seeds);
    let seconds = redbolt::now().saturating_since(begin).as_secs_f64();
    println!("{seeds} seeds in {seconds:.1} s, {:.0} a second", seeds as f64 / seconds);
    println!("{counts}");
    demand(&counts, seeds);
}

fn run_all(seeds: u64) -> Counts {
    let next = AtomicU64::new(0);
    let total = Mutex::new(Counts::default());
    let failures = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut counts = Counts::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds
                        || failures.lock().expect("no thread panics with it").len() >= FAILURES_MAX
                    {
                        break;
                    }
                    let report = sim::run(seed, None, None);
                    counts.add(&report.counts);
                    if let Some(violation) = report.violation {
                        println!("seed {seed}: {violation}");
                        failures.lock().expect("no thread panics with it").push(seed);
                    }
                }
                total.lock().expect("no thread panics with it").add(&counts);
            });
        }
    });
    if let Some(seed) = failures.into_inner().expect("no thread panics with it").into_iter().min() {
        panic!(
            "to replay: REDBOLT_SEED={seed} cargo test --all-features --test simulation -- \
             --nocapture"
        );
    }
    total.into_inner().expect("no thread panics with it")
}

/// A run that met too few faults has proved nothing.
fn demand(counts: &Counts, seeds: u64) {
    let least = |what: String, count: u64, least: u64| {
        assert!(count >= least, "{what}: {count} in {seeds} seeds, at least {least} are wanted");
    };
    least("attempts".to_owned(), counts.attempts, 60 * seeds);
    least("leases".to_owned(), counts.leases, 12 * seeds);
    for &setting in Setting::ALL {
        least(format!("{setting:?}"), counts.of_setting(setting), seeds / 200);
    }
    // Most seeds try one special case, in which not every fault happens. With few seeds, chance
    // decides how often a fault happens, so the test demands half as many.
    let rare = if seeds < SEEDS { seeds / 90 } else { seeds / 45 };
    for &fault in Fault::ALL {
        least(format!("{fault:?}"), counts.of_fault(fault), rare);
    }
    for &path in Path::ALL {
        least(format!("{path:?}"), counts.of_path(path), rare);
    }
}

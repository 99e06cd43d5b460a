//! Attempts at a lock that is taken, and extensions, one at a time.

use redbolt::{IdleStrategy, LockError, now};

use crate::nodes::{Setup, WAITS, both};
use crate::slices::{Bench, CYCLES, alternate, medians, nanos, percentile};
use crate::{Anything, Options, TTL};

pub(crate) fn run(options: &Options) -> Anything {
    println!("| nodes | wait | what | p50 | p50 of the probe | p99 | p99 of the probe |");
    println!("|---|---|---|---|---|---|---|");
    for count in [3, 5] {
        let Some(setup) = Setup::new(count)? else { continue };
        for (name, wait) in WAITS {
            for what in ["taken", "extend"] {
                let [p50, p99] = compare(&setup, wait, what, options.slices)?;
                println!(
                    "| {count} | {name} | {what} | {:.1} us | {:.3} | {:.1} us | {:.3} |",
                    p50[1], p50[2], p99[1], p99[2]
                );
            }
        }
    }
    Ok(())
}

fn compare(
    setup: &Setup,
    wait: IdleStrategy,
    what: &str,
    slices: usize,
) -> Anything<[[f64; 3]; 2]> {
    let mut bench = Bench::new(both(&setup.addresses, wait)?, CYCLES);
    let key = bench.keys.next();
    // The key of each is held while it measures. Another client holds Redbolt's, because the
    // measured client would know of its own lock without asking.
    let (other, _) = both(&setup.addresses, wait)?;
    let mut guard = other.try_lock(key, TTL * 3).wait()?;
    let set = bench.commands.only_set();
    bench.probe.round(set)?;
    let theirs = |bench: &mut Bench| {
        let mut times = Vec::new();
        let command = if what == "taken" {
            bench.commands.only_conflict()
        } else {
            bench.commands.only_extend()
        };
        for _ in 0..bench.cycles {
            let begin = now();
            bench.probe.round(command)?;
            times.push(nanos(begin.until(now())));
        }
        Ok(times)
    };
    let ours = |bench: &mut Bench| {
        let mut times = Vec::new();
        for _ in 0..bench.cycles {
            let begin = now();
            if what == "taken" {
                let Err(LockError::Taken(_)) = bench.client.try_lock(key, TTL).wait() else {
                    return Err("the lock is not taken".into());
                };
            } else {
                guard.extend(TTL).wait()?;
            }
            times.push(nanos(begin.until(now())));
        }
        Ok(times)
    };
    let pairs = alternate(slices, &mut bench, theirs, ours)?;
    let figures = [0.5, 0.99].map(|share| medians(&pairs, |times| percentile(times, share)));
    let release = bench.commands.only_release();
    bench.probe.round(release)?;
    Ok(figures)
}

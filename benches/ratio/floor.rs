//! The cost of the client on top of a driver in the smallest loop, one lock at a time. A driver,
//! two ways to use a client, and the probe take turns.

use redbolt::{Client, now};
use redbolt_benches::looped::Looped;
use redbolt_benches::probe::{Commands, Probe};

use crate::nodes::{Keys, Setup, WAITS, config, probe};
use crate::slices::{CYCLES, Times, median, nanos, percentile};
use crate::{Anything, Options, TTL};

struct All {
    looped: Looped,
    client: Client,
    probe: Probe,
    keys: Keys,
    commands: Commands,
}

type Slice = fn(&mut All) -> Anything<Times>;

/// The first way is the base for the others.
const WAYS: [(&str, Slice); 4] = [
    ("a driver in a loop", All::looped),
    ("client", All::unlocked),
    ("client that drops guards", All::dropped),
    ("probe", All::probed),
];

pub(crate) fn run(options: &Options) -> Anything {
    println!(
        "| nodes | wait | way | acquire p50 | p50 of the driver | p99 | p99 of the driver | release p50 | release of the driver |"
    );
    println!("|{}", "---|".repeat(9));
    for count in [3, 5] {
        let Some(setup) = Setup::new(count)? else { continue };
        for (name, wait) in WAITS {
            let mut all = All {
                looped: Looped::connect(config(&setup.addresses, wait)?, wait)?,
                client: Client::connect(config(&setup.addresses, wait)?)?,
                probe: probe(&setup.addresses, wait)?,
                keys: Keys::new(),
                commands: Commands::new(),
            };
            let rounds = rounds(&mut all, options.slices)?;
            for (way, (what, _)) in WAYS.into_iter().enumerate() {
                let cell = |figure: fn(&Times) -> f64| {
                    let of =
                        |round: &[Times; 4], way: usize| round.get(way).map_or(f64::NAN, figure);
                    let ours = median(rounds.iter().map(|round| of(round, way)).collect());
                    let ratios = rounds.iter().map(|round| of(round, way) / of(round, 0));
                    format!("{ours:.1} us | {:.3}", median(ratios.collect()))
                };
                println!(
                    "| {count} | {name} | {what} | {} | {} | {} |",
                    cell(|times| percentile(&times.acquire, 0.5)),
                    cell(|times| percentile(&times.acquire, 0.99)),
                    cell(|times| percentile(&times.release, 0.5)),
                );
            }
        }
    }
    Ok(())
}

/// Runs a slice of each way per round, and begins with another way each time; a round before them
/// warms up.
fn rounds(all: &mut All, count: usize) -> Anything<Vec<[Times; 4]>> {
    let mut rounds = Vec::with_capacity(count);
    for round in 0..=count {
        let mut times: [Times; 4] = Default::default();
        for step in 0..WAYS.len() {
            let way = (round + step) % WAYS.len();
            if let (Some(place), Some((_, slice))) = (times.get_mut(way), WAYS.get(way)) {
                *place = slice(all)?;
            }
        }
        if round > 0 {
            rounds.push(times);
        }
    }
    Ok(rounds)
}

impl All {
    fn looped(&mut self) -> Anything<Times> {
        self.cycles(
            |all, key| all.looped.try_lock(key, TTL),
            |all, lease| {
                all.looped.unlock(lease)?;
                Ok(())
            },
        )
    }

    fn unlocked(&mut self) -> Anything<Times> {
        self.cycles(
            |all, key| Ok(all.client.try_lock(key, TTL).wait()?),
            |_, guard| {
                guard.unlock().wait()?;
                Ok(())
            },
        )
    }

    fn dropped(&mut self) -> Anything<Times> {
        self.cycles(
            |all, key| Ok(all.client.try_lock(key, TTL).wait()?),
            |_, guard| {
                drop(guard);
                Ok(())
            },
        )
    }

    fn probed(&mut self) -> Anything<Times> {
        self.cycles(
            |all, _| Ok(all.probe.round(all.commands.only_set())?),
            |all, ()| Ok(all.probe.round(all.commands.only_release())?),
        )
    }

    fn cycles<L>(
        &mut self,
        lock: impl Fn(&mut Self, [u8; 22]) -> Anything<L>,
        unlock: impl Fn(&mut Self, L) -> Anything,
    ) -> Anything<Times> {
        let mut times = Times::default();
        for _ in 0..CYCLES {
            let key = self.keys.next();
            let begin = now();
            let held = lock(self, key)?;
            let locked = now();
            unlock(self, held)?;
            times.acquire.push(nanos(begin.until(locked)));
            times.release.push(nanos(locked.until(now())));
        }
        Ok(times)
    }
}

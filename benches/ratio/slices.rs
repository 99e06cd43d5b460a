//! Alternating slices of two clients, and the figures that are made of them.

use std::time::Duration;

use redbolt::Client;

use crate::nodes::Keys;
use crate::{Anything, TTL};
use redbolt::now;
use redbolt_benches::probe::{Commands, Probe};

/// Cycles of one slice.
pub(crate) const CYCLES: usize = 300;

/// A slice of the probe and a slice of Redbolt, measured right after each other.
pub(crate) struct Pair<S> {
    pub(crate) probe: S,
    pub(crate) ours: S,
}

/// Runs one slice of each to warm up, then `count` of each, and swaps their order each time.
pub(crate) fn alternate<S, C>(
    count: usize,
    context: &mut C,
    mut probe: impl FnMut(&mut C) -> Anything<S>,
    mut ours: impl FnMut(&mut C) -> Anything<S>,
) -> Anything<Vec<Pair<S>>> {
    ours(context)?;
    probe(context)?;
    let mut pairs = Vec::with_capacity(count);
    for index in 0..count {
        pairs.push(if index % 2 == 0 {
            let ours = ours(context)?;
            Pair { probe: probe(context)?, ours }
        } else {
            Pair { probe: probe(context)?, ours: ours(context)? }
        });
    }
    Ok(pairs)
}

/// The median over the pairs of the probe's figure, of Redbolt's, and of their ratio.
pub(crate) fn medians<S>(pairs: &[Pair<S>], figure: impl Fn(&S) -> f64) -> [f64; 3] {
    let figures: Vec<_> =
        pairs.iter().map(|pair| (figure(&pair.probe), figure(&pair.ours))).collect();
    [
        median(figures.iter().map(|(probe, _)| *probe).collect()),
        median(figures.iter().map(|(_, ours)| *ours).collect()),
        median(figures.iter().map(|(probe, ours)| ours / probe).collect()),
    ]
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Times of the two halves of each cycle of a slice, in nanoseconds.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) acquire: Vec<u64>,
    pub(crate) release: Vec<u64>,
}

/// The tools for slices of latency.
pub(crate) struct Bench {
    pub(crate) client: Client,
    pub(crate) probe: Probe,
    pub(crate) keys: Keys,
    pub(crate) commands: Commands,
    pub(crate) cycles: usize,
}

impl Bench {
    pub(crate) fn new((client, probe): (Client, Probe), cycles: usize) -> Self {
        Self { client, probe, keys: Keys::new(), commands: Commands::new(), cycles }
    }

    /// One slice of Redbolt: each time runs from the call of `try_lock` to its return, and likewise
    /// for `unlock`.
    pub(crate) fn ours(&mut self) -> Anything<Times> {
        let mut times = Times::default();
        for _ in 0..self.cycles {
            let key = self.keys.next();
            let begin = now();
            let guard = self.client.try_lock(key, TTL).wait()?;
            let held = now();
            guard.unlock().wait()?;
            times.acquire.push(nanos(begin.until(held)));
            times.release.push(nanos(held.until(now())));
        }
        Ok(times)
    }

    /// One slice of the probe.
    pub(crate) fn theirs(&mut self) -> Anything<Times> {
        let mut times = Times::default();
        for _ in 0..self.cycles {
            let command = self.commands.only_set();
            let begin = now();
            self.probe.round(command)?;
            times.acquire.push(nanos(begin.until(now())));
            let command = self.commands.only_release();
            let begin = now();
            self.probe.round(command)?;
            times.release.push(nanos(begin.until(now())));
        }
        Ok(times)
    }

    pub(crate) fn compare(&mut self, slices: usize) -> Anything<Vec<Pair<Times>>> {
        alternate(slices, self, Self::theirs, Self::ours)
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The percentile of a slice's times, in microseconds.
pub(crate) fn percentile(times: &[u64], share: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length"
    )]
    let place = (times.len() as f64 * share) as usize;
    times.get(place).or_else(|| times.last()).map_or(f64::NAN, |&nanos| nanos as f64 / 1e3)
}

//! `redbolt bench`: acquire and release on fresh keys, one at a time or many at once.

mod compare;
mod drawing;
mod report;
mod throughput;

use std::io::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use redbolt::Instant;
use redbolt::{Client, Config, IdleStrategy, LockError, now};
use redbolt_embedded::Nodes;

use crate::args::{BenchArgs, Global, Mode, Polling};
use crate::exit::Failure;
use crate::output::{note, tell};
use crate::progress::Progress;
use crate::settings;
use compare::Saved;
use drawing::Drawing;
use report::Report;

pub(crate) use report::percentiles;

/// After a benchmark was killed, its keys end by themselves within this time.
pub(crate) const TTL: Duration = Duration::from_secs(5);

/// Cycles before the measurement begins.
const WARM_UP: u64 = 200;

const IN_FLIGHT: usize = 64;

/// The counts of a benchmark.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) acquire: Histogram<u64>,
    pub(crate) release: Histogram<u64>,
    pub(crate) cycles: u64,
    pub(crate) failures: u64,
    pub(crate) elapsed: Duration,
    /// The last failure, reported if there was nothing else.
    pub(crate) failure: Option<LockError>,
}

/// When a benchmark ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    cycles: u64,
    length: Duration,
}

pub(crate) fn run(global: &Global, args: &BenchArgs) -> Result<(), Failure> {
    let limit = limit(args)?;
    let in_flight = match (args.mode, args.in_flight) {
        (Mode::Latency, Some(_)) => {
            return Err(Failure::usage("--in-flight goes with --mode throughput"));
        }
        (Mode::Latency, None) => 1,
        (Mode::Throughput, count) => count.map_or(IN_FLIGHT, Into::into),
    };
    let saved = args.compare.as_deref().map(Saved::read).transpose()?;
    let mut drawing = args.plot.as_deref().map(Drawing::to).transpose()?;
    let (config, embedded) = nodes(global)?;
    let setup = Setup {
        node_count: config.nodes().len(),
        quorum: settings::quorum(global, &config)?,
        in_flight,
        mode: args.mode,
        poll: args.poll,
        is_embedded: embedded.is_some(),
    };
    if let Some(saved) = &saved {
        saved.check(&setup)?;
    }
    if embedded.is_some() {
        note(
            "no nodes named: measuring on five embedded ones, which share this machine's processors",
        );
    }
    let wait = match args.poll {
        Polling::Spin => IdleStrategy::Spin,
        Polling::Park => IdleStrategy::Park,
    };
    let progress = Progress::bar();
    let config = config.idle_strategy(wait);
    let counts = match args.mode {
        Mode::Latency => latency(config.clone(), limit, &progress)?,
        Mode::Throughput => throughput::measure(config.clone(), in_flight, limit, &progress)?,
    };
    if counts.cycles > 0
        && let Some(drawing) = &mut drawing
    {
        drawing.measure(&config, limit, &progress)?;
    }
    drop(progress);
    if counts.cycles == 0
        && let Some(failure) = counts.failure
    {
        return Err(failure.into());
    }
    if let Some(drawing) = &drawing {
        drawing.save(&setup, &counts)?;
    }
    Report { setup: &setup, counts: &counts, saved: saved.as_ref(), drawing: drawing.as_ref() }
        .print(global.json)
}

/// What is measured.
#[derive(Debug)]
struct Setup {
    node_count: usize,
    quorum: usize,
    in_flight: usize,
    mode: Mode,
    poll: Polling,
    is_embedded: bool,
}

fn limit(args: &BenchArgs) -> Result<Limit, Failure> {
    let seconds = args.seconds.unwrap_or(3.0);
    let length = Duration::try_from_secs_f64(seconds).ok().filter(|length| !length.is_zero());
    let length = length.ok_or_else(|| Failure::usage("--seconds must be more than zero"))?;
    Ok(match args.iterations {
        Some(cycles) => Limit { cycles: cycles.get(), length: Duration::MAX },
        None => Limit { cycles: u64::MAX, length },
    })
}

/// The nodes to measure on; embedded ones live as long as the second value.
fn nodes(global: &Global) -> Result<(Config, Option<Nodes>), Failure> {
    if let Some(named) = settings::named_nodes(global)? {
        return Ok((settings::config_of(global, &named)?, None));
    }
    let nodes = Nodes::start(5)?;
    Ok((settings::config_of(global, &nodes.urls().join(","))?, Some(nodes)))
}

impl Limit {
    pub(crate) fn is_over(self, counts: &Counts, started: Instant) -> bool {
        counts.cycles + counts.failures >= self.cycles
            || now().saturating_since(started) >= self.length
    }

    /// A quarter of the length.
    fn quarter(self) -> Self {
        let cycles = if self.cycles < u64::MAX { self.cycles.div_ceil(4) } else { self.cycles };
        let length = if self.length < Duration::MAX { self.length / 4 } else { self.length };
        Self { cycles, length }
    }

    /// How far a run is, in thousandths.
    pub(crate) fn permille(self, counts: &Counts, started: Instant) -> u64 {
        let part = if self.cycles < u64::MAX {
            (counts.cycles + counts.failures).saturating_mul(1000) / self.cycles
        } else {
            let elapsed = now().saturating_since(started).as_micros().saturating_mul(1000);
            u64::try_from(elapsed / self.length.as_micros().max(1)).unwrap_or(1000)
        };
        part.min(1000)
    }
}

impl Counts {
    pub(crate) fn new() -> Result<Self, Failure> {
        let histogram = || {
            Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .map_err(|error| Failure::new(crate::exit::SYSTEM, "system", error.to_string()))
        };
        Ok(Self {
            acquire: histogram()?,
            release: histogram()?,
            cycles: 0,
            failures: 0,
            elapsed: Duration::ZERO,
            failure: None,
        })
    }

    /// Cycles per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rate(&self) -> f64 {
        self.cycles as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(crate) fn fail(&mut self, failure: LockError) {
        self.failures += 1;
        self.failure = Some(failure);
    }
}

fn latency(config: Config, limit: Limit, progress: &Progress) -> Result<Counts, Failure> {
    let mut client = Client::connect(config)?;
    let mut counts = Counts::new()?;
    let mut keys = Keys::new();
    for _ in 0..WARM_UP {
        if let Ok(lease) = client.try_lock(keys.next(), TTL) {
            client.unlock(lease)?;
        }
    }
    let started = now();
    while !limit.is_over(&counts, started) {
        let key = keys.next();
        let asked = now();
        match client.try_lock(key, TTL) {
            Ok(lease) => {
                let got = now();
                client.unlock(lease)?;
                let released = now();
                record(&mut counts.acquire, got.saturating_since(asked));
                record(&mut counts.release, released.saturating_since(got));
                counts.cycles += 1;
            }
            Err(error) => counts.fail(error),
        }
        if counts.cycles.is_multiple_of(PROGRESS_STEP) {
            progress.show(limit.permille(&counts, started));
        }
        tell(|| client.notice());
    }
    counts.elapsed = now().saturating_since(started);
    Ok(counts)
}

/// Cycles between two updates of the progress bar.
pub(crate) const PROGRESS_STEP: u64 = 512;

pub(crate) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// Names of keys that no other run uses. Making one allocates nothing.
#[derive(Debug)]
pub(crate) struct Keys {
    name: Vec<u8>,
    prefix_len: usize,
    count: u64,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let prefix = format!("redbolt:bench:{:x}:{:x}:", std::process::id(), now().as_nanos());
        let (prefix_len, mut name) = (prefix.len(), prefix.into_bytes());
        name.reserve(DIGITS_MAX);
        Self { name, prefix_len, count: 0 }
    }

    pub(crate) fn next(&mut self) -> &[u8] {
        self.count += 1;
        self.name.truncate(self.prefix_len);
        // Writing into a vector cannot fail.
        let _ = write!(self.name, "{}", self.count);
        &self.name
    }
}

/// Digits of the largest number in a key.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_without_an_allocation() {
        let mut keys = Keys::new();
        let mut names = Vec::with_capacity(4);
        let mut take = |from: u64| {
            keys.count = from;
            let allocations = allocation_counter::measure(|| {
                keys.next();
            });
            assert_eq!(allocations.count_total, 0);
            names.push(String::from_utf8(keys.name.clone()).unwrap());
        };
        [0, 8, 9, u64::MAX - 1].into_iter().for_each(&mut take);
        let numbers: Vec<&str> = names.iter().filter_map(|name| name.rsplit(':').next()).collect();
        assert_eq!(numbers, ["1", "9", "10", "18446744073709551615"]);
    }
}

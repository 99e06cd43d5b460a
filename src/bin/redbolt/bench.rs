//! `redbolt bench`: acquire and release on fresh keys, one at a time or many at once.

use std::time::Duration;

use hdrhistogram::Histogram;
use redbolt::embedded::Nodes;
use redbolt::time::Instant;
use redbolt::{Client, Config, Wait, now};
use serde_json::{Value, json};

use crate::args::{BenchArgs, Global, Mode, Polling};
use crate::exit::{Failure, NO_QUORUM};
use crate::output::{note, say, short, tell};
use crate::progress::Bar;
use crate::{settings, throughput};

/// Keys end by themselves so long after a benchmark that was killed.
pub(crate) const TTL: Duration = Duration::from_secs(5);

/// Cycles before the measurement begins.
const WARM_UP: u64 = 200;

const IN_FLIGHT: usize = 64;

/// What a benchmark counts.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) acquire: Histogram<u64>,
    pub(crate) release: Histogram<u64>,
    pub(crate) cycles: u64,
    pub(crate) failures: u64,
    pub(crate) elapsed: Duration,
    /// The last failure, for the case that there was nothing else.
    pub(crate) failure: Option<Failure>,
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
    let (config, _nodes) = nodes(global)?;
    let quorum = settings::quorum(global, &config)?;
    let node_count = config.nodes().len();
    let wait = match args.poll {
        Polling::Spin => Wait::Spin,
        Polling::Park => Wait::Park,
    };
    let mut progress = Bar::new();
    let config = config.wait(wait);
    let counts = match args.mode {
        Mode::Latency => latency(config, limit, &mut progress)?,
        Mode::Throughput => throughput::measure(config, in_flight, limit, &mut progress)?,
    };
    drop(progress);
    if counts.cycles == 0
        && let Some(failure) = counts.failure
    {
        return Err(failure);
    }
    let setup = Setup { node_count, quorum, in_flight, mode: args.mode, poll: args.poll };
    print(global.json, &setup, &counts)
}

/// What was measured.
#[derive(Debug)]
struct Setup {
    node_count: usize,
    quorum: usize,
    in_flight: usize,
    mode: Mode,
    poll: Polling,
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
    note("no nodes named: measuring on five embedded ones, which share this machine's processors");
    let nodes = Nodes::start(5)?;
    Ok((settings::config_of(global, &nodes.urls().join(","))?, Some(nodes)))
}

impl Limit {
    pub(crate) fn is_over(self, counts: &Counts, started: Instant) -> bool {
        counts.cycles + counts.failures >= self.cycles
            || now().saturating_since(started) >= self.length
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

    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failures += 1;
        self.failure = Some(failure);
    }
}

fn latency(config: Config, limit: Limit, progress: &mut Bar) -> Result<Counts, Failure> {
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
            Err(error) => counts.fail(error.into()),
        }
        if counts.cycles.is_multiple_of(PROGRESS_STEP) {
            progress.show(limit.permille(&counts, started));
        }
        tell(|| client.notice());
    }
    counts.elapsed = now().saturating_since(started);
    Ok(counts)
}

/// Cycles between two looks at the progress bar.
pub(crate) const PROGRESS_STEP: u64 = 512;

pub(crate) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// Names of keys that no other run uses.
#[derive(Debug)]
pub(crate) struct Keys {
    name: Vec<u8>,
    prefix_len: usize,
    count: u64,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let prefix = format!("redbolt:bench:{:x}:{:x}:", std::process::id(), now().as_nanos());
        Self { prefix_len: prefix.len(), name: prefix.into_bytes(), count: 0 }
    }

    pub(crate) fn next(&mut self) -> &[u8] {
        self.count += 1;
        self.name.truncate(self.prefix_len);
        self.name.extend_from_slice(self.count.to_string().as_bytes());
        &self.name
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn print(json: bool, setup: &Setup, counts: &Counts) -> Result<(), Failure> {
    let rate = counts.cycles as f64 / counts.elapsed.as_secs_f64().max(1e-9);
    let mode = if setup.mode == Mode::Latency { "latency" } else { "throughput" };
    let poll = if setup.poll == Polling::Spin { "spin" } else { "park" };
    let Setup { node_count, quorum, in_flight, .. } = setup;
    if json {
        say(json!({
            "nodes": node_count,
            "quorum": quorum,
            "mode": mode,
            "poll": poll,
            "in_flight": in_flight,
            "cycles": counts.cycles,
            "failures": counts.failures,
            "cycles_per_s": rate.round(),
            "acquire_us": percentiles(&counts.acquire),
            "release_us": percentiles(&counts.release),
        }))?;
    } else {
        say(format_args!(
            "{node_count} nodes, quorum {quorum}; {mode} with {in_flight} in flight, {poll}\n\
             {} cycles in {}: {rate:.0} a second, {} failures\n\
             \n               p50       p90       p99     p99.9       max",
            counts.cycles,
            short(counts.elapsed),
            counts.failures
        ))?;
        for (name, histogram) in [("acquire", &counts.acquire), ("release", &counts.release)] {
            let time = |(_, quantile)| {
                let nanos = histogram.value_at_quantile(quantile);
                format!("{:>9}", precise(Duration::from_nanos(nanos)))
            };
            say(format_args!("{name}  {}", QUANTILES.map(time).join(" ")))?;
        }
    }
    match &counts.failure {
        Some(_) if json && counts.failures > counts.cycles => Err(Failure::code(NO_QUORUM)),
        Some(failure) if counts.failures > counts.cycles => Err(Failure::new(
            NO_QUORUM,
            "no_quorum",
            format!("most attempts failed; the last one: {}", failure.message),
        )),
        _ => Ok(()),
    }
}

pub(crate) const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

/// The quantiles in microseconds, to a tenth.
pub(crate) fn percentiles(nanos: &Histogram<u64>) -> Value {
    let tenths = |quantile| nanos.value_at_quantile(quantile) / 100;
    let value = |quantile| {
        Value::from(f64::from(u32::try_from(tenths(quantile)).unwrap_or(u32::MAX)) / 10.0)
    };
    QUANTILES.iter().map(|&(name, quantile)| (name.to_owned(), value(quantile))).collect()
}

/// Microseconds to a tenth below a millisecond.
fn precise(duration: Duration) -> String {
    if duration < Duration::from_millis(1) {
        format!("{:.1} us", duration.as_secs_f64() * 1e6)
    } else {
        short(duration)
    }
}

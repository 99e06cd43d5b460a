//! `redbolt bench`: acquire and release on fresh keys, one at a time or many at once.

mod counts;
mod keys;
mod latency;
mod limit;
mod report;
mod setup;
mod throughput;

use redbolt::IdleStrategy;

use crate::args::Global;
use crate::bench_args::{BenchArgs, Mode, Polling};
use crate::exit::Failure;
use crate::progress::Progress;
use crate::signals::{ENDING, Signals};
use limit::Limit;
use report::Report;
use setup::{Setup, nodes};

const IN_FLIGHT: usize = 64;

pub(crate) fn run(global: &Global, args: &BenchArgs) -> Result<(), Failure> {
    if args.in_flight.is_some() && args.mode != Mode::Throughput {
        return Err(Failure::usage("--in-flight goes with --mode throughput"));
    }
    let signals = Signals::watch(&ENDING, || {})?;
    let limit = Limit::of(args)?;
    let (config, embedded) = nodes(global)?;
    let in_flight = match args.mode {
        Mode::Throughput => args.in_flight.map_or(IN_FLIGHT, Into::into),
        Mode::Latency => 1,
    };
    let setup = Setup::new(global, args, &config, in_flight, embedded.is_some())?;
    setup.tell();
    let progress = Progress::spinner("measuring".to_owned());
    let spins = args.poll == Polling::Spin;
    let config = config.idle_strategy(if spins { IdleStrategy::Spin } else { IdleStrategy::Park });
    let counts = if args.mode == Mode::Throughput {
        throughput::measure(config, in_flight, spins, limit, &signals)?
    } else {
        latency::measure(global, config, limit, &signals)?
    };
    drop(progress);
    if counts.cycles == 0
        && let Some(failure) = counts.failure
    {
        return Err(failure.into());
    }
    Report { setup: &setup, counts: &counts }.print(global.json)
}

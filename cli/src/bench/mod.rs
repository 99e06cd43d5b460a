//! `redbolt bench`: acquire and release on fresh keys, one at a time or many at once.

mod compare;
mod counts;
mod drawing;
mod keys;
mod latency;
mod limit;
mod report;
mod setup;
mod throughput;

use redbolt::{Config, IdleStrategy};
use redbolt_embedded::Nodes;

use crate::args::{BenchArgs, Global, Mode, Polling};
use crate::exit::Failure;
use crate::output::note;
use crate::progress::Progress;
use crate::settings;
use compare::Saved;
use drawing::Drawing;
use limit::Limit;
use report::Report;
use setup::Setup;

const IN_FLIGHT: usize = 64;

pub(crate) fn run(global: &Global, args: &BenchArgs) -> Result<(), Failure> {
    let limit = Limit::of(args)?;
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
        Mode::Latency => latency::measure(config.clone(), limit, &progress)?,
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

/// The nodes to measure on; embedded ones live as long as the second value.
fn nodes(global: &Global) -> Result<(Config, Option<Nodes>), Failure> {
    if let Some(named) = &global.nodes {
        return Ok((settings::config_of(global, named)?, None));
    }
    let nodes = Nodes::start(5)?;
    Ok((settings::config_of(global, &nodes.urls().join(","))?, Some(nodes)))
}

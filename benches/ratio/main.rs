//! Redbolt against the raw-socket probe, interleaved in one process, as ratios.
//!
//! `cargo bench -p redbolt-benches --bench ratio -- [SUITE ..] [--slices N] [--plots DIR]`
//!
//! Suites: latency, nodes, polling, throughput, threads, locks, faults, handover, transfers,
//! lingering, siblings, network, fences, floor, sets, slots, and with the feature `tls` the suite
//! `tls`. Without a SUITE the bench runs all of them. They run on nodes in this process;
//! `REDBOLT_NODES=127.0.0.1:7001,..` names servers instead (Valkey 9 or later, TCP or `unix://`
//! paths). Slices of the two clients alternate, their order swapped each time; reported are medians
//! over the slices. Nothing is asserted.

mod bare;
mod bare_transfers;
#[cfg(feature = "tls")]
mod encrypted;
mod faults;
mod fences;
mod floor;
mod handover;
mod latency;
mod lingering;
mod locks;
mod network;
mod nodes;
mod plot;
mod polling;
mod sets;
mod siblings;
mod slices;
mod slots;
mod threads;
mod throughput;
mod transfers;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) type Anything<T = ()> = Result<T, Box<dyn Error>>;

/// No measured lock ends by time.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The options of the command line.
pub(crate) struct Options {
    pub(crate) slices: usize,
    /// The directory for the plots.
    pub(crate) plots: Option<PathBuf>,
}

type Suite = fn(&Options) -> Anything;

const SUITES: &[(&str, Suite)] = &[
    ("latency", latency::run),
    ("nodes", latency::by_nodes),
    ("polling", polling::run),
    ("throughput", throughput::run),
    ("threads", threads::run),
    ("locks", locks::run),
    ("faults", faults::run),
    ("handover", handover::run),
    ("transfers", transfers::run),
    ("lingering", lingering::run),
    ("siblings", siblings::run),
    ("network", network::run),
    ("fences", fences::run),
    ("floor", floor::run),
    ("sets", sets::run),
    ("slots", slots::run),
    #[cfg(feature = "tls")]
    ("tls", encrypted::run),
];

fn main() -> Anything {
    let mut options = Options { slices: 40, plots: None };
    let mut wanted = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => {}
            "--slices" => options.slices = words.next().unwrap_or_default().parse()?,
            "--plots" => options.plots = words.next().map(PathBuf::from),
            name => {
                let suite = SUITES.iter().find(|(suite, _)| *suite == name);
                wanted.push(suite.ok_or_else(|| format!("no suite {name}"))?);
            }
        }
    }
    if wanted.is_empty() {
        wanted.extend(SUITES);
    }
    for (name, suite) in wanted {
        println!("## {name}");
        suite(&options)?;
        println!();
    }
    Ok(())
}

//! The options of `redbolt bench`.

use std::num::NonZeroU64;

use clap::{Args, ValueEnum, value_parser};

#[derive(Debug, Args)]
#[command(after_help = "\
Without nodes it measures on five embedded ones, which share this machine's processors.

Example:  redbolt bench --mode throughput --in-flight 256 --seconds 5 --poll spin")]
pub(crate) struct BenchArgs {
    /// One lock at a time, or many at once
    #[arg(
        long,
        value_name = "latency|throughput",
        default_value = "latency",
        hide_possible_values = true
    )]
    pub(crate) mode: Mode,
    /// Operations under way at once, 1 to 4096, with --mode throughput [default: 64]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=4096))]
    pub(crate) in_flight: Option<u16>,
    /// Stop after this many cycles of acquire and release
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    pub(crate) iterations: Option<NonZeroU64>,
    /// Stop after this many seconds [default: 3]
    #[arg(long, value_name = "S")]
    pub(crate) seconds: Option<f64>,
    /// How to wait for answers: park sleeps, spin keeps one processor busy
    #[arg(long, value_name = "spin|park", default_value = "park", hide_possible_values = true)]
    pub(crate) poll: Polling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Latency,
    Throughput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Polling {
    Spin,
    Park,
}

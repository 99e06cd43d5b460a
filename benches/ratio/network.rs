//! Locks over slower networks: one round trip to the q-th fastest node, and nothing more.

use std::time::Duration;

use redbolt::{Client, IdleStrategy};

use crate::latency::add;
use crate::nodes::{Setup, config, probe};
use crate::plot::{Line, Plot, Scale, save};
use crate::slices::{Bench, medians, percentile};
use crate::{Anything, Options};
use redbolt_benches::proxy::delayed;

/// Round trips of the five nodes, in microseconds.
const NETWORKS: [[u64; 5]; 6] = [
    [0; 5],
    [100; 5],
    [1_000; 5],
    [30_000; 5],
    [100, 100, 100, 30_000, 30_000],
    [100, 100, 1_000, 30_000, 30_000],
];

pub(crate) fn run(options: &Options) -> Anything {
    let Some(setup) = Setup::new(5)?.filter(Setup::is_tcp) else {
        println!("needs five nodes over TCP");
        return Ok(());
    };
    println!("| added round trips (ms) | to the third node | acquire p50 | of the probe |");
    println!("|---|---|---|---|");
    let mut lines: Vec<Line> = Vec::new();
    for network in NETWORKS {
        let (_proxies, addresses) = delayed(&setup.addresses, network.map(Duration::from_micros))?;
        let config = config(&addresses, IdleStrategy::Park)?;
        let third = network[2];
        // Each client runs for about a second.
        let cycles = usize::try_from(20_000 / (third + 500)).unwrap_or(1).clamp(1, 20);
        let slices = if third > 10_000 { options.slices / 4 } else { options.slices };
        let mut bench =
            Bench::new((Client::connect(config)?, probe(&addresses, IdleStrategy::Park)?), cycles);
        let pairs = bench.compare(slices.max(3))?;
        let [probe, ours, ratio] = medians(&pairs, |times| percentile(&times.acquire, 0.5));
        let names = network.map(|micros| format!("{}", micros as f64 / 1e3)).join(", ");
        println!("| {names} | {} ms | {:.3} ms | {ratio:.3} |", third as f64 / 1e3, ours / 1e3);
        if network.iter().all(|micros| micros == &third) && third > 0 {
            add(&mut lines, "round trip alone".into(), third as f64 / 1e3, third as f64 / 1e3);
            add(&mut lines, "probe".into(), third as f64 / 1e3, probe / 1e3);
            add(&mut lines, "redbolt".into(), third as f64 / 1e3, ours / 1e3);
        }
    }
    if let Some(dir) = &options.plots {
        let plot = Plot {
            title: "Acquire at five nodes over slower networks (p50)",
            x: "added round trip, milliseconds",
            y: "milliseconds",
            x_scale: Scale::Log,
            y_scale: Scale::Log,
            lines,
        };
        save(&dir.join("network.svg"), "", &[plot])?;
    }
    Ok(())
}

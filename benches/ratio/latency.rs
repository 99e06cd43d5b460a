//! Lock and release, one at a time, by number of nodes and way of waiting.

use redbolt::IdleStrategy;

use crate::nodes::{ALL_WAITS, Setup, WAITS, both};
use crate::plot::{Line, Plot, Scale, save};
use crate::slices::{Bench, CYCLES, Pair, Times, medians, percentile};
use crate::{Anything, Options};

const HEAD: &str = "| nodes | wait | acquire p50 | p50 of the probe | acquire p99 | p99 of the probe | release p50 | release of the probe |\n|---|---|---|---|---|---|---|---|";

pub(crate) fn run(options: &Options) -> Anything {
    println!("{HEAD}");
    let mut lines = Vec::new();
    for count in [1, 3, 5] {
        let Some(setup) = Setup::new(count)? else { continue };
        for (name, wait) in ALL_WAITS {
            let pairs = measure(&setup, count, (name, wait), options.slices)?;
            // The line of `SpinThenPark` would lie between the other two and hide them.
            if count == 5 && !name.contains("then") {
                lines.extend(distributions(name, &pairs));
            }
        }
    }
    let Some(dir) = &options.plots else { return Ok(()) };
    let plot = Plot {
        title: "Acquire at five nodes: share of attempts done within",
        x: "microseconds",
        y: "percent",
        x_scale: Scale::Log,
        y_scale: Scale::Zero,
        lines,
    };
    Ok(save(&dir.join("latency.svg"), "", &[plot])?)
}

/// From one node to the most that a client may have.
pub(crate) fn by_nodes(options: &Options) -> Anything {
    println!("{HEAD}");
    for count in [1, 3, 5, 7, 9, 15, 31] {
        let Some(setup) = Setup::new(count)? else { continue };
        for (name, wait) in WAITS {
            measure(&setup, count, (name, wait), options.slices)?;
        }
    }
    Ok(())
}

/// All slices.
fn measure(
    setup: &Setup,
    count: usize,
    (name, wait): (&str, IdleStrategy),
    slices: usize,
) -> Anything<Vec<Pair<Times>>> {
    let mut bench = Bench::new(both(&setup.addresses, wait)?, CYCLES);
    let pairs = bench.compare(slices)?;
    let [_, p50, p50_ratio] = medians(&pairs, |times| percentile(&times.acquire, 0.5));
    let [_, p99, p99_ratio] = medians(&pairs, |times| percentile(&times.acquire, 0.99));
    let [_, release, release_ratio] = medians(&pairs, |times| percentile(&times.release, 0.5));
    println!(
        "| {count} | {name} | {p50:.1} us | {p50_ratio:.3} | {p99:.1} us | {p99_ratio:.3} | \
         {release:.1} us | {release_ratio:.3} |"
    );
    Ok(pairs)
}

/// Adds a point to the line of that name.
pub(crate) fn add(lines: &mut Vec<Line>, name: String, x: f64, y: f64) {
    match lines.iter_mut().find(|line| line.name == name) {
        Some(line) => line.points.push((x, y)),
        None => lines.push(Line { name, points: vec![(x, y)] }),
    }
}

/// How the times of all slices together are distributed, up to 99.9 %.
fn distributions(wait: &str, pairs: &[Pair<Times>]) -> [Line; 2] {
    let line = |who: &str, times: Vec<u64>| {
        let point = |permille: u32| {
            let share = f64::from(permille) / 1000.0;
            (percentile(&times, share), share * 100.0)
        };
        let shares = (10..990).step_by(10).chain(990..=999);
        Line { name: format!("{who}, {wait}"), points: shares.map(point).collect() }
    };
    [
        line("probe", pairs.iter().flat_map(|pair| pair.probe.acquire.clone()).collect()),
        line("redbolt", pairs.iter().flat_map(|pair| pair.ours.acquire.clone()).collect()),
    ]
}

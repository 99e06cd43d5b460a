//! Two clients that differ by little, by turns in short slices: both meet the same machine then, and
//! the ratio of each pair of slices says more than the quotient of two averages.

use std::fmt::Write as _;

use crate::measure::{Row, Slice};
use crate::record::{median, percentile};
use crate::{Anything, Options, start};
use redbolt_benches::proxy::Proxy;

/// Pairs of slices in each run.
const PAIRS: usize = 100;
const SLICE_MS: u64 = 100;

/// One measured slice of a row.
type Measured = fn(&mut Row) -> Anything<f64>;

pub(crate) fn run(options: &Options, proxy: &Proxy, load: &str) -> Anything {
    let mut text = format!("# {}, load {load}\n", options.origin);
    writeln!(
        text,
        "# Medians over {PAIRS} pairs of slices of {SLICE_MS} ms; each client tuned, on a processor without servers."
    )?;
    writeln!(text, "run,figure,{},of the first", options.names.join(","))?;
    for run in 1..=options.runs {
        let (mut rows, left_out) = start(options, proxy)?;
        rows.retain(|row| row.setting == "tuned");
        let [first, second] = rows.as_mut_slice() else {
            return Err(format!("two clients are measured beside each other: {left_out:?}").into());
        };
        let mut figures: Vec<(&str, Measured)> =
            vec![("acquire p50 in us", acquire), ("cycles per second", cycles)];
        if options.names.contains(&"node-redlock") {
            figures.push(("acquire p50 of ten keys in us", acquire_ten));
        }
        for (figure, slice) in figures {
            let mut pairs = Vec::new();
            for nth in 0..PAIRS {
                pairs.push(if nth % 2 == 0 {
                    (slice(first)?, slice(second)?)
                } else {
                    let later = slice(second)?;
                    (slice(first)?, later)
                });
            }
            let of = |value: fn(&(f64, f64)) -> f64| median(pairs.iter().map(value)).unwrap_or(0.0);
            let ratio = of(|(first, second)| second / first);
            let line =
                format!("{run},{figure},{:.1},{:.1},{ratio:.3}", of(|it| it.0), of(|it| it.1));
            eprintln!("{line}");
            writeln!(text, "{line}")?;
        }
    }
    if let Some(file) = &options.csv {
        std::fs::write(file, &text)?;
    }
    println!("{text}");
    Ok(())
}

fn acquire(row: &mut Row) -> Anything<f64> {
    p50(&row.acquisitions(SLICE_MS, "")?)
}

fn acquire_ten(row: &mut Row) -> Anything<f64> {
    p50(&row.acquisitions(SLICE_MS, "10")?)
}

fn p50(slice: &Slice) -> Anything<f64> {
    percentile(slice.us.iter().copied(), 0.5).ok_or_else(|| "no lock was won".into())
}

fn cycles(row: &mut Row) -> Anything<f64> {
    row.measure_cycles(SLICE_MS)?;
    row.cycles.last().copied().ok_or_else(|| "no slice".into())
}

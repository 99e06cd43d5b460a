//! The costs of a million leases: memory, and the operations beside them. Also a million timers
//! that come due, and a lost node with the most debts that it may have.
//!
//! `cargo bench -p redbolt-benches --bench leases -- [--leases N] [--plots DIR]`
//!
//! The engine's figures are without sockets, on five nodes. Memory and the client's latency are
//! measured on three nodes in this process, on the client's thread alone.

mod client;
mod engine;

use std::error::Error;
use std::path::PathBuf;

use redbolt_cli::plot::{Line, Plot, Scale, save};

pub(crate) type Anything<T = ()> = Result<T, Box<dyn Error>>;

/// A count, and the nanoseconds per operation at that count.
type Point = (f64, f64);

fn main() -> Anything {
    let (mut leases, mut plots) = (1_000_000, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--leases" => leases = words.next().unwrap_or_default().parse()?,
            "--plots" => plots = words.next().map(PathBuf::from),
            "--bench" => {}
            word => return Err(format!("unknown: {word}").into()),
        }
    }
    let counts: Vec<usize> = [0, 1_000, 10_000, 100_000]
        .into_iter()
        .filter(|count| *count < leases)
        .chain([leases])
        .collect();
    let beside = engine::beside_leases(&counts)?;
    let retries = engine::timers(&counts)?;
    engine::debts()?;
    client::memory(leases)?;
    let Some(dir) = plots else { return Ok(()) };
    let plot = Plot {
        title: "Engine without sockets, five nodes",
        x: "leases held, or retries waiting",
        y: "nanoseconds",
        x_scale: Scale::Log,
        y_scale: Scale::Zero,
        lines: vec![
            Line { name: "acquire and release".into(), points: without_zero(&beside) },
            Line { name: "one retry coming due".into(), points: without_zero(&retries) },
        ],
    };
    save(&dir.join("leases.svg"), "", &[plot])?;
    Ok(())
}

/// The points that a logarithmic axis can show.
fn without_zero(points: &[Point]) -> Vec<Point> {
    points.iter().copied().filter(|point| point.0 > 0.0).collect()
}

//! `bench --plot`: the times of the run as a distribution, and the throughput over the batch size.

use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;
use redbolt::Config;
use serde_json::{Value, json};

use super::counts::Counts;
use super::limit::Limit;
use super::setup::Setup;
use super::throughput;
use crate::exit::Failure;
use crate::plot::{Line, Plot, Scale, save};
use crate::progress::Progress;
use crate::signals::Signals;

/// Locks under way at once.
const BATCHES: [u16; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A plot under construction.
#[derive(Debug)]
pub(super) struct Drawing {
    path: PathBuf,
    /// Locks under way, and cycles per second.
    rates: Vec<(u16, f64)>,
}

impl Drawing {
    /// A drawing for `path`; fails before the run if the run could not write it.
    pub(super) fn to(path: &Path) -> Result<Self, Failure> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        if path.is_dir() || dir.is_some_and(|dir| !dir.is_dir()) {
            let what = if path.is_dir() { "is a directory" } else { "its directory is not there" };
            return Err(Failure::usage(format!("--plot {}: {what}", path.display())));
        }
        Ok(Self { path: path.to_owned(), rates: Vec::new() })
    }

    /// Measures each batch size, for a quarter of the time of the run.
    pub(super) fn measure(
        &mut self,
        config: &Config,
        spins: bool,
        limit: Limit,
        outside: (&Signals, &Progress),
    ) -> Result<(), Failure> {
        for batch in BATCHES {
            let limit = limit.quarter();
            let counts = throughput::measure(config.clone(), batch.into(), spins, limit, outside)?;
            self.rates.push((batch, counts.rate()));
        }
        Ok(())
    }

    pub(super) fn save(&self, setup: &Setup, counts: &Counts) -> Result<(), Failure> {
        let line = |name: &str, points| Line { name: name.to_owned(), points };
        let times = Plot {
            title: "Share of acquisitions and releases done within a time",
            x: "microseconds",
            y: "percent",
            x_scale: Scale::Log,
            y_scale: Scale::Zero,
            lines: vec![
                line("acquire", shares(&counts.acquire)),
                line("release", shares(&counts.release)),
            ],
        };
        let rates = self.rates.iter().map(|&(batch, rate)| (f64::from(batch), rate)).collect();
        let rates = Plot {
            title: "Throughput over the batch size",
            x: "locks under way",
            y: "acquire and release, per second",
            x_scale: Scale::Log,
            y_scale: Scale::Zero,
            lines: vec![line("cycles per second", rates)],
        };
        save(&self.path, &setup.text(), &[times, rates])
            .map_err(|error| Failure::system(format!("--plot {}: {error}", self.path.display())))
    }

    pub(super) fn json(&self) -> Value {
        let rates = self
            .rates
            .iter()
            .map(|(batch, rate)| json!({"in_flight": batch, "cycles_per_s": rate.round()}));
        let rates: Vec<Value> = rates.collect();
        json!({"file": self.path.display().to_string(), "throughput": rates})
    }

    pub(super) fn text(&self) -> String {
        let best = self.rates.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let best = best.map_or_else(String::new, |(batch, rate)| {
            format!(": most with {batch} in flight, {rate:.0} cycles per second")
        });
        format!("drawn to {}{best}", self.path.display())
    }
}

/// Durations in microseconds, and the share in percent that took no longer.
fn shares(nanos: &Histogram<u64>) -> Vec<(f64, f64)> {
    // Each step halves the rest, so the tail gets as many points as the middle.
    let steps = nanos.iter_quantiles(8);
    let point = |value: u64, share: f64| {
        let us = f64::from(u32::try_from(value / 10).unwrap_or(u32::MAX)) / 100.0;
        (us.max(0.01), share * 100.0)
    };
    let mut points = vec![point(nanos.min(), 0.0)];
    points.extend(steps.map(|step| point(step.value_iterated_to(), step.quantile())));
    points
}

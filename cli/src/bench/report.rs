//! The report of a benchmark: numbers for people, or one JSON object.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::compare::Saved;
use super::drawing::Drawing;
use super::{Counts, Setup};
use crate::args::{Mode, Polling};
use crate::exit::{Failure, NO_QUORUM};
use crate::output::{say, short};

/// A benchmark that has ended.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) setup: &'a Setup,
    pub(super) counts: &'a Counts,
    pub(super) saved: Option<&'a Saved>,
    pub(super) drawing: Option<&'a Drawing>,
}

impl Report<'_> {
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        let counts = self.counts;
        if json {
            say(self.json())?
        } else {
            self.print_text()?
        }
        match &counts.failure {
            Some(_) if json && counts.failures > counts.cycles => Err(Failure::code(NO_QUORUM)),
            Some(failure) if counts.failures > counts.cycles => Err(Failure::new(
                NO_QUORUM,
                "no_quorum",
                format!(
                    "most attempts failed; the last one: {}",
                    Failure::from(failure.clone()).message
                ),
            )),
            _ => Ok(()),
        }
    }

    fn json(&self) -> Value {
        let counts = self.counts;
        let mut object = self.setup.json();
        let results = json!({
            "cycles": counts.cycles,
            "failures": counts.failures,
            "cycles_per_s": counts.rate().round(),
            "acquire_us": percentiles(&counts.acquire),
            "release_us": percentiles(&counts.release),
        });
        add(&mut object, results);
        if let Some(saved) = self.saved {
            let compare = saved.json(&object);
            add(&mut object, json!({ "compare": compare }));
        }
        if let Some(drawing) = self.drawing {
            add(&mut object, json!({"plot": drawing.json()}));
        }
        object
    }

    fn print_text(&self) -> Result<(), Failure> {
        let counts = self.counts;
        say(format_args!(
            "{}\n{} cycles in {}: {:.0} a second, {} failures\n\
             \n               p50       p90       p99     p99.9       max",
            self.setup.text(),
            counts.cycles,
            short(counts.elapsed),
            counts.rate(),
            counts.failures
        ))?;
        for (name, histogram) in [("acquire", &counts.acquire), ("release", &counts.release)] {
            let time = |(_, quantile)| {
                let nanos = histogram.value_at_quantile(quantile);
                format!("{:>9}", precise(Duration::from_nanos(nanos)))
            };
            say(format_args!("{name}  {}", QUANTILES.map(time).join(" ")))?;
        }
        if let Some(saved) = self.saved {
            say(format_args!("\n{}", saved.text(&self.json())))?;
        }
        if let Some(drawing) = self.drawing {
            say(format_args!("\n{}", drawing.text()))?;
        }
        Ok(())
    }
}

impl Setup {
    pub(super) fn json(&self) -> Value {
        json!({
            "nodes": self.node_count,
            "quorum": self.quorum,
            "embedded": self.is_embedded,
            "mode": self.mode_word(),
            "poll": self.poll_word(),
            "in_flight": self.in_flight,
        })
    }

    pub(super) fn text(&self) -> String {
        let Self { node_count, quorum, in_flight, .. } = self;
        let (mode, poll) = (self.mode_word(), self.poll_word());
        let embedded = if self.is_embedded { " embedded" } else { "" };
        format!(
            "{node_count}{embedded} nodes, quorum {quorum}; {mode} with {in_flight} in flight, {poll}"
        )
    }

    const fn mode_word(&self) -> &'static str {
        match self.mode {
            Mode::Latency => "latency",
            Mode::Throughput => "throughput",
        }
    }

    const fn poll_word(&self) -> &'static str {
        match self.poll {
            Polling::Spin => "spin",
            Polling::Park => "park",
        }
    }
}

/// Adds the fields of one object to another.
fn add(object: &mut Value, fields: Value) {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
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
pub(super) fn precise(duration: Duration) -> String {
    if duration < Duration::from_millis(1) {
        format!("{:.1} us", duration.as_secs_f64() * 1e6)
    } else {
        short(duration)
    }
}

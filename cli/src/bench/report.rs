//! The report of a benchmark: numbers for people, or one JSON object.

use serde_json::{Value, json};

use super::counts::Counts;
use super::setup::Setup;
use crate::exit::{Failure, NO_QUORUM};
use crate::output::{add, say, short};
use crate::times::{QUANTILES, at, percentiles, precise};

/// A benchmark that has ended.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) setup: &'a Setup,
    pub(super) counts: &'a Counts,
}

impl Report<'_> {
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        let counts = self.counts;
        if json {
            say(self.json())?
        } else {
            self.print_text()?
        }
        let most_failed = counts.failures > counts.cycles;
        let last = counts.failure.clone().filter(|_| most_failed).map(Failure::from);
        match last {
            None => Ok(()),
            // The JSON tells the failures.
            Some(_) if json => Err(Failure::code(NO_QUORUM)),
            Some(Failure { message, .. }) => {
                let message = format!("most attempts failed; the last one: {message}");
                Err(Failure::new(NO_QUORUM, "no_quorum", message))
            }
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
        object
    }

    fn print_text(&self) -> Result<(), Failure> {
        let counts = self.counts;
        say(format_args!(
            "{}\n{} cycles in {}: {:.0} per second, {} failures\n\
             \n               p50       p90       p99     p99.9       max",
            self.setup.text(),
            counts.cycles,
            short(counts.elapsed),
            counts.rate(),
            counts.failures
        ))?;
        for (name, histogram) in [("acquire", &counts.acquire), ("release", &counts.release)] {
            let time = |(_, quantile)| format!("{:>9}", precise(at(histogram, quantile)));
            say(format_args!("{name}  {}", QUANTILES.map(time).join(" ")))?;
        }
        Ok(())
    }
}

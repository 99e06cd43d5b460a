//! The report of `bench --mode handover`: numbers for people, or one JSON object.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::figures::Figures;
use crate::bench::compare::Saved;
use crate::bench::drawing::Drawing;
use crate::bench::report::{add_beside, say_beside};
use crate::bench::setup::Setup;
use crate::exit::Failure;
use crate::output::{add, say, short};
use crate::times::{QUANTILES, percentiles, precise};
use crate::way::Way;

#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) setup: &'a Setup,
    pub(super) figures: &'a Figures,
    pub(super) saved: Option<&'a Saved>,
    pub(super) drawing: Option<&'a Drawing>,
}

impl Report<'_> {
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            say(self.json())?
        } else {
            self.print_text()?
        }
        let Figures { turns, failures, why, .. } = self.figures;
        match why {
            Some(why) if failures > turns => Err(Failure::most_failed(why, json)),
            _ => Ok(()),
        }
    }

    fn json(&self) -> Value {
        let figures = self.figures;
        let times = |times: &Histogram<u64>| match times.is_empty() {
            true => Value::Null,
            false => percentiles(times),
        };
        let ways = Way::ALL.iter().zip(&figures.by);
        let by: Map<String, Value> = ways
            .map(|(way, (turns, handovers))| {
                (way.name().to_owned(), json!({"turns": turns, "handover_us": times(handovers)}))
            })
            .collect();
        let trips: Map<String, Value> = QUANTILES
            .iter()
            .map(|(name, quantile)| {
                ((*name).to_owned(), figures.round_trips(*quantile).map(hundredths).into())
            })
            .collect();
        let round_trip = figures.round_trip.map(|time| (time.as_secs_f64() * 1e7).round() / 10.0);
        let mut object = self.setup.json();
        let results = json!({
            "turns": figures.turns,
            "handovers": figures.handovers.len(),
            "handovers_per_s": figures.rate().round(),
            "failures": figures.failures,
            "round_trip_us": round_trip,
            "handover_us": times(&figures.handovers),
            "handover_round_trips": trips,
            "by": by,
            "least_served": hundredths(figures.least_served),
        });
        add(&mut object, results);
        add_beside(&mut object, self.saved, self.drawing);
        object
    }

    fn print_text(&self) -> Result<(), Failure> {
        let figures = self.figures;
        say(format_args!(
            "{}\n{} turns in {}: {:.0} hand-overs per second, {} failures\n\
             \n                     p50       p90       p99     p99.9       max",
            self.setup.text(),
            figures.turns,
            short(figures.elapsed),
            figures.rate(),
            figures.failures
        ))?;
        self.row("hand-over", &figures.handovers)?;
        if let Some(round_trip) = figures.round_trip {
            let trips = |(_, quantile)| match figures.round_trips(quantile) {
                Some(trips) => format!("{trips:>9.2}"),
                None => format!("{:>9}", "-"),
            };
            let line = QUANTILES.map(trips).join(" ");
            say(format_args!("  in round trips {line}   of {}", precise(round_trip)))?;
        }
        for (way, (_, handovers)) in Way::ALL.iter().zip(&figures.by) {
            if !handovers.is_empty() {
                self.row(&format!("  by {}", way.name()), handovers)?;
            }
        }
        let ways = Way::ALL.iter().zip(&figures.by);
        let ways: Vec<_> =
            ways.map(|(way, (turns, _))| format!("{turns} by {}", title(*way))).collect();
        say(format_args!(
            "\nturns        {}\nleast served {:.2} of the mean",
            ways.join(", "),
            figures.least_served
        ))?;
        say_beside(&self.json(), self.saved, self.drawing)
    }

    fn row(&self, name: &str, times: &Histogram<u64>) -> Result<(), Failure> {
        let time = |(_, quantile)| match times.is_empty() {
            true => format!("{:>9}", "-"),
            false => {
                let nanos = times.value_at_quantile(quantile);
                format!("{:>9}", precise(Duration::from_nanos(nanos)))
            }
        };
        Ok(say(format_args!("{name:<16} {}", QUANTILES.map(time).join(" ")))?)
    }
}

const fn title(way: Way) -> &'static str {
    match way {
        Way::First => "first attempt",
        Way::Transfer | Way::Wake | Way::Poll => way.name(),
    }
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

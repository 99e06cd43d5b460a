//! `bench --compare`: this run beside a saved one, and their ratio.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::setup::Setup;
use crate::exit::Failure;
use crate::table::Table;
use crate::times::{QUANTILES, precise};

/// The settings that two runs must share for a comparison.
const SETTINGS: [&str; 6] = ["nodes", "quorum", "embedded", "mode", "poll", "in_flight"];

const RATE: &str = "cycles_per_s";

const TIMES: [(&str, &str); 2] = [("acquire_us", "acquire"), ("release_us", "release")];

/// An earlier output of `bench --json`.
#[derive(Debug)]
pub(super) struct Saved {
    name: String,
    run: Value,
}

impl Saved {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("--compare {name}: {error}")))?;
        let run: Value = serde_json::from_str(&text).unwrap_or_default();
        let saved = Self { name, run };
        let is_there = |path: &[&str]| !at(&saved.run, path).is_null();
        let has_times = TIMES
            .iter()
            .all(|(field, _)| QUANTILES.iter().all(|(name, _)| is_there(&[field, name])));
        if has_times && is_there(&[RATE]) && SETTINGS.iter().all(|name| is_there(&[name])) {
            return Ok(saved);
        }
        Err(Failure::usage(format!(
            "--compare {}: it is not what redbolt bench --json prints",
            saved.name
        )))
    }

    /// Refuses a comparison of runs that differ in more than their speed.
    pub(super) fn check(&self, setup: &Setup) -> Result<(), Failure> {
        let now = setup.json();
        let differences: Vec<String> = SETTINGS
            .iter()
            .map(|name| (name, at(&self.run, &[name]), at(&now, &[name])))
            .filter(|(_, saved, now)| saved != now)
            .map(|(name, saved, now)| format!("{name} {} (now {})", word(saved), word(now)))
            .collect();
        if differences.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--compare {}: it was measured with other settings: {}",
            self.name,
            differences.join(", ")
        ))
        .hint("give the same options, or save a new run with --json"))
    }

    /// The saved run, and the ratio of `now` to it: 2 is twice as much.
    pub(super) fn json(&self, now: &Value) -> Value {
        let mut ratios = Map::new();
        let of = |path: &[&str]| ratio(at(now, path), at(&self.run, path));
        ratios.insert(RATE.into(), of(&[RATE]));
        for (field, _) in TIMES {
            let times = QUANTILES.iter().map(|(name, _)| ((*name).to_owned(), of(&[field, name])));
            ratios.insert(field.into(), times.collect());
        }
        json!({"file": self.name, "saved": self.run, "ratio": ratios})
    }

    pub(super) fn text(&self, now: &Value) -> String {
        let mut table = Table::new(["", "saved", "now", "now / saved"]);
        let mut add = |title: String, path: &[&str], shown: fn(&Value) -> String| {
            let (saved, now) = (at(&self.run, path), at(now, path));
            table.add([title, shown(saved), shown(now), shown_ratio(now, saved)]);
        };
        add("cycles per second".into(), &[RATE], word);
        for (field, title) in TIMES {
            for (name, _) in QUANTILES {
                add(format!("{title} {}", name.replace("p999", "p99.9")), &[field, name], time);
            }
        }
        let failures = |run: &Value| at(run, &["failures"]).as_u64().unwrap_or(0);
        let (before, after) = (failures(&self.run), failures(now));
        if before + after > 0 {
            table.add(["failures".into(), before.to_string(), after.to_string(), String::new()]);
        }
        format!("beside {}:\n{table}", self.name)
    }
}

/// The value at `path`; null if there is none.
fn at<'a>(run: &'a Value, path: &[&str]) -> &'a Value {
    let found = path.iter().try_fold(run, |value, name| value.get(name));
    found.unwrap_or(&Value::Null)
}

fn ratio(now: &Value, saved: &Value) -> Value {
    match (now.as_f64(), saved.as_f64()) {
        (Some(now), Some(saved)) if saved > 0.0 => ((now / saved * 1000.0).round() / 1000.0).into(),
        _ => Value::Null,
    }
}

fn shown_ratio(now: &Value, saved: &Value) -> String {
    ratio(now, saved).as_f64().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// A setting or a count as text: without quotes, whole numbers without decimals.
fn word(value: &Value) -> String {
    let whole = value.as_f64().filter(|number| number.fract() == 0.0);
    match (value.as_str(), whole) {
        (Some(text), _) => text.to_owned(),
        (None, Some(number)) => format!("{number:.0}"),
        (None, None) => value.to_string(),
    }
}

fn time(us: &Value) -> String {
    let us = us.as_f64().unwrap_or(0.0).max(0.0);
    precise(Duration::try_from_secs_f64(us / 1e6).unwrap_or_default())
}

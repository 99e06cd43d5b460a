//! The tables of `PERF.md`, and their place there.

use std::path::Path;

use crate::Anything;
use crate::measure::{HUNG_LIMIT, Row};
use crate::record::{Record, median};

const BEGIN: &str = "<!-- benches/peers/run writes from here -->\n";
const END: &str = "<!-- to here -->\n";

/// Above this, few hand-overs are enough.
const CONTESTED: f64 = 100_000.0;

/// A client with one kind of settings, as it says itself.
pub(crate) struct Setup {
    name: &'static str,
    setting: &'static str,
    versions: String,
    settings: String,
    is_on_one_server: bool,
}

impl Setup {
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            name: row.name,
            setting: row.setting,
            versions: row.versions.clone(),
            settings: row.settings.clone(),
            is_on_one_server: row.is_on_one_server(),
        }
    }

    pub(crate) fn is_of(&self, row: &Row) -> bool {
        (self.name, self.setting) == (row.name, row.setting)
    }

    fn said(&self) -> &'static str {
        if self.setting == "tuned" { "tuned" } else { "as documented" }
    }

    /// The records of one figure, one for each run.
    fn records<'a>(
        &'a self,
        records: &'a [Record],
        figure: &'a str,
    ) -> impl Iterator<Item = &'a Record> {
        let is_of = |record: &&Record| {
            (record.client, record.setup, record.figure) == (self.name, self.setting, figure)
        };
        records.iter().filter(is_of)
    }
}

/// Which of a record's values.
type Value = fn(&Record) -> Option<f64>;
/// How a value is told.
type Told = fn(Option<f64>) -> String;

const P50: Value = |record| record.p50;
const P99: Value = |record| record.p99;

/// A time in the unit that reads best.
fn time(us: Option<f64>) -> String {
    match us {
        None => "no lock".to_owned(),
        Some(us) if us.is_infinite() => format!("> {} s", HUNG_LIMIT.as_secs()),
        Some(us) if us < 999.5 => format!("{us:.0} us"),
        Some(us) if us < 9_995.0 => format!("{:.1} ms", us / 1e3),
        Some(us) => format!("{:.0} ms", us / 1e3),
    }
}

/// A number with a mark for every thousand.
fn count(value: Option<f64>) -> String {
    let digits = format!("{:.0}", value.unwrap_or(0.0));
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The columns of the first table.
const COLUMNS: [(&str, Value, Told); 6] = [
    ("acquire", P50, time),
    ("acquire", P99, time),
    ("cycles", P50, count),
    ("hand-over", P50, time),
    ("one hung", P50, time),
    ("one slow", P50, time),
];

/// The columns of the second table.
const RANGES: [(&str, Told); 4] =
    [("acquire", time), ("cycles", count), ("hand-over", time), ("one hung", time)];

/// The medians of the runs.
fn medians(setup: &Setup, records: &[Record]) -> String {
    let failed = |figure| setup.records(records, figure).map(|record| record.failed).sum::<u64>();
    let cells = COLUMNS.iter().enumerate().map(|(column, &(figure, value, told))| {
        if setup.is_on_one_server && figure.starts_with("one") {
            return "one server".to_owned();
        }
        let mut cell = told(median(setup.records(records, figure).filter_map(value)));
        let failed = match column {
            0 => failed("acquire") + failed("one slow"),
            2 => failed("cycles"),
            _ => 0,
        };
        if failed > 0 {
            cell.push_str(&format!(" ({failed} failed)"));
        }
        cell
    });
    let cells = cells.collect::<Vec<_>>().join(" | ");
    format!("| {} | {} | {cells} |\n", setup.name, setup.said())
}

/// The lowest and the highest of the runs.
fn ranges(setup: &Setup, records: &[Record]) -> String {
    let cells = RANGES.iter().map(|&(figure, told)| {
        if setup.is_on_one_server && figure.starts_with("one") {
            return "one server".to_owned();
        }
        let mut values: Vec<f64> = setup.records(records, figure).filter_map(P50).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (told(values.first().copied()), told(values.last().copied()));
        if low == high { low } else { format!("{low} to {high}") }
    });
    format!("| {} | {} |\n", setup.name, cells.collect::<Vec<_>>().join(" | "))
}

/// How many hand-overs the rows have seen.
fn turns(records: &[Record]) -> String {
    let turns = || records.iter().filter(|record| record.figure == "hand-over");
    let is_contested = |record: &&Record| record.p50.is_some_and(|us| us < CONTESTED);
    let fewest = turns().filter(is_contested).map(|record| record.samples).min();
    let fewest_slow = turns().filter(|record| !is_contested(record)).map(|r| r.samples).min();
    let told = |fewest: Option<usize>| count(fewest.map(|fewest| fewest as f64));
    let mut text = format!("Each run has at least {} hand-overs", told(fewest));
    if fewest_slow.is_some() {
        text.push_str(&format!(
            " for each row whose median is below 100 ms, and {} for each other row",
            told(fewest_slow)
        ));
    }
    text.push('.');
    text
}

/// The tables of the figures.
pub(crate) fn markdown(
    setups: &[Setup],
    records: &[Record],
    left_out: &[String],
    about: &str,
) -> String {
    let mut text = format!("{about} {}\n\n", turns(records));
    text.push_str(
        "| client | set up | acquire p50 | p99 | cycles/s, 64 workers | hand-over | one hung | one slow |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    text.extend(setups.iter().map(|setup| medians(setup, records)));
    let runs = records.iter().map(|record| record.run).max().unwrap_or(0);
    if runs > 1 {
        text.push_str(&format!(
            "\nEach client tuned, the lowest and the highest of the {runs} runs:\n\n\
             | client | acquire p50 | cycles/s, 64 workers | hand-over | one hung |\n\
             |---|---|---|---|---|\n",
        ));
        let tuned = setups.iter().filter(|setup| setup.setting == "tuned");
        text.extend(tuned.map(|setup| ranges(setup, records)));
    }
    if !left_out.is_empty() {
        text.push_str(&format!("\nLeft out: {}.\n", left_out.join("; ")));
    }
    text
}

/// How each client was set up.
pub(crate) fn set_up(setups: &[Setup]) -> String {
    let mut text = "| client | versions | as documented | tuned |\n|---|---|---|---|\n".to_owned();
    for setup in setups.iter().filter(|setup| setup.setting == "default") {
        let is_tuned = |other: &&Setup| other.name == setup.name && other.setting == "tuned";
        let tuned = setups.iter().find(is_tuned).map_or("", |tuned| &tuned.settings);
        text.push_str(&format!(
            "| {} | {} | {} | {tuned} |\n",
            setup.name, setup.versions, setup.settings
        ));
    }
    text
}

/// Puts the text between the two marks of the file.
pub(crate) fn put(text: &str, file: &Path) -> Anything {
    let whole = std::fs::read_to_string(file)?;
    let (before, rest) = whole.split_once(BEGIN).ok_or("no mark for the table")?;
    let (_, after) = rest.split_once(END).ok_or("no mark for the table's end")?;
    Ok(std::fs::write(file, format!("{before}{BEGIN}\n{text}\n{END}{after}"))?)
}

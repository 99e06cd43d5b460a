//! The table of `PERF.md`, and its place there.

use std::path::Path;

use crate::Anything;
use crate::measure::{HUNG_LIMIT, Row, Slice};

const BEGIN: &str = "<!-- benches/peers/run writes from here -->\n";
const END: &str = "<!-- to here -->\n";

/// The value at this share of all values, which need no order.
pub(crate) fn percentile(values: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share).round() as usize).copied()
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    percentile(values, 0.5)
}

/// The figures of one row, in microseconds; `None` where the client won no lock.
pub(crate) struct Figures {
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) cycles: Option<f64>,
    pub(crate) handover: Option<f64>,
    pub(crate) hung: Option<f64>,
    pub(crate) slow: Option<f64>,
}

impl Figures {
    /// The medians over the rounds.
    pub(crate) fn of(row: &Row) -> Self {
        let over = |slices: &[Slice], share: f64| {
            let rounds =
                slices.iter().filter_map(|slice| percentile(slice.us.iter().copied(), share));
            median(rounds)
        };
        Self {
            p50: over(&row.latency, 0.5),
            p99: over(&row.latency, 0.99),
            cycles: median(row.cycles.iter().copied()),
            handover: median(row.handover.iter().copied()),
            hung: over(&row.hung, 0.5),
            slow: over(&row.slow, 0.5),
        }
    }
}

/// A time in the unit that reads best.
pub(crate) fn time(us: Option<f64>) -> String {
    match us {
        None => "no lock".to_owned(),
        Some(us) if us.is_infinite() => format!("> {} s", HUNG_LIMIT.as_secs()),
        Some(us) if us < 999.5 => format!("{us:.0} us"),
        Some(us) if us < 9_995.0 => format!("{:.1} ms", us / 1e3),
        Some(us) => format!("{:.0} ms", us / 1e3),
    }
}

/// A number with a mark for every thousand.
pub(crate) fn count(value: Option<f64>) -> String {
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

pub(crate) fn set_up(row: &Row) -> &'static str {
    if row.setting == "tuned" { "tuned" } else { "as documented" }
}

/// The table, and how each client was set up.
pub(crate) fn markdown(rows: &[Row], left_out: &[String], about: &str) -> String {
    let mut text = format!("{about}\n\n");
    text.push_str(
        "| client | set up | acquire p50 | p99 | cycles/s, 64 workers | hand-over | one hung | one slow |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let figures = Figures::of(row);
        let failed: u64 = row.latency.iter().chain(&row.slow).map(|slice| slice.failed).sum();
        let mut cells = [
            row.name.to_owned(),
            set_up(row).to_owned(),
            time(figures.p50),
            time(figures.p99),
            count(figures.cycles),
            time(figures.handover),
            time(figures.hung),
            time(figures.slow),
        ];
        if let Some(cell) = cells.get_mut(2).filter(|_| failed > 0) {
            cell.push_str(&format!(" ({failed} failed)"));
        }
        if let Some(cell) = cells.get_mut(4).filter(|_| row.cycles_failed > 0) {
            cell.push_str(&format!(" ({} failed)", row.cycles_failed));
        }
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text.push_str("\n| client | versions | as documented | tuned |\n|---|---|---|---|\n");
    for row in rows.iter().filter(|row| row.setting == "default") {
        let tuned = rows.iter().find(|other| other.name == row.name && other.setting == "tuned");
        let tuned = tuned.map_or("", |tuned| &tuned.settings);
        text.push_str(&format!(
            "| {} | {} | {} | {tuned} |\n",
            row.name, row.versions, row.settings
        ));
    }
    if !left_out.is_empty() {
        text.push_str(&format!("\nLeft out: {}.\n", left_out.join("; ")));
    }
    text
}

/// Puts the text between the two marks of the file.
pub(crate) fn put(text: &str, file: &Path) -> Anything {
    let whole = std::fs::read_to_string(file)?;
    let (before, rest) = whole.split_once(BEGIN).ok_or("PERF.md has no mark for the table")?;
    let (_, after) = rest.split_once(END).ok_or("PERF.md has no mark for the table's end")?;
    Ok(std::fs::write(file, format!("{before}{BEGIN}\n{text}\n{END}{after}"))?)
}

//! What was measured, a line for each figure of each row and run; the table is made from these lines.

use std::fmt::Write as _;
use std::path::Path;

use crate::Anything;
use crate::measure::{Row, Slice};

/// One figure of a client in one run. Times are microseconds; cycles are per second, each round one
/// sample.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) run: usize,
    pub(crate) client: &'static str,
    pub(crate) setup: &'static str,
    pub(crate) figure: &'static str,
    /// `None`: no lock was won.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) samples: usize,
    /// How often a lock was not won or, as the client says, not held to its release.
    pub(crate) failed: u64,
}

/// The value at a share of all values, which may come in any order.
pub(crate) fn percentile(values: impl Iterator<Item = f64>, share: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share).round() as usize).copied()
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    percentile(values, 0.5)
}

impl Record {
    /// All figures of a row.
    pub(crate) fn of(run: usize, row: &Row) -> Vec<Self> {
        let record = |figure, p50, p99, samples, failed| Self {
            run,
            client: row.name,
            setup: row.setting,
            figure,
            p50,
            p99,
            samples,
            failed,
        };
        // Medians over the rounds, so that a round that another program disturbed counts for no
        // more than the others.
        let slices = |figure, slices: &[Slice]| {
            let over = |share| {
                let of_round = |slice: &Slice| percentile(slice.us.iter().copied(), share);
                median(slices.iter().filter_map(of_round))
            };
            let samples = slices.iter().map(|slice| slice.us.len()).sum();
            let failed = slices.iter().map(|slice| slice.failed).sum();
            record(figure, over(0.5), over(0.99), samples, failed)
        };
        let (cycles, turns) = (row.cycles.iter().copied(), row.handover.iter().copied());
        let mut records = vec![
            slices("acquire", &row.latency),
            record("cycles", median(cycles), None, row.cycles.len(), row.cycles_failed),
            record(
                "hand-over",
                median(turns.clone()),
                percentile(turns, 0.99),
                row.handover.len(),
                0,
            ),
        ];
        if !row.is_on_one_server() {
            records.extend([slices("one hung", &row.hung), slices("one slow", &row.slow)]);
        }
        records
    }

    fn line(&self) -> String {
        let number = |value: Option<f64>| value.map_or_else(String::new, |us| format!("{us:.1}"));
        format!(
            "{},{},{},{},{},{},{},{}",
            self.run,
            self.client,
            self.setup,
            self.figure,
            number(self.p50),
            number(self.p99),
            self.samples,
            self.failed
        )
    }
}

/// Writes the records as CSV, below one line for each comment.
pub(crate) fn write(records: &[Record], comments: &[&str], file: &Path) -> Anything {
    let mut text = String::new();
    for comment in comments {
        writeln!(text, "# {comment}")?;
    }
    text.push_str("run,client,setup,figure,p50,p99,samples,failed\n");
    for record in records {
        text.push_str(&record.line());
        text.push('\n');
    }
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    Ok(std::fs::write(file, text)?)
}

//! The figures of `PERF.md` are those of `benches/records`.
//!
//! A table's record is the one that its section links to, or the link in a row's last cell. The
//! first column names the row, and a column `goal` holds no measured figure.

use std::collections::BTreeSet;

use super::pages::{cells, figure, read};

const FOLDER: &str = "benches/records/";

/// The numbers in a text, without the commas in thousands.
fn numbers(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let words = text.split(|c: char| !is_part(c));
    let words = words.map(|word| word.trim_matches(['.', ',']).replace(',', ""));
    words.filter(|word| !word.is_empty()).collect()
}

/// The numbers of a record, each field for itself.
fn recorded(name: &str) -> BTreeSet<String> {
    let text = read(format!("{FOLDER}{name}"));
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.flat_map(|row| row.split([',', '"'])).flat_map(numbers).collect()
}

/// The record that a line links to.
fn record_of(line: &str) -> Option<&str> {
    let (_, name) = line.split_once("](benches/records/")?;
    name.split(')').next()
}

/// Each number of the tables of a page that its record does not have, with its row. Counts the
/// numbers looked at.
fn missing(page: &str, recorded: impl Fn(&str) -> BTreeSet<String>) -> (usize, Vec<String>) {
    let (mut record, mut head, mut looked, mut missing) = (None, Vec::new(), 0, Vec::new());
    for line in page.lines() {
        let row = cells(line);
        if line.starts_with('#') {
            record = None;
        }
        if row.is_empty() {
            if !line.starts_with('|') {
                head.clear();
                record = record_of(line).or(record);
            }
            continue;
        }
        if head.is_empty() {
            head = row;
            continue;
        }
        let Some(name) = record_of(line).or(record) else {
            missing.push(format!("no record: {line}"));
            continue;
        };
        let known = recorded(name);
        for (cell, _) in row.iter().zip(&head).skip(1).filter(|(_, head)| **head != "goal") {
            for number in numbers(cell.split("](").next().unwrap_or_default()) {
                looked += 1;
                if !known.contains(&number) {
                    missing.push(format!("{number} is not in {name}: {line}"));
                }
            }
        }
    }
    (looked, missing)
}

/// The part of `PERF.md` whose tables no program writes.
fn written_by_hand() -> String {
    let perf = read("PERF.md");
    let (_, page) = perf.split_once("## To run it again").expect("the first part");
    let (page, _) = page.split_once("## Beside other clients").expect("the last part");
    page.to_owned()
}

#[test]
fn each_figure_of_perf_is_in_its_record() {
    let (looked, missing) = missing(&written_by_hand(), recorded);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(looked > 100, "{looked} figures");
}

#[test]
fn a_figure_without_a_record_is_noticed() {
    let known = |name: &str| if name == "a.csv" { numbers("1.05 20") } else { BTreeSet::new() };
    let page = "## One\n[a](benches/records/a.csv)\n\n| 9 | goal | p50 |\n|---|---|---|\n";
    let told = |row: &str| missing(&format!("{page}{row}"), known);
    assert_eq!(told("| 9 | 1.10 | 1.05, 20 us |"), (2, Vec::new()));
    assert_eq!(told("| 9 | 1.10 | 1.06 |").1.len(), 1);
    assert_eq!(told("| 9 | 1.10 | 20 [b](benches/records/b.csv) |").1.len(), 1);
    assert_eq!(told("| 9 | 1.10 | 20 |\n## Two\n| p |\n|---|\n| 1 |").1.len(), 1);
}

/// The figure of a cell, and half of its last digit; `None` for words.
fn told(cell: &str) -> Option<(f64, f64)> {
    let number = cell.split(' ').next()?;
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let unit = if cell.contains(" ms") { 1e3 } else { 1.0 };
    let last_digit = (0..decimals).fold(unit, |digit, _| digit / 10.0);
    Some((figure(cell)?, last_digit / 2.0))
}

/// The median over the runs of a figure of `peers.csv`.
fn median_of(record: &str, [client, setup, figure]: [&str; 3], is_p99: bool) -> f64 {
    let rows = record.lines().filter_map(|line| {
        let mut fields = line.split(',').skip(1);
        let is_it = [client, setup, figure].into_iter().eq(fields.by_ref().take(3));
        if is_it { fields.nth(usize::from(is_p99))?.parse().ok() } else { None }
    });
    let mut values: Vec<f64> = rows.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[test]
fn each_figure_of_another_client_is_the_median_of_its_runs() {
    const COLUMNS: [(&str, bool); 6] = [
        ("acquire", false),
        ("acquire", true),
        ("cycles", false),
        ("hand-over", false),
        ("one hung", false),
        ("one slow", false),
    ];
    let (perf, record) = (read("PERF.md"), read(format!("{FOLDER}peers.csv")));
    let (_, page) = perf.split_once("<!-- benches/peers/run writes").expect("the table");
    let mut looked = 0;
    for row in page.lines().map(cells).filter(|row| row.len() == 2 + COLUMNS.len()) {
        let [client, setup, figures @ ..] = row.as_slice() else { continue };
        let setup = if *setup == "tuned" { "tuned" } else { "default" };
        for (cell, (figure, is_p99)) in figures.iter().zip(COLUMNS) {
            let Some((value, tolerance)) = told(cell) else { continue };
            let median = median_of(&record, [client, setup, figure], is_p99);
            looked += 1;
            assert!((value - median).abs() <= tolerance * 1.01, "{client}, {figure}: {cell}");
        }
    }
    assert!(looked > 100, "{looked} figures");
}

#[test]
fn the_headline_of_the_readme_is_that_of_perf() {
    let (readme, perf) = (read("README.md"), read("PERF.md"));
    let (front, _) = perf.split_once("## To run it again").expect("the first part");
    let rows: Vec<_> = front.lines().map(cells).filter(|row| row.len() == 4).collect();
    let words = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    for (headline, what, range) in [
        ("a free lock in little more than half the time", "a free lock is taken", 0.5..=0.65),
        ("to a waiter in little more than a quarter of the time", "from the holder's", 0.25..=0.32),
        ("more than four times as many locks per second", "locks per second", 4.0..=5.0),
    ] {
        assert!(words.contains(headline), "the README does not say: {headline}");
        let row = rows.iter().find(|row| row[0].starts_with(what)).expect("the row of a headline");
        let [ours, others] = [row[1], row[2]].map(|cell| figure(cell).expect("a figure"));
        assert!(range.contains(&(ours / others)), "{headline}: {row:?}");
    }
}

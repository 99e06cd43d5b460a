//! A plain table: columns as wide as their widest cell, two spaces apart, no lines.

use std::fmt;

use comfy_table::presets::NOTHING;
use console::{measure_text_width, truncate_str};

use crate::terminal::wrap;

/// The least width of the first cells of a table that is too wide.
const FIRST_MIN: usize = 8;

/// A header and rows of as many cells.
#[derive(Debug)]
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(header: [&str; COLUMNS]) -> Self {
        Self { rows: vec![header.map(str::to_owned)] }
    }

    pub(crate) fn add(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row);
    }

    /// The table if it fits into `columns`; otherwise one paragraph per row and one line per cell.
    pub(crate) fn fit(&self, columns: Option<usize>) -> String {
        let table = self.to_string();
        if is_too_wide(&table, columns) { self.paragraphs() } else { table }
    }

    /// The table if it fits into `columns`; else the last cell of each row is below it, and the first
    /// cells are cut to what is left for them.
    pub(crate) fn narrow(&self, columns: Option<usize>) -> String {
        let table = self.to_string();
        let Some(columns) = columns.filter(|_| is_too_wide(&table, columns)) else { return table };
        let firsts = self.rows.iter().filter_map(|row| row.first());
        let first = firsts.map(|cell| measure_text_width(cell)).max().unwrap_or(0);
        let width = self.without_last(first).lines().map(measure_text_width).max().unwrap_or(0);
        let left = first.saturating_sub(width.saturating_sub(columns)).max(FIRST_MIN);
        let table = self.without_last(left);
        let mut lines: Vec<String> = Vec::new();
        for (line, row) in table.lines().zip(&self.rows) {
            let last = row.last().filter(|cell| !cell.is_empty() && !lines.is_empty());
            lines.push(line.to_owned());
            lines.extend(last.map(|cell| wrap(&format!("    {cell}"), 4, Some(columns))));
        }
        lines.join("\n")
    }

    /// The table without its last column, and with the first cells cut to this width.
    fn without_last(&self, first: usize) -> String {
        let mut table = plain();
        for row in &self.rows {
            let cells = row.iter().take(COLUMNS - 1).enumerate();
            table.add_row(cells.map(|(nth, cell)| {
                if nth == 0 { truncate_str(cell, first, "..") } else { cell.into() }
            }));
        }
        indented(&mut table)
    }

    fn paragraphs(&self) -> String {
        let Some((header, rows)) = self.rows.split_first() else { return String::new() };
        let width = header.iter().skip(1).map(|name| name.chars().count()).max().unwrap_or(0);
        let mut lines = Vec::new();
        for row in rows {
            let mut cells = header.iter().zip(row);
            lines.extend(cells.next().map(|(_, first)| format!("  {first}")));
            let full = cells.filter(|(_, cell)| !cell.is_empty());
            lines.extend(full.map(|(name, cell)| format!("    {name:width$}  {cell}")));
        }
        lines.join("\n")
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = plain();
        table.add_rows(&self.rows);
        f.write_str(&indented(&mut table))
    }
}

fn plain() -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(NOTHING);
    table
}

fn indented(table: &mut comfy_table::Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((2, 0));
    }
    table.trim_fmt()
}

fn is_too_wide(text: &str, columns: Option<usize>) -> bool {
    columns.is_some_and(|columns| text.lines().any(|line| measure_text_width(line) > columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["a", "long"]);
        table.add(["wide".into(), "ü".into()]);
        table.add([String::new(), "x".into()]);
        assert_eq!(table.to_string(), "  a     long\n  wide  ü\n        x");
    }

    #[test]
    fn on_a_narrow_terminal_the_last_cell_has_a_line_of_its_own() {
        let mut table = Table::new(["lock", "ends in", "holder"]);
        table.add(["a".into(), "9.8 s".into(), "run/sh on n1, process 7".into()]);
        table.add(["bcdefghijklm".into(), "1.0 s".into(), String::new()]);
        assert_eq!(table.narrow(Some(48)), table.to_string());
        assert_eq!(
            table.narrow(Some(47)),
            "  lock          ends in\n  a             9.8 s\n    run/sh on n1, process 7\n  \
             bcdefghijklm  1.0 s"
        );
        assert_eq!(
            table.narrow(Some(20)),
            "  lock       ends in\n  a          9.8 s\n    run/sh on n1,\n    process 7\n  \
             bcdefgh..  1.0 s"
        );
    }

    #[test]
    fn a_table_that_is_too_wide_has_a_line_a_cell() {
        let mut table = Table::new(["node", "state", "token"]);
        table.add(["a".into(), "held".into(), "0123456789".into()]);
        table.add(["b".into(), "free".into(), String::new()]);
        assert_eq!(table.fit(Some(25)), table.to_string());
        assert_eq!(
            table.fit(Some(24)),
            "  a\n    state  held\n    token  0123456789\n  b\n    state  free"
        );
    }
}

//! A plain table: columns as wide as their widest cell, two spaces apart, no lines.

use std::fmt;

use comfy_table::presets::NOTHING;
use console::measure_text_width;

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
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).add_rows(&self.rows);
        for column in table.column_iter_mut() {
            column.set_padding((2, 0));
        }
        f.write_str(&table.trim_fmt())
    }
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

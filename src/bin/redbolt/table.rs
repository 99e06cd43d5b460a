//! A plain table: columns as wide as their widest cell, two spaces apart, no lines.

use std::fmt;

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
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(widths);
            let line: Vec<String> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
            let mark = if index == 0 { "" } else { "\n" };
            write!(f, "{mark}  {}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
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
}

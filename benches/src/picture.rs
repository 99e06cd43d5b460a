//! The README's picture: each client at its best beside the others, drawn from the table in
//! `PERF.md`.
//!
//! The picture uses gray and two colours that are readable on light and dark pages.

use std::fmt::Write as _;

/// A client's row.
struct Row<'a> {
    client: &'a str,
    cells: Vec<&'a str>,
}

/// Bars on a logarithmic scale.
struct Panel {
    title: &'static str,
    hint: &'static str,
    /// The column of the table.
    column: usize,
    /// The lines across the bars, with their names. The bars begin at the first line.
    marks: &'static [(f64, &'static str)],
}

/// Columns: client, set up, acquire p50, p99, cycles/s, hand-over, one hung, one slow.
const PANELS: [Panel; 4] = [
    Panel {
        title: "take a free lock",
        hint: "median, less is better",
        column: 2,
        marks: &[(10.0, "10 us"), (100.0, "100 us"), (1e3, "1 ms"), (1e4, "10 ms")],
    },
    Panel {
        title: "wait for its holder",
        hint: "hand-over, less is better",
        column: 5,
        marks: &[(100.0, "100 us"), (1e3, "1 ms"), (1e4, "10 ms")],
    },
    Panel {
        title: "one of five hangs",
        hint: "median, less is better",
        column: HUNG,
        marks: &[(10.0, "10 us"), (1e3, "1 ms"), (1e5, "100 ms"), (1e7, "10 s")],
    },
    Panel {
        title: "locks per second",
        hint: "64 workers, more is better",
        column: 4,
        marks: &[(100.0, "100"), (1e3, "1k"), (1e4, "10k"), (1e5, "100k"), (1e6, "1M")],
    },
];

/// The column of a hung server, and what it says of a client that locks on one server alone.
const HUNG: usize = 6;
const ONE_SERVER: &str = "one server";

const NAMES: f64 = 130.0;
const PANEL: f64 = 180.0;
/// The distance from the first mark to the last.
const BAR: f64 = 114.0;
const LINE: f64 = 22.0;
const TOP: f64 = 74.0;

/// The picture as SVG; `None` if the page has no such table.
#[must_use]
pub fn beside_others(page: &str) -> Option<String> {
    let rows: Vec<Row<'_>> = page.lines().filter_map(row).collect();
    let width = NAMES + PANEL * PANELS.len() as f64;
    let bottom = TOP + LINE * rows.len() as f64;
    let height = bottom + 18.0;
    // These clients lock on one server alone, and are shown for their hand-over.
    let is_on_one = |row: &&Row<'_>| row.cells.get(HUNG) == Some(&ONE_SERVER);
    let alone: Vec<&str> = rows.iter().filter(is_on_one).map(|row| row.client).collect();
    let except = if alone.is_empty() {
        String::new()
    } else {
        format!("; {} on one of them alone", alone.join(" and "))
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#808080\">\n\
         <title>Redlock clients on the same five servers, each tuned{except}</title>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">Redlock clients on the same five servers of Valkey 9.1, \
         each tuned{except}; logarithmic scales</text>\n"
    );
    for (index, row) in rows.iter().enumerate() {
        let (y, weight) = (TOP + LINE * index as f64 + 13.0, weight(row));
        let right = NAMES - 12.0;
        let _ = writeln!(
            svg,
            "<text x=\"{right}\" y=\"{y}\" text-anchor=\"end\"{weight}>{}</text>",
            row.client
        );
    }
    for (index, panel) in PANELS.iter().enumerate() {
        let left = NAMES + PANEL * index as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{left}\" y=\"48\" font-weight=\"bold\">{}</text>\
             <text x=\"{left}\" y=\"63\" font-size=\"10\">{}</text>",
            panel.title, panel.hint
        );
        for &(value, name) in panel.marks {
            let x = left + panel.place(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {}V{bottom}\" stroke=\"#808080\" stroke-opacity=\"0.25\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" font-size=\"9\" text-anchor=\"middle\">{name}</text>",
                TOP - 4.0,
                bottom + 11.0
            );
        }
        for (index, row) in rows.iter().enumerate() {
            let cell = row.cells.get(panel.column)?;
            bar(&mut svg, panel, left, TOP + LINE * index as f64, row, cell);
        }
    }
    svg.push_str("</svg>\n");
    (!rows.is_empty()).then_some(svg)
}

impl Panel {
    /// How far a value is from the first mark.
    fn place(&self, value: f64) -> f64 {
        let [(first, _), .., (last, _)] = self.marks else { return 0.0 };
        (BAR * (value / first).log10() / (last / first).log10()).max(0.0)
    }
}

fn bar(svg: &mut String, panel: &Panel, left: f64, top: f64, row: &Row<'_>, cell: &str) {
    let len = figure(cell).map_or(0.0, |value| panel.place(value));
    let color = if row.client == "redbolt" { "#e8590c" } else { "#74a9cf" };
    let (x, y, weight) = (left + len + 5.0, top + 13.0, weight(row));
    let text = cell.replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{len:.1}\" height=\"16\" fill=\"{color}\"/>\
         <text x=\"{x:.1}\" y=\"{y}\"{weight}>{text}</text>"
    );
}

fn weight(row: &Row<'_>) -> &'static str {
    if row.client == "redbolt" { " font-weight=\"bold\"" } else { "" }
}

/// A line of the table for a tuned client.
fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
    match cells.as_slice() {
        [client, "tuned", _, _, _, _, _, _] => Some(Row { client, cells }),
        _ => None,
    }
}

/// Microseconds, or a count; `None` where there was no lock.
fn figure(cell: &str) -> Option<f64> {
    let cell = cell.strip_prefix("> ").unwrap_or(cell);
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let number: f64 = number.replace(',', "").parse().ok()?;
    match unit {
        "" | "us" => Some(number),
        "ms" => Some(number * 1e3),
        "s" => Some(number * 1e6),
        _ => None,
    }
}

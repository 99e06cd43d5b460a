//! The README's picture: each client at its best beside the others, drawn from the table in `PERF.md`.
//!
//! Gray and two colours that read on light and dark pages.

use std::fmt::Write as _;

/// A client's row.
struct Row<'a> {
    client: &'a str,
    cells: Vec<&'a str>,
}

struct Panel {
    title: &'static str,
    hint: &'static str,
    /// The column of the table.
    column: usize,
    /// The longest bar; that of a greater figure has a gap.
    most: f64,
}

/// Columns: client, set up, acquire p50, p99, cycles/s, hand-over, one hung, one slow.
const PANELS: [Panel; 4] = [
    Panel { title: "take a free lock", hint: "median, less is better", column: 2, most: 800.0 },
    Panel { title: "wait for its holder", hint: "hand-over, less is better", column: 5, most: 7e3 },
    Panel { title: "one of five hangs", hint: "median, less is better", column: 6, most: 800.0 },
    Panel { title: "locks per second", hint: "64 workers, more is better", column: 4, most: 13e4 },
];

const NAMES: f64 = 130.0;
const PANEL: f64 = 180.0;
const BAR: f64 = 105.0;
const LINE: f64 = 22.0;
const TOP: f64 = 74.0;

/// The picture as SVG; `None` where the page has no such table.
#[must_use]
pub fn beside_others(page: &str) -> Option<String> {
    let rows: Vec<Row<'_>> = page.lines().filter_map(row).collect();
    let width = NAMES + PANEL * PANELS.len() as f64;
    let height = TOP + LINE * rows.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#808080\">\n\
         <title>Redlock clients on the same five servers, each tuned</title>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">Redlock clients on the same five servers of Valkey 9.1, \
         each tuned</text>\n"
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
        for (index, row) in rows.iter().enumerate() {
            let cell = row.cells.get(panel.column)?;
            bar(&mut svg, panel, left, TOP + LINE * index as f64, row, cell);
        }
    }
    svg.push_str("</svg>\n");
    (!rows.is_empty()).then_some(svg)
}

fn bar(svg: &mut String, panel: &Panel, left: f64, top: f64, row: &Row<'_>, cell: &str) {
    let value = figure(cell);
    let len = value.map_or(0.0, |value| (BAR * value.min(panel.most) / panel.most).max(1.5));
    let color = if row.client == "redbolt" { "#e8590c" } else { "#74a9cf" };
    let shape = if value.is_some_and(|value| value > panel.most) {
        // In two pieces: the bar is longer than its place.
        let (first, last) = (len * 0.8, len * 0.2 - 5.0);
        format!(
            "h{first}l-5 16h-{:.1}zm{:.1} 0h{last}v16h-{:.1}z",
            first - 5.0,
            first + 5.0,
            last + 5.0
        )
    } else {
        format!("h{len:.1}v16h-{len:.1}z")
    };
    let (x, y, weight) = (left + len + 5.0, top + 13.0, weight(row));
    let text = cell.replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<path d=\"M{left} {top}{shape}\" fill=\"{color}\"/>\
         <text x=\"{x:.1}\" y=\"{y}\"{weight}>{text}</text>"
    );
}

fn weight(row: &Row<'_>) -> &'static str {
    if row.client == "redbolt" { " font-weight=\"bold\"" } else { "" }
}

/// A line of the table of a client that is tuned.
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

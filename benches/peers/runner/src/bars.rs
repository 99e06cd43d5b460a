//! All figures as bars, one panel a scenario, as SVG that reads on light and dark ground.

use std::fmt::Write as _;

use crate::measure::{HUNG_LIMIT, Row};
use crate::table::{Figures, count, set_up, time};

const LABELS: f64 = 210.0;
const PANEL: f64 = 150.0;
/// The longest bar; its figure stands behind it.
const BAR: f64 = 78.0;
const LINE: f64 = 17.0;
const TOP: f64 = 66.0;

struct Panel {
    title: &'static str,
    hint: &'static str,
    value: fn(&Figures) -> Option<f64>,
    word: fn(Option<f64>) -> String,
}

const PANELS: [Panel; 5] = [
    Panel { title: "acquire p50", hint: "shorter is better", value: |f| f.p50, word: time },
    Panel {
        title: "cycles/s, 64 workers",
        hint: "longer is better",
        value: |f| f.cycles,
        word: count,
    },
    Panel { title: "hand-over", hint: "shorter is better", value: |f| f.handover, word: time },
    Panel { title: "one node hung", hint: "shorter is better", value: |f| f.hung, word: time },
    Panel {
        title: "one node 20 ms slow",
        hint: "shorter is better",
        value: |f| f.slow,
        word: time,
    },
];

pub(crate) fn svg(rows: &[Row]) -> String {
    let figures: Vec<Figures> = rows.iter().map(Figures::of).collect();
    let width = LABELS + PANEL * PANELS.len() as f64;
    let height = TOP + LINE * rows.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\" fill=\"#777\">\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">Beside other clients, five nodes (bars on a logarithmic scale)</text>\n"
    );
    let line = |index: usize| TOP + LINE * index as f64;
    for (index, row) in rows.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}, {}</text>",
            LABELS - 10.0,
            line(index) + 11.0,
            row.name,
            set_up(row)
        );
    }
    for (number, panel) in PANELS.iter().enumerate() {
        let left = LABELS + PANEL * number as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{left}\" y=\"44\" font-weight=\"bold\">{}</text>\
             <text x=\"{left}\" y=\"58\" font-size=\"9\">{}</text>",
            panel.title, panel.hint
        );
        // What did not end is drawn as long as it was waited for.
        let drawn = |figures: &Figures| {
            (panel.value)(figures).map(|value| value.min(HUNG_LIMIT.as_secs_f64() * 1e6))
        };
        let finite = || figures.iter().filter_map(drawn);
        let least = finite().fold(f64::MAX, f64::min).max(1e-3);
        let most = finite().fold(f64::MIN, f64::max).max(least * 1.01);
        for (index, (figure, row)) in figures.iter().zip(rows).enumerate() {
            let value = (panel.value)(figure);
            // The shortest bar is still one.
            let share = drawn(figure).map_or(0.0, |value| {
                0.08 + 0.92 * ((value / least).ln() / (most / least).ln()).clamp(0.0, 1.0)
            });
            let color = if row.name == "redbolt" { "#d9480f" } else { "#74a9cf" };
            let y = line(index);
            let _ = writeln!(
                svg,
                "<rect x=\"{left}\" y=\"{:.1}\" width=\"{:.1}\" height=\"11\" fill=\"{color}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\">{}</text>",
                y + 2.0,
                BAR * share,
                left + BAR * share + 4.0,
                y + 11.0,
                (panel.word)(value).replace('>', "&gt;")
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

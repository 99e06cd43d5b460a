//! Lines in a coordinate system, as SVG that reads on light and dark ground.
//!
//! Of `bench --plot` and of the benches.

#![expect(
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "for the benches of this project alone"
)]

use std::fmt::Write as _;
use std::io;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Linear from zero.
    Zero,
    Log,
}

#[derive(Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug)]
pub struct Plot {
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    pub x_scale: Scale,
    pub y_scale: Scale,
    pub lines: Vec<Line>,
}

/// Where values lie on paper.
struct Axis {
    scale: Scale,
    range: (f64, f64),
    paper: (f64, f64),
}

const COLORS: [&str; 6] = ["#888888", "#d9480f", "#74a9cf", "#0868ac", "#41ae76", "#6a51a3"];
const SIZE: (f64, f64) = (720.0, 400.0);

impl Plot {
    fn draw(&self, svg: &mut String) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Axis::new(self.x_scale, points().map(|point| point.0), (70.0, 540.0));
        let y = Axis::new(self.y_scale, points().map(|point| point.1), (340.0, 50.0));
        let mut text = |x: f64, y: f64, anchor: &str, words: &str| {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
            );
        };
        text(70.0, 24.0, "start", &format!("<tspan font-size=\"15\">{}</tspan>", self.title));
        text(305.0, 384.0, "middle", self.x);
        text(70.0, 42.0, "start", self.y);
        for value in x.ticks() {
            text(x.place(value), 358.0, "middle", &short(value));
        }
        for value in y.ticks() {
            text(62.0, y.place(value) + 4.0, "end", &short(value));
        }
        for (index, line) in self.lines.iter().enumerate() {
            text(576.0, 64.0 + 20.0 * index as f64, "start", &line.name);
        }
        for value in y.ticks() {
            let place = y.place(value);
            let _ = writeln!(
                svg,
                "<path d=\"M70 {place:.1}H540\" stroke=\"#999\" stroke-opacity=\".3\"/>"
            );
        }
        for (index, line) in self.lines.iter().enumerate() {
            let color = COLORS.get(index % COLORS.len()).copied().unwrap_or_default();
            let places = line.points.iter().map(|point| (x.place(point.0), y.place(point.1)));
            let path: Vec<_> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let key = 60.0 + 20.0 * index as f64;
            let _ = writeln!(
                svg,
                "<g fill=\"none\" stroke=\"{color}\" stroke-width=\"2\">\
                 <polyline points=\"{}\"/><path d=\"M550 {key}h20\"/></g>",
                path.join(" ")
            );
        }
    }
}

/// Writes plots below each other, under a caption unless it is empty.
pub fn save(path: &Path, caption: &str, plots: &[Plot]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(path, page(caption, plots))
}

fn page(caption: &str, plots: &[Plot]) -> String {
    let head = if caption.is_empty() { 0.0 } else { 24.0 };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#777\">\n",
        SIZE.0,
        SIZE.1 * plots.len() as f64 + head
    );
    if head > 0.0 {
        let _ = writeln!(svg, "<text x=\"70\" y=\"20\">{caption}</text>");
    }
    for (index, plot) in plots.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", SIZE.1 * index as f64 + head);
        plot.draw(&mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, paper: (f64, f64)) -> Self {
        let (mut least, mut most) = (f64::MAX, f64::MIN);
        for value in values.filter(|value| value.is_finite()) {
            least = least.min(value);
            most = most.max(value);
        }
        if scale == Scale::Zero {
            least = 0.0;
            most *= 1.05;
        }
        if least >= most {
            most = least + 1.0;
        }
        Self { scale, range: (least, most), paper }
    }

    fn place(&self, value: f64) -> f64 {
        let on = |value: f64| if self.scale == Scale::Log { value.ln() } else { value };
        let (least, most) = (on(self.range.0), on(self.range.1));
        let share = (on(value) - least) / (most - least);
        self.paper.0 + share * (self.paper.1 - self.paper.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let (least, most) = self.range;
        let mut ticks = Vec::new();
        if self.scale == Scale::Log {
            let mut decade = 10_f64.powf(least.log10().floor());
            let steps: &[f64] = if most / least > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            while decade <= most {
                ticks.extend(steps.iter().map(|step| step * decade));
                decade *= 10.0;
            }
        } else {
            let rough = (most - least) / 6.0;
            let decade = 10_f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
            let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
            let mut tick = (least / step).ceil() * step;
            while tick <= most {
                ticks.push(tick);
                tick += step;
            }
        }
        ticks.retain(|tick| (least..=most).contains(tick));
        ticks
    }
}

fn short(value: f64) -> String {
    if value >= 1e6 {
        format!("{}M", (value / 1e4).round() / 100.0)
    } else if value >= 1e4 {
        format!("{}k", (value / 10.0).round() / 100.0)
    } else {
        format!("{}", (value * 1000.0).round() / 1000.0)
    }
}

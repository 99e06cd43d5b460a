//! Line plots as SVG, readable on light and dark backgrounds.

use std::io;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Linear from zero.
    Zero,
    Log,
}

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) x_scale: Scale,
    pub(crate) y_scale: Scale,
    pub(crate) lines: Vec<Line>,
}

const COLORS: [RGBColor; 6] = [
    RGBColor(0x88, 0x88, 0x88),
    RGBColor(0xd9, 0x48, 0x0f),
    RGBColor(0x74, 0xa9, 0xcf),
    RGBColor(0x08, 0x68, 0xac),
    RGBColor(0x41, 0xae, 0x76),
    RGBColor(0x6a, 0x51, 0xa3),
];
/// The colour of text and axes: visible on white and on black.
const GRAY: RGBColor = RGBColor(0x77, 0x77, 0x77);
const SIZE: (u32, u32) = (720, 400);
/// Where the names of the lines begin.
const NAMES: i32 = 550;

/// A part of the page.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl Plot {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = Axis::new(self.x_scale, points().map(|point| point.0));
        let y = Axis::new(self.y_scale, points().map(|point| point.1));
        let text = ("sans-serif", 15).into_font().color(&GRAY);
        area.draw_text(self.title, &("sans-serif", 18).into_font().color(&GRAY), (70, 10))?;
        area.draw_text(self.y, &text, (70, 32))?;
        let mut chart = ChartBuilder::on(area)
            .margin_top(50)
            .margin_right(180)
            .margin_bottom(10)
            .x_label_area_size(46)
            .y_label_area_size(70)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRAY.mix(0.3))
            .axis_style(GRAY.mix(0.3))
            .label_style(text.clone())
            .x_desc(self.x)
            .draw()?;
        let named = text.pos(Pos::new(HPos::Left, VPos::Center));
        for (index, line) in self.lines.iter().enumerate() {
            let color = COLORS.get(index % COLORS.len()).copied().unwrap_or(GRAY);
            let style = color.stroke_width(2);
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style))?;
            let height = 60 + 20 * i32::try_from(index)?;
            area.draw(&PathElement::new([(NAMES, height), (NAMES + 20, height)], style))?;
            area.draw_text(&line.name, &named, (NAMES + 26, height))?;
        }
        Ok(())
    }
}

/// One axis and its range of values.
struct Axis {
    scale: Scale,
    values: Range<f64>,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
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
        Self { scale, values: least..most }
    }

    /// The place of a value on a linear axis.
    fn place(&self, value: f64) -> f64 {
        if self.scale == Scale::Log { value.log10() } else { value }
    }

    fn line(&self) -> RangedCoordf64 {
        (self.place(self.values.start)..self.place(self.values.end)).into()
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.line().map(&self.place(*value), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let Range { start: least, end: most } = self.values;
        if self.scale == Scale::Zero {
            return self.line().key_points(8);
        }
        let steps: &[f64] = if most / least > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = 10_f64.powf(least.log10().floor());
        let decades = std::iter::successors(Some(first), |decade| Some(decade * 10.0));
        let decades = decades.take_while(|decade| *decade <= most);
        let marks = decades.flat_map(|decade| steps.iter().map(move |step| step * decade));
        marks.filter(|mark| (least..=most).contains(mark)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.values.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        short(*value)
    }
}

/// Writes plots below each other, under a caption unless it is empty.
pub(crate) fn save(path: &Path, caption: &str, plots: &[Plot]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let mut svg = String::new();
    page(&mut svg, caption, plots).map_err(io::Error::other)?;
    std::fs::write(path, svg)
}

fn page(svg: &mut String, caption: &str, plots: &[Plot]) -> Drawn {
    let head = if caption.is_empty() { 0 } else { 24 };
    let count = u32::try_from(plots.len())?;
    let page = SVGBackend::with_string(svg, (SIZE.0, SIZE.1 * count + head)).into_drawing_area();
    let (top, below) = page.split_vertically(head);
    top.draw_text(caption, &("sans-serif", 15).into_font().color(&GRAY), (70, 8))?;
    for (plot, area) in plots.iter().zip(below.split_evenly((plots.len(), 1))) {
        plot.draw(&area)?;
    }
    page.present()?;
    Ok(())
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

//! Records `redbolt demo` as an animated SVG, for the README.
//!
//! `cargo build --release -p redbolt-cli && cargo run -p redbolt-benches --example recording` runs
//! the command on a terminal of its own. It writes what the terminal showed, at the same speed. The
//! picture needs no network and no font. Where nothing moves (a print, `prefers-reduced-motion`),
//! it shows the last frame.

use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::time::Duration;

use redbolt::now;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use vt100::{Color, Parser, Screen};

const PROGRAM: &str = "target/release/redbolt";
const FILE: &str = "docs/demo.svg";
const ROWS: u16 = 28;
const COLUMNS: u16 = 88;
/// The shortest time between two pictures.
const STEP: Duration = Duration::from_millis(280);
/// How long the last picture stays before the recording begins anew.
const PAUSE: Duration = Duration::from_secs(6);

const CELL: f64 = 8.4;
const LINE: f64 = 18.0;
const BORDER: f64 = 14.0;
/// The bar with the command.
const HEAD: f64 = 34.0;

/// A picture of the terminal, with its time since the start.
struct Frame {
    at: Duration,
    rows: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let frames = record()?;
    let svg = film(&frames);
    std::fs::write(FILE, &svg)?;
    println!("{FILE}: {} pictures, {} bytes", frames.len(), svg.len());
    Ok(())
}

fn record() -> Result<Vec<Frame>, Box<dyn Error>> {
    let mut person: File = {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&person)?;
        unlockpt(&person)?;
        tcsetwinsize(
            &person,
            Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 },
        )?;
        person.into()
    };
    let name = ptsname(&person, Vec::new())?;
    let path = OsStr::from_bytes(name.as_bytes());
    let end = || File::options().read(true).write(true).open(path);
    let mut command = Command::new(PROGRAM);
    // Settings of the person who records have no place in the recording.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REDBOLT_") {
            command.env_remove(name);
        }
    }
    command.arg("demo").env("TERM", "xterm-256color").stdin(end()?).stdout(end()?).stderr(end()?);
    let mut child = command.spawn()?;
    // The command alone keeps its end open, so the reads end with the command.
    drop(command);
    let nonzero = |size| NonZero::new(size).expect("a screen has a size");
    let screen = Parser::new(nonzero(ROWS), nonzero(COLUMNS), 0);
    let (begin, mut terminal, mut bytes) = (now(), screen, [0; 8192]);
    let mut frames: Vec<Frame> = Vec::new();
    loop {
        // A terminal without a program returns an error instead of an end.
        let len = person.read(&mut bytes).unwrap_or(0);
        terminal.process(bytes.get(..len).unwrap_or_default());
        let at = now().saturating_since(begin);
        if len == 0 || frames.last().is_none_or(|last| at.saturating_sub(last.at) >= STEP) {
            let screen = terminal.screen();
            frames.push(Frame { at, rows: (0..ROWS).map(|row| line(screen, row)).collect() });
        }
        if len == 0 {
            break;
        }
    }
    if !child.wait()?.success() {
        return Err("the demo has failed".into());
    }
    Ok(frames)
}

/// A new piece of text begins where this changes between two cells of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    class: &'static str,
    is_bar: bool,
}

/// One row of the terminal as SVG, empty for blanks.
fn line(screen: &Screen, row: u16) -> String {
    let mut svg = String::new();
    let mut piece: Option<(Look, u16, String)> = None;
    for column in 0..=COLUMNS {
        let cell = screen.cell(row, column).filter(|cell| cell.has_contents());
        let seen = cell.map(|cell| {
            let class = match (cell.fgcolor(), cell.bold(), cell.dim()) {
                (Color::Idx(1 | 9), _, _) => "r",
                (Color::Idx(2 | 10), _, _) => "g",
                (Color::Idx(3 | 11), _, _) => "y",
                (_, true, _) => "b",
                (_, _, true) => "d",
                _ => "",
            };
            let is_bar = matches!(cell.contents(), "█" | "░");
            (Look { class, is_bar }, cell.contents())
        });
        match (&mut piece, seen) {
            (Some((look, _, text)), Some((next, contents))) if *look == next => {
                text.push_str(contents)
            }
            (_, seen) => {
                if let Some((look, first, text)) = piece.take() {
                    write_piece(&mut svg, look, first, &text);
                }
                piece = seen.map(|(look, contents)| (look, column, contents.to_owned()));
            }
        }
    }
    svg
}

fn write_piece(svg: &mut String, look: Look, first: u16, text: &str) {
    let blanks = text.len() - text.trim_start().len();
    let (x, text) = (CELL * (f64::from(first) + blanks as f64), text.trim());
    let class =
        if look.class.is_empty() { String::new() } else { format!(" class=\"{}\"", look.class) };
    if text.is_empty() {
    } else if look.is_bar {
        // The bar is drawn as a shape, because fonts leave gaps between blocks.
        let width = CELL * text.chars().count() as f64;
        let _ =
            write!(svg, "<rect x=\"{x:.1}\" y=\"3\" width=\"{width:.1}\" height=\"13\"{class}/>");
    } else {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = write!(svg, "<text x=\"{x:.1}\" y=\"14\"{class}>{text}</text>");
    }
}

/// All pictures below each other, as on a film; the viewer sees one at a time.
fn film(frames: &[Frame]) -> String {
    let (width, height) = (CELL * f64::from(COLUMNS), LINE * f64::from(ROWS));
    let start = frames.first().map_or(Duration::ZERO, |frame| frame.at);
    let end = frames.last().map_or(Duration::ZERO, |frame| frame.at).saturating_sub(start) + PAUSE;
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let (mut rows, mut pictures, mut steps) = (String::new(), String::new(), String::new());
    for (index, frame) in frames.iter().enumerate() {
        let top = height * index as f64;
        let share = (frame.at.saturating_sub(start)).as_secs_f64() / end.as_secs_f64() * 100.0;
        let _ = write!(steps, "{share:.2}%{{transform:translateY(-{top}px)}}");
        for (place, row) in frame.rows.iter().enumerate().filter(|(_, row)| !row.is_empty()) {
            let next = numbers.len();
            let number = *numbers.entry(row).or_insert_with(|| {
                let _ = writeln!(rows, "<g id=\"l{next}\">{row}</g>");
                next
            });
            let _ =
                write!(pictures, "<use href=\"#l{number}\" y=\"{}\"/>", top + LINE * place as f64);
        }
        pictures.push('\n');
    }
    let last = height * frames.len().saturating_sub(1) as f64;
    let (seconds, middle) = (end.as_secs_f64(), HEAD / 2.0);
    let (full_width, full_height) = (width + 2.0 * BORDER, height + HEAD + BORDER);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" viewBox=\"0 0 {full_width:.0} {full_height:.0}\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"14\">\n\
         <title>redbolt demo: eight workers sell a stock while nodes fail; nothing is sold twice</title>\n\
         <style>\n\
         text{{fill:#c9d1d9;white-space:pre}}text.r{{fill:#ff7b72}}text.g{{fill:#56d364}}text.y{{fill:#e3b341}}\
         text.d{{fill:#7d8590}}text.b{{fill:#f0f6fc;font-weight:bold}}\
         rect.g{{fill:#3fb950}}rect.d{{fill:#30363d}}\n\
         #film{{animation:film {seconds:.1}s step-end infinite}}\n\
         @keyframes film{{{steps}}}\n\
         @media (prefers-reduced-motion:reduce){{#film{{animation:none}}}}\n\
         </style>\n\
         <defs>\n{rows}</defs>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n\
         <circle cx=\"20\" cy=\"{middle}\" r=\"5\" fill=\"#ff7b72\"/><circle cx=\"38\" cy=\"{middle}\" r=\"5\" fill=\"#e3b341\"/>\
         <circle cx=\"56\" cy=\"{middle}\" r=\"5\" fill=\"#3fb950\"/>\
         <text x=\"78\" y=\"22\" class=\"d\">redbolt demo</text>\n\
         <svg x=\"{BORDER}\" y=\"{HEAD}\" width=\"{width:.1}\" height=\"{height}\">\n\
         <g id=\"film\" transform=\"translate(0 -{last})\">\n{pictures}</g>\n</svg>\n</svg>\n"
    )
}

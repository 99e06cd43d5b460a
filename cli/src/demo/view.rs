//! The output of the demo: a live view on a terminal, one line per event elsewhere.

use std::io::{self, Write as _};
use std::sync::atomic::Ordering;
use std::time::Duration;

use redbolt::inspect::{NodeHealth, NodeState};

use super::shop::Shop;
use crate::output::{Paint, short};
use crate::terminal::{Picture, is_live};
use crate::times::at;

/// The content of the view at one moment.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) title: &'a str,
    pub(super) elapsed: Duration,
    pub(super) nodes: &'a [NodeHealth],
    pub(super) shop: &'a Shop,
    pub(super) per_second: u32,
}

/// The place for events and scenes.
#[derive(Debug)]
pub(super) struct View {
    paint: Paint,
    place: Place,
    events: Vec<String>,
    picture: Picture,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Terminal,
    Stdout,
    /// Stdout is for the JSON.
    Stderr,
}

/// Events that the live view has room for.
const EVENTS_SHOWN: usize = 8;
const BAR_LEN: u32 = 48;

impl View {
    pub(super) fn new(json: bool) -> Self {
        let place = match (json, is_live(&io::stdout())) {
            (true, _) => Place::Stderr,
            (false, true) => Place::Terminal,
            (false, false) => Place::Stdout,
        };
        Self { paint: Paint::stdout(), place, events: Vec::new(), picture: Picture::default() }
    }

    pub(super) fn begin(&mut self, title: &str) -> io::Result<()> {
        // A live view shows its title in every redraw.
        if self.place == Place::Terminal { Ok(()) } else { self.event(Duration::ZERO, title) }
    }

    pub(super) fn event(&mut self, elapsed: Duration, text: &str) -> io::Result<()> {
        let line = format!("{:>5.1} s  {text}", elapsed.as_secs_f64());
        match self.place {
            Place::Terminal => self.events.push(line),
            Place::Stdout => crate::output::say(line)?,
            // The sale goes on without its lines on stderr.
            Place::Stderr => drop(writeln!(io::stderr().lock(), "{line}")),
        }
        Ok(())
    }

    /// Reports a fault that a person should repair; on stderr if there is no live view.
    pub(super) fn warn(&mut self, elapsed: Duration, text: &str) {
        if self.place == Place::Terminal {
            self.events.push(format!("{:>5.1} s  {text}", elapsed.as_secs_f64()));
        } else {
            crate::output::note(text);
        }
    }

    /// Draws a scene over the last one, in a live view.
    pub(super) fn draw(&mut self, scene: &Scene<'_>) -> io::Result<()> {
        if self.place == Place::Terminal { self.picture.draw(self.lines(scene)) } else { Ok(()) }
    }

    fn lines(&self, scene: &Scene<'_>) -> Vec<String> {
        let (paint, shop) = (self.paint, scene.shop);
        let mut lines = vec![
            format!("{}   {:.1} s", paint.bold(scene.title), scene.elapsed.as_secs_f64()),
            String::new(),
        ];
        for (index, node) in scene.nodes.iter().enumerate() {
            let granted = shop.granted.get(index).map_or(0, |count| count.load(Ordering::Relaxed));
            let (mark, state) = self.state(node);
            // Padded before it gets its colour: escapes have no width.
            lines.push(format!(
                "  {mark} node {:<2} {:<22} {state} {granted:>7} locks",
                index + 1,
                node.name
            ));
        }
        if !scene.nodes.is_empty() {
            lines.push(String::new());
        }
        let (stock, left, sold) = (shop.stock.max(1), shop.left(), shop.sold());
        let full = usize::try_from((left.min(stock) * BAR_LEN).div_ceil(stock)).unwrap_or(0);
        let rest = usize::try_from(BAR_LEN).unwrap_or(0) - full;
        let bar = format!("{}{}", paint.green("█".repeat(full)), paint.dim("░".repeat(rest)));
        lines.push(format!("  stock {bar} {left:>5} left"));
        let count = shop.oversold();
        let oversold = format!("oversold {count}");
        let oversold = if count > 0 { paint.red(oversold) } else { paint.green(oversold) };
        let acquire = shop.with_latency(|acquire| {
            if acquire.is_empty() {
                return String::new();
            }
            let [p50, p99] = [0.5, 0.99].map(|quantile| short(at(acquire, quantile)));
            format!("   acquire with wait p50 {p50}  p99 {p99}")
        });
        let per_second = scene.per_second;
        lines.push(format!("  sold {sold:<5} {per_second:>4}/s   {oversold}{acquire}"));
        lines.push(String::new());
        let first = self.events.len().saturating_sub(EVENTS_SHOWN);
        lines.extend(self.events.iter().skip(first).map(|event| format!("  {event}")));
        lines
    }

    /// A node's mark and state, 18 columns wide: as `quarantined 857 ms`.
    fn state(&self, node: &NodeHealth) -> (String, String) {
        let paint = self.paint;
        match node.state {
            NodeState::Admitted => (paint.green("●"), paint.green(format!("{:<18}", "voting"))),
            NodeState::Stalled => (paint.yellow("◐"), paint.yellow(format!("{:<18}", "hung"))),
            NodeState::Quarantined(left) => {
                let text = format!("quarantined {}", short(left));
                (paint.yellow("◌"), paint.yellow(format!("{text:<18}")))
            }
            NodeState::Refused => (paint.red("✗"), paint.red(format!("{:<18}", "refused"))),
            NodeState::Disconnected
            | NodeState::Connecting
            | NodeState::Greeting
            | NodeState::Unlisted
            | _ => (paint.red("○"), paint.red(format!("{:<18}", "down"))),
        }
    }
}

//! `redbolt demo --pause`: a holder is stopped until its lock is over, and writes when it goes on;
//! without fences beside with fences.

pub(crate) mod holder;
mod lane;
mod picture;
mod record;

use std::time::Duration;

use redbolt::{Client, Instant, now};
use redbolt_embedded::Nodes;
use serde_json::{Value, json};

use super::view::View;
use crate::args::Global;
use crate::exit::{Failure, OVERSOLD};
use crate::lock::options;
use crate::output::{Paint, say};
use crate::settings;
use crate::signals::{ENDING, Signals, number};
use crate::table::Table;
use crate::terminal::{width, wrap};
use lane::{Lane, STEPS};
use picture::{Progress, lines, told};
use record::Counts;

const TURNS: u32 = 8;

/// No turn begins after this; one takes about a second.
const LAST_BEGIN: Duration = Duration::from_millis(12_000);

/// How long the end of a turn stays to be seen.
const END_SHOWN: Duration = Duration::from_millis(250);

const TITLE: &str = "redbolt demo --pause: a holder is stopped, and writes after its lock is over";

const INTRO: &str = "\
Process A takes a lock, checks that it has time left, and is stopped (SIGSTOP) before it writes. Its lock \
runs out. Process B takes the lock and writes. Then A goes on and writes too: it cannot know. With fences \
each holder has a number, higher than that of the holder before. The record that they write refuses a \
number lower than the highest it has seen.";

const PLAIN: &str = "redbolt:demo:plain";
const FENCED: &str = "redbolt:demo:fenced";

pub(super) fn run(global: &Global) -> Result<(), Failure> {
    let signals = Signals::watch(&ENDING, || {})?;
    let (nodes, named) = match global.nodes.clone() {
        Some(named) => (None, named),
        None => {
            let nodes = Nodes::start(5)?;
            let urls = nodes.urls().join(",");
            (Some(nodes), urls)
        }
    };
    prove(global, &named)?;
    let paint = Paint::stdout();
    let mut demo = Demo {
        lanes: [
            Lane::new("without fences", PLAIN, false, paint),
            Lane::new("with fences", FENCED, true, paint),
        ],
        urls: nodes.is_some().then_some(named),
        signals,
        view: View::new(global.json),
        paint,
        start: now(),
        turn: 0,
    };
    demo.view.opening(&format!("{}\n\n{}", paint.bold(TITLE), wrap(INTRO, 0, width())))?;
    while demo.turn < TURNS && demo.elapsed() < LAST_BEGIN {
        demo.turn += 1;
        demo.play()?;
    }
    demo.end(global.json)
}

/// Takes a lock with a fence once, so that what is in the way of it is said as by every command.
fn prove(global: &Global, nodes: &str) -> Result<(), Failure> {
    let mut client = Client::connect(settings::config_of(global, nodes)?)?;
    let lease = client.lock(FENCED, options(holder::TTL, true))?;
    // Whatever the result: the key ends with its TTL at the latest.
    let _ = client.unlock(lease);
    Ok(())
}

struct Demo {
    lanes: [Lane; 2],
    /// The addresses of the embedded nodes.
    urls: Option<String>,
    signals: Signals,
    view: View,
    paint: Paint,
    start: Instant,
    turn: u32,
}

impl Demo {
    fn elapsed(&self) -> Duration {
        now().saturating_since(self.start)
    }

    /// One turn, step by step on both sides.
    fn play(&mut self) -> Result<(), Failure> {
        self.lanes.iter_mut().for_each(|lane| lane.side.clear());
        for step in STEPS {
            for index in 0..self.lanes.len() {
                if let Some(signal) = self.signals.next() {
                    return Err(Failure::signal(number(signal)));
                }
                if let Some(lane) = self.lanes.get_mut(index) {
                    lane.go(step, self.urls.as_deref())?;
                }
                self.draw()?;
            }
        }
        let [plain, fenced] = &self.lanes;
        let text = told(self.turn, &plain.side, &fenced.side);
        let elapsed = self.elapsed();
        self.view.line(elapsed, &text)?;
        match self.signals.wait(END_SHOWN) {
            Some(signal) => Err(Failure::signal(number(signal))),
            None => Ok(()),
        }
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let at = Progress { turn: self.turn, turns: TURNS, elapsed: self.elapsed() };
        let sides = self.lanes.each_ref().map(|lane| (&lane.side, lane.record.counts));
        Ok(self.view.show(lines(at, sides, self.paint))?)
    }

    /// The counts, and what they mean.
    fn end(self, is_json: bool) -> Result<(), Failure> {
        let elapsed = self.elapsed();
        let [plain, fenced] = self.lanes.each_ref().map(|lane| lane.record.counts);
        drop(self.view);
        if is_json {
            say(json!({
                "turns": self.turn,
                "without_fences": fields(plain),
                "with_fences": fields(fenced),
                "seconds": elapsed.as_millis() as f64 / 1000.0,
            }))?;
        } else {
            say(format_args!("\n{}\n", table(plain, fenced).fit(width())))?;
            say(wrap(&verdict(plain, fenced), 0, width()))?;
        }
        if is_right(plain, fenced) { Ok(()) } else { Err(Failure::code(OVERSOLD)) }
    }
}

/// Whether the demo has shown what it says.
const fn is_right(plain: Counts, fenced: Counts) -> bool {
    plain.stale > 0 && fenced.stale == 0 && fenced.refused > 0
}

fn fields(counts: Counts) -> Value {
    json!({"accepted": counts.accepted, "stale": counts.stale, "refused": counts.refused})
}

fn table(plain: Counts, fenced: Counts) -> Table<3> {
    let mut table = Table::new(["", "without fences", "with fences"]);
    let mut row = |name: &str, of: fn(&Counts) -> u32| {
        table.add([name.to_owned(), of(&plain).to_string(), of(&fenced).to_string()]);
    };
    row("writes accepted", |counts| counts.accepted);
    row("of these stale, over a newer one", |counts| counts.stale);
    row("writes refused", |counts| counts.refused);
    table
}

fn verdict(plain: Counts, fenced: Counts) -> String {
    if is_right(plain, fenced) {
        return format!(
            "The lock cannot stop a holder that wakes up late: without fences {} late writes replaced a \
             newer one, with fences all {} were refused (redbolt run --fence gives CMD such a number).",
            plain.stale, fenced.refused
        );
    }
    if fenced.stale > 0 {
        return "A stale write was accepted in spite of its fence: please report this.".to_owned();
    }
    "No holder wrote after its lock was over: this machine was too busy, try it again.".to_owned()
}

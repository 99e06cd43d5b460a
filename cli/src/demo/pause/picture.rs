//! How a turn is shown: in two columns, what happens without fences beside what happens with them.

use std::time::Duration;

use console::{Alignment, pad_str};

use super::holder::{Said, Who};
use super::record::{Counts, Written};
use crate::output::{Paint, short};

/// Columns of the left side.
const WIDTH: usize = 37;

/// Steps that are shown of a turn.
const STEPS_SHOWN: usize = 7;

/// One side of the picture: the steps of the turn.
#[derive(Debug)]
pub(super) struct Side {
    title: &'static str,
    steps: Vec<String>,
    /// What became of A's write.
    late: &'static str,
    paint: Paint,
}

/// Where the turns are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) turn: u32,
    pub(super) turns: u32,
    pub(super) elapsed: Duration,
}

impl Side {
    pub(super) const fn new(title: &'static str, paint: Paint) -> Self {
        Self { title, steps: Vec::new(), late: "", paint }
    }

    /// A new turn begins.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
        self.late = "did not come";
    }

    /// What a holder said.
    pub(super) fn said(&mut self, who: Who, said: Said) {
        let text = match said {
            Said::Locked(None) => "takes the lock".to_owned(),
            Said::Locked(Some(fence)) => format!("takes the lock, fence {fence}"),
            Said::Left(left) => format!("checks: {} left", short(left)),
            Said::Over => "sees that its lock is over".to_owned(),
            Said::Write => "writes".to_owned(),
        };
        self.steps.push(format!("{who:?}  {text}"));
    }

    /// The kernel has stopped A.
    pub(super) fn stopped(&mut self) {
        self.steps.push(self.paint.yellow("A  is stopped, and its lock runs out"));
    }

    /// What became of a write.
    pub(super) fn wrote(&mut self, who: Who, written: Written) {
        let paint = self.paint;
        let (step, late) = match (who, written) {
            (Who::B, written) => (format!("B  writes: {}", word(written)), None),
            (Who::A, Written::Accepted) => {
                ("A  goes on, writes: accepted".to_owned(), Some("was accepted"))
            }
            (Who::A, Written::Stale) => {
                (paint.red("A  goes on, overwrites B's: accepted"), Some("replaced B's newer one"))
            }
            (Who::A, Written::Refused) => {
                (paint.green("A  goes on, writes: refused"), Some("was refused"))
            }
        };
        self.steps.push(step);
        self.late = late.unwrap_or(self.late);
    }
}

const fn word(written: Written) -> &'static str {
    match written {
        Written::Accepted | Written::Stale => "accepted",
        Written::Refused => "refused",
    }
}

/// A turn in one line, where nothing can be drawn.
pub(super) fn told(turn: u32, plain: &Side, fenced: &Side) -> String {
    let text = |side: &Side| format!("{} A's late write {}", side.title, side.late);
    format!("turn {turn:>2}: {}, {}", text(plain), text(fenced))
}

/// The lines of the picture.
pub(super) fn lines(at: Progress, sides: [(&Side, Counts); 2], paint: Paint) -> Vec<String> {
    let [(left, left_counts), (right, right_counts)] = sides;
    let beside = |left: &str, right: &str| {
        format!("  {}{right}", pad_str(left, WIDTH, Alignment::Left, None))
    };
    let step = |side: &Side, row: usize| side.steps.get(row).cloned().unwrap_or_default();
    let total = |counts: Counts| {
        let text = format!("stale writes: {}", counts.stale);
        if counts.stale > 0 { paint.red(text) } else { paint.green(text) }
    };
    let time = format!("turn {} of {}, {:.1} s", at.turn, at.turns, at.elapsed.as_secs_f64());
    let mut lines = vec![
        beside(&paint.bold(left.title), &paint.bold(right.title)),
        beside(&total(left_counts), &total(right_counts)),
        String::new(),
    ];
    lines.extend((0..STEPS_SHOWN).map(|row| beside(&step(left, row), &step(right, row))));
    lines.push(String::new());
    lines.push(format!("  {}", paint.dim(time)));
    lines
}

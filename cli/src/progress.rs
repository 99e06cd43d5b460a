//! One line on stderr during long work: only on a terminal, and removed when the work is over.

use std::io;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::terminal::is_live;

/// Time between two updates.
const STEP: Duration = Duration::from_millis(100);

/// A progress bar, or a sign that the command waits; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// `None` without a terminal: it costs nothing then.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A bar, in thousandths.
    pub(crate) fn bar() -> Self {
        Self::drawn(Some(1000), style("{bar:40} {percent:>3} %").progress_chars("█░"))
    }

    /// A sign that the command waits, with the time so far.
    pub(crate) fn spinner(text: String) -> Self {
        let seconds = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            // A failure does not matter here.
            let _ = write!(out, "{}", state.elapsed().as_secs());
        };
        let style = style("{spinner} {msg} ({seconds} s)").with_key("seconds", seconds);
        let this = Self::drawn(None, style.tick_chars("|/-\\ "));
        if let Some(bar) = &this.bar {
            bar.set_message(text);
            bar.enable_steady_tick(STEP);
        }
        this
    }

    fn drawn(len: Option<u64>, style: ProgressStyle) -> Self {
        let bar = is_live(&io::stderr()).then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(10);
            ProgressBar::with_draw_target(len, target).with_style(style)
        });
        Self { bar }
    }

    /// Shows that `permille` thousandths are done.
    pub(crate) fn show(&self, permille: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(permille.min(1000));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The style of a template, which is one of the two above.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

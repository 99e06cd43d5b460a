//! One line on stderr during long work: only on a terminal, and removed when the work is over.

use std::io;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::terminal::is_live;

/// Time between two updates.
const STEP: Duration = Duration::from_millis(100);

/// A sign that the command works or waits; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// `None` without a terminal: it costs nothing then.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A spinner with the time so far.
    pub(crate) fn spinner(text: String) -> Self {
        let bar = is_live(&io::stderr()).then(|| {
            let seconds = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                // A failure does not matter here.
                let _ = write!(out, "{}", state.elapsed().as_secs());
            };
            let target = ProgressDrawTarget::stderr_with_hz(10);
            let style = ProgressStyle::with_template("{spinner} {msg} ({seconds} s)")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            let style = style.with_key("seconds", seconds).tick_chars("|/-\\ ");
            let bar = ProgressBar::with_draw_target(None, target).with_style(style);
            bar.set_message(text);
            bar.enable_steady_tick(STEP);
            bar
        });
        Self { bar }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

//! One line on stderr while something takes long: on a terminal only, and gone when it is over.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use redbolt::Instant;
use redbolt::now;

use crate::terminal::is_live;

/// Between two pictures.
const STEP: Duration = Duration::from_millis(100);

const BAR_LEN: usize = 40;

/// How far work is; drawn when told, at most ten times a second.
#[derive(Debug)]
pub(crate) struct Bar {
    is_shown: bool,
    drawn_at: Instant,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { is_shown: is_live(&io::stderr()), drawn_at: now() }
    }

    /// Shows that `permille` thousandths are done.
    pub(crate) fn show(&mut self, permille: u64) {
        if !self.is_shown || now().saturating_since(self.drawn_at) < STEP {
            return;
        }
        self.drawn_at = now();
        let full = usize::try_from(permille.min(1000)).unwrap_or(0) * BAR_LEN / 1000;
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(BAR_LEN - full));
        draw(format_args!("{bar} {:>3} %", permille / 10));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.is_shown {
            draw("");
        }
    }
}

/// That something is waited for, and for how long already.
#[derive(Debug)]
pub(crate) struct Spinner {
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Spinner {
    /// Nothing to see.
    pub(crate) const fn hidden() -> Self {
        Self { drawing: None }
    }

    /// Draws `text` until it is dropped.
    pub(crate) fn start(text: String) -> Self {
        if !is_live(&io::stderr()) {
            return Self::hidden();
        }
        let (sender, end) = channel();
        let started = now();
        let drawing = std::thread::Builder::new().spawn(move || {
            for mark in ['|', '/', '-', '\\'].into_iter().cycle() {
                draw(format_args!(
                    "{mark} {text} ({} s)",
                    now().saturating_since(started).as_secs()
                ));
                if end.recv_timeout(STEP) != Err(RecvTimeoutError::Timeout) {
                    return draw("");
                }
            }
        });
        // Without a thread it is not seen, and nothing else changes.
        Self { drawing: drawing.ok().map(|thread| (sender, thread)) }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.drawing.take() {
            drop(sender);
            // It cannot fail in a way that matters here.
            let _ = thread.join();
        }
    }
}

/// Puts `line` in the place of the last one.
fn draw(line: impl Display) {
    let _ = write!(io::stderr().lock(), "\r{line}\x1b[K");
}

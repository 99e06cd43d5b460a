//! Keys that need no newline, while a live view is shown.

use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::read;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The previous state of the terminal; kept here so that a panic can restore it too.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The keyboard of the terminal on stdin; dropping it restores the terminal.
#[derive(Debug)]
pub(crate) struct Keyboard(());

impl Keyboard {
    /// Ctrl-C still sends its signal.
    pub(crate) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let keyboard = Self(());
        tcsetattr(&stdin, OptionalActions::Now, &modes)?;
        Ok(keyboard)
    }

    /// Whether somebody typed q, or nobody can type any more.
    pub(crate) fn has_quit(&self) -> io::Result<bool> {
        let stdin = io::stdin();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&now))? == 0 {
            return Ok(false);
        }
        let mut keys = [0; 16];
        let count = read(&stdin, &mut keys)?;
        Ok(count == 0 || keys.iter().any(|key| matches!(key, b'q' | b'Q')))
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal, if a keyboard was opened.
pub(crate) fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // The terminal may be gone; then there is nothing to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

//! Signals as values: all threads block them, except one thread that waits for them.
//!
//! Children inherit the blocked set, so the command's process lifts it with [`unblock`] before it
//! becomes the command.

use std::fs;
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::SigSet;
pub(crate) use nix::sys::signal::Signal;

/// The signals that end a command by default.
pub(crate) const ENDING: [Signal; 4] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// The signals that have arrived.
#[derive(Debug)]
pub(crate) struct Signals {
    inbox: Receiver<Signal>,
}

impl Signals {
    /// Receives `wanted` from now on, and calls `wake` after each. Call it before any other thread
    /// starts.
    pub(crate) fn watch(wanted: &[Signal], wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let ignored = ignored();
        // Signals that the caller has chosen to ignore (nohup, a background job) stay ignored.
        let wanted = wanted.iter().copied().filter(|signal| !is_in(ignored, *signal));
        let set: SigSet = wanted.collect();
        set.thread_block()?;
        let (sender, inbox) = channel();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            while let Ok(signal) = set.wait() {
                if sender.send(signal).is_err() {
                    return;
                }
                wake();
            }
        })?;
        Ok(Self { inbox })
    }

    /// The next signal that has arrived.
    pub(crate) fn next(&self) -> Option<Signal> {
        self.inbox.try_recv().ok()
    }

    /// Waits for a signal, at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> Option<Signal> {
        self.inbox.recv_timeout(limit).ok()
    }
}

/// Blocks `signal` in this thread and the threads that it starts.
pub(crate) fn block(signal: Signal) -> io::Result<()> {
    Ok(SigSet::from(signal).thread_block()?)
}

/// Waits for `signal`, which must be blocked.
pub(crate) fn await_one(signal: Signal) -> io::Result<()> {
    Ok(SigSet::from(signal).wait().map(drop)?)
}

/// Lets all signals through again.
pub(crate) fn unblock() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Whether this process inherited `signal` as ignored.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    is_in(ignored(), signal)
}

/// One bit per ignored signal, the lowest for signal 1. Without unsafe code only the kernel's
/// listing shows it; without a listing no signal counts as ignored.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

const fn is_in(mask: u64, signal: Signal) -> bool {
    mask & (1 << (signal as u32 - 1)) != 0
}

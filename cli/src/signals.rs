//! Signals as values: blocked everywhere, and taken by one thread that waits for them.
//!
//! Children inherit the blocked set, so whoever starts one lifts it there with [`unblock`].

use std::fs;
use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::SigSet;
pub(crate) use nix::sys::signal::Signal;

/// What ends a command unless it does something else about it.
pub(crate) const ENDING: [Signal; 4] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// The signals that have come in.
#[derive(Debug)]
pub(crate) struct Signals {
    inbox: Receiver<Signal>,
}

impl Signals {
    /// Takes `wanted` from now on; `wake` is called after each. Before any other thread is made.
    pub(crate) fn watch(wanted: &[Signal], wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let mut set = SigSet::empty();
        let ignored = ignored();
        for &signal in wanted {
            // What the caller has chosen to ignore (nohup, a background job) stays ignored.
            if !is_in(ignored, signal) {
                set.add(signal);
            }
        }
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

    /// The next signal that has come in.
    pub(crate) fn next(&self) -> Option<Signal> {
        self.inbox.try_recv().ok()
    }

    /// Waits for a signal, at most `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> Option<Signal> {
        self.inbox.recv_timeout(limit).ok()
    }
}

/// The number of `signal`, as exit codes count it.
pub(crate) fn number(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or(0)
}

/// Keeps `signal` from this thread and those it makes.
pub(crate) fn block(signal: Signal) -> io::Result<()> {
    let mut set = SigSet::empty();
    set.add(signal);
    Ok(set.thread_block()?)
}

/// Waits for `signal`, which must be blocked.
pub(crate) fn await_one(signal: Signal) -> io::Result<()> {
    let mut set = SigSet::empty();
    set.add(signal);
    Ok(set.wait().map(drop)?)
}

/// Lets all signals through again.
pub(crate) fn unblock() -> io::Result<()> {
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Whether whoever started this process ignores `signal`.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    is_in(ignored(), signal)
}

/// One bit for each signal that is ignored, the lowest for signal 1. Nothing but the kernel's own
/// listing tells it without unsafe code; where there is none, nothing is taken to be ignored.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

const fn is_in(mask: u64, signal: Signal) -> bool {
    mask & (1 << (signal as u32 - 1)) != 0
}

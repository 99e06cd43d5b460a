//! `redbolt run`: holds a lock while a command runs, and ends the command before the lock ends.
//!
//! # Invariants
//!
//! - The lock is kept alive by the driver.
//! - With less than the grace left the group gets TERM; when a quarter of the grace is left, KILL.
//!   So the command is gone before the deadline, whatever the nodes do.
//! - The lock is released after the command has ended, and never before.

use std::time::Duration;

use redbolt::driver::Outcome;
use redbolt::time::Instant;
use redbolt::{Acquire, KeepAlive, Lease, Unlocked, now};

use crate::args::{Global, RunArgs};
use crate::child::{Fate, Group, exit_code};
use crate::exit::{Failure, LOST, SYSTEM};
use crate::lock::{hint_taken, waiting};
use crate::output::{note, short, shown};
use crate::session::{Session, odd_outcome};
use crate::signals::{ENDING, Signal};

/// The longest grace by default.
const GRACE_MAX: Duration = Duration::from_secs(1);

pub(crate) fn run(global: &Global, args: &RunArgs) -> Result<(), Failure> {
    let grace = args.grace.unwrap_or_else(|| (args.ttl / 10).min(GRACE_MAX));
    if grace >= args.ttl / 2 {
        let message = format!("--grace {} leaves too little of --ttl", short(grace));
        return Err(Failure::usage(message).hint("it must be less than half of it"));
    }
    let watched: Vec<Signal> =
        ENDING.into_iter().chain([Signal::SIGCHLD, Signal::SIGCONT]).collect();
    let mut session = Session::open(global, &watched)?;
    crate::signals::block(Signal::SIGTTOU)?;
    // An attempt that fails at once says all of it by itself.
    session.is_telling = args.wait.is_some();
    let spinner = waiting(&args.key.0, args.wait);
    let acquire = Acquire::new(args.ttl).keep_alive(KeepAlive::new());
    let lease = session.lock(&args.key.0, acquire, args.wait);
    drop(spinner);
    let lease = lease.map_err(|failure| hint_taken(failure, &args.key.0, args.wait))?;
    session.is_telling = true;
    let group = match Group::start(&args.command) {
        Ok(group) => group,
        Err(error) => {
            drop(lease);
            session.close();
            return Err(Failure::new(SYSTEM, "system", format!("cannot start a process: {error}")));
        }
    };
    let mut watch = Watch { session, group, grace, end: None };
    let result = watch.until_ended(&lease);
    // Whatever went wrong, nothing of the command may go on without the lock.
    if result.is_err() || watch.end.is_some() {
        watch.group.send(Signal::SIGKILL);
    }
    let status = watch.group.reap()?;
    let is_in_time = lease.is_valid();
    let released = watch.release(lease);
    result?;
    watch.session.close();
    judge(&shown(&args.key.0), exit_code(status), is_in_time, watch.end, released?)
}

/// The lock and the command, and what is due.
struct Watch {
    session: Session,
    group: Group,
    grace: Duration,
    /// When the command was told to end because the lock does, and when it is killed.
    end: Option<Ending>,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    kill_at: Instant,
}

impl Watch {
    /// Drives both until the command has ended.
    fn until_ended(&mut self, lease: &Lease) -> Result<(), Failure> {
        loop {
            while let Some(signal) = self.session.signals.next() {
                if signal == Signal::SIGCONT {
                    self.group.wake();
                } else if signal != Signal::SIGCHLD {
                    self.group.send(signal);
                }
            }
            if self.group.look()? == Fate::Ended {
                return Ok(());
            }
            while let Some(done) = self.session.driver.completion() {
                if matches!(done.result, Outcome::Lost(_)) && self.end.is_none() {
                    note("the lock is lost: ending the command");
                    self.begin_end(now() + self.grace);
                }
            }
            if self.act(lease) {
                return Ok(());
            }
            let wake_at = self.next_deadline(lease);
            self.session.pass(Some(wake_at))?;
        }
    }

    /// Does what is due. True when the command has been killed.
    fn act(&mut self, lease: &Lease) -> bool {
        if self.end.is_none() && lease.remaining() <= self.grace {
            note("the lock could not be extended and ends: ending the command");
            self.begin_end(lease.deadline() - self.grace / 4);
        }
        let is_due = self.end.is_some_and(|end| end.kill_at <= now());
        if is_due {
            self.group.send(Signal::SIGKILL);
        }
        is_due
    }

    fn begin_end(&mut self, kill_at: Instant) {
        self.end = Some(Ending { kill_at });
        self.group.send(Signal::SIGTERM);
        // A stopped process does not see TERM.
        self.group.send(Signal::SIGCONT);
    }

    fn next_deadline(&self, lease: &Lease) -> Instant {
        self.end.map_or_else(|| lease.deadline() - self.grace, |end| end.kill_at)
    }

    /// Releases the lock; no signal stops that.
    fn release(&mut self, lease: Lease) -> Result<Unlocked, Failure> {
        let op = self.session.driver.unlock(lease)?;
        self.session.driver.flush();
        loop {
            while let Some(done) = self.session.driver.completion() {
                if done.id == op {
                    let Outcome::Unlock(unlocked) = done.result else { return Err(odd_outcome()) };
                    return Ok(unlocked);
                }
            }
            self.session.pass(None)?;
        }
    }
}

fn judge(
    key: &str,
    code: u8,
    is_in_time: bool,
    end: Option<Ending>,
    released: Unlocked,
) -> Result<(), Failure> {
    if end.is_some() {
        return Err(Failure::new(
            LOST,
            "lost",
            format!("{key} was lost while the command ran, so the command was ended"),
        ));
    }
    if !is_in_time || released == Unlocked::NotHeld {
        return Err(Failure::new(
            LOST,
            "lost",
            format!(
                "{key} was lost before the command ended (with exit code {code}): check its work"
            ),
        ));
    }
    if released == Unlocked::Unknown {
        note(format_args!("too few nodes confirmed the release of {key}: it may last for its TTL"));
    }
    if code == 0 { Ok(()) } else { Err(Failure::code(code)) }
}

//! `redbolt run`: holds locks while a command runs, and ends the command before any of them ends.
//!
//! # Invariants
//!
//! - Several locks are taken in the order of their bytes. Whoever waits for one holds only smaller
//!   ones, so no circle of waiters can form.
//! - The locks are kept alive by the driver, also while the next one is waited for.
//! - With less than the grace left of any lock the group gets TERM; when a quarter of the grace is
//!   left, KILL. So the command is gone before the deadline, whatever the nodes do.
//! - The locks are released after the command has ended, and never before.

use std::ffi::OsString;
use std::time::Duration;

use redbolt::driver::Outcome;
use redbolt::engine::OpId;
use redbolt::time::Instant;
use redbolt::{Acquire, KeepAlive, Lease, Unlocked, now};

use crate::args::{Global, RunArgs};
use crate::child::{Fate, Group, exit_code};
use crate::exit::{Failure, LOST, SYSTEM, TAKEN};
use crate::lock::{hint_taken, waiting};
use crate::output::{note, short, shown};
use crate::session::{CONNECT_LIMIT, Session, odd_outcome};
use crate::signals::Signal;

/// The longest grace by default.
const GRACE_MAX: Duration = Duration::from_secs(1);

/// What is passed on to the command.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

pub(crate) fn run(global: &Global, args: &RunArgs) -> Result<(), Failure> {
    let grace = args.grace.unwrap_or_else(|| (args.ttl / 10).min(GRACE_MAX));
    if grace >= args.ttl / 2 {
        let message = format!("--grace {} leaves too little of --ttl", short(grace));
        return Err(Failure::usage(message).hint("it must be less than half of it"));
    }
    // The kernel then keeps to itself how a child ended.
    if crate::signals::is_ignored(Signal::SIGCHLD) {
        let message = "whoever started this ignores SIGCHLD, which hides how the command ends";
        return Err(Failure::new(SYSTEM, "system", message)
            .hint("start it with the signal's default: env --default-signal=CHLD redbolt run .."));
    }
    let own = [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGTSTP];
    let watched: Vec<Signal> = PASSED_ON.into_iter().chain(own).collect();
    let mut session = Session::open(global, &watched)?;
    crate::signals::block(Signal::SIGTTOU)?;
    // An attempt that fails at once says all of it by itself.
    session.is_telling = args.wait.is_some();
    let leases = take_all(&mut session, args);
    let leases = leases.map_err(|failure| conflict(failure, args, global.json))?;
    session.is_telling = true;
    let group = match Group::start(&command(args)) {
        Ok(group) => group,
        Err(error) => {
            drop(leases);
            session.close();
            return Err(Failure::new(SYSTEM, "system", format!("cannot start a process: {error}")));
        }
    };
    let mut watch = Watch { session, group, leases, grace, end: None };
    let result = watch.until_ended();
    // Whatever went wrong, nothing of the command may go on without the locks.
    if result.is_err() || watch.end.is_some() {
        watch.group.send(Signal::SIGKILL);
    }
    let code = exit_code(watch.group.reap()?);
    let released = watch.release();
    result?;
    watch.session.close();
    judge(code, watch.end.is_some(), &released?)
}

/// Takes each lock, in the order of their bytes. What was taken is dropped, and so released, if
/// one of them cannot be had.
fn take_all(session: &mut Session, args: &RunArgs) -> Result<Vec<Lease>, Failure> {
    let mut keys: Vec<&[u8]> = args.keys.iter().map(|key| &*key.0).collect();
    keys.sort_unstable();
    keys.dedup();
    session.settle(CONNECT_LIMIT)?;
    let end = args.wait.map(|wait| now() + wait);
    let mut leases: Vec<Lease> = Vec::with_capacity(keys.len());
    for key in keys {
        let left = end.map(|end| now().until(end));
        let spinner = waiting(key, left);
        let acquire = Acquire::new(args.ttl).keep_alive(KeepAlive::new());
        let taken = session.lock(key, acquire, left);
        drop(spinner);
        if let Some(lost) = leases.iter().find(|lease| !lease.is_valid()) {
            return Err(Failure::new(
                LOST,
                "lost",
                format!(
                    "{} was lost while {} was waited for: the command was not started",
                    shown(lost.key()),
                    shown(key)
                ),
            ));
        }
        leases.push(taken.map_err(|failure| {
            let failure = if args.keys.len() > 1 { failure.of(key) } else { failure };
            // Who says so knows that it does not wait.
            if args.no_wait { failure } else { hint_taken(failure, key, args.wait) }
        })?);
    }
    Ok(leases)
}

/// What the user wants to hear of a lock that is taken.
fn conflict(failure: Failure, args: &RunArgs, json: bool) -> Failure {
    match args.conflict_exit_code {
        Some(0) if failure.code == TAKEN && !json => Failure::code(0),
        Some(code) if failure.code == TAKEN => Failure { code, ..failure },
        _ => failure,
    }
}

fn command(args: &RunArgs) -> Vec<OsString> {
    let Some(line) = &args.line else { return args.command.clone() };
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line.clone()]
}

/// The locks and the command, and what is due.
struct Watch {
    session: Session,
    group: Group,
    leases: Vec<Lease>,
    grace: Duration,
    /// When the command was told to end because a lock does, and when it is killed.
    end: Option<Ending>,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    kill_at: Instant,
}

/// What became of one lock.
struct Released {
    key: String,
    is_in_time: bool,
    unlocked: Unlocked,
}

impl Watch {
    /// Drives all until the command has ended.
    fn until_ended(&mut self) -> Result<(), Failure> {
        loop {
            while let Some(signal) = self.session.signals.next() {
                self.take_signal(signal);
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
            if self.act() {
                return Ok(());
            }
            let wake_at = self.next_deadline();
            self.session.pass(Some(wake_at))?;
        }
    }

    fn take_signal(&mut self, signal: Signal) {
        if signal == Signal::SIGCONT {
            self.group.wake();
        } else if signal == Signal::SIGTSTP {
            note("redbolt run cannot be suspended: the lock would end, and the command go on");
        } else if PASSED_ON.contains(&signal) {
            self.group.send(signal);
        }
    }

    /// The earliest deadline of the locks.
    fn deadline(&self) -> Instant {
        self.leases.iter().map(Lease::deadline).min().unwrap_or_else(now)
    }

    /// Does what is due. True when the command has been killed.
    fn act(&mut self) -> bool {
        let deadline = self.deadline();
        if self.end.is_none() && now().until(deadline) <= self.grace {
            note("the lock could not be extended and ends: ending the command");
            self.begin_end(deadline - self.grace / 4);
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

    fn next_deadline(&self) -> Instant {
        self.end.map_or_else(|| self.deadline() - self.grace, |end| end.kill_at)
    }

    /// Releases the locks, the last first; no signal stops that.
    fn release(&mut self) -> Result<Vec<Released>, Failure> {
        let mut open: Vec<(OpId, Released)> = Vec::with_capacity(self.leases.len());
        while let Some(lease) = self.leases.pop() {
            let key = shown(lease.key());
            let is_in_time = lease.is_valid();
            let op = self.session.driver.unlock(lease)?;
            open.push((op, Released { key, is_in_time, unlocked: Unlocked::Unknown }));
        }
        self.session.driver.flush();
        let mut left = open.len();
        while left > 0 {
            while let Some(done) = self.session.driver.completion() {
                if let Some((_, released)) = open.iter_mut().find(|(op, _)| *op == done.id) {
                    let Outcome::Unlock(unlocked) = done.result else { return Err(odd_outcome()) };
                    released.unlocked = unlocked;
                    left -= 1;
                }
            }
            if left > 0 {
                self.session.pass(None)?;
            }
        }
        Ok(open.into_iter().map(|(_, released)| released).collect())
    }
}

fn judge(code: u8, was_ended: bool, released: &[Released]) -> Result<(), Failure> {
    let is_lost = |lock: &&Released| !lock.is_in_time || lock.unlocked == Unlocked::NotHeld;
    let were = |locks: &[&str]| {
        let verb = if locks.len() == 1 { "was" } else { "were" };
        format!("{} {verb} lost", locks.join(", "))
    };
    // In the order in which they were taken.
    let lost: Vec<&str> = released.iter().rev().filter(is_lost).map(|lock| &*lock.key).collect();
    if was_ended {
        // The one whose time ran short was perhaps still ours when the command had gone.
        let all = || released.iter().rev().map(|lock| &*lock.key).collect();
        let what = were(&if lost.is_empty() { all() } else { lost });
        return Err(Failure::new(
            LOST,
            "lost",
            format!("{what} while the command ran, so the command was ended"),
        ));
    }
    if !lost.is_empty() {
        let what = were(&lost);
        return Err(Failure::new(
            LOST,
            "lost",
            format!("{what} before the command ended (with exit code {code}): check its work"),
        ));
    }
    for lock in released.iter().filter(|lock| lock.unlocked == Unlocked::Unknown) {
        let key = &lock.key;
        note(format_args!("too few nodes confirmed the release of {key}: it may last for its TTL"));
    }
    if code == 0 { Ok(()) } else { Err(Failure::code(code)) }
}

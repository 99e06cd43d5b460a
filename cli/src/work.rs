//! A command under locks: it runs while they are held, and this process ends it before any of them
//! ends.
//!
//! # Invariants
//!
//! - The group gets TERM when less than the grace is left of the locks, or when they are known to be
//!   lost. After the grace it gets KILL. This process sends KILL at the latest when a quarter of the
//!   grace is left before the last known deadline. The watchdog does so when an eighth is left.
//! - After each wait this process reads the clock first: if it could not run for too long, there is
//!   only time for KILL. Until it runs again, the watchdog acts for it.
//! - The locks are released after the command has ended, and never before. If the command cannot be
//!   killed, they are not released.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::time::Duration;

use redbolt::Instant;
use redbolt::driver::Outcome;
use redbolt::engine::LostCause;
use redbolt::inspect::{NodeId, NodeMask, NodeState};
use redbolt::{Config, Lease, UnlockError, Unlocked, now};

use crate::args::{CommandArgs, Global};
use crate::child::{Group, Privileges, exit_code};
use crate::descendants::Survivor;
use crate::exit::{Failure, LOST, NOT_KILLED, causes};
use crate::output::{note, short, shown};
use crate::session::{Session, odd_outcome};
use crate::signals::{ENDING, Signal};
use crate::token::{self, TOKEN_VARIABLE};

/// The longest grace by default.
const GRACE_MAX: Duration = Duration::from_secs(1);

/// The variable in which the command finds the name of its lock.
const KEY_VARIABLE: &str = "REDBOLT_KEY";

/// The variable in which the command finds the number of its slot.
const SLOT_VARIABLE: &str = "REDBOLT_SLOT";

/// The variable in which the command finds the fence of its lock.
const FENCE_VARIABLE: &str = "REDBOLT_FENCE";

/// The exit code of a command that was killed.
const KILLED: u8 = 128 + 9;

/// How long a command may go on after a signal that ends processes before the user is told.
const STILL_RUNS: Duration = Duration::from_secs(5);

/// The most processes that a message names.
const NAMED_MAX: usize = 4;

/// The signals that this process passes on to the command.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The most letters of a client's name.
const NAME_MAX: usize = 64;

/// The time left of a lock at which `redbolt` ends the command.
pub(crate) fn grace(ttl: Duration, chosen: Option<Duration>) -> Result<Duration, Failure> {
    let grace = chosen.unwrap_or_else(|| (ttl / 10).min(GRACE_MAX));
    // If the TTL itself is too short, the lock refuses it.
    if chosen.is_some() && grace >= ttl / 2 {
        let message = format!("--grace {} leaves too little of --ttl", short(grace));
        return Err(Failure::usage(message).hint("it must be less than half of it"));
    }
    Ok(grace)
}

/// A session that can run a command. `name` is the subcommand.
pub(crate) fn session(
    global: &Global,
    name: &str,
    change: impl FnOnce(Config) -> Config,
) -> Result<Session, Failure> {
    // With SIGCHLD ignored, the kernel does not report how a child ended.
    if crate::signals::is_ignored(Signal::SIGCHLD) {
        let message =
            "the process that started this ignores SIGCHLD, which hides how the command ends";
        return Err(Failure::system(message).hint(&format!(
            "start it with the signal's default: env --default-signal=CHLD redbolt {name} .."
        )));
    }
    let own = [Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGTSTP];
    let watched: Vec<Signal> = PASSED_ON.into_iter().chain(own).collect();
    let session = Session::open_with(global, &watched, change)?;
    crate::signals::block(Signal::SIGTTOU)?;
    Ok(session)
}

/// The words of the command.
pub(crate) fn command(args: &CommandArgs) -> Vec<OsString> {
    let Some(line) = &args.line else { return args.command.clone() };
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line.clone()]
}

/// The name of a holder without a name of its own: the subcommand and the file that runs, never its
/// arguments.
pub(crate) fn name_of(subcommand: &str, args: &CommandArgs) -> String {
    let command = command(args);
    let file = command.first().and_then(|program| Path::new(program).file_name());
    let file = file.unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_+@".contains(c) { c } else { '_' };
    let file = file.chars().map(plain);
    format!("{subcommand}/").chars().chain(file).take(NAME_MAX).collect()
}

/// How a command under locks ended.
pub(crate) struct Ended {
    /// Its exit code, as a shell gives it.
    code: u8,
    /// This process told it to end, or killed it, because a lock ended.
    was_ended: bool,
    /// The names of the locks.
    names: Vec<String>,
    /// Why a lock was lost, if one was.
    lost: Option<LostCause>,
    /// Why this process may take no lock any more.
    stale: Option<Failure>,
    /// The value of `--max-hold`, if the command was told to end because that time was over.
    held_for: Option<Duration>,
    /// The last signal passed on to it that ends processes.
    signal: Option<Signal>,
    /// Whether the locks were held until it had ended.
    is_held: bool,
}

/// Runs the command while the locks of these names are held, for `max_hold` at most, and releases
/// them.
pub(crate) fn under(
    session: &mut Session,
    (names, lease): (&[&[u8]], Lease),
    args: &CommandArgs,
    grace: Duration,
    max_hold: Option<Duration>,
) -> Result<Ended, Failure> {
    let hold = Hold { max: max_hold, ends: max_hold.map(|hold| now() + hold), is_over: false };
    session.is_telling = true;
    let limit = Limit::new(lease.deadline(), grace);
    let privileges = if args.allow_new_privileges { Privileges::Any } else { Privileges::Own };
    let group =
        Group::start(&command(args), &environment(names, &lease), privileges, limit.watchdog_at());
    let group =
        group.map_err(|error| Failure::system(format!("cannot start a process: {error}")))?;
    let names = names.iter().map(|name| shown(name)).collect();
    let held = Some(lease);
    let (lost, stale, signal, say_at) = (None, None, None, None);
    let mut watch = Watch { session, group, names, held, limit, lost, stale, hold, signal, say_at };
    let result = watch.until_ended();
    // Whatever went wrong, no part of the command may go on without the locks.
    if watch.limit.is_told || !matches!(result, Ok(End::ByItself)) {
        let survivors = watch.group.kill();
        if !survivors.is_empty() {
            return Err(watch.abandon(&survivors));
        }
    }
    watch.group.wait()?;
    let released = watch.release();
    let code = exit_code(watch.group.reap()?);
    // A command that had ended by itself was not killed.
    let was_killed = result? == End::Killed && code == KILLED;
    let was_ended = was_killed || watch.limit.is_told;
    let held_for = watch.hold.over();
    let Watch { names, lost, stale, signal, .. } = watch;
    Ok(Ended { code, was_ended, names, lost, stale, held_for, signal, is_held: released? })
}

/// The variables that tell the command about its locks. With several locks it has the token alone; a
/// variable that it does not have is unset, even if this process inherited it.
fn environment(names: &[&[u8]], lease: &Lease) -> [(&'static str, Option<OsString>); 4] {
    let only = (names.len() == 1).then_some(lease);
    // A writer's lease has more keys than the user named, so no single token belongs to the name.
    let is_named = lease.keys().count() == names.len();
    let fence = only.and_then(Lease::fence);
    [
        (KEY_VARIABLE, only.map(|lease| OsString::from_vec(lease.key().to_vec()))),
        (TOKEN_VARIABLE, is_named.then(|| OsString::from_vec(token::of(lease)))),
        (SLOT_VARIABLE, only.and_then(Lease::slot).map(|slot| slot.to_string().into())),
        (FENCE_VARIABLE, fence.map(|fence| fence.to_string().into())),
    ]
}

/// The locks and the command, and until when it may run.
struct Watch<'session> {
    session: &'session mut Session,
    group: Group,
    /// The names of the locks.
    names: Vec<String>,
    /// `None` once the locks are given back.
    held: Option<Lease>,
    limit: Limit,
    lost: Option<LostCause>,
    /// Why this process may take no lock any more.
    stale: Option<Failure>,
    hold: Hold,
    /// The last signal passed on that ends processes.
    signal: Option<Signal>,
    /// When to report that the command still runs after that signal.
    say_at: Option<Instant>,
}

/// Why this process no longer watches the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    ByItself,
    /// This process has to kill the command.
    Killed,
}

/// Until when the command may run.
#[derive(Clone, Copy, Debug)]
struct Limit {
    grace: Duration,
    kill_at: Instant,
    /// The command was told to end.
    is_told: bool,
}

impl Limit {
    fn new(deadline: Instant, grace: Duration) -> Self {
        Self { grace, kill_at: deadline - grace / 4, is_told: false }
    }

    /// The locks last until `deadline`. A command that was told to end gets no more time.
    fn follow(&mut self, deadline: Instant) {
        if !self.is_told {
            *self = Self::new(deadline, self.grace);
        }
    }

    /// A lock ends or is lost: the command has the grace from `now` on, but never longer than
    /// before.
    fn tell(&mut self, now: Instant) {
        self.is_told = true;
        self.kill_at = self.kill_at.min(now + self.grace);
    }

    /// When to tell the command to end, if the locks have not been extended by then.
    fn tell_at(&self) -> Instant {
        self.kill_at - (self.grace - self.grace / 4)
    }

    /// When the watchdog kills the command: late enough for this process to do it first.
    fn watchdog_at(&self) -> Instant {
        self.kill_at + self.grace / 8
    }

    fn next(&self) -> Instant {
        if self.is_told { self.kill_at } else { self.tell_at() }
    }
}

/// For how long the command may hold its locks, however long they could be kept.
#[derive(Clone, Copy, Debug)]
struct Hold {
    max: Option<Duration>,
    ends: Option<Instant>,
    /// The command was told to end because of it.
    is_over: bool,
}

impl Hold {
    /// The value of `--max-hold`, if that time is over.
    fn over(&self) -> Option<Duration> {
        self.max.filter(|_| self.is_over)
    }
}

impl Watch<'_> {
    /// Drives the locks until the command has ended.
    fn until_ended(&mut self) -> Result<End, Failure> {
        loop {
            // Checked before anything is read: this process may have been stopped.
            if self.limit.kill_at <= now() {
                return Ok(End::Killed);
            }
            self.session.drive()?;
            while let Some(signal) = self.session.signals.next() {
                self.take_signal(signal);
            }
            if self.group.has_ended()? {
                return Ok(End::ByItself);
            }
            while let Some(done) = self.session.driver.completion() {
                let Outcome::Lost(cause) = done.result else { continue };
                self.lost = self.lost.or(Some(cause));
                let what = match cause {
                    LostCause::Gone => "was taken away".to_owned(),
                    LostCause::Forgotten => format!("is lost, because {}", self.forgotten()),
                    LostCause::Expired | _ => format!("is lost{}", self.away()),
                };
                self.tell(&format!("the lock {what}: ending the command"));
            }
            if let Some(failure) = self.session.stale.take() {
                self.tell(&format!("{}: ending the command", failure.message));
                self.stale = Some(failure);
            }
            if let Some(lease) = &self.held {
                self.limit.follow(lease.deadline());
            }
            if !self.limit.is_told && self.limit.tell_at() <= now() {
                let away = self.away();
                self.tell(&format!(
                    "the lock could not be extended and ends{away}: ending the command"
                ));
            }
            let hold_ends = self.hold.ends.filter(|_| !self.limit.is_told);
            if hold_ends.is_some_and(|ends| ends <= now()) {
                self.hold.is_over = true;
                self.tell("--max-hold is over: ending the command");
            }
            self.group.kill_at(self.limit.watchdog_at());
            if self.say_at.is_some_and(|at| at <= now()) {
                self.say_still_runs();
            }
            let ends =
                [Some(self.limit.next()), hold_ends, self.say_at].into_iter().flatten().min();
            self.session.wait(ends)?;
        }
    }

    /// ` (n1:6379, n2:6379: connection refused)`: the nodes without a vote.
    fn away(&self) -> String {
        let causes = causes(&self.session.driver.nodes());
        causes.map(|causes| format!(" ({causes})")).unwrap_or_default()
    }

    /// `only 2 of 5 nodes still hold it: n3:6379, n4:6379 restarted or failed over`
    fn forgotten(&self) -> String {
        let votes = self.held.as_ref().map_or_else(NodeMask::default, Lease::votes);
        let nodes = self.session.driver.nodes();
        let listed = nodes.iter().zip((0..).map_while(NodeId::new));
        let listed = listed.filter(|(node, _)| node.state != NodeState::Unlisted);
        // A node that cannot be reached says nothing of its memory.
        let is_new =
            |state: NodeState| matches!(state, NodeState::Quarantined(_) | NodeState::Refused);
        let absent = listed.clone().filter(|(node, id)| is_new(node.state) && !votes.contains(*id));
        let names: Vec<&str> = absent.map(|(node, _)| &*node.name).collect();
        let held = format!("only {} of {} nodes still hold it", votes.count(), listed.count());
        if names.is_empty() {
            held
        } else {
            format!("{held}: {} restarted or failed over", names.join(", "))
        }
    }

    fn take_signal(&mut self, signal: Signal) {
        if signal == Signal::SIGCONT {
            self.group.wake();
        } else if signal == Signal::SIGTSTP {
            note("redbolt cannot be suspended: the lock would end, and the command go on");
        } else if PASSED_ON.contains(&signal) {
            let is_sent = self.group.send(signal);
            if ENDING.contains(&signal) {
                if is_sent && self.signal.is_none() {
                    self.say_at = Some(now() + STILL_RUNS);
                }
                self.signal = Some(signal);
            }
        }
    }

    /// Reports, once, that the command goes on after a signal that ends processes. It may hang or
    /// be stopped, and `run` keeps the lock for it.
    fn say_still_runs(&mut self) {
        self.say_at = None;
        let Some(signal) = self.signal.filter(|_| !self.limit.is_told) else { return };
        let name = signal.as_str().trim_start_matches("SIG");
        let pid = self.group.pid();
        note(format_args!(
            "passed {name} on to CMD (process {pid}), which still runs: the lock is kept until it ends"
        ));
    }

    /// Tells the command to end, once.
    fn tell(&mut self, why: &str) {
        if self.limit.is_told {
            return;
        }
        let time = now();
        self.limit.tell(time);
        if self.limit.kill_at <= time {
            // KILL comes at once.
            return;
        }
        self.group.kill_at(self.limit.watchdog_at());
        if self.group.send(Signal::SIGTERM) {
            // A stopped process does not see TERM.
            self.group.send(Signal::SIGCONT);
        }
        // This comes last, because it may block until somebody reads stderr.
        note(why);
    }

    /// Leaves the locks to end by themselves, because the command goes on.
    fn abandon(&mut self, survivors: &[Survivor]) -> Failure {
        self.group.take_terminal();
        // The drop of the lease would release the locks.
        std::mem::forget(self.held.take());
        let why = self.hold.over().map_or_else(
            || were_lost(&self.names, self.lost),
            |held_for| held_too_long(&self.names, held_for),
        );
        let message = format!("{why}, but {}", still_run(survivors));
        Failure::new(NOT_KILLED, "not_killed", message).hint("end it yourself")
    }

    /// Releases the locks; no signal interrupts that. Returns whether they were held until then.
    fn release(&mut self) -> Result<bool, Failure> {
        let Some(lease) = self.held.take() else { return Ok(false) };
        let is_in_time = lease.is_valid();
        let op = self.session.driver.unlock(lease)?;
        self.session.driver.flush();
        loop {
            while let Some(done) = self.session.driver.completion() {
                if done.id != op {
                    continue;
                }
                let Outcome::Unlock(unlocked) = done.result else { return Err(odd_outcome()) };
                if unlocked == Ok(Unlocked::Unknown) {
                    note(format_args!(
                        "too few nodes confirmed the release of {}: it may last for its TTL",
                        self.names.join(", ")
                    ));
                }
                return Ok(is_in_time && unlocked != Err(UnlockError::NotHeld));
            }
            self.session.pass(None)?;
        }
    }
}

/// `one of a, b was taken away`.
fn were_lost(names: &[String], cause: Option<LostCause>) -> String {
    let one = if names.len() > 1 { "one of " } else { "" };
    let how = if cause == Some(LostCause::Gone) { "taken away" } else { "lost" };
    format!("{one}{} was {how}", names.join(", "))
}

fn held_too_long(names: &[String], held_for: Duration) -> String {
    format!("{}: --max-hold {} is over", names.join(", "), short(held_for))
}

/// `processes 7 (sh), 8 (tee) cannot be killed (permission denied): ..`
fn still_run(survivors: &[Survivor]) -> String {
    let what = if survivors.len() == 1 { "process" } else { "processes" };
    let named = survivors.iter().take(NAMED_MAX);
    let named: Vec<String> = named.map(|it| format!("{} ({})", it.pid, it.name)).collect();
    let others = survivors.len() - named.len();
    let others = if others > 0 { format!(" and {others} others") } else { String::new() };
    let why: BTreeSet<String> = survivors.iter().map(|it| it.why.to_string()).collect();
    let why = why.into_iter().collect::<Vec<_>>().join(", ");
    let named = named.join(", ");
    format!("{what} {named}{others} cannot be killed ({why}): the command may still run")
}

impl Ended {
    /// Whether this process ended the command because its locks were lost, and may take them again.
    pub(crate) fn is_lost_alone(&self) -> bool {
        self.was_ended && self.signal.is_none() && self.stale.is_none()
    }

    /// Why the locks were lost, if they were.
    pub(crate) const fn why_lost(&self) -> &'static str {
        match self.lost {
            Some(LostCause::Gone) => "the lock was taken away",
            Some(LostCause::Forgotten) => "too many nodes restarted or failed over",
            _ => "the lock was not extended in time",
        }
    }

    /// The result of this process.
    pub(crate) fn judge(self) -> Result<(), Failure> {
        if let Some(failure) = self.stale.filter(|_| self.was_ended) {
            return Err(failure);
        }
        let (lost, code) = (were_lost(&self.names, self.lost), self.code);
        let message = if let Some(held_for) = self.held_for.filter(|_| self.was_ended) {
            held_too_long(&self.names, held_for) + ", so the command was ended"
        } else if self.was_ended {
            // A lock that ran short may still have been held when the command had ended.
            format!("{lost} while the command ran, so the command was ended")
        } else if !self.is_held {
            format!("{lost} before the command ended (with exit code {code}): check its work")
        } else {
            return if code == 0 { Ok(()) } else { Err(Failure::code(code)) };
        };
        Err(Failure::new(LOST, "lost", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_command_is_killed_by_the_deadline_that_was_believed_however_late_the_loss_is_known() {
        let grace = Duration::from_millis(1_000);
        // When the loss is known, and when the command is killed.
        for (known, killed) in [(2_000, 3_000), (9_000, 9_750), (9_900, 9_750), (60_000, 9_750)] {
            let mut limit = Limit::new(at(5_000), grace);
            limit.follow(at(10_000));
            assert_eq!(limit.next(), at(9_000));
            limit.tell(at(known));
            // A lost lease is over now, and an extended one lasts longer.
            limit.follow(at(known));
            limit.follow(at(90_000));
            assert_eq!((limit.next(), limit.is_told), (at(killed), true));
        }
    }
}

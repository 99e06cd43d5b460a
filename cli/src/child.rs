//! The command under the lock. It runs in its own process group. No process of that group outlives
//! the process that started it, here called `run`, unless `run` may not kill it.
//!
//! `run` starts its own binary a second time with [`HIDDEN`]. This process asks the kernel to kill
//! it when `run` dies, and waits until the watchdog knows it. Then it takes the terminal if there
//! is one, and becomes the command. Processes that the command starts are descendants of `run`, in
//! whatever group, and `run` kills them with the command.
//!
//! # Invariants
//!
//! - `run` reports a process that it could not kill, and does not wait for it.
//! - `run` kills the group only while its leader is not reaped, so its number belongs to no other
//!   group.
//! - No command runs that the watchdog does not know.
//! - No command begins once its time is over.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, IsTerminal as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};

use redbolt::{Instant, now};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal as KernelSignal, WaitId, WaitIdOptions, getpgrp, getpid, getppid, kill_process,
    kill_process_group, waitid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::descendants::{Descendants, Survivor};
use crate::output::{note, shown};
use crate::own_binary;
use crate::signals::{self, Signal};
use crate::watchdog::Watchdog;

/// The first argument of the second start.
pub(crate) const HIDDEN: &str = "--exec-under-lock";

const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The command, running.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    pid: Pid,
    watchdog: Watchdog,
    descendants: Descendants,
    /// Whether `run` gave the terminal to the command.
    has_terminal: bool,
}

/// The privileges that the command may gain by a set-user-ID program or one with capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privileges {
    /// No privileges that would stop `run` from killing the process.
    Own,
    Any,
}

/// Whether a child was stopped since the last look.
#[derive(Debug, PartialEq, Eq)]
enum Stopped {
    No,
    By(Option<i32>),
    /// It has ended, and is not reaped yet: the kernel then reports that there is no such child.
    HasEnded,
}

fn stopped_by(pid: Pid) -> io::Result<Stopped> {
    match waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG) {
        Ok(None) => Ok(Stopped::No),
        Ok(Some(status)) => Ok(Stopped::By(status.stopping_signal())),
        Err(Errno::CHILD) => Ok(Stopped::HasEnded),
        Err(error) => Err(error.into()),
    }
}

impl Group {
    /// Starts the command with these variables set, or unset. The watchdog kills the command at
    /// `kill_at`. The command may become another user only if `privileges` allow it. Call it only
    /// on the main thread: the kernel kills the command when the thread that started it ends.
    pub(crate) fn start(
        command: &[OsString],
        variables: &[(&str, Option<OsString>)],
        privileges: Privileges,
        kill_at: Instant,
    ) -> io::Result<Self> {
        let mut descendants = Descendants::adopt()?;
        let mut watchdog = Watchdog::start(&descendants)?;
        descendants.spare(watchdog.pid()?);
        let is_foreground = may_give_terminal();
        // The signal that lets the command begin must stay pending, even if the parent process
        // ignores it.
        signals::block(Signal::SIGCONT)?;
        let mut start = own_binary::command(HIDDEN)?;
        for (name, value) in variables {
            match value {
                Some(value) => start.env(name, value),
                None => start.env_remove(name),
            };
        }
        let child = start
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(if is_foreground { "foreground" } else { "background" })
            .arg(if privileges == Privileges::Any { "any" } else { "own" })
            .arg(descendants.cgroup())
            .args(command)
            .spawn()?;
        let pid = own_binary::pid(&child)?;
        watchdog.tell(pid, kill_at);
        // `run` may have stood still since the grant. Then the command waits until it is killed.
        if now() < kill_at {
            kill_process(pid, KernelSignal::CONT)?;
        }
        Ok(Self { child, pid, watchdog, descendants, has_terminal: is_foreground })
    }

    /// Gives the watchdog a new time to kill the group.
    pub(crate) fn kill_at(&mut self, at: Instant) {
        self.watchdog.tell(self.pid, at);
    }

    /// Whether the command has ended; it is not reaped yet. Undoes a suspension from the keyboard:
    /// otherwise `run` would keep the lock for a command that stands still.
    pub(crate) fn has_ended(&self) -> io::Result<bool> {
        self.descendants.reap([self.pid, self.watchdog.pid()?]);
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(self.pid), look)?.is_some() {
            return Ok(true);
        }
        match stopped_by(self.pid)? {
            Stopped::HasEnded => return Ok(true),
            Stopped::No => {}
            Stopped::By(signal) => self.was_stopped(signal),
        }
        Ok(false)
    }

    fn was_stopped(&self, signal: Option<i32>) {
        match signal {
            Some(signal) if signal == Signal::SIGTSTP as i32 => {
                note("a command under a lock cannot be suspended: it goes on");
                self.send(Signal::SIGCONT);
            }
            Some(signal) if signal == Signal::SIGTTIN as i32 => {
                note(
                    "the command wants to read the terminal, and is in the background: it is stopped",
                );
            }
            _ => {}
        }
    }

    /// The number of the command's process.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends a signal to the command and its whole group. Tells the user if that fails.
    pub(crate) fn send(&self, signal: Signal) -> bool {
        let sent = self.signal(signal);
        if let Err(error) = &sent {
            let (name, pid) = (signal.as_str().trim_start_matches("SIG"), self.pid());
            note(format_args!("cannot send {name} to CMD (process {pid}): {}", error.kind()));
        }
        sent.is_ok()
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(signal) = KernelSignal::from_named_raw(signal as i32) else { return Ok(()) };
        match kill_process_group(self.pid, signal) {
            // A group that has ended needs no signal.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills the command and all its descendants. Returns those that go on.
    pub(crate) fn kill(&mut self) -> Vec<Survivor> {
        let killed = self.signal(Signal::SIGKILL);
        let mut survivors = self.descendants.kill();
        let is_running = || !matches!(self.has_ended(), Ok(true));
        // The kernel may hide the processes of other users.
        if let Err(error) = killed
            && survivors.is_empty()
            && is_running()
        {
            survivors.push(Survivor { pid: self.pid, name: "CMD".into(), why: error.kind() });
        }
        survivors
    }

    /// After `fg`: `run` has the terminal again and gives it to the command.
    pub(crate) fn wake(&mut self) {
        if may_give_terminal() {
            self.has_terminal = tcsetpgrp(io::stdin(), self.pid).is_ok();
        }
        self.send(Signal::SIGCONT);
    }

    /// Waits until the command has ended. The watchdog ends too; [`reap`](Self::reap) waits for it.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        retry_on_intr(|| waitid(WaitId::Pid(self.pid), look))?;
        self.watchdog.kill()
    }

    /// Reaps the command, and takes the terminal back.
    pub(crate) fn reap(&mut self) -> io::Result<ExitStatus> {
        self.watchdog.wait()?;
        let status = self.child.wait()?;
        self.descendants.reap([self.pid, self.watchdog.pid()?]);
        self.descendants.forget();
        self.take_terminal();
        Ok(status)
    }

    /// Takes the terminal back, if the command has it.
    pub(crate) fn take_terminal(&self) {
        if self.has_terminal {
            // With SIGTTOU blocked, a process in the background may do this.
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
    }
}

/// The exit code that a shell gives for `status`.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_RUNNABLE)
}

/// Becomes the command. Returns an exit code if that fails. `args` follow [`HIDDEN`].
pub(crate) fn become_command(mut args: impl Iterator<Item = OsString>) -> u8 {
    let (parent, terminal) = (args.next(), args.next());
    let (privileges, cgroup, command) = (args.next(), args.next(), args.next());
    let (Some(parent), Some(terminal), Some(privileges), Some(cgroup), Some(command)) =
        (parent, terminal, privileges, cgroup, command)
    else {
        note(format_args!("{HIDDEN} is for redbolt run alone"));
        return crate::exit::USAGE;
    };
    Descendants::join(&cgroup);
    let Err(error) = replace(&parent, &terminal, &privileges, &command, args);
    let name = shown(command.as_encoded_bytes());
    if error.kind() == ErrorKind::NotFound {
        note(format_args!("{name}: not found"));
        NOT_FOUND
    } else {
        note(format_args!("{name}: {error}"));
        NOT_RUNNABLE
    }
}

fn replace(
    parent: &OsStr,
    terminal: &OsStr,
    privileges: &OsStr,
    command: &OsStr,
    args: impl Iterator<Item = OsString>,
) -> io::Result<Infallible> {
    die_with(parent)?;
    signals::await_one(Signal::SIGCONT)?;
    if terminal == "foreground" {
        // Otherwise the kernel would stop this process, which is still in the background.
        signals::block(Signal::SIGTTOU)?;
        tcsetpgrp(io::stdin(), getpid())?;
    }
    signals::unblock()?;
    if privileges == "own" {
        keep_privileges()?;
    }
    Err(Command::new(command).args(args).exec())
}

/// Asks the kernel to kill this process when its parent dies. Other systems have no such request:
/// there only the watchdog kills the command.
fn die_with(parent: &OsStr) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    rustix::process::set_parent_process_death_signal(Some(KernelSignal::KILL))?;
    let is_parent = getppid().is_some_and(|pid| parent == &*pid.as_raw_nonzero().to_string());
    // The parent may have died before this request.
    if is_parent { Ok(()) } else { Err(io::Error::other("redbolt has ended")) }
}

/// Asks the kernel that no program gives this process another user or more capabilities. It is not
/// needed if `run` may kill any user's processes.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn keep_privileges() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, capabilities, set_no_new_privs};
    if capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::KILL)) {
        return Ok(());
    }
    Ok(set_no_new_privs(true)?)
}

/// Other systems have no such request: there `run` reports which processes it could not kill.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn keep_privileges() -> io::Result<()> {
    Ok(())
}

/// Whether `run` may give the terminal away: stdin is a terminal, this process is in its
/// foreground, and no neighbour in a pipeline would lose it.
fn may_give_terminal() -> bool {
    let stdin = io::stdin();
    stdin.is_terminal()
        && tcgetpgrp(&stdin).is_ok_and(|group| group == getpgrp())
        && !std::fs::metadata("/dev/stdout").is_ok_and(|stdout| stdout.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command ends between the two looks of `Group::has_ended`.
    #[test]
    fn a_command_that_ends_while_it_is_looked_at_has_ended() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        assert_eq!(stopped_by(pid).unwrap(), Stopped::HasEnded);
        child.wait().unwrap();
    }
}

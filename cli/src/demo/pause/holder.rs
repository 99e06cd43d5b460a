//! A holder of the lock: a process of its own, which can be stopped, and what its starter sees of it.
//!
//! The process says on its stdout what it does, one line each, and asks for its write in the same
//! way. It stops itself between its last look at the lock and its write, where no program can notice
//! it.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use clap::Parser as _;
use redbolt::Client;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, waitid};

use crate::args::Cli;
use crate::child::die_with;
use crate::exit::{Failure, SYSTEM, USAGE};
use crate::lock::options;
use crate::output::{ms, note, say};
use crate::{own_binary, settings, signals, sources};

/// The first argument of such a process.
pub(crate) const HIDDEN: &str = "--demo-holder";

/// TTL of a holder that is stopped: its lock is over after that.
pub(super) const TTL: Duration = Duration::from_millis(600);

/// TTL of the other one, which is done long before.
const LONG_TTL: Duration = Duration::from_secs(5);

/// One of the two holders of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The one that is stopped.
    A,
    B,
}

/// Which lock to take, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role {
    pub(super) key: &'static str,
    pub(super) is_fenced: bool,
    /// Whether the process stops before its write.
    pub(super) is_stopped: bool,
}

/// What a holder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It has the lock.
    Locked(Option<u64>),
    /// There is so much time left of it.
    Left(Duration),
    /// Nothing is left of it: the holder does not write.
    Over,
    /// It writes.
    Write,
}

/// A holder, seen from its starter. It does not outlive this.
#[derive(Debug)]
pub(super) struct Holder {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts one; `nodes` go to it in its environment, where others cannot read them.
    pub(super) fn start(role: Role, nodes: Option<&str>) -> Result<Self, Failure> {
        let word = |is_so: bool| if is_so { "yes" } else { "no" };
        let mut command = own_binary::command(HIDDEN)?;
        command.arg(getpid().as_raw_nonzero().to_string());
        command.args([role.key, word(role.is_fenced), word(role.is_stopped)]);
        // The options of this process: they say how to reach the nodes.
        command.args(std::env::args_os().skip(1));
        if let Some(nodes) = nodes {
            command.env(settings::NODES_VARIABLE, nodes);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let out = child.stdout.take().ok_or_else(|| failed("it has no output"))?;
        Ok(Self { child, out: BufReader::new(out) })
    }

    /// Waits for the next thing that it says.
    pub(super) fn listen(&mut self) -> Result<Said, Failure> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        let said = match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["locked"] => Some(Said::Locked(None)),
            ["locked", fence] => fence.parse().ok().map(|fence| Said::Locked(Some(fence))),
            ["left", ms] => ms.parse().ok().map(|ms| Said::Left(Duration::from_millis(ms))),
            ["over"] => Some(Said::Over),
            ["write"] => Some(Said::Write),
            _ => None,
        };
        said.ok_or_else(|| self.why())
    }

    /// Waits until the kernel has stopped it.
    pub(super) fn wait_stopped(&self) -> Result<(), Failure> {
        let how = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()?), how).map_err(std::io::Error::from)?;
        Ok(())
    }

    /// Lets it go on.
    pub(super) fn go_on(&self) -> Result<(), Failure> {
        kill_process(self.pid()?, Signal::CONT).map_err(std::io::Error::from)?;
        Ok(())
    }

    /// Waits until it has released its lock and ended.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        if self.child.wait()?.success() { Ok(()) } else { Err(self.why()) }
    }

    fn pid(&self) -> Result<Pid, Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| failed("its process id is out of range"))
    }

    /// Why it ended before its time: what it says on its stderr.
    fn why(&mut self) -> Failure {
        let _ = self.child.kill();
        let mut text = String::new();
        if let Some(err) = &mut self.child.stderr {
            let _ = err.read_to_string(&mut text);
        }
        let text = text.lines().next().unwrap_or("it ended without a word");
        failed(text.strip_prefix("redbolt: ").unwrap_or(text))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Also a stopped process ends by that; an error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(why: &str) -> Failure {
    Failure::new(SYSTEM, "system", format!("a holder of the demo has failed: {why}"))
}

/// Is a holder, and returns an exit code. `words` follow [`HIDDEN`].
pub(crate) fn become_holder(words: impl Iterator<Item = OsString>) -> u8 {
    match hold(words) {
        Ok(()) => 0,
        Err(failure) => {
            failure.report(false);
            failure.code
        }
    }
}

fn hold(mut words: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let (parent, key) = (words.next(), words.next());
    let (fenced, stopped) = (words.next(), words.next());
    let (Some(parent), Some(key)) = (parent, key) else {
        note(format_args!("{HIDDEN} is for redbolt demo alone"));
        return Err(Failure::code(USAGE));
    };
    die_with(&parent)?;
    signals::unblock()?;
    let mut cli = Cli::try_parse_from(std::iter::once("redbolt".into()).chain(words))
        .map_err(|error| Failure::usage(error.kind().to_string()))?;
    sources::fill(&mut cli.global)?;
    let mut client = Client::connect(settings::config(&cli.global)?)?;
    let is_stopped = stopped.is_some_and(|word| word == "yes");
    let ttl = if is_stopped { TTL } else { LONG_TTL };
    let options = options(ttl, fenced.is_some_and(|word| word == "yes"));
    let lease = client.lock(key.as_encoded_bytes(), options)?;
    let fence = lease.fence().map(|fence| fence.to_string()).unwrap_or_default();
    say(format_args!("locked {fence}"))?;
    let left = lease.remaining();
    if left.is_zero() {
        say("over")?;
        return Ok(());
    }
    say(format_args!("left {}", ms(left)))?;
    if is_stopped {
        kill_process(getpid(), Signal::STOP).map_err(std::io::Error::from)?;
    }
    say("write")?;
    // A lock that is over needs no release.
    let _ = client.unlock(lease);
    Ok(())
}

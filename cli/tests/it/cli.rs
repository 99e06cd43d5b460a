//! The harness of these tests: runs the built `redbolt` and takes its output.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use redbolt_embedded::Nodes;
use redbolt_rig::eventually;
use serde_json::Value;

/// How long a command may take to end.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The longest TTL on servers that have just started. A server tells its age in whole seconds, so each
/// new client waits for the rest of one. The guard of this TTL ends between two seconds: a server that
/// is old enough for one client is old enough for all that come later.
pub(crate) const MAX_TTL: Duration = Duration::from_millis(1_800);
pub(crate) const MAX_TTL_TEXT: &str = "1800ms";

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Ended {
    /// The only object on stdout.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts the exit code, and that an error is one line which names the program.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        if !self.err.is_empty() {
            assert_eq!(self.err.lines().count(), 1, "{self:?}");
            assert!(self.err.starts_with("redbolt: "), "{self:?}");
        }
        self
    }

    /// A number of the object on stdout.
    pub(crate) fn number(&self, field: &str) -> u64 {
        let value = self.json().get(field).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("{field}: {self:?}"))
    }

    /// A string of the object on stdout.
    pub(crate) fn text(&self, field: &str) -> String {
        self.json()
            .get(field)
            .and_then(|value| value.as_str())
            .unwrap_or_else(|| panic!("{field}: {self:?}"))
            .to_owned()
    }
}

/// A command without settings of this process's environment or this user's file.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redbolt"));
    command.args(args).stdin(Stdio::null());
    without_settings(&mut command);
    command
}

/// Takes all settings from the environment of `command`.
pub(crate) fn without_settings(command: &mut Command) {
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.as_encoded_bytes().starts_with(b"REDBOLT_")) {
        command.env_remove(name);
    }
    command.env_remove("HOME").env_remove("XDG_CONFIG_HOME");
}

/// Runs a command that needs no nodes, or names them itself.
pub(crate) fn redbolt(args: &[&str]) -> Ended {
    end(command(args))
}

/// Runs a command on these nodes.
pub(crate) fn on(nodes: &Nodes, args: &[&str]) -> Ended {
    on_urls(&nodes.urls(), args)
}

pub(crate) fn on_urls(urls: &[String], args: &[&str]) -> Ended {
    end(command_on(urls, args))
}

/// A command on these nodes. It gives the nodes long to answer unless `args` set a time: on a
/// loaded machine one of them may be late.
pub(crate) fn command_on(urls: &[String], args: &[&str]) -> Command {
    let patience: &[&str] =
        if args.contains(&"--node-timeout") { &[] } else { &["--node-timeout", "2s"] };
    let mut command = command(&[patience, args].concat());
    command.env("REDBOLT_NODES", urls.join(","));
    command
}

pub(crate) fn end(mut command: Command) -> Ended {
    let started = redbolt::now();
    let output = command.output().expect("redbolt starts");
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("stdout is text"),
        err: String::from_utf8(output.stderr).expect("stderr is text"),
        took: redbolt::now().saturating_since(started),
    }
}

/// Takes a lock that lasts, and returns its token.
pub(crate) fn take(nodes: &Nodes, key: &str) -> String {
    on(nodes, &["lock", key, "--ttl", "30s", "--json"]).expect(0).text("token")
}

/// A command that goes on meanwhile. It is killed if the test ends first.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

/// A command that reports that it runs, and stays until it is ended.
pub(crate) const STAY: [&str; 4] = ["--", "sh", "-c", "echo held; exec sleep 600"];

impl Running {
    pub(crate) fn start(urls: &[String], args: &[&str]) -> Self {
        Self::of(command_on(urls, args))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("redbolt starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let err = BufReader::new(child.stderr.take().expect("a pipe"));
        Self { child, out, err }
    }

    /// `run` with these arguments and a command that stays, once it holds its lock.
    pub(crate) fn holding(urls: &[String], args: &[&str]) -> Self {
        let mut running = Self::start(urls, &[&["run"], args, &STAY].concat());
        assert_eq!(running.line(), "held");
        running
    }

    /// The next line of stdout, for which the test waits.
    pub(crate) fn line(&mut self) -> String {
        self.try_line().unwrap_or_else(|| {
            let mut err = String::new();
            self.err.read_to_string(&mut err).expect("stderr is text");
            panic!("it has ended, and said no more: {err}")
        })
    }

    /// The next line of stdout; none if the command has ended without one.
    pub(crate) fn try_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let len = self.out.read_line(&mut line).expect("stdout is text");
        (len > 0).then(|| line.trim_end().to_owned())
    }

    /// The next line of stderr that contains `part`, as [`line`](Self::line).
    pub(crate) fn err_line(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            let len = self.err.read_line(&mut line).expect("stderr is text");
            assert!(len > 0, "it has ended, and said nothing of {part}");
            if line.contains(part) {
                return line.trim_end().to_owned();
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(name, &self.pid().to_string());
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        let started = redbolt::now();
        let has_ended = || self.child.try_wait().expect("a child").is_some();
        assert!(eventually(END_LIMIT, has_ended), "the command goes on");
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).expect("stdout is text");
        self.err.read_to_string(&mut err).expect("stderr is text");
        let status = self.child.wait().expect("a child");
        let took = redbolt::now().saturating_since(started);
        Ended { code: status.code(), out, err, took }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that the command has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process, or with a minus in front to a group. False if there is none.
pub(crate) fn signal(name: &str, target: &str) -> bool {
    let mut kill = Command::new("kill");
    kill.args(["-s", name, "--", target]).stderr(Stdio::null());
    kill.status().expect("kill starts").success()
}

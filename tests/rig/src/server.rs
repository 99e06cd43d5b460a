//! [`RealServer`]: one real server process, which ends when the value is dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::kind::Kind;
use crate::ports::free_port;
use crate::wait::{PATIENCE, eventually};
use crate::wire::Wire;

/// A real server on a port of 127.0.0.1, without persistence unless the test asks for it.
#[derive(Debug)]
pub struct RealServer {
    kind: Kind,
    child: Child,
    port: u16,
    dir: TempDir,
    args: Vec<String>,
}

/// A directory in memory, where the machine has such a place. On a disk under load a server waits for
/// seconds until its file is written, and answers nobody.
pub fn directory() -> TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).expect("a directory for the server")
}

impl RealServer {
    /// Starts a server of an installed kind, and waits until it answers. `args` are arguments of
    /// its command line (`--requirepass`, ..), which win over the harness's own.
    ///
    /// If they begin with a file `.conf`, the harness adds only the address. Then `%i` stands for
    /// the port, and `%S/redbolt-node/%i` for the directory.
    pub fn start(kind: Kind, args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        // Another process may take the port after `free_port` returns and before the server binds
        // it.
        for _ in 0..5 {
            let dir = directory();
            let port = free_port();
            let child = spawn(kind, port, dir.path(), &args);
            let mut server = Self { kind, child, port, dir, args: args.clone() };
            if server.answers(|reply| !reply.starts_with(b"-LOADING")) {
                return server;
            }
        }
        panic!("{} does not start", kind.name())
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory in which the server keeps its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `redis://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The socket file on which the server listens as well.
    pub fn socket(&self) -> PathBuf {
        socket(self.dir.path())
    }

    /// `unix://PATH` of [`RealServer::socket`].
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Stops the process (SIGSTOP) and returns once it stands still.
    pub fn freeze(&self) {
        self.signal("-STOP");
        for _ in 0..ATTEMPTS {
            if is_stopped(self.pid()) {
                return;
            }
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
        panic!("{} does not stop", self.kind.name());
    }

    /// Lets a frozen process go on.
    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Kills the process (SIGKILL) and returns once it is gone.
    pub fn kill9(&mut self) {
        // An error means that the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts a new process on the same port and directory, with the same arguments, and waits
    /// until it answers.
    pub fn restart(&mut self) {
        self.restart_until(&[], |reply| !reply.starts_with(b"-LOADING"));
    }

    /// Like [`RealServer::restart`], with more arguments; waits until the answer to PING is as
    /// wanted.
    pub fn restart_until(&mut self, more: &[&str], wanted: impl Fn(&[u8]) -> bool) {
        self.kill9();
        let mut args = self.args.clone();
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        self.child = spawn(self.kind, self.port, self.dir.path(), &args);
        assert!(self.answers(wanted), "{} does not come back", self.kind.name());
    }

    /// Makes this server a replica of `master`, and returns once it has the master's keys.
    pub fn replicate(&self, master: &Self) {
        self.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        let has_synced = || {
            let info = self.command(&["INFO", "replication"]);
            String::from_utf8_lossy(&info).contains("master_link_status:up")
        };
        assert!(eventually(PATIENCE, has_synced), "{} does not follow", self.kind.name());
    }

    /// Ends the connections of all clients, also those with a subscription.
    pub fn hang_up(&self) {
        for kind in ["normal", "pubsub"] {
            self.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        }
    }

    /// A new connection.
    pub fn connect(&self) -> Wire {
        Wire::connect(self.port).expect("the server accepts")
    }

    /// Sends one command on a connection of its own, and returns the raw reply.
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Vec<u8> {
        self.connect().ask(args).expect("the server answers")
    }

    /// The string at a key.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let reply = self.command(&["GET", key]);
        let at = reply.windows(2).position(|pair| pair == b"\r\n")?;
        let body = reply.get(at + 2..)?.strip_suffix(b"\r\n")?;
        Some(body.to_vec())
    }

    /// Milliseconds until a key ends; -1 if it has no end, -2 if there is no key.
    pub fn pttl(&self, key: &str) -> i64 {
        let reply = self.command(&["PTTL", key]);
        let digits = std::str::from_utf8(&reply).ok().and_then(|text| text.strip_prefix(':'));
        let value = digits.and_then(|digits| digits.trim_end().parse().ok());
        value.unwrap_or_else(|| panic!("PTTL answered {}", reply.escape_ascii()))
    }

    pub fn exists(&self, key: &str) -> bool {
        self.command(&["EXISTS", key]) == b":1\r\n"
    }

    /// How often the server ran a command since its start or the last `CONFIG RESETSTAT`.
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]);
        let stats = String::from_utf8(stats).expect("INFO is text");
        let start = format!("cmdstat_{command}:calls=");
        let rest = stats.lines().find_map(|line| line.strip_prefix(&start));
        let digits = rest.and_then(|rest| rest.split(',').next());
        digits.map_or(0, |digits| digits.parse().expect("a count"))
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(signal).arg(self.pid().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "kill {signal}");
    }

    /// Whether the process gives a wanted answer before it ends or the attempts run out.
    fn answers(&mut self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        for _ in 0..ATTEMPTS {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return false;
            }
            // A server opens its socket file once it has the port. Without the file, another server
            // answers on the port, and this server is about to give up.
            let has_port = socket(self.dir.path()).exists();
            let reply = Wire::connect(self.port).and_then(|mut wire| wire.ask(&["PING"]));
            if has_port && reply.is_ok_and(|reply| wanted(&reply)) {
                return true;
            }
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
        false
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        self.kill9();
    }
}

fn spawn(kind: Kind, port: u16, dir: &Path, args: &[String]) -> Child {
    let log = File::create(dir.join("log")).expect("a log file");
    let mut command = Command::new(kind.binary());
    let is_deployed = args.first().is_some_and(|first| first.ends_with(".conf"));
    if is_deployed {
        // Arguments as a unit file writes them: the test sets everything but the address.
        let place = dir.display().to_string();
        let filled = |arg: &String| {
            arg.replace("%S/redbolt-node/%i", &place).replace("%i", &port.to_string())
        };
        command.args(args.iter().map(filled)).args(["--bind", "127.0.0.1"]);
    } else {
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
        command.args(["--save", "", "--appendonly", "no"]).arg("--dir").arg(dir).args(args);
    }
    command.arg("--unixsocket").arg(socket(dir));
    command.stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{}: {error}", kind.name()))
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

const ATTEMPTS: usize = 1_000;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// Whether a process stands still after SIGSTOP. Where that cannot be seen, the function trusts the
/// signal.
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |text| text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
}

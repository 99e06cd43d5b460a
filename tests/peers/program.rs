//! [`Program`]: the program of another client, which `benches/peers/build` puts into
//! `target/peers/bin`, and its line protocol (`benches/peers/README.md`).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use redbolt_rig::Cluster;

/// A client of the nodes of one cluster, in a process of its own.
pub(super) struct Program {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    answers: BufReader<ChildStdout>,
}

fn binary(name: &str) -> PathBuf {
    let root = std::env::var_os("REDBOLT_PEERS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/peers/bin"),
        PathBuf::from,
    );
    root.join(name)
}

/// Whether the client was built; if not, the running test is reported as skipped. Its toolchain may
/// be missing anywhere, so that is no failure; `tests/run peers` reports a failed build.
pub(super) fn is_built(name: &str) -> bool {
    let is_built = binary(name).exists();
    if !is_built {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        // Written past libtest, which would capture it for a passing test.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: benches/peers/build has no {name}");
    }
    is_built
}

impl Program {
    pub(super) fn start(name: &'static str, cluster: &Cluster) -> Self {
        let nodes: Vec<String> =
            cluster.nodes().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let mut child = Command::new(binary(name))
            .args([&nodes.join(","), "default"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let input = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut program = Self { name, child, input, answers };
        let hello = program.answer();
        assert!(hello.get("versions").is_some(), "{name}: {hello}");
        program
    }

    pub(super) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.name));
        self.input.flush().unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    pub(super) fn answer(&mut self) -> Value {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        let answer = read.ok().and_then(|_| serde_json::from_str::<Value>(&line).ok());
        let answer = answer.unwrap_or_else(|| panic!("{} answered `{line}`", self.name));
        assert!(answer.get("error").is_none(), "{}: {answer}", self.name);
        answer
    }

    pub(super) fn ask(&mut self, line: &str) -> Value {
        self.say(line);
        self.answer()
    }

    /// Makes one attempt. Returns whether it won.
    pub(super) fn try_lock(&mut self, key: &str, ttl_ms: u32) -> bool {
        let answer = self.ask(&format!("try {key} {ttl_ms}"));
        answer
            .get("won")
            .and_then(Value::as_bool)
            .unwrap_or_else(|| panic!("{}: {answer}", self.name))
    }

    /// Waits until the program has the lock.
    pub(super) fn lock(&mut self, key: &str, ttl_ms: u32) {
        self.ask(&format!("lock {key} {ttl_ms}"));
    }

    pub(super) fn unlock(&mut self, key: &str) {
        self.ask(&format!("unlock {key}"));
    }

    /// Whether the client could extend its lock; `None` if it has no such call.
    pub(super) fn extend(&mut self, key: &str, ttl_ms: u32) -> Option<bool> {
        self.ask(&format!("extend {key} {ttl_ms}")).get("held")?.as_bool()
    }

    /// The name that this client gives to `key` on the nodes.
    pub(super) fn on_nodes(&self, key: &str) -> String {
        // pottery puts all keys below a prefix that no setting changes.
        if self.name == "pottery" { format!("redlock:{key}") } else { key.to_owned() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that the program has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

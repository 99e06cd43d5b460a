//! [`PostgresServer`]: one PostgreSQL process in its own directory, which ends when the value is
//! dropped.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use redbolt_rig::{PATIENCE, eventually, skip};
use tempfile::TempDir;

/// The user `nobody`. PostgreSQL refuses to run as root, so tests of root run it as this user.
const NOBODY: u32 = 65_534;

/// A server that listens on a socket file in its directory, and on no port.
#[derive(Debug)]
pub(crate) struct PostgresServer {
    child: Child,
    dir: TempDir,
}

impl PostgresServer {
    /// Starts a server. Returns `None` where it is not installed, and reports the running test as
    /// skipped.
    pub(crate) fn start_or_skip() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory for the server");
        let owner = fs::metadata(dir.path()).expect("it is there").uid();
        let user = (owner == 0).then_some(NOBODY);
        if user.is_some() {
            chown(dir.path(), user, user).expect("root gives its directory away");
        }
        if let Err(error) = as_user("initdb", user).arg("--version").output() {
            let is_closed = error.kind() == ErrorKind::PermissionDenied;
            let closed = "postgres-15 is in a folder that is closed to the user nobody";
            let why = if is_closed { closed } else { "postgres-15 is not installed" };
            skip(why, "tests/postgres.sh target/servers installs it");
            return None;
        }
        let data = dir.path().join("data");
        let mut initdb = as_user("initdb", user);
        initdb.args(["--username=test", "--auth=trust", "--locale=C", "--encoding=UTF8"]);
        let made = initdb.args(["--no-sync", "-D"]).arg(&data).output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));

        let log = File::create(dir.path().join("log")).expect("a log file");
        let mut postgres = as_user("postgres", user);
        postgres.arg("-D").arg(&data).arg("-k").arg(dir.path());
        // A statement that hangs ends by itself, and its test fails.
        let limit = format!("statement_timeout={}ms", PATIENCE.as_millis());
        for setting in ["listen_addresses=", "fsync=off", "jit=off", limit.as_str()] {
            postgres.args(["-c", setting]);
        }
        postgres.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = postgres.spawn().expect("postgres runs");
        let server = Self { child, dir };
        let is_up = eventually(PATIENCE, || {
            let mut psql = server.psql();
            psql.args(["-c", "SELECT 1"])
                .stdin(Stdio::null())
                .output()
                .is_ok_and(|output| output.status.success())
        });
        let log = || fs::read_to_string(server.dir.path().join("log")).unwrap_or_default();
        assert!(is_up, "postgres does not start: {}", log());
        Some(server)
    }

    /// The client of the same packages, for a connection to this server.
    pub(crate) fn psql(&self) -> Command {
        let mut psql = Command::new(program("psql"));
        // -X: no file of the user's own; -A, -t, -q: bare values, a row on each line.
        psql.args(["-X", "-A", "-t", "-q", "-U", "test", "-d", "postgres", "-h"])
            .arg(self.dir.path());
        psql
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // On SIGQUIT the server ends its own processes first and saves nothing.
        let _ = Command::new("kill").args(["-QUIT", &self.child.id().to_string()]).status();
        if !eventually(PATIENCE, || self.child.try_wait().is_ok_and(|status| status.is_some())) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn as_user(name: &str, user: Option<u32>) -> Command {
    let mut command = Command::new(program(name));
    // That user may have no access to the test's own directory.
    command.current_dir(Path::new("/"));
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command
}

fn program(name: &str) -> PathBuf {
    let root = std::env::var_os("REDBOLT_SERVERS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/servers"),
        PathBuf::from,
    );
    root.join("bin").join(format!("{name}-15"))
}

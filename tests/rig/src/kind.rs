//! [`Kind`]: the real servers, where they are, and what becomes of a test without one.

use std::io::Write as _;
use std::path::PathBuf;

/// One of the real servers that `tests/servers.sh` lays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis70,
    Redis80,
    Redis86,
    Valkey81,
    Valkey91,
}

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Redis70, Self::Redis80, Self::Redis86, Self::Valkey81, Self::Valkey91];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis70 => "redis-7.0",
            Self::Redis80 => "redis-8.0",
            Self::Redis86 => "redis-8.6",
            Self::Valkey81 => "valkey-8.1",
            Self::Valkey91 => "valkey-9.1",
        }
    }

    /// Where its binary is, or would be.
    pub fn binary(self) -> PathBuf {
        program(self.name())
    }

    fn is_installed(self) -> bool {
        self.binary().exists()
    }
}

/// Where a program that the tests install is, or would be.
fn program(name: &str) -> PathBuf {
    let root = std::env::var_os("REDBOLT_SERVERS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/servers"),
        PathBuf::from,
    );
    root.join("bin").join(name)
}

/// A program that `script` installs; where it is not there the running test is reported as skipped.
pub fn program_or_skip(name: &str, script: &str) -> Option<PathBuf> {
    let program = program(name);
    if program.exists() {
        return Some(program);
    }
    skip(&format!("{name} is not installed"), &format!("{script} target/servers"));
    None
}

/// The kinds that are installed; the others are reported as skipped for the running test.
pub fn available_kinds() -> Vec<Kind> {
    Kind::ALL.into_iter().filter_map(kind_or_skip).collect()
}

/// Runs a test that mostly waits on all kinds that are installed, side by side.
pub fn on_each_kind(test: impl Fn(Kind) + Sync) {
    let kinds = available_kinds();
    let test = &test;
    std::thread::scope(|scope| {
        for kind in kinds {
            scope.spawn(move || test(kind));
        }
    });
}

/// `kind` if it is installed; if not, the running test is reported as skipped for it.
pub fn kind_or_skip(kind: Kind) -> Option<Kind> {
    if kind.is_installed() {
        return Some(kind);
    }
    skip(
        &format!("{} is not installed", kind.name()),
        "tests/servers.sh target/servers installs it",
    );
    None
}

/// Reports the running test as skipped for want of something; in CI it fails.
///
/// libtest has no word for a skipped test: `tests/run` counts these lines. They go to the stream
/// itself, past libtest, which would keep what a passing test prints to itself.
pub fn skip(why: &str, remedy: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("SKIPPED {test}: {why}");
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!in_ci, "{line} ({remedy})");
    // Nobody to read it is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}

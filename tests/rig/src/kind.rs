//! [`Kind`]: the real servers, their places, and how a test ends whose server is missing.

use std::io::Write as _;
use std::path::PathBuf;

/// One of the real servers that `tests/servers.sh` installs.
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

    /// The path of its binary, installed or not.
    pub fn binary(self) -> PathBuf {
        program(self.name())
    }

    fn is_installed(self) -> bool {
        self.binary().exists()
    }
}

/// The path of a program that the tests install, installed or not.
fn program(name: &str) -> PathBuf {
    let root = std::env::var_os("REDBOLT_SERVERS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/servers"),
        PathBuf::from,
    );
    root.join("bin").join(name)
}

/// A program that `script` installs; if it is missing, the running test is reported as skipped.
pub fn program_or_skip(name: &str, script: &str) -> Option<PathBuf> {
    let program = program(name);
    if program.exists() {
        return Some(program);
    }
    skip(&format!("{name} is not installed"), &format!("{script} target/servers"));
    None
}

/// The kinds that are installed; the running test is reported as skipped for the others.
pub fn available_kinds() -> Vec<Kind> {
    Kind::ALL.into_iter().filter_map(kind_or_skip).collect()
}

/// Runs a test that mostly waits, side by side on all installed kinds.
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

/// Reports the running test as skipped because something is missing; in CI the test fails.
///
/// libtest cannot report a skipped test: `tests/run` counts these lines. They go to standard error
/// itself, past libtest, which would capture the output of a passing test.
pub fn skip(why: &str, remedy: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("SKIPPED {test}: {why}");
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!in_ci, "{line} ({remedy})");
    // A closed standard error is no reason for the test to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}

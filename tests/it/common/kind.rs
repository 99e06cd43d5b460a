//! [`Kind`]: the real servers, where they are, and what becomes of a test without one.

use std::io::Write as _;
use std::path::PathBuf;

use redbolt_embedded::Flavor;

/// One of the real servers that `tests/servers.sh` lays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis70,
    Redis80,
    Redis86,
    Valkey81,
    Valkey91,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Redis70, Self::Redis80, Self::Redis86, Self::Valkey81, Self::Valkey91];

    /// The embedded node's like of it.
    pub(crate) fn flavor(self) -> Flavor {
        match self {
            Self::Redis70 => Flavor::Redis70,
            Self::Redis80 => Flavor::Redis80,
            Self::Redis86 => Flavor::Redis86,
            Self::Valkey81 => Flavor::Valkey81,
            Self::Valkey91 => Flavor::Valkey91,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.flavor().name()
    }

    /// Where its binary is, or would be.
    pub(crate) fn binary(self) -> PathBuf {
        let root = std::env::var_os("REDBOLT_SERVERS").map_or_else(
            || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/servers"),
            PathBuf::from,
        );
        root.join("bin").join(self.name())
    }

    fn is_installed(self) -> bool {
        self.binary().exists()
    }
}

/// The kinds that are installed; the others are reported as skipped for the running test.
pub(crate) fn available_kinds() -> Vec<Kind> {
    Kind::ALL.into_iter().filter_map(kind_or_skip).collect()
}

/// `kind` if it is installed; if not, the running test is reported as skipped for it.
pub(crate) fn kind_or_skip(kind: Kind) -> Option<Kind> {
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
pub(crate) fn skip(why: &str, remedy: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("SKIPPED {test}: {why}");
    let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!in_ci, "{line} ({remedy})");
    // Nobody to read it is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}

//! [`own_test`]: a test as a process of its own.

use std::process::Command;

/// A command that runs this test binary for the one test `name`, ignored or not.
///
/// # Panics
///
/// If the binary has no such test: it would run none, and end well.
#[track_caller]
pub fn own_test(name: &str) -> Command {
    let binary = std::env::current_exe().expect("a test has a binary");
    let command = || {
        let mut command = Command::new(&binary);
        command.args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"]);
        command
    };
    let listed = command().arg("--list").output().expect("the binary starts").stdout;
    let listed = String::from_utf8_lossy(&listed);
    assert!(listed.contains(&format!("{name}: test")), "this binary has no test {name}: {listed}");
    command()
}

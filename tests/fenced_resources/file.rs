//! The guide's lines for a file, which a shell runs.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::guide::statement;

/// The guide's code for a write that was refused.
const REFUSED: i32 = 3;

fn write(dir: &Path, fence: u64, content: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", statement("file-write")]).env("dir", dir).env("fence", fence.to_string());
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().expect("a shell runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(content.as_bytes()).expect("the shell reads");
    drop(stdin);
    child.wait_with_output().expect("the shell ends")
}

fn read(dir: &Path) -> String {
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", statement("file-read")]).env("dir", dir).output();
    let output = output.expect("a shell runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn is_written(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn readers_never_see_what_a_stale_writer_wrote_to_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    is_written(&write(dir, 9, "nine"));
    is_written(&write(dir, 9, "nine again"));
    assert_eq!(read(dir), "nine again");
    is_written(&write(dir, 10, "ten"));
    let refused = write(dir, 9, "stale");
    assert_eq!(refused.status.code(), Some(REFUSED));
    let why = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(why, "refused: state.0000000000000010 is there\n");
    assert_eq!(read(dir), "ten");
    is_written(&write(dir, 10, "ten again"));
    assert_eq!(read(dir), "ten again");
}

#[test]
fn names_of_files_are_in_the_order_of_their_fences_up_to_the_highest() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    for fence in [1, 99, 100, 999_999_999_999_999, 1_790_000_000_123_456, (1 << 53) - 2] {
        is_written(&write(dir, fence, &fence.to_string()));
        assert_eq!(read(dir), fence.to_string());
    }
    for fence in [98, 101, (1 << 53) - 3] {
        assert_eq!(write(dir, fence, "stale").status.code(), Some(REFUSED), "{fence}");
        assert_eq!(read(dir), ((1_u64 << 53) - 2).to_string());
    }
}

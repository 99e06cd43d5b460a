//! A command on its own terminal.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A command, and the end of its terminal where a person would sit.
pub(super) struct Terminal {
    child: Child,
    person: File,
    text: String,
}

impl Terminal {
    pub(super) fn start(mut command: Command) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&person).expect("a terminal");
        unlockpt(&person).expect("a terminal");
        let name = ptsname(&person, Vec::new()).expect("its name");
        let path = OsStr::from_bytes(name.as_bytes());
        let end = || File::options().read(true).write(true).open(path).expect("a terminal");
        command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("redbolt starts");
        // Only the command keeps its end open: the person's end closes when the command has ended.
        drop(command);
        Self { child, person: person.into(), text: String::new() }
    }

    pub(super) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.person, size).expect("a terminal");
    }

    /// Reads until `word` was shown.
    pub(super) fn read_until(&mut self, word: &str) {
        while !self.text.contains(word) {
            assert!(self.read(), "it has ended without {word}: {}", self.text);
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Forgets the output so far.
    pub(super) fn forget(&mut self) {
        self.text.clear();
    }

    /// False when no more output will come.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // A terminal without a program gives an error instead of an end.
        let len = self.person.read(&mut bytes).unwrap_or(0);
        self.text.push_str(&String::from_utf8_lossy(bytes.get(..len).unwrap_or_default()));
        len > 0
    }

    pub(super) fn write(&mut self, text: &str) {
        self.person.write_all(text.as_bytes()).expect("an open terminal");
    }

    /// The exit code, and the whole output.
    pub(super) fn end(mut self) -> (Option<i32>, String) {
        while self.read() {}
        let status = self.child.wait().expect("a child");
        (status.code(), std::mem::take(&mut self.text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that the command has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

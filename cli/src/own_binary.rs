//! This binary, started once more for work that needs its own process.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::process::Pid;

/// The command that starts this binary with `hidden` as its first argument, in its own process
/// group.
pub(crate) fn command(hidden: &str) -> io::Result<Command> {
    let mut command = Command::new(path()?);
    command.arg(hidden).process_group(0);
    Ok(command)
}

/// The number of the process that was started.
pub(crate) fn pid(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the process id is out of range"))
}

/// The path of this binary, even if its file was replaced meanwhile.
fn path() -> io::Result<OsString> {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().map(OsString::from)
}

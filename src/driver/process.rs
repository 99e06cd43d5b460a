//! The operating system's description of this process, for the name of its clients at the nodes.

use std::path::Path;

use crate::client_name::Process;

/// Host, process id and program of this process.
pub(super) fn this_process() -> Process {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default();
    Process {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: Some(std::process::id()),
        program: program.to_string_lossy().into_owned(),
    }
}

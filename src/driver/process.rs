//! Facts from the operating system: the description of this process, and randomness.

use std::io;
use std::path::Path;

use rand::TryRng;
use rand::rngs::SysRng;

use crate::client_name::Process;

/// Host, id and program of this process: its clients give them to the nodes in their names.
pub(super) fn this_process() -> Process {
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default();
    Process {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: Some(std::process::id()),
        program: program.to_string_lossy().into_owned(),
    }
}

/// Randomness from the operating system.
pub(super) fn fresh_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    SysRng.try_fill_bytes(&mut seed).map_err(io::Error::other)?;
    Ok(seed)
}

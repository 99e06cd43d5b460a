//! [`free_port`]: ports for servers, each given once.

use std::fs::File;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rand::TryRng as _;
use rand::rngs::SysRng;

/// The ports that this process gives: a slice at a time, which it locks. Tests of other processes
/// run beside it, and one of them could take the port of a server that was killed.
struct Ports {
    slice: Range<u16>,
    locks: Vec<File>,
}

/// A free port below the range from which the system takes ports for outgoing connections. In that
/// range a connection could take a killed server's port, and the server could not come back. For
/// that reason no port is given twice either.
pub fn free_port() -> u16 {
    static PORTS: Mutex<Ports> = Mutex::new(Ports { slice: 0..0, locks: Vec::new() });
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(port) = ports.slice.next() else {
            ports.lock_another_slice();
            continue;
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Ports {
    fn lock_another_slice(&mut self) {
        let random = SysRng.try_next_u32().expect("the system's random numbers");
        for nth in 0..SLICES {
            let slice = (random % SLICES + nth) % SLICES;
            let first = PORTS_FIRST + u16::try_from(slice).unwrap_or(0) * SLICE_LEN;
            let path = std::env::temp_dir().join(format!("redbolt-ports-{first}"));
            let file = File::options().create(true).append(true).open(path);
            if let Ok(file) = file
                && file.try_lock().is_ok()
            {
                self.locks.push(file);
                self.slice = first..first + SLICE_LEN;
                return;
            }
        }
        panic!("no free port");
    }
}

const PORTS_FIRST: u16 = 10_000;
const SLICE_LEN: u16 = 100;
const SLICES: u32 = 80;

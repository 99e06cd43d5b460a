//! The processes of this machine, as the kernel lists them in `/proc`.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::output::shown;

/// A process number, and when the process started, in ticks of the kernel: the kernel reuses
/// numbers.
pub(crate) type Identity = (Pid, u64);

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) identity: Identity,
    pub(crate) parent: Option<Pid>,
    /// The file that it runs, or the name that it has chosen.
    pub(crate) name: String,
    pub(crate) has_ended: bool,
}

/// All processes; none without a `/proc`, or with that of another namespace, which has other
/// numbers.
pub(crate) fn all() -> Vec<Process> {
    let own = getpid().as_raw_nonzero().to_string();
    let is_ours = fs::read_link("/proc/self").is_ok_and(|pid| pid.as_os_str() == &*own);
    let entries = is_ours.then(|| fs::read_dir("/proc")).into_iter().flatten().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Process::read(Pid::from_raw(pid)?)).collect()
}

impl Process {
    pub(crate) fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(pid, &stat)
    }

    /// `77 (sh) S 76 77 ..`: a name may hold brackets and blanks.
    fn parse(pid: Pid, stat: &[u8]) -> Option<Self> {
        let from = stat.iter().position(|byte| *byte == b'(')?;
        let to = stat.iter().rposition(|byte| *byte == b')')?;
        let name = shown(stat.get(from + 1..to)?);
        let rest = std::str::from_utf8(stat.get(to + 1..)?).ok()?;
        let mut words = rest.split_whitespace();
        let (state, parent) = (words.next()?, words.next()?.parse().ok()?);
        let (threads, start) = (words.nth(15)?, words.nth(1)?.parse().ok()?);
        // The first thread may end before the others.
        let has_ended = state == "X" || state == "Z" && threads == "1";
        Some(Self { identity: (pid, start), parent: Pid::from_raw(parent), name, has_ended })
    }

    /// Kills the process. The handle can be read once it has ended.
    pub(crate) fn kill(&self) -> Result<OwnedFd, Errno> {
        let (pid, _) = self.identity;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        if Self::read(pid).is_none_or(|process| process.identity != self.identity) {
            return Err(Errno::SRCH);
        }
        pidfd_send_signal(&handle, Signal::KILL)?;
        Ok(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_calls_itself() {
        let pid = Pid::from_raw(77).unwrap();
        let rest = "76 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0";
        for (name, state, threads, has_ended) in [
            ("sh", "S", 1, false),
            ("a) Z 1 (b", "R", 1, false),
            ("sh", "Z", 1, true),
            ("first thread ended", "Z", 2, false),
        ] {
            let stat = format!("77 ({name}) {state} {rest} {threads} 0 4711 9 9\n");
            let process = Process::parse(pid, stat.as_bytes()).unwrap();
            assert_eq!((process.identity, process.parent), ((pid, 4711), Pid::from_raw(76)));
            assert_eq!((process.name.as_str(), process.has_ended), (name, has_ended));
        }
        assert!(Process::parse(pid, b"77 (sh) S 76").is_none());
    }
}

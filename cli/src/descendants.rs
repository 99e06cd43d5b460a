//! [`Descendants`]: the processes that a command started, even those that have left the command's
//! session or process group.
//!
//! `run` is the subreaper of the command: the kernel makes it the parent of a process whose own
//! parent ends. So every process that the command starts stays below `run`. Where `run` may make a
//! cgroup, the kernel also kills processes that `run` may not see or kill.
//!
//! # Invariants
//!
//! - `run` does not kill a process that reuses the number of a descendant: their start times
//!   differ.
//! - `run` kills no child that it had before the command, and no process that still stands below
//!   such a child.

#[cfg(not(any(target_os = "linux", target_os = "android")))]
use std::ffi::{OsStr, OsString};
use std::io;

use rustix::process::Pid;

#[derive(Debug)]
pub(crate) struct Descendants {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    cgroup: Option<crate::cgroup::Cgroup>,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    root: Option<crate::processes::Identity>,
    /// The descendants that the last look found.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    members: std::collections::HashSet<crate::processes::Identity>,
    /// Children of the root that do not belong to the command.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    others: Vec<crate::processes::Identity>,
}

/// A process that goes on after KILL.
#[derive(Debug)]
pub(crate) struct Survivor {
    pub(crate) pid: Pid,
    pub(crate) name: String,
    pub(crate) why: io::ErrorKind,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::collections::HashSet;
    use std::ffi::{OsStr, OsString};
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    use redbolt::{Instant, now};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;
    use rustix::process::{Pid, WaitOptions, getpid, getppid, set_child_subreaper, waitpid};

    use super::{Descendants, Survivor};
    use crate::cgroup::Cgroup;
    use crate::processes::{self, Process};

    /// Looks for a child that has ended, and leaves it as it is.
    const ENDED: WaitPidFlag =
        WaitPidFlag::WEXITED.union(WaitPidFlag::WNOHANG).union(WaitPidFlag::WNOWAIT);

    /// How long killed processes may take to end.
    const ENDING: Duration = Duration::from_secs(5);

    /// How long to wait for them until the next look.
    const ROUND: Duration = Duration::from_millis(50);

    impl Descendants {
        /// The descendants that this process gets from now on. It becomes their subreaper.
        pub(crate) fn adopt() -> io::Result<Self> {
            let own = getpid();
            set_child_subreaper(Some(own))?;
            let root = Process::read(own).map(|own| own.identity);
            let mut others = Vec::new();
            // Usually this process has no child yet, and need not look through all processes.
            if waitid(Id::All, ENDED) != Err(nix::Error::ECHILD) {
                let children = processes::all().into_iter().filter(|it| it.parent == Some(own));
                others.extend(children.map(|child| child.identity));
            }
            Ok(Self { cgroup: Cgroup::make(), root, members: HashSet::new(), others })
        }

        /// The descendants of this process's parent; none if the parent has ended. `cgroup` is the
        /// parent's [`cgroup`](Self::cgroup).
        pub(crate) fn of_parent(
            parent: Pid,
            cgroup: &OsStr,
            others: impl Iterator<Item = Pid>,
        ) -> Self {
            let root = Process::read(parent).map(|root| root.identity);
            // The number may belong to another process by now.
            let root = root.filter(|_| getppid() == Some(parent));
            let others = others.filter_map(Process::read).map(|it| it.identity).collect();
            Self { cgroup: Cgroup::named(cgroup), root, members: HashSet::new(), others }
        }

        /// This child of the root does not belong to the command.
        pub(crate) fn spare(&mut self, other: Pid) {
            self.others.extend(Process::read(other).map(|it| it.identity));
        }

        /// The children of the root that do not belong to the command.
        pub(crate) fn spared(&self) -> impl Iterator<Item = Pid> {
            self.others.iter().map(|other| other.0)
        }

        /// Names the cgroup in the arguments of another process.
        pub(crate) fn cgroup(&self) -> OsString {
            Cgroup::name(self.cgroup.as_ref())
        }

        /// Makes this process a member of its parent's [`cgroup`](Self::cgroup), if that can be.
        pub(crate) fn join(cgroup: &OsStr) {
            let _ = Cgroup::named(cgroup).map(|cgroup| cgroup.enter());
        }

        /// Removes the cgroup, unless descendants still run in it.
        pub(crate) fn forget(&self) {
            if let Some(cgroup) = &self.cgroup {
                cgroup.remove();
            }
        }

        /// Remembers the present descendants: a later look finds them even when they have lost
        /// their parent.
        pub(crate) fn remember(&mut self) {
            self.look();
        }

        /// Reaps ended children that this process inherited, or had before the command. Stops at an
        /// ended child for which other code waits.
        pub(crate) fn reap(&self, awaited: [Pid; 2]) {
            while let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) =
                waitid(Id::All, ENDED)
            {
                let pid = Pid::from_raw(pid.as_raw());
                if pid.is_none_or(|pid| awaited.contains(&pid)) {
                    return;
                }
                // The process has ended, so this cannot fail.
                let _ = waitpid(pid, WaitOptions::NOHANG);
            }
        }

        /// Kills the descendants and waits until they have ended. Returns those that go on.
        pub(crate) fn kill(&mut self) -> Vec<Survivor> {
            let end = now() + ENDING;
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill(end);
            }
            let mut is_quiet = false;
            loop {
                let (mut survivors, mut dying) = (Vec::new(), Vec::new());
                for process in self.look() {
                    match process.kill() {
                        Ok(handle) => dying.push((process, handle)),
                        Err(Errno::SRCH) => {}
                        Err(error) => survivors.push(Survivor::new(process, error)),
                    }
                }
                // One look can miss a process that passes from one parent to the next.
                if is_quiet && dying.is_empty() {
                    return survivors;
                }
                is_quiet = dying.is_empty();
                let until = now() + ROUND;
                dying.retain(|(_, handle)| !ends_by(handle, until));
                if end <= now() {
                    let slow = dying.into_iter();
                    survivors.extend(slow.map(|(it, _)| Survivor::new(it, Errno::TIMEDOUT)));
                    return survivors;
                }
            }
        }

        /// The descendants that have not ended.
        fn look(&mut self) -> Vec<Process> {
            let mut rest = processes::all();
            let root = self.root;
            let is_known = |it: &Process, members: &HashSet<_>| {
                Some(it.identity) == root || members.contains(&it.identity)
            };
            let mut found: Vec<Process> =
                rest.extract_if(.., |it| is_known(it, &self.members)).collect();
            rest.retain(|it| !self.others.contains(&it.identity));
            let mut parents: HashSet<Pid> = found.iter().map(|it| it.identity.0).collect();
            loop {
                let is_child = |it: &mut Process| it.parent.is_some_and(|it| parents.contains(&it));
                let children: Vec<Process> = rest.extract_if(.., is_child).collect();
                if children.is_empty() {
                    break;
                }
                parents.extend(children.iter().map(|it| it.identity.0));
                found.extend(children);
            }
            found.retain(|it| !it.has_ended && Some(it.identity) != root);
            self.members = found.iter().map(|it| it.identity).collect();
            found
        }
    }

    impl Survivor {
        fn new(process: Process, why: Errno) -> Self {
            Self { pid: process.identity.0, name: process.name, why: io::Error::from(why).kind() }
        }
    }

    /// Whether a process ends before `until`.
    fn ends_by(process: &OwnedFd, until: Instant) -> bool {
        let left = now().until(until).try_into().ok();
        poll(&mut [PollFd::new(process, PollFlags::IN)], left.as_ref()).is_ok_and(|ended| ended > 0)
    }
}

/// Other systems have no subreaper: there a command is its process group.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Descendants {
    pub(crate) fn adopt() -> io::Result<Self> {
        Ok(Self {})
    }

    pub(crate) fn of_parent(
        _parent: Pid,
        _cgroup: &OsStr,
        _others: impl Iterator<Item = Pid>,
    ) -> Self {
        Self {}
    }

    pub(crate) fn spare(&mut self, _other: Pid) {}

    pub(crate) fn spared(&self) -> impl Iterator<Item = Pid> {
        std::iter::empty()
    }

    pub(crate) fn cgroup(&self) -> OsString {
        OsString::new()
    }

    pub(crate) fn join(_cgroup: &OsStr) {}

    pub(crate) fn forget(&self) {}

    pub(crate) fn remember(&mut self) {}

    pub(crate) fn reap(&self, _awaited: [Pid; 2]) {}

    pub(crate) fn kill(&mut self) -> Vec<Survivor> {
        Vec::new()
    }
}

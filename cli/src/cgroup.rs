//! [`Cgroup`]: a control group of the command alone, where this user may make one.
//!
//! The kernel kills all members of such a group at once, whatever user, session or parent they
//! have. It needs Linux 5.14, and a cgroup of version 2 in which this user may make cgroups. Where
//! there is none, [`Descendants`](crate::descendants::Descendants) does what it can.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::{fs, time::Duration};

use redbolt::{Instant, now};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpid;

/// `kill` waits at most this long for the kernel's event, and then looks again.
const ROUND: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// A new cgroup below that of this process.
    pub(crate) fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let name = format!("redbolt-{}", getpid().as_raw_nonzero());
        let folder = Path::new(mount_point(&mounts)?).join(own).join(name);
        // An earlier process with this number may have left members, and so its cgroup.
        let _ = fs::remove_dir(&folder);
        fs::create_dir(&folder).ok()?;
        let made = Self { folder };
        if made.file("cgroup.kill").exists() {
            return Some(made);
        }
        made.remove();
        None
    }

    /// The cgroup that `run` has made and named to its other processes.
    pub(crate) fn named(folder: &OsStr) -> Option<Self> {
        (!folder.is_empty()).then(|| Self { folder: folder.into() })
    }

    /// The name of a cgroup in the arguments of another process.
    pub(crate) fn name(cgroup: Option<&Self>) -> OsString {
        cgroup.map(|cgroup| cgroup.folder.clone().into()).unwrap_or_default()
    }

    /// Makes this process a member, and so the processes that it starts.
    pub(crate) fn enter(&self) -> io::Result<()> {
        fs::write(self.file("cgroup.procs"), "0")
    }

    /// Kills all members, and waits until they have ended, or until `end`.
    pub(crate) fn kill(&self, end: Instant) {
        if fs::write(self.file("cgroup.kill"), "1").is_err() {
            return;
        }
        let Ok(events) = fs::File::open(self.file("cgroup.events")) else { return };
        while self.has_members() && now() < end {
            let round = ROUND.try_into().ok();
            let _ = poll(&mut [PollFd::new(&events, PollFlags::PRI)], round.as_ref());
        }
    }

    fn has_members(&self) -> bool {
        let events = fs::read_to_string(self.file("cgroup.events"));
        events.is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
    }

    /// Removes the cgroup, unless processes that the command left behind still run in it.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir(&self.folder);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// `30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw`: the fifth word of that line.
fn mount_point(mounts: &str) -> Option<&str> {
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    mount.split(' ').nth(4)
}

//! [`Alarm`] waits until a deadline, on the clock that deadlines use.
//!
//! The timeout of a poll stops while the machine is suspended; the TTL of a lock does not.

use std::io;
use std::os::fd::BorrowedFd;

use redbolt::Instant;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    timer: std::os::fd::OwnedFd,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        Ok(Self { timer })
    }

    /// Waits until `fd` can be read or a signal was handled, at most until `until`.
    pub(crate) fn wait(&self, fd: BorrowedFd<'_>, until: Option<Instant>) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // Zero would mean never.
        let nanos = until.map_or(0, |until| until.as_nanos().max(1));
        let it_value = Timespec::try_from(std::time::Duration::from_nanos(nanos));
        let it_value = it_value.map_err(io::Error::other)?;
        let time = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &time)?;
        let timer = PollFd::new(&self.timer, PollFlags::IN);
        ended(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN), timer], None))
    }
}

/// Other systems have no timer that a poll can watch.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    pub(crate) fn wait(&self, fd: BorrowedFd<'_>, until: Option<Instant>) -> io::Result<()> {
        let left = until.map(|until| redbolt::now().until(until).try_into());
        let left = left.transpose().map_err(io::Error::other)?;
        ended(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], left.as_ref()))
    }
}

fn ended(poll: Result<usize, Errno>) -> io::Result<()> {
    match poll {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

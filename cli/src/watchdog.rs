//! The watchdog: a process that kills the command in time if `run` itself is stopped, and at once if
//! `run` is killed.
//!
//! `run` starts its own binary a second time with [`HIDDEN`], and writes each new time to a pipe. A
//! stop of `run` or its process group, for example by Ctrl-Z, does not reach the watchdog.
//!
//! # Invariants
//!
//! - It kills the group only while `run` has not reaped its leader: `run` ends the watchdog first.
//! - A pipe that ends while the watchdog lives says that `run` has died. The kernel kills the leader
//!   then, and the watchdog the rest of its group: a group that has members keeps its number.
//! - It ends with its pipe, and so with `run`; it holds no other descriptor of `run` open.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, Stdio};

use redbolt::Instant;
use redbolt::now;
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::alarm::Alarm;
use crate::own_binary;

/// The only argument of the watchdog.
pub(crate) const HIDDEN: &str = "--watchdog";

/// What `run` holds of its watchdog.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    pipe: ChildStdin,
    told: Option<Order>,
}

/// Which group to kill, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    group: Pid,
    at: Instant,
}

impl Watchdog {
    pub(crate) fn start() -> io::Result<Self> {
        let mut child = own_binary::command(HIDDEN)?
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = child.stdin.take().ok_or_else(|| io::Error::other("the pipe is missing"))?;
        // Whatever the watchdog does, `run` does not wait for it.
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { child, pipe, told: None })
    }

    /// Tells the watchdog to kill the group at `at`, unless another time follows before.
    pub(crate) fn tell(&mut self, group: Pid, at: Instant) {
        let order = Order { group, at };
        if self.told != Some(order) {
            self.told = Some(order);
            // If the watchdog was killed, the command goes on without it.
            let _ = self.pipe.write(&order.bytes());
        }
    }

    /// Ends the watchdog; [`wait`](Self::wait) waits for that.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    pub(crate) fn wait(&mut self) -> io::Result<()> {
        self.child.wait().map(drop)
    }
}

impl Order {
    /// Bytes of one order; a pipe writes so few in one piece or not at all.
    const LEN: usize = 12;

    fn bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (group, at) = bytes.split_at_mut(4);
        group.copy_from_slice(&self.group.as_raw_nonzero().get().to_ne_bytes());
        at.copy_from_slice(&self.at.as_nanos().to_ne_bytes());
        bytes
    }

    fn kill(self) -> io::Result<()> {
        Ok(kill_process_group(self.group, Signal::KILL)?)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (group, at) = bytes.split_first_chunk()?;
        let group = Pid::from_raw(i32::from_ne_bytes(*group))?;
        Some(Self { group, at: Instant::from_nanos(u64::from_ne_bytes(at.try_into().ok()?)) })
    }
}

/// Runs as the watchdog until the pipe ends or the command is killed.
pub(crate) fn watch() -> io::Result<()> {
    let pipe = io::stdin();
    ioctl_fionbio(&pipe, true)?;
    let alarm = Alarm::new()?;
    let mut order: Option<Order> = None;
    let mut bytes = [0; 64 * Order::LEN];
    loop {
        alarm.wait(pipe.as_fd(), order.map(|order| order.at))?;
        // A time is over only if no newer one has come.
        match read(&pipe, &mut bytes) {
            Ok(0) => return order.map_or(Ok(()), Order::kill),
            Ok(len) => {
                let orders = bytes.get(..len).unwrap_or_default().chunks_exact(Order::LEN);
                order = orders.last().and_then(Order::read).or(order);
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                if let Some(order) = order.filter(|order| order.at <= now()) {
                    return order.kill();
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

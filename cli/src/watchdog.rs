//! The watchdog: a process that kills the command in time if `run` itself is stopped, and at once
//! if `run` is killed.
//!
//! `run` starts its own binary a second time with [`HIDDEN`], and writes each new time to a pipe. A
//! stop of `run` or its process group, for example by Ctrl-Z, does not reach the watchdog.
//!
//! # Invariants
//!
//! - It kills the group only while `run` has not reaped its leader: `run` ends the watchdog first.
//! - A pipe that ends while the watchdog lives means that `run` has died. The kernel then kills the
//!   leader, and the watchdog kills the rest of its group: a group that has members keeps its
//!   number.
//! - It also kills processes that have left the group. If `run` has died, it kills those that it
//!   saw before.
//! - It ends with its pipe, and so with `run`; it holds no other descriptor of `run` open.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::iter::once;
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use redbolt::Instant;
use redbolt::now;
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::process::{Pid, Signal, getpid, kill_process_group};

use crate::alarm::Alarm;
use crate::descendants::Descendants;
use crate::own_binary;

/// The first argument of the watchdog. The command's cgroup, and the numbers of `run` and of its
/// other children follow.
pub(crate) const HIDDEN: &str = "--watchdog";

/// The least time between two looks at the command's descendants. A look at 1,000 processes takes
/// some milliseconds.
const LOOKS: Duration = Duration::from_secs(5);

/// The part of its watchdog that `run` holds.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    pipe: ChildStdin,
    told: Option<Order>,
}

/// The group to kill, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    group: Pid,
    at: Instant,
}

impl Watchdog {
    pub(crate) fn start(descendants: &Descendants) -> io::Result<Self> {
        let numbers = once(getpid()).chain(descendants.spared());
        let mut child = own_binary::command(HIDDEN)?
            .arg(descendants.cgroup())
            .args(numbers.map(|pid| pid.as_raw_nonzero().to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = child.stdin.take().ok_or_else(|| io::Error::other("the pipe is missing"))?;
        // Whatever the watchdog does, `run` does not wait for it.
        ioctl_fionbio(&pipe, true)?;
        Ok(Self { child, pipe, told: None })
    }

    pub(crate) fn pid(&self) -> io::Result<Pid> {
        own_binary::pid(&self.child)
    }

    /// Tells the watchdog to kill the group at `at`, unless another time follows before.
    pub(crate) fn tell(&mut self, group: Pid, at: Instant) {
        let order = Order { group, at };
        if self.told != Some(order) {
            self.told = Some(order);
            // If somebody killed the watchdog, the command goes on without it.
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

    fn kill(self, descendants: &mut Descendants) {
        // Nobody hears the watchdog: `run` itself finds the processes that go on.
        let _ = kill_process_group(self.group, Signal::KILL);
        descendants.kill();
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (group, at) = bytes.split_first_chunk()?;
        let group = Pid::from_raw(i32::from_ne_bytes(*group))?;
        Some(Self { group, at: Instant::from_nanos(u64::from_ne_bytes(at.try_into().ok()?)) })
    }
}

/// Runs as the watchdog until the pipe ends or the command is killed. `args` follow [`HIDDEN`].
pub(crate) fn watch(args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let pipe = io::stdin();
    ioctl_fionbio(&pipe, true)?;
    let alarm = Alarm::new()?;
    let mut descendants = of_run(args)?;
    let mut look_at = now();
    let mut order: Option<Order> = None;
    let mut bytes = [0; 64 * Order::LEN];
    loop {
        alarm.wait(pipe.as_fd(), order.map(|order| order.at))?;
        // The time counts only if no newer one has come.
        let is_due = match read(&pipe, &mut bytes) {
            Ok(0) => true,
            Ok(len) => {
                let orders = bytes.get(..len).unwrap_or_default().chunks_exact(Order::LEN);
                order = orders.last().and_then(Order::read).or(order);
                if look_at <= now() {
                    descendants.remember();
                    look_at = now() + LOOKS;
                }
                false
            }
            Err(Errno::AGAIN | Errno::INTR) => order.is_some_and(|order| order.at <= now()),
            Err(error) => return Err(error.into()),
        };
        if is_due {
            if let Some(order) = order {
                order.kill(&mut descendants);
            }
            descendants.forget();
            return Ok(());
        }
    }
}

/// The descendants of the command: those of `run`, without its other children.
fn of_run(mut args: impl Iterator<Item = OsString>) -> io::Result<Descendants> {
    let cgroup = args.next().unwrap_or_default();
    let numbers = args.filter_map(|number| number.to_str()?.parse().ok());
    let mut numbers = numbers.filter_map(Pid::from_raw);
    let run = numbers.next().ok_or_else(|| io::Error::other("this is for redbolt run alone"))?;
    Ok(Descendants::of_parent(run, &cgroup, numbers.chain([getpid()])))
}

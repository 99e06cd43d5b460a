//! The end of a driver, called or dropped: it leaves no key without a holder on any node that it
//! can reach. The I/O thread of a [`Client`](crate::Client) ends this way too.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Driver, Outcome, clock};
use crate::quorum::{NodeId, NodeMask};
use crate::time::Instant;

/// No wait is shorter than this, except the last before the limit. So the driver never spins.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Driver {
    /// Ends everything: gives up the calls under way, and releases the locks that they won, locks
    /// in results that the caller did not take, and dropped leases. It waits at most `limit` for
    /// the answers of nodes that can give one. If the driver owes a release to a node that is away,
    /// it tries once more to connect. It sleeps on the sockets themselves, so it needs no event
    /// loop. Use it at the end of a program.
    ///
    /// From then on the driver takes no lock; a lease that is still held can be extended and released.
    /// Another `shutdown` waits for answers again.
    ///
    /// Returns how many releases the driver still owes, one per key and node. Those keys end with
    /// their TTL, and so do the keys of leases that are still held.
    pub fn shutdown(&mut self, limit: Duration) -> usize {
        // In the child of a fork all leases and calls are the parent's.
        if self.fork.clone().detected_fork() {
            return 0;
        }
        self.end();
        let owed = self.wait_released(limit);
        #[cfg(feature = "metrics")]
        self.export_metrics();
        owed
    }

    /// Gives up all operations under way. The caller can still take the results; none is a lock.
    pub(crate) fn give_up(&mut self) {
        self.engine.begin_close();
        self.engine.cancel_all(clock::now());
    }

    /// As [`give_up`](Self::give_up), and drops the results, because no caller is left to take
    /// them.
    fn end(&mut self) {
        self.give_up();
        while let Some(done) = self.completion() {
            if let Outcome::Adopt(Ok(lease)) = done.result {
                lease.leave();
            }
        }
        self.collect_dropped(clock::now());
    }

    /// Sends the owed releases and waits at most `limit` for the answers. Returns how many are
    /// still owed.
    pub(crate) fn wait_released(&mut self, limit: Duration) -> usize {
        let deadline = clock::now() + limit;
        let mut has_reached = false;
        loop {
            self.read_all();
            self.take_addresses();
            self.drive();
            if self.is_wait_over(deadline, &mut has_reached) {
                return self.engine.releases_owed(clock::now());
            }
            self.wait_on_sockets(deadline);
        }
    }

    /// Whether a wait for owed releases is over: `deadline` has come, or no node is left that may
    /// answer. Before that, the driver tries once more to connect to each node that is away and has
    /// debts. `has_reached` says that it has done so.
    pub(crate) fn is_wait_over(&mut self, deadline: Instant, has_reached: &mut bool) -> bool {
        let now = clock::now();
        if self.engine.releases_open(deadline) > 0 && now < deadline {
            return false;
        }
        if self.engine.releases_owed(now) == 0 || std::mem::replace(has_reached, true) {
            return true;
        }
        self.engine.reach_owed(now);
        self.drive();
        false
    }

    /// Marks every socket as readable: the caller's loop may have taken the events.
    fn read_all(&mut self) {
        self.readable = self.readable.union(NodeMask::first(self.links.len()));
        self.connecting = self.readable;
    }

    /// Sleeps until a socket can go on, something is due, or `deadline` has come.
    fn wait_on_sockets(&mut self, deadline: Instant) {
        if !self.readable.is_empty() {
            return;
        }
        let now = clock::now();
        let until = self.engine.next_due().map_or(deadline, |due| due.min(deadline));
        let wait = now.until(until).max(WAIT_MIN).min(now.until(deadline));
        let Ok(timeout) = Timespec::try_from(wait) else { return };
        let mut fds = Vec::with_capacity(self.links.len() + 1);
        let mut nodes = Vec::with_capacity(self.links.len());
        for (index, link) in self.links.iter().enumerate() {
            let (Some(id), Some(socket)) = (NodeId::new(index), &link.socket) else { continue };
            let is_writing =
                if link.is_open { self.blocked.contains(id) } else { socket.waits_to_write() };
            let wanted = if is_writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(socket.as_fd(), wanted));
            nodes.push(id);
        }
        if let Some(resolver) = &self.resolver {
            fds.push(PollFd::from_borrowed_fd(resolver.as_fd(), PollFlags::IN));
        }
        // An interrupted wait is a short one.
        if poll(&mut fds, Some(&timeout)).is_ok() {
            for (id, fd) in nodes.into_iter().zip(&fds) {
                if fd.revents().contains(PollFlags::OUT) {
                    self.blocked.remove(id);
                }
            }
        }
    }
}

impl Drop for Driver {
    /// As [`shutdown`](Self::shutdown), without waiting: the driver writes as much as the sockets
    /// take at once, and reads only the answers that are there.
    fn drop(&mut self) {
        if self.fork.clone().detected_fork() {
            return;
        }
        self.end();
        self.read_all();
        self.read();
        self.flush();
        // Closing a socket that has bytes to read resets the connection, and bytes on the way to
        // the node are lost. So the driver also reads the bytes that came during the writes.
        self.read_all();
        self.read();
        self.engine.note_left(clock::now());
        #[cfg(feature = "metrics")]
        self.exporter.export_last(&self.engine);
    }
}

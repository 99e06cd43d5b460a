//! The end of a driver: what it owes is sent, and the answers are waited for, whoever's loop it was.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Driver, clock};
use crate::quorum::{NodeId, NodeMask};
use crate::time::Instant;

/// A wait is never shorter than this, whatever is due: nothing may make it spin.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Driver {
    /// Releases every lease that was dropped, and waits at most `limit` for what is owed to nodes
    /// that can answer: asleep, on the sockets themselves, so that it needs nobody's loop. It is
    /// for the end of a program.
    pub fn shutdown(&mut self, limit: Duration) {
        self.engine.begin_close();
        let deadline = clock::now() + limit;
        loop {
            // Whose loop it was may have taken the events.
            self.readable = self.readable.union(NodeMask::first(self.links.len()));
            self.connecting = self.readable;
            self.take_addresses();
            self.turn();
            if self.engine.releases_open(deadline) == 0 || clock::now() >= deadline {
                #[cfg(feature = "metrics")]
                self.export_metrics();
                return;
            }
            self.wait_on_sockets(deadline);
        }
    }

    /// Sleeps until a socket can go on, something is due, or `deadline`.
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

//! Bytes between the engine and one node's socket.

use std::io;

use super::clock;
use super::core::Driver;
use crate::error::Cause;
use crate::quorum::NodeId;

/// Reads of one socket in one pass: a node that sends without end must not keep the others waiting.
const READS_MAX: usize = 64;

impl Driver {
    /// Reads the bytes that the socket holds. Reads the clock again after each read: a time in a
    /// message, such as a server's age, counts from a clock reading that is no older than the
    /// message.
    pub(super) fn read_from(&mut self, id: NodeId) {
        for _ in 0..READS_MAX {
            let Some(link) = self.links.get_mut(id.index()) else { return };
            let Some(socket) = link.socket.as_mut().filter(|_| link.is_open) else { return };
            match socket.read(&mut self.buffer) {
                Ok(0) => return self.close(id, Cause::Closed, clock::now()),
                Ok(len) => {
                    let is_last = len < self.buffer.len() && !link.reads_to_end;
                    let bytes = self.buffer.get(..len).unwrap_or_default();
                    self.engine.handle_bytes(id, bytes, clock::now());
                    if !self.engine.is_connected(id) {
                        self.drop_socket(id, false);
                        return;
                    }
                    // A short read has emptied the socket, and a new edge announces more bytes. If
                    // the peer has closed, that edge has passed, so the driver reads the socket to
                    // its end. Through TLS a short read says nothing about the socket.
                    if is_last {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let cause = link.cause_of(&error);
                    return self.close(id, cause, clock::now());
                }
            }
        }
        self.readable.insert(id);
    }

    pub(super) fn write_to(&mut self, id: NodeId) {
        let Some(link) = self.links.get_mut(id.index()) else { return };
        let Some(socket) = link.socket.as_mut().filter(|_| link.is_open) else { return };
        loop {
            let output = self.engine.output(id);
            if output.is_empty() {
                return;
            }
            match socket.write(output) {
                Ok(len) if len == output.len() => return self.engine.handle_sent(id, len),
                Ok(len) => self.engine.handle_sent(id, len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked.insert(id);
                    return self.watch_writable(id, true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let cause = link.cause_of(&error);
                    return self.close(id, cause, clock::now());
                }
            }
        }
    }
}

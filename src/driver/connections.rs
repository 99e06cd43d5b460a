//! The connections that the engine asks for: opens them, reads and writes their bytes, and ends
//! those that are over.

use std::io;

use mio::Token;

use super::core::Driver;
use super::link::Link;
use super::process::fresh_seed;
use super::resolve::Resolver;
use super::{clock, socket};
use crate::engine::Connection;
use crate::error::Cause;
use crate::quorum::NodeId;
use crate::time::Instant;

/// Reads of one socket in one pass: a node that sends without end must not keep the others waiting.
const READS_MAX: usize = 64;

impl Driver {
    /// Opens and closes connections as the engine asks.
    pub(super) fn update_connections(&mut self) {
        while let Some((id, wish)) = self.engine.poll_connection() {
            match wish {
                Connection::Open => self.open(id),
                // Whatever the cause, this address does not serve now.
                Connection::Close => {
                    self.drop_socket(id, false);
                }
            }
        }
    }

    fn open(&mut self, id: NodeId) {
        let now = clock::now();
        let Some(link) = self.links.get_mut(id.index()) else { return };
        if let Some(host) = link.unresolved_host() {
            if let Err(error) = self.resolve(id, &host) {
                self.engine.handle_lost(id, socket::cause_of(&error, false), now);
            }
            return;
        }
        let token = Token(self.tokens.start + id.index());
        // A unix socket connects at once; its first event reports that too.
        while let Err(error) = link.connect(&self.registry, token) {
            if !link.has_next_address() {
                let cause = link.cause_of(&error);
                return self.engine.handle_lost(id, cause, now);
            }
        }
    }

    fn resolve(&mut self, id: NodeId, host: &(String, u16)) -> io::Result<()> {
        if self.resolver.is_none() {
            let token = Token(self.tokens.end.saturating_sub(1));
            self.resolver = Some(Resolver::new(&self.registry, token)?);
        }
        let (Some(resolver), Some(link)) = (&self.resolver, self.links.get_mut(id.index())) else {
            return Ok(());
        };
        // One lookup at a time for each node: a slow name server must not pile up threads.
        if !link.is_resolving {
            resolver.ask(id.index(), &host.0, host.1)?;
            link.is_resolving = true;
        }
        Ok(())
    }

    /// Takes the addresses that lookups found, and connects to them.
    pub(super) fn take_addresses(&mut self) {
        while let Some((index, addresses)) = self.resolver.as_mut().and_then(Resolver::next) {
            let Some(id) = NodeId::new(index) else { continue };
            let Some(link) = self.links.get_mut(index) else { continue };
            let is_unknown = addresses.is_empty();
            link.set_addresses(addresses);
            if link.socket.is_some() || !self.engine.wants_connection(id) {
                continue;
            }
            if is_unknown {
                self.engine.handle_lost(id, Cause::NameUnknown, clock::now());
            } else {
                self.open(id);
            }
        }
    }

    pub(super) fn check_connect(&mut self, id: NodeId, now: Instant) {
        let Some(link) = self.links.get_mut(id.index()) else { return };
        let Some(socket) = link.socket.as_mut().filter(|_| !link.is_open) else { return };
        match socket.finish_connect() {
            None =>
            {
                #[cfg(feature = "tls")]
                if socket.is_securing() {
                    self.engine.handle_securing(id, true);
                }
            }
            Some(Ok(())) => {
                link.is_open = true;
                link.reads_to_end = socket.is_tls();
                self.blocked.remove(id);
                if let Ok(seed) = fresh_seed() {
                    self.engine.reseed(seed);
                }
                self.engine.handle_connected(id, now);
                self.readable.insert(id);
                self.watch_writable(id, false);
            }
            Some(Err(error)) => {
                let cause = link.cause_of(&error);
                self.close(id, cause, now);
            }
        }
    }

    /// Tells the engine that the connection has ended.
    pub(super) fn close(&mut self, id: NodeId, cause: Cause, now: Instant) {
        let is_plain_tcp = self.links.get(id.index()).is_some_and(Link::is_plain_tcp);
        let was_open = self.drop_socket(id, self.engine.serves(id));
        // A server's TLS port closes on a plain client, and gives no other sign.
        let is_unanswered = was_open && is_plain_tcp && self.engine.is_mute(id);
        let cause = if cause == Cause::Closed && is_unanswered { Cause::TlsWanted } else { cause };
        let Some(link) = self.links.get_mut(id.index()) else { return };
        // The next address of the name may work. The node is lost only if no address does.
        if !was_open && link.has_next_address() {
            #[cfg(feature = "tls")]
            self.engine.handle_securing(id, false);
            return self.open(id);
        }
        self.engine.handle_lost(id, cause, now);
    }

    /// Drops the socket. `served`: its address worked. Returns whether the socket was connected.
    pub(super) fn drop_socket(&mut self, id: NodeId, served: bool) -> bool {
        self.readable.remove(id);
        self.connecting.remove(id);
        self.blocked.remove(id);
        self.links.get_mut(id.index()).is_some_and(|link| link.disconnect(&self.registry, served))
    }

    /// Sets whether the node's socket gives an event when it takes more bytes.
    #[cold]
    pub(super) fn watch_writable(&mut self, id: NodeId, is_wanted: bool) {
        let token = Token(self.tokens.start + id.index());
        let Some(link) = self.links.get_mut(id.index()) else { return };
        let Some(socket) = link.socket.as_mut() else { return };
        if let Err(error) = socket.watch_writable(&self.registry, token, is_wanted) {
            // Without that event the socket would stay blocked for ever.
            let cause = link.cause_of(&error);
            self.close(id, cause, clock::now());
        }
    }

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

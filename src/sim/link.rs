//! What happens to connections: they open or are refused, deliver, break, and are left.

use super::clock::{Global, MS};
use super::counts::{Fault, Path};
use super::net::{Conn, News, append};
use super::world::{Event, World};
use crate::error::Cause;

impl World {
    /// A client's engine wants a connection.
    pub(super) fn open(&mut self, client: usize, node: usize) {
        self.leave(client, node);
        let id = self.conns.len();
        self.conns.push(Conn::new(client, self.plan.server_of(node)));
        self.clients[client].links[node] = Some(id);
        self.log(|_| format!("client {client} connects to node {node}: connection {id}"));
        let there = self.delay(client, node);
        let back = self.delay(client, node);
        self.after(there + back, Event::Answered { conn: id });
    }

    /// The server's system accepts or refuses.
    pub(super) fn connection_answered(&mut self, id: usize) {
        let (client, node) = (self.conns[id].client, self.conns[id].node);
        let conn = &self.conns[id];
        if conn.is_left || conn.is_open || conn.news.is_some() {
            return;
        }
        let server = &mut self.nodes[node];
        if !server.is_up || self.now < server.refuses_until {
            self.conns[id].news = Some(News::Ended(Cause::ConnectionRefused));
            self.counts.path(Path::Refused);
        } else {
            let conn = &mut self.conns[id];
            conn.session = Some(server.server.connect());
            conn.life = server.life;
            conn.news = Some(News::Opened);
            server.conns.push(id);
        }
        self.wake(client, self.now);
    }

    /// Bytes of a connection reach the client's system.
    pub(super) fn reaches_client(&mut self, id: usize) {
        let conn = &mut self.conns[id];
        while let Some(bytes) = conn.down.arrived(self.now) {
            if !conn.is_left {
                append(&mut conn.inbox, bytes);
                conn.deliveries += 1;
            }
        }
        let client = conn.client;
        self.wake(client, self.now);
    }

    /// The client's system learns that a connection is no more.
    pub(super) fn connection_ended(&mut self, id: usize, reset: bool) {
        let conn = &mut self.conns[id];
        if conn.is_left {
            return;
        }
        conn.is_broken = true;
        if reset && self.random.chance(500) {
            // Bytes that were received and not read are lost with the connection.
            conn.inbox.clear();
        }
        conn.down.truncate(0);
        let cause = if reset { Cause::Network } else { Cause::Closed };
        conn.news = Some(News::Ended(cause));
        let client = conn.client;
        self.wake(client, self.now);
    }

    /// The client lets go of a connection. What it had sent may still arrive.
    pub(super) fn leave(&mut self, client: usize, node: usize) {
        let Some(id) = self.clients[client].links[node].take() else { return };
        let conn = &mut self.conns[id];
        conn.is_left = true;
        conn.inbox.clear();
        conn.down.truncate(0);
        if self.plan.ghosts {
            if !self.conns[id].is_broken {
                self.lead_astray(id);
            }
        } else {
            let within = self.random.below(self.plan.node_timeout / 4);
            if self.conns[id].up.hurry(self.now + within) {
                self.after(within, Event::Up { conn: id });
            }
        }
        self.let_go(id);
    }

    /// Bytes of a dead connection that the network still carries arrive late, by a detour.
    fn lead_astray(&mut self, id: usize) {
        let detour = self.random.below(self.plan.max_ttl_ms * MS / 2);
        if let Some(at) = self.conns[id].up.delay(detour) {
            self.at(at, Event::Up { conn: id });
        }
    }

    /// The server lets go of a connection that brings nothing more.
    fn let_go(&mut self, id: usize) {
        let conn = &mut self.conns[id];
        if conn.is_left && conn.up.len() == 0 && conn.backlog.is_empty() {
            let node = &mut self.nodes[conn.node];
            if let Some(session) = conn.session.take().filter(|_| conn.life == node.life) {
                node.server.disconnect(session);
            }
        }
    }

    /// The connection between a client and a node is reset: both directions lose a part of the
    /// bytes on their way. The server will run what it has received.
    pub(super) fn reset(&mut self, client: usize, node: usize) {
        let Some(id) = self.clients[client].links[node] else { return };
        let conn = &mut self.conns[id];
        if conn.is_broken || conn.session.is_none() {
            return;
        }
        conn.is_broken = true;
        let kept = self.random.index(conn.up.len() + 1);
        conn.up.truncate(kept);
        if self.plan.ghosts {
            self.lead_astray(id);
        } else {
            let within = self.random.below(self.plan.node_timeout / 4);
            conn.up.hurry(self.now + within);
            self.after(within, Event::Up { conn: id });
        }
        let conn = &mut self.conns[id];
        let kept = self.random.index(conn.down.len() + 1);
        conn.down.truncate(kept);
        self.counts.fault(Fault::Reset);
        self.log(|_| format!("reset of client {client} at node {node}"));
        let after = self.random.between(0, self.plan.latency * 3);
        self.after(after, Event::Ended { conn: id, reset: true });
    }

    /// The server's process is gone, and all of its connections with it. Clients learn of it at
    /// once, or when they have been silent for a while.
    pub(super) fn cut_off(&mut self, node: usize) {
        let mut learn_after: Global = self.random.between(0, 2 * self.plan.node_timeout);
        if self.random.chance(200) {
            learn_after += 4 * self.plan.node_timeout;
        }
        for id in std::mem::take(&mut self.nodes[node].conns) {
            let conn = &mut self.conns[id];
            let session = conn.session.take();
            conn.backlog.clear();
            conn.up.truncate(0);
            conn.is_broken = true;
            if let Some(session) = session {
                self.nodes[node].server.disconnect(session);
                self.after(learn_after, Event::Ended { conn: id, reset: false });
            }
        }
    }

    /// Everything that is on its way arrives soon: the network is whole again.
    pub(super) fn hurry_all(&mut self) {
        let soon = self.now + self.plan.latency;
        for id in 0..self.conns.len() {
            if !self.conns[id].is_open {
                self.at(soon, Event::Answered { conn: id });
            }
            if self.conns[id].up.hurry(soon) {
                self.at(soon, Event::Up { conn: id });
            }
            if self.conns[id].down.hurry(soon) {
                self.at(soon, Event::Down { conn: id });
            }
        }
    }
}

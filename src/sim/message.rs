//! Messages between clients: the world carries them from the server to the receiver, loses or
//! delays them, or forges them.

use super::clock::MS;
use super::counts::Fault;
use super::world::{Event, Phase, World};
use crate::quorum::NodeId;
use redbolt_embedded::model::Delivery;

impl World {
    /// Takes the messages that were published on a node to their receivers.
    pub(super) fn carry(&mut self, node: usize) {
        let deliveries: Vec<Delivery> = self.nodes[node].server.deliveries().collect();
        for Delivery { session, bytes, .. } in deliveries {
            let is_its = |id: &&usize| {
                self.conns[**id].session.as_ref().is_some_and(|other| other.id() == session)
            };
            let Some(&conn) = self.nodes[node].conns.iter().rev().find(is_its) else { continue };
            // An invalidation keeps its place among the server's replies, and is never lost.
            let is_safety =
                self.phase == Phase::Safety && !bytes.starts_with(b">2\r\n$10\r\ninvalidate");
            if is_safety && self.random.chance(self.plan.message_lost) {
                self.counts.fault(Fault::MessageLost);
                // A server that drops what a subscriber does not read drops the subscriber.
                let client = self.conns[conn].client;
                // Two of a client's nodes may be one server.
                let mut links = self.clients[client].links.iter();
                let link = links.position(|link| *link == Some(conn));
                if let Some(link) = link.filter(|_| is_transfer(&bytes)) {
                    self.reset(client, link);
                }
            } else if is_safety && self.random.chance(self.plan.message_late) {
                self.counts.fault(Fault::MessageLate);
                let after = self.random.between(self.plan.latency, 4 * self.plan.node_timeout);
                self.late_messages.push((conn, bytes));
                let late = self.late_messages.len() - 1;
                self.after(after, Event::Message { late });
            } else {
                if is_safety && is_transfer(&bytes) && self.random.chance(self.plan.rare.repeated) {
                    self.repeat(conn, bytes.clone());
                }
                self.send_down(conn, bytes);
            }
        }
    }

    /// A transfer message comes once more, up to twice the longest TTL later.
    fn repeat(&mut self, conn: usize, bytes: Vec<u8>) {
        self.counts.fault(Fault::TransferRepeated);
        let after = self.random.between(self.plan.latency, 2 * self.plan.max_ttl_ms * MS);
        self.late_messages.push((conn, bytes));
        let late = self.late_messages.len() - 1;
        self.after(after, Event::Message { late });
    }

    /// A message leaves its server late: later messages have left before it.
    pub(super) fn late_message(&mut self, late: usize) {
        let (conn, bytes) = &mut self.late_messages[late];
        let (conn, bytes) = (*conn, std::mem::take(bytes));
        if self.conns[conn].session.is_some() {
            self.send_down(conn, bytes);
        }
    }

    /// A forger that knows a client's channel publishes messages there which no client would send.
    pub(super) fn forge(&mut self, node: usize) {
        let is_done = self.forgeries >= FORGERIES_MAX;
        if self.phase != Phase::Safety || is_done || !self.random.chance(self.plan.forged) {
            return;
        }
        self.forgeries += 1;
        let client = self.random.index(self.plan.clients);
        let mut channel = format!("redbolt:3:{}", self.clients[client].token_start);
        let (fault, text) = match self.forged_transfer(client, node) {
            Some(text) => {
                channel.push_str(":t0000");
                (Fault::ForgedTransfer, text)
            }
            None => self.forged_text(),
        };
        self.counts.fault(fault);
        self.log(|_| format!("forged for client {client} on node {node}: {fault:?}"));
        let mut bytes = Vec::new();
        bytes.extend_from_slice(b"*3\r\n$7\r\nPUBLISH\r\n");
        for word in [channel.as_bytes(), &text] {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        let local = self.nodes[node].clock.on_server(self.now);
        let server = &mut self.nodes[node].server;
        let mut session = server.connect();
        // The forger does not need its own answer.
        let _ = server.execute(&mut session, &bytes, local, &mut Vec::new());
        server.disconnect(session);
        self.carry(node);
    }

    /// A forged message says that a node has written a token to a key. A quorum of true messages
    /// would win the lock. So a forged message has a random mark, or the token of a lease that was
    /// given away.
    fn forged_transfer(&mut self, client: usize, node: usize) -> Option<Vec<u8>> {
        let is_transfer = self.random.chance(300);
        let key = self.random.index(self.plan.keys);
        let given = self.given_away.iter().rev().find_map(|token| raw_token(token));
        let held = self.tokens_at(node).into_iter().nth(key).flatten();
        let at_node = NodeId::new(node)?;
        let engine = &self.clients[client].engine;
        let mark = engine.listed().contains(at_node).then(|| engine.mark(at_node))?;
        let (token, mark) = match (given, mark, held.as_deref().and_then(raw_token)) {
            (Some(given), Some(mark), _) if self.random.chance(500) => (given, mark),
            (_, _, Some(held)) => (held, self.random.bytes::<8>()),
            _ => return None,
        };
        let is_its = token[..8] == self.clients[client].id;
        if !is_transfer || !is_its {
            return None;
        }
        let name = self.plan.on_nodes(key).to_vec();
        let mut text = self.forged_message(4, 2, &name);
        text[2..10].copy_from_slice(&token[..8]);
        text[24..28].copy_from_slice(&1000_u32.to_le_bytes());
        text[28..40].copy_from_slice(&token[8..]);
        text[60..68].copy_from_slice(&mark);
        Some(text)
    }

    fn forged_text(&mut self) -> (Fault, Vec<u8>) {
        let key = match self.random.below(4) {
            0 => b"nobody holds this".to_vec(),
            _ => self.plan.on_nodes(self.random.index(self.plan.keys)).to_vec(),
        };
        match self.random.below(5) {
            0 => {
                let mut text = self.random.bytes::<64>().to_vec();
                text.truncate(self.random.index(65));
                if let Some(kind) = text.first_mut() {
                    *kind %= 6;
                }
                (Fault::ForgedGarbage, text)
            }
            1 => (Fault::ForgedAnnouncement, self.forged_message(1, 2, &key)),
            2 => (Fault::ForgedWake, self.forged_message(2, 3, &key)),
            3 => (Fault::ForgedGiveUp, self.forged_message(3, 0, &key)),
            _ => {
                let kind = self.random.between(1, 2) as u8;
                let count = self.random.pick(&[255, 256, 257, 5000]);
                let mut text = self.forged_message(kind, count, &key);
                if self.random.chance(200) {
                    text.truncate(text.len() / 2);
                }
                (Fault::ForgedGiant, text)
            }
        }
    }

    /// A message as clients send it, encoded once more without the engine's code. First kind and
    /// hops. Then the sender, its wait, how long it has waited, age, TTL and offer. Then the token,
    /// or the waiter that the message is for, and the node. Last the length of the list, each
    /// listed call, and the key.
    fn forged_message(&mut self, kind: u8, listed: u64, key: &[u8]) -> Vec<u8> {
        let mut text = vec![kind, self.random.below(10) as u8];
        let append_waiter = |text: &mut Vec<u8>, world: &mut Self| {
            let id = world.waiter();
            text.extend_from_slice(&id);
            let wait_ms = world.random.pick(&[0, 1, 1000, u32::MAX]);
            text.extend_from_slice(&wait_ms.to_le_bytes());
            let waited_us = world.random.pick(&[0, 1000, u32::MAX]);
            text.extend_from_slice(&waited_us.to_le_bytes());
            let age_ms = world.random.pick(&[0, 1, 600]);
            text.extend_from_slice(&(age_ms as u16).to_le_bytes());
            let ttl_ms = world.random.pick(&[0, 0, 1, 1000, u32::MAX]);
            text.extend_from_slice(&ttl_ms.to_le_bytes());
            let rest = world.random.bytes::<12>();
            text.extend_from_slice(&rest);
            if ttl_ms > 0 {
                let mut token = [0; 20];
                token[..8].copy_from_slice(&id[..8]);
                token[8..].copy_from_slice(&rest);
                world.forged_offers.push(token);
            }
        };
        append_waiter(&mut text, self);
        let mut token = self.random.bytes::<20>();
        if self.random.chance(500) {
            token = [0; 20];
            token[..12].copy_from_slice(&self.waiter());
        }
        text.extend_from_slice(&token);
        text.extend_from_slice(&self.random.bytes::<8>());
        text.extend_from_slice(&(listed as u16).to_le_bytes());
        for _ in 0..listed {
            append_waiter(&mut text, self);
        }
        text.extend_from_slice(key);
        text
    }

    /// The id of a waiter: random, or that of a call that some client may have made.
    fn waiter(&mut self) -> [u8; 12] {
        let mut id = self.random.bytes::<12>();
        if self.random.chance(500) {
            let client = self.random.index(self.plan.clients);
            id[..8].copy_from_slice(&self.clients[client].id);
            let call = self.random.below(40) as u32;
            id[8..].copy_from_slice(&call.to_le_bytes());
        }
        id
    }
}

/// The bytes of a token that a client drew.
pub(super) fn raw_token(digits: &[u8]) -> Option<[u8; 20]> {
    crate::token::unhex(digits)
}

/// Whether a message came on a channel for transfers.
fn is_transfer(bytes: &[u8]) -> bool {
    bytes.get(..80).unwrap_or(bytes).windows(2).any(|mark| mark == b":t")
}

/// Each waiter on a list passes the list on. If a list were forged with each message, the lists
/// would multiply.
const FORGERIES_MAX: u64 = 300;

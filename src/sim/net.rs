//! Connections: two streams of bytes that keep their order, and the state of their two ends.

use std::collections::VecDeque;

use super::clock::Global;
use crate::error::Cause;
use redbolt_embedded::model::Session;

/// One direction of a connection: pieces on their way.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    pieces: VecDeque<(Global, Vec<u8>)>,
    last_at: Global,
}

impl Pipe {
    /// Sends `bytes`, to arrive at `at` or behind earlier bytes. Returns the time of arrival.
    pub(super) fn send(&mut self, bytes: Vec<u8>, at: Global) -> Global {
        let at = at.max(self.last_at);
        self.last_at = at;
        self.pieces.push_back((at, bytes));
        at
    }

    /// Takes the next piece that has arrived by `now`.
    pub(super) fn arrived(&mut self, now: Global) -> Option<Vec<u8>> {
        self.pieces.front().filter(|(at, _)| *at <= now)?;
        self.pieces.pop_front().map(|(_, bytes)| bytes)
    }

    /// Keeps the first `kept` pieces on their way; the rest is lost.
    pub(super) fn truncate(&mut self, kept: usize) {
        self.pieces.truncate(kept);
    }

    /// Lets everything arrive by `at`. Returns whether anything is on its way.
    pub(super) fn hurry(&mut self, at: Global) -> bool {
        for (arrives_at, _) in &mut self.pieces {
            *arrives_at = at.min(*arrives_at);
        }
        self.last_at = self.last_at.min(at);
        !self.pieces.is_empty()
    }

    /// Delays everything by `time`. Returns when the last piece arrives, if any is on its way.
    pub(super) fn delay(&mut self, time: Global) -> Option<Global> {
        for (arrives_at, _) in &mut self.pieces {
            *arrives_at += time;
        }
        self.last_at += time;
        self.pieces.back().map(|(at, _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }
}

/// Appends a piece that has arrived to the earlier pieces. Usually there are none.
pub(super) fn append(to: &mut Vec<u8>, piece: Vec<u8>) {
    if to.is_empty() {
        *to = piece;
    } else {
        to.extend_from_slice(&piece);
    }
}

/// A connection from its SYN until both ends have forgotten it.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) client: usize,
    pub(super) node: usize,
    /// The life of the server that accepted it.
    pub(super) life: u64,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    /// The server's end; taken when the server has let go of it.
    pub(super) session: Option<Session>,
    /// Received by the server, not run yet.
    pub(super) backlog: Vec<u8>,
    /// Received by the client, not read yet.
    pub(super) inbox: Vec<u8>,
    /// Deliveries that the inbox is made of.
    pub(super) deliveries: u32,
    /// The client has let go of it, or was told of its loss: replies go nowhere.
    pub(super) is_left: bool,
    /// Nothing that is sent from now on arrives.
    pub(super) is_broken: bool,
    /// Open on the client's side, and told to the engine.
    pub(super) is_open: bool,
    /// The event that the client's system is to tell.
    pub(super) news: Option<News>,
    /// The server has said on this connection that it is a replica, since it last became one.
    pub(super) is_told: bool,
    /// The answers on this connection contain bytes that the server did not say.
    pub(super) has_lied: bool,
}

/// What a client's system has to tell of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Opened,
    /// The connection ends behind the bytes that have arrived.
    Ended(Cause),
}

impl Conn {
    pub(super) fn new(client: usize, node: usize) -> Self {
        Self {
            client,
            node,
            life: 0,
            up: Pipe::default(),
            down: Pipe::default(),
            session: None,
            backlog: Vec::new(),
            inbox: Vec::new(),
            deliveries: 0,
            is_left: false,
            is_broken: false,
            is_open: false,
            news: None,
            is_told: false,
            has_lied: false,
        }
    }
}

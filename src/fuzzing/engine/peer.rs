//! [`Peer`]: one node as the engine's sockets see it: an embedded server, and bytes on their way.

use std::time::Duration;

use crate::time::Instant;
use redbolt_embedded::Flavor;
use redbolt_embedded::model::{Condition, Life, Memory, Progress, Server, ServerOptions, Session};

/// Where the connection is, seen from the owner of the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Absent,
    /// The engine asked for one.
    Wanted,
    Open,
}

/// A node, its connection, and what the connections before it have left in its buffers.
pub(super) struct Peer {
    pub(super) link: Link,
    server: Server,
    session: Option<Session>,
    /// Written by the client and not yet run.
    up: Vec<u8>,
    /// Answered and not yet received by the client.
    down: Vec<u8>,
    /// Connections that are no more, with what they wrote and the server has not run.
    dead: Vec<(Session, Vec<u8>)>,
    /// Something has been run over the current connection.
    has_run: bool,
    lives: u8,
    index: u8,
}

/// What a person may have denied to the client's user, dialect by dialect.
const DENIALS: [&[&str]; 7] = [
    &[],
    &["delifeq", "delex"],
    &["delifeq", "delex", "evalsha"],
    &["delifeq", "delex", "evalsha", "eval"],
    &["delifeq", "delex", "eval", "evalsha", "del"],
    &["info"],
    &["hello"],
];

impl Peer {
    pub(super) fn new(index: u8, flavor: Flavor, password: bool, now: Instant) -> Self {
        let mut options = ServerOptions::new(flavor);
        if password {
            options = options.password("p");
        }
        // Long enough in service to vote.
        let life = life(index, 0, now).age(Duration::from_secs(3600));
        Self {
            link: Link::Absent,
            server: Server::new(&options, life),
            session: None,
            up: Vec::new(),
            down: Vec::new(),
            dead: Vec::new(),
            has_run: false,
            lives: 0,
            index,
        }
    }

    pub(super) fn open(&mut self) {
        self.link = Link::Open;
        self.session = Some(self.server.connect());
        self.has_run = false;
    }

    /// The connection is no more. What was written may still be run, or is lost.
    pub(super) fn close(&mut self, is_written: bool) {
        self.link = Link::Absent;
        self.down.clear();
        let up = std::mem::take(&mut self.up);
        let Some(session) = self.session.take() else { return };
        if is_written && !up.is_empty() && self.dead.len() < 4 {
            self.dead.push((session, up));
        } else {
            self.server.disconnect(session);
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        if self.link == Link::Open {
            self.up.extend_from_slice(bytes);
        }
    }

    /// The server runs the first `len` bytes that came over the connection.
    pub(super) fn run(&mut self, len: usize, now: Instant) {
        let Some(session) = &mut self.session else { return };
        let len = len.min(self.up.len());
        self.has_run |= len > 0;
        let bytes: Vec<u8> = self.up.drain(..len).collect();
        let mut bytes = &bytes[..];
        while let Progress::More =
            self.server.execute(session, bytes, on_server(now), &mut self.down)
        {
            bytes = b"";
        }
    }

    /// The server gets round to what old connections wrote. True if it had run anything of a newer
    /// one before.
    pub(super) fn run_dead(&mut self, now: Instant) -> bool {
        let is_late = self.has_run && !self.dead.is_empty();
        for (mut session, bytes) in std::mem::take(&mut self.dead) {
            let mut bytes = &bytes[..];
            let mut unread = Vec::new();
            while let Progress::More =
                self.server.execute(&mut session, bytes, on_server(now), &mut unread)
            {
                bytes = b"";
            }
            self.server.disconnect(session);
        }
        is_late
    }

    /// The first `len` bytes of what the server answered.
    pub(super) fn receive(&mut self, len: usize) -> Vec<u8> {
        self.down.drain(..len.min(self.down.len())).collect()
    }

    /// Another process; all connections are gone.
    pub(super) fn restart(&mut self, memory: Memory, now: Instant) {
        self.close(false);
        self.dead.clear();
        self.lives = self.lives.wrapping_add(1);
        self.server.restart(life(self.index, self.lives, now), memory);
    }

    pub(super) fn afflict(&mut self, choice: usize) {
        let condition = match choice {
            0 => Condition::Replica(true),
            1 => Condition::MasterDown(true),
            2 => Condition::Loading(true),
            3 => Condition::OutOfMemory(true),
            4 => Condition::Misconf(true),
            5 => Condition::Cluster(true),
            6 => Condition::MaxmemoryPolicy("allkeys-lru".into()),
            7 => return self.heal(),
            choice => self.denied(choice - 8),
        };
        self.server.set_condition(condition);
    }

    fn denied(&self, choice: usize) -> Condition {
        let denied = DENIALS[choice % DENIALS.len()];
        Condition::Denied(denied.iter().map(|&command| command.to_owned()).collect())
    }

    pub(super) fn heal(&mut self) {
        for condition in [
            Condition::MasterDown(false),
            Condition::Loading(false),
            Condition::OutOfMemory(false),
            Condition::Misconf(false),
            Condition::Cluster(false),
            Condition::MaxmemoryPolicy("noeviction".into()),
            self.denied(0),
        ] {
            self.server.set_condition(condition);
        }
    }

    /// What the server holds under `key`.
    pub(super) fn value(&mut self, key: &[u8], now: Instant) -> Option<&[u8]> {
        self.server.value(key, on_server(now))
    }
}

/// Afflictions that [`Peer::afflict`] knows.
pub(super) const AFFLICTIONS: usize = 8 + DENIALS.len();

/// The time as the server counts it.
const fn on_server(now: Instant) -> redbolt_embedded::Instant {
    redbolt_embedded::Instant::from_nanos(now.as_nanos())
}

/// A process with an identity of its own that starts now. All clocks go at one rate.
fn life(index: u8, number: u8, now: Instant) -> Life {
    let mut id = [index; 20];
    id[0] = number;
    let now_ms = i64::try_from(now.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
    Life::new(id, id, on_server(now), 1_700_000_000_000 + now_ms)
}

//! The servers: what reaches them, when they run it, and what they say.

use super::clock::{Clock, Global, US};
use super::counts::{Fault, Path};
use super::net::append;
use super::random::Random;
use super::world::{Event, World};
use redbolt_embedded::model::{Life, Memory, Progress, Server, ServerOptions};

use std::io::BufRead as _;
use std::time::Duration;

use smallvec::SmallVec;

/// One master and the machine it runs on.
pub(super) struct SimNode {
    pub(super) server: Server,
    pub(super) clock: Clock,
    /// Counts the lives of its process.
    pub(super) life: u64,
    pub(super) is_up: bool,
    pub(super) is_frozen: bool,
    pub(super) is_replica: bool,
    /// Another server is the master in its place, and it does not know that.
    pub(super) goes_on: bool,
    pub(super) refuses_until: Global,
    /// How far its clock was set back, in all.
    pub(super) back_ms: i64,
    /// Set while it runs what it had received when it was frozen.
    draining: Option<Drain>,
    /// When it last lost keys that it may have granted.
    pub(super) forgot_at: Option<Global>,
    /// The earliest time at which it can serve all clients again, as far as is known.
    pub(super) unwell_until: Global,
    /// The connections that may have something for it to run.
    pub(super) conns: Vec<usize>,
}

/// How a thawed server catches up.
#[derive(Clone, Copy, Debug)]
struct Drain {
    until: Global,
    every: Global,
    /// A closed connection that is read last of all.
    starved: Option<usize>,
}

impl SimNode {
    /// Whether it still runs what it received while it stood still.
    pub(super) const fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    pub(super) fn new(
        options: &ServerOptions,
        clock: Clock,
        now: Global,
        random: &mut Random,
    ) -> Self {
        let wall_ms = 1_700_000_000_000 + random.below(1000) as i64;
        let life = Life::new(random.bytes(), random.bytes(), clock.on_server(now), wall_ms);
        // The server has run for a long time before the first client connects.
        let life = life.age(Duration::from_secs(3600));
        Self {
            server: Server::new(options, life),
            clock,
            life: 0,
            is_up: true,
            is_frozen: false,
            is_replica: false,
            goes_on: false,
            refuses_until: 0,
            back_ms: 0,
            draining: None,
            forgot_at: None,
            unwell_until: 0,
            conns: Vec::new(),
        }
    }

    /// Begins another process life.
    pub(super) fn start(&mut self, kept: bool, now: Global, random: &mut Random) {
        let local = self.clock.on_server(now);
        let wall_ms = self.server.wall_ms(local);
        let life = Life::new(random.bytes(), random.bytes(), local, wall_ms);
        if !kept {
            self.forgot_at = Some(now);
        }
        self.server.restart(life, if kept { Memory::Kept } else { Memory::Lost });
        self.is_up = true;
        self.is_frozen = false;
        self.draining = None;
    }
}

impl World {
    /// Bytes of a connection reach its server's receive buffer.
    pub(super) fn reaches_server(&mut self, id: usize) {
        let conn = &mut self.conns[id];
        let node = &mut self.nodes[conn.node];
        while let Some(bytes) = conn.up.arrived(self.now) {
            if conn.session.is_some() && node.is_up && conn.life == node.life {
                append(&mut conn.backlog, bytes);
            }
        }
        if !node.is_frozen && node.draining.is_none() {
            self.run_conn(id, usize::MAX);
        }
    }

    /// The server runs up to `limit` bytes of what it received on a connection.
    fn run_conn(&mut self, id: usize, limit: usize) {
        let conn = &mut self.conns[id];
        let node = &mut self.nodes[conn.node];
        if !node.is_up || conn.life != node.life {
            conn.backlog.clear();
            return;
        }
        let Some(mut session) = conn.session.take() else { return };
        let len = conn.backlog.len().min(limit);
        let local = node.clock.on_server(self.now);
        let (client, index) = (conn.client, conn.node);
        let rest = conn.backlog.split_off(len);
        let received = std::mem::replace(&mut conn.backlog, rest);
        let (mut out, mut progress) = (Vec::with_capacity(OUT_LEN), Progress::Idle);
        let mut before = self.tokens_at(index);
        for command in commands(&received) {
            let claims = self.claims_at(index);
            let server = &mut self.nodes[index].server;
            progress = server.execute(&mut session, command, local, &mut out);
            while progress == Progress::More {
                progress = server.execute(&mut session, &[], local, &mut out);
            }
            if claims.is_empty() && self.holds_as_before(index, &before) {
                continue;
            }
            let after = self.tokens_at(index);
            self.look_at_claims(id, [&before, &after], claims);
            self.look_at_deletes(client, index, &before, &after);
            before = after;
        }
        log_exchange(self.trace, self.now, id, &received, &out);
        let conn = &mut self.conns[id];
        let is_over = conn.is_left && conn.up.len() == 0 && conn.backlog.is_empty();
        let (resp3, client, node) = (session.is_resp3(), conn.client, conn.node);
        if conn.is_left && len > 0 {
            self.counts.path(Path::GhostRan);
        }
        if is_over || progress == Progress::Close {
            self.nodes[node].server.disconnect(session);
        } else {
            conn.session = Some(session);
        }
        if !out.is_empty() {
            self.note_replies(id, &out);
            self.lie(id, &mut out);
            if resp3 && self.random.chance(self.plan.push) && !self.conns[id].is_left {
                self.counts.fault(Fault::Push);
                let push: &[u8] = b">2\r\n$10\r\ninvalidate\r\n_\r\n";
                let place = if self.random.chance(500) { 0 } else { out.len() };
                out.splice(place..place, push.iter().copied());
            }
            self.send_down(id, out);
        }
        self.carry(node);
        if progress == Progress::Close {
            let after = self.delay(client, node);
            self.after(after, Event::Ended { conn: id, reset: false });
        }
        self.forge(node);
    }

    /// Notes the errors that a server answers, and whether it said that it is a replica.
    fn note_replies(&mut self, id: usize, out: &[u8]) {
        const ERRORS: [(&[u8], Path); 8] = [
            (b"-READONLY", Path::ReadOnly),
            (b"-OOM", Path::Oom),
            (b"-MISCONF", Path::MisconfReply),
            (b"-BUSY", Path::BusyReply),
            (b"-NOREPLICAS", Path::NoReplicasReply),
            (b"-LOADING", Path::LoadingReply),
            (b"-MASTERDOWN", Path::MasterDownReply),
            (b"-NOPERM", Path::NoPermission),
        ];
        let conn = &mut self.conns[id];
        let node = &self.nodes[conn.node];
        let mut rest = out;
        while !rest.is_empty() {
            let (line, after) = rest.split_at(find(rest, b'\n').map_or(rest.len(), |end| end + 1));
            rest = after;
            if line.first() == Some(&b'-') {
                for (start, path) in ERRORS {
                    if line.starts_with(start) {
                        self.counts.path(path);
                    }
                }
                let told: [&[u8]; 3] = [b"-READONLY", b"-MASTERDOWN", b"-LOADING"];
                conn.is_told |= told.iter().any(|start| line.starts_with(start));
            } else if line.starts_with(b"master_replid:") && !node.server.is_loading() {
                conn.is_told |= node.is_replica;
            }
        }
    }

    pub(super) fn send_down(&mut self, id: usize, out: Vec<u8>) {
        let conn = &mut self.conns[id];
        if conn.is_left || conn.is_broken {
            return;
        }
        let (client, node) = (conn.client, conn.node);
        for piece in self.cut(out) {
            let at = self.now + self.delay(client, node);
            let at = self.conns[id].down.send(piece, at);
            self.at(at, Event::Down { conn: id });
        }
    }

    /// Cuts bytes into the pieces that they travel in: mostly one.
    pub(super) fn cut(&mut self, mut bytes: Vec<u8>) -> SmallVec<[Vec<u8>; 1]> {
        let mut pieces = SmallVec::new();
        if bytes.len() > 1 && self.random.chance(self.plan.split) {
            self.counts.fault(Fault::SplitWrite);
            for _ in 0..self.random.between(1, 3) {
                if bytes.len() > 1 {
                    let at = self.random.between(1, bytes.len() as u64 - 1) as usize;
                    let rest = bytes.split_off(at);
                    pieces.push(std::mem::replace(&mut bytes, rest));
                }
            }
        }
        pieces.push(bytes);
        pieces
    }

    /// The server runs again. First it runs what it had received meanwhile: a portion of one
    /// connection, then of another, closed connections included.
    pub(super) fn thaw(&mut self, node: usize) {
        if !std::mem::take(&mut self.nodes[node].is_frozen) {
            return;
        }
        let conns = std::mem::take(&mut self.nodes[node].conns);
        let has_more = |id: &usize| {
            let conn = &self.conns[*id];
            conn.session.is_some() || !conn.backlog.is_empty()
        };
        let conns: Vec<usize> = conns.into_iter().filter(has_more).collect();
        let waiting: usize = conns.iter().map(|&id| self.conns[id].backlog.len()).sum();
        self.nodes[node].conns = conns;
        let portions = waiting as u64 / self.plan.portion + 2;
        // A release that is sent once more, `node_timeout` later, must find the backlog done.
        let lasts = self.random.between(1, self.plan.node_timeout * 3 / 4);
        let ghosts = |id: &usize| self.conns[*id].is_left && !self.conns[*id].backlog.is_empty();
        let ghosts: Vec<usize> = self.nodes[node].conns.iter().copied().filter(ghosts).collect();
        let is_starved = !ghosts.is_empty() && self.random.chance(600);
        let starved = is_starved.then(|| ghosts[self.random.index(ghosts.len())]);
        let drain = Drain { until: self.now + lasts, every: lasts / portions, starved };
        self.nodes[node].draining = Some(drain);
        self.at(self.now, Event::Drain { node });
    }

    /// One portion of what a thawed server had received.
    pub(super) fn drain(&mut self, index: usize) {
        let node = &self.nodes[index];
        let Some(drain) = node.draining else { return };
        if node.is_frozen || !node.is_up {
            self.nodes[index].draining = None;
            return;
        }
        let is_late = self.now >= drain.until;
        let waiting: Vec<usize> =
            node.conns.iter().copied().filter(|&id| !self.conns[id].backlog.is_empty()).collect();
        let ready: Vec<usize> =
            waiting.iter().copied().filter(|id| is_late || drain.starved != Some(*id)).collect();
        if waiting.is_empty() && (is_late || drain.starved.is_none()) {
            self.nodes[index].draining = None;
        } else if is_late {
            for id in waiting {
                self.run_waiting(id, usize::MAX);
            }
            self.nodes[index].draining = None;
        } else {
            if !ready.is_empty() {
                let id = ready[self.random.index(ready.len())];
                self.run_waiting(id, self.plan.portion as usize);
            }
            let after = self.random.between(drain.every / 2, drain.every).max(US);
            let at = (self.now + after).min(drain.until);
            self.at(at, Event::Drain { node: index });
        }
    }

    fn run_waiting(&mut self, id: usize, limit: usize) {
        self.run_conn(id, limit);
        // A server that has let go of its end has nothing to run.
        if self.conns[id].session.is_none() {
            self.conns[id].backlog.clear();
        }
    }
}

/// Room for most of the answers that a server gives at a time.
const OUT_LEN: usize = 128;

/// Cuts bytes where a command begins: the judge looks at each command alone.
fn commands(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let mut len = 0;
        while len < bytes.len() && (len == 0 || !bytes[..len].ends_with(b"\r\n")) {
            len += 1;
            len += find(&bytes[len..], b'*').unwrap_or(bytes.len() - len);
        }
        let (command, rest) = bytes.split_at(len);
        bytes = rest;
        (len > 0).then_some(command)
    })
}

/// The place of a byte. `skip_until` compares many bytes at a time, which saves a twentieth of a
/// seed's run time.
fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    let mut rest = bytes;
    rest.skip_until(wanted).expect("a slice can be read");
    let len = bytes.len() - rest.len();
    (bytes[..len].last() == Some(&wanted)).then(|| len - 1)
}

/// Traces what a server ran and what it said.
fn log_exchange(trace: Option<fn(&str)>, now: Global, conn: usize, ran: &[u8], said: &[u8]) {
    if let Some(trace) = trace {
        let text = |bytes: &[u8]| {
            let text = bytes[..bytes.len().min(6000)].escape_ascii().to_string();
            let words = text.split("\\r\\n").filter(|word| !word.starts_with(['*', '$']));
            words.collect::<Vec<_>>().join(" ")
        };
        trace(&format!("{now:>14} connection {conn} runs {}: {}", text(ran), text(said)));
    }
}

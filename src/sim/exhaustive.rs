//! Every order of delivery and loss for two clients and three nodes: one key, one attempt each.
//!
//! # Method
//!
//! A schedule is a row of steps: a server runs the next message of a connection, a client reads the
//! next one, a connection is lost (what was on its way to the server is lost with it, or runs
//! later), a client reconnects, a client's round times out, all locks of now end everywhere. Schedules that show every client and
//! every server the same row of happenings lead to the same state, so each such state is built
//! once, and the schedules that lead through it are counted.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::config::{Config, RestartGuard};
use crate::engine::{Connection, Engine, Event, LeaseId};
use crate::error::Cause;
use crate::options::LockOptions;
use crate::quorum::NodeId;
use crate::time::Instant;
use redbolt_embedded::Flavor;
use redbolt_embedded::model::{Life, Progress, Server, ServerOptions, Session};

const CLIENTS: usize = 2;
const NODES_MAX: usize = 3;
const KEY: &[u8] = b"key";
const TTL: Duration = Duration::from_secs(10);

/// What a search is to cover.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a test fills it in")]
pub struct Limits {
    /// Nodes, three at most. Two need both votes: what two kinds of trouble together have for orders
    /// is too much for three.
    pub nodes: usize,
    /// How often the first client's connection to the first node is lost, at most. Clients and nodes
    /// are alike, so this stands for any of them.
    pub losses: u32,
    /// Clients whose round may time out at any time, before its answers are read.
    pub timeouts: usize,
    /// Whether a client that won releases at once, rather than holding on.
    pub releases: bool,
    /// How often a TTL passes, for all, at any time.
    pub ttls: u32,
}

/// What a search has covered.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Coverage {
    /// Orders of steps from beginning to end.
    pub schedules: u128,
    /// States that they lead through.
    pub states: usize,
    /// Ends in which the first client, the second, or none holds the lock or has held it.
    pub won: [usize; CLIENTS + 1],
}

/// One happening. Its first number is the client, the second the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Run(usize, usize),
    /// The server runs what a lost connection had left.
    RunLeft(usize, usize),
    Read(usize, usize),
    Lose {
        client: usize,
        node: usize,
        keeps: bool,
    },
    Reconnect(usize, usize),
    TimeOut(usize),
    /// A TTL passes.
    Pass,
}

/// Goes through all schedules within `limits`.
///
/// # Errors
///
/// The first schedule that ends as none may, and how.
pub fn explore(limits: Limits) -> Result<Coverage, String> {
    let mut search = Search { limits, known: HashMap::new(), coverage: Coverage::default() };
    let schedules = search.visit(&mut Vec::new(), &History::default())?;
    search.coverage.schedules = schedules;
    search.coverage.states = search.known.len();
    Ok(search.coverage)
}

/// What each client and each server has seen, in order.
type Seen = [Vec<u16>; CLIENTS + NODES_MAX];

/// A row of happenings as everybody sees it.
#[derive(Clone, Debug, Default)]
struct History {
    seen: Seen,
    /// How much each client had seen when its attempt ended. From there on the order of different
    /// nodes is the same to it.
    ended_at: [Option<usize>; CLIENTS],
}

impl History {
    fn with(&self, step: Step) -> Self {
        let mut next = self.clone();
        let (actor, kind, other) = match step {
            Step::Run(client, node) => (CLIENTS + node, 0, client),
            Step::RunLeft(client, node) => (CLIENTS + node, 1, client),
            Step::Read(client, node) => (client, 2, node),
            // What is lost is what the server has not run by then.
            Step::Lose { client, node, keeps } => {
                let ran = self.seen[CLIENTS + node].len();
                (client, 3 + usize::from(keeps) + 8 * ran, node)
            }
            Step::Reconnect(client, node) => (client, 5, node),
            Step::TimeOut(client) => (client, 6, 0),
            Step::Pass => {
                for row in &mut next.seen {
                    row.push(PASS);
                }
                return next;
            }
        };
        let row = &mut next.seen[actor];
        row.push((kind * NODES_MAX + other) as u16);
        if let Some(&Some(ended_at)) = self.ended_at.get(actor) {
            let passed_at = row.iter().rposition(|code| *code == PASS).map_or(0, |at| at + 1);
            row[ended_at.max(passed_at)..].sort_by_key(|code| usize::from(*code) % NODES_MAX);
        }
        next
    }
}

/// Everybody sees that a TTL passes.
const PASS: u16 = u16::MAX;

struct Search {
    limits: Limits,
    /// Schedules from each state on.
    known: HashMap<Seen, u128>,
    coverage: Coverage,
}

impl Search {
    fn visit(&mut self, path: &mut Vec<Step>, history: &History) -> Result<u128, String> {
        if let Some(&schedules) = self.known.get(&history.seen) {
            return Ok(schedules);
        }
        let mut world = World::new(self.limits);
        for &step in path.iter() {
            world.take(step);
        }
        let fault = |what: String| format!("{what} after {path:?}");
        world.check().map_err(fault)?;
        let mut history = history.clone();
        for (client, this) in world.clients.iter().enumerate() {
            if this.has_ended && history.ended_at[client].is_none() {
                history.ended_at[client] = Some(history.seen[client].len());
            }
        }
        let steps = world.steps();
        let mut schedules = 0;
        if steps.is_empty() {
            world.check_end().map_err(fault)?;
            let winner = world.clients.iter().position(|client| client.has_won);
            self.coverage.won[winner.unwrap_or(CLIENTS)] += 1;
            schedules = 1;
        }
        for step in steps {
            path.push(step);
            schedules += self.visit(path, &history.with(step))?;
            path.pop();
        }
        self.known.insert(history.seen, schedules);
        Ok(schedules)
    }
}

struct World {
    limits: Limits,
    clients: Vec<Client>,
    servers: Vec<Server>,
    /// By client, then by node.
    conns: Vec<Vec<Conn>>,
    lost: u32,
    /// The clock of all servers, and how many TTLs have passed.
    now: Instant,
    passed: u32,
    /// What servers ran of lost connections after the debts were paid, and which did: the TTL is for
    /// that.
    too_late: Vec<(usize, Vec<u8>)>,
}

struct Client {
    engine: Engine,
    now: Instant,
    has_ended: bool,
    has_won: bool,
    lease: Option<LeaseId>,
    timeouts: u32,
}

#[derive(Default)]
struct Conn {
    session: Option<Session>,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    left: VecDeque<Vec<u8>>,
    left_session: Option<Session>,
    is_wanted: bool,
    was_reconnected: bool,
}

impl World {
    fn new(limits: Limits) -> Self {
        let start = Instant::from_nanos(1_000_000_000);
        let names = (0..limits.nodes).map(|node| format!("n{node}:1"));
        let config = Config::new(names).expect("the names differ").direct_wake(false);
        let config = config.restart_guard(RestartGuard::Off);
        let servers = (0..limits.nodes).map(|node| {
            let life = Life::new([node as u8; 20], [9; 20], on_server(start), 1_700_000_000_000);
            Server::new(&ServerOptions::new(Flavor::Valkey91), life)
        });
        let clients = (0..CLIENTS).map(|client| Client {
            engine: Engine::new(&config, [client as u8; 32], start).expect("it is valid"),
            now: start,
            has_ended: false,
            has_won: false,
            lease: None,
            timeouts: 0,
        });
        let mut world = Self {
            limits,
            clients: clients.collect(),
            servers: servers.collect(),
            conns: (0..CLIENTS)
                .map(|_| (0..limits.nodes).map(|_| Conn::default()).collect())
                .collect(),
            lost: 0,
            now: start,
            passed: 0,
            too_late: Vec::new(),
        };
        for client in 0..CLIENTS {
            world.turn(client);
            for node in 0..limits.nodes {
                world.connect(client, node);
            }
            let this = &mut world.clients[client];
            let begun = this.engine.acquire(KEY, &LockOptions::new(TTL), this.now);
            begun.expect("nothing speaks against it");
            world.turn(client);
        }
        world
    }

    /// Opens a connection and greets, as one step.
    fn connect(&mut self, client: usize, node: usize) {
        let id = node_id(node);
        let this = &mut self.clients[client];
        self.conns[client][node].session = Some(self.servers[node].connect());
        this.engine.handle_connected(id, this.now);
        let len = this.engine.output(id).len();
        this.engine.handle_sent(id, len);
        this.engine.handle_bytes(id, HELLO, this.now);
        let info = format!("run_id:{node}\r\nuptime_in_seconds:9999\r\nrole:master\r\n");
        let info = format!("${}\r\n{info}\r\n", info.len());
        for _ in 0..4 {
            this.engine.handle_bytes(id, info.as_bytes(), this.now);
        }
        self.turn(client);
    }

    /// A pass of the client's loop: results, connections, output.
    fn turn(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.engine.handle_timeout(this.now);
        while let Some(event) = this.engine.poll_event(this.now) {
            if let Event::Lock { result, .. } = event {
                this.has_ended = true;
                this.lease = result.ok();
                this.has_won = this.lease.is_some();
                if let Some(lease) = this.lease.filter(|_| self.limits.releases) {
                    this.engine.release(lease, this.now);
                    this.lease = None;
                }
            }
        }
        while let Some((node, wish)) = this.engine.poll_connection() {
            self.conns[client][node.index()].is_wanted = wish == Connection::Open;
        }
        for id in this.engine.nodes_with_output() {
            let output = this.engine.output(id).to_vec();
            this.engine.handle_sent(id, output.len());
            self.conns[client][id.index()].up.push_back(output);
        }
    }

    /// What may happen next.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for client in 0..CLIENTS {
            for node in 0..self.limits.nodes {
                let conn = &self.conns[client][node];
                if !conn.left.is_empty() {
                    steps.push(Step::RunLeft(client, node));
                }
                if conn.session.is_none() {
                    if conn.is_wanted {
                        steps.push(Step::Reconnect(client, node));
                    }
                    continue;
                }
                if !conn.up.is_empty() {
                    steps.push(Step::Run(client, node));
                }
                if !conn.down.is_empty() {
                    steps.push(Step::Read(client, node));
                }
                let is_busy = !conn.up.is_empty() || !conn.down.is_empty();
                // Clients and nodes are alike: whoever loses is called the first.
                if is_busy && self.lost < self.limits.losses && client + node == 0 {
                    steps.push(Step::Lose { client, node, keeps: false });
                    if !conn.up.is_empty() {
                        steps.push(Step::Lose { client, node, keeps: true });
                    }
                }
            }
            let this = &self.clients[client];
            if client < self.limits.timeouts && !this.has_ended && this.timeouts == 0 {
                steps.push(Step::TimeOut(client));
            }
        }
        let is_going_on = !steps.is_empty();
        if is_going_on && self.passed < self.limits.ttls {
            steps.push(Step::Pass);
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Run(client, node) => {
                let conn = &mut self.conns[client][node];
                if let (Some(bytes), Some(session)) = (conn.up.pop_front(), &mut conn.session) {
                    let reply = run(&mut self.servers[node], session, &bytes, self.now);
                    conn.down.push_back(reply);
                }
            }
            Step::RunLeft(client, node) => {
                let conn = &mut self.conns[client][node];
                if let (Some(bytes), Some(session)) =
                    (conn.left.pop_front(), &mut conn.left_session)
                {
                    run(&mut self.servers[node], session, &bytes, self.now);
                    if conn.was_reconnected {
                        self.too_late.push((node, bytes));
                    }
                }
            }
            Step::Read(client, node) => {
                if let Some(bytes) = self.conns[client][node].down.pop_front() {
                    let this = &mut self.clients[client];
                    this.engine.handle_bytes(node_id(node), &bytes, this.now);
                }
                self.turn(client);
            }
            Step::Lose { client, node, keeps } => {
                let conn = &mut self.conns[client][node];
                let left = std::mem::take(&mut conn.up);
                conn.down.clear();
                conn.left_session = conn.session.take();
                if keeps {
                    conn.left = left;
                }
                self.lost += 1;
                let this = &mut self.clients[client];
                this.engine.handle_lost(node_id(node), Cause::Network, this.now);
                self.turn(client);
            }
            Step::Reconnect(client, node) => {
                let conn = &mut self.conns[client][node];
                conn.is_wanted = false;
                conn.was_reconnected = true;
                self.connect(client, node);
            }
            Step::TimeOut(client) => {
                let this = &mut self.clients[client];
                this.timeouts += 1;
                this.now = this.now + Duration::from_millis(50);
                self.turn(client);
            }
            Step::Pass => {
                self.passed += 1;
                self.now = self.now + TTL;
                for client in 0..CLIENTS {
                    let this = &mut self.clients[client];
                    this.now = this.now + TTL;
                    self.turn(client);
                }
            }
        }
    }

    /// What must hold at any time.
    fn check(&self) -> Result<(), String> {
        let is_held = |client: &&Client| {
            let left = |lease| client.engine.remaining_at(lease, client.now);
            client.lease.is_some_and(|lease| !left(lease).is_zero())
        };
        let holders = self.clients.iter().filter(is_held).count();
        if holders > 1 { Err("two clients hold the lock".to_owned()) } else { Ok(()) }
    }

    /// What must hold when nothing more will happen.
    fn check_end(&mut self) -> Result<(), String> {
        if let Some(client) = self.clients.iter().position(|client| !client.has_ended) {
            return Err(format!("the attempt of client {client} has not ended"));
        }
        for (client, this) in self.clients.iter().enumerate() {
            let slots = this.engine.slots_in_use();
            let most = usize::from(this.lease.is_some());
            // A payment that is to be made once more waits for its time.
            if slots > most && self.lost == 0 {
                return Err(format!("client {client} remembers {slots} attempts"));
            }
        }
        let now = self.clients[0].now.max(self.clients[1].now);
        for (node, server) in self.servers.iter_mut().enumerate() {
            let Some(value) = server.value(KEY, on_server(now)) else { continue };
            let is_held = self.clients.iter().any(|client| {
                let name = client.lease.and_then(|lease| client.engine.lease_name(lease));
                name.is_some_and(|(_, token)| token.as_bytes() == value)
            });
            let is_late = |(at, ran): &(usize, Vec<u8>)| {
                *at == node && ran.windows(value.len()).any(|part| part == value)
            };
            if !is_held && !self.too_late.iter().any(is_late) {
                return Err(format!("node {node} is left with a key that nobody holds"));
            }
        }
        Ok(())
    }
}

/// The time as a server counts it.
const fn on_server(now: Instant) -> redbolt_embedded::Instant {
    redbolt_embedded::Instant::from_nanos(now.as_nanos())
}

fn run(server: &mut Server, session: &mut Session, bytes: &[u8], now: Instant) -> Vec<u8> {
    let mut out = Vec::new();
    let progress = server.execute(session, bytes, on_server(now), &mut out);
    debug_assert_eq!(progress, Progress::Idle, "a lock's commands are few and well formed");
    out
}

fn node_id(node: usize) -> NodeId {
    NodeId::new(node).expect("there are three")
}

const HELLO: &[u8] = b"%3\r\n+server\r\n+valkey\r\n+version\r\n+9.1.2\r\n+proto\r\n:3\r\n";

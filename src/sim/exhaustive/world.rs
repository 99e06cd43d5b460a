//! The clients, the servers and what is on its way between them.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;

use super::{CLIENTS, ENDLESS, Limits, STEPS_MAX, Step, sets, transfer};
use crate::config::Config;
use crate::engine::{Connection, Engine, Event, LeaseId};
use crate::error::Cause;
use crate::guards::RestartGuard;
use crate::options::LockOptions;
use crate::quorum::NodeId;
use crate::time::Instant;
use crate::token::LockToken;
use redbolt_embedded::Flavor;
use redbolt_embedded::model::{Life, Progress, Server, ServerOptions, Session};

pub(super) const KEY: &[u8] = b"key";
pub(super) const TTL: Duration = Duration::from_secs(10);

/// Keys live a little longer than their TTL.
const MORE: Duration = Duration::from_millis(2);

#[derive(Clone)]
pub(super) struct World {
    limits: Limits,
    pub(super) releases_at_once: bool,
    pub(super) clients: Vec<Part<Client>>,
    servers: Vec<Part<Server>>,
    /// By client, then by node.
    conns: Vec<Vec<Part<Conn>>>,
    lost: u32,
    /// The client that won first.
    pub(super) first: Option<usize>,
    /// The clock of all servers, and how many TTLs have passed.
    pub(super) now: Instant,
    passed: u32,
    /// The SETs of lost connections that servers ran after the debts were paid, and the server of
    /// each. Only the TTL ends their keys.
    too_late: Vec<(usize, Vec<u8>)>,
}

/// A part that worlds share until one of them changes it.
pub(super) struct Part<T>(Rc<T>);

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Part<T> {
    fn deref_mut(&mut self) -> &mut T {
        Rc::make_mut(&mut self.0)
    }
}

impl<T> Part<T> {
    fn new(part: T) -> Self {
        Self(Rc::new(part))
    }
}

#[derive(Clone)]
pub(super) struct Client {
    pub(super) engine: Engine,
    pub(super) now: Instant,
    pub(super) has_ended: bool,
    pub(super) has_won: bool,
    pub(super) has_released: bool,
    pub(super) lease: Option<LeaseId>,
    timers: u32,
}

#[derive(Clone, Default)]
struct Conn {
    session: Option<Session>,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    left: VecDeque<Vec<u8>>,
    /// The session of a lost connection whose end the server has not seen yet.
    left_session: Option<Session>,
    is_wanted: bool,
    was_reconnected: bool,
}

impl World {
    pub(super) fn new(limits: Limits) -> Self {
        let start = Instant::from_nanos(1_000_000_000);
        let names = (0..limits.nodes).map(|node| format!("n{node}:1"));
        let config = Config::new(names)
            .expect("the names differ")
            .direct_wake(limits.transfer || limits.sets);
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
            has_released: false,
            lease: None,
            timers: 0,
        });
        let mut world = Self {
            limits,
            releases_at_once: limits.releases && !limits.transfer,
            clients: clients.map(Part::new).collect(),
            servers: servers.map(Part::new).collect(),
            conns: (0..CLIENTS)
                .map(|_| (0..limits.nodes).map(|_| Part::new(Conn::default())).collect())
                .collect(),
            lost: 0,
            first: None,
            now: start,
            passed: 0,
            too_late: Vec::new(),
        };
        for client in 0..CLIENTS {
            world.turn(client);
            for node in 0..limits.nodes {
                world.connect(client, node);
            }
        }
        if limits.transfer {
            world.begin_transfer();
            world.releases_at_once = limits.releases;
        } else if limits.sets {
            world.begin_sets();
        } else {
            for client in 0..CLIENTS {
                world.acquire(client, &LockOptions::new(TTL));
            }
        }
        world
    }

    pub(super) fn acquire(&mut self, client: usize, options: &LockOptions) {
        let this = &mut *self.clients[client];
        this.engine.acquire(KEY, options, this.now).expect("nothing speaks against it");
        self.turn(client);
    }

    /// The client's holder lets go of its lock.
    pub(super) fn release(&mut self, client: usize) {
        let this = &mut *self.clients[client];
        if let Some(lease) = this.lease {
            this.has_released = true;
            this.engine.release(lease, this.now);
        }
    }

    /// Opens a connection and greets, as one step.
    fn connect(&mut self, client: usize, node: usize) {
        let id = node_id(node);
        let this = &mut *self.clients[client];
        let mut session = self.servers[node].connect();
        this.engine.handle_connected(id, this.now);
        while !this.engine.serves(id) {
            let greeting = this.engine.output(id).to_vec();
            assert!(!greeting.is_empty(), "the greeting is admitted in the end");
            this.engine.handle_sent(id, greeting.len());
            let reply = run(&mut self.servers[node], &mut session, &greeting, self.now);
            this.engine.handle_bytes(id, &reply, this.now);
        }
        self.conns[client][node].session = Some(session);
        self.turn(client);
    }

    /// The deletes that are owed may come to the server apart from the subscriptions in front of
    /// them.
    fn split(&mut self, client: usize, node: usize) {
        let up = &mut self.conns[client][node].up;
        let mut written: Vec<u8> = up.drain(..).flatten().collect();
        let owed = place(&written, b"*3\r\n$7\r\nDELIFEQ").unwrap_or(written.len());
        let owed = written.split_off(owed);
        up.extend([written, owed].into_iter().filter(|bytes| !bytes.is_empty()));
    }

    /// A pass of the client's loop: results, connections, output.
    pub(super) fn turn(&mut self, client: usize) {
        let this = &mut *self.clients[client];
        this.engine.handle_timeout(this.now);
        while let Some(event) = this.engine.poll_event(this.now) {
            if let Event::Lock { result, .. } = event {
                this.has_ended = true;
                this.lease = result.ok();
                this.has_won = this.lease.is_some();
                self.first = self.first.or_else(|| this.has_won.then_some(client));
                if self.releases_at_once {
                    self.release(client);
                }
                return self.turn(client);
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

    /// Whether the order of different nodes makes no difference to the client from now on.
    pub(super) fn is_done(&self, client: usize) -> bool {
        let this = &self.clients[client];
        // Another call for the same keys tells this client that it waits.
        if self.limits.sets {
            return false;
        }
        if !self.limits.transfer {
            return this.has_ended;
        }
        // The order makes a difference to the holder only for announcements that the waiter
        // repeats, and for messages to the waiter that no client hears.
        let Limits { timers, lost, .. } = self.limits;
        this.has_released && (timers.is_empty() || lost.is_empty())
    }

    /// How many steps come in all orders.
    pub(super) const fn depth(&self) -> usize {
        self.limits.depth
    }

    /// The keys of the locks.
    const fn keys(&self) -> &'static [&'static [u8]] {
        if self.limits.sets { &sets::KEYS } else { &[KEY] }
    }

    /// The steps that may come next without a fault.
    fn deliveries(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for client in 0..CLIENTS {
            for node in 0..self.limits.nodes {
                let conn = &self.conns[client][node];
                let is_end_unseen = conn.left_session.is_some() && self.limits.transfer;
                if !conn.left.is_empty() || is_end_unseen {
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
            }
        }
        steps
    }

    /// A step that may as well come before any other step: a client to which the order of nodes
    /// makes no difference reads at once.
    fn first_step(&self, steps: &[Step]) -> Option<Step> {
        let Limits { transfer, lost, ttls, .. } = self.limits;
        let may_lose = |place: (usize, usize)| self.lost == 0 && lost.contains(&place);
        let is_first = |step: &&Step| match **step {
            Step::Read(client, node) => self.is_done(client) && !may_lose((client, node)),
            Step::Reconnect(client, _) => self.is_done(client),
            _ => false,
        };
        steps.iter().find(is_first).copied().filter(|_| transfer && self.passed == ttls)
    }

    /// The steps that may come next.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = self.deliveries();
        if let Some(step) = self.first_step(&steps) {
            return vec![step];
        }
        let Limits { transfer, lost, timers, ttls, .. } = self.limits;
        for &(client, node) in lost.iter().filter(|_| self.lost == 0) {
            let conn = &self.conns[client][node];
            let is_busy = !conn.up.is_empty() || !conn.down.is_empty();
            if conn.session.is_some() && (is_busy || transfer) {
                steps.push(Step::Lose { client, node, keeps: false });
                if transfer || !conn.up.is_empty() {
                    steps.push(Step::Lose { client, node, keeps: true });
                }
            }
        }
        for &client in timers {
            let this = &self.clients[client];
            if !this.has_ended && this.timers == 0 {
                steps.push(Step::Timer(client));
            }
        }
        if !steps.is_empty() && self.passed < ttls {
            steps.push(Step::Pass);
        }
        steps
    }

    pub(super) fn take(&mut self, step: Step) {
        match step {
            Step::Run(client, node) => {
                let conn = &mut *self.conns[client][node];
                if let (Some(bytes), Some(session)) = (conn.up.pop_front(), &mut conn.session) {
                    let reply = run(&mut self.servers[node], session, &bytes, self.now);
                    conn.down.push_back(reply);
                    self.deliver(node);
                }
            }
            Step::RunLeft(client, node) => {
                let conn = &mut *self.conns[client][node];
                if let (Some(bytes), Some(session)) =
                    (conn.left.pop_front(), &mut conn.left_session)
                {
                    run(&mut self.servers[node], session, &bytes, self.now);
                    if conn.was_reconnected && has(&bytes, b"\r\nSET\r\n") {
                        self.too_late.push((node, bytes));
                    }
                }
                if conn.left.is_empty()
                    && let Some(session) = conn.left_session.take()
                {
                    self.servers[node].disconnect(session);
                }
                self.deliver(node);
            }
            Step::Read(client, node) => {
                if let Some(bytes) = self.conns[client][node].down.pop_front() {
                    let this = &mut *self.clients[client];
                    this.engine.handle_bytes(node_id(node), &bytes, this.now);
                }
                self.turn(client);
            }
            Step::Lose { client, node, keeps } => {
                let conn = &mut *self.conns[client][node];
                let left = std::mem::take(&mut conn.up);
                conn.down.clear();
                let session = conn.session.take();
                if keeps {
                    (conn.left, conn.left_session) = (left, session);
                } else if let Some(session) = session {
                    self.servers[node].disconnect(session);
                }
                self.lost += 1;
                let this = &mut *self.clients[client];
                this.engine.handle_lost(node_id(node), Cause::Network, this.now);
                self.turn(client);
            }
            Step::Reconnect(client, node) => {
                let conn = &mut *self.conns[client][node];
                conn.is_wanted = false;
                conn.was_reconnected = true;
                self.connect(client, node);
                if self.limits.transfer && client == transfer::WAITER {
                    self.split(client, node);
                }
            }
            Step::Timer(client) => {
                let this = &mut *self.clients[client];
                this.timers += 1;
                let due = this.engine.next_deadline().unwrap_or(this.now);
                this.now = this.now.max(due);
                self.turn(client);
            }
            Step::Pass => {
                self.passed += 1;
                self.pass(TTL + MORE);
            }
        }
    }

    /// Time passes for all.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for client in 0..CLIENTS {
            let this = &mut *self.clients[client];
            this.now = this.now + time;
            self.turn(client);
        }
    }

    /// The server's messages to other clients go on their way.
    fn deliver(&mut self, node: usize) {
        for delivery in self.servers[node].deliveries() {
            for conns in &mut self.conns {
                let conn = &mut conns[node];
                if conn.session.as_ref().is_some_and(|session| session.id() == delivery.session) {
                    conn.down.push_back(delivery.bytes.clone());
                }
            }
        }
    }

    /// Everything that is on its way arrives, and everything that follows from it.
    pub(super) fn arrive(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            let Some(&step) = self.deliveries().first() else { return Ok(()) };
            self.take(step);
        }
        Err(ENDLESS.to_owned())
    }

    /// What must hold at any time.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut holders = 0;
        for (client, this) in self.clients.iter().enumerate() {
            let Some(lease) = this.lease else { continue };
            let left = this.engine.remaining_at(lease, this.now);
            if left.is_zero() {
                continue;
            }
            holders += 1;
            let now = on_server(self.now);
            let left_ms = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
            for (key, token) in names(&this.engine, lease) {
                let is_ground = |server: &&Part<Server>| {
                    server.value(&key, now) == Some(token.as_bytes())
                        && server.ttl_ms(&key, now).is_some_and(|ttl_ms| ttl_ms >= left_ms)
                };
                let votes = self.servers.iter().filter(is_ground).count();
                if votes <= self.limits.nodes / 2 {
                    return Err(format!(
                        "client {client} holds for {left:?} what {votes} nodes hold for it"
                    ));
                }
            }
        }
        if holders > 1 { Err("two clients hold the lock".to_owned()) } else { Ok(()) }
    }

    /// What must hold when nothing more will happen.
    pub(super) fn check_end(&mut self) -> Result<(), String> {
        if self.limits.transfer {
            return self.check_transfer();
        }
        if self.limits.sets {
            return self.check_sets();
        }
        if let Some(client) = self.clients.iter().position(|client| !client.has_ended) {
            return Err(format!("the attempt of client {client} has not ended"));
        }
        for (client, this) in self.clients.iter().enumerate() {
            let slots = this.engine.slots_in_use();
            let most = usize::from(this.lease.is_some() && !this.has_released);
            // A debt that is to be paid once more waits for its time.
            if slots > most && self.lost == 0 {
                return Err(format!("client {client} remembers {slots} attempts"));
            }
        }
        self.check_keys()
    }

    /// No key is left that no client holds.
    pub(super) fn check_keys(&self) -> Result<(), String> {
        let now = self.clients[0].now.max(self.clients[1].now);
        let keys = self.keys();
        for (node, server) in self.servers.iter().enumerate() {
            for key in keys {
                let Some(value) = server.value(key, on_server(now)) else { continue };
                let is_held = self.clients.iter().any(|client| {
                    let held = client.lease.map(|lease| names(&client.engine, lease));
                    let mut held = held.into_iter().flatten();
                    held.any(|(held, token)| held == *key && token.as_bytes() == value)
                });
                let is_late = |(at, ran): &(usize, Vec<u8>)| *at == node && has(ran, value);
                if !is_held && !self.too_late.iter().any(is_late) {
                    return Err(format!("node {node} is left with a key that nobody holds"));
                }
            }
        }
        Ok(())
    }
}

/// Key and token of each key of a lease that is held.
fn names(engine: &Engine, lease: LeaseId) -> Vec<(Vec<u8>, LockToken)> {
    let first = engine.held_name(lease).into_iter();
    let more = engine.more_names(lease).map(|(key, token, _)| (key, token));
    first.chain(more).map(|(key, token)| (key.to_vec(), LockToken::new(token))).collect()
}

fn place(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

pub(super) fn has(bytes: &[u8], part: &[u8]) -> bool {
    place(bytes, part).is_some()
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

//! The clients: each runs the production engine in a loop like a driver's. The simulation can stop
//! a client between any two steps of its loop.
//!
//! # Contract
//!
//! - The loop keeps the order that [`crate::engine`] asks for: read, judge, connect, take results,
//!   begin operations, write.
//! - Reading the clock and using the reading are two steps: time may pass between them, as on a
//!   machine that schedules another process.

use super::clock::{Clock, Global, MS, SECOND, US};
use super::counts::{Fault, Path};
use super::net::News;
use super::plan::Plan;
use super::random::Random;
use super::shared::Ground;
use super::task::Task;
use super::world::{Phase, World};
use crate::client::front::Front;
use crate::config::Config;
use crate::engine::{Connection, Engine, LeaseId, NodeState};
use crate::generator::Generator;
use crate::quorum::{NodeId, NodeMask};
use crate::rules::{self, Kind};
use crate::time::Instant;
use crate::token::LockToken;

/// When the simulation begins, in microseconds since 1970.
const WALL_US: u64 = 1_700_000_000_000_000;

/// One client: a process with an engine.
pub(super) struct SimClient {
    pub(super) engine: Engine,
    /// The table that its callers share, in a seed where locks may linger.
    pub(super) front: Option<Front>,
    /// The grounds of the leases that its callers have let go of.
    pub(super) grounds: Vec<(LeaseId, Ground)>,
    pub(super) clock: Clock,
    /// How far its wall clock is ahead of the true time, in microseconds.
    wall_ahead: u64,
    /// Counts the processes that were this client.
    pub(super) epoch: u64,
    /// The connection to each node.
    pub(super) links: Vec<Option<usize>>,
    pub(super) tasks: Vec<Task>,
    /// Leases whose holder let go of them; released with the next turn.
    pub(super) dropped: Vec<LeaseId>,
    /// Leases that were released out of turn.
    pub(super) given_up: Vec<LeaseId>,
    /// The beginning of all tokens that this process draws.
    pub(super) token_start: String,
    /// The id of this process among clients.
    pub(super) id: [u8; 8],
    /// Keys that the client still has to lock in the end.
    pub(super) goals: Vec<usize>,
    /// The clock at the beginning of this pass, read before the sockets were.
    pass_began: Instant,
    /// The bytes that the client has read from one connection and not handed to its engine.
    taken: Vec<u8>,
    /// Set if the client is to end in good order: the latest time for its end.
    pub(super) closing: Option<Global>,
    stage: Stage,
    /// Its lists of nodes have changed, and its engine does not know yet.
    pub(super) has_new_lists: bool,
    /// The lists of which the client needs a quorum each, and since when. Empty if all clients have
    /// one list.
    pub(super) lists: Vec<(Global, Vec<NodeMask>)>,
    stopped_until: Global,
    /// How long it stood still, in all.
    pub(super) stood: Global,
    /// How long it had stood still when it last read its clock to begin something.
    pub(super) stood_before: Global,
    wake_at: Global,
    /// When calls were last judged by time, on its clock.
    pub(super) judged_at: Instant,
    /// When it last read everything.
    read_at: Global,
}

/// Where a client is in its loop.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Asleep,
    Pass,
    Read { node: usize },
    HandIn { node: usize },
    Judge,
    JudgeAt(Instant),
    Connect,
    Results,
    ResultsAt(Instant),
    Begin,
    BeginAt { task: usize, now: Instant },
    Write,
}

impl SimClient {
    pub(super) fn new(
        client: usize,
        epoch: u64,
        clock: Clock,
        plan: &Plan,
        config: &Config,
        now: Global,
        random: &mut Random,
    ) -> Self {
        let seed = random.bytes();
        let config = plan.config_of(client, config);
        let mut engine =
            Engine::new(&config, seed, clock.local(now)).expect("the configuration is valid");
        let shares = plan.lingers > 0;
        let front = shares.then(|| Front::new(&config, plan.in_flight_max).expect("it is valid"));
        engine.limit(plan.rare.room);
        engine.trust_clocks();
        let mut id = [0; 8];
        Generator::from_seed(seed).fill(&mut id);
        let token_start = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let tasks = (0..plan.tasks)
            .map(|_| Task::new(now + plan.begin_after + random.below(plan.gap)))
            .collect();
        Self {
            engine,
            front,
            grounds: Vec::new(),
            clock,
            wall_ahead: random.below(plan.clock_spread / US + 1),
            epoch,
            links: vec![None; plan.nodes],
            tasks,
            dropped: Vec::new(),
            given_up: Vec::new(),
            token_start,
            id,
            goals: Vec::new(),
            pass_began: Instant::default(),
            taken: Vec::new(),
            closing: None,
            stage: Stage::Asleep,
            has_new_lists: false,
            lists: vec![(0, plan.lists_of(client))],
            stopped_until: 0,
            stood: 0,
            stood_before: 0,
            wake_at: Global::MAX,
            read_at: 0,
            judged_at: Instant::default(),
        }
    }

    /// Key and token of each key of a lease, in order.
    pub(super) fn names(&self, lease: LeaseId) -> Vec<(Vec<u8>, LockToken)> {
        let more = self.engine.more_names(lease);
        let more = more.map(|(key, token, _)| (key.to_vec(), LockToken::new(token)));
        let first = self.engine.lease_name(lease);
        first.map(|(key, token)| (key.to_vec(), token)).into_iter().chain(more).collect()
    }

    /// The client is to end by `until`.
    pub(super) fn close(&mut self, until: Global) {
        self.closing = self.closing.or(Some(until));
    }

    /// What the client reads on its clock.
    pub(super) fn local(&self, now: Global) -> Instant {
        self.clock.local(now)
    }
}

impl World {
    /// The client has something to do at `at`.
    pub(super) fn wake(&mut self, client: usize, at: Global) {
        let this = &mut self.clients[client];
        let at = at.max(this.stopped_until).max(self.now);
        if matches!(this.stage, Stage::Asleep) && at < this.wake_at {
            this.wake_at = at;
            let epoch = this.epoch;
            self.at(at, super::world::Event::Client { client, epoch });
        }
    }

    /// The client stands still for a while, wherever it is.
    pub(super) fn stop(&mut self, client: usize, pause: Global) {
        let this = &mut self.clients[client];
        let until = self.now + pause;
        this.stood += until.saturating_sub(this.stopped_until.max(self.now));
        this.stopped_until = this.stopped_until.max(until);
    }

    /// No client is stopped any longer.
    pub(super) fn resume_all(&mut self) {
        for client in 0..self.clients.len() {
            let this = &mut self.clients[client];
            this.stopped_until = 0;
            this.wake_at = self.now;
            let epoch = this.epoch;
            self.at(self.now, super::world::Event::Client { client, epoch });
        }
    }

    pub(super) fn client_goes_on(&mut self, client: usize, epoch: u64) {
        let this = &mut self.clients[client];
        if this.epoch != epoch || this.wake_at != self.now {
            return;
        }
        if this.stopped_until > self.now {
            this.wake_at = this.stopped_until;
            let at = this.wake_at;
            return self.at(at, super::world::Event::Client { client, epoch });
        }
        this.wake_at = Global::MAX;
        if matches!(this.stage, Stage::Asleep) {
            this.stage = Stage::Pass;
        }
        loop {
            let next = self.step(client, self.clients[client].stage);
            let next = self.stray_from(next);
            if self.plan.changes_lists() {
                self.note_lists(client);
            }
            self.clients[client].stage = next;
            if matches!(next, Stage::Asleep) {
                return self.sleep(client);
            }
            if self.phase == Phase::Safety && self.random.chance(self.plan.pause) {
                let pause = self.pause_within();
                self.counts.fault(Fault::PauseWithin);
                self.log(|_| format!("client {client} stops for {pause} before {next:?}"));
                self.clients[client].wake_at = self.now + pause;
                self.clients[client].stood += pause;
                let epoch = self.clients[client].epoch;
                return self.after(pause, super::world::Event::Client { client, epoch });
            }
        }
    }

    /// How long a client stops between two steps: mostly for a short time, now and then for a
    /// lock's lifetime.
    fn pause_within(&mut self) -> Global {
        let ttl = self.plan.max_ttl_ms * MS;
        if self.random.chance(self.plan.long_pauses) {
            return self.random.between(ttl / 2, ttl + ttl / 2);
        }
        match self.random.below(9) {
            0..=4 => self.random.between(US, self.plan.node_timeout / 2),
            5..=7 => self.random.between(US, 3 * self.plan.node_timeout),
            _ => self.random.between(US, ttl / 4),
        }
        .max(1)
    }

    /// Makes one step of the loop. Returns the next stage.
    fn step(&mut self, client: usize, stage: Stage) -> Stage {
        match stage {
            Stage::Asleep => Stage::Asleep,
            Stage::Pass => {
                self.clients[client].pass_began = self.clients[client].local(self.now);
                self.set_lists(client);
                Stage::Read { node: 0 }
            }
            Stage::Read { node } => {
                self.read(client, node);
                Stage::HandIn { node }
            }
            Stage::HandIn { node } => {
                self.hand_in(client, node);
                if node + 1 < self.plan.nodes {
                    Stage::Read { node: node + 1 }
                } else {
                    Stage::Judge
                }
            }
            Stage::Judge => {
                // Both readings will do: the one from before the sockets were read, or the one from
                // after.
                let (is_old, this) = (self.random.chance(500), &self.clients[client]);
                Stage::JudgeAt(if is_old { this.pass_began } else { this.local(self.now) })
            }
            Stage::JudgeAt(now) => {
                self.judge(client, now);
                Stage::Connect
            }
            Stage::Connect => {
                self.settle_connections(client);
                Stage::Results
            }
            Stage::Results => {
                if self.clients[client].engine.has_event() {
                    Stage::ResultsAt(self.clients[client].local(self.now))
                } else {
                    self.check_ends(client);
                    Stage::Begin
                }
            }
            Stage::ResultsAt(now) => {
                let event = self.clients[client].engine.poll_event(now);
                event.into_iter().for_each(|event| self.result(client, event, now));
                self.turn_table(client, now);
                Stage::Results
            }
            Stage::Begin => self.begin_next(client),
            Stage::BeginAt { task, now } => {
                self.begin(client, task, now);
                Stage::Begin
            }
            Stage::Write => {
                self.look_at_idle(client);
                self.write(client);
                Stage::Asleep
            }
        }
    }

    /// The next stage if a client strays from its loop. Bytes that were read are always handed in.
    fn stray_from(&mut self, next: Stage) -> Stage {
        if matches!(next, Stage::HandIn { .. }) || !self.jumps() {
            return next;
        }
        self.random.pick(&[Stage::Pass, Stage::Judge, Stage::Results, Stage::Begin])
    }

    /// Reads the wall clock, which only fences need.
    pub(super) fn look_at_the_wall(&mut self, client: usize) {
        if self.plan.fenced > 0 {
            let this = &mut self.clients[client];
            let micros = WALL_US + self.now / US + this.wall_ahead;
            this.engine.set_wall_clock(micros, this.clock.local(self.now));
        }
    }

    /// Does what is due.
    fn judge(&mut self, client: usize, now: Instant) {
        self.look_at_the_wall(client);
        let this = &mut self.clients[client];
        for lease in this.dropped.drain(..) {
            this.engine.release(lease, now);
        }
        this.engine.handle_timeout(now);
        this.read_at = self.now;
        this.judged_at = now;
        self.look_at_kept(client, now);
        self.turn_table(client, now);
    }

    /// Begins the next task that is due, unless the sockets have to be read first.
    fn begin_next(&mut self, client: usize) -> Stage {
        let now = self.now;
        if self.close_down(client, self.clients[client].local(now)) {
            return Stage::Write;
        }
        let this = &mut self.clients[client];
        let Some(task) = this.tasks.iter().position(|task| task.next_at <= now) else {
            return Stage::Write;
        };
        let local = this.local(now);
        this.stood_before = this.stood;
        if this.engine.needs_pass(local) && this.read_at < now {
            return Stage::Pass;
        }
        Stage::BeginAt { task, now: local }
    }

    /// Reads the bytes that the system has of one connection.
    fn read(&mut self, client: usize, node: usize) {
        let Some(id) = self.clients[client].links[node] else { return };
        let conn = &mut self.conns[id];
        let is_open = conn.is_open || conn.news == Some(News::Opened);
        if is_open && !conn.inbox.is_empty() {
            self.clients[client].taken = std::mem::take(&mut conn.inbox);
            if std::mem::take(&mut conn.deliveries) > 1 {
                self.counts.fault(Fault::MergedRead);
            }
        }
    }

    /// Hands the engine the bytes that were read of one connection, by a clock that is read now.
    fn hand_in(&mut self, client: usize, node: usize) {
        let bytes = std::mem::take(&mut self.clients[client].taken);
        let Some(id) = self.clients[client].links[node] else { return };
        let Some(node_id) = NodeId::new(node) else { return };
        let this = &self.clients[client];
        let now = rules::clock_of_message(this.pass_began, this.local(self.now));
        if !self.conns[id].is_open && self.conns[id].news == Some(News::Opened) {
            self.conns[id].news = None;
            self.conns[id].is_open = true;
            let seed = self.random.bytes();
            let engine = &mut self.clients[client].engine;
            engine.reseed(seed);
            engine.handle_connected(node_id, now);
        }
        if !bytes.is_empty() {
            self.deliver(client, node_id, &bytes, now);
            self.check_moved(client, now);
        }
        // The engine may want to close the connection by now: that is for `settle_connections`.
        if let Some(News::Ended(cause)) = self.conns[id].news {
            self.leave(client, node);
            self.counts.path(Path::Lost);
            self.log(|_| format!("client {client} loses node {node}: {cause:?}"));
            self.clients[client].engine.handle_lost(node_id, cause, now);
        }
    }

    /// Hands bytes to the engine in one piece, or the first of them one by one: servers cut elsewhere.
    fn deliver(&mut self, client: usize, node: NodeId, bytes: &[u8], now: Instant) {
        let engine = &mut self.clients[client].engine;
        let mut singly = 0;
        if self.random.chance(self.plan.one_byte) {
            self.counts.fault(Fault::OneByteRead);
            singly = bytes.len().min(64);
        }
        let (first, rest) = bytes.split_at(singly);
        for piece in first.chunks(1).chain(rest.chunks(16 << 10)) {
            engine.handle_bytes(node, piece, now);
        }
    }

    fn settle_connections(&mut self, client: usize) {
        while let Some((node, wish)) = self.clients[client].engine.poll_connection() {
            let node = node.index();
            match wish {
                Connection::Open => self.open(client, node),
                Connection::Close => {
                    self.counts.path(Path::GivenUp);
                    self.log(|_| format!("client {client} gives node {node} up"));
                    self.leave(client, node);
                }
            }
        }
    }

    /// Writes what the engine has for each node, as far as the socket takes it.
    fn write(&mut self, client: usize) {
        let mut is_cut_off = false;
        let engine = &mut self.clients[client].engine;
        for node in engine.poll_writes().into_iter().flatten() {
            let id = self.clients[client].links[node.index()];
            let Some(id) = id.filter(|&id| self.conns[id].is_open) else {
                self.oracle.fail(Kind::Unasked, || {
                    format!("client {client} writes to {node:?} without a connection")
                });
                continue;
            };
            let output = self.clients[client].engine.output(node);
            let mut bytes = output.to_vec();
            self.oracle.check(
                Kind::Unbounded,
                bytes.len() <= self.plan.rare.room.output_len + GREETING_LEN_MAX,
                || "output without bound".to_owned(),
            );
            if bytes.len() > 1
                && self.phase == Phase::Safety
                && self.random.chance(self.plan.short_write)
            {
                self.counts.fault(Fault::ShortWrite);
                let len = self.random.between(1, bytes.len() as u64 - 1) as usize;
                bytes.truncate(len);
            }
            self.clients[client].engine.handle_sent(node, bytes.len());
            self.count_commands(client, node.index(), &bytes);
            if self.conns[id].is_broken {
                continue;
            }
            for piece in self.cut(bytes) {
                let at = self.now + self.delay(client, node.index());
                let at = self.conns[id].up.send(piece, at);
                self.at(at, super::world::Event::Up { conn: id });
            }
            if self.phase == Phase::Safety && self.random.chance(self.plan.cut) {
                self.reset(client, node.index());
                is_cut_off |= self.random.chance(300);
            }
        }
        if is_cut_off {
            // The fault was in the client's own network.
            for node in 0..self.plan.nodes {
                self.reset(client, node);
            }
        }
    }

    /// The loop has nothing to do before a later time.
    fn sleep(&mut self, client: usize) {
        if self.has_closed(client) {
            return;
        }
        let this = &self.clients[client];
        let (clock, engine) = (this.clock, &this.engine);
        let due = engine.next_deadline().map_or(Global::MAX, |at| clock.global(at));
        let task = this.tasks.iter().map(|task| task.next_at).min().unwrap_or(Global::MAX);
        let task = task.min(this.closing.unwrap_or(Global::MAX));
        let mut at = due.min(task);
        let has_output = engine
            .nodes_with_output()
            .into_iter()
            .any(|node| this.links[node.index()].is_some_and(|id| self.conns[id].is_open));
        let has_input = this.links.iter().flatten().any(|&id| {
            let conn = &self.conns[id];
            !conn.inbox.is_empty() || conn.news.is_some()
        });
        if let Some(front) = &this.front {
            at = at.min(clock.global(front.due_at()));
        }
        if has_output || has_input || !this.dropped.is_empty() {
            at = self.now;
        }
        // A pass of the loop takes time.
        self.wake(client, at.max(self.now + 10 * US));
        self.look_at_nodes(client);
    }

    /// Notes a client that dropped releases for want of room: their keys are left to the TTL.
    pub(super) fn note_dropped(&mut self, client: usize) {
        if self.clients[client].engine.has_dropped_debts() {
            self.counts.path(Path::DebtDropped);
        }
    }

    /// Looks, now and then, at how the client sees its nodes.
    fn look_at_nodes(&mut self, client: usize) {
        if self.random.chance(50) {
            self.look_for_forgotten(client);
        }
        if !self.random.chance(5) {
            return;
        }
        for task in 0..self.plan.tasks {
            self.check_ground(client, task);
        }
        let this = &self.clients[client];
        for health in this.engine.nodes(this.local(self.now)) {
            if health.debts > 0 {
                self.counts.path(Path::Indebted);
            }
            match health.state {
                NodeState::Quarantined(_) => self.counts.path(Path::Quarantined),
                NodeState::Stalled => self.counts.path(Path::Stalled),
                NodeState::Refused => self.counts.path(Path::NodeRefused),
                NodeState::Disconnected
                | NodeState::Connecting
                | NodeState::Greeting
                | NodeState::Unlisted
                | NodeState::Admitted => {}
            }
        }
        let slots = this.engine.slots_in_use();
        self.oracle.check(Kind::Unbounded, slots <= SLOTS_MAX, || format!("{slots} slots in use"));
    }

    /// The client's process dies. Another process takes its place and knows nothing.
    pub(super) fn die(&mut self, client: usize) {
        self.note_dropped(client);
        for node in 0..self.plan.nodes {
            self.leave(client, node);
        }
        for task in 0..self.clients[client].tasks.len() {
            self.lets_go(client, task);
        }
        let epoch = self.clients[client].epoch + 1;
        let clock = self.clients[client].clock;
        let new = SimClient::new(
            client,
            epoch,
            clock,
            &self.plan,
            &self.config,
            self.now,
            &mut self.random,
        );
        self.clients[client] = new;
        let at = self.now + self.random.between(MS, SECOND / 10);
        self.wake(client, at);
    }
}

/// How far a node's output may exceed its room: a greeting, and messages to other clients.
const GREETING_LEN_MAX: usize = 8 << 10;

/// Seeds are small: a client has no good reason to remember more attempts than this.
const SLOTS_MAX: usize = 3000;

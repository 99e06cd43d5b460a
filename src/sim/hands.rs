//! The cost of a change of hands where nothing goes wrong and only the network takes time: round
//! trips, commands, and the turns of each client.
//!
//! Each client wants the lock again at its unlock, or once the unlock is answered
//! ([`Contest::awaits_release`]). The holder has to know the waiters before the lock moves on. The
//! lock may have slots, and a writer may come back now and then.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use super::random::Random;
use crate::config::Config;
use crate::engine::{Engine, Event, LeaseId};
use crate::guards::RestartGuard;
use crate::key::slot_of;
use crate::options::LockOptions;
use crate::quorum::NodeId;
use crate::resp::{Decoder, Limits};
use crate::retry::Retry;
use crate::time::Instant;
use redbolt_embedded::Flavor;
use redbolt_embedded::model::{Life, Progress, Server, ServerOptions, Session};

const NODES: usize = 5;

/// After how many round trips a writer comes back.
const WRITER_PAUSE: u32 = 50;

/// Clients that want one lock again and again, five nodes, and the network between them.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a test rig: whoever builds one names all of it")]
pub struct Contest {
    /// How many clients take part.
    pub clients: usize,
    /// The shortest round trip, in microseconds.
    pub round_trip_us: u64,
    /// By how many hundredths each way may take longer.
    pub jitter: u64,
    /// How often a lock is handed over in a row; zero: the holder wakes the waiter.
    pub transfers_in_row: u8,
    /// For how many microseconds each client holds the lock.
    pub held_us: u64,
    /// Whether a client waits for the end of its release before it wants the lock again.
    pub awaits_release: bool,
    /// How many turns are counted.
    pub turns: usize,
    /// How many slots the lock has; zero: a plain lock.
    pub slots: usize,
    /// One more client takes all slots, holds them for a round trip, and comes back 50 round trips
    /// later.
    pub has_writer: bool,
}

/// The figures of a contest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Figures {
    /// The median time from an unlock to the next holder, in round trips.
    pub hand_over: f64,
    /// From one turn to the next, on average, in round trips.
    pub turn: f64,
    /// How many commands the clients write for each turn.
    pub commands_per_turn: f64,
    /// The turns of the client that had the fewest, as a share of the mean.
    pub least_served: f64,
    /// How long the writer waited, in round trips, from the shortest wait to the longest.
    pub writer_waits: Vec<f64>,
}

impl Contest {
    /// Plays the contest. The same contest gives the same figures.
    #[must_use]
    pub fn play(self) -> Figures {
        World::new(self).figures()
    }
}

struct Client {
    engine: Engine,
    sessions: Vec<Session>,
    lease: Option<LeaseId>,
    done_at: Instant,
    wakes_at: Instant,
    /// When the client wants the lock again, and when it last did.
    wants_at: Instant,
    asked_at: Instant,
    turns: usize,
}

impl Client {
    fn slot_of(&self, lease: LeaseId) -> Option<u8> {
        self.engine.held_name(lease).and_then(|(key, _)| slot_of(key))
    }
}

enum Arrival {
    Up { client: usize, node: usize, bytes: Vec<u8> },
    Down { client: usize, node: usize, bytes: Vec<u8> },
    Timer { client: usize },
}

struct World {
    contest: Contest,
    now: Instant,
    random: Random,
    servers: Vec<Server>,
    clients: Vec<Client>,
    arrivals: Vec<Option<Arrival>>,
    queue: BinaryHeap<Reverse<(Instant, usize)>>,
    /// When the last bytes of each client and node arrive, up and down: bytes keep their order.
    last: Vec<[Instant; 2]>,
    /// By slot, the client that left it last.
    released: HashMap<Option<u8>, (usize, Instant)>,
    hand_overs: Vec<Duration>,
    writer_waits: Vec<Duration>,
    commands: usize,
}

impl World {
    fn new(contest: Contest) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let config = Config::new((0..NODES).map(|node| format!("n{node}:1"))).expect("they differ");
        let config = config
            .restart_guard(RestartGuard::Off)
            .node_timeout(Duration::from_millis(500))
            .transfers_in_row(contest.transfers_in_row);
        let servers = (0..NODES).map(|node| {
            let life = Life::new([node as u8; 20], [9; 20], on_server(now), 1_700_000_000_000);
            Server::new(&ServerOptions::new(Flavor::Valkey91), life)
        });
        let mut servers: Vec<_> = servers.collect();
        let count = contest.clients + usize::from(contest.has_writer);
        let clients = (0..count).map(|client| Client {
            engine: Engine::new(&config, [client as u8; 32], now).expect("it is valid"),
            sessions: servers.iter_mut().map(Server::connect).collect(),
            lease: None,
            done_at: Instant::MAX,
            wakes_at: Instant::MAX,
            wants_at: Instant::MAX,
            asked_at: now,
            turns: 0,
        });
        let mut world = Self {
            contest,
            now,
            random: Random::new(7),
            clients: clients.collect(),
            servers,
            arrivals: Vec::new(),
            queue: BinaryHeap::new(),
            last: vec![[now; 2]; count * NODES],
            released: HashMap::new(),
            hand_overs: Vec::new(),
            writer_waits: Vec::new(),
            commands: 0,
        };
        for client in 0..count {
            let engine = &mut world.clients[client].engine;
            engine.handle_timeout(now);
            while engine.poll_connection().is_some() {}
            (0..NODES).for_each(|node| engine.handle_connected(node_id(node), now));
            world.pass(client);
        }
        while !world.clients.iter().all(is_connected) {
            world.step();
        }
        for client in 0..count {
            world.acquire(client);
            world.pass(client);
        }
        world
    }

    fn acquire(&mut self, client: usize) {
        let pause = Duration::from_millis(200);
        let retry = Retry::every(pause, pause).timeout(Duration::from_secs(60));
        let options = LockOptions::new(Duration::from_secs(10)).retry(retry);
        let options = match self.contest.slots {
            0 => options,
            slots if self.is_writer(client) => options.write(slots),
            slots => options.slots(slots),
        };
        let this = &mut self.clients[client];
        this.wants_at = Instant::MAX;
        this.asked_at = self.now;
        this.engine.acquire(b"key", &options, self.now).expect("it may");
    }

    const fn is_writer(&self, client: usize) -> bool {
        client == self.contest.clients
    }

    fn step(&mut self) {
        let Reverse((at, index)) = self.queue.pop().expect("somebody waits");
        self.now = self.now.max(at);
        match self.arrivals[index].take().expect("it arrives once") {
            Arrival::Up { client, node, bytes } => self.execute(client, node, &bytes),
            Arrival::Down { client, node, bytes } => {
                self.clients[client].engine.handle_bytes(node_id(node), &bytes, self.now);
                self.pass(client);
            }
            Arrival::Timer { client } => {
                self.clients[client].wakes_at = Instant::MAX;
                self.pass(client);
            }
        }
    }

    fn execute(&mut self, client: usize, node: usize, mut bytes: &[u8]) {
        let (server, mut reply) = (&mut self.servers[node], Vec::new());
        let session = &mut self.clients[client].sessions[node];
        let progress = server.execute(session, bytes, on_server(self.now), &mut reply);
        assert_eq!(progress, Progress::Idle);
        let deliveries: Vec<_> = server.deliveries().collect();
        self.send(client, node, reply);
        for delivery in deliveries {
            let is_its = |client: &Client| client.sessions[node].id() == delivery.session;
            let to = self.clients.iter().position(is_its).expect("it is connected");
            self.send(to, node, delivery.bytes);
        }
        let mut decoder = Decoder::new(Limits::default());
        while let Ok(Some(frame)) = decoder.frame(bytes) {
            self.commands += 1;
            bytes = &bytes[frame.len()..];
        }
    }

    /// A server sends bytes to a client.
    fn send(&mut self, client: usize, node: usize, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let at = self.way(client, node, 1);
            self.arrive(at, Arrival::Down { client, node, bytes });
        }
    }

    /// When bytes that are sent now arrive.
    fn way(&mut self, client: usize, node: usize, direction: usize) -> Instant {
        let least_ns = self.contest.round_trip_us * 500;
        let more_ns = self.random.below(least_ns * self.contest.jitter / 100 + 1);
        let last = &mut self.last[client * NODES + node][direction];
        *last = (self.now + Duration::from_nanos(least_ns + more_ns)).max(*last);
        *last
    }

    fn arrive(&mut self, at: Instant, arrival: Arrival) {
        self.queue.push(Reverse((at, self.arrivals.len())));
        self.arrivals.push(Some(arrival));
    }

    /// A pass of the client's loop.
    fn pass(&mut self, client: usize) {
        let now = self.now;
        let is_writer = self.is_writer(client);
        let trip = Duration::from_micros(self.contest.round_trip_us);
        let held = if is_writer { trip } else { Duration::from_micros(self.contest.held_us) };
        let this = &mut self.clients[client];
        this.engine.handle_timeout(now);
        if this.done_at <= now
            && let Some(lease) = this.lease.take()
        {
            this.done_at = Instant::MAX;
            let slot = this.slot_of(lease);
            this.engine.unlock(lease, now).expect("it is held");
            if is_writer {
                this.wants_at = now + trip * WRITER_PAUSE;
            } else {
                self.released.insert(slot, (client, now));
                if !self.contest.awaits_release {
                    self.acquire(client);
                }
            }
        }
        if self.clients[client].wants_at <= now {
            self.acquire(client);
        }
        while let Some(event) = self.clients[client].engine.poll_event(now) {
            match event {
                Event::Lock { result, .. } => {
                    let this = &mut self.clients[client];
                    let lease = result.expect("there is time");
                    this.lease = Some(lease);
                    this.done_at = now + held;
                    if is_writer {
                        self.writer_waits.push(now.saturating_since(this.asked_at));
                        continue;
                    }
                    this.turns += 1;
                    if let Some((from, at)) = self.released.remove(&this.slot_of(lease))
                        && from != client
                    {
                        self.hand_overs.push(now.saturating_since(at));
                    }
                }
                Event::Unlock { .. } if self.contest.awaits_release && !is_writer => {
                    self.acquire(client);
                }
                Event::Unlock { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let engine = &mut self.clients[client].engine;
        assert_eq!(engine.poll_connection(), None);
        for id in engine.nodes_with_output() {
            let engine = &mut self.clients[client].engine;
            let bytes = engine.output(id).to_vec();
            engine.handle_sent(id, bytes.len());
            let node = id.index();
            let at = self.way(client, node, 0);
            self.arrive(at, Arrival::Up { client, node, bytes });
        }
        let this = &mut self.clients[client];
        let due = this.engine.next_deadline().unwrap_or(Instant::MAX).min(this.done_at);
        let due = due.min(this.wants_at);
        if due < this.wakes_at {
            this.wakes_at = due;
            self.arrive(due.max(now), Arrival::Timer { client });
        }
    }

    fn turns(&self) -> usize {
        self.clients.iter().map(|client| client.turns).sum()
    }

    /// The figures of the contest, counted once all clients take part.
    fn figures(mut self) -> Figures {
        let all = self.contest.turns;
        while self.turns() < all / 10 {
            self.step();
        }
        let (begun_at, commands) = (self.now, self.commands);
        let before: Vec<_> = self.clients.iter().map(|client| client.turns).collect();
        let until = self.turns() + all;
        self.hand_overs.clear();
        self.writer_waits.clear();
        while self.turns() < until {
            self.step();
        }
        self.hand_overs.sort();
        // A writer that starves never gets the slots, so its wait so far counts, too.
        let waits = |client: &&Client| client.lease.is_none() && client.wants_at == Instant::MAX;
        let writer = self.clients.get(self.contest.clients).filter(waits);
        self.writer_waits.extend(writer.map(|it| self.now.saturating_since(it.asked_at)));
        self.writer_waits.sort();
        let served = self.clients.iter().zip(before).map(|(client, before)| client.turns - before);
        let least = served.take(self.contest.clients).min().unwrap_or(0);
        let in_trips =
            |time: &Duration| time.as_secs_f64() * 1e6 / self.contest.round_trip_us as f64;
        Figures {
            hand_over: self.hand_overs.get(self.hand_overs.len() / 2).map_or(f64::NAN, in_trips),
            turn: in_trips(&self.now.saturating_since(begun_at)) / all as f64,
            commands_per_turn: (self.commands - commands) as f64 / all as f64,
            least_served: (least * self.contest.clients) as f64 / all as f64,
            writer_waits: self.writer_waits.iter().map(in_trips).collect(),
        }
    }
}

fn is_connected(client: &Client) -> bool {
    (0..NODES).all(|node| client.engine.serves(node_id(node)))
}

/// The time as a server counts it.
const fn on_server(now: Instant) -> redbolt_embedded::Instant {
    redbolt_embedded::Instant::from_nanos(now.as_nanos())
}

fn node_id(node: usize) -> NodeId {
    NodeId::new(node).expect("there are five")
}

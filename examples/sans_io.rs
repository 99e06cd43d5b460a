//! The sans-IO engine without any socket, thread or clock. Two clients and three nodes run in one
//! function, joined by a queue of bytes; time is only a number.
//!
//! A program with its own transport (a kernel-bypass stack, a simulator, a replay of recorded
//! bytes) drives the engine as `World::settle` does. Here an hour passes in a few milliseconds.
//!
//! Run it with `cargo run --example sans_io`.

use std::collections::BTreeMap;
use std::time::Duration;

use redbolt::engine::{Connection, Engine, Event, LeaseId};
use redbolt::inspect::NodeId;
use redbolt::{Cause, Config, Instant, LockError, Unlocked};
use redbolt_embedded::Flavor;
use redbolt_embedded::model::{Life, Server, ServerOptions, Session};

type Anything = Result<(), Box<dyn std::error::Error>>;

const TTL: Duration = Duration::from_secs(10);
const NODES: u8 = 3;
const CLIENTS: usize = 2;
/// How long a message takes from one end to the other.
const LATENCY: Duration = Duration::from_micros(100);

/// A message under way, for one connection of a client.
enum Mail {
    ToNode(Vec<u8>),
    ToClient(Vec<u8>),
    Connected,
    Lost,
}

struct World {
    now: Instant,
    clients: Vec<Engine>,
    /// `None` where the node's process is gone.
    servers: Vec<Option<Server>>,
    /// The connection of each client to each node.
    sessions: BTreeMap<(usize, usize), Session>,
    /// Messages by arrival time; messages that arrive together keep the order in which they were
    /// sent.
    mail: BTreeMap<(Instant, u64), (usize, usize, Mail)>,
    sent: u64,
    bytes: usize,
    events: Vec<(usize, Event)>,
}

fn main() -> Anything {
    let real = redbolt::now();
    let mut world = World::new()?;
    let begin = world.now;
    world.run_until(|world| world.clients.iter().all(Engine::is_settled))?;
    println!("{:?}: {CLIENTS} clients and {NODES} nodes know each other", world.since(begin));

    let lease = world.lock(0, TTL)?.map_err(|why| why.to_string())?;
    println!(
        "{:?}: the first client has the lock, on {} nodes",
        world.since(begin),
        world.votes(0, lease)
    );
    match world.lock(1, TTL)? {
        Err(LockError::Taken(ballot)) => {
            println!("{:?}: the second is told: {ballot}", world.since(begin))
        }
        other => return Err(format!("two holders: {other:?}").into()),
    }

    world.kill(2);
    world.wait(Duration::from_secs(5))?;
    let now = world.now;
    world.client(0)?.extend(lease, TTL, now)?;
    match world.event()? {
        (0, Event::Extend { result: Ok(()), .. }) => {}
        other => return Err(format!("not extended: {other:?}").into()),
    }
    println!("{:?}: a node is gone, and the lease was extended", world.since(begin));

    // The second client waits; the release of the first wakes it.
    let now = world.now;
    world.client(1)?.lock(b"sku:42", &TTL.into(), now)?;
    world.wait(Duration::from_secs(1))?;
    let (now, released_at) = (world.now, world.now);
    world.client(0)?.unlock(lease, now)?;
    let mut second = None;
    for _ in 0..2 {
        match world.event()? {
            (0, Event::Unlock { result: Ok(Unlocked::Released), .. }) => {}
            (1, Event::Lock { result: Ok(lease), .. }) => second = Some(lease),
            other => return Err(format!("not handed over: {other:?}").into()),
        }
    }
    let second = second.ok_or("the second client has no lock")?;
    println!(
        "{:?}: handed over, {:?} after its release",
        world.since(begin),
        world.since(released_at)
    );

    world.wait(Duration::from_secs(3600))?;
    let now = world.now;
    if !world.client(1)?.remaining_at(second, now).is_zero() {
        return Err("a lease of ten seconds is held for an hour".into());
    }
    println!(
        "{:?} in {:?}: {} messages, {} bytes, no socket",
        world.since(begin),
        real.until(redbolt::now()),
        world.sent,
        world.bytes
    );
    Ok(())
}

impl World {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        // Any origin will do, as long as time goes forward.
        let now = Instant::from_nanos(1_000_000_000);
        let config = Config::new(["a:6379", "b:6379", "c:6379"])?;
        // Randomness comes as a seed: the same seeds give the same run. In production, seeds are
        // secret.
        let clients = [[1; 32], [2; 32]].map(|seed| Engine::new(&config, seed, now));
        let servers = (1..=NODES).map(|node| {
            let hour = Duration::from_secs(3600); // old enough to be believed at once
            let life =
                Life::new([node; 20], [node; 20], on_server(now), 1_800_000_000_000).age(hour);
            Some(Server::new(&ServerOptions::new(Flavor::Valkey91), life))
        });
        let mut world = Self {
            now,
            clients: clients.into_iter().collect::<Result<_, _>>()?,
            servers: servers.collect(),
            sessions: BTreeMap::new(),
            mail: BTreeMap::new(),
            sent: 0,
            bytes: 0,
            events: Vec::new(),
        };
        world.settle();
        Ok(world)
    }

    /// A complete driver: tells the engines the time, then does what they ask.
    fn settle(&mut self) {
        for client in 0..self.clients.len() {
            let (now, Some(engine)) = (self.now, self.clients.get_mut(client)) else { return };
            // `handle_timeout` comes after all bytes that arrived, so that no answer that was read
            // counts as missing.
            engine.handle_timeout(now);
            while let Some(event) = engine.poll_event(now) {
                self.events.push((client, event));
            }
            let mut wishes = Vec::new();
            while let Some(wish) = engine.poll_connection() {
                wishes.push(wish);
            }
            let mut written = Vec::new();
            for nodes in engine.poll_writes() {
                engine.drain_output(nodes, |node, bytes| {
                    written.push((node.index(), bytes.to_vec()));
                    bytes.len() // as much as the transport took
                });
            }
            for (node, bytes) in written {
                self.send(client, node, Mail::ToNode(bytes));
            }
            for (node, wish) in wishes {
                self.connection(client, node.index(), wish);
            }
        }
    }

    fn connection(&mut self, client: usize, node: usize, wish: Connection) {
        let session = self.sessions.remove(&(client, node));
        let server = self.servers.get_mut(node).and_then(Option::as_mut);
        if let (Some(server), Some(session)) = (server, session) {
            server.disconnect(session);
        }
        if wish != Connection::Open {
            return;
        }
        let Some(Some(server)) = self.servers.get_mut(node) else {
            return self.send(client, node, Mail::Lost);
        };
        let session = server.connect();
        self.sessions.insert((client, node), session);
        self.send(client, node, Mail::Connected);
    }

    fn send(&mut self, client: usize, node: usize, mail: Mail) {
        if let Mail::ToNode(bytes) | Mail::ToClient(bytes) = &mail {
            self.bytes += bytes.len();
        }
        self.sent += 1;
        self.mail.insert((self.now + LATENCY, self.sent), (client, node, mail));
    }

    /// Advances to the next event and processes it.
    fn step(&mut self, latest: Instant) {
        self.settle(); // sends what was submitted since
        let arrives = self.mail.first_key_value().map(|((at, _), _)| *at);
        let due = self.clients.iter().filter_map(Engine::next_deadline).min();
        let next = [arrives, due].into_iter().flatten().min().unwrap_or(latest);
        self.now = self.now.max(next.min(latest));
        while let Some(first) = self.mail.first_entry().filter(|first| first.key().0 <= self.now) {
            let (client, node, mail) = first.remove();
            self.deliver(client, node, mail);
        }
        self.settle();
    }

    fn deliver(&mut self, client: usize, node: usize, mail: Mail) {
        let (Some(engine), Some(id)) = (self.clients.get_mut(client), NodeId::new(node)) else {
            return;
        };
        match mail {
            Mail::Connected => engine.handle_connected(id, self.now),
            Mail::Lost => engine.handle_lost(id, Cause::ConnectionRefused, self.now),
            Mail::ToClient(bytes) => engine.handle_bytes(id, &bytes, self.now),
            Mail::ToNode(bytes) => self.execute(client, node, &bytes),
        }
    }

    /// A node runs the commands that it received. Its answer, and messages to subscribers, go back.
    fn execute(&mut self, client: usize, node: usize, bytes: &[u8]) {
        let Some(Some(server)) = self.servers.get_mut(node) else { return };
        let Some(session) = self.sessions.get_mut(&(client, node)) else { return };
        let mut answer = Vec::new();
        let _ = server.execute(session, bytes, on_server(self.now), &mut answer);
        let messages: Vec<_> = server.deliveries().collect();
        self.send(client, node, Mail::ToClient(answer));
        for message in messages {
            let mut ends = self.sessions.iter().filter(|((_, at), _)| *at == node);
            let receiver = ends.find(|(_, session)| session.id() == message.session);
            if let Some((&(client, _), _)) = receiver {
                self.send(client, node, Mail::ToClient(message.bytes));
            }
        }
    }

    /// The node's process ends, and with it its connections.
    fn kill(&mut self, node: usize) {
        if let Some(server) = self.servers.get_mut(node) {
            *server = None;
        }
        for client in 0..CLIENTS {
            if self.sessions.remove(&(client, node)).is_some() {
                self.send(client, node, Mail::Lost);
            }
        }
    }

    fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) -> Anything {
        let latest = self.now + Duration::from_secs(60);
        while !is_done(self) {
            if self.now >= latest {
                return Err("nothing came of it in a minute".into());
            }
            self.step(latest);
        }
        Ok(())
    }

    fn wait(&mut self, time: Duration) -> Anything {
        let end = self.now + time;
        while self.now < end {
            self.step(end);
        }
        if let Some(event) = self.events.first() {
            return Err(format!("nobody expected this: {event:?}").into());
        }
        Ok(())
    }

    /// The next result of any client.
    fn event(&mut self) -> Result<(usize, Event), Box<dyn std::error::Error>> {
        self.run_until(|world| !world.events.is_empty())?;
        Ok(self.events.remove(0))
    }

    fn lock(
        &mut self,
        client: usize,
        ttl: Duration,
    ) -> Result<Result<LeaseId, LockError>, Box<dyn std::error::Error>> {
        let now = self.now; // `t0`: read right before
        self.client(client)?.try_lock(b"sku:42", &ttl.into(), now)?;
        match self.event()? {
            (_, Event::Lock { result, .. }) => Ok(result),
            other => Err(format!("no result of a lock: {other:?}").into()),
        }
    }

    fn client(&mut self, client: usize) -> Result<&mut Engine, &'static str> {
        self.clients.get_mut(client).ok_or("no such client")
    }

    fn votes(&self, client: usize, lease: LeaseId) -> u32 {
        self.clients.get(client).map_or(0, |engine| engine.votes(lease).count())
    }

    fn since(&self, begin: Instant) -> Duration {
        begin.until(self.now)
    }
}

/// The time for the nodes, which have the same clock here.
fn on_server(now: Instant) -> redbolt_embedded::Instant {
    redbolt_embedded::Instant::from_nanos(now.as_nanos())
}

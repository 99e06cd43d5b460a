//! A lease that is kept for a day outlives its nodes, each of which forgets it a hundred times.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redbolt_embedded::Flavor;
use redbolt_embedded::model::{Life, Memory, Progress, Server, ServerOptions, Session};

use super::*;

const NODES: usize = 5;
const LIVES: usize = 100;
const DAY: Duration = Duration::from_secs(24 * 3600);
const LONGEST: Duration = Duration::from_secs(60);

/// A server that may be down, or stand still.
struct Place {
    server: Server,
    lives: usize,
    /// When it runs again.
    until: Option<Instant>,
    is_frozen: bool,
}

/// A client of all servers.
struct Party {
    engine: Engine,
    sessions: Vec<Option<Session>>,
    /// What it has sent to servers that stand still.
    backlog: Vec<Vec<u8>>,
}

struct Day {
    now: Instant,
    random: StdRng,
    places: Vec<Place>,
    holder: Party,
    rival: Party,
}

const fn on_server(now: Instant) -> redbolt_embedded::Instant {
    redbolt_embedded::Instant::from_nanos(now.as_nanos())
}

fn life(index: usize, lives: usize, now: Instant) -> Life {
    let id = [u8::try_from(index + NODES * lives % 250).unwrap(); 20];
    Life::new(id, [9; 20], on_server(now), 1_700_000_000_000)
}

impl Party {
    fn new(seed: u8, now: Instant) -> Self {
        let config = Config::new((1..=NODES).map(|port| format!("n:{port}"))).unwrap();
        let config = config.max_ttl(LONGEST).direct_wake(false);
        let engine = Engine::new(&config, [seed; 32], now).unwrap();
        let sessions = std::iter::repeat_with(|| None).take(NODES).collect();
        Self { engine, sessions, backlog: vec![Vec::new(); NODES] }
    }

    /// Carries all bytes there and back, until nobody has any left.
    fn exchange(&mut self, places: &mut [Place], now: Instant) {
        self.engine.handle_timeout(now);
        loop {
            let mut is_quiet = true;
            while let Some((id, wish)) = self.engine.poll_connection() {
                let (index, place) = (id.index(), &mut places[id.index()]);
                is_quiet = false;
                match wish {
                    Connection::Open if place.until.is_none() || place.is_frozen => {
                        self.sessions[index] = Some(place.server.connect());
                        self.engine.handle_connected(id, now);
                    }
                    Connection::Open => {
                        self.engine.handle_lost(id, Cause::ConnectionRefused, now);
                    }
                    Connection::Close => {
                        self.sessions[index] = None;
                        self.backlog[index].clear();
                    }
                }
            }
            for (index, place) in places.iter_mut().enumerate() {
                let output = self.engine.output(node(index)).to_vec();
                self.engine.handle_sent(node(index), output.len());
                let Some(session) = &mut self.sessions[index] else { continue };
                self.backlog[index].extend_from_slice(&output);
                if place.is_frozen || self.backlog[index].is_empty() {
                    continue;
                }
                is_quiet = false;
                let mut reply = Vec::new();
                let sent = std::mem::take(&mut self.backlog[index]);
                let mut progress = place.server.execute(session, &sent, on_server(now), &mut reply);
                while progress == Progress::More {
                    progress = place.server.execute(session, &[], on_server(now), &mut reply);
                }
                self.engine.handle_bytes(node(index), &reply, now);
            }
            if is_quiet {
                return;
            }
        }
    }

    fn lose(&mut self, index: usize, now: Instant) {
        self.backlog[index].clear();
        if self.sessions[index].take().is_some() {
            self.engine.handle_lost(node(index), Cause::Closed, now);
        }
    }
}

impl Day {
    fn new(seed: u64) -> Self {
        let now = Instant::from_nanos(1_000_000_000_000);
        let place = |index| {
            let life = life(index, 0, now).age(DAY);
            let server = Server::new(&ServerOptions::new(Flavor::ALL[index % 5]), life);
            Place { server, lives: 0, until: None, is_frozen: false }
        };
        let places = (0..NODES).map(place).collect();
        let (holder, rival) = (Party::new(1, now), Party::new(2, now));
        Self { now, random: StdRng::seed_from_u64(seed), places, holder, rival }
    }

    fn exchange(&mut self) {
        self.holder.exchange(&mut self.places, self.now);
        self.rival.exchange(&mut self.places, self.now);
    }

    /// The time until `end` passes.
    fn pass(&mut self, end: Instant) {
        while self.now < end {
            let dues = [&self.holder, &self.rival].map(|party| party.engine.next_deadline());
            let backs = self.places.iter().map(|place| place.until);
            let next = dues.into_iter().chain(backs).flatten().min().unwrap_or(end);
            self.now = next.min(end).max(self.now + MS);
            for index in 0..NODES {
                if self.places[index].until.is_some_and(|until| until <= self.now) {
                    let place = &mut self.places[index];
                    (place.until, place.is_frozen) = (None, false);
                }
            }
            self.exchange();
        }
    }

    /// A node forgets: by a restart, or by standing still for longer than the TTL.
    fn forget(&mut self, index: usize) {
        let place = &mut self.places[index];
        place.lives += 1;
        place.is_frozen = self.random.random_ratio(1, 4);
        let away = Duration::from_millis(self.random.random_range(1..90_000));
        place.until = Some(self.now + away);
        if !place.is_frozen {
            let life = life(index, place.lives, self.now + away);
            place.server.restart(life, Memory::Lost);
            self.holder.lose(index, self.now);
            self.rival.lose(index, self.now);
        }
    }

    /// How many nodes are away, have no vote, or lack the lease.
    fn missing(&self, lease: LeaseId) -> usize {
        let states = self.holder.engine.nodes(self.now);
        let votes = self.holder.engine.votes(lease);
        let is_missing = |index: &usize| {
            self.places[*index].until.is_some()
                || states[*index].state != NodeState::Admitted
                || !votes.contains(node(*index))
        };
        (0..NODES).filter(is_missing).count()
    }
}

fn a_day(seed: u64) {
    let mut day = Day::new(seed);
    day.pass(day.now + Duration::from_secs(1));
    let ttl = Duration::from_secs(day.random.random_range(20..=60));
    let (now, kept) = (day.now, LockOptions::new(ttl).keep_alive());
    day.holder.engine.acquire(b"a", &kept, now).unwrap();
    day.exchange();
    let Some(Event::Lock { result: Ok(lease), .. }) = day.holder.engine.poll_event(now) else {
        panic!("seed {seed}: not won")
    };
    let end = now + DAY;
    while day.now < end {
        let pause = Duration::from_millis(day.random.random_range(1..60_000));
        day.pass(day.now + pause);
        let index = day.random.random_range(0..NODES);
        let is_due = day.places[index].lives < LIVES && day.places[index].until.is_none();
        if is_due && day.missing(lease) < 2 {
            day.forget(index);
        }
        let now = day.now;
        day.rival.engine.acquire(b"a", &LockOptions::new(ttl), now).unwrap();
        day.pass(now + Duration::from_secs(1));
        let refused = day.rival.engine.poll_event(day.now);
        assert!(matches!(refused, Some(Event::Lock { result: Err(_), .. })), "seed {seed}");
        let event = day.holder.engine.poll_event(day.now);
        assert!(event.is_none(), "seed {seed}: {event:?}");
        let deadline = day.holder.engine.deadline(lease);
        assert!(deadline.is_some_and(|deadline| deadline > day.now), "seed {seed}");
    }
    let now = day.now;
    day.holder.engine.release(lease, now);
    day.pass(now + LONGEST * 3);
    let left: usize = day.places.iter_mut().map(|it| it.server.key_count(on_server(day.now))).sum();
    assert_eq!((left, day.holder.engine.slots_in_use()), (0, 0), "seed {seed}");
    let lives: Vec<_> = day.places.iter().map(|place| place.lives).collect();
    assert_eq!(lives, [LIVES; NODES], "seed {seed}");
}

/// `REDBOLT_DAYS=200` tries more seeds.
#[test]
fn a_lease_that_is_kept_for_a_day_outlives_a_hundred_lives_of_each_node() {
    let days = std::env::var("REDBOLT_DAYS").ok().and_then(|days| days.parse().ok()).unwrap_or(4);
    (0..days).for_each(a_day);
}

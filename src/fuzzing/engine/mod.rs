//! The engine among nodes that answer, lie, hang, die and restart, under a caller who does anything
//! at any time.
//!
//! The input is a program: some bytes of configuration, then one operation after the other. The
//! nodes are embedded servers, so as long as the program neither forges an answer nor takes a
//! node's memory, what is checked is the real thing: a lease is held by a quorum of them until its
//! deadline, and what is released is gone.

mod ending;
mod ledger;
mod peer;
mod world;

use std::time::Duration;

use super::source::Source;
use crate::config::Retry;
use crate::error::Cause;
use crate::options::LockOptions;
use ledger::{Name, Purpose};
use peer::AFFLICTIONS;
use redbolt_embedded::model::Memory;
use world::World;

use crate::quorum::NodeId;

/// Operations in one input; more would find nothing that these do not.
const STEPS_MAX: usize = 400;

/// Runs the program and checks the engine's promises after each of its steps, and that all ends
/// well when all nodes answer again.
pub fn engine_ops(program: &[u8]) {
    let mut source = Source::new(program);
    let mut world = World::new(&mut source);
    let ending = source.byte();
    world.pass();
    if ending & 1 == 0 {
        world.greet_all();
    }
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        world.step(&mut source);
        world.audit();
    }
    if ending & 2 == 0 {
        world.wait_in_vain();
    }
    world.end_well();
}

pub(super) const KEYS: [&[u8]; 4] = [b"a", b"b", &[b'k'; 41], &[b'K'; 4096]];

/// Answers that a server might give, if not to this question.
const ANSWERS: [&[u8]; 30] = [
    b"+OK\r\n",
    b"_\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b":0\r\n",
    b":1\r\n",
    b":2\r\n",
    b"+QUEUED\r\n",
    b"-NOSCRIPT No matching script.\r\n",
    b"-NOPERM this user has no permissions to run the 'eval' command\r\n",
    b"-ERR unknown command 'DELIFEQ'\r\n",
    b"-ERR syntax error\r\n",
    b"-ERR something else\r\n",
    b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-MASTERDOWN Link with MASTER is down\r\n",
    b"-LOADING loading the dataset in memory\r\n",
    b"-MISCONF Errors writing to the AOF file\r\n",
    b"-NOAUTH Authentication required.\r\n",
    b"-NOPROTO unsupported protocol version\r\n",
    b"-EXECABORT Transaction discarded because of previous errors.\r\n",
    b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    b"-MOVED 1 10.0.0.1:7000\r\n",
    b"*1\r\n+OK\r\n",
    b"*1\r\n:1\r\n",
    b"*0\r\n",
    b"%3\r\n+server\r\n+valkey\r\n+version\r\n+9.1.2\r\n+proto\r\n:3\r\n",
    b"$36\r\nrun_id:lied\r\nuptime_in_seconds:99999\r\n\r\n",
    b">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n",
    b"$40\r\n0123456789abcdef0123456789abcdef01234567\r\n",
];

impl World {
    fn any_node(&self, source: &mut Source<'_>) -> NodeId {
        NodeId::new(source.below(self.peers.len())).expect("few nodes")
    }

    /// One operation of the program.
    fn step(&mut self, source: &mut Source<'_>) {
        match source.below(32) {
            0..4 => self.acquire(source, 1),
            4 => {
                // The last one fills a node's buffer, with long keys.
                let count = source.pick(&[2, 3, 8, 2, 3, 8, 2, 255]);
                self.acquire(source, count);
            }
            5 | 6 => self.extend(source),
            7 => self.release(source),
            8 => self.release_quietly(source),
            9 => self.cancel(source),
            10 => self.detach(source),
            11 => self.adopt(source),
            12 => self.release_token(source),
            13 => self.query(source),
            14..18 => self.exchange(source),
            18..20 => self.exchange_all(source),
            20 => {
                let id = self.any_node(source);
                self.connect(id);
            }
            21 => {
                let id = self.any_node(source);
                let cause = source.pick(&[Cause::Closed, Cause::ConnectionRefused]);
                self.lose(id, cause, source.flag());
            }
            22 => {
                let (id, answer) = (self.any_node(source), source.pick(&ANSWERS));
                self.lie(id, answer);
            }
            23 => {
                let (id, len) = (self.any_node(source), source.below(32));
                self.lie(id, source.bytes(len));
            }
            24 | 25 => self.sleep(source),
            26 => {
                self.engine.handle_timeout(self.now);
                self.settle_connections();
            }
            27 => self.poll_events(),
            28 => {
                let id = self.any_node(source);
                let choice = source.below(AFFLICTIONS);
                self.peers[id.index()].afflict(choice);
            }
            29 => {
                let id = self.any_node(source);
                self.restart(id, source.pick(&[Memory::Kept, Memory::Lost]));
            }
            30 => {
                let id = self.any_node(source);
                self.run_dead(id);
            }
            _ => self.look(source),
        }
    }

    fn acquire(&mut self, source: &mut Source<'_>, count: usize) {
        let key = source.pick(&KEYS);
        let ttl = self.ttl(source);
        let options = source.byte();
        let mut acquire = LockOptions::new(ttl);
        let mut min_validity = Duration::ZERO;
        if options & 1 != 0 {
            min_validity = ttl / 2;
            acquire = acquire.min_validity(min_validity);
        }
        if options & 2 != 0 {
            acquire = acquire.timeout(Duration::from_millis(u64::from(source.u16() % 3000)));
        }
        let mut is_endless = false;
        if options & 4 != 0 {
            let mut retry = Retry::every(
                Duration::from_millis(source.pick(&[20, 100, 400]) * u64::from(options & 64 == 0)),
                Duration::from_millis(source.pick(&[0, 1, 200])),
            );
            if options & (8 | 64) != 0 {
                retry = retry.attempts(3);
            }
            is_endless = options & (2 | 8 | 64) == 0;
            acquire = acquire.retry(retry);
        }
        for _ in 0..count {
            if options & 16 != 0 {
                acquire = acquire.token(format!("token {}", self.unique()));
            }
            match self.engine.acquire(key, &acquire, self.now) {
                Ok(op) => {
                    let purpose = Purpose::Lock { key: key.to_vec(), min_validity };
                    self.ledger.open(op, purpose, is_endless && options & 16 == 0);
                }
                Err(error) => return assert!(!error.to_string().is_empty()),
            }
            if count > 1 && options & 32 != 0 {
                let op = self.ledger.tickets.last().expect("just opened").op;
                self.engine.cancel(op, self.now);
                self.poll_events();
            }
        }
    }

    fn ttl(&self, source: &mut Source<'_>) -> Duration {
        match source.below(8) {
            0..4 => self.max_ttl,
            4 | 5 => self.max_ttl / 4,
            6 => Duration::from_millis(10),
            // Most of these are refused.
            _ => Duration::from_micros(source.u16().into()),
        }
    }

    /// The end that an extension to `ttl` gives if it wins.
    fn best(&self, ttl: Duration) -> crate::time::Instant {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let drift = crate::quorum::Drift::default().of_ms(ttl_ms);
        self.now + Duration::from_millis(ttl_ms.saturating_sub(drift))
    }

    fn lease(&self, source: &mut Source<'_>) -> Option<usize> {
        let count = self.ledger.leases.len();
        let choice = source.below(256);
        choice.checked_rem(count)
    }

    fn extend(&mut self, source: &mut Source<'_>) {
        let ttl = self.ttl(source);
        let Some(index) = self.lease(source) else { return };
        let lease = self.ledger.leases[index].id;
        let best = self.best(ttl);
        if let Ok(op) = self.engine.extend(lease, ttl, self.now) {
            assert!(self.now < self.ledger.leases[index].deadline, "extended after its end");
            self.ledger.open(op, Purpose::Extend { lease, best }, false);
        }
    }

    fn release(&mut self, source: &mut Source<'_>) {
        let Some(index) = self.lease(source) else { return };
        let held = self.ledger.take(index);
        if let Ok(op) = self.engine.unlock(held.id, self.now) {
            self.ledger.open(op, Purpose::Unlock { name: held.name.clone() }, false);
        }
        assert!(self.engine.unlock(held.id, self.now).is_err(), "released twice");
        self.ledger.spent.push(held.name);
    }

    fn release_quietly(&mut self, source: &mut Source<'_>) {
        let Some(index) = self.lease(source) else { return };
        let held = self.ledger.take(index);
        self.engine.release(held.id, self.now);
        self.engine.release(held.id, self.now);
        self.ledger.spent.push(held.name);
    }

    fn cancel(&mut self, source: &mut Source<'_>) {
        let choice = source.below(256);
        if let Some(index) = choice.checked_rem(self.ledger.tickets.len()) {
            self.engine.cancel(self.ledger.tickets[index].op, self.now);
        }
    }

    fn detach(&mut self, source: &mut Source<'_>) {
        let Some(index) = self.lease(source) else { return };
        let held = self.ledger.take(index);
        self.engine.detach(held.id);
        if held.is_shared {
            self.ledger.spent.push(held.name.clone());
        }
        self.ledger.detached.push((held.name, held.deadline));
    }

    /// A name that was a lease once, or never was.
    fn name(&self, source: &mut Source<'_>) -> Name {
        let choice = source.below(256);
        choice.checked_rem(self.ledger.names.len()).filter(|_| choice < 240).map_or_else(
            || Name { key: KEYS[choice % KEYS.len()].to_vec(), token: b"nobody's".to_vec() },
            |index| self.ledger.names[index].clone(),
        )
    }

    fn adopt(&mut self, source: &mut Source<'_>) {
        let (ttl, name) = (self.ttl(source), self.name(source));
        let best = self.best(ttl);
        if let Ok(op) = self.engine.adopt(&name.key, &name.token, &LockOptions::new(ttl), self.now)
        {
            let is_shared = self.ledger.share(&name);
            for (_, deadline) in self.ledger.detached.iter_mut().filter(|(it, _)| *it == name) {
                *deadline = best.min(*deadline);
            }
            // It may come to nothing, and the keys live on all the same.
            self.ledger.detached.push((name.clone(), self.now));
            self.ledger.open(op, Purpose::Adopt { name, best, is_shared }, false);
        }
    }

    fn release_token(&mut self, source: &mut Source<'_>) {
        let name = self.name(source);
        self.ledger.share(&name);
        self.ledger.spent.push(name.clone());
        if let Ok(op) = self.engine.unlock_token(&name.key, &name.token, self.now) {
            self.ledger.open(op, Purpose::Unlock { name }, false);
        }
    }

    fn query(&mut self, source: &mut Source<'_>) {
        let commands: &[&[&[u8]]] = &[&[b"GET", b"a"], &[b"PTTL", b"a"], &[b"INFO"]];
        let commands = &commands[..source.below(4)];
        if let Ok(op) = self.engine.query(commands, self.now) {
            self.ledger.open(op, Purpose::Query { parts: commands.len() }, false);
        }
    }

    /// One node: bytes go up, run, or come down, in part or whole.
    fn exchange(&mut self, source: &mut Source<'_>) {
        let id = self.any_node(source);
        let what = source.byte();
        let len = if what & 8 == 0 { usize::MAX } else { source.u16().into() };
        if what & 1 == 0 {
            self.send(id, len);
        }
        if what & 2 == 0 {
            self.peers[id.index()].run(len, self.now);
        }
        if what & 4 == 0 {
            self.receive(id, len);
        }
        if what & 16 != 0 {
            // As in one turn of a driver: what is due is done before connections are settled.
            self.engine.handle_timeout(self.now);
        }
        self.settle_connections();
    }

    /// Every node that is chosen connects, if it may, runs what was written and is heard.
    fn exchange_all(&mut self, source: &mut Source<'_>) {
        let chosen = source.byte();
        for id in self.ids().filter(|id| chosen >> id.index() & 1 == 0) {
            self.connect(id);
            self.send(id, usize::MAX);
            self.peers[id.index()].run(usize::MAX, self.now);
            self.receive(id, usize::MAX);
        }
        self.settle_connections();
    }

    /// Time passes; somebody may look at the sockets meanwhile, afterwards, or not at all.
    fn sleep(&mut self, source: &mut Source<'_>) {
        let ms = Duration::from_millis(source.u16().into());
        match source.below(4) {
            0 => self.now = self.now + ms / 64,
            1 => {
                self.now = self.now + ms;
                self.pass();
            }
            2 => self.attend(ms.min(Duration::from_secs(2))),
            _ => {
                // Until the next deadline, as an event loop does.
                if let Some(at) = self.engine.next_deadline() {
                    self.now = self.now.max(at);
                    self.pass();
                }
            }
        }
    }

    /// What only looks, and what changes nothing but randomness.
    fn look(&mut self, source: &mut Source<'_>) {
        match source.below(4) {
            0 => {
                let unique = self.unique();
                let mut seed = [0; 32];
                seed[..8].copy_from_slice(&unique.to_le_bytes());
                self.engine.reseed(seed);
            }
            1 => self.engine.begin_close(),
            2 => {
                while let Some(notice) = self.engine.poll_notice() {
                    assert!(!notice.to_string().is_empty());
                }
                let nodes = self.engine.nodes(self.now);
                assert_eq!(nodes.len(), self.peers.len());
                assert!(!format!("{nodes:?} {:?}", self.engine).is_empty());
            }
            _ => {
                let error = self.engine.connect_error(self.now);
                assert_eq!(error.is_some(), self.engine.voters().count() < self.engine.quorum());
                assert!(error.is_none_or(|error| !error.to_string().is_empty()));
            }
        }
    }
}

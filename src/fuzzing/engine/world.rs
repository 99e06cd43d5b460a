//! [`World`]: the engine, its nodes and its caller, step by step.

use std::time::Duration;

use super::ledger::{Held, Ledger, Name, Purpose};
use super::peer::{Link, Peer};
use crate::config::{Admission, Config, RestartGuard};
use crate::engine::{Connection, Engine, Event, OpId};
use crate::error::{Cause, ExtendError, LockError, Unlocked};
use crate::fuzzing::source::Source;
use crate::quorum::{NodeId, Quorum};
use crate::time::Instant;
use redbolt_embedded::Flavor;
use redbolt_embedded::model::Memory;

/// What the engine promises to keep for a node's socket, and a greeting or two.
const OUTPUT_LEN_MAX: usize = (1 << 20) + (16 << 10);

pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) peers: Vec<Peer>,
    pub(super) ledger: Ledger,
    pub(super) now: Instant,
    pub(super) node_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) max_ttl: Duration,
    in_flight_max: usize,
    /// A node that lost its memory would be noticed.
    is_guarded: bool,
    /// Makes tokens and seeds unique.
    counter: u64,
}

impl World {
    /// A configuration and its nodes, as the first bytes of the input choose them.
    pub(super) fn new(source: &mut Source<'_>) -> Self {
        let nodes = 1 + source.below(7);
        let majority = nodes / 2 + 1;
        let quorum = majority + source.below(nodes - majority + 1);
        let ms = Duration::from_millis;
        let node_timeout = ms(source.pick(&[50, 20]));
        let connect_timeout = ms(source.pick(&[1000, 100, 5]));
        let max_ttl = ms(source.pick(&[30_000, 2_000, 50]));
        let in_flight_max = source.pick(&[64, 1, 3, 1024]);
        let guard = source.pick(&[RestartGuard::On, RestartGuard::Off]);
        let admission = source.pick(&[Admission::Strict, Admission::Lenient]);
        let password = source.below(4) == 0;
        let mut config = Config::new((1..=nodes).map(|port| format!("n:{port}")))
            .expect("addresses")
            .quorum(Quorum::AtLeast(quorum))
            .node_timeout(node_timeout)
            .connect_timeout(connect_timeout)
            .max_ttl(max_ttl)
            .restart_guard(guard)
            .admission(admission)
            .in_flight_max(in_flight_max);
        if password {
            config = config.password("p").client_name("fuzz");
        }
        let now = Instant::from_nanos(1_000_000_000_000);
        let flavors = source.byte();
        let flavor = |index: u8| match flavors {
            choice @ 0..5 => Flavor::ALL[usize::from(choice)],
            mixed => Flavor::ALL[usize::from(mixed.wrapping_add(index)) % Flavor::ALL.len()],
        };
        let peers = (0..).take(nodes).map(|index| Peer::new(index, flavor(index), password, now));
        Self {
            engine: Engine::new(&config, [source.byte(); 32], now).expect("in range"),
            peers: peers.collect(),
            ledger: Ledger::new(),
            now,
            node_timeout,
            connect_timeout,
            max_ttl,
            in_flight_max,
            is_guarded: guard == RestartGuard::On && admission == Admission::Strict,
            counter: 0,
        }
    }

    pub(super) const fn unique(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.peers.len()).filter_map(NodeId::new)
    }

    fn peer(&mut self, id: NodeId) -> &mut Peer {
        &mut self.peers[id.index()]
    }

    // ---- the sockets ----

    pub(super) fn connect(&mut self, id: NodeId) {
        if self.peer(id).link == Link::Wanted {
            self.peer(id).open();
            self.engine.handle_connected(id, self.now);
        }
    }

    pub(super) fn lose(&mut self, id: NodeId, cause: Cause, is_written: bool) {
        if self.peer(id).link != Link::Absent {
            self.peer(id).close(is_written);
            self.engine.handle_lost(id, cause, self.now);
        }
    }

    /// The socket takes up to `len` bytes.
    pub(super) fn send(&mut self, id: NodeId, len: usize) {
        if self.peer(id).link == Link::Open {
            let output = self.engine.output(id);
            let len = len.min(output.len());
            self.peers[id.index()].write(&output[..len]);
            self.engine.handle_sent(id, len);
        }
    }

    /// Up to `len` bytes of what the node answered come in.
    pub(super) fn receive(&mut self, id: NodeId, len: usize) {
        let bytes = self.peer(id).receive(len);
        if !bytes.is_empty() {
            self.hand_in(id, &bytes);
        }
    }

    /// Bytes that no server sent.
    pub(super) fn lie(&mut self, id: NodeId, bytes: &[u8]) {
        if self.peer(id).link == Link::Open {
            self.ledger.trust.honest = false;
            self.hand_in(id, bytes);
        }
    }

    fn hand_in(&mut self, id: NodeId, bytes: &[u8]) {
        self.engine.handle_bytes(id, bytes, self.now);
        if !self.engine.is_connected(id) {
            self.peer(id).close(true);
        }
    }

    pub(super) fn run_dead(&mut self, id: NodeId) {
        let now = self.now;
        if self.peer(id).run_dead(now) {
            self.ledger.trust.in_order = false;
        }
    }

    pub(super) fn restart(&mut self, id: NodeId, memory: Memory) {
        if memory == Memory::Lost {
            self.ledger.trust.remembering = false;
            self.ledger.trust.guarded &= self.is_guarded;
        }
        self.lose(id, Cause::Closed, false);
        let now = self.now;
        self.peer(id).restart(memory, now);
    }

    // ---- the caller ----

    /// Does what the engine wants of its sockets.
    pub(super) fn settle_connections(&mut self) {
        while let Some((id, wish)) = self.engine.poll_connection() {
            match wish {
                Connection::Open => {
                    assert_eq!(self.peer(id).link, Link::Absent, "a second connection");
                    assert!(self.engine.wants_connection(id));
                    self.peer(id).link = Link::Wanted;
                }
                Connection::Close => self.peer(id).close(true),
            }
        }
    }

    /// A pass whose time has come leaves nothing that is due: whoever sleeps until the next
    /// deadline must not be woken at once, for ever.
    pub(super) fn pass(&mut self) {
        for _ in 0..100 {
            self.engine.handle_timeout(self.now);
            self.settle_connections();
            self.poll_events();
            if self.engine.next_deadline().is_none_or(|at| at > self.now) {
                return;
            }
        }
        let (now, next) = (self.now, self.engine.next_deadline());
        panic!("busy at {now:?}, until {next:?}: {:?}", self.engine.nodes(now));
    }

    pub(super) fn poll_events(&mut self) {
        while let Some(event) = self.engine.poll_event(self.now) {
            self.note(event);
        }
        assert!(!self.engine.has_event());
        while let Some(lease) = self.engine.poll_late_vote() {
            let _ = self.engine.votes(lease);
        }
    }

    /// One event, checked against what was asked for.
    fn note(&mut self, event: Event) {
        match event {
            Event::Lock { op, result } => self.note_lock(op, result),
            Event::Adopt { op, result } => {
                let ticket = self.ledger.close(op);
                let Purpose::Adopt { name, best, is_shared } = ticket.purpose else {
                    panic!("an adoption that was not asked for")
                };
                if let Err(error) = result {
                    return check_error(&error.to_string());
                }
                let id = result.expect("ok");
                let deadline = self.engine.deadline(id).expect("a lease");
                assert!(self.now < deadline && deadline == best, "adopted until {deadline:?}");
                // What an older extension of it may still do nobody here can know.
                let is_shared = is_shared || !self.ledger.trust.in_order;
                self.ledger.hold(Held { id, name, deadline, is_shared }, self.now);
            }
            Event::Extend { op, lease, result } => {
                let Purpose::Extend { lease: asked, best } = self.ledger.close(op).purpose else {
                    panic!("an extension that was not asked for")
                };
                assert_eq!(lease, asked);
                let deadline = self.engine.deadline(lease);
                match result {
                    Ok(()) => {
                        assert!(deadline.is_none_or(|at| at == best && self.now < at));
                        let leases = self.ledger.leases.iter_mut();
                        leases
                            .filter(|held| held.id == lease)
                            .for_each(|held| held.deadline = best);
                    }
                    Err(error) => {
                        assert!(deadline.is_none_or(|at| at <= best));
                        let is_over = matches!(error, ExtendError::Expired);
                        assert!(!is_over || deadline.is_none_or(|at| at <= self.now));
                        check_error(&error.to_string());
                    }
                }
            }
            Event::Unlock { op, result } => {
                let Purpose::Unlock { name } = self.ledger.close(op).purpose else {
                    panic!("a release that was not asked for")
                };
                if result != Ok(Unlocked::Unknown) {
                    self.ledger.check_released(&self.engine, &name, &mut self.peers, self.now);
                }
            }
            Event::Lost { lease, .. } => {
                let is_over = self.engine.remaining_at(lease, self.now).is_zero();
                assert!(is_over && self.engine.is_lost(lease), "lost, and still valid");
            }
            Event::Query { op, replies } => {
                let Purpose::Query { parts } = self.ledger.close(op).purpose else {
                    panic!("a query that was not asked for")
                };
                assert_eq!(replies.len(), self.peers.len());
                for answers in replies {
                    let is_whole = answers.replies.len() == parts;
                    assert!(answers.replies.len() <= parts);
                    assert!(is_whole || answers.cause != Cause::None);
                }
            }
        }
    }

    fn note_lock(&mut self, op: OpId, result: Result<crate::engine::LeaseId, LockError>) {
        let Purpose::Lock { key, min_validity } = self.ledger.close(op).purpose else {
            panic!("a lock that was not asked for")
        };
        match result {
            Ok(id) => {
                let deadline = self.engine.deadline(id).expect("a lease");
                assert!(self.now < deadline, "handed out after its end");
                assert!(self.engine.remaining_at(id, self.now) >= min_validity);
                let (held_key, token) = self.engine.lease_name(id).expect("a lease");
                assert_eq!(held_key, key);
                let name = Name { key, token: token.as_bytes().to_vec() };
                self.ledger.hold(Held { id, name, deadline, is_shared: false }, self.now);
            }
            Err(error) => {
                let is_end = matches!(
                    error,
                    LockError::Taken(_)
                        | LockError::NoQuorum(_)
                        | LockError::Expired(_)
                        | LockError::Cancelled
                );
                assert!(is_end, "{error}");
                check_error(&error.to_string());
            }
        }
    }

    /// What must hold after every step.
    pub(super) fn audit(&mut self) {
        assert!(self.engine.in_flight() <= self.in_flight_max);
        for id in self.ids() {
            let len = self.engine.output(id).len();
            assert!(len <= OUTPUT_LEN_MAX, "{len} bytes wait for a node");
            let is_told = self.engine.nodes_with_output().contains(id);
            assert!(len == 0 || is_told, "{len} bytes that nobody is told of");
        }
        self.ledger.audit(&self.engine, &mut self.peers, self.now);
    }
}

fn check_error(text: &str) {
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
}

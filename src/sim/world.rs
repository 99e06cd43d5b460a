//! The world of one seed: the virtual clock, the events to come, and all clients and nodes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::Violation;
use super::client::SimClient;
use super::clock::{Clock, Global, SECOND};
use super::cost::Quiet;
use super::counts::{Counts, Fault};
use super::elections::History;
use super::hand_over::Turns;
use super::ledger::Ledger;
use super::net::Conn;
use super::node::SimNode;
use super::oracle::Oracle;
use super::plan::Plan;
use super::random::Random;
use crate::config::Config;
use crate::rules::Kind;
use redbolt_embedded::model::Condition;

/// An event at a point in time. An event that names something stale does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A client goes on.
    Client { client: usize, epoch: u64 },
    /// Bytes reach the server of a connection.
    Up { conn: usize },
    /// Bytes reach the client of a connection.
    Down { conn: usize },
    /// A connection attempt is answered.
    Answered { conn: usize },
    /// The client's system learns of a connection's end.
    Ended { conn: usize, reset: bool },
    /// A published message leaves its server late.
    Message { late: usize },
    /// A thawed server runs the next portion of what it had received.
    Drain { node: usize },
    /// The next fault is due.
    Fault,
    /// A connection of a frozen server is reset.
    ResetOf { client: usize, node: usize },
    /// A fault of a node ends.
    Mend { node: usize, life: u64, what: Mend },
    /// All clients may change their lists of nodes.
    Lists,
    /// A client that owes nothing any more must have left nothing.
    Glance { left: u32 },
    /// All that was owed must be paid.
    Settled,
    /// Every client must have had every key.
    Deadline,
    /// No key may be left.
    Final,
}

/// The end of a fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mend {
    Thaw,
    Start { kept: bool, loading: bool },
    Loaded,
    Promote,
    FailBack,
    Cease,
    Retire,
    Memory,
    Disk,
    Script,
    Replicas,
    Permissions,
    Cluster,
    Policy,
}

/// An event to come. The queue takes the greatest first, so an earlier event is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    at: Global,
    /// Of events at one moment, the one that was queued first happens first.
    nth: u64,
    event: Event,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.nth).cmp(&(self.at, self.nth))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Faults and work.
    Safety,
    /// All is healed, nothing new is begun.
    Settling,
    /// Every client locks every key once.
    Progress,
    Done,
}

/// What the network does between one client and one node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    pub(super) stalled_until: Global,
    pub(super) slow_until: Global,
}

/// Key and token on their way from one client to another.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) from: usize,
    pub(super) key: usize,
    pub(super) token: Vec<u8>,
    /// The holder whose belief goes on with the lease.
    pub(super) holder: u64,
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) config: Config,
    pub(super) random: Random,
    pub(super) now: Global,
    pub(super) phase: Phase,
    /// The master of each node. Behind them, where nodes have replicas, the replica of each.
    pub(super) nodes: Vec<SimNode>,
    pub(super) clients: Vec<SimClient>,
    pub(super) conns: Vec<Conn>,
    /// By client, then by node.
    pub(super) links: Vec<Vec<Link>>,
    pub(super) oracle: Oracle,
    pub(super) turns: Turns,
    /// Published messages that their servers hold back, by the connection that they are for.
    pub(super) late_messages: Vec<(usize, Vec<u8>)>,
    pub(super) forgeries: u64,
    /// Tokens that forged messages offer in the name of a client. The client never drew them, so it
    /// leaves keys that a holder writes by them to their TTL.
    pub(super) forged_offers: Vec<[u8; 20]>,
    pub(super) counts: Counts,
    pub(super) offers: Vec<Offer>,
    /// Tokens of leases that no client is bound to release.
    pub(super) given_away: Vec<Vec<u8>>,
    pub(super) ledger: Ledger,
    pub(super) claims: History,
    /// When something last changed, and what each client has sent since.
    pub(super) changed_at: Global,
    pub(super) quiet: Vec<Quiet>,
    /// Scheduled faults so far, and rounds of the scheduler.
    pub(super) faults: u64,
    pub(super) fault_rounds: u64,
    pub(super) healed_at: Global,
    holders: u64,
    queue: BinaryHeap<Due>,
    queued: u64,
    pub(super) trace: Option<fn(&str)>,
}

/// A seed that takes more steps than this is spinning. A busy seed took 3.5 million steps, and came
/// to rest.
const STEPS_MAX: u64 = 5_000_000;

impl World {
    pub(super) fn new(mut random: Random, trace: Option<fn(&str)>) -> Self {
        let plan = Plan::draw(&mut random);
        let config = plan.config();
        // Drops the counts that an earlier run left, if it panicked.
        Counts::default().take_sights();
        let mut world = Self {
            config,
            now: SECOND,
            phase: Phase::Safety,
            nodes: Vec::new(),
            clients: Vec::new(),
            conns: Vec::new(),
            links: vec![vec![Link::default(); plan.nodes]; plan.clients],
            oracle: Oracle::new(plan.keys),
            turns: Turns::new(plan.keys),
            late_messages: Vec::new(),
            forgeries: 0,
            forged_offers: Vec::new(),
            counts: Counts::default(),
            offers: Vec::new(),
            given_away: Vec::new(),
            ledger: Ledger::default(),
            claims: History::default(),
            changed_at: 0,
            quiet: (0..plan.clients).map(|_| Quiet::default()).collect(),
            faults: 0,
            fault_rounds: 0,
            healed_at: 0,
            holders: 0,
            queue: BinaryHeap::new(),
            queued: 0,
            trace,
            random,
            plan,
        };
        world.log(|world| format!("{:?}", world.plan));
        world.counts.setting(world.plan.setting);
        let sides = 1 + usize::from(world.plan.rare.is_backed);
        (0..sides * world.plan.servers()).for_each(|place| world.start(place));
        for client in 0..world.plan.clients {
            let clock = world.clock();
            let new = SimClient::new(
                client,
                0,
                clock,
                &world.plan,
                &world.config,
                world.now,
                &mut world.random,
            );
            world.clients.push(new);
            let at = world.now + world.random.below(world.plan.gap);
            world.wake(client, at);
        }
        let at = world.now + world.plan.fault_every;
        world.at(at, Event::Fault);
        if world.plan.changes_lists() {
            world.at(at, Event::Lists);
        }
        world
    }

    /// Starts a master, or a replica behind the masters.
    fn start(&mut self, place: usize) {
        let (clock, node) = (self.clock(), place % self.plan.servers());
        let options = self.plan.server(node);
        let mut new = SimNode::new(&options, clock, self.now, &mut self.random);
        new.is_replica = place != node;
        for condition in [
            Condition::Denied(self.plan.denied(node)),
            Condition::Backed(self.plan.rare.is_backed),
            Condition::Replica(new.is_replica),
        ] {
            new.server.set_condition(condition);
        }
        if self.plan.rare.unguarded >> node & 1 == 1 {
            new.server.set_condition(Condition::Unguarded(true));
        }
        if self.plan.rare.old >> node & 1 == 1 {
            new.server.set_condition(Condition::Renamed(vec!["hello".to_owned()]));
        }
        self.nodes.push(new);
    }

    /// A clock of some machine: as fast or slow as is allowed, or somewhere between.
    fn clock(&mut self) -> Clock {
        let most = self.plan.rate_ppm;
        let between = self.random.between(0, 2 * most.unsigned_abs()).cast_signed() - most;
        let ppm = self.random.pick(&[-most, most, between, 0]);
        Clock { origin: 1_000_000 * SECOND + self.random.below(1000 * SECOND), ppm }
    }

    /// Runs to the end, or to the first violation.
    pub(super) fn run(mut self) -> (Counts, Option<Violation>) {
        while self.phase != Phase::Done && self.oracle.violation.is_none() {
            let Some(Due { at, event, .. }) = self.queue.pop() else {
                self.oracle.fail(Kind::Overdue, || "nothing is to happen any more".to_owned());
                break;
            };
            self.now = self.now.max(at);
            self.counts.steps += 1;
            if self.counts.steps > STEPS_MAX {
                let busy = self.busy();
                self.oracle.fail(Kind::Unbounded, || {
                    format!("it does not come to rest: {event:?} {busy}")
                });
            }
            self.happen(event);
        }
        self.counts.take_sights();
        self.counts.virtual_ms = self.now / 1_000_000;
        (self.counts, self.oracle.violation)
    }

    /// The state of the clients, for a seed that spins.
    fn busy(&self) -> String {
        let client = |client: &SimClient| {
            let now = client.local(self.now);
            format!("{:?} at {now:?}, due {:?}; ", client.engine, client.engine.next_deadline())
        };
        self.clients.iter().map(client).collect()
    }

    fn happen(&mut self, event: Event) {
        if !matches!(event, Event::Client { .. } | Event::Up { .. } | Event::Down { .. }) {
            self.changed();
        }
        match event {
            Event::Client { client, epoch } => self.client_goes_on(client, epoch),
            Event::Up { conn } => self.reaches_server(conn),
            Event::Down { conn } => self.reaches_client(conn),
            Event::Answered { conn } => self.connection_answered(conn),
            Event::Ended { conn, reset } => self.connection_ended(conn, reset),
            Event::Message { late } => self.late_message(late),
            Event::Drain { node } => self.drain(node),
            Event::Fault => self.fault_due(),
            Event::ResetOf { client, node } => {
                if self.phase == Phase::Safety {
                    self.reset(client, node);
                }
            }
            Event::Mend { node, life, what } => self.mend(node, life, what),
            Event::Lists => self.change_lists(),
            Event::Glance { left } => self.glance(left),
            Event::Settled => self.settled(),
            Event::Deadline => self.progress_due(),
            Event::Final => self.finally(),
        }
    }

    /// `event` happens at `at`.
    pub(super) fn at(&mut self, at: Global, event: Event) {
        self.queued += 1;
        self.queue.push(Due { at: at.max(self.now), nth: self.queued, event });
    }

    /// `event` happens `after` from now.
    pub(super) fn after(&mut self, after: Global, event: Event) {
        self.at(self.now + after, event);
    }

    /// Traces what happens, if a trace is wanted.
    pub(super) fn log(&self, line: impl FnOnce(&Self) -> String) {
        if let Some(trace) = self.trace {
            trace(&format!("{:>14} {}", self.now, line(self)));
        }
    }

    /// Counts a fault of the schedule.
    pub(super) fn scheduled(&mut self, fault: Fault, node: usize) {
        self.faults += 1;
        self.counts.fault(fault);
        self.log(|_| format!("fault {fault:?} of {node}"));
    }

    /// A name for a new holder.
    pub(super) const fn holder(&mut self) -> u64 {
        self.holders += 1;
        self.holders
    }

    /// How long bytes take between a client and a node from now on.
    pub(super) fn delay(&mut self, client: usize, node: usize) -> Global {
        let plan = &self.plan;
        let link = self.links[client][node % plan.nodes];
        let mut delay = self.random.between(plan.latency / 2, plan.latency);
        if link.slow_until > self.now {
            delay += self.random.between(0, 2 * plan.node_timeout);
        }
        if self.phase == Phase::Safety && self.random.chance(plan.late) {
            delay += self.random.below(plan.late_by);
        }
        delay + link.stalled_until.saturating_sub(self.now)
    }
}

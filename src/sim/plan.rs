//! The choices that a seed makes once: the topology, the bounds, and the faults that may happen.
//!
//! Each seed leaves some faults out: a case that is rare with all faults is common with a few.

use std::time::Duration;

use super::clock::{Global, MS, SECOND, US};
use super::counts::{Fault, Setting};
use super::random::Random;
use super::rare::{RARE, Rare};
use super::stray::Strays;
use crate::config::Config;
use crate::guards::{Admission, RestartGuard};
use crate::quorum::Quorum;
use crate::retry::Retry;
use redbolt_embedded::Flavor;

/// The settings of one run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) setting: Setting,
    pub(super) rare: Rare,
    /// Set if a fuzzer makes the choices.
    pub(super) strays: Option<Strays>,
    pub(super) nodes: usize,
    pub(super) quorum: usize,
    pub(super) clients: usize,
    pub(super) keys: usize,
    /// The most operations that one client has under way at once.
    pub(super) tasks: usize,
    pub(super) in_flight_max: usize,
    /// Of a thousand leases, how many the engine keeps alive.
    pub(super) kept: u64,
    /// Of a thousand calls, how many poll for the lock instead of being woken.
    pub(super) unwoken: u64,
    /// Of a thousand calls, how many ask for a fence.
    pub(super) fenced: u64,
    /// How far the wall clocks of clients are apart.
    pub(super) clock_spread: Global,
    /// Of a thousand calls, how many let their lock linger.
    pub(super) lingers: u64,
    /// Of a thousand calls, how many are for several keys.
    pub(super) sets: u64,
    /// The keys of a client are the gate and the slots of one lock.
    pub(super) slots: bool,
    /// Clients wake each other.
    pub(super) direct_wake: bool,
    pub(super) transfers_in_row: u8,
    /// Of a thousand messages, how many are lost and how many late. Of a thousand runs of a server,
    /// how many are followed by a forged message.
    pub(super) message_lost: u64,
    pub(super) message_late: u64,
    pub(super) forged: u64,
    /// The prefix of every key on the nodes.
    pub(super) prefix: &'static str,
    /// The keys as the nodes know them.
    pub(super) names: Vec<Vec<u8>>,
    /// Nodes whose users may not hear messages: a bit each.
    pub(super) mute: u64,
    /// Nothing disturbs the waiters: they are to have their turns.
    pub(super) hand_over: bool,
    /// Of a thousand nodes that become replicas, how many meet a new client at once.
    pub(super) newcomers: u64,
    /// No task begins a call before this time.
    pub(super) begin_after: Global,
    pub(super) max_ttl_ms: u64,
    pub(super) node_timeout: Global,
    pub(super) connect_timeout: Global,
    /// Parts in a million by which two clocks may differ.
    pub(super) drift_ppm: i64,
    /// A clock's own rate is off by this at most: half of the drift, which is between two clocks.
    pub(super) rate_ppm: i64,
    pub(super) flavors: Vec<Flavor>,
    /// A round trip takes at least `latency`.
    pub(super) latency: Global,
    /// Of a thousand deliveries, how many are late, and by how much at most.
    pub(super) late: u64,
    pub(super) late_by: Global,
    /// Bytes that a thawed server runs of one connection before it turns to another.
    pub(super) portion: u64,
    /// Bytes that a closed connection left in the network may arrive at any time.
    pub(super) ghosts: bool,
    pub(super) split: u64,
    pub(super) one_byte: u64,
    pub(super) short_write: u64,
    /// Of a thousand writes, how many are followed by a reset of the connection.
    pub(super) cut: u64,
    pub(super) push: u64,
    /// Of a thousand steps of a client, how many are followed by a stop.
    pub(super) pause: u64,
    /// Of a thousand such stops, how many last for about a lock's lifetime.
    pub(super) long_pauses: u64,
    /// Typical times: how long a task holds a lock, and how long it waits for its next try.
    pub(super) hold: Global,
    pub(super) gap: Global,
    /// How many nodes may forget single keys: the quorum has so many votes to spare.
    pub(super) spare: usize,
    pub(super) faults: Vec<Fault>,
    pub(super) fault_every: Global,
    pub(super) faults_least: u64,
}

impl Plan {
    pub(super) fn draw(random: &mut Random) -> Self {
        let nodes = random.pick(&[3, 3, 3, 3, 5, 5, 5, 4, 2, 7]);
        let mut quorum = nodes / 2 + 1;
        if random.chance(250) {
            quorum = random.between(quorum as u64, nodes as u64) as usize;
        }
        let drift_ppm = random.pick(&[10_000, 50_000, 100_000]);
        let max_ttl_ms = random.pick(&[60, 150, 400, 1000, 2000, 2000, 10_000, 30_000]);
        let node_timeout = random.pick(&[5, 10, 20, 50]) * MS;
        let ttl = max_ttl_ms * MS;
        let slowest = (ttl / 4).clamp(10 * MS, 200 * MS);
        let hold = random.between(ttl / 20, ttl / 2).min(400 * MS);
        let mut plan = Self {
            nodes,
            quorum,
            clients: random.between(3, 5) as usize,
            keys: random.between(1, 3) as usize,
            tasks: random.between(1, 3) as usize,
            in_flight_max: random.pick(&[2, 4, 64]),
            kept: random.pick(&[0, 300, 800]),
            setting: Setting::Common,
            rare: Rare { repeated: random.pick(&[0, 100, 300]), ..Rare::default() },
            strays: None,
            fenced: random.pick(&[0, 300, 1000]),
            clock_spread: 0,
            unwoken: random.pick(&[0, 0, 200]),
            lingers: 0,
            sets: 0,
            slots: false,
            direct_wake: random.chance(850),
            transfers_in_row: random.pick(&[16, 16, 16, 255, 1, 0]),
            message_lost: random.pick(&[0, 0, 50, 300]),
            message_late: random.pick(&[0, 0, 50, 300]),
            forged: random.pick(&[0, 0, 5, 30]),
            prefix: random.pick(&["", "", "shop:"]),
            names: Vec::new(),
            mute: u64::from(random.bytes::<1>()[0]) & random.pick(&[0, 0, 0, 0b111_1111]),
            newcomers: 0,
            hand_over: false,
            begin_after: 0,
            max_ttl_ms,
            node_timeout,
            connect_timeout: random.pick(&[50, 200, 1000]) * MS,
            drift_ppm,
            rate_ppm: drift_ppm / 2,
            flavors: (0..nodes).map(|_| random.pick(&Flavor::ALL)).collect(),
            latency: random.between(30 * US, (node_timeout / 4).min(4 * MS)),
            late: random.pick(&[0, 20, 100, 300]),
            late_by: random.pick(&[node_timeout / 2, node_timeout * 2, node_timeout * 8]),
            portion: random.pick(&[40, 120, 16 << 10]),
            ghosts: random.chance(250),
            split: random.pick(&[0, 30, 300]),
            one_byte: random.pick(&[0, 0, 20, 200]),
            short_write: random.pick(&[0, 20, 100]),
            cut: random.pick(&[0, 0, 5, 20]),
            push: random.pick(&[0, 0, 20, 100]),
            pause: random.pick(&[0, 2, 10, 30]),
            long_pauses: 100,
            hold,
            gap: random.between(slowest / 20, slowest / 2),
            spare: (2 * quorum).saturating_sub(nodes + 1),
            faults: some_faults(random),
            fault_every: random.between(slowest / 4, slowest * 2),
            faults_least: random.between(5, 12),
        };
        plan.look_at_something(random);
        plan.stray(random);
        plan.with_clocks_apart().with_lingering().with_sets().with_names()
    }

    /// Adds `Busy` to seeds that have `SlowLink`, and `NoReplicas` to seeds that have `Misconf`.
    /// These faults take no draw of their own, so that the other seeds stay as they are.
    fn add_refusals(&mut self) {
        for (known, more) in [(Fault::SlowLink, Fault::Busy), (Fault::Misconf, Fault::NoReplicas)] {
            if self.faults.contains(&known) {
                self.faults.push(more);
            }
        }
    }

    /// Lets locks linger in half of the seeds. This takes no draw of its own, so that the other
    /// seeds stay as they are.
    fn with_lingering(mut self) -> Self {
        if self.direct_wake {
            self.lingers = [0, 0, 300, 1000][(self.hold / US + self.gap / US) as usize % 4];
        }
        self
    }

    /// Adds calls for several keys to half of the seeds that have several keys and no locks that
    /// linger. This takes no draw of its own.
    fn with_sets(mut self) -> Self {
        let may_have = self.lingers == 0 && !self.hand_over && self.keys > 1;
        if may_have && self.rare.elections.is_none() && (self.hold / US).is_multiple_of(2) {
            self.sets = 500;
            let has_room = self.in_flight_max > 8;
            self.slots = has_room && self.keys_alike() > 1 && (self.hold / US).is_multiple_of(4);
            // The gate is a key, too.
            self.keys += if self.slots { self.keys / self.keys_alike() } else { 0 };
        }
        self
    }

    /// Fences need no clock as long as no node forgets, and the lists stay. Otherwise the clocks must
    /// differ by less than the time for which a node without memory is ignored: for the longest TTL
    /// no client goes on to nodes that know no fences.
    fn with_clocks_apart(mut self) -> Self {
        let forgets = |fault: &Fault| {
            matches!(
                fault,
                Fault::RestartLost | Fault::RoleChange | Fault::Failover | Fault::Evicted
            )
        };
        let ignored = self.max_ttl_ms * MS;
        let needed = self.connect_timeout + 2 * self.node_timeout;
        if !self.faults.iter().any(forgets) && !self.changes_lists() {
            self.clock_spread = 5 * 3600 * SECOND;
        } else if ignored > needed {
            self.clock_spread = (ignored - needed) / 2;
        } else {
            self.fenced = 0;
        }
        if self.rare.no_guard {
            self.fenced = 0;
        }
        self
    }

    /// Most seeds test one subject, and leave others out for it.
    fn look_at_something(&mut self, random: &mut Random) {
        self.setting = match random.below(1000) {
            0..130 => Setting::Roles,
            130..210 => Setting::Ghosts,
            210..290 => Setting::Ice,
            290..305 => Setting::Addresses,
            305..480 => Setting::HandOver,
            480..530 => Setting::Rights,
            530..570 => Setting::OldClocks,
            570..650 => Setting::GivenAway,
            650..870 => RARE[random.index(RARE.len())],
            870..900 => Setting::Elections,
            900..915 => Setting::MaxTtls,
            915..930 => Setting::Prefixes,
            930..945 => Setting::Lists,
            945..965 => Setting::Exchange,
            965..985 => Setting::Failovers,
            _ => Setting::Common,
        };
        match self.setting {
            Setting::Roles => self.look_at_roles(random),
            Setting::Failovers => self.look_at_failovers(random),
            Setting::Addresses => self.look_at_addresses(random),
            Setting::Ghosts => self.look_at_ghosts(random),
            Setting::Ice => self.look_at_ice(random),
            Setting::HandOver => self.look_at_hand_over(random),
            Setting::Rights => self.look_at_rights(random),
            Setting::OldClocks => self.look_at_old_clocks(random),
            Setting::GivenAway => self.look_at_given_away(random),
            Setting::Elections => self.look_at_elections(random),
            Setting::MaxTtls | Setting::Prefixes | Setting::Lists | Setting::Exchange => {
                self.look_at_unlike(random);
            }
            _ => self.look_at_rare(random),
        }
        self.add_refusals();
    }

    /// Masters become replicas and masters again, while requests are on their way to them.
    pub(super) fn look_at_roles(&mut self, random: &mut Random) {
        self.three_nodes(random);
        self.max_ttl_ms = random.pick(&[400, 2000, 10_000]);
        self.node_timeout = 50 * MS;
        self.latency = 4 * MS;
        self.cut = random.pick(&[0, 20, 60]);
        (self.late, self.late_by) = (300, 25 * MS);
        (self.clients, self.keys, self.tasks) = (4, random.between(1, 2) as usize, 3);
        self.gap = 20 * MS;
        self.direct_wake = false;
        self.fault_every = random.pick(&[60, 200]) * MS;
        self.hold = self.max_ttl_ms * MS / 3;
        self.faults = vec![Fault::RoleChange, Fault::RoleChange, Fault::Death, Fault::Reset];
        if random.chance(500) {
            self.faults.push(Fault::RestartLost);
        }
        self.newcomers = random.pick(&[0, 500]);
        // A counter that a node has lost is raised anew while other calls ask for a fence.
        self.fenced = random.pick(&[self.fenced, 1000]);
    }

    /// Masters fail over and back, unnoticed by clients that stand still or whose links do.
    fn look_at_failovers(&mut self, random: &mut Random) {
        self.three_nodes(random);
        self.rare.is_backed = true;
        self.max_ttl_ms = random.pick(&[2000, 10_000]);
        self.node_timeout = random.pick(&[50 * MS, 5 * SECOND]);
        self.latency = random.between(30 * US, 4 * MS);
        (self.clients, self.tasks, self.kept) = (4, 3, random.pick(&[0, 800]));
        (self.cut, self.ghosts, self.pause) = (0, false, random.pick(&[0, 2, 10]));
        // So a grant often comes before the answer to the look that follows it.
        self.split = 500;
        // The timeouts of calls follow from the gap. Some outlast a failover.
        (self.hold, self.gap) =
            (self.max_ttl_ms * MS * 2 / 3, random.pick(&[20, 20, 200, 1000]) * MS);
        self.fault_every = random.pick(&[200, 1000]) * MS;
        self.faults = vec![Fault::Failover, Fault::Failover, Fault::LinkStall, Fault::Suspend];
        if random.chance(500) {
            self.faults.extend([Fault::Death, Fault::Reset]);
        }
        self.rare.received = random.pick(&[0, 700]);
        self.faults_least = 25;
        if random.chance(400) {
            (self.nodes, self.quorum) = (1, 1);
        } else {
            self.rare.unguarded = random.pick(&[0, 0, 0, 0b1]);
        }
    }

    /// Connections die with requests on their way, which arrive when no client expects them.
    fn look_at_ghosts(&mut self, random: &mut Random) {
        self.three_nodes(random);
        self.max_ttl_ms = 2000;
        self.node_timeout = random.pick(&[20, 50]) * MS;
        self.connect_timeout = 200 * MS;
        self.latency = random.between(30 * US, MS);
        (self.ghosts, self.cut, self.late, self.pause) = (true, 60, 0, 0);
        (self.keys, self.tasks) = (3, 1);
        (self.hold, self.gap) = (200 * MS, 20 * MS);
        self.faults = vec![Fault::Reset, Fault::LinkStall, Fault::Freeze];
    }

    /// Servers freeze, connections to them die, and what they had received runs late and last.
    fn look_at_ice(&mut self, random: &mut Random) {
        self.three_nodes(random);
        self.max_ttl_ms = random.pick(&[1000, 2000, 10_000]);
        self.node_timeout = 50 * MS;
        self.latency = random.between(30 * US, 300 * US);
        (self.ghosts, self.portion, self.late, self.pause) = (false, 40, 0, 0);
        self.gap = 20 * MS;
        self.fault_every = random.between(50, 400) * MS;
        self.faults = vec![Fault::Freeze, Fault::Freeze, Fault::Reset];
    }

    /// Clients stand still after they read their clock, while a restarted server reports its age
    /// late.
    fn look_at_old_clocks(&mut self, random: &mut Random) {
        self.three_nodes(random);
        self.max_ttl_ms = random.pick(&[2000, 10_000]);
        (self.drift_ppm, self.rate_ppm) = (10_000, 5_000);
        (self.node_timeout, self.connect_timeout) = (50 * MS, 5 * SECOND);
        (self.late, self.late_by) = (random.pick(&[30, 100]), 5 * SECOND);
        (self.clients, self.keys, self.tasks) = (4, 1, 2);
        (self.pause, self.cut, self.ghosts, self.direct_wake) = (60, 0, false, false);
        (self.hold, self.gap) = (self.max_ttl_ms * MS / 3, 20 * MS);
        self.long_pauses = 500;
        self.faults = vec![Fault::RestartLost, Fault::RestartLost, Fault::Reset];
        self.fault_every = random.pick(&[200, 1000]) * MS;
    }

    /// Many leases are handed over, given away and adopted while servers stand still. Or leases are
    /// held for long, while calls wait and nothing happens.
    fn look_at_given_away(&mut self, random: &mut Random) {
        self.three_nodes(random);
        (self.max_ttl_ms, self.node_timeout) = (10_000, 50 * MS);
        self.latency = random.between(30 * US, 300 * US);
        (self.clients, self.keys) = (random.between(3, 5) as usize, random.between(1, 2) as usize);
        self.tasks = random.between(1, 3) as usize;
        (self.direct_wake, self.transfers_in_row) = (true, 16);
        (self.ghosts, self.cut, self.mute, self.fenced) = (false, 0, 0, 0);
        self.kept = random.pick(&[0, 800]);
        self.rare.repeated = random.pick(&[0, 300]);
        self.rare.names_own = 100;
        // This takes no draw of its own.
        self.rare.forces = (self.latency / US).is_multiple_of(4);
        if random.chance(300) {
            (self.hold, self.gap) = (4000 * MS, 1000 * MS);
            (self.pause, self.late, self.rare.gives_away) = (0, 0, 500);
            (self.fault_every, self.faults, self.forged) = (5 * SECOND, vec![Fault::Reset], 0);
            self.faults_least = 2;
        } else {
            (self.hold, self.gap, self.rare.gives_away) = (40 * MS, 20 * MS, 400);
            self.fault_every = random.between(50, 300) * MS;
            self.forged = random.pick(&[0, 30]);
            self.faults = vec![Fault::Freeze, Fault::Freeze, Fault::Reset, Fault::LinkStall];
            if random.chance(500) {
                // Clients end in the middle of hand-overs, in good order or not.
                self.faults.extend([Fault::Close, Fault::Death]);
            }
        }
    }

    /// Users lose the right to one compare-and-delete command after another.
    fn look_at_rights(&mut self, random: &mut Random) {
        self.three_nodes(random);
        self.max_ttl_ms = random.pick(&[400, 2000]);
        (self.clients, self.keys, self.tasks) = (4, 1, 2);
        (self.hold, self.gap) = (40 * MS, 10 * MS);
        self.fault_every = random.pick(&[20, 60]) * MS;
        self.faults = vec![Fault::Denied, Fault::Denied, Fault::Denied, Fault::Reset];
        // In half of these seeds clients stand still often, between a proof and the step that rests
        // on it.
        self.pause = random.pick(&[self.pause, 30]);
    }

    /// Locks go from one waiter to the next, and nothing disturbs them.
    fn look_at_hand_over(&mut self, random: &mut Random) {
        (self.nodes, self.quorum, self.spare) = random.pick(&[(3, 2, 0), (5, 3, 0), (3, 2, 0)]);
        self.flavors = (0..self.nodes).map(|_| random.pick(&Flavor::ALL)).collect();
        self.keys = random.between(1, 2) as usize;
        // Some clients have several calls for one key.
        self.clients = random.between(2, 5) as usize;
        self.tasks = self.keys * random.between(1, 3) as usize;
        self.in_flight_max = 64;
        self.max_ttl_ms = 10_000;
        self.node_timeout = 50 * MS;
        self.latency = random.between(30 * US, 300 * US);
        (self.late, self.ghosts, self.cut, self.pause, self.kept) = (0, false, 0, 0, 0);
        self.message_lost = random.pick(&[0, 0, 0, 100]);
        (self.message_late, self.forged, self.rare.repeated, self.mute) = (0, 0, 0, 0);
        (self.hand_over, self.direct_wake, self.begin_after) = (true, true, 200 * MS);
        let brief = random.between(200, 4000) * US;
        // While a lock is held for long, its waiters are still, and only a wake comes soon.
        self.hold = random.pick(&[brief, brief, 40 * MS]);
        self.gap = random.pick(&[50 * US, 500 * US, 5 * MS]);
        self.faults = Vec::new();
        self.fault_every = 30 * MS;
    }

    pub(super) fn three_nodes(&mut self, random: &mut Random) {
        (self.nodes, self.quorum, self.spare, self.kept) = (3, 2, 0, 0);
        self.flavors = (0..self.nodes).map(|_| random.pick(&Flavor::ALL)).collect();
    }

    /// The configuration of every client.
    pub(super) fn config(&self) -> Config {
        let nodes = (0..self.nodes).map(|node| format!("node-{node}:6379"));
        let mut config = Config::new(nodes).expect("the names differ");
        if let Some(password) = self.rare.password {
            config = config.password(password);
        }
        config = config.transfers_in_row(self.transfers_in_row);
        if let Some(user) = self.rare.user {
            config = config.username(user);
        }
        if let Some(extensions) = self.rare.max_extensions {
            config = config.max_extensions(extensions);
        }
        if let Some(hold) = self.rare.max_hold {
            config = config.max_hold(hold);
        }
        config
            .restart_guard(if self.rare.no_guard { RestartGuard::Off } else { RestartGuard::On })
            .admission(if self.rare.is_lenient { Admission::Lenient } else { Admission::Strict })
            .quorum(Quorum::AtLeast(self.quorum))
            .node_timeout(Duration::from_nanos(self.node_timeout))
            .connect_timeout(Duration::from_nanos(self.connect_timeout))
            .drift_factor(self.drift_ppm as f64 / 1e6)
            .max_ttl(Duration::from_millis(self.max_ttl_ms))
            .in_flight_max(self.in_flight_max)
            .direct_wake(self.direct_wake)
            .key_prefix(self.prefix)
    }

    /// The commands that the users of a node may never run.
    pub(super) fn denied(&self, node: usize) -> Vec<String> {
        let mute = (self.mute >> node & 1 == 1).then_some("subscribe");
        let silent = (self.rare.silent >> node & 1 == 1).then_some("info");
        mute.into_iter().chain(silent).map(str::to_owned).collect()
    }

    /// How a retried acquisition tries.
    pub(super) fn retry(&self, random: &mut Random) -> Retry {
        let delay = Duration::from_nanos(random.between(self.gap / 10, self.gap));
        let retry = Retry::every(delay, delay / 2);
        retry.timeout(Duration::from_nanos(self.gap * random.between(1, 10)))
    }

    /// A TTL within the bounds of a client; short ones are as common as long ones.
    pub(super) fn ttl_ms(&self, client: usize, random: &mut Random) -> u64 {
        let most = self.max_ttl_of(client);
        let least = (most / 16).max(8);
        if random.chance(400) { most } else { random.between(least, most) }
    }

    /// How long a node without memory does not vote, on the slowest clock, with the second by which
    /// its age is rounded.
    pub(super) const fn guard(&self) -> Global {
        let drifts = 1_000_000 + 3 * self.drift_ppm.unsigned_abs();
        let old_master = if self.rare.is_backed { 13 * SECOND } else { 0 };
        (self.max_ttl_ms * MS + old_master) * drifts / 1_000_000 + 3 * SECOND
    }
}

/// The scheduled faults that may happen in a seed.
fn some_faults(random: &mut Random) -> Vec<Fault> {
    let mut faults = SCHEDULED.to_vec();
    let kept = random.between(3, faults.len() as u64) as usize;
    while faults.len() > kept {
        let out = random.index(faults.len());
        faults.swap_remove(out);
    }
    faults
}

/// The faults that happen at points in time, rather than to bytes on their way.
pub(super) const SCHEDULED: [Fault; 20] = [
    Fault::Reset,
    Fault::Reset,
    Fault::LinkStall,
    Fault::SlowLink,
    Fault::Freeze,
    Fault::Freeze,
    Fault::RestartKept,
    Fault::RestartLost,
    Fault::Refuse,
    Fault::ClockBack,
    Fault::ClockForward,
    Fault::Evicted,
    Fault::RoleChange,
    Fault::OutOfMemory,
    Fault::Misconf,
    Fault::LinkStall,
    Fault::Denied,
    Fault::Pause,
    Fault::Suspend,
    Fault::Death,
];

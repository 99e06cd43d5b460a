//! The scheduled faults: their targets, and how each ends.
//!
//! # Contract
//!
//! The simulation does nothing that the library does not promise to survive (README, "What is
//! promised"):
//!
//! - A clock goes forward, and a key is dropped, only on as many nodes as the quorum has votes to
//!   spare: `2q - N - 1`.
//! - Before a replica is a master again, it tells each connected client that it is a replica, or
//!   cuts that client off. A replica that does neither stays a replica for [`FAILOVERS_LEAST`].
//! - After a failover an old master goes on for at most [`GOES_ON_MOST`], with the connections that
//!   it has. Only a node without a vote has an old master that goes on for longer.

use super::clock::{Global, MS, SECOND};
use super::counts::Fault;
use super::node::SimNode;
use super::world::{Event, Mend, Phase, World};
use redbolt_embedded::model::{Condition, Server};

use std::time::Duration;

/// Faults go on until clients have made this many attempts.
const ATTEMPTS_LEAST: u64 = 60;

/// How many leases clients are to win before all is healed, if they can.
const LEASES_LEAST: u64 = 16;

/// After this many rounds or attempts all is healed, whatever the clients have reached.
const FAULT_ROUNDS_MAX: u64 = 80;
const ATTEMPTS_MAX: u64 = 1500;

impl World {
    /// One more fault, or the end of all faults.
    pub(super) fn fault_due(&mut self) {
        // A seed of hand-overs has no faults, so its rounds count in their place.
        let is_calm = self.plan.faults.is_empty();
        let faults = if is_calm { self.fault_rounds } else { self.faults };
        let has_enough = if self.plan.strays.is_some() {
            !self.random.is_given()
        } else {
            self.counts.attempts >= ATTEMPTS_LEAST
                && self.counts.leases >= LEASES_LEAST
                && faults >= self.plan.faults_least
        };
        self.fault_rounds += 1;
        let is_long = self.fault_rounds > FAULT_ROUNDS_MAX || self.counts.attempts > ATTEMPTS_MAX;
        if has_enough || is_long {
            return self.heal();
        }
        let (masters, replicas) = self.nodes.split_at_mut(self.plan.servers());
        for (master, replica) in masters.iter().zip(replicas) {
            if replica.is_replica && self.random.chance(self.plan.rare.received) {
                replica.server.copy_keys(&master.server);
            }
        }
        let drawn = self.random.index(self.plan.faults.len().max(1));
        if let Some(&fault) = self.plan.faults.get(drawn) {
            self.inflict(fault);
        }
        let every = self.plan.fault_every;
        let after = self.random.between(every / 4, every * 2);
        self.after(after, Event::Fault);
    }

    /// How long a fault lasts: some node timeouts, or about a lock's lifetime.
    fn spell(&mut self) -> Global {
        let timeout = self.plan.node_timeout;
        let ttl = self.plan.max_ttl_ms * MS;
        match self.random.below(4) {
            0 => self.random.between(timeout / 4, timeout),
            1 | 2 => self.random.between(timeout, timeout * 8),
            _ => self.random.between(ttl / 4, ttl + ttl / 2),
        }
    }

    fn inflict(&mut self, fault: Fault) {
        let node = self.random.index(self.plan.nodes);
        let client = self.random.index(self.plan.clients);
        let spell = self.spell();
        let until = self.now + spell;
        match fault {
            Fault::Reset => {
                // Counted where it is done: there may be nothing to reset.
                self.faults += 1;
                self.reset(client, node);
            }
            Fault::LinkStall => {
                self.scheduled(fault, node);
                self.links[client][node].stalled_until = until;
            }
            Fault::SlowLink => {
                self.scheduled(fault, node);
                self.links[client][node].slow_until = until;
            }
            Fault::Pause | Fault::Suspend => {
                let ttl = self.plan.max_ttl_ms * MS;
                let pause = if fault == Fault::Suspend { spell + ttl } else { spell };
                self.scheduled(fault, client);
                self.stop(client, pause);
            }
            Fault::Death => {
                self.scheduled(fault, client);
                self.die(client);
            }
            Fault::Close => {
                self.scheduled(fault, client);
                self.clients[client].close(until);
            }
            Fault::Moved => self.move_address(node),
            _ => self.inflict_on_node(fault, self.plan.server_of(node), spell),
        }
    }

    /// Faults of a node, which must be up, not frozen and a master.
    fn inflict_on_node(&mut self, fault: Fault, index: usize, spell: Global) {
        // Only some nodes may forget single keys, so such a fault is aimed at one of them.
        let forgets = matches!(fault, Fault::ClockForward | Fault::Evicted);
        let index =
            if forgets { index.checked_rem(self.plan.spare).unwrap_or(index) } else { index };
        let is_loose = index < self.plan.spare;
        let node = &self.nodes[index];
        let may_fail_over = fault != Fault::Failover || self.may_fail_over(index);
        if !node.is_up || node.is_frozen || node.is_replica || !may_fail_over {
            return;
        }
        let guard = match fault {
            Fault::RestartLost | Fault::RestartKept | Fault::RoleChange | Fault::Failover => {
                self.plan.guard()
            }
            _ => 0,
        };
        let now = self.now;
        let unwell = |node: &&SimNode| node.unwell_until > now;
        let unwell = self.nodes.iter().filter(unwell).count();
        if unwell >= self.plan.nodes - self.plan.quorum && self.random.chance(800) {
            // Without a quorum little happens.
            return;
        }
        let node = &mut self.nodes[index];
        if fault == Fault::Freeze && node.is_draining() {
            // A debt is paid twice, a `node_timeout` apart. A server that stands still once more
            // just between the two may keep a key up to its TTL.
            return;
        }
        if !matches!(fault, Fault::ClockBack | Fault::Evicted) {
            node.unwell_until = now + spell + guard;
        }
        let life = node.life;
        let mend = |what| Event::Mend { node: index, life, what };
        if self.inflict_at_once(fault, index, spell, is_loose) {
            return;
        }
        let Some((what, spell)) = self.inflict_for(fault, index, spell) else { return };
        self.scheduled(fault, index);
        self.after(spell, mend(what));
    }

    /// Faults of a node that end later. Returns how, and after what time; `None` for another fault.
    fn inflict_for(
        &mut self,
        fault: Fault,
        index: usize,
        mut spell: Global,
    ) -> Option<(Mend, Global)> {
        let node = &mut self.nodes[index];
        let what = match fault {
            Fault::Freeze => {
                node.is_frozen = true;
                self.reset_while_frozen(index, spell);
                Mend::Thaw
            }
            Fault::RoleChange => {
                spell = self.demote(index, spell);
                Mend::Promote
            }
            Fault::Failover => {
                let goes_on = self.fail_over(index);
                spell = goes_on + self.random.between(FAILOVERS_LEAST, 2 * FAILOVERS_LEAST);
                if goes_on == 0 && self.random.chance(500) {
                    // What clients ask meanwhile reaches the node when it is a master again.
                    for links in &mut self.links {
                        links[index].stalled_until = self.now + spell + self.plan.latency;
                    }
                }
                Mend::FailBack
            }
            Fault::OutOfMemory => {
                node.server.set_condition(Condition::OutOfMemory(true));
                Mend::Memory
            }
            Fault::Misconf => {
                node.server.set_condition(Condition::Misconf(true));
                Mend::Disk
            }
            Fault::Denied => {
                let denied = self.denied(index);
                self.nodes[index].server.set_condition(Condition::Denied(denied));
                Mend::Permissions
            }
            Fault::Cluster => {
                node.server.set_condition(Condition::Cluster(true));
                Mend::Cluster
            }
            Fault::Policy => {
                let policy = Condition::MaxmemoryPolicy("allkeys-lru".to_owned());
                node.server.set_condition(policy);
                Mend::Policy
            }
            _ => refuses(&mut node.server, fault)?,
        };
        Some((what, spell))
    }

    /// The commands that a user loses: most ways of comparing and deleting, and now and then others
    /// that a lock needs. The commands that the user may never run are among them.
    fn denied(&mut self, index: usize) -> Vec<String> {
        let releases = ["delifeq", "delex", "eval"].map(|name| (name, 800));
        let others = ["set", "del", "publish", "subscribe"].map(|name| (name, 100));
        let all = releases.into_iter().chain(others);
        let denied = all.filter(|&(_, chance)| self.random.chance(chance));
        let denied: Vec<String> = denied.map(|(name, _)| name.to_owned()).collect();
        denied.into_iter().chain(self.plan.denied(index)).collect()
    }

    /// Makes the master a replica. Returns for how long.
    fn demote(&mut self, index: usize, mut spell: Global) -> Global {
        if self.random.chance(500) {
            // So short that requests on their way to the master meet a master again.
            spell = self.random.between(self.plan.latency, 8 * self.plan.latency);
        }
        self.lose_role(index);
        if self.plan.rare.syncing {
            let node = &mut self.nodes[index];
            let is_alone = self.random.chance(500);
            let state =
                if is_alone { Condition::MasterDown(true) } else { Condition::Loading(true) };
            node.server.set_condition(state);
            node.server.set_condition(Condition::WritableReplica(true));
        }
        if self.plan.newcomers > 0 && self.random.chance(self.plan.newcomers) {
            // The new client comes within a tenth of a second, and meets the replica.
            spell = spell.max(125 * MS);
            let newcomer = self.random.index(self.clients.len());
            self.die(newcomer);
        }
        spell
    }

    fn lose_role(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.is_replica = true;
        node.server.set_condition(Condition::Replica(true));
        for &id in &node.conns {
            self.conns[id].is_told = false;
        }
    }

    /// Whether a node has a replica, and has been a replica for long enough.
    fn may_fail_over(&self, index: usize) -> bool {
        self.nodes.get(index + self.plan.servers()).is_some_and(|replica| {
            let since = replica.forgot_at.map_or(0, |at| at + FAILOVERS_LEAST);
            replica.is_replica && since <= self.now
        })
    }

    /// The replica of a node becomes its master, with the keys that it has received. The old master
    /// keeps its connections, and may go on until it misses its replica. Returns how long it takes
    /// until the old master is a replica.
    fn fail_over(&mut self, index: usize) -> Global {
        let behind = index + self.plan.servers();
        self.nodes.swap(index, behind);
        for place in [index, behind] {
            for &id in &self.nodes[place].conns {
                self.conns[id].node = place;
            }
        }
        let unwell_until = std::mem::take(&mut self.nodes[behind].unwell_until);
        let node = &mut self.nodes[index];
        let received = node.server.clone();
        node.server.set_condition(Condition::Promoted(self.random.bytes()));
        node.server.copy_keys(&received);
        (node.is_replica, node.unwell_until) = (false, unwell_until);
        node.forgot_at = Some(self.now);
        self.log(|_| format!("node {index} has another master"));
        let old = &mut self.nodes[behind];
        old.goes_on = true;
        if self.random.chance(500) {
            self.retire(behind);
            return 0;
        }
        let (life, clock) = (old.life, old.clock);
        let is_unguarded = self.plan.rare.unguarded >> index & 1 == 1;
        let most = if is_unguarded { 3 * self.plan.guard() } else { GOES_ON_MOST };
        let lasts = self.random.between(0, 2 * most).min(most);
        for client in 0..self.plan.clients {
            if self.random.chance(400) {
                self.reset(client, index);
            }
        }
        let ceases_at = clock.global(clock.local(self.now) + Duration::from_nanos(lasts));
        let retires_at = ceases_at + self.random.below(self.plan.guard());
        for (at, what) in [(ceases_at, Mend::Cease), (retires_at, Mend::Retire)] {
            self.at(at, Event::Mend { node: behind, life, what });
        }
        retires_at - self.now
    }

    fn fail_back(&mut self, index: usize) {
        if self.phase == Phase::Safety && self.may_fail_over(index) {
            self.fail_over(index);
        }
    }

    /// An old master takes no more writes.
    fn cease(&mut self, old: usize) {
        if std::mem::take(&mut self.nodes[old].goes_on) {
            self.nodes[old].server.set_condition(Condition::NoReplicas(true));
            self.nodes[old - self.plan.servers()].forgot_at = Some(self.now);
        }
    }

    /// An old master becomes the replica of the present one.
    fn retire(&mut self, old: usize) {
        if self.nodes[old].is_replica {
            return;
        }
        self.cease(old);
        self.lose_role(old);
        self.nodes[old].forgot_at = Some(self.now);
        self.nodes[old].server.set_condition(Condition::NoReplicas(false));
        let (masters, replicas) = self.nodes.split_at_mut(self.plan.servers());
        let place = old - masters.len();
        replicas[place].server.copy_keys(&masters[place].server);
        if self.phase == Phase::Settling || self.random.chance(300) {
            self.cut_off(old);
        }
    }

    /// Faults of a node that need no mending. False if `fault` is of another kind.
    fn inflict_at_once(
        &mut self,
        fault: Fault,
        index: usize,
        spell: Global,
        is_loose: bool,
    ) -> bool {
        let ms = i64::try_from(spell / MS).unwrap_or(0);
        let node = &mut self.nodes[index];
        match fault {
            Fault::RestartKept | Fault::RestartLost => {
                self.restart(index, fault == Fault::RestartKept, spell);
            }
            Fault::Refuse => node.refuses_until = self.now + spell,
            Fault::ClockBack => {
                let ms = ms.min(BACK_MS_MAX - node.back_ms);
                node.back_ms += ms;
                node.server.step_wall_clock(-ms);
            }
            Fault::ClockForward if is_loose => {
                node.forgot_at = Some(self.now);
                node.server.step_wall_clock(ms);
            }
            Fault::Evicted if is_loose => {
                let (first, keys) = (self.random.index(self.plan.keys), self.plan.keys);
                let mut keys = (first..keys).chain(0..first);
                if !keys.any(|key| node.server.evict(self.plan.on_nodes(key))) {
                    return true;
                }
                node.forgot_at = Some(self.now);
                self.carry(index);
            }
            _ => return false,
        }
        self.scheduled(fault, index);
        true
    }

    /// Clients, or their systems, lose patience with a frozen server. The server runs what they had
    /// sent all the same.
    fn reset_while_frozen(&mut self, node: usize, spell: Global) {
        for client in 0..self.plan.clients {
            if self.random.chance(400) {
                let after = self.random.below(spell);
                self.after(after, Event::ResetOf { client, node });
            }
        }
    }

    fn restart(&mut self, index: usize, kept: bool, spell: Global) {
        let node = &mut self.nodes[index];
        node.is_up = false;
        node.life += 1;
        let life = node.life;
        self.cut_off(index);
        let down =
            if self.random.chance(500) { self.random.below(self.plan.node_timeout) } else { spell };
        let loading = kept && self.random.chance(400);
        let what = Mend::Start { kept, loading };
        self.after(down, Event::Mend { node: index, life, what });
    }

    /// A fault of a node ends, if the node still has it.
    pub(super) fn mend(&mut self, index: usize, life: u64, what: Mend) {
        let node = &mut self.nodes[index];
        if node.life != life {
            return;
        }
        match what {
            Mend::Thaw => self.thaw(index),
            Mend::Start { .. } if node.is_up => {}
            Mend::Start { kept, loading } => {
                node.start(kept, self.now, &mut self.random);
                if loading && self.phase == Phase::Safety {
                    node.server.set_condition(Condition::Loading(true));
                    self.counts.fault(Fault::Loading);
                    let after = self.random.between(MS, 3 * self.plan.node_timeout);
                    self.after(after, Event::Mend { node: index, life, what: Mend::Loaded });
                }
            }
            Mend::Loaded => node.server.set_condition(Condition::Loading(false)),
            Mend::Promote => self.promote(index),
            Mend::FailBack => self.fail_back(index),
            Mend::Cease => self.cease(index),
            Mend::Retire => self.retire(index),
            Mend::Memory => node.server.set_condition(Condition::OutOfMemory(false)),
            Mend::Disk => node.server.set_condition(Condition::Misconf(false)),
            Mend::Script => node.server.set_condition(Condition::Busy(false)),
            Mend::Replicas => node.server.set_condition(Condition::NoReplicas(false)),
            Mend::Cluster => node.server.set_condition(Condition::Cluster(false)),
            Mend::Policy => node.server.set_condition(no_eviction()),
            Mend::Permissions => {
                node.server.set_condition(Condition::Denied(self.plan.denied(index)));
            }
        }
    }

    /// A replica is a master again, without its keys.
    fn regain_role(&mut self, index: usize) -> bool {
        let node = &mut self.nodes[index];
        if !std::mem::take(&mut node.is_replica) {
            return false;
        }
        node.forgot_at = Some(self.now);
        node.server.set_condition(Condition::Promoted(self.random.bytes()));
        node.server.set_condition(Condition::Loading(false));
        self.log(|_| format!("node {index} is a master again"));
        true
    }

    /// A replica is a master again. A client that it did not tell is cut off.
    fn promote(&mut self, index: usize) {
        if !self.regain_role(index) {
            return;
        }
        for id in self.nodes[index].conns.clone() {
            let conn = &mut self.conns[id];
            if std::mem::take(&mut conn.is_told) || conn.session.is_none() {
                continue;
            }
            if let Some(session) = conn.session.take() {
                self.nodes[index].server.disconnect(session);
            }
            conn.backlog.clear();
            conn.up.truncate(0);
            conn.is_broken = true;
            self.after(self.plan.latency, Event::Ended { conn: id, reset: false });
        }
    }

    /// All faults end now.
    fn heal(&mut self) {
        self.phase = Phase::Settling;
        self.healed_at = self.now;
        self.log(|_| "all is healed".to_owned());
        for links in &mut self.links {
            links.fill(super::world::Link::default());
        }
        for old in self.plan.servers()..self.nodes.len() {
            self.retire(old);
        }
        for index in 0..self.plan.servers() {
            if !self.nodes[index].is_up {
                self.nodes[index].start(true, self.now, &mut self.random);
            }
            self.promote(index);
            self.thaw(index);
            let node = &mut self.nodes[index];
            node.refuses_until = 0;
            for condition in [
                Condition::Loading(false),
                Condition::OutOfMemory(false),
                Condition::Misconf(false),
                Condition::Busy(false),
                Condition::NoReplicas(false),
                Condition::Cluster(false),
                no_eviction(),
                Condition::Denied(self.plan.denied(index)),
            ] {
                node.server.set_condition(condition);
            }
        }
        for client in 0..self.clients.len() {
            if self.clients[client].closing.is_some() {
                self.die(client);
            }
        }
        self.leave_liars();
        self.lead_home();
        self.hurry_all();
        for client in &mut self.clients {
            for task in &mut client.tasks {
                // A task that waits for an answer goes on waiting.
                if task.next_at != Global::MAX {
                    task.next_at = self.now;
                }
            }
        }
        self.resume_all();
        self.after(2 * self.plan.node_timeout, Event::Glance { left: 20 });
        self.after(self.settle_time(), Event::Settled);
    }
}

/// Makes the server refuse most commands, or writes. Returns how that ends; `None` for another
/// fault.
fn refuses(server: &mut Server, fault: Fault) -> Option<Mend> {
    let (condition, mend) = match fault {
        Fault::Busy => (Condition::Busy(true), Mend::Script),
        Fault::NoReplicas => (Condition::NoReplicas(true), Mend::Replicas),
        _ => return None,
    };
    server.set_condition(condition);
    Some(mend)
}

/// An old master is a replica for at least so long: two looks of the client with the slowest clock.
const FAILOVERS_LEAST: Global = 2200 * MS;

/// How long an old master goes on at most, by its own clock: its replica acknowledged just before,
/// `min-replicas-max-lag` is 10 in whole seconds, and it looks each second.
const GOES_ON_MOST: Global = 12 * SECOND;

/// How far back a clock is set, in all.
const BACK_MS_MAX: i64 = 2000;

fn no_eviction() -> Condition {
    Condition::MaxmemoryPolicy("noeviction".to_owned())
}

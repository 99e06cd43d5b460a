//! After the faults: everything owed is paid, everybody gets every lock, and nothing stays behind.

use super::clock::{Global, MS, SECOND};
use super::task::{State, key_name};
use super::world::{Event, Phase, World};

impl World {
    /// When all that was owed must have been paid: the longest wait for a connection, twice, with
    /// the slowest clock, and some round trips.
    pub(super) const fn settle_time(&self) -> Global {
        let clocks = 1_000_000 + self.plan.drift_ppm.unsigned_abs();
        let longest = 13 * SECOND + 2 * self.plan.connect_timeout + 8 * self.plan.node_timeout;
        longest * clocks / 1_000_000
    }

    /// Every operation has ended, no engine remembers anything, and each key on a node is held by
    /// somebody or was given away. Then everybody wants everything.
    pub(super) fn settled(&mut self) {
        for client in 0..self.clients.len() {
            let engine = &self.clients[client].engine;
            let (in_flight, slots) = (engine.in_flight(), engine.slots_in_use());
            self.oracle.check(in_flight == 0, || {
                format!("client {client}: {in_flight} operations have not ended")
            });
            let local = self.clients[client].local(self.now);
            self.oracle.check(slots == 0, || {
                let nodes = engine.nodes(local);
                format!("client {client}: {slots} slots are not free, {nodes:#?}")
            });
            let is_idle = self.clients[client].tasks.iter().all(|task| task.state == State::Idle);
            self.oracle.check(is_idle, || format!("client {client} waits for a result"));
        }
        if !self.plan.ghosts {
            self.look_for_orphans();
        }
        self.phase = Phase::Progress;
        for client in 0..self.clients.len() {
            let mut goals: Vec<usize> = (0..self.plan.keys).collect();
            goals.rotate_left(self.random.index(self.plan.keys));
            self.clients[client].goals = goals;
            let at = self.now + self.random.below(100 * MS);
            let this = &mut self.clients[client];
            for task in &mut this.tasks {
                task.next_at = Global::MAX;
            }
            this.tasks[0].next_at = at;
            self.wake(client, at);
        }
        let bound = self.progress_time();
        self.after(bound, Event::Deadline);
    }

    /// No key may be left whose client lives and does not hold it.
    fn look_for_orphans(&mut self) {
        for key in 0..self.plan.keys {
            for index in 0..self.nodes.len() {
                let node = &mut self.nodes[index];
                let local = node.clock.local(self.now);
                let Some(token) = node.server.value(&key_name(key), local) else { continue };
                let text = String::from_utf8_lossy(token).into_owned();
                let is_given_away = self.given_away.iter().any(|given| given == token);
                let owner =
                    self.clients.iter().position(|client| text.starts_with(&client.token_start));
                if let Some(client) = owner.filter(|_| !is_given_away) {
                    self.oracle.fail(|| {
                        format!("node {index} holds key {key} for {text} of client {client}, which does not")
                    });
                }
            }
        }
    }

    /// How long the locks of the dead, and nodes without memory, may keep everybody waiting; and
    /// then all have their turns.
    fn progress_time(&self) -> Global {
        let turns = (self.plan.clients * self.plan.keys) as u64;
        let turn = self.plan.hold / 10 + 20 * self.plan.node_timeout + 100 * MS;
        2 * self.plan.guard() + self.back() + 12 * SECOND + turns * turn
    }

    /// How far the clocks of nodes were set back, at most.
    fn back(&self) -> Global {
        let most = self.nodes.iter().map(|node| node.back_ms).max().unwrap_or(0);
        most.unsigned_abs() * MS
    }

    /// Every client has had every key by now.
    pub(super) fn progress_due(&mut self) {
        for client in 0..self.clients.len() {
            let left = self.clients[client].goals.len();
            let local = self.clients[client].local(self.now);
            self.oracle.check(left == 0, || {
                let engine = &self.clients[client].engine;
                format!("client {client} waits for {left} keys: {:?}", engine.nodes(local))
            });
        }
        let after = SECOND + 8 * self.plan.node_timeout;
        let last_key = self.healed_at + self.plan.guard() + self.back();
        self.at(last_key.max(self.now + after), Event::Final);
    }

    /// Nothing is left: no key, no operation, no memory of any.
    pub(super) fn finally(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let local = node.clock.local(self.now);
            let keys = node.server.key_count(local);
            self.oracle
                .check(keys == 0, || format!("node {index}: {keys} keys outlive everything"));
        }
        for client in 0..self.clients.len() {
            let engine = &self.clients[client].engine;
            let (in_flight, slots) = (engine.in_flight(), engine.slots_in_use());
            let voters = engine.voters() as usize;
            self.oracle.check(in_flight == 0 && slots == 0, || {
                format!("client {client}: {in_flight} operations, {slots} slots at the end")
            });
            let nodes = self.plan.nodes;
            self.oracle.check(voters == nodes, || {
                format!("client {client}: {voters} of {nodes} nodes vote at the end")
            });
        }
        self.phase = Phase::Done;
    }
}

//! After the faults: clients pay all debts, every client gets every lock, and nothing stays behind.

use super::clock::{Global, MS, SECOND};
use super::counts::Path;
use super::message::raw_token;
use super::net::Conn;
use super::task::TaskState;
use super::world::{Event, Phase, World};
use crate::client::front::Front;
use crate::rules::Kind;

impl World {
    /// When clients must have paid all debts: the longest wait for a connection, twice, with the
    /// slowest clock, and some round trips. A lease that lingers is owed when half of its TTL is
    /// over.
    pub(super) const fn settle_time(&self) -> Global {
        let clocks = 1_000_000 + self.plan.drift_ppm.unsigned_abs();
        let lingers = self.plan.max_ttl_ms * MS / 2 + 3 * SECOND;
        let wait = 13 * SECOND;
        let wait = if self.plan.lingers > 0 && lingers > wait { lingers } else { wait };
        // A client may first see at the end of a quarantine that its node has another master.
        let unseen = if self.plan.rare.is_backed { self.plan.guard() } else { 0 };
        let longest = wait + unseen + 2 * self.plan.connect_timeout + 8 * self.plan.node_timeout;
        longest * clocks / 1_000_000
    }

    /// Every operation has ended, no engine remembers anything, and each key on a node is held by a
    /// client or was given away. Then every client wants every key.
    pub(super) fn settled(&mut self) {
        for client in 0..self.clients.len() {
            let engine = &self.clients[client].engine;
            let (in_flight, slots) = (engine.in_flight(), engine.slots_in_use());
            self.oracle.check(Kind::Overdue, in_flight == 0, || {
                format!("client {client}: {in_flight} operations have not ended")
            });
            let local = self.clients[client].local(self.now);
            self.oracle.check(Kind::SlotLeak, slots == 0, || {
                let nodes = engine.nodes(local);
                format!("client {client}: {slots} slots are not free, {nodes:#?}")
            });
            let left = engine.leftovers();
            self.oracle.check(Kind::SlotLeak, left.is_empty(), || {
                format!("client {client}: its engine keeps {left:?}")
            });
            let keeps = self.clients[client].front.as_ref().is_some_and(Front::is_in_use);
            self.oracle.check(Kind::SlotLeak, !keeps, || {
                format!("client {client}: its table keeps calls or keys")
            });
            let is_idle =
                self.clients[client].tasks.iter().all(|task| task.state == TaskState::Idle);
            self.oracle
                .check(Kind::Overdue, is_idle, || format!("client {client} waits for a result"));
        }
        if !self.plan.ghosts {
            let starts: Vec<_> = self.clients.iter().map(|it| it.token_start.clone()).collect();
            self.look_for_orphans(|token| {
                starts.iter().any(|start| token.starts_with(start.as_bytes()))
            });
        }
        self.phase = Phase::Progress;
        for client in 0..self.clients.len() {
            let mut goals: Vec<usize> = self.plan.keys_of(client).collect();
            let first = self.random.index(goals.len());
            goals.rotate_left(first);
            self.clients[client].goals = goals;
            let at = self.now + self.random.below(100 * MS);
            let this = &mut self.clients[client];
            for task in &mut this.tasks {
                task.next_at = Global::MAX;
            }
            this.tasks[0].next_at = at;
            self.wake(client, at);
        }
        self.after(self.left_behind() + self.turns(), Event::Deadline);
    }

    /// Looks at every client while debts are still being paid.
    pub(super) fn glance(&mut self, left: u32) {
        for client in 0..self.clients.len() {
            self.look_for_forgotten(client);
        }
        if left > 0 {
            self.after(self.plan.node_timeout * 3, Event::Glance { left: left - 1 });
        }
    }

    /// A client whose engine remembers nothing, and that has no command on its way, has no key on
    /// any node.
    pub(super) fn look_for_forgotten(&mut self, client: usize) {
        if self.clients[client].engine.slots_in_use() == 0 {
            self.look_for_left(client);
        }
    }

    /// The client says that it owes nothing: none of its keys and claims may be left.
    pub(super) fn look_for_left(&mut self, client: usize) {
        let start = self.clients[client].token_start.clone();
        // A holder may just have handed a lock over to the client, which does not know it yet.
        let is_told = |conn: &Conn| conn.down.len() > 0 || !conn.inbox.is_empty();
        let is_busy = |conn: &Conn| {
            let is_heard = conn.up.len() > 0 || !conn.backlog.is_empty();
            conn.client == client && (is_heard || is_told(conn))
        };
        let is_late = self
            .late_messages
            .iter()
            .any(|(conn, bytes)| self.conns[*conn].client == client && !bytes.is_empty());
        if !self.plan.ghosts && !is_late && !self.conns.iter().any(is_busy) {
            self.look_for_orphans(|token| token.starts_with(start.as_bytes()));
            self.look_for_claims(client);
        }
    }

    /// Whether a client had no room for a debt: its key is left to the TTL.
    fn has_dropped(&mut self) -> bool {
        (0..self.clients.len()).for_each(|client| self.note_dropped(client));
        self.counts.of_path(Path::DebtDropped) > 0
    }

    /// No key may be left whose token `is_wanted`, was drawn by a client and was not given away.
    fn look_for_orphans(&mut self, is_wanted: impl Fn(&[u8]) -> bool) {
        if self.has_dropped() || self.plan.moves_addresses() {
            return;
        }
        // Time may end a debt, and a node's clock may be slower, or may have been set back.
        let drift_ms = self.plan.max_ttl_ms * 2 * self.plan.drift_ppm.unsigned_abs() / 1_000_000;
        for key in 0..self.plan.keys {
            let name = self.plan.on_nodes(key);
            for (index, node) in self.nodes.iter_mut().take(self.plan.servers()).enumerate() {
                // A delete has not reached a master that was promoted since.
                let lacks_deletes = |at: Global| at + self.plan.guard() > self.now;
                if self.plan.rare.is_backed && node.forgot_at.is_some_and(lacks_deletes) {
                    continue;
                }
                let least_ms = i64::try_from(drift_ms).unwrap_or(0) + node.back_ms + 2;
                let local = node.clock.on_server(self.now);
                if node.server.ttl_ms(name, local).is_none_or(|ttl_ms| ttl_ms < least_ms) {
                    continue;
                }
                let Some(token) = node.server.value(name, local) else { continue };
                let is_given_away = || self.given_away.iter().any(|given| given == token);
                let is_forged =
                    || raw_token(token).is_some_and(|token| self.forged_offers.contains(&token));
                if is_wanted(token) && !is_given_away() && !is_forged() {
                    let token = String::from_utf8_lossy(token).into_owned();
                    self.oracle.fail(Kind::Orphan, || {
                        format!("node {index} holds key {key} for {token} in vain")
                    });
                }
            }
        }
    }

    /// How long the locks of dead clients, and nodes without memory, may keep the others waiting.
    fn left_behind(&self) -> Global {
        2 * self.plan.guard() + self.back() + 12 * SECOND
    }

    /// How long all turns may take.
    fn turns(&self) -> Global {
        let turns = (self.plan.clients * self.plan.keys) as u64;
        // A client that has no room to owe the deletes of its keys leaves them for their TTL.
        let has_room = self.plan.rare.room.debts >= self.plan.keys;
        let left = if has_room { 0 } else { self.plan.max_ttl_ms * MS };
        turns * (self.plan.hold / 10 + 20 * self.plan.node_timeout + 100 * MS + left)
    }

    /// How far the clocks of nodes were set back, at most.
    fn back(&self) -> Global {
        let most = self.nodes.iter().map(|node| node.back_ms).max().unwrap_or(0);
        most.unsigned_abs() * MS
    }

    /// A client has had a key. Once each has had every key, the world need not last for all turns.
    pub(super) fn goal_reached(&mut self, client: usize) {
        let reached = self.clients[client].goals.pop();
        if reached.is_some() && self.clients.iter().all(|client| client.goals.is_empty()) {
            self.after(self.left_behind(), Event::Deadline);
        }
    }

    /// Every client has had every key by now.
    pub(super) fn progress_due(&mut self) {
        for client in 0..self.clients.len() {
            let left = self.clients[client].goals.len();
            let local = self.clients[client].local(self.now);
            self.oracle.check(Kind::Starved, left == 0, || {
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
        let has_dropped = self.has_dropped();
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let local = node.clock.on_server(self.now);
            let is_lock =
                |name: &&[u8]| !name.starts_with(b"redbolt:since:") && !name.ends_with(b":fence");
            let keys = node.server.key_names(local).filter(is_lock).count();
            self.oracle.check(Kind::Orphan, keys == 0 || has_dropped, || {
                format!("node {index}: {keys} keys outlive everything")
            });
        }
        for client in 0..self.clients.len() {
            let engine = &self.clients[client].engine;
            let (in_flight, slots) = (engine.in_flight(), engine.slots_in_use());
            let voters = engine.voters().count() as usize;
            self.oracle.check(Kind::SlotLeak, in_flight == 0 && slots == 0, || {
                format!("client {client}: {in_flight} operations, {slots} slots at the end")
            });
            let nodes = self.plan.voters().min(engine.listed().count() as usize);
            self.oracle.check(Kind::Starved, voters == nodes, || {
                format!("client {client}: {voters} of {nodes} nodes vote at the end")
            });
        }
        self.phase = Phase::Done;
    }
}

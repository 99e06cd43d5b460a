//! Uses that few users need, each with seeds of its own: among all other uses they would hardly
//! ever be drawn.

use std::time::Duration;

use super::clock::{MS, US};
use super::counts::{Fault, Setting};
use super::elections::Elections;
use super::plan::{Plan, SCHEDULED};
use super::random::Random;
use super::unlike::Unlike;
use crate::engine::Room;
use redbolt_embedded::Flavor;
use redbolt_embedded::model::ServerOptions;

/// The rare settings, each drawn equally often.
pub(super) const RARE: [Setting; 16] = [
    Setting::Syncing,
    Setting::Restarts,
    Setting::FewNodes,
    Setting::ManyNodes,
    Setting::OldProtocol,
    Setting::Login,
    Setting::InfoDenied,
    Setting::Lenient,
    Setting::NoGuard,
    Setting::Duplicate,
    Setting::ClusterMode,
    Setting::Evicting,
    Setting::BoundedLeases,
    Setting::Queries,
    Setting::Closing,
    Setting::SmallRoom,
];

/// The parameters of the rare settings.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// How many of the last addresses lead to the first servers once more.
    pub(super) aliases: usize,
    /// The server that each address leads to now, if that changes.
    pub(super) leads: Vec<usize>,
    /// Servers that do not know HELLO, and that deny INFO: a bit each.
    pub(super) old: u64,
    pub(super) silent: u64,
    pub(super) is_lenient: bool,
    pub(super) no_guard: bool,
    /// The password of each server, and its user.
    pub(super) password: Option<&'static str>,
    pub(super) user: Option<&'static str>,
    pub(super) max_extensions: Option<u32>,
    pub(super) max_hold: Option<Duration>,
    pub(super) room: Room,
    /// Of a thousand calls, how many are questions instead.
    pub(super) queries: u64,
    /// Of a thousand times that a holder goes on, how often it gives its lease away.
    pub(super) gives_away: u64,
    /// Of a thousand idle tasks, how many unlock a token of their client that stands at a node.
    pub(super) names_own: u64,
    /// Or they unlock by force what another client holds.
    pub(super) forces: bool,
    /// Of a thousand transfer messages, how many come twice.
    pub(super) repeated: u64,
    /// Replicas take writes, and load or miss their master.
    pub(super) syncing: bool,
    /// Each server has a replica.
    pub(super) is_backed: bool,
    /// Of a thousand times, how often a replica receives what its master holds.
    pub(super) received: u64,
    /// Nodes whose old master may go on for three guard times after a failover: a bit for each
    /// node.
    pub(super) unguarded: u64,
    /// Set where clients campaign.
    pub(super) elections: Option<Elections>,
    pub(super) unlike: Unlike,
}

impl Plan {
    pub(super) fn look_at_rare(&mut self, random: &mut Random) {
        match self.setting {
            Setting::Syncing => {
                self.look_at_roles(random);
                self.rare.syncing = true;
                // A newcomer that meets the replica at once is told by its greeting.
                self.cut = random.pick(&[0, 20]);
            }
            Setting::Restarts => self.look_at_restarts(random),
            Setting::FewNodes => {
                let nodes = random.between(1, 2) as usize;
                self.draw_nodes(nodes, nodes, random);
            }
            Setting::ManyNodes => {
                let nodes = random.pick(&[6, 8, 9]);
                let quorum = random.between(nodes as u64 / 2 + 1, nodes as u64 / 2 + 2) as usize;
                self.draw_nodes(nodes, quorum, random);
            }
            Setting::OldProtocol => self.rare.old = random.below((1 << self.nodes) - 1) + 1,
            Setting::Login => {
                self.rare.password = Some("open sesame");
                self.rare.user = random.pick(&[None, Some("ali")]);
            }
            Setting::InfoDenied => {
                self.draw_nodes(5, 3, random);
                self.rare.silent = random.pick(&[0b1, 0b10, 0b11, 0b101, 0b11000]);
            }
            Setting::Lenient => {
                (self.rare.silent, self.rare.is_lenient) = (random.below(1 << self.nodes), true);
                self.keep_memory(random);
            }
            Setting::NoGuard => {
                self.rare.no_guard = true;
                self.keep_memory(random);
            }
            Setting::Duplicate => {
                let (nodes, quorum) = random.pick(&[(4, 3), (5, 3), (5, 3), (3, 2)]);
                self.draw_nodes(nodes, quorum, random);
                (self.rare.aliases, self.spare) = (1, 0);
            }
            Setting::ClusterMode => self.look_at_unfit(Fault::Cluster),
            Setting::Evicting => {
                // Votes to spare, so that a key may be evicted.
                self.draw_nodes(5, 4, random);
                self.look_at_unfit(Fault::Policy);
                self.faults.extend([Fault::Evicted, Fault::Evicted]);
            }
            Setting::BoundedLeases => {
                self.kept = 800;
                self.rare.max_extensions = random.pick(&[None, Some(0), Some(1), Some(3)]);
                let hold = Duration::from_millis(self.max_ttl_ms * random.between(1, 3));
                self.rare.max_hold = random.chance(500).then_some(hold);
            }
            Setting::Queries => self.rare.queries = 300,
            Setting::Closing => {
                self.faults.extend([Fault::Close; 6]);
                self.ghosts = false;
            }
            Setting::SmallRoom => {
                let output_len = random.pick(&[400, 1000, 4000]);
                let (answers, debts) = (random.pick(&[4, 16, 64]), random.pick(&[1, 4, 16]));
                self.rare.room = Room { output_len, answers, debts };
                (self.tasks, self.in_flight_max) = (6, 64);
                self.gap /= 4;
            }
            _ => {}
        }
    }

    /// Servers lose all keys, and clients that know nothing meet them soon after.
    fn look_at_restarts(&mut self, random: &mut Random) {
        self.three_nodes(random);
        self.max_ttl_ms = random.pick(&[1000, 2000, 4000, 10_000]);
        self.node_timeout = 50 * MS;
        self.latency = random.between(30 * US, 300 * US);
        (self.clients, self.keys, self.tasks) = (4, 1, 2);
        (self.late, self.ghosts, self.pause) = (0, false, 0);
        // Longer than a TTL: an extension finds that too few nodes still hold the key.
        (self.kept, self.hold, self.gap) = (1000, 2 * self.max_ttl_ms * MS, 20 * MS);
        self.fault_every = random.between(50, 400) * MS;
        let (restart, death) = (Fault::RestartLost, Fault::Death);
        self.faults = vec![restart, restart, restart, restart, death, Fault::Reset];
    }

    /// Nodes turn out not to be fit for locks when they are greeted anew.
    fn look_at_unfit(&mut self, fault: Fault) {
        self.faults = vec![fault, fault, Fault::Reset, Fault::RestartKept, Fault::Death];
    }

    /// No node loses its memory: nothing would make up for that.
    pub(super) fn keep_memory(&mut self, random: &mut Random) {
        let loses = |fault: &Fault| matches!(fault, Fault::RestartLost | Fault::RoleChange);
        self.faults = SCHEDULED.into_iter().filter(|fault| !loses(fault)).collect();
        while self.faults.len() > 6 {
            let out = random.index(self.faults.len());
            self.faults.swap_remove(out);
        }
    }

    pub(super) fn draw_nodes(&mut self, nodes: usize, quorum: usize, random: &mut Random) {
        (self.nodes, self.quorum) = (nodes, quorum);
        self.spare = (2 * quorum).saturating_sub(nodes + 1);
        self.flavors = (0..nodes).map(|_| random.pick(&Flavor::ALL)).collect();
    }

    /// The options of a server.
    pub(super) fn server(&self, node: usize) -> ServerOptions {
        let options = ServerOptions::new(self.flavors[node]);
        match (self.rare.password, self.rare.user) {
            (Some(password), Some(user)) => options.password("another").user(user, password),
            (Some(password), None) => options.password(password),
            (None, _) => options,
        }
    }

    /// How many servers there are.
    pub(super) const fn servers(&self) -> usize {
        self.nodes - self.rare.aliases
    }

    /// How many nodes vote where all is well. Of two addresses of a server one votes. A node that
    /// does not say what it is, or would go on granting after a failover, does not vote.
    pub(super) const fn voters(&self) -> usize {
        let silent = if self.rare.is_lenient { 0 } else { self.rare.silent.count_ones() as usize };
        self.servers() - silent - self.rare.unguarded.count_ones() as usize
    }
}

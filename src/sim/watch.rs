//! Leases whose keys are watched: their loss is told soon, and only where it is one.

use super::clock::{Global, MS};
use super::counts::{Fault, Path};
use super::plan::Plan;
use super::random::Random;
use super::world::{Phase, World};
use crate::engine::LostCause;
use crate::rules::Kind;

impl Plan {
    /// One client whose keys are taken away, on a network that does nothing else: what it is told
    /// of them has no excuse.
    pub(super) fn look_at_watch(&mut self, random: &mut Random) {
        (self.clients, self.tasks, self.keys) = (1, 2, random.between(1, 2) as usize);
        self.max_ttl_ms = random.pick(&[2000, 10_000]);
        self.node_timeout = 50 * MS;
        self.latency = random.between(30, 1000) * 1000;
        (self.late, self.ghosts, self.cut, self.pause, self.push) = (0, false, 0, 0, 0);
        (self.watched, self.is_watch_judged) = (1000, true);
        self.kept = random.pick(&[0, 500]);
        self.hold = random.between(20, 200) * MS;
        self.gap = 20 * MS;
        self.fault_every = random.between(2, 20) * MS;
        self.faults = vec![Fault::Evicted, Fault::Evicted, Fault::Evicted, Fault::ScriptFlush];
    }
}

impl World {
    /// How many nodes hold the token of a task's lease, if it has one that is watched.
    fn watched_on(&mut self, client: usize, task: usize) -> Option<usize> {
        let this = &self.clients[client];
        let (place, key) = (&this.tasks[task], self.plan.on_nodes(this.tasks[task].key));
        let lease = place.lease.filter(|_| place.is_watched)?;
        let (_, token) = this.engine.lease_name(lease)?;
        let now = self.now;
        let holds = |node: &mut super::node::SimNode| {
            let local = node.clock.on_server(now);
            node.server.value(&key, local) == Some(token.as_bytes())
        };
        Some(self.nodes.iter_mut().map(holds).filter(|holds| *holds).count())
    }

    /// Keys may be gone since just now.
    pub(super) fn look_for_gone(&mut self) {
        for client in 0..self.clients.len() {
            for task in 0..self.plan.tasks {
                let is_gone = self.watched_on(client, task).is_some_and(|on| on < self.plan.quorum);
                let place = &mut self.clients[client].tasks[task];
                if is_gone && place.gone_at == Global::MAX {
                    place.gone_at = self.now;
                }
            }
        }
    }

    /// Whoever holds a lease that fewer nodes than a quorum hold knows it by now.
    pub(super) fn check_watched(&mut self, client: usize) {
        if !self.plan.is_watch_judged || self.phase != Phase::Safety {
            return;
        }
        let (now, patience) = (self.now, self.plan.node_timeout);
        for task in 0..self.plan.tasks {
            let is_due = self.clients[client].tasks[task].gone_at.saturating_add(patience) < now;
            // A vote that came late may have made a quorum of it again.
            if is_due && self.watched_on(client, task).is_some_and(|on| on >= self.plan.quorum) {
                self.clients[client].tasks[task].gone_at = Global::MAX;
            }
        }
        let this = &self.clients[client];
        let unaware = this.tasks.iter().position(|task| {
            let is_known = |lease| this.engine.is_lost(lease);
            task.gone_at.saturating_add(patience) < now
                && task.lease.is_some_and(|lease| !is_known(lease))
        });
        if let Some(task) = unaware {
            self.oracle.fail(Kind::LossNotTold, || {
                format!("task {task} of client {client} was not told of its loss")
            });
        }
    }

    /// A lease is told to be lost before its deadline.
    pub(super) fn check_gone(&mut self, client: usize, task: usize, cause: LostCause) {
        if cause != LostCause::Gone || !self.clients[client].tasks[task].is_watched {
            return;
        }
        self.counts.path(Path::LostWatched);
        if self.plan.is_watch_judged {
            let on = self.watched_on(client, task).unwrap_or(0);
            let quorum = self.plan.quorum;
            self.oracle.check(Kind::FalseLoss, on < quorum, || {
                format!("task {task} of client {client} is told of a loss with {on} holders")
            });
        }
    }
}

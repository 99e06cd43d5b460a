//! Clients whose callers share a table: calls wait for each other there. Leases go from one caller
//! to the next, or linger for it, without a word to any node.

use super::client::SimClient;
use super::clock::Global;
use super::counts::Path;
use super::task::{Task, TaskState};
use super::world::World;
use crate::client::front::{Ended, FrontLease, Ticket};
use crate::error::{UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::rules::Kind;
use crate::time::Instant;

use std::time::Duration;

/// What the judge knows of a lease, whichever caller has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground {
    deadline: Option<Instant>,
    first: Instant,
    extensions: u32,
    began: Global,
    ttl_ms: u64,
    let_go_at: Global,
}

impl Ground {
    const fn of(task: &Task, let_go_at: Global) -> Self {
        let &Task { deadline, first, extensions, began, ttl_ms, .. } = task;
        Self { deadline, first, extensions, began, ttl_ms, let_go_at }
    }

    const fn put(self, task: &mut Task) {
        (task.deadline, task.first) = (self.deadline, self.first);
        (task.extensions, task.began, task.ttl_ms) = (self.extensions, self.began, self.ttl_ms);
    }
}

impl World {
    /// A call for a lock joins its client's table, if there is one. `Err`: it was refused.
    pub(super) fn joins(
        &mut self,
        client: usize,
        key: &[u8],
        acquire: &LockOptions,
        now: Instant,
    ) -> Option<Result<Ticket, crate::error::LockError>> {
        let SimClient { front, engine, .. } = &mut self.clients[client];
        front.as_mut().map(|front| front.lock(engine, key, acquire, now))
    }

    /// Does what is due in the client's table.
    pub(super) fn turn_table(&mut self, client: usize, now: Instant) {
        let SimClient { front, engine, .. } = &mut self.clients[client];
        let Some(front) = front else { return };
        front.turn(engine, now);
        self.take_ended(client, now);
    }

    /// Takes the results of the calls in the client's table.
    pub(super) fn take_ended(&mut self, client: usize, now: Instant) {
        loop {
            self.take_begun(client);
            let SimClient { front, engine, tasks, .. } = &mut self.clients[client];
            let Some((ticket, ended)) =
                front.as_mut().and_then(|front| front.next_ended(engine, now))
            else {
                return;
            };
            let Some(task) = tasks.iter().position(|task| task.call == Some(ticket)) else {
                self.oracle.fail(Kind::Unasked, || format!("nobody waits for {ended:?}"));
                return;
            };
            tasks[task].call = None;
            match ended {
                Ended::Lock(Ok(held)) => self.has(client, task, held, now),
                Ended::Lock(Err(error)) => self.locked(client, task, Err(error), now),
                Ended::Unlock(result) => self.unlocked(client, task, &result),
            }
        }
    }

    /// Calls have come to the nodes: for other clients they begin now.
    fn take_begun(&mut self, client: usize) {
        while let Some(ticket) =
            self.clients[client].front.as_mut().and_then(|front| front.next_begun())
        {
            let now = self.now;
            let mut tasks = self.clients[client].tasks.iter_mut().enumerate();
            let Some((task, place)) = tasks.find(|(_, task)| task.call == Some(ticket)) else {
                continue;
            };
            place.began = now;
            let key = place.key;
            self.call_began(client, task, key);
        }
    }

    /// A call has its lock: from the nodes, or from another call of its client.
    fn has(&mut self, client: usize, task: usize, held: FrontLease, now: Instant) {
        let this = &mut self.clients[client];
        let id = held.id();
        let place = &mut this.tasks[task];
        place.held = Some(held);
        let Some(at) = this.grounds.iter().position(|(lease, _)| *lease == id) else {
            return self.locked(client, task, Ok(id), now);
        };
        let (_, ground) = this.grounds.swap_remove(at);
        ground.put(place);
        self.counts.leases += 1;
        self.counts.path(Path::Locked);
        let is_at_once = ground.let_go_at == self.now;
        self.counts.path(if is_at_once { Path::PassedOn } else { Path::Retaken });
        let holder = self.holder();
        self.clients[client].tasks[task].holder = holder;
        self.holds(client, task, id, false, now);
    }

    /// The caller lets go of a lease that came from the table.
    fn take_held(&mut self, client: usize, task: usize) -> Option<(FrontLease, bool)> {
        let now = self.now;
        let this = &mut self.clients[client];
        let place = &mut this.tasks[task];
        let held = place.held.take()?;
        place.lease = None;
        let may_pass = place.state != TaskState::Extending;
        this.grounds.push((held.id(), Ground::of(place, now)));
        Some((held, may_pass))
    }

    /// Unlocks the task's lease, if it came from the table. Returns whether it did.
    pub(super) fn unlocks(&mut self, client: usize, task: usize, now: Instant) -> bool {
        let Some((held, may_pass)) = self.take_held(client, task) else { return false };
        let SimClient { front, engine, tasks, .. } = &mut self.clients[client];
        let Some(front) = front else { return false };
        let id = held.id();
        match front.unlock(engine, held, may_pass, now) {
            Ok(Some(ticket)) => {
                tasks[task].call = Some(ticket);
                let ends = now + Duration::from_nanos(self.plan.node_timeout);
                self.begun(client, task, TaskState::Releasing, None, ends);
                self.check_over(client, id);
            }
            Ok(None) => self.unlocked(client, task, &Ok(Unlocked::Released)),
            Err(error) => self.unlocked(client, task, &Err(error)),
        }
        self.take_ended(client, now);
        true
    }

    /// Drops the task's lease, if it came from the table. Returns whether it did.
    pub(super) fn drops(&mut self, client: usize, task: usize, now: Instant) -> bool {
        let Some((held, may_pass)) = self.take_held(client, task) else { return false };
        let Some(front) = &mut self.clients[client].front else { return false };
        if front.give_back(held, may_pass, now) {
            self.counts.path(Path::Lingers);
        }
        self.take_ended(client, now);
        true
    }

    /// Gives the task's call up, if it is in the table. Returns whether it was.
    pub(super) fn gives_up(&mut self, client: usize, task: usize, now: Instant) -> bool {
        let SimClient { front, engine, tasks, .. } = &mut self.clients[client];
        let (Some(front), Some(ticket)) = (front, tasks[task].call) else { return false };
        if tasks[task].state != TaskState::Acquiring {
            return false;
        }
        tasks[task].call = None;
        front.give_up(engine, ticket, now);
        self.counts.path(Path::Cancelled);
        self.idle(client, task);
        self.take_ended(client, now);
        true
    }

    /// An unlock has ended.
    pub(super) fn unlocked(
        &mut self,
        client: usize,
        task: usize,
        result: &Result<Unlocked, UnlockError>,
    ) {
        self.counts.path(match result {
            Ok(Unlocked::Released) => Path::Released,
            Ok(Unlocked::Unknown) => Path::UnlockUnknown,
            Err(UnlockError::Full) => Path::Full,
            Err(_) => Path::NotHeld,
        });
        self.idle(client, task);
    }
}

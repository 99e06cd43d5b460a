//! The end of a client in good order, and the questions that it asks before its end.

use super::client::SimClient;
use super::clock::Global;
use super::counts::Path;
use super::task::{Task, TaskState};
use super::world::World;
use crate::client::front::Front;
use crate::error::Cause;
use crate::query::{NodeAnswers, Query, Reply};
use crate::rules::Kind;
use crate::time::Instant;

use std::time::Duration;

impl World {
    /// The client gives up everything that it has or wants. Returns whether it is about to end.
    pub(super) fn close_down(&mut self, client: usize, now: Instant) -> bool {
        if self.clients[client].closing.is_none() {
            return false;
        }
        let SimClient { front, engine, .. } = &mut self.clients[client];
        engine.begin_close();
        if let Some(front) = front {
            front.close(engine, now);
            self.take_ended(client, now);
        }
        for task in 0..self.plan.tasks {
            let this = &mut self.clients[client];
            let (state, op) = (this.tasks[task].state, this.tasks[task].op);
            match (state, op) {
                (TaskState::Acquiring, Some(op)) => this.engine.cancel(op, now),
                (TaskState::Acquiring, None) => drop(self.gives_up(client, task, now)),
                (TaskState::Holding | TaskState::Extending, _) => {
                    self.drop_lease(client, task, now)
                }
                _ => {}
            }
            self.clients[client].tasks[task].next_at = Global::MAX;
        }
        true
    }

    /// A client that is about to end does so when nothing is left to be released, or its time is
    /// up. Returns whether it has ended.
    pub(super) fn has_closed(&mut self, client: usize) -> bool {
        let Some(until) = self.clients[client].closing else { return false };
        let this = &self.clients[client];
        let is_idle =
            |task: &Task| task.op.is_none() && task.call.is_none() && task.lease.is_none();
        let is_idle = this.tasks.iter().all(is_idle);
        let keeps = this.front.as_ref().is_some_and(Front::is_in_use);
        let has_said_all =
            !keeps && this.dropped.is_empty() && this.engine.nodes_with_output().is_empty();
        let is_done = is_idle && has_said_all && this.engine.releases_open(this.local(until)) == 0;
        if !is_done && self.now < until {
            return false;
        }
        let nodes = this.engine.nodes(this.local(self.now));
        // Where a node cannot answer, the client leaves its debts to the TTL.
        if is_done && nodes.iter().all(|node| node.votes && node.debts == 0) {
            self.counts.path(Path::Closed);
            self.look_for_left(client);
        }
        self.die(client);
        true
    }

    /// A task puts a question to all nodes, now and then. Returns whether it does.
    pub(super) fn asks(&mut self, client: usize, task: usize, now: Instant) -> bool {
        let is_drawn = self.random.chance(self.plan.rare.queries);
        if is_drawn {
            self.ask(client, task, now);
        }
        is_drawn
    }

    fn ask(&mut self, client: usize, task: usize, now: Instant) {
        let question = self.random.next().to_string().into_bytes();
        let key = self.plan.on_nodes(self.random.index(self.plan.keys));
        let query = Query::new().all(&[b"GET", key]).all(&[b"ECHO", &question]);
        let Ok(op) = self.clients[client].engine.query(&query, now) else {
            self.counts.path(Path::Full);
            return self.idle(client, task);
        };
        let ends = now + Duration::from_nanos(self.plan.node_timeout);
        self.begun(client, task, TaskState::Querying, op, ends);
        self.clients[client].tasks[task].question = question;
    }

    /// The answers have come: each must be the answer to the question.
    pub(super) fn asked(&mut self, client: usize, task: usize, answers: &[NodeAnswers]) {
        self.counts.path(Path::Queried);
        let question = &self.clients[client].tasks[task].question;
        // A server that runs a long script answers only that it is busy.
        let wanted = [Reply::Text(question.clone()), Reply::Error(Cause::Busy)];
        let is_strange =
            |node: &&NodeAnswers| node.replies.get(1).is_some_and(|it| !wanted.contains(it));
        let strange = answers.iter().find(is_strange).map(|node| node.node);
        let nodes = self.clients[client].engine.listed().count() as usize;
        // The lists may have changed since it asked.
        let is_whole = answers.len() == nodes || self.plan.changes_lists();
        self.oracle.check(Kind::Misattributed, strange.is_none() && is_whole, || {
            format!("client {client}: node {strange:?} does not answer what was asked")
        });
        self.idle(client, task);
    }
}

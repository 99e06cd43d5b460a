//! Queries to every node, for people: what a key holds, how a node is set up.

use super::op::{Heard, NodeReplies, OpId, OpKind, Outcome, Query};
use super::state::Locks;
use crate::engine::event::Event;
use crate::error::{Cause, LockError};
use crate::node::{Now, Pending, Phase, Request};
use crate::quorum::NodeId;
use crate::resp::encode::append_command;
use crate::slab::OpIndex;
use crate::time::Instant;

/// Takes the command that was chosen.
pub(crate) type Say<'a> = &'a mut dyn FnMut(&[&[u8]]);

impl Locks {
    /// Sends each connected node the commands that `choose` says for it: one per call, at most 255,
    /// until it says none. Each command must only read and give one reply.
    ///
    /// # Errors
    ///
    /// [`LockError::Full`] if too many operations are under way.
    pub(in crate::engine) fn query(
        &mut self,
        mut choose: impl FnMut(NodeId, usize, Say<'_>),
        now: Instant,
    ) -> Result<OpId, LockError> {
        let index = self.ops.open(OpKind::Query).ok_or(LockError::Full)?;
        let now = self.now(now);
        let phase = self.query_phase(index);
        let mut replies = Vec::with_capacity(self.nodes.len());
        let mut open = 0;
        for id in self.nodes.all() {
            let mut answers = NodeReplies {
                node: id,
                replies: Vec::new(),
                cause: Cause::None,
                doubt: Cause::None,
                round_trip: now.real.until(now.real),
                wanted: 0,
                heard: None,
            };
            if self.nodes.at(id).is_greeted() {
                for part in 0..u8::MAX {
                    let scratch = &mut self.scratch;
                    scratch.clear();
                    choose(id, part.into(), &mut |command| append_command(scratch, command));
                    if self.scratch.is_empty() {
                        break;
                    }
                    answers.wanted += 1;
                    answers.cause = Cause::Timeout;
                    let request = Request::Query { op: index, part, phase };
                    if !self.nodes.request(id, request, &self.scratch, now.attended) {
                        answers.cause = Cause::Backlog;
                        break;
                    }
                    open += 1;
                }
            } else {
                answers.cause = self.nodes.at(id).cause();
            }
            replies.push(answers);
        }
        self.ops.at_mut(index).has_more = true;
        self.ops.at_mut(index).query =
            Some(Box::new(Query { asked_at: now.real, replies, open, awaits: None }));
        if open == 0 {
            self.finish(index, Outcome::Answered);
        } else {
            self.begin_round(index, now);
        }
        Ok(self.ops.id(index))
    }

    /// Tells a query from an earlier one in the same place.
    fn query_phase(&self, index: OpIndex) -> Phase {
        Phase::of(self.ops.at(index).generation)
    }

    pub(in crate::engine) fn query_answered(&mut self, id: NodeId, pending: Pending, now: Now) {
        let node = self.nodes.at(id);
        let reply = node.frame().to_vec();
        let doubt = (!node.is_admitted()).then(|| node.cause());
        self.query_step(id, pending, |answers, asked_at| {
            answers.doubt = doubt.unwrap_or(answers.doubt);
            if answers.replies.is_empty() {
                answers.round_trip = now.real.saturating_since(asked_at);
            }
            answers.replies.push(reply);
            if answers.replies.len() >= answers.wanted {
                answers.cause = Cause::None;
            }
        });
    }

    pub(in crate::engine) fn query_lost(&mut self, id: NodeId, pending: Pending) {
        self.query_step(id, pending, |answers, _| answers.cause = Cause::ConnectionLost);
    }

    fn query_step(
        &mut self,
        id: NodeId,
        pending: Pending,
        step: impl FnOnce(&mut NodeReplies, Instant),
    ) {
        let Request::Query { op: index, phase, .. } = pending.request else { return };
        let op = self.ops.at(index);
        if op.kind != OpKind::Query
            || op.outcome != Outcome::Open
            || self.query_phase(index) != phase
        {
            return;
        }
        let Some(query) = &mut self.ops.at_mut(index).query else { return };
        let asked_at = query.asked_at;
        if let Some(answers) = query.replies.get_mut(id.index()) {
            step(answers, asked_at);
        }
        query.open = query.open.saturating_sub(1);
        let is_heard_of = || {
            query
                .replies
                .iter()
                .any(|answers| answers.replies.iter().any(|answer| has_receivers(answer)))
        };
        if query.open == 0 && (query.awaits.is_none() || !is_heard_of()) {
            self.finish(index, Outcome::Answered);
        }
    }

    /// The query is a question to a holder, which answers under this number.
    pub(in crate::engine) fn expect_word(&mut self, op: OpId, number: u32) {
        if let Some(index) = self.ops.find(op)
            && let Some(query) = &mut self.ops.at_mut(index).query
        {
            query.awaits = Some(number);
            self.asked.retain(|(_, op)| self.ops.find(*op).is_some());
            self.asked.push((number, op));
        }
    }

    /// A holder answers a question.
    pub(in crate::engine) fn hear_word(&mut self, id: NodeId, number: u32, heard: Heard) {
        let Some(place) = self.asked.iter().position(|(asked, _)| *asked == number) else { return };
        let (_, op) = self.asked.swap_remove(place);
        let Some(index) = self.ops.find(op) else { return };
        let op = self.ops.at_mut(index);
        if op.outcome == Outcome::Open
            && let Some(query) = &mut op.query
        {
            if let Some(answers) = query.replies.get_mut(id.index()) {
                answers.heard = Some(heard);
            }
            self.finish(index, Outcome::Answered);
        }
    }

    pub(in crate::engine) fn report_query(&mut self, index: OpIndex) -> Event {
        let replies = self.ops.at_mut(index).query.take().map(|query| query.replies);
        let op = self.ops.id(index);
        self.close_op(index);
        Event::Query { op, replies: replies.unwrap_or_default() }
    }
}

/// Whether the answer to a PUBLISH says that somebody received it.
fn has_receivers(answer: &[u8]) -> bool {
    answer.starts_with(b":") && !answer.starts_with(b":0")
}

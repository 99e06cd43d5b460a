//! Queries to the nodes about keys and about the nodes themselves. No lock depends on a query.

use super::core::Locks;
use super::op::{OpId, OpKind, QueryAnswers, Verdict};
use crate::engine::event::Event;
use crate::error::{Cause, LockError};
use crate::node::{Now, Pending, Phase, Request};
use crate::query::{COMMANDS_MAX, NodeAnswers, Query, Reply};
use crate::quorum::NodeId;
use crate::slab::OpIndex;
use crate::time::Instant;

use std::time::Duration;

impl Locks {
    /// Puts the query to each connected node.
    pub(in crate::engine) fn query(
        &mut self,
        query: &Query,
        now: Instant,
    ) -> Result<OpId, LockError> {
        if self.nodes.every().into_iter().any(|id| query.of(id).count() > COMMANDS_MAX) {
            return Err(LockError::Full);
        }
        let index = self.ops.open(OpKind::Query).ok_or(LockError::Full)?;
        let now = self.called_at(now);
        let phase = self.query_phase(index);
        let mut answers = Vec::with_capacity(self.nodes.len());
        let mut open = 0;
        for id in self.nodes.every() {
            let mut node = NodeAnswers {
                node: id,
                replies: Vec::new(),
                cause: Cause::None,
                doubt: Cause::None,
                round_trip: Duration::ZERO,
                wanted: 0,
            };
            if !self.nodes.all().contains(id) {
                node.cause = Cause::Unlisted;
            } else if self.nodes.at(id).is_greeted() {
                for (part, command) in (0..=u8::MAX).zip(query.of(id)) {
                    node.wanted += 1;
                    node.cause = Cause::Timeout;
                    let request = Request::Query { op: index, part, phase };
                    if !self.nodes.request(id, request, command, now.attended) {
                        node.cause = Cause::Backlog;
                        break;
                    }
                    open += 1;
                }
            } else {
                node.cause = self.nodes.at(id).cause();
            }
            answers.push(node);
        }
        let op = self.ops.at_mut(index);
        op.has_extras = true;
        op.query = Some(Box::new(QueryAnswers { asked_at: now.real, answers, open }));
        if open == 0 {
            self.finish(index, Verdict::Answered);
        } else {
            self.begin_round(index, now);
        }
        Ok(self.ops.id(index))
    }

    /// Distinguishes a query from earlier queries in the same place.
    fn query_phase(&self, index: OpIndex) -> Phase {
        Phase::of(self.ops.at(index).generation)
    }

    pub(in crate::engine) fn query_answered(&mut self, id: NodeId, pending: Pending, now: Now) {
        let node = self.nodes.at(id);
        let reply = Reply::of_frame(node.frame());
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
        step: impl FnOnce(&mut NodeAnswers, Instant),
    ) {
        let Request::Query { op: index, phase, .. } = pending.request else { return };
        let op = self.ops.at(index);
        if op.kind != OpKind::Query
            || op.outcome != Verdict::Open
            || self.query_phase(index) != phase
        {
            return;
        }
        let Some(asked) = &mut self.ops.at_mut(index).query else { return };
        let asked_at = asked.asked_at;
        if let Some(answers) = asked.answers.get_mut(id.index()) {
            step(answers, asked_at);
        }
        asked.open = asked.open.saturating_sub(1);
        if asked.open == 0 {
            self.finish(index, Verdict::Answered);
        }
    }

    pub(in crate::engine) fn report_query(&mut self, index: OpIndex) -> Event {
        let answers = self.ops.at_mut(index).query.take().map(|asked| asked.answers);
        let op = self.ops.id(index);
        self.close_op(index);
        Event::Query { op, answers: answers.unwrap_or_default() }
    }
}

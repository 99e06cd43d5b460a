//! The operations under way: what a caller asked for, until its result is taken.
//!
//! # Invariants
//!
//! - Each operation yields exactly one event, and keeps its place until that is taken: with a bound
//!   on operations the queue of events is bounded too, and none is ever dropped.
//! - Rounds end in the order they began, so their timer is a list, not a heap.

use super::keep::NO_KEEP;
use super::wait::NO_WAIT;
use crate::command::Answer;
use crate::config::Retry;
use crate::count::Began;
use crate::error::{Cause, UnlockError, Unlocked};
use crate::options::LockOptions;
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::round::{Round, Tally};
use crate::time::Instant;

use std::fmt;
use std::time::Duration;

/// An operation of an [`Engine`](super::Engine) that has not been reported yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    pub(super) op: u32,
    pub(super) generation: u32,
}

impl OpId {
    /// A small number that no other operation under way has, below `in_flight_max`: the place of
    /// what the caller keeps beside it. It is used again once the result was taken.
    #[must_use]
    pub const fn index(self) -> usize {
        self.op as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpKind {
    Free,
    Acquire,
    Extend,
    /// An extension that makes a lease of a key and token from elsewhere.
    Adopt,
    /// An extension that the engine began by itself: it is not reported.
    Keep,
    Release,
    Query,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Open,
    /// The round was won; judged once more when it is handed over.
    Won,
    Taken,
    NoQuorum,
    Expired,
    Cancelled,
    /// No quorum holds the lease any more.
    Lost,
    Unlocked(Result<Unlocked, UnlockError>),
    Answered,
}

/// How an acquisition goes on after a failed attempt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plan {
    pub(super) ttl_ms: u32,
    pub(super) min_validity: Duration,
    pub(super) attempts_left: u32,
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
    pub(super) wait_after: Option<fn(u32) -> Duration>,
    /// Attempts that have failed.
    pub(super) attempts_failed: u32,
    /// The end of the call, [`Instant::MAX`] for none.
    pub(super) deadline: Instant,
    /// Between attempts it waits to be woken, instead of trying again and again.
    pub(super) wakes: bool,
    /// When a node without an answer is counted out, in milliseconds; 0 for what the configuration
    /// says.
    pub(super) node_timeout_ms: u16,
}

impl Plan {
    /// The `node_timeout` of the call's own, if it has one.
    pub(super) fn own_timeout(&self) -> Option<Duration> {
        let timeout = Duration::from_millis(self.node_timeout_ms.into());
        (self.node_timeout_ms > 0).then_some(timeout)
    }

    /// How the call goes on after a failed attempt, and when it ends.
    pub(super) fn retry_as(&mut self, acquire: &LockOptions, has_token: bool, now: Instant) {
        let retry = acquire.retry.unwrap_or(Retry::ONCE);
        let deadline = [acquire.timeout, retry.timeout].into_iter().flatten().min();
        // Two attempts with one token could delete each other's keys.
        let is_once = has_token || deadline == Some(Duration::ZERO);
        self.attempts_left = if is_once { 1 } else { retry.attempts.unwrap_or(u32::MAX) };
        self.delay = retry.delay;
        self.jitter = retry.jitter;
        self.wait_after = retry.wait_after;
        self.attempts_failed = 0;
        self.deadline = deadline
            .filter(|deadline| !deadline.is_zero())
            .map_or(Instant::MAX, |deadline| now + deadline);
        self.wakes =
            !is_once && acquire.is_woken && retry.attempts.is_none() && retry.wait_after.is_none();
    }
}

#[derive(Debug)]
pub(super) struct Op {
    pub(super) generation: u32,
    pub(super) kind: OpKind,
    pub(super) outcome: Outcome,
    /// The slot of the current attempt, of the lease, or of the release.
    pub(super) slot: u32,
    /// What is to be looked after of an acquisition's lease.
    pub(super) keep: u32,
    /// Neighbours in the list of rounds, and when this one ends, on the attended clock.
    prev: u32,
    next: u32,
    judged_at: Instant,
    is_listed: bool,
    /// When an acquisition that waits for nodes is judged; a timer set for an earlier attempt
    /// comes due before it and means nothing.
    pub(super) judge_at: Instant,
    pub(super) plan: Plan,
    /// How the last attempt of an acquisition failed; before the first, that others are before it.
    pub(super) failed: Outcome,
    /// When the next attempt is due; a timer set for an earlier one means nothing.
    pub(super) retry_at: Instant,
    /// Its place among those that wait, or [`NO_WAIT`](super::wait::NO_WAIT).
    pub(super) wait: u32,
    /// The node that the next attempt asks before the others.
    pub(super) gate: Option<NodeId>,
    /// The nodes that the attempt under way asks once the gate has granted.
    pub(super) gated: NodeMask,
    /// The votes of the attempt; also the nodes that an extension waits for.
    pub(super) round: Round,
    /// The answers to an extension or a release.
    pub(super) tally: Tally,
    /// For an extension: the deadline it gives if it wins.
    pub(super) new_deadline: Instant,
    pub(super) causes: [Cause; NODES_MAX],
    pub(super) query: Option<Box<Query>>,
    /// When the first attempt of a call that needs more than one began.
    pub(super) began: Began,
}

/// The answers to a question that was put to every node.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) asked_at: Instant,
    pub(super) parts: usize,
    pub(super) replies: Vec<NodeReplies>,
    /// Answers still awaited.
    pub(super) open: usize,
}

/// One node's answers to a query.
#[derive(Clone)]
#[non_exhaustive]
pub struct NodeReplies {
    /// The node.
    pub node: NodeId,
    /// Its answers so far, as bytes of RESP, in the order asked.
    pub replies: Vec<Vec<u8>>,
    /// Why answers are missing.
    pub cause: Cause,
    /// Why what it answers proves nothing: it may have forgotten locks, or is not fit to hold any.
    /// [`Cause::None`] if it was admitted as its answers were read.
    pub doubt: Cause,
    /// From the question to the first answer.
    pub round_trip: Duration,
}

impl fmt::Debug for NodeReplies {
    /// Without what was answered: a key's value is somebody's token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeReplies")
            .field("node", &self.node)
            .field("replies", &self.replies.len())
            .field("cause", &self.cause)
            .field("round_trip", &self.round_trip)
            .finish()
    }
}

const NONE: u32 = u32::MAX;

/// All operations of an engine.
#[derive(Debug)]
pub(super) struct Ops {
    ops: Vec<Op>,
    free: Vec<u32>,
    limit: usize,
    first: u32,
    last: u32,
}

impl Ops {
    pub(super) const fn new(limit: usize) -> Self {
        Self { ops: Vec::new(), free: Vec::new(), limit, first: NONE, last: NONE }
    }

    /// Takes a place for an operation; `None` if the limit is reached.
    pub(super) fn open(&mut self, kind: OpKind) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.add()?,
        };
        let op = self.at_mut(index);
        op.kind = kind;
        op.outcome = Outcome::Open;
        op.plan.deadline = Instant::MAX;
        op.plan.node_timeout_ms = 0;
        op.wait = NO_WAIT;
        op.judge_at = Instant::MAX;
        op.keep = NO_KEEP;
        Some(index)
    }

    /// Makes one more place.
    #[cold]
    fn add(&mut self) -> Option<u32> {
        if self.ops.len() >= self.limit {
            return None;
        }
        self.ops.push(Op::empty());
        u32::try_from(self.ops.len() - 1).ok()
    }

    /// Gives the place back; handles to it find nothing from now on.
    pub(super) fn close(&mut self, index: u32) {
        self.unlist(index);
        let op = self.at_mut(index);
        op.kind = OpKind::Free;
        op.generation = op.generation.wrapping_add(1);
        if op.query.is_some() {
            op.forget_query();
        }
        self.free.push(index);
    }

    #[expect(clippy::indexing_slicing, reason = "whoever names an operation keeps it in the table")]
    #[inline]
    pub(super) fn at(&self, index: u32) -> &Op {
        &self.ops[index as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "whoever names an operation keeps it in the table")]
    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Op {
        &mut self.ops[index as usize]
    }

    pub(super) fn id(&self, index: u32) -> OpId {
        OpId { op: index, generation: self.at(index).generation }
    }

    /// Every place, in use or free: handles to the latter find nothing.
    pub(super) fn ids(&self) -> Vec<OpId> {
        let ids = self.ops.iter().zip(0..);
        ids.map(|(op, index)| OpId { op: index, generation: op.generation }).collect()
    }

    /// The place of an operation that is still under way.
    pub(super) fn find(&self, id: OpId) -> Option<u32> {
        let op = self.ops.get(id.op as usize)?;
        (op.generation == id.generation && op.kind != OpKind::Free).then_some(id.op)
    }

    /// Puts the operation at the end of the rounds; `judged_at` never decreases from one call to
    /// the next.
    #[inline]
    pub(super) fn list(&mut self, index: u32, judged_at: Instant) {
        self.unlist(index);
        let last = self.last;
        let op = self.at_mut(index);
        op.judged_at = judged_at;
        op.is_listed = true;
        op.prev = last;
        op.next = NONE;
        if last == NONE {
            self.first = index;
        } else {
            self.at_mut(last).next = index;
        }
        self.last = index;
    }

    /// Takes the operation out of the rounds; when its own is to be judged, on the attended clock.
    #[cold]
    pub(super) fn judge_apart(&mut self, index: u32, judged_at: Instant) {
        self.unlist(index);
        self.at_mut(index).judged_at = judged_at;
    }

    /// When a round that is judged apart is to be.
    pub(super) fn judged_at(&self, index: u32) -> Instant {
        self.at(index).judged_at
    }

    /// Takes the operation out of the rounds.
    #[inline]
    pub(super) fn unlist(&mut self, index: u32) {
        let op = self.at_mut(index);
        if !std::mem::take(&mut op.is_listed) {
            return;
        }
        let (prev, next) = (op.prev, op.next);
        if prev == NONE {
            self.first = next;
        } else {
            self.at_mut(prev).next = next;
        }
        if next == NONE {
            self.last = prev;
        } else {
            self.at_mut(next).prev = prev;
        }
    }

    /// The first round and when it is judged.
    pub(super) fn first_judged(&self) -> Option<(u32, Instant)> {
        (self.first != NONE).then(|| (self.first, self.at(self.first).judged_at))
    }

    /// How many operations are under way or not reported.
    pub(super) fn in_flight(&self) -> usize {
        self.ops.len() - self.free.len()
    }
}

impl Op {
    fn empty() -> Self {
        Self {
            generation: 0,
            kind: OpKind::Free,
            outcome: Outcome::Open,
            slot: NONE,
            keep: NO_KEEP,
            prev: NONE,
            next: NONE,
            judged_at: Instant::default(),
            is_listed: false,
            judge_at: Instant::MAX,
            plan: Plan::default(),
            failed: Outcome::Taken,
            retry_at: Instant::MAX,
            wait: NO_WAIT,
            gate: None,
            gated: NodeMask::EMPTY,
            round: Round::default(),
            tally: Tally::default(),
            new_deadline: Instant::default(),
            causes: [Cause::None; NODES_MAX],
            query: None,
            began: Began::default(),
        }
    }

    #[cold]
    fn forget_query(&mut self) {
        self.query = None;
    }

    /// Notes why `node` did not grant.
    pub(super) fn blame(&mut self, node: NodeId, cause: Cause) {
        if let Some(place) = self.causes.get_mut(node.index()) {
            *place = cause;
        }
    }

    /// Notes one cause for several nodes.
    pub(super) fn blame_all(&mut self, nodes: NodeMask, cause: Cause) {
        for node in nodes {
            self.blame(node, cause);
        }
    }

    /// Notes why an answer did not grant.
    pub(super) fn blame_answer(&mut self, node: NodeId, answer: Answer) {
        let cause = match answer {
            Answer::Refused(cause) => cause,
            Answer::NoScript => Cause::Unsupported,
            Answer::Ok | Answer::Null | Answer::Zero | Answer::One | Answer::Odd => Cause::OddReply,
        };
        self.blame(node, cause);
    }
}

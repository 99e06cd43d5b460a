//! The operations under way: a caller's requests, until the caller takes their results.
//!
//! # Invariants
//!
//! - Each operation of a caller yields one result, and keeps its place until the caller takes it. So
//!   the bound on operations also bounds the queue of results, and no result is dropped.
//! - Rounds end in the order in which they began, so their timer is a list, not a heap.

use crate::command::Answer;
use crate::error::{Cause, UnlockError, Unlocked};
use crate::options::{LockOptions, Patience};
use crate::query::NodeAnswers;
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::round::{Round, Tally};
use crate::slab::{Index, KeepIndex, OpIndex, Slab, SlotIndex};
use crate::time::Instant;

use std::time::Duration;

/// An operation of an [`Engine`](crate::engine::Engine) that has not been reported yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    pub(in crate::engine) op: OpIndex,
    pub(in crate::engine) generation: u32,
}

impl OpId {
    /// A small number that no other operation under way has: an index for the caller's own records.
    /// It is below the sum of `in_flight_max` and the most leases that the engine has kept alive at
    /// once. Another operation uses it once the result is taken.
    #[must_use]
    pub fn index(self) -> usize {
        self.op.place()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum OpKind {
    Free,
    Acquire,
    Extend,
    /// An extension that takes over the lock of a key and token.
    Adopt,
    /// An extension that the engine began by itself: it is not reported.
    Keep,
    Release,
    Query,
    /// A call for several keys, or a change of their lease: its parts are operations of their own.
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Verdict {
    Open,
    /// The round was won; the lease is checked again at the hand-over.
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
pub(in crate::engine) struct Plan {
    pub(in crate::engine) ttl_ms: u32,
    pub(in crate::engine) min_validity: Duration,
    /// The call waits for the lock, instead of ending with its first attempt.
    pub(in crate::engine) is_patient: bool,
    pub(in crate::engine) delay: Duration,
    pub(in crate::engine) jitter: Duration,
    /// The end of the call, [`Instant::MAX`] for none.
    pub(in crate::engine) deadline: Instant,
    /// Between attempts the call waits for a wake, instead of polling.
    pub(in crate::engine) is_woken: bool,
}

impl Plan {
    /// How the call goes on after a failed attempt, and when it ends.
    pub(in crate::engine) fn retry_as(&mut self, options: &LockOptions, now: Instant) {
        let Patience { ends, is_patient } = options.patience(now);
        (self.deadline, self.is_patient) = (ends, is_patient);
        self.is_woken = is_patient && options.is_woken;
        if let Some(retry) = options.retry {
            (self.delay, self.jitter) = (retry.delay, retry.jitter);
        }
    }
}

#[derive(Clone, Debug)]
pub(in crate::engine) struct Op {
    pub(in crate::engine) generation: u32,
    pub(in crate::engine) kind: OpKind,
    pub(in crate::engine) outcome: Verdict,
    /// An extension that began before the last change of the lists.
    pub(in crate::engine) is_former: bool,
    /// The slot of the current attempt, of the lease, or of the release. `None` for a query or a set.
    slot: Option<SlotIndex>,
    /// The [`Keep`](super::core::Keep) for the lease of an acquisition or adoption.
    pub(in crate::engine) keep: Option<KeepIndex>,
    /// The set for which this operation handles one key, until the set has the result.
    pub(in crate::engine) part: Option<Part>,
    /// Neighbours in the list of rounds, and when this round ends, on the attended clock.
    prev: Option<OpIndex>,
    next: Option<OpIndex>,
    round_ends: Instant,
    is_listed: bool,
    /// The operation has timers, or is a query.
    pub(super) has_extras: bool,
    /// When the operation is judged outside of the rounds; [`Instant::MAX`] for never.
    pub(in crate::engine) judge_at: Instant,
    pub(in crate::engine) plan: Plan,
    /// How the last attempt of an acquisition failed. For a call that may try again, this is `Open`
    /// before the first failure, and `Taken` if the call queued without an attempt.
    pub(in crate::engine) failed: Verdict,
    /// The nodes that granted the latest of the attempts that ended as `Expired`.
    pub(in crate::engine) late: NodeMask,
    /// The nodes that denied this call in their last answers to it, and the generation of the call.
    denials: (NodeMask, u32),
    /// The nodes that the attempt under way asks once the gate has granted.
    pub(in crate::engine) gated: NodeMask,
    /// The votes of the attempt. For an extension: the nodes for which it waits, and the nodes that
    /// get its SETs.
    pub(in crate::engine) round: Round,
    /// The answers to an extension or a release.
    pub(in crate::engine) tally: Tally,
    /// The new deadline of an extension, if it wins.
    pub(in crate::engine) new_deadline: Instant,
    pub(in crate::engine) causes: [Cause; NODES_MAX],
    pub(in crate::engine) query: Option<Box<QueryAnswers>>,
    /// How an acquisition began.
    #[cfg(feature = "metrics")]
    pub(in crate::engine) called: Called,
    /// The way in which an acquisition would win now.
    #[cfg(feature = "metrics")]
    pub(in crate::engine) way: Way,
}

/// The operation of a whole set, and the place of one of its keys.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Part {
    pub(in crate::engine) whole: OpIndex,
    pub(in crate::engine) place: u8,
}

/// How a call for a lock began.
#[cfg(feature = "metrics")]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Called {
    pub(in crate::engine) at: Instant,
    /// The call makes more than one attempt if need be.
    pub(in crate::engine) waits: bool,
}

/// The way in which a call gets its lease.
#[cfg(feature = "metrics")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) enum Way {
    /// By its first attempt.
    #[default]
    First,
    /// The holder's release handed the lock over.
    Transfer,
    /// By an attempt that began with a wake.
    Wake,
    /// By any later attempt.
    Poll,
}

/// The answers to a query.
#[derive(Clone, Debug)]
pub(in crate::engine) struct QueryAnswers {
    pub(in crate::engine) asked_at: Instant,
    pub(in crate::engine) answers: Vec<NodeAnswers>,
    /// How many answers are still to come.
    pub(in crate::engine) open: usize,
}

/// All operations of an engine.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Ops {
    ops: Slab<OpIndex, Op>,
    /// How many operations may be under way: those of the caller, and the engine's own.
    limit: usize,
    first: Option<OpIndex>,
    last: Option<OpIndex>,
}

impl Ops {
    pub(in crate::engine) fn new(limit: usize) -> Self {
        Self { ops: Slab::default(), limit, first: None, last: None }
    }

    /// Takes a place for an operation of the caller; `None` if the limit is reached.
    pub(in crate::engine) fn open(&mut self, kind: OpKind) -> Option<OpIndex> {
        if self.is_full() { None } else { self.begin(kind) }
    }

    /// Takes a place for an extension that the engine makes by itself. The caller's operations and
    /// these take no room from each other.
    pub(in crate::engine) fn open_own_extension(&mut self) -> Option<OpIndex> {
        let index = self.begin(OpKind::Keep)?;
        self.limit += 1;
        Some(index)
    }

    /// The place of an extension that the engine began by itself is about to be closed.
    pub(in crate::engine) const fn ends_own_extension(&mut self) {
        self.limit -= 1;
    }

    fn begin(&mut self, kind: OpKind) -> Option<OpIndex> {
        let index = self.ops.take(Op::empty)?;
        let op = self.at_mut(index);
        op.kind = kind;
        op.outcome = Verdict::Open;
        op.is_former = false;
        op.plan.deadline = Instant::MAX;
        op.judge_at = Instant::MAX;
        op.keep = None;
        Some(index)
    }

    /// Gives the place back; its handles then find nothing.
    pub(in crate::engine) fn close(&mut self, index: OpIndex) {
        self.unlist(index);
        let op = self.at_mut(index);
        op.kind = OpKind::Free;
        op.generation = op.generation.wrapping_add(1);
        self.ops.give_back(index);
    }

    #[inline]
    pub(in crate::engine) fn at(&self, index: OpIndex) -> &Op {
        self.ops.at(index)
    }

    #[inline]
    pub(in crate::engine) fn at_mut(&mut self, index: OpIndex) -> &mut Op {
        self.ops.at_mut(index)
    }

    pub(in crate::engine) fn id(&self, index: OpIndex) -> OpId {
        OpId { op: index, generation: self.at(index).generation }
    }

    /// Every place, in use or free: handles to a free place find nothing.
    pub(in crate::engine) fn ids(&self) -> Vec<OpId> {
        let ids = self.ops.iter();
        ids.map(|(index, op)| OpId { op: index, generation: op.generation }).collect()
    }

    /// Every operation, and free places.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (OpIndex, &Op)> {
        self.ops.iter()
    }

    /// The place of an operation that is still under way.
    pub(in crate::engine) fn find(&self, id: OpId) -> Option<OpIndex> {
        let op = self.ops.get(id.op)?;
        (op.generation == id.generation && op.kind != OpKind::Free).then_some(id.op)
    }

    /// Puts the operation at the end of the rounds. `round_ends` never decreases from one call to
    /// the next.
    #[inline]
    pub(in crate::engine) fn list(&mut self, index: OpIndex, round_ends: Instant) {
        self.unlist(index);
        let last = self.last;
        let op = self.at_mut(index);
        op.round_ends = round_ends;
        op.is_listed = true;
        op.prev = last;
        op.next = None;
        match last {
            None => self.first = Some(index),
            Some(last) => self.at_mut(last).next = Some(index),
        }
        self.last = Some(index);
    }

    /// Removes the operation from the rounds.
    #[inline]
    pub(in crate::engine) fn unlist(&mut self, index: OpIndex) {
        let op = self.at_mut(index);
        if !std::mem::take(&mut op.is_listed) {
            return;
        }
        let (prev, next) = (op.prev, op.next);
        match prev {
            None => self.first = next,
            Some(prev) => self.at_mut(prev).next = next,
        }
        match next {
            None => self.last = prev,
            Some(next) => self.at_mut(next).prev = prev,
        }
    }

    /// The first round, and when it is judged.
    pub(in crate::engine) fn first_judged(&self) -> Option<(OpIndex, Instant)> {
        self.first.map(|first| (first, self.at(first).round_ends))
    }

    /// How many operations are under way, or have ended and not been reported yet.
    pub(in crate::engine) const fn in_flight(&self) -> usize {
        self.ops.in_use()
    }

    pub(in crate::engine) const fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// How many operations may begin.
    pub(in crate::engine) const fn room(&self) -> usize {
        self.limit.saturating_sub(self.in_flight())
    }
}

impl Op {
    fn empty() -> Self {
        Self {
            generation: 0,
            kind: OpKind::Free,
            outcome: Verdict::Open,
            is_former: false,
            slot: None,
            keep: None,
            part: None,
            prev: None,
            next: None,
            round_ends: Instant::default(),
            is_listed: false,
            has_extras: false,
            judge_at: Instant::MAX,
            plan: Plan::default(),
            failed: Verdict::Taken,
            late: NodeMask::EMPTY,
            denials: (NodeMask::EMPTY, 0),
            gated: NodeMask::EMPTY,
            round: Round::default(),
            tally: Tally::default(),
            new_deadline: Instant::default(),
            causes: [Cause::None; NODES_MAX],
            query: None,
            #[cfg(feature = "metrics")]
            called: Called::default(),
            #[cfg(feature = "metrics")]
            way: Way::default(),
        }
    }

    /// Whether the operation's round has an end.
    pub(in crate::engine) const fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Whether the operation is a call for a lock that is not decided.
    pub(in crate::engine) fn goes_on(&self) -> bool {
        self.kind == OpKind::Acquire && self.outcome == Verdict::Open
    }

    /// The slot of an operation on a lock.
    #[inline]
    pub(in crate::engine) fn slot(&self) -> SlotIndex {
        self.slot.expect("only a query or a set has no slot")
    }

    pub(in crate::engine) const fn set_slot(&mut self, slot: SlotIndex) {
        self.slot = Some(slot);
    }

    /// The nodes that denied an attempt of this call, and have said nothing else since.
    #[cold]
    pub(in crate::engine) fn denials(&self) -> NodeMask {
        let (denials, generation) = self.denials;
        if generation == self.generation { denials } else { NodeMask::EMPTY }
    }

    /// Notes the denials of a failed attempt. A node that the attempt did not ask keeps its earlier
    /// denial. So does a node that had no time to answer, if the end of the call cut the attempt.
    #[cold]
    pub(in crate::engine) fn note_denials(&mut self, is_cut: bool) {
        let round = &self.round;
        let mut told = round.granted;
        for node in round.failed.union(round.unknown) {
            let cause = self.causes.get(node.index());
            let is_silent =
                |cause: &Cause| *cause == Cause::Gated || is_cut && *cause == Cause::Timeout;
            told.set(node, !cause.is_some_and(is_silent));
        }
        let denials = self.denials().without(told).union(round.denied);
        self.denials = (denials, self.generation);
    }

    /// Notes why `node` did not grant.
    pub(in crate::engine) fn blame(&mut self, node: NodeId, cause: Cause) {
        if let Some(place) = self.causes.get_mut(node.index()) {
            *place = cause;
        }
    }

    /// Notes one cause for several nodes.
    pub(in crate::engine) fn blame_all(&mut self, nodes: NodeMask, cause: Cause) {
        for node in nodes {
            self.blame(node, cause);
        }
    }

    /// Notes why an answer did not grant.
    pub(in crate::engine) fn blame_answer(&mut self, node: NodeId, answer: Answer) {
        let cause = if let Answer::Refused(cause) = answer { cause } else { Cause::OddReply };
        self.blame(node, cause);
    }
}

//! All operations over all nodes, without a socket or a clock: bytes and times in, bytes and events
//! out.
//!
//! Layer: the top of the sans-IO part. Driven by [`crate::driver`], or by a loop of your own.
//!
//! # How to drive it
//!
//! 1. Say what happened: [`Engine::handle_connected`], [`Engine::handle_lost`],
//!    [`Engine::handle_bytes`] for everything the sockets hold, and only then
//!    [`Engine::handle_timeout`]: what has come in is read before anybody is judged.
//! 2. Submit: [`Engine::try_lock`], [`Engine::extend`], [`Engine::unlock`], with a clock that was
//!    read just before.
//! 3. Drain: [`Engine::poll_event`] with a clock read then, [`Engine::poll_connection`], and
//!    [`Engine::drain_output`], or [`Engine::output`], for the nodes of [`Engine::poll_writes`]. What
//!    [`Engine::poll_change`] and [`Engine::poll_late_vote`] tell of leases is there for who shows
//!    deadlines and votes to others.
//! 4. Come back at [`Engine::next_deadline`], or when a socket is ready.
//!
//! # Contract
//!
//! - `now` comes from a clock that runs on while the machine is suspended.
//! - [`Engine::handle_bytes`] wants a clock that was read after the bytes were: what they say of time,
//!   such as a server's age, counts from there. All other calls want one that was read just before
//!   them; [`Engine::handle_timeout`] takes one from before the sockets were read as well, for then
//!   nobody is judged by time in which nobody read.
//! - Same inputs, same outputs: all randomness comes from the seed.
//!
//! # Invariants
//!
//! - A SET goes to a node behind every release of the same key that this client owes it.
//! - An event says that a lease is held only if it still is at the time given to `poll_event`.
//! - Each operation ends with one event, whatever the nodes do.

mod acquire;
mod cohort;
mod counts;
mod event;
mod extend;
mod gate;
mod inbound;
mod keep;
mod keeping;
pub(crate) mod notice;
mod op;
mod prefix;
mod query;
mod release;
mod setup;
mod slot;
#[cfg(test)]
mod tests;
mod timers;
mod trace;
pub(crate) mod view;
mod votes;
mod wait;
mod watching;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

#[cfg(feature = "metrics")]
pub use crate::histogram::Histogram;
#[cfg(any(test, feature = "sim"))]
pub(crate) use crate::node::Room;
#[cfg(feature = "metrics")]
pub use counts::Series;
pub use event::{Connection, Event, LostCause};
pub(crate) use notice::Notice;
pub use op::{NodeReplies, OpId};
pub use slot::LeaseId;
pub(crate) use view::{NodeHealth, NodeState};

use crate::command::{ReleaseStep, SetOptions};
use crate::config::KEY_LEN_MAX;
use crate::error::{Ballot, Cause, Unlocked};
use crate::mutant::{self, Mutant};
use crate::node::{Node, Now, Shown, Wish};
use crate::quorum::{NodeId, NodeMask};
use crate::time::Instant;
use cohort::Cohort;
use counts::Counts;
use keep::Keeps;
use op::{OpKind, Ops, Outcome};
use prefix::Prefix;
use setup::Settings;
use slot::Slots;
use timers::{Timer, Timers};
#[cfg(feature = "tracing")]
use trace::Traces;
use trace::traced;
use wait::{Queues, Waits, Wakes};

/// Nobody can have asked and been answered in less.
const EARSHOT_NANOS: u64 = 50_000;

/// No operation: the loss of a lease, in the list of results.
const LOSS: u32 = u32::MAX;

/// A Redlock client without its sockets. See the [module](self) for how to drive it.
pub struct Engine {
    settings: Settings,
    names: Arc<[Box<str>]>,
    nodes: Vec<Node>,
    /// What people last saw of each node, and since when it is that.
    shown: Vec<(Shown, Instant)>,
    /// The nodes that a SET may go to; kept in step by [`Engine::refresh`].
    voters: NodeMask,
    cohort: Cohort,
    with_output: NodeMask,
    /// Nodes by which somebody is woken.
    waking: NodeMask,
    with_wish: NodeMask,
    /// The nodes that each pass looks after; the others have nothing due before `stalls_at`, on the
    /// attended clock.
    restless: NodeMask,
    stalls_at: Instant,
    with_news: NodeMask,
    slots: Slots,
    ops: Ops,
    /// Operations whose result waits to be taken, and [`LOSS`] for each loss that does.
    done: VecDeque<u32>,
    timers: Timers,
    /// What is looked after of leases.
    keeps: Keeps,
    /// Acquisitions that wait for nodes on their way.
    awaiting: Vec<u32>,
    late_votes: VecDeque<u32>,
    waits: Waits,
    queues: Queues,
    wakes: Wakes,
    /// Nanoseconds in which nobody read the sockets, in all.
    absent: u64,
    last_pass: Instant,
    /// When anything was last called: whoever calls is there.
    last_call: Instant,
    client_id: [u8; 8],
    /// Hides the slots that tokens name.
    slot_mask: u32,
    rng: StdRng,
    /// The client is about to end: whoever is sent NOSCRIPT will not be there to read it.
    is_closing: bool,
    scratch: Vec<u8>,
    /// A frame or a message that came in, while something is done with it.
    frame: Vec<u8>,
    /// A message on its way out.
    text: Vec<u8>,
    set_options: SetOptions,
    prefix: Prefix,
    counts: Counts,
    #[cfg(feature = "tracing")]
    traces: Traces,
}

impl Engine {
    // ---- outputs ----

    /// The next result, judged at `now`: a lease whose deadline has passed is not handed out.
    pub fn poll_event(&mut self, now: Instant) -> Option<Event> {
        while let Some(index) = self.done.pop_front() {
            if index == LOSS {
                match self.next_loss() {
                    None => continue,
                    loss => return loss,
                }
            }
            let kind = self.ops.at(index).kind;
            match kind {
                OpKind::Acquire if !self.is_hand_over_late(index, now) => {
                    return self.report_acquire(index, now);
                }
                OpKind::Extend | OpKind::Adopt => return Some(self.report_extend(index, now)),
                OpKind::Release => return self.report_release(index),
                OpKind::Query => return Some(self.report_query(index)),
                OpKind::Acquire | OpKind::Keep | OpKind::Free => {}
            }
        }
        None
    }

    /// Whether [`poll_event`](Self::poll_event) has something to report.
    #[must_use]
    pub(crate) fn has_event(&self) -> bool {
        !self.done.is_empty()
    }

    /// The next thing to do with a connection.
    pub fn poll_connection(&mut self) -> Option<(NodeId, Connection)> {
        loop {
            let id = self.with_wish.into_iter().next()?;
            self.with_wish.remove(id);
            match self.node_mut(id).take_wish() {
                Wish::Nothing => {}
                Wish::Connect => return Some((id, Connection::Open)),
                Wish::Close => return Some((id, Connection::Close)),
            }
        }
    }

    /// The nodes that have bytes to send.
    #[must_use]
    #[inline]
    pub const fn nodes_with_output(&self) -> NodeMask {
        self.with_output
    }

    /// The nodes that have bytes to send, in two groups, to be written to one after the other. Those whose
    /// output wakes somebody who waits for a lock come behind all others: the woken asks every node at
    /// once, and one that has not heard of the release denies it its vote.
    #[inline]
    pub const fn poll_writes(&mut self) -> [NodeMask; 2] {
        let waking = std::mem::replace(&mut self.waking, NodeMask::EMPTY);
        let waking = waking.intersection(self.with_output);
        [self.with_output.without(waking), waking]
    }

    /// The bytes that wait for the node's socket.
    #[must_use]
    pub fn output(&self, id: NodeId) -> &[u8] {
        self.nodes.get(id.index()).map_or(&[], |node| node.output())
    }

    /// The node's socket took the first `len` bytes of its output.
    pub fn handle_sent(&mut self, id: NodeId, len: usize) {
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        if node.output_taken(len) {
            self.with_output.remove(id);
        }
    }

    /// Hands the bytes that wait for the sockets of `nodes` to `write`, which says how many the
    /// socket took: [`output`](Self::output) and [`handle_sent`](Self::handle_sent) in one.
    #[inline]
    pub fn drain_output(&mut self, nodes: NodeMask, mut write: impl FnMut(NodeId, &[u8]) -> usize) {
        let (mut left, wanted) = (self.with_output, self.with_output.intersection(nodes));
        let mut next = NodeMask::first(1);
        for node in &mut self.nodes {
            let one = next;
            next = next.shifted();
            let Some(id) = wanted.intersection(one).first_node() else { continue };
            let output = node.output();
            let (all, len) = (output.len(), write(id, output));
            if len >= all {
                node.output_all_taken();
                left = left.without(one);
            } else {
                node.output_taken(len);
            }
        }
        self.with_output = left;
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.has_event() { Some(self.last_pass) } else { self.next_due() }
    }

    /// As [`next_deadline`](Self::next_deadline), whatever waits to be taken.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let absent = Duration::from_nanos(self.absent);
        let rounds = self.ops.first_judged().map(|(_, at)| at + absent);
        let nodes = self.nodes.iter().filter_map(|node| node.next_timeout(absent)).min();
        let keeps = Some(self.keeps.next()).filter(|at| *at < Instant::MAX);
        [rounds, self.timers.next(), keeps, nodes].into_iter().flatten().min()
    }

    // ---- time ----

    /// Whether the sockets should be read before anything is begun: so much time passed without a
    /// pass that servers may have closed connections and stragglers answered, or there is no quorum,
    /// and what comes in may make one.
    #[must_use]
    pub(crate) fn needs_pass(&self, now: Instant) -> bool {
        now.saturating_since(self.last_pass) > self.settings.node_timeout
            || self.voters.count() < self.settings.quorum
    }

    /// Whether the sockets should be read before a lease is released: those who wait for it may have
    /// said so since the last pass, which is one round trip ago at least.
    #[must_use]
    pub(crate) fn may_have_word(&self, now: Instant) -> bool {
        now.nanos_since(self.last_pass) > EARSHOT_NANOS && self.nodes.iter().any(Node::has_channel)
    }

    /// Ends a pass over the sockets, after all that they held was handed in: does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.last_pass = now;
        let now = self.now(now);
        if !self.restless.is_empty() || self.stalls_at <= now.attended {
            self.look_after_nodes(now);
        }
        while let Some((index, judged_at)) = self.ops.first_judged() {
            if judged_at > now.attended || mutant::is(Mutant::RoundNeverJudged) {
                break;
            }
            self.judge(index, now);
        }
        if self.keeps.next() <= now.real {
            self.handle_keeps(now);
        }
        if self.timers.needs_care(now.real) {
            self.handle_timers(now);
        }
    }

    /// Does what is due at the nodes themselves.
    #[cold]
    fn look_after_nodes(&mut self, now: Now) {
        for id in NodeMask::first(self.nodes.len()) {
            if self.node(id).is_quiet(now) {
                continue;
            }
            if let Some(cause) = self.node_mut(id).handle_timeout(now) {
                self.drop_connection(id, cause, now);
            }
            self.refresh(id, now);
        }
        // What is written from now on is answered too late no sooner than that.
        let stalls = self.nodes.iter().map(|node| node.stalls_at(now)).min();
        self.stalls_at = stalls.unwrap_or(Instant::MAX);
    }

    #[cold]
    fn handle_timers(&mut self, now: Now) {
        while let Some((timer, id)) = self.timers.pop_due(now.real) {
            let Some(index) = self.ops.find(id) else { continue };
            match timer {
                Timer::Retry if self.ops.at(index).retry_at <= now.real => self.retry(index, now),
                Timer::Retry => {}
                Timer::Wait => self.wait_due(index, now),
                Timer::Judge => {
                    let op = self.ops.at(index);
                    let is_due = op.judge_at.min(op.plan.deadline) <= now.real;
                    if is_due && !self.has_time_left(index, now) {
                        self.judge(index, now);
                    }
                }
            }
        }
        let (ops, waits) = (&self.ops, &self.waits);
        self.timers.sweep(|at, timer, id| {
            let op = ops.find(id).map(|index| ops.at(index));
            op.is_some_and(|op| match timer {
                Timer::Retry => op.retry_at == at,
                Timer::Wait => waits.due(op.wait) == Some(at),
                Timer::Judge => op.judge_at == at || op.plan.deadline == at,
            })
        });
    }

    /// `real` on both clocks.
    #[inline]
    fn now(&mut self, real: Instant) -> Now {
        let gap = real.nanos_since(self.last_call);
        self.last_call = self.last_call.max(real);
        if gap > self.settings.node_timeout_nanos {
            self.note_absence(gap, real);
        }
        self.both_clocks(real)
    }

    /// `real` on both clocks, where somebody has just called.
    const fn both_clocks(&self, real: Instant) -> Now {
        Now { real, attended: real.minus_nanos(self.absent) }
    }

    /// From 0 to just below 1.
    fn random_share(&mut self) -> f64 {
        f64::from(self.rng.next_u32()) / 2_f64.powi(32)
    }

    /// What a node sent last, out of its memory; `frame` takes it back.
    fn take_frame(&mut self, id: NodeId) -> Vec<u8> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.extend_from_slice(self.node(id).frame());
        frame
    }

    /// Nobody called for `gap`. Whoever comes by the time that was asked for was there; else what
    /// is beyond a `node_timeout` was the caller's own time, and is held against no node.
    #[cold]
    fn note_absence(&mut self, gap: u64, now: Instant) {
        let timeout = self.settings.node_timeout_nanos;
        if self.next_due().is_none_or(|due| now.nanos_since(due) > timeout) {
            self.absent = self.absent.saturating_add(gap.saturating_sub(timeout));
        }
    }

    /// The time of an operation is up: whoever has not answered is counted out.
    fn judge(&mut self, index: u32, now: Now) {
        self.ops.unlist(index);
        let op = self.ops.at(index);
        if op.outcome != Outcome::Open {
            return;
        }
        match op.kind {
            OpKind::Acquire => self.judge_acquire(index, now),
            OpKind::Extend | OpKind::Adopt | OpKind::Keep => {
                self.end_extension(index, Outcome::NoQuorum);
            }
            OpKind::Release => self.finish(index, Outcome::Unlocked(Ok(Unlocked::Unknown))),
            OpKind::Query => self.finish(index, Outcome::Answered),
            OpKind::Free => {}
        }
    }

    // ---- shared by the operations ----

    /// The operation is decided; its result waits to be taken.
    fn finish(&mut self, index: u32, outcome: Outcome) {
        self.ops.unlist(index);
        let op = self.ops.at_mut(index);
        debug_assert_eq!(op.outcome, Outcome::Open, "an operation ends once");
        op.outcome = outcome;
        self.done.push_back(index);
    }

    /// Begins the round of an operation at `now`.
    fn begin_round(&mut self, index: u32, now: Now) {
        self.ops.list(index, now.attended.plus_nanos(self.settings.node_timeout_nanos));
    }

    /// What the nodes said to the operation's round.
    fn ballot(
        &self,
        index: u32,
        granted: NodeMask,
        denied: NodeMask,
        unknown: NodeMask,
        now: Instant,
    ) -> Ballot {
        let op = self.ops.at(index);
        let mut causes = op.causes;
        for node in op.round.awaited {
            if let Some(cause @ Cause::None) = causes.get_mut(node.index()) {
                *cause = Cause::NotAsked;
            }
        }
        self.ballot_of((granted, denied, unknown), causes, now)
    }

    #[expect(clippy::indexing_slicing, reason = "ids come from the masks of these nodes")]
    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    #[expect(clippy::indexing_slicing, reason = "ids come from the masks of these nodes")]
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// After anything happened to a node: pays what it is owed, and notes what it can do now.
    #[cold]
    fn refresh(&mut self, id: NodeId, now: Now) {
        self.node_mut(id).changes_noted();
        self.note_state(id, now);
        self.pay_debts(id, now);
        let node = self.node_mut(id);
        let (can_vote, has_output) = (node.can_vote(), node.has_output());
        let is_on_the_way = node.is_on_the_way();
        if self.node(id).has_wish() {
            self.with_wish.insert(id);
        }
        if self.node(id).has_news() {
            self.with_news.insert(id);
        }
        if has_output {
            self.with_output.insert(id);
        }
        if self.node(id).is_restless() {
            self.restless.insert(id);
        } else {
            self.restless.remove(id);
        }
        self.gather_cohort();
        let could_vote = self.voters.contains(id);
        if can_vote {
            self.voters.insert(id);
        } else {
            self.voters.remove(id);
        }
        // A voter that could vote before is awaited by nobody.
        let has_settled = !(is_on_the_way || can_vote && could_vote);
        if has_settled && !self.awaiting.is_empty() {
            self.settle_awaiting(id, now);
        }
    }

    /// Notes since when a node is in its state.
    fn note_state(&mut self, id: NodeId, now: Now) {
        let shown = self.node(id).shown();
        if let Some(place) = self.shown.get_mut(id.index())
            && place.0 != shown
        {
            *place = (shown, now.real);
            traced!(DEBUG: self.trace_node(id, now));
        }
    }

    /// Ends a node's connection from this side.
    fn drop_connection(&mut self, id: NodeId, cause: Cause, now: Now) {
        self.lose(id, cause, now);
        self.node_mut(id).close();
    }

    fn release_step(&self, id: NodeId) -> Option<ReleaseStep> {
        let node = self.node(id);
        let step = node.dialect.release.filter(|_| node.is_greeted())?;
        Some(if self.is_closing && step == ReleaseStep::EvalSha { ReleaseStep::Eval } else { step })
    }

    /// Draws tokens from fresh randomness from now on; the client's id stays.
    pub(crate) fn reseed(&mut self, seed: [u8; 32]) {
        self.rng = StdRng::from_seed(seed);
    }

    /// From now on releases are sent in a form that needs no second step: the client is about to
    /// end.
    pub fn begin_close(&mut self) {
        self.is_closing = true;
        self.gather_cohort();
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("nodes", &self.names)
            .field("voters", &self.voters)
            .field("in_flight", &self.ops.in_flight())
            .field("slots", &self.slots.in_use())
            .finish_non_exhaustive()
    }
}

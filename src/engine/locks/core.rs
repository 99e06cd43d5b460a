//! The parts that all operations on locks share: nodes, attempts, leases, clocks and timers.
//!
//! # Invariants
//!
//! - The locks know nothing of waiting. A function that may end an attempt returns it as
//!   [`Failed`], and the engine handles it before anything else happens to the locks.
//! - A lease that is not kept alive has no [`Keep`], and no timer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::batch::Batches;
use super::op::{OpId, Ops, Verdict};
use super::prefix::Prefix;
use super::settings::Settings;
use super::slot::{LeaseId, Offers, Slot, Slots, TokenInput, Unsettled};
use super::timers::{Timer, Timers};
use crate::client_name::ClientId;
use crate::command::{Answer, Form, SetOptions, append_set};
use crate::engine::event::LostCause;
#[cfg(feature = "metrics")]
use crate::engine::happenings::counts::Counts;
#[cfg(feature = "tracing")]
use crate::engine::happenings::spans::Traces;
use crate::engine::nodes::Nodes;
use crate::error::{Ballot, Cause};
use crate::generator::Generator;
use crate::node::{Now, Request};
use crate::quorum::{NODES_MAX, NodeId, NodeMask};
use crate::rules;
use crate::slab::{Index as _, KeepIndex, OpIndex, Slab, SlotIndex};
use crate::time::{Instant, WallClock};
use crate::token::TokenBytes;

/// An event for the caller to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Done {
    /// The result of an operation.
    Op(OpIndex),
    /// The loss of a lease, and the operation from which the lease came.
    Loss { op: OpId, lease: LeaseId, cause: LostCause },
}

/// An attempt that has failed; the locks do not decide what its call does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Failed {
    pub(in crate::engine) op: OpIndex,
    pub(in crate::engine) outcome: Verdict,
}

/// The engine's care for one lease, from its acquisition on.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Keep {
    /// The slot of the attempt, or of the lease.
    pub(in crate::engine) slot: Option<SlotIndex>,
    /// The acquisition or adoption from which the lease came.
    pub(in crate::engine) op: OpId,
    /// The holder writes its name beside the lock.
    pub(in crate::engine) is_announced: bool,
    /// Its claim, once the lease has begun.
    pub(in crate::engine) claim: Option<Claimed>,
    /// The caller has the lease; until then the entry belongs to the acquisition.
    pub(in crate::engine) is_held: bool,
    pub(in crate::engine) is_lost: bool,
    /// When the last extension began.
    pub(in crate::engine) began: Instant,
    /// When the next extension begins; [`Instant::MAX`] while one is under way, or if none will
    /// follow.
    pub(in crate::engine) extend_at: Instant,
}

/// The claim of a holder beside the lock of its lease.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Claimed {
    pub(in crate::engine) value: TokenBytes,
    /// The nodes to which it was written.
    pub(in crate::engine) nodes: NodeMask,
}

/// All [`Keep`]s of an engine.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Keeps {
    keeps: Slab<KeepIndex, Keep>,
    /// The entry of each slot that has one.
    by_slot: Vec<Option<KeepIndex>>,
    /// Slots of leases whose deadline the engine has moved.
    pub(in crate::engine) changed: VecDeque<SlotIndex>,
}

impl Keeps {
    /// An entry for an acquisition or adoption that is about to begin.
    pub(in crate::engine) fn open(&mut self, op: OpId) -> Option<KeepIndex> {
        let keep = Keep {
            slot: None,
            op,
            is_announced: false,
            claim: None,
            is_held: false,
            is_lost: false,
            began: Instant::default(),
            extend_at: Instant::MAX,
        };
        self.keeps.insert(keep)
    }

    #[cfg(feature = "sim")]
    pub(in crate::engine) const fn in_use(&self) -> usize {
        self.keeps.in_use()
    }

    /// The lease is over, or there was none.
    pub(in crate::engine) fn close(&mut self, index: KeepIndex) {
        self.keeps.give_back(index);
    }

    pub(in crate::engine) fn at(&self, index: KeepIndex) -> &Keep {
        self.keeps.at(index)
    }

    pub(in crate::engine) fn at_mut(&mut self, index: KeepIndex) -> &mut Keep {
        self.keeps.at_mut(index)
    }

    /// From now on the entry belongs to the attempt or the lease in this slot.
    pub(in crate::engine) fn bind(&mut self, index: KeepIndex, slot: SlotIndex) {
        let place = slot.place();
        if place >= self.by_slot.len() {
            self.by_slot.resize(place + 1, None);
        }
        if let Some(entry) = self.by_slot.get_mut(place) {
            *entry = Some(index);
        }
        self.at_mut(index).slot = Some(slot);
    }

    /// The entry of a kept slot. For any other slot the result may be a closed entry.
    pub(in crate::engine) fn of_slot(&self, slot: SlotIndex) -> Option<KeepIndex> {
        self.by_slot.get(slot.place()).copied().flatten()
    }
}

/// See the [module](self).
#[cfg_attr(feature = "sim", derive(Clone))]
pub(in crate::engine) struct Locks {
    pub(in crate::engine) settings: Settings,
    pub(in crate::engine) nodes: Nodes,
    pub(in crate::engine) slots: Slots,
    pub(in crate::engine) ops: Ops,
    pub(in crate::engine) done: VecDeque<Done>,
    pub(in crate::engine) timers: Timers,
    /// The engine's care for leases.
    pub(in crate::engine) keeps: Keeps,
    /// Operations that wait for nodes that still connect or greet.
    pub(in crate::engine) awaiting: Vec<OpIndex>,
    /// The commands that stand for several SETs.
    pub(in crate::engine) batches: Batches,
    /// The offers of waiting calls.
    pub(in crate::engine) offers: Offers,
    /// Locks that the client has left while a node may still run an extension of them, the oldest
    /// first.
    pub(in crate::engine) unsettled: VecDeque<Unsettled>,
    /// The nodes where a new process has answered. The client has forgotten its commands to the
    /// earlier process.
    pub(super) reborn: NodeMask,
    /// The nodes whose address may lead to an earlier process, which may still run commands that
    /// the client has forgotten.
    pub(super) led_back: NodeMask,
    /// The slots of locks that a caller named by key and token. A slot may stay in the list after
    /// another token has taken it.
    pub(in crate::engine) foreign: Vec<SlotIndex>,
    /// How long the nodes took to deny the last attempt that failed for denials.
    pub(in crate::engine) last_denial: Option<Duration>,
    /// The buffer for the message to a lock's next holder; the client reuses its memory.
    pub(in crate::engine) heir_text: Vec<u8>,
    /// The last reading of the wall clock that the caller handed in.
    pub(in crate::engine) wall: Option<WallClock>,
    /// For how many nanoseconds the owner was absent in all. The attended clock leaves this time
    /// out.
    absent: u64,
    /// When the owner last read the sockets.
    pub(in crate::engine) last_pass: Instant,
    /// When the engine was last called: its owner was present then.
    pub(in crate::engine) last_call: Instant,
    pub(in crate::engine) client_id: ClientId,
    /// The client's name at the nodes.
    pub(in crate::engine) own_name: Box<str>,
    /// Masks the slots that tokens name.
    pub(in crate::engine) slot_mask: u32,
    pub(in crate::engine) random: Generator,
    pub(in crate::engine) scratch: Vec<u8>,
    pub(super) set_options: SetOptions,
    pub(in crate::engine) prefix: Prefix,
    #[cfg(feature = "metrics")]
    pub(in crate::engine) counts: Counts,
    #[cfg(feature = "tracing")]
    pub(in crate::engine) traces: Traces,
}

impl Locks {
    /// The locks of a client over `nodes`; `random` has just drawn the client's id.
    pub(in crate::engine) fn new(
        settings: Settings,
        nodes: Nodes,
        prefix: Prefix,
        (in_flight_max, client_id, mut random): (usize, ClientId, Generator),
        own_name: Box<str>,
        now: Instant,
    ) -> Self {
        Self {
            settings,
            nodes,
            slots: Slots::default(),
            ops: Ops::new(in_flight_max),
            done: VecDeque::new(),
            timers: Timers::default(),
            keeps: Keeps::default(),
            awaiting: Vec::new(),
            batches: Batches::default(),
            offers: Offers::default(),
            unsettled: VecDeque::new(),
            reborn: NodeMask::EMPTY,
            led_back: NodeMask::EMPTY,
            foreign: Vec::new(),
            last_denial: None,
            heir_text: Vec::new(),
            wall: None,
            absent: 0,
            last_pass: now,
            last_call: now,
            client_id,
            own_name,
            slot_mask: random.bits(),
            random,
            scratch: Vec::new(),
            set_options: SetOptions::NONE,
            prefix,
            #[cfg(feature = "metrics")]
            counts: Counts::default(),
            #[cfg(feature = "tracing")]
            traces: Traces::default(),
        }
    }

    /// When something is due; ignores results that wait to be taken.
    pub(in crate::engine) fn next_due(&self) -> Option<Instant> {
        let absent = Duration::from_nanos(self.absent);
        let rounds = self.ops.first_judged().map(|(_, at)| at + absent);
        let next = self.timers.next().min(self.nodes.next_timeout(absent));
        let next = rounds.map_or(next, |at| next.min(at));
        (next < Instant::MAX).then_some(next)
    }

    /// `real`, and the same moment on the attended clock. Notes that the owner called the engine.
    #[inline]
    pub(in crate::engine) fn called_at(&mut self, real: Instant) -> Now {
        let gap = real.nanos_since(self.last_call);
        self.last_call = self.last_call.max(real);
        if gap > self.settings.node_timeout_nanos {
            self.note_absence(gap, real);
        }
        self.both_clocks(real)
    }

    /// As [`called_at`](Self::called_at), but notes no call.
    pub(in crate::engine) const fn both_clocks(&self, real: Instant) -> Now {
        Now { real, attended: real.minus_nanos(self.absent) }
    }

    /// The engine was not called for `gap`. If the call comes within a `node_timeout` of the time
    /// for which the engine asked, its owner was present. Otherwise all time beyond a
    /// `node_timeout` was the owner's absence, and the engine blames no node for it.
    #[cold]
    fn note_absence(&mut self, gap: u64, now: Instant) {
        let timeout = self.settings.node_timeout_nanos;
        if self.next_due().is_none_or(|due| now.nanos_since(due) > timeout) {
            self.absent = self.absent.saturating_add(gap.saturating_sub(timeout));
        }
    }

    /// A number from 0 to just below 1.
    pub(in crate::engine) fn random_share(&mut self) -> f64 {
        self.random.share()
    }

    pub(in crate::engine) fn checked_ttl(&self, ttl: Duration) -> Option<u32> {
        let settings = &self.settings;
        u32::try_from(ttl.as_millis())
            .ok()
            .filter(|&ttl| rules::is_ttl_allowed(ttl, settings.least_ttl_ms, settings.max_ttl_ms))
    }

    pub(in crate::engine) fn ttl_range(&self) -> (Duration, Duration) {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        (ms(self.settings.least_ttl_ms), ms(self.settings.max_ttl_ms))
    }

    /// The deadline of a lease of `ttl_ms` that counts from `t0`.
    #[inline]
    pub(in crate::engine) fn deadline_from(&self, t0: Instant, ttl_ms: u32) -> Instant {
        let drift = u32::try_from(self.settings.drift.of_ms(ttl_ms.into())).unwrap_or(u32::MAX);
        t0.plus_millis(ttl_ms.saturating_sub(rules::drift_ms(drift)))
    }

    /// The operation is decided; its result waits to be taken.
    pub(in crate::engine) fn finish(&mut self, index: OpIndex, outcome: Verdict) {
        self.ops.unlist(index);
        let op = self.ops.at_mut(index);
        debug_assert_eq!(op.outcome, Verdict::Open, "an operation ends once");
        op.outcome = outcome;
        self.done.push_back(Done::Op(index));
    }

    /// Begins the round of an operation at `now`.
    pub(super) fn begin_round(&mut self, index: OpIndex, now: Now) {
        self.ops.list(index, now.attended.plus_nanos(self.settings.node_timeout_nanos));
    }

    /// The operation is judged at `at` at the latest, outside of the ordinary rounds.
    pub(in crate::engine) fn judge_at(&mut self, index: OpIndex, at: Instant) {
        let op = self.ops.at_mut(index);
        op.judge_at = op.judge_at.min(at);
        let at = op.judge_at;
        self.set_timer(index, Timer::Judge, at);
    }

    /// Between attempts, and in a second round, a call is judged at its own end. The limit on a
    /// wait for nodes no longer applies.
    #[cold]
    pub(in crate::engine) fn end_with_call(&mut self, index: OpIndex) {
        let op = self.ops.at_mut(index);
        op.judge_at = Instant::MAX;
        let at = op.plan.deadline;
        if rules::has_end(at) {
            self.judge_at(index, at);
        } else {
            self.timers.remove(Timer::Judge(index));
        }
    }

    pub(in crate::engine) fn set_timer(
        &mut self,
        index: OpIndex,
        timer: impl FnOnce(OpIndex) -> Timer,
        at: Instant,
    ) {
        self.ops.at_mut(index).has_extras = true;
        self.timers.set(timer(index), at);
    }

    /// Gives the operation's place back, and ends its timers and its query.
    #[inline(always)]
    pub(in crate::engine) fn close_op(&mut self, index: OpIndex) {
        if self.ops.at(index).has_extras {
            self.close_extras(index);
        }
        self.ops.close(index);
    }

    #[cold]
    fn close_extras(&mut self, index: OpIndex) {
        self.timers.remove_all_of(index);
        let op = self.ops.at_mut(index);
        op.has_extras = false;
        op.query = None;
    }

    /// Writes the scratch buffer to one node.
    #[inline]
    pub(in crate::engine) fn write(&mut self, id: NodeId, request: Request, now: Now) -> bool {
        let is_written = self.nodes.request(id, request, &self.scratch, now.attended);
        if let Some(slot) = request.slot().filter(|_| is_written) {
            self.slots.at_mut(slot).refs += 1;
        }
        is_written
    }

    /// Writes the scratch buffer to those of `nodes` that are in the cohort and have room. Returns
    /// those nodes.
    #[inline]
    pub(in crate::engine) fn write_cohort(
        &mut self,
        nodes: NodeMask,
        request: Request,
        now: Now,
    ) -> NodeMask {
        let bytes = &mut self.scratch;
        let (written, count) = self.nodes.write_cohort(nodes, request, bytes, now.attended);
        if let Some(slot) = request.slot() {
            self.slots.at_mut(slot).refs += count;
        }
        written
    }

    /// Encodes the SET of a slot without a fence.
    #[inline]
    pub(super) fn encode_plain_set(&mut self, slot_index: SlotIndex) {
        let slot = self.slots.at(slot_index);
        self.scratch.clear();
        let (key, options) = (&slot.key, &mut self.set_options);
        append_set(&mut self.scratch, key, &slot.token, slot.ttl_ms, options);
    }

    /// A node answered with an error. Returns the form that the client sends instead.
    pub(super) fn next_step<F: Form>(
        &mut self,
        id: NodeId,
        form: F,
        answer: Answer,
        now: Now,
    ) -> Option<F> {
        match answer {
            Answer::Refused(Cause::OutOfMemory) if form.without_memory().is_some() => {
                form.without_memory()
            }
            Answer::Refused(Cause::Unsupported | Cause::NoPermission) => {
                // The node refused the form that spares memory. Next time the client sends the
                // usual form.
                let usual = self.nodes.form::<F>(id);
                if usual.is_some_and(|usual| usual < form && usual.without_memory().is_some()) {
                    return None;
                }
                self.nodes.leave(id, form, now.real)
            }
            Answer::Refused(cause) => {
                self.nodes.note_refusal(id, cause, now.real);
                None
            }
            Answer::Ok
            | Answer::Null
            | Answer::Zero
            | Answer::One
            | Answer::Number
            | Answer::Odd => None,
        }
    }

    /// The nodes' votes in the operation's round.
    pub(in crate::engine) fn ballot(
        &self,
        index: OpIndex,
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

    /// A ballot from the nodes that granted, that denied, and whose vote is unknown.
    pub(in crate::engine) fn ballot_of(
        &self,
        (granted, denied, unknown): (NodeMask, NodeMask, NodeMask),
        causes: [Cause; NODES_MAX],
        now: Instant,
    ) -> Ballot {
        Ballot {
            granted,
            denied,
            unknown,
            causes,
            names: Arc::clone(self.nodes.names()),
            listed: self.nodes.all(),
            quorum: self.settings.quorum,
            is_joint: self.settings.electorate.is_joint(),
            quarantine_ms: self.quarantine_ms(now),
            key: None,
        }
    }

    /// How long quarantines still keep a list short of its quorum. The result is 0 if none does, or
    /// if the end of all quarantines leaves a list short.
    fn quarantine_ms(&self, now: Instant) -> u32 {
        let waits = self.settings.electorate.lists().map(|list| self.quarantine_of(list, now));
        let wait = waits.max().flatten().filter(|&wait| wait < Duration::MAX);
        wait.map_or(0, |wait| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX).max(1))
    }

    /// How long until a quorum of the list may vote; `None` if it may now. [`Duration::MAX`] if the
    /// end of quarantines does not suffice.
    fn quarantine_of(&self, (list, quorum): (NodeMask, u32), now: Instant) -> Option<Duration> {
        let nodes = || list.into_iter().map(|id| self.nodes.at(id));
        let admitted = nodes().filter(|node| node.can_vote()).count();
        let mut waits = [Duration::MAX; NODES_MAX];
        for (wait, node) in waits.iter_mut().zip(nodes()) {
            *wait = node.quarantine(now).unwrap_or(Duration::MAX);
        }
        waits.sort_unstable();
        let missing = (quorum as usize).saturating_sub(admitted);
        missing.checked_sub(1).and_then(|last| waits.get(last).copied())
    }

    /// The client's id, the masked slot of the token, and 8 random bytes.
    pub(in crate::engine) fn draw_token(&mut self) -> [u8; 20] {
        let mut raw = [0; 20];
        let (words, _) = raw.as_chunks_mut::<4>();
        let client = self.client_id.bytes();
        let (id, _) = client.as_chunks::<4>();
        for (word, part) in words.iter_mut().zip(id) {
            *word = *part;
        }
        let slot = self.slots.next() ^ self.slot_mask;
        for (word, nth) in words.iter_mut().skip(id.len()).zip(0..) {
            let bits = if nth == 0 { slot } else { self.random.bits() };
            *word = bits.to_le_bytes();
        }
        raw
    }

    /// The slot that has, or had, this drawn token for the key.
    pub(in crate::engine) fn slot_with(&self, token: &[u8; 20], key: &[u8]) -> Option<SlotIndex> {
        let slot_index = self.slot_of_token(token)?;
        let slot = self.slots.get(slot_index)?;
        let is_same = slot.token == TokenBytes::Drawn(*token) && slot.key.as_slice() == key;
        is_same.then_some(slot_index)
    }

    /// The slot that a drawn token names.
    pub(in crate::engine) fn slot_of_token(&self, token: &[u8; 20]) -> Option<SlotIndex> {
        let named = token.last_chunk::<12>().and_then(|rest| rest.first_chunk::<4>())?;
        SlotIndex::at((u32::from_le_bytes(*named) ^ self.slot_mask) as usize)
    }

    /// The slot of a lock that this client has, may get, or is releasing.
    pub(super) fn slot_in_hand(&self, key: &[u8], token: &TokenBytes) -> Option<SlotIndex> {
        let drawn = match token {
            TokenBytes::Drawn(token) => self.slot_with(token, key),
            TokenBytes::Given(_) => None,
        };
        let is_it = |slot: &Slot| {
            slot.state().is_in_hand() && slot.token == *token && slot.key.as_slice() == key
        };
        let mut slots = drawn.into_iter().chain(self.foreign.iter().copied());
        slots.find(|&index| self.slots.get(index).is_some_and(is_it))
    }

    /// A slot for a key and token from elsewhere: any node may hold the key.
    pub(in crate::engine) fn open_foreign(&mut self, key: &[u8], token: TokenBytes) -> SlotIndex {
        let ttl_ms = self.settings.max_ttl_ms;
        let all = self.nodes.all();
        let slot_index = self.slots.open(key, token, TokenInput::Name);
        let slot = self.slots.at_mut(slot_index);
        slot.holds = all;
        slot.ttl_ms = ttl_ms;
        slot.ttl_longest_ms = ttl_ms;
        slot.ends = Instant::MAX;
        let slots = &self.slots;
        self.foreign.retain(|&it| it != slot_index && slots.at(it).state().is_in_hand());
        self.foreign.push(slot_index);
        slot_index
    }
}

pub(in crate::engine) fn third(ttl_ms: u32) -> Duration {
    Duration::from_millis(ttl_ms.into()) / 3
}

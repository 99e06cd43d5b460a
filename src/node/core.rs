//! The parts of a node, and questions about them.

use std::time::Duration;

use bytes::BytesMut;

use super::admission::{AdmissionRules, History};
use super::channel::Channel;
use super::debt::Debts;
use super::greeting::{Facts, Login};
use super::pending::{Pending, PendingQueue, Request};
use super::reading::Reading;
use super::state::{Connection, NodeState, Now, Room, State, Timeouts};
use super::trouble::{Backoff, Trouble};
use crate::command::Dialect;
#[cfg(feature = "metrics")]
use crate::count::NodeCounts;
use crate::error::Cause;
use crate::guards::FailoverGuard;
use crate::resp::{Decoder, Limits};
use crate::rules;
use crate::slab::SlotIndex;
use crate::time::{Instant, WallClock};

/// The process that answers at a node's address, compared with the last one there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessChange {
    /// The same, or the node does not tell.
    Same,
    /// It surely began after the last answer of the one before.
    New,
    /// It may have been there all the time.
    Other,
}

/// One master, over all its connections.
#[derive(Clone)]
pub(crate) struct Node {
    pub(super) login: Login,
    pub(super) timeouts: Timeouts,
    pub(super) state: State,
    /// Cleared once the engine has noted the change.
    pub(crate) is_changed: bool,
    /// Admitted, and without trouble.
    pub(super) is_plain: bool,
    pub(crate) trouble: Trouble,
    pub(crate) wish: Option<Connection>,
    /// Why the node does not vote, or why the last connection ended.
    pub(super) cause: Cause,
    /// Whether a wait for the node is useless: the last attempt to connect has ended. False again
    /// after the loss of a healthy connection.
    pub(crate) is_settled: bool,
    pub(super) backoff: Backoff,

    pub(super) pending: PendingQueue,
    pub(super) output: BytesMut,
    /// The bytes of a frame that is not yet complete.
    pub(super) input: BytesMut,
    pub(super) decoder: Decoder,
    /// Set while answers are overdue: when the client noticed that, on the attended clock.
    pub(super) stalled_at: Option<Instant>,

    pub(super) reading: Reading,
    pub(super) channel: Channel,
    /// Whether the last greeting was in RESP3.
    pub(super) resp3: bool,
    /// The user had no right to any release step: the next greeting must prove that the user has
    /// such a right.
    pub(super) is_unproven: bool,
    /// Connected, and the node has not sent anything yet.
    pub(crate) is_mute: bool,
    /// The connection is made and waits for its TLS handshake.
    pub(crate) is_securing: bool,
    pub(super) history: History,
    #[cfg(feature = "metrics")]
    pub(crate) counts: NodeCounts,
    /// When the client looks again whether an admitted node that may fail over has done so.
    pub(super) look_at: Option<Instant>,
    pub(super) greeted_at: Instant,
    /// The node's last reading of its clock, on this connection.
    pub(crate) clock: Option<WallClock>,
    /// Round trip of the last greeting.
    pub(crate) round_trip: Option<Duration>,
    pub(crate) dialect: Dialect,
    pub(crate) debts: Debts,
    pub(super) room: Room,
}

impl Node {
    pub(crate) fn new(login: Login, timeouts: Timeouts, now: Instant) -> Self {
        let room = Room::default();
        Self {
            login,
            timeouts,
            state: State::Disconnected { retry_at: now },
            is_changed: true,
            is_plain: false,
            trouble: Trouble::default(),
            wish: None,
            cause: Cause::NotConnected,
            is_settled: false,
            backoff: Backoff::default(),
            pending: PendingQueue::default(),
            output: BytesMut::new(),
            input: BytesMut::new(),
            decoder: Decoder::new(Limits::default()),
            stalled_at: None,
            reading: Reading::default(),
            channel: Channel::default(),
            resp3: true,
            is_unproven: false,
            is_mute: false,
            is_securing: false,
            history: History::default(),
            #[cfg(feature = "metrics")]
            counts: NodeCounts::default(),
            look_at: None,
            greeted_at: now,
            clock: None,
            round_trip: None,
            dialect: Dialect { release: None, extend: None, sets_several: false },
            debts: Debts::new(room.debts),
            room,
        }
    }

    /// Changes the state. Nothing else writes it.
    pub(super) const fn enter(&mut self, state: State) {
        self.state = state;
        self.is_plain = self.is_admitted() && self.trouble.is_none();
        self.look_at = None;
        self.is_changed = true;
    }

    /// The node loses its vote, if it has one.
    pub(super) fn end_admission(&mut self, now: Instant) {
        if let State::Admitted { since } = self.state {
            self.backoff.admission_ended(since, now);
        }
    }

    /// The state of the conversation, as people see it. `left` is the time until a quarantine ends.
    pub(crate) const fn shown(&self, left: Duration) -> NodeState {
        match self.state {
            State::Disconnected { .. } => NodeState::Disconnected,
            State::Connecting { .. } => NodeState::Connecting,
            State::Greeting { .. } => NodeState::Greeting,
            State::Admitted { .. } if self.is_stalled() => NodeState::Stalled,
            State::Admitted { .. } => NodeState::Admitted,
            State::Quarantined { .. } => NodeState::Quarantined(left),
            State::Refused { .. } => NodeState::Refused,
        }
    }

    /// When the client greets the node again, or connects to it again.
    pub(crate) const fn until(&self) -> Option<Instant> {
        match self.state {
            State::Disconnected { retry_at } | State::Refused { retry_at, .. } => Some(retry_at),
            State::Quarantined { until } => Some(until),
            State::Connecting { .. } | State::Greeting { .. } | State::Admitted { .. } => None,
        }
    }

    /// Compares the process that the last greeting met with the process `before`, whose last answer
    /// came at `last_answer`.
    pub(crate) fn process(&self, before: Option<&str>, last_answer: Instant) -> ProcessChange {
        if before.is_none() || self.identity().is_none() || before == self.identity() {
            return ProcessChange::Same;
        }
        // The process told this age at `seen_at` or later.
        let silence = self.reading.seen_at.saturating_since(last_answer);
        let is_younger = |age| rules::began_since(age, silence);
        let is_young = self.reading.facts.uptime_s.is_some_and(is_younger);
        if rules::is_new_process(is_young, self.history.is_back()) {
            ProcessChange::New
        } else {
            ProcessChange::Other
        }
    }

    /// When the node last sent anything; `None` if it never did.
    pub(crate) fn last_answer(&self) -> Option<Instant> {
        Some(self.history.last_answer).filter(|at| *at > Instant::default())
    }

    /// Whether time, or any answer, can change the node's debts, its state or its trouble. Usually
    /// neither can: the node is admitted, without trouble or debts, not stalled, and has no replica
    /// to fail over to.
    pub(crate) fn is_restless(&self) -> bool {
        !self.is_plain()
            || self.debts.len() > 0
            || self.is_stalled()
            || self.channel.again_at.is_some()
            || self.look_at.is_some()
    }

    /// When the node counts as stalled if it has not answered by then. A node that owes nothing is
    /// taken to owe an answer from `now` on.
    pub(crate) fn stalls_at(&self, now: Now) -> Instant {
        let oldest = self.pending.front().filter(|_| self.stalled_at.is_none());
        oldest.map_or(now.attended, |front| front.written_at) + self.timeouts.stalled_after
    }

    pub(crate) const fn state(&self) -> State {
        self.state
    }

    pub(crate) const fn facts(&self) -> &Facts {
        &self.reading.facts
    }

    pub(crate) fn identity(&self) -> Option<&str> {
        self.history.identity()
    }

    /// Whether the client has met this process at the node's address. The history may lack the
    /// process of a refused node.
    pub(crate) fn has_met(&self, identity: &str) -> bool {
        self.history.has_met(identity) || self.facts().identity().as_deref() == Some(identity)
    }

    /// Whether the node's grants count.
    #[inline]
    pub(crate) const fn is_admitted(&self) -> bool {
        matches!(self.state, State::Admitted { .. })
    }

    /// Whether the node's grants count, and tell nothing new about it.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Whether a SET may go to the node.
    pub(crate) fn can_vote(&self) -> bool {
        self.is_admitted() && self.stalled_at.is_none() && rules::may_get_set(self.debts.is_owing())
    }

    /// Whether the node may become able to vote within a connect timeout, without repair by a
    /// person.
    pub(crate) fn is_on_the_way(&self) -> bool {
        match self.state {
            State::Connecting { .. } | State::Greeting { .. } => true,
            State::Disconnected { .. } => !self.is_settled,
            State::Admitted { .. } | State::Quarantined { .. } | State::Refused { .. } => false,
        }
    }

    /// Whether compare-and-deletes and compare-and-extends reach the client's keys. In another
    /// database they would reach other keys.
    pub(crate) const fn is_greeted(&self) -> bool {
        match self.state {
            State::Admitted { .. } | State::Quarantined { .. } => true,
            State::Refused { .. } => !self.reading.facts.is_elsewhere,
            State::Disconnected { .. } | State::Connecting { .. } | State::Greeting { .. } => false,
        }
    }

    /// Whether a connection is open.
    pub(crate) const fn is_connected(&self) -> bool {
        matches!(self.state, State::Greeting { .. } | State::Refused { .. }) || self.is_greeted()
    }

    /// Whether the node is likely to answer a request soon.
    pub(crate) const fn can_be_asked(&self) -> bool {
        self.is_greeted() && !self.is_stalled()
    }

    pub(crate) const fn is_stalled(&self) -> bool {
        self.stalled_at.is_some()
    }

    /// Why a SET cannot go to the node now.
    pub(crate) fn cause(&self) -> Cause {
        match self.state {
            State::Admitted { .. } if self.is_stalled() => Cause::Stalled,
            State::Admitted { .. } => Cause::Backlog,
            State::Quarantined { .. } => Cause::Quarantined,
            State::Refused { cause, .. } => cause,
            State::Connecting { .. } | State::Greeting { .. }
                if matches!(self.cause, Cause::None | Cause::NotConnected) =>
            {
                Cause::Connecting
            }
            State::Disconnected { .. } | State::Connecting { .. } | State::Greeting { .. } => {
                self.cause
            }
        }
    }

    /// The answers that the client awaits.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter()
    }

    /// How many releases the client has written and the node has not answered.
    pub(crate) fn releases_unanswered(&self) -> usize {
        let is_release = |request| {
            matches!(request, Request::Release { .. } | Request::Debt { .. } | Request::Transfer(_))
        };
        self.pending().filter(|pending| is_release(pending.request)).count()
    }

    /// How many releases the client owes or has unanswered, for keys that may still live at `now`.
    pub(crate) fn releases_owed(&self, now: Instant) -> usize {
        self.releases_unanswered() + self.debts.living(now)
    }

    /// Asks the owner to close the socket, after [`handle_lost`](Self::handle_lost).
    pub(crate) const fn close(&mut self) {
        self.wish = Some(Connection::Close);
        self.is_changed = true;
    }

    /// Whether another server may be in this node's place, and that matters. Until the node has said in
    /// a greeting which server it is, and whether it has replicas, the client assumes so.
    pub(crate) fn may_be_another(&self, rules: &AdmissionRules) -> bool {
        let facts = self.facts();
        let is_hidden = || {
            facts.identity().is_none()
                || facts.replicas.is_none() && rules.failover_guard == FailoverGuard::On
        };
        rules::may_be_another(!self.serves() && is_hidden()) || rules.minds_failover(facts)
    }

    /// Whether the client has greeted the node on this connection, and the node may vote now or
    /// later.
    pub(crate) const fn serves(&self) -> bool {
        matches!(self.state, State::Admitted { .. } | State::Quarantined { .. })
    }

    /// Whether nothing is due, at the cost of a few comparisons.
    #[inline]
    pub(crate) fn is_quiet(&self, now: Now) -> bool {
        self.is_admitted()
            && !self.is_changed
            && self.debts.len() == 0
            && self.channel.again_at.is_none()
            && self.look_at.is_none()
            && self.pending.front().is_none_or(|front| {
                self.is_stalled() || front.written_at + self.timeouts.stalled_after > now.attended
            })
    }

    /// How long until the node may be admitted, if only a quarantine prevents it.
    pub(crate) fn quarantine(&self, now: Instant) -> Option<Duration> {
        if let State::Quarantined { until } = self.state { Some(now.until(until)) } else { None }
    }

    /// The client connects to the node no more. The connection has ended. Returns the slots of the
    /// releases that the client owes the node.
    pub(crate) fn give_up(&mut self) -> Vec<SlotIndex> {
        self.enter(State::Disconnected { retry_at: Instant::MAX });
        self.is_settled = true;
        std::iter::from_fn(|| self.debts.pop_any()).map(|debt| debt.slot).collect()
    }

    /// Whether the client connects to the node no more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.state == (State::Disconnected { retry_at: Instant::MAX })
    }

    /// The client needs the node again.
    pub(crate) fn take_back(&mut self, now: Instant) {
        if self.is_given_up() {
            self.is_settled = false;
            self.enter(State::Disconnected { retry_at: now });
        }
    }

    // ---- the wall clock of the node; only fences depend on it ----

    /// The number of the answer that the client has just read.
    pub(crate) const fn number(&self) -> u64 {
        self.reading.number
    }

    /// The client has asked for the node's time.
    pub(crate) fn asked_time(&mut self, now: Instant) {
        self.reading.times.push_back(now);
    }

    /// When the client asked the question that the node has just answered.
    pub(crate) fn take_time_asked(&mut self) -> Instant {
        self.reading.times.pop_front().unwrap_or_default()
    }

    /// The node told its time. The answer may have waited unread, so the error includes any time in
    /// which the client stood still.
    pub(crate) const fn told_time(&mut self, micros: u64, asked_at: Instant, now: Instant) {
        let error = now.nanos_since(asked_at) / 1_000;
        self.clock = Some(WallClock { read_at: now, micros, error });
    }
}

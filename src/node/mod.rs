//! One node's conversation: connecting, greeting, voting; requests out, answers in, in order.
//!
//! Layer: above `command` and `resp`, below `engine`. It knows one connection and no lock: a
//! request carries the number of its slot, and the answer goes back with that number.
//!
//! # Contract
//!
//! - The owner passes events in (`handle_*`, `next_answer`) and reads what to do from
//!   [`Node::wish`], [`Node::output`] and [`Node::next_timeout`].
//! - The node guesses nothing: malformed bytes, or an answer without a pending request, end the
//!   connection. It hands all pending requests back as lost.
//!
//! # Invariants
//!
//! - [`Room`] bounds output, awaited answers and debts, whatever the node does.
//! - Two clocks: `now` always runs, `attended` only while the owner reads the sockets. The client
//!   blames a node only by the second.

mod admission;
mod backoff;
mod channel;
mod clock;
mod debt;
mod greeting;
mod outbound;
mod pending;
mod reading;
mod receiving;
mod standing;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod trouble;

use std::time::Duration;

use bytes::BytesMut;

pub(crate) use admission::AdmissionRules;
pub(crate) use channel::{ChannelName, TransfersName};
pub(crate) use debt::{Debt, Debts, REFUSED_DELAY};
pub(crate) use greeting::{Facts, Login};
pub(crate) use outbound::Room;
pub(crate) use pending::{Pending, Phase, Request, WaitPart};
pub(crate) use state::{Answered, Now, Shown, State, Step, Timeouts, Wish};

use admission::History;
use backoff::Backoff;
use channel::Channel;
use pending::PendingQueue;
use reading::Reading;
use trouble::Trouble;

use crate::command::Dialect;
#[cfg(feature = "metrics")]
use crate::count::NodeCounts;
use crate::error::Cause;
use crate::resp::{Decoder, Limits};
use crate::rules;
use crate::time::{Instant, WallClock};

/// One master, over all its connections.
pub(crate) struct Node {
    login: Login,
    timeouts: Timeouts,
    state: State,
    is_changed: bool,
    /// Admitted, and without trouble.
    is_plain: bool,
    trouble: Trouble,
    wish: Wish,
    /// Why the node does not vote, or why the last connection ended.
    cause: Cause,
    /// Whether any connection attempt has ended, in success or failure.
    pub(crate) is_settled: bool,
    backoff: Backoff,

    pending: PendingQueue,
    output: BytesMut,
    /// The bytes of a frame that is not yet complete.
    input: BytesMut,
    decoder: Decoder,
    /// Set while answers are overdue: when the client noticed that, on the attended clock.
    stalled_at: Option<Instant>,

    reading: Reading,
    channel: Channel,
    /// Whether the last greeting was in RESP3.
    resp3: bool,
    /// The user had no right to release in any way: the next greeting must prove that it has one.
    is_unproven: bool,
    /// Connected, and the node has not sent anything yet.
    is_mute: bool,
    /// The connection is made and waits for its TLS handshake.
    is_securing: bool,
    history: History,
    #[cfg(feature = "metrics")]
    pub(crate) counts: NodeCounts,
    greeted_at: Instant,
    /// The node's last reading of its clock.
    clock: Option<WallClock>,
    /// Round trip of the last greeting.
    pub(crate) round_trip: Option<Duration>,
    pub(crate) dialect: Dialect,
    pub(crate) debts: Debts,
    room: Room,
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
            wish: Wish::Nothing,
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
            greeted_at: now,
            clock: None,
            round_trip: None,
            dialect: Dialect { release: None, extend: None },
            debts: Debts::new(room.debts),
            room,
        }
    }

    /// The only writer of the state.
    const fn enter(&mut self, state: State) {
        self.state = state;
        self.is_plain = self.is_admitted() && self.trouble.is_none();
        self.is_changed = true;
    }

    /// Marks the changes as seen.
    pub(crate) const fn changes_noted(&mut self) {
        self.is_changed = false;
    }

    /// The state of the conversation, as people see it.
    pub(crate) const fn shown(&self) -> Shown {
        match self.state {
            State::Disconnected { .. } => Shown::Disconnected,
            State::Connecting { .. } => Shown::Connecting,
            State::Greeting { .. } => Shown::Greeting,
            State::Admitted { .. } if self.is_stalled() => Shown::Stalled,
            State::Admitted { .. } => Shown::Admitted,
            State::Quarantined { .. } => Shown::Quarantined,
            State::Refused { .. } => Shown::Refused,
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

    /// When the node last sent anything; `None` if it never did.
    pub(crate) fn last_answer(&self) -> Option<Instant> {
        Some(self.history.last_answer).filter(|at| *at > Instant::default())
    }

    /// Whether time, or any answer, can change the node's debts, its state or its trouble. Usually
    /// neither can: the node is admitted, without trouble or debts, and not stalled.
    pub(crate) fn is_restless(&self) -> bool {
        !self.is_plain()
            || self.debts.len() > 0
            || self.is_stalled()
            || self.channel.again_at().is_some()
    }

    /// When the node counts as stalled if it still owes its present answers then. `now` stands for
    /// the latest answer that it can owe.
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

    pub(crate) const fn has_wish(&self) -> bool {
        !matches!(self.wish, Wish::Nothing)
    }

    pub(crate) const fn take_wish(&mut self) -> Wish {
        std::mem::replace(&mut self.wish, Wish::Nothing)
    }

    /// Whether the node's grants count.
    #[inline]
    pub(crate) const fn is_admitted(&self) -> bool {
        matches!(self.state, State::Admitted { .. })
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

    /// Whether compare-and-deletes and compare-and-extends reach the node.
    pub(crate) const fn is_greeted(&self) -> bool {
        matches!(
            self.state,
            State::Admitted { .. } | State::Quarantined { .. } | State::Refused { .. }
        )
    }

    /// Whether a connection is open.
    pub(crate) const fn is_connected(&self) -> bool {
        matches!(self.state, State::Greeting { .. }) || self.is_greeted()
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

    /// Asks the owner to close the socket, after [`handle_lost`](Self::handle_lost).
    pub(crate) const fn close(&mut self) {
        self.wish = Wish::Close;
        self.is_changed = true;
    }

    // ---- connection ----

    /// The socket is open, and the TLS handshake is under way.
    #[cfg(feature = "tls")]
    pub(crate) const fn handle_securing(&mut self) {
        self.is_securing = true;
    }

    /// Whether the client has greeted the node on this connection, and the node may vote now or
    /// later.
    pub(crate) const fn serves(&self) -> bool {
        matches!(self.state, State::Admitted { .. } | State::Quarantined { .. })
    }

    /// Whether the node is connected and has not sent anything yet.
    pub(crate) const fn is_mute(&self) -> bool {
        self.is_mute
    }

    /// The node has sent something.
    pub(crate) const fn speaks(&mut self) {
        self.is_mute = false;
    }

    /// The socket is open: the client greets the node.
    pub(crate) fn handle_connected(&mut self, now: Now) {
        self.is_mute = true;
        self.is_securing = false;
        self.reading.facts = Facts::default();
        let login = self.login.clone();
        self.greet(&login, true, now);
    }

    /// The connection, or the attempt at one, has ended. Returns all pending requests; the owner
    /// must treat them as lost.
    pub(crate) fn handle_lost(&mut self, cause: Cause, random: u32, now: Instant) -> PendingQueue {
        if let State::Admitted { since } = self.state {
            self.backoff.admission_ended(since, now);
        }
        // The fault in a greeting's answer tells more than the closing that followed.
        let greeting_fault = match self.state {
            State::Greeting { .. } => self.reading.facts.fault,
            State::Refused { cause, .. } => Some(cause),
            State::Disconnected { .. }
            | State::Connecting { .. }
            | State::Admitted { .. }
            | State::Quarantined { .. } => None,
        };
        self.cause = greeting_fault.unwrap_or(cause);
        self.is_mute = false;
        self.is_securing = false;
        if let Some(fault) = greeting_fault.or_else(|| cause.is_about_tls().then_some(cause)) {
            self.note_trouble(fault, now);
        }
        // After a healthy connection ends, the client reconnects at once. Until that fails, the
        // node counts as on its way.
        let was_healthy = matches!(self.state, State::Admitted { .. } | State::Quarantined { .. });
        let delay = self.backoff.next(random);
        self.is_settled = !was_healthy || delay > Duration::ZERO;
        self.enter(State::Disconnected { retry_at: now + delay });
        self.wish = Wish::Nothing;
        self.output.clear();
        self.input.clear();
        self.decoder = Decoder::new(Limits::default());
        self.stalled_at = None;
        self.reading.greeting_open = 0;
        self.reading.no_master = None;
        self.channel.close();
        std::mem::take(&mut self.pending)
    }

    /// Whether nothing is due: the common case, at the cost of a few comparisons.
    #[inline]
    pub(crate) fn is_quiet(&self, now: Now) -> bool {
        matches!(self.state, State::Admitted { .. })
            && !self.is_changed
            && self.debts.len() == 0
            && self.channel.again_at().is_none()
            && self.pending.front().is_none_or(|front| {
                self.is_stalled() || front.written_at + self.timeouts.stalled_after > now.attended
            })
    }

    /// Does what is due. Returns the cause if the connection must be closed.
    pub(crate) fn handle_timeout(&mut self, now: Now) -> Option<Cause> {
        match self.state {
            State::Disconnected { retry_at } => {
                if retry_at <= now.real {
                    self.enter(State::Connecting { since: now.attended });
                    self.wish = Wish::Connect;
                }
            }
            State::Connecting { since } | State::Greeting { since } => {
                if since + self.timeouts.connect_timeout <= now.attended {
                    let is_securing = self.is_securing;
                    return Some(if is_securing {
                        Cause::TlsTimeout
                    } else {
                        Cause::ConnectTimeout
                    });
                }
            }
            State::Quarantined { until } => {
                if until <= now.real {
                    // The facts of the last greeting are old. The login stands, and is not
                    // repeated: servers leave a failed AUTH unanswered while earlier replies wait.
                    self.reading.facts = Facts { is_again: true, ..Facts::default() };
                    self.greet(&Login::default(), self.resp3, now);
                }
            }
            State::Refused { cause, retry_at } => {
                if retry_at <= now.real {
                    return Some(cause);
                }
            }
            State::Admitted { .. } => {}
        }
        self.subscribe_again(now);
        if self.stalled_at.is_none()
            && let Some(front) = self.pending.front()
            && front.written_at + self.timeouts.stalled_after <= now.attended
        {
            self.stalled_at = Some(now.attended);
            self.is_changed = true;
        }
        None
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do. `absent` is how far the
    /// attended clock is behind.
    pub(crate) fn next_timeout(&self, absent: Duration) -> Option<Instant> {
        let state = match self.state {
            State::Disconnected { retry_at } | State::Refused { retry_at, .. } => Some(retry_at),
            State::Connecting { since } | State::Greeting { since } => {
                Some(since + self.timeouts.connect_timeout + absent)
            }
            State::Quarantined { until } => Some(until),
            State::Admitted { .. } => None,
        };
        let stalled = match (self.stalled_at, self.pending.front()) {
            (None, Some(front)) => Some(front.written_at + self.timeouts.stalled_after + absent),
            _ => None,
        };
        // A debt that cannot be paid now waits for something other than time.
        let debt = if self.takes_debts() { self.debts.next_due() } else { None };
        let again = self.channel.again_at().filter(|_| self.is_greeted());
        [state, stalled, debt, again].into_iter().flatten().min()
    }

    /// How long until the node may be admitted, if only a quarantine prevents it.
    pub(crate) fn quarantine(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Quarantined { until } => Some(now.until(until)),
            State::Disconnected { .. }
            | State::Connecting { .. }
            | State::Greeting { .. }
            | State::Admitted { .. }
            | State::Refused { .. } => None,
        }
    }
}

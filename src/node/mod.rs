//! The conversation with one node: connecting, greeting, voting; requests out, answers in, in
//! order.
//!
//! Layer: above `command` and `resp`, below `engine`. It knows one connection and no lock: a
//! request carries the number of its slot, and the answer goes back with that number.
//!
//! # Contract
//!
//! - The owner passes events in (`handle_*`, `next_step`) and learns its next work from
//!   `wish`, [`Node::output`] and [`Node::next_timeout`].
//! - The node guesses nothing: malformed bytes, or an answer without a pending request, end the
//!   connection. It hands all pending requests back as lost.
//!
//! # Invariants
//!
//! - [`Room`] bounds output, awaited answers and debts, whatever the node does.
//! - Two clocks: `real` always runs, `attended` only while the owner reads the sockets. The client
//!   blames a node only by `attended`.

mod admission;
mod channel;
mod core;
mod debt;
#[cfg(test)]
pub(crate) mod failing_over;
mod greeting;
mod pending;
mod reading;
mod standing;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod trouble;
mod wire;

use std::time::Duration;

pub(crate) use self::core::{Node, ProcessChange};
pub(crate) use admission::{AdmissionRules, OLD_MASTER_GRANTS_MS};
pub(crate) use channel::{ChannelName, TransfersName};
pub(crate) use debt::{Debt, DebtDue, REFUSED_DELAY};
pub(crate) use greeting::{Facts, Login};
pub(crate) use pending::{Pending, Phase, Request, WaitPart};
pub use state::Connection;
pub use state::NodeState;
#[cfg(any(test, feature = "sim"))]
pub(crate) use state::Room;
pub(crate) use state::{Now, State, Step, Timeouts};

use pending::PendingQueue;

use crate::error::Cause;
use crate::resp::{Decoder, Limits};
use crate::time::Instant;

impl Node {
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
        self.end_admission(now);
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
        let was_healthy = self.serves();
        let delay = self.backoff.next(random);
        self.is_settled = !was_healthy || delay > Duration::ZERO;
        self.enter(State::Disconnected { retry_at: now + delay });
        self.wish = None;
        self.output.clear();
        self.input.clear();
        self.decoder = Decoder::new(Limits::default());
        self.stalled_at = None;
        self.reading.greeting_open = 0;
        self.reading.no_master = None;
        self.reading.looks.clear();
        self.reading.times.clear();
        self.channel.close();
        std::mem::take(&mut self.pending)
    }

    /// Does the work that is due. Returns the cause if the owner must close the connection.
    pub(crate) fn handle_timeout(&mut self, now: Now) -> Option<Cause> {
        match self.state {
            State::Disconnected { retry_at } => {
                if retry_at <= now.real {
                    self.enter(State::Connecting { since: now.attended });
                    self.wish = Some(Connection::Open);
                }
            }
            State::Connecting { since } | State::Greeting { since } => {
                if since + self.timeouts.connect_timeout <= now.attended {
                    return Some(if self.is_securing {
                        Cause::TlsTimeout
                    } else {
                        Cause::ConnectTimeout
                    });
                }
            }
            State::Quarantined { until } => {
                if until <= now.real {
                    // The facts of the last greeting are old. A server may leave a failed AUTH
                    // unanswered while earlier replies wait, so the client does not log in again.
                    self.reading.facts = Facts { is_again: true, ..Facts::default() };
                    self.greet(&Login::default(), self.resp3, now);
                }
            }
            State::Refused { cause, retry_at } => {
                if retry_at <= now.real {
                    return Some(cause);
                }
            }
            State::Admitted { .. } => self.look_again(now),
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

    /// When [`handle_timeout`](Self::handle_timeout) has something to do, or [`Instant::MAX`].
    /// `absent` is how far the attended clock is behind.
    pub(crate) fn next_timeout(&self, absent: Duration) -> Instant {
        let mut next = match self.state {
            State::Disconnected { retry_at } | State::Refused { retry_at, .. } => retry_at,
            State::Connecting { since } | State::Greeting { since } => {
                since + self.timeouts.connect_timeout + absent
            }
            State::Quarantined { until } => until,
            State::Admitted { .. } => self.look_at.unwrap_or(Instant::MAX),
        };
        if self.stalled_at.is_none()
            && let Some(front) = self.pending.front()
        {
            next = next.min(front.written_at + self.timeouts.stalled_after + absent);
        }
        // A debt that cannot be paid now waits for something other than time.
        if let Some(due) = self.debts.next_due()
            && self.takes_debts()
        {
            next = next.min(due);
        }
        match self.channel.again_at {
            Some(at) if self.is_greeted() => next.min(at),
            Some(_) | None => next,
        }
    }
}

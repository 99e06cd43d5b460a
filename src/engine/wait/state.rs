//! The states of a call that waits, what it knows of the holder, and its times.

use std::time::Duration;

use super::message::RawToken;
use super::outside::{Actions, View};
use crate::time::Instant;

/// The safety poll comes after this, and up to as long again.
const POLL: Duration = Duration::from_millis(100);

/// The time to the safety poll, at the least, where a request takes `trip` to be answered.
pub(in crate::engine) fn safety_poll(trip: Duration) -> Duration {
    POLL.max(trip * POLL_TRIPS)
}

/// When a call that queued behind another call makes its first poll. Two calls that wait for each
/// other find out this way. Each call ahead adds [`POLL_A_TURN`].
pub(super) const FIRST_POLL: Duration = Duration::from_millis(10);
pub(super) const POLL_A_TURN: Duration = Duration::from_millis(2);

/// The same in round trips, where these take longer than the times above: a message under way must
/// have had the time to come.
const POLL_TRIPS: u32 = 16;
pub(super) const FIRST_POLL_TRIPS: u32 = 4;
pub(super) const POLL_A_TURN_TRIPS: u32 = 2;

/// If a poll comes this long after a call last told its holder of its offer, the call tells the
/// holder again. The list goes from holder to holder, and may be lost. A holder that has not heard
/// of the call for 500 ms wakes it instead.
const RENEW_MIN: Duration = Duration::from_millis(100);
pub(super) const RENEW_MAX: Duration = Duration::from_millis(250);
const RENEW_TRIPS: u32 = 8;

/// How long a call waits until it renews its offer, where a request takes `trip` to be answered.
pub(super) fn renew_after(trip: Duration) -> Duration {
    (trip * RENEW_TRIPS).clamp(RENEW_MIN, RENEW_MAX)
}

/// How often a poll that finds the key gone looks again. A lock for which waiters are woken is gone
/// half of the time.
pub(super) const LOOKS: u8 = 3;
/// The pause before each look, and up to as long again.
pub(super) const NEXT_LOOK: Duration = Duration::from_millis(1);

/// A call that no holder knows of polls each node no more often than this.
pub(super) const NODE_PACE: Duration = Duration::from_millis(300);

/// From the fourth attempt in a row on, a call first pauses this long, up to five times as long.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
pub(super) const TRIES_IN_ROW: u32 = 3;

/// Where a round trip is long, the call pauses for at least this part of it. In step with a holder
/// that reacquires again and again, the call would come too late each time.
pub(super) const PAUSE_PARTS: u32 = 4;

/// After a change of holder a waiter turns to all nodes again, at most this often before it is
/// still or tries again.
pub(super) const CHANGES_MAX: u8 = 4;

/// A call that got the turn this often, and found the same token each time, no longer tells the
/// client of that token. One turn may come before the release is on all nodes.
pub(super) const TURNS_IN_VAIN: u8 = 2;

/// How many tokens a call remembers of clients that gave it its turn.
pub(super) const TURNED_MAX: usize = 4;

/// The state of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitState {
    /// An attempt is under way, or won.
    Trying,
    /// An attempt is about to be made.
    Pausing,
    /// A part of the nodes has handed the lock over.
    Receiving,
    /// The call's plan makes the next attempt.
    Failed,
    /// An answer is awaited.
    Asking(Question),
    /// The call waits until it is woken or a timer is due.
    Still,
}

/// A question that a call has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// A node, for the holder and the key's TTL; the node tells the holder of the call.
    Introduction,
    /// The call that has its turn first, with this many before that call.
    Place { ahead: u32 },
    /// A node, for the holder's token.
    Poll,
}

/// The fate of the introduction that went out with a first attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Early {
    #[default]
    None,
    /// The answer is awaited.
    Asked,
    /// The holder was told.
    Heard,
}

/// The facts that a call knows about the holder of the key.
#[derive(Clone, Debug)]
pub(super) struct KnownHolder {
    /// The token, if a Redbolt client drew it.
    pub(super) token: Option<RawToken>,
    /// When the key's TTL ends, if known.
    pub(super) ends: Instant,
    /// A client received the call's announcement.
    pub(super) is_heard: bool,
    /// The call is, or soon will be, on the list of waiters that goes with the lock.
    pub(super) is_listed: bool,
    /// How many looks in a row found the key gone.
    pub(super) gone: u8,
    /// How often another holder was seen since the last attempt, or since the call was still.
    pub(super) changes: u8,
}

impl KnownHolder {
    pub(super) const UNKNOWN: Self = Self {
        token: None,
        ends: Instant::MAX,
        is_heard: false,
        is_listed: false,
        gone: 0,
        changes: 0,
    };
}

/// The parts that an input may use besides the waiter itself.
pub(super) struct Scene<'a, 'b> {
    pub(super) view: &'a mut View<'b>,
    pub(super) actions: &'a mut Actions,
    /// How many questions all calls have asked so far.
    pub(super) questions: &'a mut u32,
    pub(super) node_timeout: Duration,
}

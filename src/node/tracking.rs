//! Tracking of keys that this client holds, or waits for: the server tells at once when somebody else
//! changes, deletes or evicts one.
//!
//! # Invariants
//!
//! - It is asked for once a connection, after HELLO answered `proto 3`: over RESP2 no push would
//!   ever come.
//! - A key is tracked from a read on, which stands behind each own change: that drops the tracking
//!   of the key, without a push.

use super::Node;
use super::pending::Request;
use crate::command::{Answer, append_pttl};
use crate::key::Key;
use crate::resp::encode::append_command;
use crate::resp::{Items, Reply};
use crate::time::Instant;

/// How far it is on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Tracking {
    #[default]
    None,
    Asked,
    On,
    /// The server does not have it, or denies it to this user.
    Denied,
}

impl Node {
    /// Asks to be told of the next change of `key`, behind what was written last, and with it for
    /// how long the key is there: that answer is awaited as said. False where that cannot be.
    pub(crate) fn track(&mut self, key: &Key, request: Request, attended: Instant) -> bool {
        let is_able = self.reading.facts.resp3
            && self.is_greeted()
            && !self.is_stalled()
            && self.tracking != Tracking::Denied;
        if !is_able || !self.has_room(TRACK_LEN + key.len(), self.room.output_len) {
            return false;
        }
        let mut bytes = Vec::with_capacity(TRACK_LEN + key.len());
        if self.tracking == Tracking::None {
            self.tracking = Tracking::Asked;
            append_command(&mut bytes, &[b"CLIENT", b"TRACKING", b"ON", b"OPTIN", b"NOLOOP"]);
            self.append(Request::Tracking, &bytes, attended);
            bytes.clear();
        }
        append_command(&mut bytes, &[b"CLIENT", b"CACHING", b"YES"]);
        append_pttl(&mut bytes, key);
        self.append(Request::Tracking, &bytes, attended);
        self.append(request, &[], attended);
        true
    }

    /// Part of what tracking needs was answered.
    pub(crate) fn tracking_answered(&mut self, answer: Answer) {
        self.tracking = match (self.tracking, answer) {
            (Tracking::Asked | Tracking::On, Answer::Ok) => Tracking::On,
            (Tracking::None, _) => Tracking::None,
            (Tracking::Asked | Tracking::On | Tracking::Denied, _) => Tracking::Denied,
        };
    }

    /// Whether it tells of keys that change, or would where somebody asks for it.
    pub(crate) fn can_track(&self) -> bool {
        self.reading.facts.resp3 && self.is_greeted() && self.tracking != Tracking::Denied
    }

    /// Whether pushes tell of keys on this connection.
    pub(crate) fn is_tracking(&self) -> bool {
        self.tracking == Tracking::On && self.is_greeted()
    }
}

/// What is written beside the key, at most.
const TRACK_LEN: usize = 192;

/// Whether a push says that keys have changed.
pub(super) fn is_invalidation(push: &Items<'_>) -> bool {
    push.clone().next().and_then(|item| item.text()) == Some(b"invalidate")
}

/// The keys that a push says have changed; `None` for all there are.
pub(crate) fn changed_keys<'a>(push: &Items<'a>) -> Option<Items<'a>> {
    if let Some(Reply::Array(keys)) = push.clone().nth(1) { Some(keys) } else { None }
}

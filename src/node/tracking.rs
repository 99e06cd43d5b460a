//! Tracking of keys that this client holds or waits for: the server tells at once when another
//! client changes or deletes one, or when it evicts one.
//!
//! # Invariants
//!
//! - The client turns it on once per connection, after HELLO answered `proto 3`: over RESP2 no push
//!   would ever come.
//! - A read starts the tracking of a key. One stands behind each change by this client, because its
//!   own change ends the tracking without a push.

use super::Node;
use super::pending::Request;
use crate::command::{Answer, append_pttl};
use crate::error::Cause;
use crate::key::Key;
use crate::resp::encode::append_command;
use crate::resp::{Items, Reply};
use crate::time::Instant;

/// The state of tracking on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Tracking {
    #[default]
    None,
    Asked,
    On,
    /// The server does not support tracking, or denies it to this user.
    Denied,
}

impl Node {
    /// Tracks the next change of `key`, behind what was written last, and asks for its TTL: that
    /// answer is awaited as `request`. Returns false where the node cannot track.
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

    /// Takes the answer to a part of what tracking needs.
    pub(crate) fn tracking_answered(&mut self, answer: Answer) {
        self.tracking = match (self.tracking, answer) {
            (Tracking::Asked | Tracking::On, Answer::Ok) => Tracking::On,
            (Tracking::None, _) | (_, Answer::Refused(Cause::Busy | Cause::Loading)) => {
                Tracking::None
            }
            (Tracking::Asked | Tracking::On | Tracking::Denied, _) => Tracking::Denied,
        };
    }

    /// Whether the node tells of changed keys, or would if asked.
    pub(crate) fn can_track(&self) -> bool {
        self.reading.facts.resp3 && self.is_greeted() && self.tracking != Tracking::Denied
    }

    /// Whether pushes tell of keys on this connection.
    pub(crate) fn is_tracking(&self) -> bool {
        self.tracking == Tracking::On && self.is_greeted()
    }
}

/// The most bytes that are written beside the key.
const TRACK_LEN: usize = 192;

/// Whether a push says that keys have changed.
pub(super) fn is_invalidation(push: &Items<'_>) -> bool {
    push.clone().next().and_then(|item| item.text()) == Some(b"invalidate")
}

/// The changed keys that a push names; `None` for all keys.
pub(crate) fn changed_keys<'a>(push: &Items<'a>) -> Option<Items<'a>> {
    if let Some(Reply::Array(keys)) = push.clone().nth(1) { Some(keys) } else { None }
}

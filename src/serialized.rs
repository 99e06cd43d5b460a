//! What `serde` makes of the values that programs log or put into an answer.
//!
//! Layer: above all. One form for each, with the names of `redbolt status --json` and its like: words in
//! snake case, units behind an underscore, `null` for what is not known.
//!
//! # Invariants
//!
//! - No token is in any of it: who reads a log could unlock.

use std::time::{Duration, SystemTime};

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::error::{
    Ballot, Cause, ConnectError, ExtendError, LockError, UnlockError, Unlocked, Vote,
};
use crate::inspect::{
    Agreement, ClientId, Clients, Holder, KeyState, Listing, NodeHealth, NodeId, NodeKey, NodeMask,
    NodePermissions, NodeReport, NodeState, Notice, Searched, SeenClient, SeenLock, Unlisted,
    Verdict, shown,
};

/// A value as an object with these fields; those behind a `?` are left out where they are `None`.
macro_rules! object {
    ($type:ty as $it:ident {
        $($name:ident: $value:expr,)*
        $(? $rare:ident: $option:expr,)*
    }) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let $it = self;
                let count = [$(stringify!($name)),*].len() $(+ usize::from($option.is_some()))*;
                let mut object = to.serialize_struct(stringify!($type), count)?;
                $(object.serialize_field(stringify!($name), &$value)?;)*
                $(match &$option {
                    Some(value) => object.serialize_field(stringify!($rare), value)?,
                    None => object.skip_field(stringify!($rare))?,
                })*
                object.end()
            }
        }
    };
}

/// A value as a word.
macro_rules! word {
    ($($type:ty as $it:ident: $word:expr;)*) => {
        $(impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let $it = self;
                to.serialize_str($word)
            }
        })*
    };
}

word! {
    Cause as it: it.name();
    NodeState as it: it.name();
    Verdict as it: it.name();
    Unlocked as it: match it {
        Self::Released => "released",
        Self::Unknown => "unknown",
    };
    Unlisted as it: match it {
        Self::TooLong => "too_many_connections",
        Self::Refused(cause) => cause.name(),
    };
}

impl Serialize for ClientId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// A node's place in the configuration.
impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.index().serialize(to)
    }
}

/// The places of the nodes.
impl Serialize for NodeMask {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(*self)
    }
}

object! { NodeHealth as it {
    node: it.name,
    state: it.state,
    votes: it.votes,
    cause: known(it.cause),
    message: known(it.cause).map(Cause::text),
    since_ms: ms(it.since),
    until_ms: it.until.map(ms),
    server: it.server,
    role: it.role,
    run_id: it.run_id,
    uptime_s: it.uptime.map(|uptime| uptime.as_secs()),
    eviction: it.maxmemory_policy,
    append_only: it.append_only,
    resp3: it.resp3,
    info_denied: it.info_denied,
    dialect: it.dialect,
    direct_wake: it.direct_wake,
    round_trip_us: it.round_trip.map(us),
    silence_ms: it.silence.map(ms),
    unanswered: it.unanswered,
    debts: it.debts,
    debts_dropped: it.debts_dropped,
}}

object! { NodeKey as it {
    node: it.node,
    state: match it.state {
        KeyState::Free => "free",
        KeyState::Held { .. } => "held",
        KeyState::Error(_) => "error",
    },
    ttl_ms: if let KeyState::Held { ttl, .. } = it.state { ttl.map(ms) } else { None },
    cause: silence(it),
    message: silence(it).map(Cause::text),
    waits_ms: it.waits.map(ms),
}}

/// Why what the node says does not count.
fn silence(node: &NodeKey) -> Option<Cause> {
    known(if let KeyState::Error(cause) = node.state { cause } else { node.doubt })
}

object! { SeenLock as it {
    key: shown(&it.key),
    verdict: it.verdict,
    holder: it.holder,
    nodes: it.nodes,
}}

object! { Holder as it {
    client: it.client,
    host: it.host,
    pid: it.pid,
    program: it.program,
    address: it.address,
    held_ms: it.held_for.map(ms),
    waiters: it.waiters,
    votes: it.votes,
    ends_ms: it.ends_in.map(ms),
    ? since_ms: it.since.and_then(since_1970_ms),
}}

object! { Listing as it {
    locks: it.locks,
    is_whole: it.is_whole,
    nodes: it.nodes,
}}

object! { Searched as it {
    node: it.node,
    cause: known(it.cause),
    message: known(it.cause).map(Cause::text),
}}

object! { SeenClient as it {
    client: it.client,
    host: it.host,
    pid: it.pid,
    program: it.program,
    address: it.address,
    settings: it.agreement,
}}

object! { Agreement as it {
    nodes: it.nodes,
    quorum: it.quorum,
    max_ttl_ms: ms(it.max_ttl),
    restart_guard: it.restart_guard,
    prefix: it.prefix,
}}

object! { Clients as it {
    settings: it.own,
    others: it.others,
    unlisted: unlisted(it).collect::<Vec<_>>(),
}}

fn unlisted(clients: &Clients) -> impl Iterator<Item = NotListed<'_>> {
    clients.nodes.iter().filter_map(|(node, cause)| Some(NotListed { node, cause: (*cause)? }))
}

/// A node that has not listed its clients.
struct NotListed<'a> {
    node: &'a str,
    cause: Unlisted,
}

object! { NotListed<'_> as it {
    node: it.node,
    cause: it.cause,
}}

object! { NodePermissions as it {
    node: it.node,
    refused: it.refused.iter().map(|&(command, cause)| Refusal { command, cause }).collect::<Vec<_>>(),
    cause: known(it.cause),
    message: known(it.cause).map(Cause::text),
}}

/// A command that a node refuses.
struct Refusal {
    command: &'static str,
    cause: Cause,
}

object! { Refusal as it {
    command: it.command,
    cause: it.cause,
    message: it.cause.text(),
}}

object! { NodeReport as it {
    health: it.health,
    info: Pairs(&it.info),
    append_fsync: it.append_fsync,
    fsync_pauses: it.fsync_pauses,
    time_us: it.time_us,
    round_trip_us: it.round_trip.map(us),
    cause: known(it.cause),
    message: known(it.cause).map(Cause::text),
}}

/// Names and values as one object.
struct Pairs<'a>(&'a [(String, String)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

object! { Notice as it {
    node: it.name(),
    cause: known(it.cause),
    message: known(it.cause).map(Cause::text),
}}

/// What each node said, in the order of the configuration.
impl Serialize for Ballot {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Votes { ballot: Some(self), denied: HELD }.serialize(to)
    }
}

/// Why a node said no: a word, and the same for people.
type Denied = (&'static str, &'static str);

/// Why a node does not grant a lock.
const HELD: Denied = (Cause::Held.name(), Cause::Held.text());

/// Why a node does not extend a lock.
const GONE: Denied = ("gone", "not there with this token");

/// A ballot if there was one, and why a node of it says no.
#[derive(Clone, Copy)]
struct Votes<'a> {
    ballot: Option<&'a Ballot>,
    denied: Denied,
}

impl Serialize for Votes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.ballot.into_iter().flat_map(Ballot::votes).map(|(node, vote)| {
            let of = |cause: Cause| (cause.name(), cause.text());
            let (vote, (cause, message)) = match vote {
                Vote::Granted => ("granted", of(Cause::None)),
                Vote::Denied => ("denied", self.denied),
                Vote::Failed(cause) => ("failed", of(cause)),
                Vote::Unknown(cause) => ("unknown", of(cause)),
            };
            NodeVote { node, vote, cause, message }
        }))
    }
}

/// One node's part in an attempt.
struct NodeVote<'a> {
    node: &'a str,
    vote: &'static str,
    cause: &'static str,
    message: &'static str,
}

object! { NodeVote<'_> as it {
    node: it.node,
    vote: it.vote,
    cause: it.cause,
    message: it.message,
}}

/// An error as an object: a word for its kind, what people read, and each node's part if any was asked.
macro_rules! errors {
    ($($type:ty, $denied:expr, $parts:expr;)*) => {
        $(object! { $type as it {
            error: $parts(it).0,
            message: it.to_string(),
            nodes: Votes { ballot: $parts(it).1, denied: $denied },
        }})*
    };
}

errors! {
    LockError, HELD, of_lock;
    ExtendError, GONE, of_extend;
    UnlockError, GONE, of_unlock;
    ConnectError, HELD, of_connect;
}

/// The kind of an error as a word, and the ballot if there was one.
type Parts<'a> = (&'static str, Option<&'a Ballot>);

const fn of_lock(error: &LockError) -> Parts<'_> {
    match error {
        LockError::Taken(ballot) => ("taken", Some(ballot)),
        LockError::NoQuorum(ballot) => ("no_quorum", Some(ballot)),
        LockError::Expired(ballot) => ("expired", Some(ballot)),
        LockError::Lost => ("lost", None),
        LockError::Cancelled => ("cancelled", None),
        LockError::InvalidTtl { .. } => ("invalid_ttl", None),
        LockError::NoFences { .. } => ("no_fences", None),
        LockError::NoLinger { .. } => ("no_linger", None),
        LockError::ReservedKey => ("reserved_key", None),
        LockError::InvalidKey { .. } => ("invalid_key", None),
        LockError::Full => ("full", None),
        LockError::Closed => ("closed", None),
        LockError::System(_) => ("system", None),
    }
}

const fn of_extend(error: &ExtendError) -> Parts<'_> {
    match error {
        ExtendError::Lost(ballot) => ("lost", Some(ballot)),
        ExtendError::NoQuorum(ballot) => ("no_quorum", Some(ballot)),
        ExtendError::Expired => ("expired", None),
        ExtendError::LimitReached => ("limit_reached", None),
        ExtendError::Busy => ("busy", None),
        ExtendError::NotOurs => ("not_ours", None),
        ExtendError::Cancelled => ("cancelled", None),
        ExtendError::InvalidTtl { .. } => ("invalid_ttl", None),
        ExtendError::InvalidName => ("invalid_name", None),
        ExtendError::Full => ("full", None),
        ExtendError::Closed => ("closed", None),
        ExtendError::System(_) => ("system", None),
    }
}

const fn of_unlock(error: &UnlockError) -> Parts<'_> {
    match error {
        UnlockError::NotHeld => ("not_held", None),
        UnlockError::NotOurs => ("not_ours", None),
        UnlockError::InvalidName => ("invalid_name", None),
        UnlockError::Full => ("full", None),
        UnlockError::Closed => ("closed", None),
        UnlockError::System(_) => ("system", None),
    }
}

const fn of_connect(error: &ConnectError) -> Parts<'_> {
    match error {
        ConnectError::Config(_) => ("config", None),
        ConnectError::System(_) => ("system", None),
        ConnectError::NoQuorum(ballot) => ("no_quorum", Some(ballot)),
    }
}

#[cfg(feature = "metrics")]
mod counts {
    use super::*;
    use crate::engine::{LeaseCounts, Series};

    object! { LeaseCounts as it {
        first: it.first,
        transfer: it.transfer,
        wake: it.wake,
        poll: it.poll,
        again: it.again,
    }}

    object! { Series as it {
        name: it.name,
        node: it.node,
        labels: Labels(it),
    }}

    /// The labels as one object.
    struct Labels<'a>(&'a Series);

    impl Serialize for Labels<'_> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.collect_map(self.0.labels())
        }
    }
}

/// `None` where there is nothing to report.
fn known(cause: Cause) -> Option<Cause> {
    (cause != Cause::None).then_some(cause)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// On the wall clock of who said it.
fn since_1970_ms(time: SystemTime) -> Option<u64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(ms)
}

//! The errors, one type per operation. Each variant says what the caller holds now and what it can
//! do.
//!
//! Layer: bottom, plain values. No message holds a token, a password, or text that a server sent.

mod ballot;
mod cause;

use std::io;
use std::time::Duration;

use thiserror::Error;

pub use ballot::{Ballot, Vote};
pub use cause::Cause;

/// A configuration that cannot work. Nothing was opened: correct it and try again.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The list of nodes is empty.
    #[error("no nodes given: name at least one, as redis://host:port")]
    NoNodes,
    /// The list has more nodes than a client can have.
    #[error("{nodes} nodes given: at most 32 are allowed")]
    TooManyNodes {
        /// How many were given.
        nodes: usize,
    },
    /// A list names a node twice, or the two lists name it with different databases or encryption.
    #[error(
        "node {node} is named twice, or with different databases or encryption in the two lists"
    )]
    DuplicateNode {
        /// The node.
        node: String,
    },
    /// The present lists of nodes and those that are to follow have no list in common. Their clients
    /// would not exclude each other.
    #[error(
        "neither of the present lists of nodes stays: first give the old list as nodes and the new one as next nodes"
    )]
    NoCommonList,
    /// An entry is not an address.
    #[error("node address {address:?}: {why}")]
    Address {
        /// The entry without its login.
        address: String,
        /// The fault of the entry, in words.
        why: &'static str,
    },
    /// With this quorum two holders need not share a node, or no attempt can reach it.
    #[error(
        "quorum {wanted} of {nodes} nodes: it must be from {} (more than half) to {nodes} (all)",
        nodes / 2 + 1
    )]
    Quorum {
        /// The votes asked for.
        wanted: usize,
        /// The nodes there are.
        nodes: usize,
    },
    /// A duration is out of its range.
    #[error("{setting} is {value:?}: it must be from {least:?} to {most:?}")]
    OutOfRange {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        value: Duration,
        /// The least value allowed.
        least: Duration,
        /// The greatest value allowed.
        most: Duration,
    },
    /// A setting has a value that cannot be used.
    #[error("{setting} must be {must}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// What it may be, in words.
        must: &'static str,
    },
    /// A certificate or key given for TLS cannot be used.
    #[error("TLS {role}: {why}")]
    Tls {
        /// Which of them: CA certificate, client certificate, client key, server name.
        role: &'static str,
        /// The fault of the setting, in words.
        why: &'static str,
    },
    /// TLS is configured, but every node is named with a plain scheme.
    #[error("TLS is configured, but no node uses it: write rediss:// or host:port")]
    TlsUnused,
    /// The token range given to a driver is smaller than its nodes need.
    #[error("the range of mio tokens has {given} values: {needed} are needed")]
    TokenRange {
        /// How many values it has.
        given: usize,
        /// How many are needed: one per node and one for name resolution.
        needed: usize,
    },
}

/// Why a call got no lock. The caller holds nothing, and the client is already deleting every key
/// that the attempt may have written.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// Other clients hold the key on so many nodes that no quorum was left. Try again later.
    #[error("the lock is taken: {0}")]
    Taken(Ballot),
    /// Too few nodes could vote or answered in time. Try again; if that does not help, look at the
    /// nodes.
    #[error("no quorum: {0}")]
    NoQuorum(Ballot),
    /// A quorum granted, but too late: when the call could return, the lease had less time left
    /// than the call asked for. Use a longer TTL.
    #[error("a quorum granted, but not for long enough: {0}")]
    Expired(Ballot),
    /// The lease ended before the work under the lock did.
    #[error("the lease ended before the work did")]
    Lost,
    /// The operation was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The TTL leaves no validity, or is longer than `max_ttl`.
    #[error(
        "the TTL is {ttl:?}: it must be whole milliseconds from {least:?} to max_ttl ({most:?})"
    )]
    InvalidTtl {
        /// The TTL asked for.
        ttl: Duration,
        /// The shortest TTL with any validity.
        least: Duration,
        /// The configured `max_ttl`.
        most: Duration,
    },
    /// The configuration allows no fences.
    #[error("no lock can be fenced: {why}")]
    NoFences {
        /// The reason, in words.
        why: &'static str,
    },
    /// The lock cannot linger ([`LockOptions::linger`](crate::LockOptions::linger)).
    #[error("no lock can linger: {why}")]
    NoLinger {
        /// The reason, in words.
        why: &'static str,
    },
    /// With its prefix, the key ends in `:fence`, `:elected`, `:slot`, or `:slot:` and a number. Such
    /// keys belong to other locks: they are the counters of their fences, the names of their
    /// leaders, and their [slots](crate::LockOptions::slots). A key that begins with
    /// `redbolt:since:` is the marker of a node.
    #[error(
        "a key that ends, with its prefix, in :fence, :elected, :slot or :slot:N belongs to another lock, and a key redbolt:since:* to a node"
    )]
    ReservedKey,
    /// The key is empty, or longer than 4,096 bytes with the configured prefix.
    #[error("the key has {len} bytes with its prefix and suffix: 1 to 4096 are allowed")]
    InvalidKey {
        /// Its length with prefix and suffix; zero for an empty key.
        len: usize,
    },
    /// These keys, or so many slots, cannot be locked together.
    #[error("these keys or slots cannot be locked: {why}")]
    InvalidKeys {
        /// The reason, in words.
        why: &'static str,
    },
    /// `in_flight_max` operations are under way. Take their completions first.
    #[error("too many operations under way (in_flight_max)")]
    Full,
    /// The client or the driver was shut down, or the client's thread has ended. The call holds
    /// nothing.
    #[error("the client was shut down")]
    Closed,
}

/// Why a call for several keys can have no slots.
pub(crate) const ONLY_ONE_HAS_SLOTS: &str = "only a single key has slots";

/// Why no lock can linger where nobody is woken.
pub(crate) const UNHEARD: &str =
    "direct_wake is off, so the client would not hear whether others wait";
pub(crate) const NO_CLIENT: &str = "only a Client keeps a lock for its next caller, not a Driver";
pub(crate) const NOT_PASSED_ON: &str =
    "its fence, or the name of its leader, belongs to one holder";
pub(crate) const SEVERAL_KEYS: &str = "neither keys that are locked together nor slots linger";
pub(crate) const HAS_LIMITS: &str =
    "max_extensions or max_hold is set, and the next holder would get what is left of it";

/// Why a lease was not extended. The client deleted nothing. The lease goes on until its deadline,
/// unless the variant says that it is lost, over or not this client's.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// So many nodes no longer have the key that no quorum holds it. Stop the work.
    #[error("the lock is lost: {0}")]
    Lost(Ballot),
    /// Too few nodes extended in time. The deadline is the earlier of the old and the new one; try
    /// again until then.
    #[error("no quorum for the extension: {0}")]
    NoQuorum(Ballot),
    /// The lease had already ended, or ended before the client knew of the extension. Stop the
    /// work.
    #[error("the lease is over")]
    Expired,
    /// The lease has been extended as often, or held as long, as `max_extensions` and `max_hold`
    /// allow. It goes on until its deadline.
    #[error("the lease may not be extended any further (max_extensions, max_hold)")]
    LimitReached,
    /// Another extension of this lease is under way. For an adoption: this client already has the
    /// lock, or a node may still run this client's delete of it.
    #[error(
        "this client is extending or releasing the lock, or already has the lock that it is to adopt"
    )]
    Busy,
    /// The lease was released or given away, or another client made it.
    #[error("not a lease of this client")]
    NotOurs,
    /// The operation was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The TTL leaves no validity, or is longer than `max_ttl`.
    #[error(
        "the TTL is {ttl:?}: it must be whole milliseconds from {least:?} to max_ttl ({most:?})"
    )]
    InvalidTtl {
        /// The TTL asked for.
        ttl: Duration,
        /// The shortest TTL with any validity.
        least: Duration,
        /// The configured `max_ttl`.
        most: Duration,
    },
    /// Key or token given to take a lease over has an impossible length.
    #[error("key or token has an impossible length")]
    InvalidName,
    /// `in_flight_max` operations are under way. Take their completions first.
    #[error("too many operations under way (in_flight_max)")]
    Full,
    /// The client or the driver was shut down, or the client's thread has ended. The lease goes on
    /// until its deadline.
    #[error("the client was shut down")]
    Closed,
}

/// Why an unlock released nothing, or could not be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnlockError {
    /// So many nodes no longer have the key that the lock was over before the call. The work took
    /// longer than the lease, or another client deleted the key. Another holder may have been at
    /// work at the same time.
    #[error("the lock was over before it was unlocked")]
    NotHeld,
    /// Another client made the lease, or it was released or given away.
    #[error("not a lease of this client")]
    NotOurs,
    /// Key or token has an impossible length.
    #[error("key or token has an impossible length")]
    InvalidName,
    /// `in_flight_max` operations are under way; the release goes on without a result.
    #[error("too many operations under way (in_flight_max)")]
    Full,
    /// The client was shut down, or its thread has ended. The TTL ends the key, unless the
    /// release was sent before.
    #[error("the client was shut down")]
    Closed,
}

/// Why a lease was not given away. The caller still holds it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DetachError {
    /// An earlier delete or extension of the lock may still run on these nodes. Another client may
    /// have adopted the lock by then, and the command would hit that client's key. If a node only
    /// owes an answer, try again after a round trip. If a connection was lost with the command
    /// unanswered, release the lock and take it again.
    #[error("{nodes}: an earlier delete or extension of this lock may still run there")]
    Unsettled {
        /// The names of the nodes.
        nodes: String,
    },
    /// The lease was released or given away, or another client made it.
    #[error("not a lease of this client")]
    NotOurs,
    /// Too many calls are under way (`in_flight_max`).
    #[error("too many operations under way (in_flight_max)")]
    Full,
    /// The client was shut down, or its thread has ended.
    #[error("the client was shut down")]
    Closed,
}

/// How an unlock ended that did not find the lock lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unlocked {
    /// A quorum deleted the key, or the client passed the lock to a waiter. A lock that
    /// [lingers](crate::LockOptions::linger) also counts as released, though the nodes still hold
    /// its key.
    Released,
    /// Too few nodes answered to know. The client sends the other releases when those nodes come
    /// back; else the keys end with their TTL. From now on no client may adopt the token: a release
    /// that comes late would end its lease.
    Unknown,
}

/// Why a client could not be made, or cannot lock yet.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The operating system refused a call that the event loop needs.
    #[error("the operating system refused a call of the event loop: {0}")]
    System(#[from] io::Error),
    /// Too few nodes may vote, for these causes.
    #[error("no quorum of nodes: {0}")]
    NoQuorum(Ballot),
}

impl LockError {
    /// Whether another client holds the lock: nothing is wrong, that client does the work. Leave it
    /// to that client, or wait with `lock`.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        matches!(self, Self::Taken(_))
    }

    /// Whether the same call may win later without any change by the caller: try again after some
    /// time. The other errors are not transient. The caller must correct an invalid argument, and
    /// somebody ended a cancelled or closed call on purpose. After [`Lost`](Self::Lost), part of
    /// the work may be done.
    ///
    /// A missing quorum is transient: nodes come back. The ballot, and a
    /// [notice](crate::Client::notices), name a node that a person must repair.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Taken(_) | Self::NoQuorum(_) | Self::Expired(_) | Self::Full)
    }

    /// The votes of the nodes, if nodes were asked.
    #[must_use]
    pub const fn ballot(&self) -> Option<&Ballot> {
        if let Self::Taken(votes) | Self::NoQuorum(votes) | Self::Expired(votes) = self {
            Some(votes)
        } else {
            None
        }
    }
}

impl ExtendError {
    /// The votes of the nodes, if nodes were asked.
    #[must_use]
    pub const fn ballot(&self) -> Option<&Ballot> {
        if let Self::Lost(votes) | Self::NoQuorum(votes) = self { Some(votes) } else { None }
    }
}

impl ConnectError {
    /// The answers of the nodes, if they were asked.
    #[must_use]
    pub const fn ballot(&self) -> Option<&Ballot> {
        if let Self::NoQuorum(votes) = self { Some(votes) } else { None }
    }
}

//! Which nodes may vote, of those that may have lost locks or that the client cannot check.
//!
//! Layer: bottom, plain values.

/// Whether a node that lost its memory may vote before every lock that it may have lost has
/// expired.
///
/// Source: "Distributed Locks with Redis", on delayed restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RestartGuard {
    /// A restarted node's votes do not count until it has run for `max_ttl` plus the drift. A node
    /// that may fail over waits 13 s longer ([`FailoverGuard`]).
    #[default]
    On,
    /// Votes count at once, but with the failover guard on, a master that may fail over never
    /// votes. Safe only where every node keeps its keys across any restart (`appendonly yes` and
    /// `appendfsync always`).
    Off,
}

/// Whether a master that may fail over must itself cease to grant locks when it is cut off from its
/// replicas.
///
/// After a failover the old master may go on serving the clients that are connected to it. It
/// ceases by itself only if its `min-replicas-to-write` is at least the number of its replicas. If
/// `min-replicas-max-lag` is at most 10, it ceases within 13 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FailoverGuard {
    /// A node that has or had replicas, or was a replica, votes only if it would cease. After a
    /// failover, or a restart, it does not vote for `max_ttl` and 13 s, with the drift of both.
    #[default]
    On,
    /// Such a node votes as any other. **Two holders are possible** after a failover, unless the old
    /// master has surely ended before. Safe where no replica is ever promoted.
    Off,
}

/// How the client treats a node that denies INFO (by an ACL), so that the client cannot check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Admission {
    /// The node does not vote.
    #[default]
    Strict,
    /// The node votes. The client cannot check its eviction policy, cannot tell a duplicate node,
    /// and does not see a restart before its first connection.
    Lenient,
}

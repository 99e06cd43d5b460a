//! The data that the doctor judges: each node as it was found, and the setup of the clients.

use std::time::Duration;

use redbolt::Cause;
use redbolt::inspect::{NodeMask, NodeState};

/// The commands that release a lock. One of them is enough.
pub(crate) const RELEASING: [&str; 3] = ["DELIFEQ", "DELEX", "EVAL"];

/// Those of them that only newer servers know.
const NATIVE: [&str; 2] = ["DELIFEQ", "DELEX"];

/// One node as the doctor found it.
#[derive(Clone, Debug)]
pub(crate) struct Examined {
    pub(crate) name: String,
    pub(crate) state: NodeState,
    pub(crate) cause: Cause,
    pub(crate) is_reachable: bool,
    pub(crate) server: Option<String>,
    pub(crate) role: Option<String>,
    pub(crate) append_only: Option<bool>,
    pub(crate) append_fsync: Option<String>,
    pub(crate) fsync_pauses: Option<bool>,
    /// The part that the node failed to save at the last write of the append-only file, or at the
    /// last snapshot.
    pub(crate) failed_save: Option<&'static str>,
    pub(crate) snapshots: bool,
    pub(crate) policy: Option<String>,
    pub(crate) maxmemory: Option<u64>,
    pub(crate) used_memory: Option<u64>,
    pub(crate) evicted: u64,
    pub(crate) replicas: u64,
    /// It has replicas, or its replication backlog shows that it had replicas or a master.
    pub(crate) fails_over: bool,
    pub(crate) was_replica: bool,
    pub(crate) uptime: Option<Duration>,
    pub(crate) info_denied: bool,
    /// Whether releases can wake waiters through the node.
    pub(crate) direct_wake: bool,
    pub(crate) resp3: bool,
    pub(crate) dialect: Option<String>,
    /// Commands that the node refuses, and why.
    pub(crate) refused: Vec<(&'static str, Cause)>,
    /// Whether the client logged in to it with a user or a password.
    pub(crate) has_login: bool,
    /// Whether only this machine reaches it by its address.
    pub(crate) is_local: bool,
    pub(crate) round_trip: Option<Duration>,
    /// How far its wall clock is ahead of this machine's, in microseconds.
    pub(crate) clock_us: Option<i64>,
}

/// The setup of the clients of the locks, as far as the options tell it.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    /// The nodes of each list, and how many of their votes a lock needs.
    pub(crate) lists: Vec<(NodeMask, usize)>,
    pub(crate) guard_is_on: bool,
    pub(crate) failover_guard_is_on: bool,
    pub(crate) max_ttl: Duration,
    pub(crate) max_clock_skew: Duration,
    /// Whether the user named a lock whose key the node must permit.
    pub(crate) has_key: bool,
}

impl Examined {
    /// Whether the node let the doctor in and told what it is.
    pub(crate) const fn was_asked(&self) -> bool {
        self.is_reachable && self.server.is_some()
    }

    /// Whether the user may not run a command, or the server hides it.
    pub(crate) fn is_denied(&self, command: &str) -> bool {
        let refusal = self.refusal(command);
        let is_hidden = refusal == Some(Cause::Unsupported) && !NATIVE.contains(&command);
        is_hidden || refusal == Some(Cause::NoPermission)
    }

    /// Why the node does not run a command.
    pub(crate) fn refusal(&self, command: &str) -> Option<Cause> {
        self.refused.iter().find(|(name, _)| *name == command).map(|(_, cause)| *cause)
    }

    /// Whether it can grant a lock now; with `has_key` the lock that the user named.
    pub(crate) fn can_vote(&self, has_key: bool) -> bool {
        let cause = self.refusal("SET");
        // Other keys than the one that was asked for may be permitted.
        let may_take = cause.is_none_or(|cause| cause == Cause::KeyDenied && !has_key);
        self.state == NodeState::Admitted && may_take && self.can_release()
    }

    /// Whether the user may run a command that releases a lock.
    pub(crate) fn can_release(&self) -> bool {
        let is_refused = |command: &&str| {
            let refusal = self.refusal(command);
            matches!(refusal, Some(Cause::NoPermission | Cause::Unsupported))
        };
        !RELEASING.iter().all(is_refused)
    }

    /// How the node may forget locks in a restart; `None` if it keeps every write.
    pub(crate) fn may_forget(&self) -> Option<&'static str> {
        match (self.append_only, self.append_fsync.as_deref()) {
            (None, _) => Some("does not say whether it keeps an append-only file (grant +info)"),
            (Some(false), _) => Some("keeps no append-only file (appendonly no)"),
            (Some(true), None) => {
                Some("does not say when its append-only file is on disk (grant +config|get)")
            }
            (Some(true), Some("always")) if self.fsync_pauses == Some(true) => Some(
                "answers before writes are on disk while it rewrites its append-only file \
                 (no-appendfsync-on-rewrite yes)",
            ),
            (Some(true), Some("always")) => None,
            (Some(true), Some("everysec")) => {
                Some("has its append-only file on disk only once per second (appendfsync everysec)")
            }
            (Some(true), Some(_)) => Some(
                "leaves it to the kernel when its append-only file is on disk (appendfsync no)",
            ),
        }
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    pub(crate) fn fit(name: &str) -> Examined {
        Examined {
            name: name.to_owned(),
            state: NodeState::Admitted,
            cause: Cause::None,
            is_reachable: true,
            server: Some("valkey 9.1.2".to_owned()),
            role: Some("master".to_owned()),
            append_only: Some(false),
            append_fsync: Some("everysec".to_owned()),
            fsync_pauses: Some(false),
            failed_save: None,
            snapshots: true,
            policy: Some("noeviction".to_owned()),
            maxmemory: Some(0),
            used_memory: Some(1 << 20),
            evicted: 0,
            replicas: 0,
            fails_over: false,
            was_replica: false,
            uptime: Some(Duration::from_secs(3600)),
            info_denied: false,
            direct_wake: true,
            resp3: true,
            dialect: None,
            refused: vec![("DELEX", Cause::Unsupported)],
            has_login: true,
            is_local: false,
            round_trip: Some(Duration::from_micros(200)),
            clock_us: Some(10),
        }
    }

    pub(crate) fn clients(quorum: usize, guard_is_on: bool) -> Clients {
        let nodes = (0..32).filter_map(redbolt::inspect::NodeId::new).collect();
        let lists = vec![(nodes, quorum)];
        let (max_ttl, max_clock_skew) = (Duration::from_secs(30), Duration::from_secs(1));
        Clients {
            lists,
            guard_is_on,
            failover_guard_is_on: true,
            max_ttl,
            max_clock_skew,
            has_key: false,
        }
    }
}

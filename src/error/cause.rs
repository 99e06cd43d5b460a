//! Why a node did not grant: one byte per node, and the words for it.
//!
//! Layer: bottom, plain values.

use std::fmt;

/// Why a node voted as it did, or why it cannot vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum Cause {
    /// Nothing to report: the node granted, or the client did not wait for its answer.
    #[default]
    None,
    /// The key holds another token.
    Held,

    /// No connection, and no connection attempt has ended yet.
    NotConnected,
    /// The connection attempt or the greeting is still under way.
    Connecting,
    /// The machine answered that no program listens there.
    ConnectionRefused,
    /// The connection attempt or the greeting took longer than `connect_timeout`.
    ConnectTimeout,
    /// The socket at this path does not exist, or the user may not open it.
    SocketPath,
    /// The host name has no address.
    NameUnknown,
    /// Another network error.
    Network,
    /// The node, or something in front of it, closed the connection.
    Closed,
    /// The node sent bytes that are not RESP, or an answer to no request.
    Protocol,

    /// The connection was made, but the TLS handshake did not end within `connect_timeout`. Redis
    /// and Valkey stay silent when a TLS client connects to a plain port.
    TlsTimeout,
    /// The answer to the TLS handshake was not TLS.
    NoTls,
    /// The node closed the connection at the first request, without an answer. A TLS port does that
    /// to a plain client.
    TlsWanted,
    /// The client does not trust the signer of the node's certificate, or the certificate is not
    /// for a server.
    CertificateUntrusted,
    /// By this machine's wall clock, the node's certificate is not valid yet, or not any more.
    CertificateExpired,
    /// The node's certificate is for other names than that of its address.
    CertificateName,
    /// The node wants a client certificate, and the client has none or one that the node refuses.
    ClientCertificate,
    /// The node broke the rules of TLS, or has no version or cipher in common with this client.
    TlsFailed,

    /// The node restarted a short time ago and may have lost locks that are still held.
    Quarantined,
    /// The node has not answered for several `node_timeout`.
    Stalled,
    /// Too many requests to this node are unanswered.
    Backlog,
    /// The attempt was decided before this node, which was still connecting, could be asked.
    NotAsked,
    /// The client's present lists do not name the node: it is to join them, or has left them.
    Unlisted,
    /// Nothing was sent: the call waited behind others.
    Queued,
    /// Nothing was sent: the attempt tried one node first, and that node did not grant.
    Gated,

    /// A replica: its master can undo what it holds.
    Replica,
    /// A node of a cluster.
    Cluster,
    /// A sentinel, which holds no keys.
    Sentinel,
    /// The node's `maxmemory-policy` may drop locks.
    Eviction,
    /// After a failover the old master would go on granting: `min-replicas-to-write` is less than
    /// its replicas, or `min-replicas-max-lag` is above 10 s.
    Unguarded,
    /// The same server as another configured node (equal `run_id`).
    Duplicate,
    /// User or password is wrong or missing.
    Credentials,
    /// The user may not run INFO, or the node does not say there how many replicas it has: so the
    /// node cannot be checked.
    InfoDenied,
    /// The user may run none of the commands that delete a key only if it holds the client's token.
    NoDialect,
    /// Protected mode: the server takes no connections from elsewhere without a password.
    Protected,
    /// The server has as many clients as it allows (`maxclients`).
    TooManyClients,
    /// The configured database number does not exist there.
    Database,

    /// The dataset is being loaded.
    Loading,
    /// A replica whose link to its master is down.
    MasterDown,
    /// A script keeps the server busy.
    Busy,
    /// `maxmemory` is reached.
    OutOfMemory,
    /// The server refuses writes because saving them failed.
    SaveFailed,
    /// The server refuses writes because it has too few replicas (`min-replicas-to-write`).
    NoReplicas,
    /// The user may not run the command.
    NoPermission,
    /// The user may not touch this key.
    KeyDenied,
    /// The key holds data of another type than a string.
    WrongType,
    /// The server does not know the command or one of its options.
    Unsupported,

    /// No answer within `node_timeout`.
    Timeout,
    /// The connection was lost before the answer came.
    ConnectionLost,
    /// An answer that does not say whether the command ran.
    OddReply,
    /// For a fenced lock: the node runs no scripts for this user.
    NoScripts,
    /// For a fenced lock: the node's clock and the client's are further apart than
    /// `max_clock_skew`, or the node did not tell its time.
    ClockOff,
    /// For a fenced lock: another client has raised the counter meanwhile, or the node did not
    /// answer the second round.
    FenceRefused,
    /// For a fenced lock: the key of the counter does not hold a counter.
    FenceCounter,
    /// For a fenced lock: the node granted it, and no longer held its key in the second round.
    Gone,
}

impl Cause {
    /// The cause as one word, for labels and JSON fields: the variant's name in snake case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Held => "held",
            Self::NotConnected => "not_connected",
            Self::Connecting => "connecting",
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::SocketPath => "socket_path",
            Self::NameUnknown => "name_unknown",
            Self::Network => "network",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::TlsTimeout => "tls_timeout",
            Self::NoTls => "no_tls",
            Self::TlsWanted => "tls_wanted",
            Self::CertificateUntrusted => "certificate_untrusted",
            Self::CertificateExpired => "certificate_expired",
            Self::CertificateName => "certificate_name",
            Self::ClientCertificate => "client_certificate",
            Self::TlsFailed => "tls_failed",
            Self::Quarantined => "quarantined",
            Self::Stalled => "stalled",
            Self::Backlog => "backlog",
            Self::NotAsked => "not_asked",
            Self::Unlisted => "unlisted",
            Self::Queued => "queued",
            Self::Gated => "gated",
            Self::Replica => "replica",
            Self::Cluster => "cluster",
            Self::Sentinel => "sentinel",
            Self::Eviction => "eviction",
            Self::Unguarded => "unguarded",
            Self::Duplicate => "duplicate",
            Self::Credentials => "credentials",
            Self::InfoDenied => "info_denied",
            Self::NoDialect => "no_dialect",
            Self::Protected => "protected",
            Self::TooManyClients => "too_many_clients",
            Self::Database => "database",
            Self::Loading => "loading",
            Self::MasterDown => "master_down",
            Self::Busy => "busy",
            Self::OutOfMemory => "out_of_memory",
            Self::SaveFailed => "save_failed",
            Self::NoReplicas => "no_replicas",
            Self::NoPermission => "no_permission",
            Self::KeyDenied => "key_denied",
            Self::WrongType => "wrong_type",
            Self::Unsupported => "unsupported",
            Self::Timeout => "timeout",
            Self::ConnectionLost => "connection_lost",
            Self::OddReply => "odd_reply",
            Self::NoScripts => "no_scripts",
            Self::ClockOff => "clock_off",
            Self::FenceRefused => "fence_refused",
            Self::FenceCounter => "fence_counter",
            Self::Gone => "gone",
        }
    }

    /// The cause in words, to follow the node's name.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "the client did not wait for its answer",
            Self::Held => "held by another",
            Self::NotConnected => "not connected",
            Self::Connecting => "does not answer yet",
            Self::ConnectionRefused => "connection refused",
            Self::ConnectTimeout => "no connection within the connect timeout",
            Self::SocketPath => "its socket is missing, or this user may not open it",
            Self::NameUnknown => "the host name has no address",
            Self::Network => "network error",
            Self::Closed => "closed the connection",
            Self::Protocol => "did not answer as a Redis or Valkey server",
            Self::TlsTimeout => "did not end the TLS handshake in time (is it a TLS port?)",
            Self::NoTls => "speaks no TLS on this port",
            Self::TlsWanted => "closed unanswered, as a TLS port does to plain clients (rediss://)",
            Self::CertificateUntrusted => "its certificate is not trusted",
            Self::CertificateExpired => "its certificate is expired or not yet valid",
            Self::CertificateName => "its certificate is for another name",
            Self::ClientCertificate => "wants a client certificate, or refuses the one shown",
            Self::TlsFailed => "TLS failed (no version or cipher in common, or broken bytes)",
            Self::Quarantined => {
                "may have forgotten locks: it restarted, or became a master, too recently"
            }
            Self::Stalled => "does not answer",
            Self::Backlog => "too many unanswered requests",
            Self::NotAsked => "not asked: it was still connecting",
            Self::Unlisted => "it is not in the client's present lists of nodes",
            Self::Queued => "not asked: others hold or want the lock",
            Self::Gated => "not asked: the node tried first did not grant",
            Self::Replica => "is a replica",
            Self::Cluster => "is a cluster node",
            Self::Sentinel => "is a sentinel",
            Self::Eviction => "maxmemory-policy may evict locks (set noeviction)",
            Self::Unguarded => {
                "may fail over, and would go on granting then (set min-replicas-to-write)"
            }
            Self::Duplicate => "is the same server as another node",
            Self::Credentials => "user or password refused",
            Self::InfoDenied => "INFO denied (grant it, or choose lenient admission)",
            Self::NoDialect => {
                "no permitted command can release a lock (allow EVAL for this user, or run Valkey 9 or Redis 8.4)"
            }
            Self::Protected => "protected mode (set a password or bind address)",
            Self::TooManyClients => "has too many clients",
            Self::Database => "database number refused",
            Self::Loading => "loading its dataset",
            Self::MasterDown => "is a replica without its master",
            Self::Busy => "busy with a script",
            Self::OutOfMemory => "out of memory (maxmemory)",
            Self::SaveFailed => "refuses writes (saving failed)",
            Self::NoReplicas => "refuses writes (too few replicas)",
            Self::NoPermission => "command denied by ACL",
            Self::KeyDenied => "key denied by ACL",
            Self::WrongType => "the key holds other data",
            Self::Unsupported => "command not supported",
            Self::Timeout => "no answer in time",
            Self::ConnectionLost => "connection lost before the answer",
            Self::OddReply => "unclear answer",
            Self::NoScripts => {
                "runs no scripts, which fenced locks need (allow EVAL for this user)"
            }
            Self::ClockOff => "its clock differs too much from this machine's (max_clock_skew)",
            Self::FenceRefused => "did not accept the fence",
            Self::FenceCounter => "the key of the fences holds something else",
            Self::Gone => "the key was set and is gone again",
        }
    }

    /// Whether the TLS set-up is at fault, so that a person must repair it. A server that closes
    /// the connection, or stays silent, may just be starting.
    pub(crate) const fn is_about_tls(self) -> bool {
        matches!(
            self,
            Self::NoTls
                | Self::CertificateUntrusted
                | Self::CertificateExpired
                | Self::CertificateName
                | Self::ClientCertificate
                | Self::TlsFailed
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

//! Why a node did not grant: one byte per node, and the words for it.
//!
//! Layer: bottom, plain values.

use std::fmt;

/// Each cause with its name and its words: the enum and both lists come from one table.
macro_rules! causes {
    ($($(#[$meta:meta])* $cause:ident = $name:literal, $text:literal;)*) => {
        /// Why a node voted as it did, or why it cannot vote.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Cause {
            $($(#[$meta])* $cause,)*
        }

        impl Cause {
            /// The cause as one word, for labels and JSON fields: the variant's name in snake case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$cause => $name,)*
                }
            }

            /// The cause in words, to follow the node's name.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$cause => $text,)*
                }
            }
        }
    };
}

causes! {
    /// Nothing to report: the node granted, or the client did not wait for its answer.
    #[default]
    None = "none", "the client did not wait for its answer";
    /// The key holds another token.
    Held = "held", "held by another";

    /// No connection, and no connection attempt has ended yet.
    NotConnected = "not_connected", "not connected";
    /// The connection attempt or the greeting is still under way.
    Connecting = "connecting", "does not answer yet";
    /// The machine answered that no program listens there.
    ConnectionRefused = "connection_refused", "connection refused";
    /// The connection attempt and the greeting took longer than `connect_timeout`.
    ConnectTimeout = "connect_timeout", "no connection within the connect timeout";
    /// The socket at this path does not exist, or the user may not open it.
    SocketPath = "socket_path", "its socket is missing, or this user may not open it";
    /// The host name has no address.
    NameUnknown = "name_unknown", "the host name has no address";
    /// Another network error.
    Network = "network", "network error";
    /// The node, or something in front of it, closed the connection.
    Closed = "closed", "closed the connection";
    /// The node sent bytes that are not RESP, or an answer to no request.
    Protocol = "protocol", "did not answer as a Redis or Valkey server";

    /// The connection was made, but the TLS handshake did not end within `connect_timeout`. Redis
    /// and Valkey stay silent when a TLS client connects to a plain port.
    TlsTimeout = "tls_timeout", "did not end the TLS handshake in time (is it a TLS port?)";
    /// The answer to the TLS handshake was not TLS.
    NoTls = "no_tls", "speaks no TLS on this port";
    /// The node closed the connection at the first request, without an answer. A TLS port does that
    /// to a plain client.
    TlsWanted = "tls_wanted", "closed unanswered, as a TLS port does to plain clients (rediss://)";
    /// The client does not trust the signer of the node's certificate, or the certificate is not
    /// for a server.
    CertificateUntrusted = "certificate_untrusted", "its certificate is not trusted";
    /// By this machine's wall clock, the node's certificate is not valid yet, or not any more.
    CertificateExpired = "certificate_expired", "its certificate is expired or not yet valid";
    /// The node's certificate is for other names than that of its address.
    CertificateName = "certificate_name", "its certificate is for another name";
    /// The node wants a client certificate, and the client has none or one that the node refuses.
    ClientCertificate = "client_certificate",
        "wants a client certificate, or refuses the one shown";
    /// The node broke the rules of TLS, or has no version or cipher in common with this client.
    TlsFailed = "tls_failed", "TLS failed (no version or cipher in common, or broken bytes)";

    /// The node restarted, or became a master, a short time ago, and may have lost locks that are
    /// still held.
    Quarantined = "quarantined",
        "may have forgotten locks: it restarted, or became a master, too recently";
    /// The node has not answered for several `node_timeout`.
    Stalled = "stalled", "does not answer";
    /// Too many requests to this node are unanswered.
    Backlog = "backlog", "too many unanswered requests";
    /// The attempt was decided before this node, which was still connecting, could be asked.
    NotAsked = "not_asked", "not asked: it was still connecting";
    /// The client's present lists do not name the node: it is to join them, or has left them.
    Unlisted = "unlisted", "it is not in the client's present lists of nodes";
    /// Nothing was sent: the call waited behind others.
    Queued = "queued", "not asked: others hold or want the lock";
    /// Nothing was sent: the attempt tried one node first, and that node did not grant.
    Gated = "gated", "not asked: the node tried first did not grant";

    /// A replica: its master can undo what it holds.
    Replica = "replica", "is a replica";
    /// A node of a cluster.
    Cluster = "cluster", "is a cluster node";
    /// A sentinel, which holds no keys.
    Sentinel = "sentinel", "is a sentinel";
    /// The node's `maxmemory-policy` may drop locks.
    Eviction = "eviction", "maxmemory-policy may evict locks (set noeviction)";
    /// After a failover the old master would go on granting: `min-replicas-to-write` is less than
    /// its replicas, or `min-replicas-max-lag` is above 10 s. With the restart guard off, no master
    /// that may fail over votes.
    Unguarded = "unguarded",
        "may fail over, and would go on granting then (set min-replicas-to-write)";
    /// The same server as another configured node (equal `run_id`).
    Duplicate = "duplicate", "is the same server as another node";
    /// User or password is wrong or missing.
    Credentials = "credentials", "user or password refused";
    /// The user may not run INFO, or the node does not say there how many replicas it has: so the
    /// node cannot be checked.
    InfoDenied = "info_denied", "INFO denied (grant it, or choose lenient admission)";
    /// The user may run none of the commands that delete a key only if it holds the client's token.
    NoDialect = "no_dialect",
        "no permitted command can release a lock (allow EVAL for this user, or run Valkey 9 or Redis 8.4)";
    /// Protected mode: the server takes no connections from elsewhere without a password.
    Protected = "protected", "protected mode (set a password or bind address)";
    /// The server has as many clients as it allows (`maxclients`).
    TooManyClients = "too_many_clients", "has too many clients";
    /// The configured database number does not exist there.
    Database = "database", "database number refused";

    /// The dataset is being loaded.
    Loading = "loading", "loading its dataset";
    /// A replica whose link to its master is down.
    MasterDown = "master_down", "is a replica without its master";
    /// A script keeps the server busy.
    Busy = "busy", "busy with a script";
    /// `maxmemory` is reached.
    OutOfMemory = "out_of_memory", "out of memory (maxmemory)";
    /// The server refuses writes because saving them failed.
    SaveFailed = "save_failed", "refuses writes (saving failed)";
    /// The server refuses writes because it has too few replicas (`min-replicas-to-write`).
    NoReplicas = "no_replicas", "refuses writes (too few replicas)";
    /// The user may not run the command.
    NoPermission = "no_permission", "command denied by ACL";
    /// The user may not touch this key.
    KeyDenied = "key_denied", "key denied by ACL";
    /// The key holds data of another type than a string.
    WrongType = "wrong_type", "the key holds other data";
    /// The server does not know the command or one of its options.
    Unsupported = "unsupported", "command not supported";

    /// No answer within `node_timeout`.
    Timeout = "timeout", "no answer in time";
    /// The connection was lost before the answer came.
    ConnectionLost = "connection_lost", "connection lost before the answer";
    /// An answer that does not say whether the command ran.
    OddReply = "odd_reply", "unclear answer";
    /// For a fenced lock: the node runs no scripts for this user.
    NoScripts = "no_scripts", "runs no scripts, which fenced locks need (allow EVAL for this user)";
    /// For a fenced lock: the node's clock and the client's are further apart than
    /// `max_clock_skew`, or the node did not tell its time.
    ClockOff = "clock_off", "its clock differs too much from this machine's (max_clock_skew)";
    /// For a fenced lock: another client has raised the counter meanwhile, or the node did not
    /// answer the second round.
    FenceRefused = "fence_refused", "did not accept the fence";
    /// For a fenced lock: the key of the counter does not hold a counter.
    FenceCounter = "fence_counter", "the key of the fences holds something else";
    /// For a fenced lock: the node granted it, and no longer held its key in the second round.
    Gone = "gone", "the key was set and is gone again";
}

impl Cause {
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

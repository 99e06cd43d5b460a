//! The remedy for a node that does not vote, by the cause.

use redbolt::inspect::Notice;
use redbolt::{Ballot, Cause, Vote};

/// A command's report about a node while the command goes on.
pub(crate) fn told(notice: &Notice) -> String {
    if notice.is_well() {
        notice.to_string()
    } else {
        format!("{notice}: {}", remedy(notice.cause))
    }
}

/// The remedy if a node did not vote because of the fence alone. The doctor does not see every such
/// cause.
pub(crate) fn fence_remedy(ballot: &Ballot) -> Option<&'static str> {
    let has = |wanted: Cause| {
        let is_it =
            |vote| matches!(vote, Vote::Failed(cause) | Vote::Unknown(cause) if cause == wanted);
        ballot.votes().any(|(_, vote)| is_it(vote))
    };
    // The last cause passes by itself.
    let causes = [Cause::NoScripts, Cause::FenceCounter, Cause::ClockOff, Cause::FenceRefused];
    causes.into_iter().find(|cause| has(*cause)).map(remedy)
}

/// The cause and its remedy. Some causes have a short remedy in brackets, for people who see only
/// the cause; the full remedy replaces it.
pub(crate) fn with_remedy(cause: Cause) -> String {
    use Cause::{Eviction, InfoDenied, NoDialect, NoScripts, Protected};
    use Cause::{TlsTimeout, TlsWanted, Unguarded};
    let hinting = [Eviction, InfoDenied, NoDialect, NoScripts, Protected];
    let has_hint = hinting.contains(&cause) || [TlsTimeout, TlsWanted, Unguarded].contains(&cause);
    let text = cause.text();
    let text = text.split_once(" (").filter(|_| has_hint).map_or(text, |(text, _)| text);
    format!("{text}: {}", remedy(cause))
}

/// The remedy for a node that does not vote.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest needs no remedy of its own")]
pub(crate) fn remedy(cause: Cause) -> &'static str {
    match cause {
        Cause::Eviction => "set maxmemory-policy noeviction there",
        Cause::Replica | Cause::MasterDown => {
            "name an independent master in its place, or make this node a master (replicaof no one)"
        }
        Cause::Cluster | Cause::Sentinel => "name a standalone server in its place",
        Cause::Duplicate => "name each server once, by one address",
        Cause::Credentials => "check the user and the password (--user, --password-file, URL)",
        Cause::InfoDenied => "grant the user +info",
        Cause::NoDialect => {
            "grant the user +eval +get +del +pexpire, or run Valkey 9 or Redis 8.4 there"
        }
        Cause::NoPermission => "grant the user the commands and keys of the locks",
        Cause::Protected => "set a password there, or bind it to an address of yours",
        Cause::TooManyClients => "raise maxclients there, or end idle clients",
        Cause::Database => "name a database that exists in the URL",
        Cause::ConnectionRefused => "start the server, or check host and port",
        Cause::ConnectTimeout | Cause::Connecting => {
            "look whether the server is frozen, and check the host, the network and firewalls"
        }
        Cause::Network => "check the host, the network and firewalls",
        Cause::NameUnknown => "check the host name",
        Cause::TlsTimeout => {
            "check that the port is the server's TLS port (redis:// for a plain port), and that \
             the server is alive"
        }
        Cause::NoTls => "name its TLS port, or write redis:// for a plain port",
        Cause::TlsWanted => {
            "write rediss:// if it is a TLS port; else look whether a proxy or maxclients is in the way"
        }
        Cause::CertificateUntrusted => {
            "name the CA that signed the certificate (--tls-ca); a self-signed certificate must \
             not be a CA (CA:FALSE)"
        }
        Cause::CertificateExpired => "renew it there, or set this machine's clock",
        Cause::CertificateName => {
            "name the node as its certificate does, or issue one with this name (subjectAltName)"
        }
        Cause::ClientCertificate => {
            "give a certificate that a CA in the server's tls-ca-cert-file signed (--tls-cert, \
             --tls-key)"
        }
        Cause::TlsFailed => {
            "look at tls-protocols and tls-ciphers there (TLS 1.2 or 1.3 is needed)"
        }
        Cause::SocketPath => "check the path and its permissions",
        Cause::Protocol => "check that host and port are those of a Redis or Valkey server",
        Cause::OutOfMemory => "raise maxmemory there, or give locks a server of their own",
        Cause::SaveFailed => "repair its disk, or the permission to write there",
        Cause::NoReplicas => {
            "bring its replicas back (without replicas: min-replicas-to-write 0 there)"
        }
        Cause::Unguarded => {
            "two holders would be possible: set min-replicas-to-write there to the number of its \
             replicas and min-replicas-max-lag to 10, or run it without replicas"
        }
        Cause::KeyDenied => "grant the user the keys of the locks",
        Cause::NoScripts => "grant the user +eval +get +set",
        Cause::ClockOff => "set its clock and this machine's by NTP, or raise --max-clock-skew",
        Cause::FenceCounter => {
            "delete the lock's key that ends in :fence there: no counter is lost"
        }
        Cause::FenceRefused => "try again: another client took the lock at the same time",
        Cause::Loading => "wait until the dataset is loaded",
        Cause::Busy => "end the script that runs there (script kill)",
        Cause::Stalled | Cause::Timeout => "look whether the server is frozen or overloaded",
        _ => "look at the server and its log",
    }
}

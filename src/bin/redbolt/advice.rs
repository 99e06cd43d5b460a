//! What is unsafe about a set of nodes, what is only worth knowing, and how to mend both.

use std::time::Duration;

use redbolt::engine::NodeState;
use redbolt::{Cause, Notice};

use crate::output::short;

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
    pub(crate) snapshots: bool,
    pub(crate) policy: Option<String>,
    pub(crate) maxmemory: Option<u64>,
    pub(crate) replicas: u32,
    pub(crate) uptime: Option<Duration>,
    pub(crate) info_denied: bool,
    /// What else the user may not run.
    pub(crate) denied: Vec<&'static str>,
    /// Whether those who wait can be woken through it.
    pub(crate) direct_wake: bool,
    pub(crate) resp3: bool,
    pub(crate) dialect: Option<String>,
    pub(crate) round_trip: Option<Duration>,
    /// How far its wall clock is ahead of ours.
    pub(crate) clock_us: Option<i64>,
}

/// What the doctor says.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    /// Reasons why locks would be unsafe or impossible, each with its remedy.
    pub(crate) unsafe_because: Vec<String>,
    /// What is worth knowing, and leaves locks safe.
    pub(crate) notes: Vec<String>,
}

/// Wall clocks further apart than this are worth a word.
const CLOCK_OFFSET_MAX_US: u64 = 1_000_000;

/// Judges the nodes.
pub(crate) fn advise(nodes: &[Examined], quorum: usize, guard_is_on: bool) -> Advice {
    let mut advice = Advice::default();
    for node in nodes {
        judge_node(node, guard_is_on, &mut advice);
    }
    let voting = nodes.iter().filter(|node| node.state == NodeState::Admitted).count();
    if voting < quorum {
        let mut waits = Vec::new();
        for node in nodes {
            if let NodeState::Quarantined(left) = node.state {
                waits.push(left);
            }
        }
        waits.sort_unstable();
        let remedy = match waits.get(quorum - voting - 1) {
            Some(wait) => format!("wait {} until enough restarted nodes may vote", short(*wait)),
            None => "start or mend the nodes above".to_owned(),
        };
        advice.unsafe_because.push(format!(
            "only {voting} of {} nodes can vote and {quorum} are needed, so no lock can be had: \
             {remedy}",
            nodes.len()
        ));
    }
    judge_set(nodes, quorum, &mut advice);
    advice
}

fn judge_node(node: &Examined, guard_is_on: bool, advice: &mut Advice) {
    let name = &node.name;
    if node.state == NodeState::Refused {
        let reason = format!("{name}: {}: {}", node.cause, remedy(node.cause));
        advice.unsafe_because.push(reason);
    } else if let NodeState::Quarantined(left) = node.state {
        advice.notes.push(format!(
            "{name}: restarted {} ago and may have forgotten locks; it votes again in {}",
            node.uptime.map_or_else(|| "a short time".to_owned(), short),
            short(left)
        ));
    } else if node.state != NodeState::Admitted {
        advice.notes.push(format!("{name}: {}: {}", node.cause, remedy(node.cause)));
    }
    let keeps_all =
        node.append_only == Some(true) && node.append_fsync.as_deref() == Some("always");
    if !guard_is_on && node.is_reachable && !keeps_all {
        advice.unsafe_because.push(format!(
            "{name}: may forget locks in a restart, and the restart guard is off: leave the guard \
             on, or set appendonly yes and appendfsync always"
        ));
    }
    if node.replicas > 0 {
        advice.notes.push(format!(
            "{name}: has {} replicas; a failover to one of them may lose locks: keep lock nodes \
             without failover",
            node.replicas
        ));
    }
    if node.maxmemory.is_some_and(|bytes| bytes > 0) && node.state == NodeState::Admitted {
        advice.notes.push(format!(
            "{name}: has a maxmemory limit; when it is reached no lock can be taken there: give \
             locks a server of their own"
        ));
    }
    if node.info_denied {
        advice.notes.push(format!(
            "{name}: denies INFO, so eviction, restarts and duplicates go unseen: grant +info"
        ));
    }
    judge_rights(node, advice);
}

/// Rights without which locks are as safe, and some things slower or untold.
fn judge_rights(node: &Examined, advice: &mut Advice) {
    let name = &node.name;
    let lacks = |wanted: &[&str]| {
        let lacking: Vec<&str> =
            node.denied.iter().copied().filter(|command| wanted.contains(command)).collect();
        lacking.join(", ")
    };
    let mut waking = lacks(&["GET", "PTTL", "PUBLISH"]);
    if node.state == NodeState::Admitted && node.resp3 && !node.direct_wake {
        waking = if waking.is_empty() { waking } else { waking + ", " } + "SUBSCRIBE";
    }
    if !waking.is_empty() {
        advice.notes.push(format!(
            "{name}: the user lacks {waking}, so who waits for a lock polls: grant +get +pttl \
             +subscribe +publish &redbolt:*"
        ));
    }
    let watching = lacks(&["CLIENT TRACKING", "CLIENT CACHING"]);
    if !watching.is_empty() {
        advice.notes.push(format!(
            "{name}: the user lacks {watching}, so watched locks are not told of: grant \
             +client|tracking +client|caching +pttl"
        ));
    }
}

fn judge_set(nodes: &[Examined], quorum: usize, advice: &mut Advice) {
    let clocks = || nodes.iter().filter_map(|node| node.clock_us.map(|us| (us, &node.name)));
    for (us, name) in clocks().filter(|(us, _)| us.unsigned_abs() > CLOCK_OFFSET_MAX_US) {
        advice.notes.push(format!(
            "{name}: its clock is {} {} this machine's: set both by NTP, a jump of a node's clock \
             ends locks early",
            short(Duration::from_micros(us.unsigned_abs())),
            if us > 0 { "ahead of" } else { "behind" },
        ));
    }
    if let (Some((least, slow)), Some((most, fast))) = (clocks().min(), clocks().max())
        && most.abs_diff(least) > CLOCK_OFFSET_MAX_US
    {
        let apart = short(Duration::from_micros(most.abs_diff(least)));
        advice.notes.push(format!("the clocks of {slow} and {fast} are {apart} apart: use NTP"));
    }
    let spare = nodes.len() - quorum;
    if spare == 0 {
        advice.notes.push(format!(
            "all {} nodes must answer for every lock: with more nodes some may fail",
            nodes.len()
        ));
    } else if nodes.len().is_multiple_of(2) && quorum == nodes.len() / 2 + 1 {
        advice.notes.push(format!(
            "{} nodes survive no more failures than {}: an odd number is better",
            nodes.len(),
            nodes.len() - 1
        ));
    }
}

/// What a command says of a node while it goes on.
pub(crate) fn told(notice: &Notice) -> String {
    if notice.is_well() {
        notice.to_string()
    } else {
        format!("{notice}: {}", remedy(notice.cause))
    }
}

/// What to do about a node that does not vote.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest needs no remedy of its own")]
fn remedy(cause: Cause) -> &'static str {
    match cause {
        Cause::Eviction => "set maxmemory-policy noeviction there",
        Cause::Replica | Cause::MasterDown => {
            "name a master of its own in its place (replicaof no one)"
        }
        Cause::Cluster | Cause::Sentinel => "name a standalone server in its place",
        Cause::Duplicate => "name each server once, by one address",
        Cause::Credentials => "check the user and the password (--user, --password-file, URL)",
        Cause::InfoDenied => "grant the user +info",
        Cause::NoDialect => {
            "grant the user +eval +get +del +pexpire, or +watch +multi +exec +get +del"
        }
        Cause::NoPermission => "grant the user the commands and keys of the locks",
        Cause::Protected => "set a password there, or bind it to an address of yours",
        Cause::TooManyClients => "raise maxclients there, or end idle clients",
        Cause::Database => "name a database that exists in the URL",
        Cause::ConnectionRefused => "start the server, or check host and port",
        Cause::ConnectTimeout | Cause::Network => "check the host, the network and firewalls",
        Cause::NameUnknown => "check the host name",
        Cause::TlsTimeout => {
            "check that the port is its TLS port (redis:// for a plain one), and that it is alive"
        }
        Cause::NoTls => "name its TLS port, or write redis:// for a plain one",
        Cause::TlsWanted => {
            "write rediss:// if it is a TLS port; else look whether a proxy or maxclients is in the way"
        }
        Cause::CertificateUntrusted => {
            "name the CA that signed it (--tls-ca); one signed by itself must not be a CA (CA:FALSE)"
        }
        Cause::CertificateExpired => "renew it there, or set this machine's clock",
        Cause::CertificateName => {
            "name the node as its certificate does, or issue one with this name (subjectAltName)"
        }
        Cause::ClientCertificate => {
            "show one that its tls-ca-cert-file signed (--tls-cert, --tls-key)"
        }
        Cause::TlsFailed => {
            "look at tls-protocols and tls-ciphers there (TLS 1.2 or 1.3 is needed)"
        }
        Cause::SocketPath => "check the path and its permissions",
        Cause::Protocol => "check that host and port are those of a Redis or Valkey server",
        Cause::OutOfMemory => "raise maxmemory there, or give locks a server of their own",
        Cause::SaveFailed => "mend its disk, or the rights to write there",
        Cause::NoReplicas => "set min-replicas-to-write 0 there",
        Cause::KeyDenied => "grant the user the keys of the locks",
        Cause::Loading => "wait until the dataset is loaded",
        Cause::Busy => "end the script that runs there (script kill)",
        Cause::Stalled | Cause::Timeout => "look whether the server is frozen or overloaded",
        _ => "look at the server and its log",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(name: &str) -> Examined {
        Examined {
            name: name.to_owned(),
            state: NodeState::Admitted,
            cause: Cause::None,
            is_reachable: true,
            server: Some("valkey 9.1.2".to_owned()),
            role: Some("master".to_owned()),
            append_only: Some(false),
            append_fsync: Some("everysec".to_owned()),
            snapshots: true,
            policy: Some("noeviction".to_owned()),
            maxmemory: Some(0),
            replicas: 0,
            uptime: Some(Duration::from_secs(3600)),
            info_denied: false,
            denied: Vec::new(),
            direct_wake: true,
            resp3: true,
            dialect: None,
            round_trip: Some(Duration::from_micros(200)),
            clock_us: Some(10),
        }
    }

    fn three() -> Vec<Examined> {
        vec![fit("a"), fit("b"), fit("c")]
    }

    #[test]
    fn three_fit_nodes_need_no_word() {
        let advice = advise(&three(), 2, true);
        assert!(advice.unsafe_because.is_empty() && advice.notes.is_empty(), "{advice:?}");
    }

    #[test]
    fn one_refused_node_makes_the_set_unsafe_and_one_that_is_away_does_not() {
        let mut nodes = three();
        nodes[0].state = NodeState::Refused;
        nodes[0].cause = Cause::Eviction;
        let advice = advise(&nodes, 2, true);
        assert!(advice.unsafe_because[0].contains("noeviction"), "{advice:?}");

        nodes[0].state = NodeState::Disconnected;
        nodes[0].cause = Cause::ConnectionRefused;
        let advice = advise(&nodes, 2, true);
        assert!(advice.unsafe_because.is_empty(), "{advice:?}");
        assert!(advice.notes[0].contains("start the server"), "{advice:?}");
    }

    #[test]
    fn without_the_guard_only_fsync_always_is_safe() {
        let mut nodes = three();
        assert_eq!(advise(&nodes, 2, false).unsafe_because.len(), 3);
        for node in &mut nodes {
            node.append_only = Some(true);
            node.append_fsync = Some("always".to_owned());
        }
        assert!(advise(&nodes, 2, false).unsafe_because.is_empty());
    }

    #[test]
    fn a_missing_quorum_is_said_with_the_wait_that_mends_it() {
        let mut nodes = three();
        for (node, left) in nodes.iter_mut().zip([4, 9]) {
            node.state = NodeState::Quarantined(Duration::from_secs(left));
        }
        let advice = advise(&nodes, 2, true);
        assert!(advice.unsafe_because[0].contains("wait 4.0 s"), "{advice:?}");
    }

    #[test]
    fn rights_that_only_waiting_and_watching_need_are_worth_a_note() {
        let mut nodes = three();
        nodes[0].denied = vec!["GET", "CLIENT TRACKING"];
        nodes[1].direct_wake = false;
        nodes[2].direct_wake = false;
        nodes[2].resp3 = false;
        let advice = advise(&nodes, 2, true);
        assert!(advice.unsafe_because.is_empty() && advice.notes.len() == 3, "{advice:?}");
        assert!(advice.notes[0].contains("lacks GET, so"), "{advice:?}");
        assert!(advice.notes[1].contains("lacks CLIENT TRACKING, so"), "{advice:?}");
        assert!(advice.notes[2].contains("lacks SUBSCRIBE, so"), "{advice:?}");
    }

    #[test]
    fn clocks_a_second_apart_are_named() {
        let mut nodes = three();
        nodes[2].clock_us = Some(-3_000_000);
        let advice = advise(&nodes, 2, true);
        assert!(advice.notes.iter().any(|note| note.contains("3.0 s behind")), "{advice:?}");
    }
}

//! What is unsafe about a node, what is only worth knowing, and how to repair both.

use std::time::Duration;

use redbolt::Cause;
use redbolt::inspect::{NodeState, Notice};

use crate::fitness::{Check, Level, judge_set};
use crate::output::short;

/// The name of a refused marker among the commands.
const MARKER: &str = "SET redbolt:since:*";

/// One node, as the doctor found it.
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
    /// What failed: the last write of the append-only file, or the last snapshot.
    pub(crate) failed_save: Option<&'static str>,
    pub(crate) snapshots: bool,
    pub(crate) policy: Option<String>,
    pub(crate) maxmemory: Option<u64>,
    pub(crate) used_memory: Option<u64>,
    pub(crate) evicted: u64,
    pub(crate) replicas: u32,
    pub(crate) was_replica: bool,
    pub(crate) uptime: Option<Duration>,
    pub(crate) info_denied: bool,
    /// Whether waiters can be woken through the node.
    pub(crate) direct_wake: bool,
    pub(crate) resp3: bool,
    pub(crate) dialect: Option<String>,
    /// Commands that the node refuses, and why.
    pub(crate) refused: Vec<(&'static str, Cause)>,
    /// Whether the client logs in with a user or a password.
    pub(crate) has_login: bool,
    /// Whether its address leads only this machine to it.
    pub(crate) is_local: bool,
    pub(crate) round_trip: Option<Duration>,
    /// How far its wall clock is ahead of this machine's.
    pub(crate) clock_us: Option<i64>,
}

/// The settings of the clients, as far as the options say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    pub(crate) quorum: usize,
    pub(crate) guard_is_on: bool,
    pub(crate) max_ttl: Duration,
    /// Whether the user named a lock whose key must be permitted.
    pub(crate) has_key: bool,
}

/// What the doctor says.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    /// Reasons why locks would be unsafe or impossible, each with its remedy.
    pub(crate) unsafe_because: Vec<Finding>,
    /// What is worth knowing about a node but does not make locks unsafe.
    pub(crate) notes: Vec<Finding>,
    /// Checks of all nodes together.
    pub(crate) checks: Vec<Check>,
}

/// What was found on one node.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) node: String,
    pub(crate) text: String,
}

/// Memory in use, in percent of the limit, from which on the doctor mentions it.
const MEMORY_NOTED: u64 = 80;

/// Judges the nodes, one by one and together.
pub(crate) fn advise(nodes: &[Examined], clients: &Clients) -> Advice {
    let mut advice = Advice::default();
    for node in nodes {
        judge_node(node, clients, &mut advice);
    }
    advice.checks = judge_set(nodes, clients);
    advice
}

impl Advice {
    pub(crate) fn is_unsafe(&self) -> bool {
        !self.unsafe_because.is_empty()
            || self.checks.iter().any(|check| check.level == Level::Unsafe)
    }
}

fn judge_node(node: &Examined, clients: &Clients, advice: &mut Advice) {
    let mut judge = Judge { node, advice };
    judge.state();
    if !clients.guard_is_on
        && node.was_asked()
        && let Some(reason) = node.may_forget()
    {
        judge.refuse(format!(
            "{reason}, so it may forget locks in a restart, and the restart guard is off: leave \
             the guard on, or set appendonly yes, appendfsync always and no-appendfsync-on-rewrite \
             no"
        ));
    }
    if node.state != NodeState::Refused {
        judge.taking(clients);
        judge.releasing();
        judge.waiting();
    }
    judge.memory();
    judge.history();
}

/// One node, and where its findings go.
struct Judge<'a> {
    node: &'a Examined,
    advice: &'a mut Advice,
}

impl Judge<'_> {
    fn refuse(&mut self, text: impl Into<String>) {
        let finding = Finding { node: self.node.name.clone(), text: text.into() };
        self.advice.unsafe_because.push(finding);
    }

    fn note(&mut self, text: impl Into<String>) {
        let finding = Finding { node: self.node.name.clone(), text: text.into() };
        self.advice.notes.push(finding);
    }

    fn state(&mut self) {
        let node = self.node;
        let text = format!("{}: {}", node.cause, remedy(node.cause));
        if node.state == NodeState::Refused {
            self.refuse(text);
        } else if let NodeState::Quarantined(left) = node.state {
            self.note(format!(
                "restarted {} ago and may have forgotten locks; it votes again in {}",
                node.uptime.map_or_else(|| "a short time".to_owned(), short),
                short(left)
            ));
        } else if node.state != NodeState::Admitted {
            self.note(text);
        }
    }

    /// Whether locks can be taken there.
    fn taking(&mut self, clients: &Clients) {
        match self.node.refusal("SET") {
            None => {}
            Some(Cause::NoPermission) => {
                self.refuse("the user may not run SET, so no lock can be taken there: grant +set");
            }
            Some(Cause::KeyDenied) if clients.has_key => self.refuse(
                "the user may not touch this key, so the lock cannot be taken there: grant a \
                 pattern that it matches",
            ),
            Some(Cause::KeyDenied) => self.note(
                "the user may touch some keys only: redbolt doctor --key NAME says whether those \
                 of your locks are among them",
            ),
            Some(cause) => {
                self.note(format!("no lock can be taken there now: {cause}: {}", remedy(cause)));
            }
        }
    }

    /// Whether locks can be released there.
    fn releasing(&mut self) {
        let commands = ["DELIFEQ", "DELEX", "EVAL"];
        let is_refused = |command| {
            let refusal = self.node.refusal(command);
            matches!(refusal, Some(Cause::NoPermission | Cause::Unsupported))
        };
        if commands.into_iter().all(is_refused) {
            let remedy = remedy(Cause::NoDialect);
            self.refuse(format!("no permitted command can release a lock: {remedy}"));
            return;
        }
        let mut native = commands.into_iter().take(2);
        if let Some(native) = native.find(|command| self.node.is_denied(command)) {
            self.note(format!(
                "locks are released there by a slower way than {native}: grant +{}",
                native.to_lowercase()
            ));
        }
    }

    /// Whether waiters are woken, and locks can be looked up.
    fn waiting(&mut self) {
        let commands = ["GET", "PTTL", "PUBLISH"];
        let mut denied: Vec<&str> =
            commands.into_iter().filter(|command| self.node.is_denied(command)).collect();
        let has_publish = self.node.refusal("PUBLISH") != Some(Cause::KeyDenied);
        let is_deaf = self.node.resp3 && !self.node.direct_wake;
        if self.node.state == NodeState::Admitted && is_deaf && has_publish {
            denied.push("SUBSCRIBE");
        }
        if !denied.is_empty() {
            let grants: Vec<String> =
                denied.iter().map(|command| format!("+{}", command.to_lowercase())).collect();
            self.note(format!(
                "the user may not run {}, so a waiter polls for the lock, and \
                 redbolt status sees less: grant {}",
                denied.join(", "),
                grants.join(" ")
            ));
        }
        if !has_publish {
            self.note(
                "the user may not use the channels redbolt:*, so a waiter is not \
                 woken by its release: grant &redbolt:*",
            );
        }
        if self.node.refusal(MARKER) == Some(Cause::KeyDenied) {
            self.note(
                "the user may not write the keys redbolt:since:*, so after this node was a replica, \
                 or a master with replicas restarts, each new client waits for the longest TTL: grant \
                 ~redbolt:since:*",
            );
        }
        let tracking = ["CLIENT TRACKING", "CLIENT CACHING"];
        if tracking.into_iter().any(|command| self.node.is_denied(command)) {
            self.note(
                "the user may not track keys, so the loss of a watched lock and the end of another \
                 library's are noticed late: grant +client|tracking +client|caching",
            );
        }
    }

    fn memory(&mut self) {
        let node = self.node;
        if node.evicted > 0 && node.state == NodeState::Admitted {
            self.note(format!(
                "has evicted {} keys since it started, perhaps locks among them: leave \
                 maxmemory-policy at noeviction",
                node.evicted
            ));
        }
        let (most, used) = (node.maxmemory.unwrap_or(0), node.used_memory.unwrap_or(0));
        let percent = used.saturating_mul(100).checked_div(most).unwrap_or(0);
        if percent >= MEMORY_NOTED {
            self.note(format!(
                "uses {percent} % of its maxmemory; at the limit no lock can be taken there: raise \
                 it, or give locks a server of their own"
            ));
        }
    }

    fn history(&mut self) {
        let node = self.node;
        if let Some(what) = node.failed_save {
            self.note(format!("{what} failed, so it may refuse locks: repair its disk"));
        }
        if node.replicas > 0 {
            self.note(format!(
                "has {} replicas; a failover to one of them may lose locks: keep lock nodes \
                 without failover",
                node.replicas
            ));
        }
        if node.was_replica {
            self.note(
                "was a replica before it was made a master, or had replicas before it restarted, and \
                 locks may have been lost by that: keep lock nodes without replicas",
            );
        }
        if node.info_denied {
            self.note("denies INFO, so eviction, restarts and duplicates go unseen: grant +info");
        }
    }
}

impl Examined {
    /// Whether the node accepted the login and said what it is.
    pub(crate) const fn was_asked(&self) -> bool {
        self.is_reachable && self.server.is_some()
    }

    fn is_denied(&self, command: &str) -> bool {
        self.refusal(command) == Some(Cause::NoPermission)
    }

    /// Why the node refuses a command.
    pub(crate) fn refusal(&self, command: &str) -> Option<Cause> {
        self.refused.iter().find(|(name, _)| *name == command).map(|(_, cause)| *cause)
    }

    /// Whether the node can grant a lock now.
    pub(crate) fn can_vote(&self) -> bool {
        let cause = self.refusal("SET");
        // Keys other than the one that was tried may be permitted.
        self.state == NodeState::Admitted && cause.is_none_or(|cause| cause == Cause::KeyDenied)
    }

    /// How the node may lose locks in a restart; `None` if it keeps every write.
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

/// What a running command says about a node.
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
            "grant the user +eval +evalsha +get +del +pexpire, or run Valkey 9 or Redis 8.4 there"
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
        Cause::SaveFailed => "repair its disk, or the permission to write there",
        Cause::NoReplicas => "set min-replicas-to-write 0 there",
        Cause::KeyDenied => "grant the user the keys of the locks",
        Cause::Loading => "wait until the dataset is loaded",
        Cause::Busy => "end the script that runs there (script kill)",
        Cause::Stalled | Cause::Timeout => "look whether the server is frozen or overloaded",
        _ => "look at the server and its log",
    }
}

#[cfg(test)]
pub(crate) mod tests {
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
        Clients { quorum, guard_is_on, max_ttl: Duration::from_secs(30), has_key: false }
    }

    fn three() -> Vec<Examined> {
        vec![fit("a"), fit("b"), fit("c")]
    }

    #[test]
    fn three_fit_nodes_need_no_word() {
        let advice = advise(&three(), &clients(2, true));
        assert!(advice.unsafe_because.is_empty() && advice.notes.is_empty(), "{advice:?}");
        assert!(advice.checks.iter().all(|check| check.level == Level::Ok), "{advice:?}");
    }

    #[test]
    fn one_refused_node_makes_the_set_unsafe_and_one_that_is_away_does_not() {
        let mut nodes = three();
        nodes[0].state = NodeState::Refused;
        nodes[0].cause = Cause::Eviction;
        let advice = advise(&nodes, &clients(2, true));
        assert!(advice.unsafe_because[0].text.contains("noeviction"), "{advice:?}");

        nodes[0].state = NodeState::Disconnected;
        nodes[0].cause = Cause::ConnectionRefused;
        let advice = advise(&nodes, &clients(2, true));
        assert!(!advice.is_unsafe(), "{advice:?}");
        assert!(advice.notes[0].text.contains("start the server"), "{advice:?}");
    }

    #[test]
    fn without_the_guard_only_fsync_always_is_safe() {
        let mut nodes = three();
        assert_eq!(advise(&nodes, &clients(2, false)).unsafe_because.len(), 3);
        for node in &mut nodes {
            node.append_only = Some(true);
            node.append_fsync = Some("always".to_owned());
        }
        assert!(!advise(&nodes, &clients(2, false)).is_unsafe());
        nodes[1].fsync_pauses = Some(true);
        let advice = advise(&nodes, &clients(2, false));
        assert!(advice.unsafe_because[0].text.starts_with("answers before"), "{advice:?}");
        nodes[1].append_fsync = None;
        let advice = advise(&nodes, &clients(2, false));
        assert!(advice.unsafe_because[0].text.contains("+config|get"), "{advice:?}");
    }

    /// What is denied, and the words of the remedy.
    #[test]
    fn what_the_user_may_not_do_is_said_with_what_to_grant() {
        use Cause::{KeyDenied, NoPermission, OutOfMemory};
        let all = ["DELIFEQ", "DELEX", "EVAL"].map(|command| (command, NoPermission));
        type Refused = (&'static str, Cause);
        let table: [(&[Refused], bool, &str); 9] = [
            (&[("SET", NoPermission)], true, "grant +set"),
            (&[("SET", KeyDenied)], false, "--key NAME"),
            (&[("SET", OutOfMemory)], false, "raise maxmemory"),
            (&all, true, "grant the user +eval"),
            (&all[..1], false, "grant +delifeq"),
            (&[("GET", NoPermission), ("PTTL", NoPermission)], false, "grant +get +pttl"),
            (&[("PUBLISH", KeyDenied)], false, "&redbolt:*"),
            (&[(MARKER, KeyDenied)], false, "~redbolt:since:*"),
            (&[("CLIENT CACHING", NoPermission)], false, "grant +client|tracking +client|caching"),
        ];
        for (refused, is_unsafe, words) in table {
            let mut nodes = three();
            nodes[0].refused = refused.to_vec();
            let advice = advise(&nodes, &clients(2, true));
            assert_eq!(advice.is_unsafe(), is_unsafe, "{refused:?}: {advice:?}");
            let said = if is_unsafe { &advice.unsafe_because } else { &advice.notes };
            assert!(said.len() == 1 && said[0].text.contains(words), "{refused:?}: {advice:?}");
        }
    }

    #[test]
    fn a_node_that_hears_no_messages_is_worth_a_word_where_it_could() {
        let mut nodes = three();
        for (node, resp3) in [(0, true), (1, false)] {
            (nodes[node].direct_wake, nodes[node].resp3) = (false, resp3);
        }
        let advice = advise(&nodes, &clients(2, true));
        assert!(advice.unsafe_because.is_empty() && advice.notes.len() == 1, "{advice:?}");
        assert!(advice.notes[0].text.contains("+subscribe"), "{advice:?}");
    }

    #[test]
    fn memory_is_worth_a_word_when_it_runs_short() {
        let mut nodes = three();
        nodes[0].maxmemory = Some(100);
        nodes[0].used_memory = Some(79);
        assert!(advise(&nodes, &clients(2, true)).notes.is_empty());
        nodes[0].used_memory = Some(80);
        assert!(advise(&nodes, &clients(2, true)).notes[0].text.contains("80 %"));
    }
}

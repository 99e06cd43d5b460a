//! What makes a node unsafe, what is only worth knowing about it, and how to repair both.

use std::time::Duration;

use redbolt::Cause;
use redbolt::inspect::NodeState;

use crate::examined::{Clients, Examined, RELEASING};
use crate::fitness::{Check, Level, QUORUM, judge_set};
use crate::inspect::SET_MARKER;
use crate::output::short;
use crate::remedy::{remedy, with_remedy};

/// The state and the remedy of a node whose last replica is gone.
const HAD_REPLICAS: &str = "had replicas until lately: it votes when repl-backlog-ttl (1 h by \
                            default) is over. If none of them can be promoted any more, CONFIG SET \
                            repl-backlog-ttl 1 ends the wait";

/// The doctor's findings.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    /// What was found on single nodes, each with its remedy.
    pub(crate) findings: Vec<Finding>,
    /// Checks of all nodes together.
    pub(crate) checks: Vec<Check>,
}

/// A finding about one node.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) node: String,
    pub(crate) level: Level,
    pub(crate) text: String,
}

/// The doctor mentions memory in use from this percentage of the limit on.
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
    /// The worst of all findings.
    pub(crate) fn verdict(&self) -> Level {
        let findings = self.findings.iter().map(|finding| finding.level);
        let worst = findings.chain(self.checks.iter().map(|check| check.level)).max();
        worst.filter(|level| *level > Level::Note).unwrap_or(Level::Ok)
    }

    /// Whether two clients could hold the same lock.
    pub(crate) fn is_unsafe(&self) -> bool {
        self.findings.iter().any(|finding| finding.level == Level::Unsafe)
            || self.checks.iter().any(|it| it.level == Level::Unsafe && it.topic != QUORUM)
    }

    /// The findings of a level on single nodes.
    pub(crate) fn of(&self, level: Level) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.level == level)
    }
}

fn judge_node(node: &Examined, clients: &Clients, advice: &mut Advice) {
    let mut judge = Judge { node, advice };
    judge.state(clients.max_ttl);
    if !clients.guard_is_on
        && node.was_asked()
        && let Some(reason) = node.may_forget()
    {
        judge.find(
            Level::Unsafe,
            format!(
            "{reason}, so it may forget locks in a restart, and the restart guard is off: turn the \
             guard on, or set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no"
        ));
    }
    if node.state != NodeState::Refused {
        judge.taking(clients);
        // A user who takes no locks needs nothing else.
        if !node.is_denied("SET") {
            judge.releasing();
            judge.scripts();
            judge.waiting();
        }
    }
    judge.memory();
    judge.history(clients);
}

/// What happened to a node that waits `left` for its vote. A node that restarted waits until its
/// age reaches the longest TTL, with a margin for clock drift and whole seconds. A node with a
/// replica waits 13 s more, for it may have been promoted just before.
fn since_when(node: &Examined, left: Duration, max_ttl: Duration) -> String {
    let most = max_ttl + max_ttl / 50 + Duration::from_secs(3);
    let extra = Duration::from_secs(if node.was_replica || !node.fails_over { 0 } else { 13 });
    match node.uptime {
        None => "restarted a short time ago".to_owned(),
        Some(age) if age + left > most + extra => "was promoted".to_owned(),
        Some(age) if age < Duration::from_secs(1) => "restarted just now".to_owned(),
        Some(age) => format!("restarted {} ago", short(age)),
    }
}

/// One node, and where its findings go.
struct Judge<'a> {
    node: &'a Examined,
    advice: &'a mut Advice,
}

impl Judge<'_> {
    fn find(&mut self, level: Level, text: impl Into<String>) {
        let finding = Finding { node: self.node.name.clone(), level, text: text.into() };
        self.advice.findings.push(finding);
    }

    fn note(&mut self, text: impl Into<String>) {
        self.find(Level::Note, text);
    }

    /// The node has no vote.
    fn degrade(&mut self, text: impl Into<String>) {
        self.find(Level::Degraded, text);
    }

    fn state(&mut self, max_ttl: Duration) {
        let node = self.node;
        if let NodeState::Quarantined(left) = node.state {
            let what = since_when(node, left, max_ttl);
            let left = short(left);
            self.degrade(format!("{what} and may have forgotten locks; it votes again in {left}"));
        } else if node.state != NodeState::Admitted {
            let had_replicas = node.fails_over && node.replicas == 0;
            self.degrade(if node.cause == Cause::Unguarded && had_replicas {
                HAD_REPLICAS.to_owned()
            } else {
                with_remedy(node.cause)
            });
        }
    }

    /// Whether the user can take locks there.
    fn taking(&mut self, clients: &Clients) {
        match self.node.refusal("SET") {
            None => {}
            Some(Cause::NoPermission) => {
                self.degrade(
                    "this user may not run SET, so it can take no locks: run doctor as the user of \
                     your clients (to that user grant +set)",
                );
            }
            Some(Cause::KeyDenied) if clients.has_key => self.degrade(
                "the user may not touch this key, so the lock cannot be taken there: grant a \
                 pattern that it matches",
            ),
            Some(Cause::KeyDenied) => self.note(
                "the user may touch only some keys: redbolt doctor --key NAME says whether the \
                 lock NAME is one of them",
            ),
            Some(cause) => {
                self.degrade(format!("no lock can be taken there now: {}", with_remedy(cause)));
            }
        }
    }

    /// Whether the user can release locks there.
    fn releasing(&mut self) {
        if !self.node.can_release() {
            let remedy = remedy(Cause::NoDialect);
            self.degrade(format!("no permitted command can release a lock: {remedy}"));
            return;
        }
        let mut native = RELEASING.into_iter().take(2);
        if let Some(native) = native.find(|command| self.node.is_denied(command)) {
            self.note(format!(
                "locks are released there by a slower way than {native}: grant +{}",
                native.to_lowercase()
            ));
        }
    }

    /// Whether the user can take locks with a fence there, and whether locks can be handed over.
    fn scripts(&mut self) {
        if self.node.is_denied("EVAL") {
            self.note(
                "the user may not run EVAL, so the node does not vote for locks with --fence, and \
                 a lock goes to a waiter in two round trips instead of one: grant +eval",
            );
        } else if self.node.is_denied("DEL") {
            self.note(
                "the user may not run DEL, so a lock that is waited for changes hands in two round \
                 trips instead of one: grant +del",
            );
        }
    }

    /// Whether releases wake waiters there, and whether locks can be looked up.
    fn waiting(&mut self) {
        let commands = ["GET", "PTTL", "PUBLISH"];
        let mut denied: Vec<&str> =
            commands.into_iter().filter(|command| self.node.is_denied(command)).collect();
        let has_publish = self.node.refusal("PUBLISH") != Some(Cause::KeyDenied);
        let is_deaf = self.node.resp3 && !self.node.direct_wake;
        if self.node.state == NodeState::Admitted && is_deaf && has_publish {
            denied.push("SUBSCRIBE");
        }
        if self.node.state == NodeState::Admitted && !self.node.resp3 {
            self.note("speaks RESP2 only, so a waiter polls for the lock: RESP3 needs HELLO there");
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
                "the user may not use the channels redbolt:*, so the release of a lock wakes no \
                 waiter: grant &redbolt:*",
            );
        }
        if self.node.refusal(SET_MARKER) == Some(Cause::KeyDenied) {
            self.note(
                "the user may not write the keys redbolt:since:*. After a promotion of this node, \
                 or a restart with replicas, each new client ignores its vote for the longest TTL: \
                 grant ~redbolt:since:*",
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
        if node.was_asked() && node.policy.is_none() {
            self.note(
                "does not tell its maxmemory-policy, so it may evict locks unnoticed: ask its \
                 operator whether the policy is noeviction",
            );
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

    fn history(&mut self, clients: &Clients) {
        let node = self.node;
        if let Some(what) = node.failed_save {
            self.note(format!("{what} failed, so it may refuse locks: repair its disk"));
        }
        if node.fails_over && !clients.failover_guard_is_on {
            self.find(
                Level::Unsafe,
                "may fail over, and --failover-guard is off: two holders are possible if a replica is \
                 promoted while this master serves clients",
            );
        } else if node.fails_over && node.state == NodeState::Admitted {
            self.note(format!(
                "connected replicas: {}. This master grants no locks while a replica is away. \
                 After a failover or a restart it waits 13 s longer than others: prefer a master \
                 without replicas",
                node.replicas
            ));
        } else if node.was_replica && node.role.as_deref() == Some("master") {
            self.note(
                "was a replica before it became a master, or had replicas before a restart, so it \
                 may have lost locks: run lock nodes without replicas",
            );
        }
        if node.info_denied {
            self.note("denies INFO, so eviction, restarts and duplicates go unseen: grant +info");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examined::samples::{clients, fit};

    fn three() -> Vec<Examined> {
        vec![fit("a"), fit("b"), fit("c")]
    }

    #[test]
    fn three_fit_nodes_need_no_word() {
        let advice = advise(&three(), &clients(2, true));
        assert!(advice.findings.is_empty(), "{advice:?}");
        assert!(advice.checks.iter().all(|check| check.level == Level::Ok), "{advice:?}");
    }

    #[test]
    fn a_node_that_does_not_tell_its_policy_may_evict_locks() {
        let mut nodes = three();
        nodes[1].policy = None;
        let advice = advise(&nodes, &clients(2, true));
        let found: Vec<_> = advice.of(Level::Note).map(|it| (&*it.node, &*it.text)).collect();
        assert!(
            matches!(found[..], [("b", text)] if text.contains("may evict locks unnoticed")),
            "{found:?}"
        );
    }

    #[test]
    fn a_node_without_a_vote_degrades_the_set_and_two_of_three_make_locks_impossible() {
        let table = [
            (NodeState::Refused, Cause::Eviction, "noeviction"),
            (NodeState::Refused, Cause::Replica, "an independent master"),
            (NodeState::Refused, Cause::Credentials, "check the user and the password"),
            (NodeState::Disconnected, Cause::ConnectionRefused, "start the server"),
        ];
        for (state, cause, words) in table {
            let mut nodes = three();
            (nodes[0].state, nodes[0].cause) = (state, cause);
            let advice = advise(&nodes, &clients(2, true));
            assert_eq!(advice.verdict(), Level::Degraded, "{advice:?}");
            assert_eq!(advice.findings[0].level, Level::Degraded, "{advice:?}");
            assert!(advice.findings[0].text.contains(words), "{advice:?}");
            (nodes[1].state, nodes[1].cause) = (state, cause);
            let advice = advise(&nodes, &clients(2, true));
            assert_eq!(advice.verdict(), Level::Unsafe, "{advice:?}");
            assert!(!advice.is_unsafe(), "{advice:?}");
        }
    }

    #[test]
    fn a_node_that_waits_for_its_vote_is_said_to_have_restarted_or_to_be_promoted() {
        let table = [
            (Some(0), 30, "restarted just now and"),
            (Some(12), 19, "restarted 12.0 s ago and"),
            (Some(102), 5, "was promoted and"),
            (None, 5, "restarted a short time ago and"),
        ];
        for (uptime, left, words) in table {
            let mut nodes = three();
            nodes[0].state = NodeState::Quarantined(Duration::from_secs(left));
            nodes[0].uptime = uptime.map(Duration::from_secs);
            let advice = advise(&nodes, &clients(2, true));
            let text = &advice.findings[0].text;
            assert!(text.starts_with(words), "{text}");
        }
    }

    #[test]
    fn a_master_that_may_fail_over_is_worth_a_word_and_unsafe_without_its_guard() {
        let mut nodes = three();
        (nodes[0].fails_over, nodes[0].replicas, nodes[0].was_replica) = (true, 1, true);
        let advice = advise(&nodes, &clients(2, true));
        assert!(advice.verdict() == Level::Ok && advice.findings.len() == 1, "{advice:?}");
        assert!(advice.findings[0].text.starts_with("connected replicas: 1."), "{advice:?}");
        let off = Clients { failover_guard_is_on: false, ..clients(2, true) };
        assert!(advise(&nodes, &off).is_unsafe());
        (nodes[0].state, nodes[0].cause) = (NodeState::Refused, Cause::Unguarded);
        let advice = advise(&nodes, &clients(2, true));
        assert_eq!(advice.verdict(), Level::Degraded, "{advice:?}");
        let text = &advice.findings[0].text;
        assert!(text.starts_with("may fail over, and would go on granting then: two "), "{text}");
        nodes[0].replicas = 0;
        let advice = advise(&nodes, &clients(2, true));
        assert!(advice.findings[0].text.contains("repl-backlog-ttl 1"), "{advice:?}");
    }

    #[test]
    fn without_the_guard_only_fsync_always_is_safe() {
        let mut nodes = three();
        assert_eq!(advise(&nodes, &clients(2, false)).of(Level::Unsafe).count(), 3);
        for node in &mut nodes {
            node.append_only = Some(true);
            node.append_fsync = Some("always".to_owned());
        }
        assert!(!advise(&nodes, &clients(2, false)).is_unsafe());
        nodes[1].fsync_pauses = Some(true);
        let advice = advise(&nodes, &clients(2, false));
        assert!(advice.is_unsafe() && advice.verdict() == Level::Unsafe, "{advice:?}");
        assert!(advice.findings[0].text.starts_with("answers before"), "{advice:?}");
        nodes[1].append_fsync = None;
        let advice = advise(&nodes, &clients(2, false));
        assert!(advice.findings[0].text.contains("+config|get"), "{advice:?}");
    }

    /// The denied rights, and the words of the remedy.
    #[test]
    fn what_the_user_may_not_do_is_said_with_what_to_grant() {
        use Cause::{KeyDenied, NoPermission, OutOfMemory};
        let all = ["DELIFEQ", "DELEX", "EVAL"].map(|command| (command, NoPermission));
        type Refused = (&'static str, Cause);
        let table: [(&[Refused], Level, &str); 10] = [
            (&[("SET", NoPermission)], Level::Degraded, "grant +set"),
            (&[("SET", KeyDenied)], Level::Ok, "--key NAME"),
            (&[("SET", OutOfMemory)], Level::Degraded, "raise maxmemory"),
            (&all, Level::Degraded, "grant the user +eval"),
            (&all[..1], Level::Ok, "grant +delifeq"),
            (&all[2..], Level::Ok, "instead of one: grant +eval"),
            (&[("DEL", NoPermission)], Level::Ok, "instead of one: grant +del"),
            (&[("GET", NoPermission), ("PTTL", NoPermission)], Level::Ok, "grant +get +pttl"),
            (&[("PUBLISH", KeyDenied)], Level::Ok, "&redbolt:*"),
            (&[(SET_MARKER, KeyDenied)], Level::Ok, "~redbolt:since:*"),
        ];
        for (refused, verdict, words) in table {
            let mut nodes = three();
            nodes[0].refused = refused.to_vec();
            let advice = advise(&nodes, &clients(2, true));
            assert_eq!(advice.verdict(), verdict, "{refused:?}: {advice:?}");
            let first = &advice.findings[0];
            assert!(first.text.contains(words), "{refused:?}: {advice:?}");
            assert_eq!(advice.of(first.level).count(), 1, "{refused:?}: {advice:?}");
        }
    }

    #[test]
    fn a_node_that_hears_no_messages_is_worth_a_word_where_it_could() {
        let mut nodes = three();
        for (node, resp3) in [(0, true), (1, false)] {
            (nodes[node].direct_wake, nodes[node].resp3) = (false, resp3);
        }
        let advice = advise(&nodes, &clients(2, true));
        assert!(advice.verdict() == Level::Ok && advice.findings.len() == 2, "{advice:?}");
        assert!(advice.findings[0].text.contains("+subscribe"), "{advice:?}");
        assert!(advice.findings[1].text.contains("RESP2 only"), "{advice:?}");
    }

    #[test]
    fn memory_is_worth_a_word_when_it_runs_short() {
        let mut nodes = three();
        nodes[0].maxmemory = Some(100);
        nodes[0].used_memory = Some(79);
        assert!(advise(&nodes, &clients(2, true)).findings.is_empty());
        nodes[0].used_memory = Some(80);
        assert!(advise(&nodes, &clients(2, true)).findings[0].text.contains("80 %"));
    }
}

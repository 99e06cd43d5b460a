//! What makes a node unsafe, what is only worth knowing about it, and how to repair both.

use redbolt::Cause;
use redbolt::inspect::NodeState;

use crate::examined::{Clients, Examined};
use crate::fitness::{Check, Level, judge_set};
use crate::output::short;
use crate::remedy::remedy;

/// The name of a refused marker among the commands.
const MARKER: &str = "SET redbolt:since:*";

/// The doctor's findings.
#[derive(Debug, Default)]
pub(crate) struct Advice {
    /// Reasons why locks would be unsafe or impossible, each with its remedy.
    pub(crate) unsafe_because: Vec<Finding>,
    /// Facts that are worth knowing about a node but do not make locks unsafe.
    pub(crate) notes: Vec<Finding>,
    /// Checks of all nodes together.
    pub(crate) checks: Vec<Check>,
}

/// A finding about one node.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) node: String,
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
        // A user who takes no locks needs nothing else.
        if !node.is_denied("SET") {
            judge.releasing();
            judge.scripts();
            judge.waiting();
        }
    }
    judge.memory();
    judge.history();
}

/// One node, and the place for its findings.
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

    /// Whether the user can take locks there.
    fn taking(&mut self, clients: &Clients) {
        match self.node.refusal("SET") {
            None => {}
            Some(Cause::NoPermission) => {
                self.refuse(
                    "this user may take no locks, as it may not run SET: give doctor the user of \
                     your clients (to the user of clients grant +set)",
                );
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

    /// Whether the user can release locks there.
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

    /// Whether the user can take locks with a fence there, and whether locks can be handed over.
    fn scripts(&mut self) {
        if self.node.is_denied("EVAL") {
            self.note(
                "the user may not run EVAL, so the node does not vote for locks with a fence (--fence), \
                 and a lock that is waited for changes hands in two round trips instead of one: \
                 grant +eval",
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

    /// The denied rights, and the words of the remedy.
    #[test]
    fn what_the_user_may_not_do_is_said_with_what_to_grant() {
        use Cause::{KeyDenied, NoPermission, OutOfMemory};
        let all = ["DELIFEQ", "DELEX", "EVAL"].map(|command| (command, NoPermission));
        type Refused = (&'static str, Cause);
        let table: [(&[Refused], bool, &str); 10] = [
            (&[("SET", NoPermission)], true, "grant +set"),
            (&[("SET", KeyDenied)], false, "--key NAME"),
            (&[("SET", OutOfMemory)], false, "raise maxmemory"),
            (&all, true, "grant the user +eval"),
            (&all[..1], false, "grant +delifeq"),
            (&all[2..], false, "instead of one: grant +eval"),
            (&[("DEL", NoPermission)], false, "instead of one: grant +del"),
            (&[("GET", NoPermission), ("PTTL", NoPermission)], false, "grant +get +pttl"),
            (&[("PUBLISH", KeyDenied)], false, "&redbolt:*"),
            (&[(MARKER, KeyDenied)], false, "~redbolt:since:*"),
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

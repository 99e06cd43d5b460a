//! Checks of a set of nodes together: quorum, persistence, guard, clocks, versions, access.

use std::collections::BTreeMap;
use std::time::Duration;

use redbolt::Cause;
use redbolt::inspect::{NodeId, NodeMask, NodeState};

use crate::examined::{Clients, Examined};
use crate::output::{counted, short};

/// How bad a finding is, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Ok,
    /// Worth knowing.
    Note,
    /// A node has no vote; locks are safe.
    Degraded,
    /// Locks would be unsafe or impossible.
    Unsafe,
}

impl Level {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Degraded => "degraded",
            Self::Unsafe => "unsafe",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) topic: &'static str,
    pub(crate) level: Level,
    pub(crate) text: String,
}

/// The check that finds whether locks are possible at all.
pub(crate) const QUORUM: &str = "quorum";

/// The doctor names wall clocks that are further apart than this, or than `max_clock_skew` if that is
/// less.
const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(1);

/// The oldest version of each server that the tests run on.
const TESTED: [(&str, u32, u32); 2] = [("redis", 7, 0), ("valkey", 8, 1)];

/// Judges the facts that no single node shows.
pub(crate) fn judge_set(nodes: &[Examined], clients: &Clients) -> Vec<Check> {
    let check = |topic, (level, text)| Check { topic, level, text };
    vec![
        check(QUORUM, quorums(nodes, clients)),
        check("persistence", persistence(nodes, clients)),
        check("guard", guard(nodes, clients)),
        check("clocks", clocks(nodes, clients)),
        check("versions", versions(nodes)),
        check("access", access(nodes)),
    ]
}

/// Judges the quorum of each list. The worst counts.
fn quorums(nodes: &[Examined], clients: &Clients) -> (Level, String) {
    let of = |&(list, votes): &(NodeMask, usize)| {
        let ids = (0..).map_while(NodeId::new);
        let of_list = nodes.iter().zip(ids).filter(|(_, id)| list.contains(*id));
        quorum(&of_list.map(|(node, _)| node).collect::<Vec<_>>(), votes, clients)
    };
    let found: Vec<(Level, String)> = clients.lists.iter().map(of).collect();
    let level = found.iter().map(|(level, _)| *level).max().unwrap_or(Level::Ok);
    let texts: Vec<String> = found.into_iter().map(|(_, text)| text).collect();
    (level, texts.join("; of the next list: "))
}

fn quorum(nodes: &[&Examined], quorum: usize, clients: &Clients) -> (Level, String) {
    let count = nodes.len();
    let voting = nodes.iter().filter(|node| node.can_vote(clients.has_key)).count();
    let Some(spare) = voting.checked_sub(quorum) else {
        let denied =
            nodes.iter().filter(|node| node.state == NodeState::Admitted && node.is_denied("SET"));
        let well = voting + denied.count();
        if well >= quorum {
            let text = format!(
                "{well} of {count} nodes vote, and this user may take no locks: run doctor as the \
                 user of your clients"
            );
            return (Level::Unsafe, text);
        }
        let mut waits: Vec<Duration> = nodes.iter().copied().filter_map(quarantine).collect();
        waits.sort_unstable();
        let remedy = match waits.get(quorum - voting - 1) {
            Some(wait) => format!("wait {} until enough restarted nodes may vote", short(*wait)),
            None => "start or repair the nodes above".to_owned(),
        };
        let text = format!(
            "only {voting} of {} can vote, and a lock needs {quorum}, so no client can take one: {remedy}",
            counted(count, "node")
        );
        return (Level::Unsafe, text);
    };
    let votes = format!("{voting} of {count} nodes vote, {quorum} make a lock");
    let level = if voting < count { Level::Degraded } else { Level::Ok };
    if quorum == count {
        let text = format!(
            "{votes}: every node must answer for every lock; add nodes so that one may fail"
        );
        return (Level::Note, text);
    }
    if spare == 0 {
        let text =
            format!("{votes}: one more failure stops new locks; repair the nodes without a vote");
        return (level, text);
    }
    if count.is_multiple_of(2) && quorum == count / 2 + 1 {
        let less = count - 1;
        let text = format!("{votes}: as many may fail as with {less}; an odd number is better");
        return (level.max(Level::Note), text);
    }
    let failures = if spare == 1 { "failure" } else { "failures" };
    (level, format!("{votes}: new locks survive {spare} more {failures}"))
}

const fn quarantine(node: &Examined) -> Option<Duration> {
    if let NodeState::Quarantined(left) = node.state { Some(left) } else { None }
}

fn persistence(nodes: &[Examined], clients: &Clients) -> (Level, String) {
    if !nodes.iter().any(Examined::was_asked) {
        return nothing_known();
    }
    let forgetful = names(nodes, |node| node.was_asked() && node.may_forget().is_some());
    if forgetful.is_empty() {
        let text = "every write is on disk before it is answered: a restart forgets no lock";
        let unknown = names(nodes, |node| !node.was_asked());
        let unknown =
            if unknown.is_empty() { unknown } else { format!(" (not known of {unknown})") };
        return (Level::Ok, format!("{text}{unknown}"));
    }
    if clients.guard_is_on {
        let text = format!("a restart may forget locks, which the guard covers ({forgetful})");
        return (Level::Ok, text);
    }
    (Level::Unsafe, format!("a restart may forget locks, and no guard covers it ({forgetful})"))
}

fn nothing_known() -> (Level, String) {
    (Level::Note, "not known: no node could be asked".to_owned())
}

fn guard(nodes: &[Examined], clients: &Clients) -> (Level, String) {
    let ttl = short(clients.max_ttl);
    if !clients.guard_is_on {
        if nodes.iter().any(|node| node.was_asked() && node.may_forget().is_some()) {
            let text = "off: a restarted node votes at once, whatever it forgot";
            return (Level::Unsafe, text.to_owned());
        }
        let unknown = names(nodes, |node| !node.was_asked());
        let rule = "safe while every node keeps every write";
        return if unknown.is_empty() {
            (Level::Ok, format!("off, which is {rule}"))
        } else {
            (Level::Note, format!("off, which is {rule}; not known of {unknown}"))
        };
    }
    let waiting = nodes.iter().filter_map(quarantine).count();
    let rule = format!(
        "on: a restarted node votes after the longest TTL, {ttl} (--max-ttl, the same for all \
         clients)"
    );
    if waiting == 0 {
        (Level::Ok, rule)
    } else {
        (Level::Note, format!("{rule}; {waiting} of {} nodes still wait", nodes.len()))
    }
}

fn clocks(nodes: &[Examined], clients: &Clients) -> (Level, String) {
    let limit = CLOCK_OFFSET_MAX.min(clients.max_clock_skew);
    let is_far = |us: u64, limit: Duration| Duration::from_micros(us) > limit;
    let clocks = || nodes.iter().filter_map(|node| node.clock_us.map(|us| (us, &node.name)));
    let mut wrong = Vec::new();
    for (us, name) in clocks().filter(|(us, _)| is_far(us.unsigned_abs(), limit)) {
        let by = short(Duration::from_micros(us.unsigned_abs()));
        let side = if us > 0 { "ahead of" } else { "behind" };
        wrong.push(format!("{name} is {by} {side} this machine"));
    }
    if let (Some((least, slow)), Some((most, fast))) = (clocks().min(), clocks().max())
        && wrong.len() > 1
        && is_far(most.abs_diff(least), limit)
    {
        let apart = short(Duration::from_micros(most.abs_diff(least)));
        wrong.push(format!("{slow} and {fast} are {apart} apart"));
    }
    if !wrong.is_empty() {
        let no_votes = clocks().any(|(us, _)| is_far(us.unsigned_abs(), clients.max_clock_skew));
        let fences = if no_votes {
            format!(
                "; beyond {} (--max-clock-skew) a node does not vote for locks with a fence",
                short(clients.max_clock_skew)
            )
        } else {
            String::new()
        };
        let text = format!(
            "{}: set them by NTP, and never by a jump: a node's clock that jumps forward ends \
             locks early{fences}",
            wrong.join("; ")
        );
        return (Level::Note, text);
    }
    let unknown = names(nodes, |node| node.was_asked() && node.clock_us.is_none());
    match clocks().map(|(us, _)| us.unsigned_abs()).max() {
        _ if !unknown.is_empty() => {
            (Level::Note, format!("not known of {unknown}: grant the user +time"))
        }
        None => nothing_known(),
        Some(_) => (Level::Ok, format!("all within {} of this machine's", short(limit))),
    }
}

fn versions(nodes: &[Examined]) -> (Level, String) {
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    for server in nodes.iter().filter_map(|node| node.server.as_deref()) {
        *groups.entry(server).or_default() += 1;
    }
    if groups.is_empty() {
        return nothing_known();
    }
    let all = groups.iter().map(|(server, count)| format!("{count} x {server}"));
    let all = all.collect::<Vec<_>>().join(", ");
    let untested: Vec<&str> = groups.into_keys().filter(|server| !is_tested(server)).collect();
    if !untested.is_empty() {
        let text = format!(
            "{all}; redbolt is tested on Redis 7.0 and later and Valkey 8.1 and later, and not on \
             {}",
            untested.join(", ")
        );
        return (Level::Note, text);
    }
    (Level::Ok, all)
}

fn is_tested(server: &str) -> bool {
    let Some((name, version)) = server.split_once(' ') else { return false };
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let Some(major) = numbers.next() else { return false };
    let found = (major, numbers.next().unwrap_or(0));
    TESTED.iter().any(|(tested, major, minor)| {
        tested.eq_ignore_ascii_case(name) && found >= (*major, *minor)
    })
}

fn access(nodes: &[Examined]) -> (Level, String) {
    let locked_out = names(nodes, |node| node.cause == Cause::Credentials);
    if !locked_out.is_empty() {
        return (Level::Degraded, format!("user or password refused: {locked_out}"));
    }
    if !nodes.iter().any(Examined::was_asked) {
        return nothing_known();
    }
    let denied = names(nodes, |node| {
        node.refused
            .iter()
            .any(|(_, cause)| matches!(cause, Cause::NoPermission | Cause::KeyDenied))
    });
    if !denied.is_empty() {
        return (Level::Note, format!("the user is denied some of what locks need: {denied}"));
    }
    let open = names(nodes, |node| node.was_asked() && !node.has_login && !node.is_local);
    if !open.is_empty() {
        let text = format!(
            "the nodes ask for no user or password, so anyone who reaches one can delete its locks: \
             {open}"
        );
        return (Level::Note, text);
    }
    (Level::Ok, "the user may do all that locks need".to_owned())
}

/// The names of the nodes for which `is_so` holds.
fn names(nodes: &[Examined], is_so: impl Fn(&Examined) -> bool) -> String {
    let names: Vec<&str> =
        nodes.iter().filter(|node| is_so(node)).map(|node| node.name.as_str()).collect();
    if names.len() == nodes.len() && names.len() > 1 {
        "all nodes".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examined::samples::{clients, fit};

    fn find<'a>(checks: &'a [Check], topic: &str) -> &'a Check {
        checks.iter().find(|check| check.topic == topic).expect("a check of that topic")
    }

    #[test]
    fn a_missing_quorum_is_said_with_the_wait_that_mends_it() {
        let mut nodes = [fit("a"), fit("b"), fit("c")];
        for (node, left) in nodes.iter_mut().zip([4, 9]) {
            node.state = NodeState::Quarantined(Duration::from_secs(left));
        }
        let checks = judge_set(&nodes, &clients(2, true));
        assert_eq!(find(&checks, "quorum").level, Level::Unsafe);
        assert!(find(&checks, "quorum").text.contains("wait 4.0 s"), "{checks:?}");
        assert!(find(&checks, "guard").text.contains("2 of 3 nodes still wait"), "{checks:?}");
    }

    #[test]
    fn a_guard_that_is_off_is_not_called_safe_for_nodes_that_nobody_asked() {
        let mut nodes = [fit("a"), fit("b"), fit("c")];
        for node in &mut nodes {
            node.append_only = Some(true);
            node.append_fsync = Some("always".to_owned());
        }
        let guard = |nodes: &[Examined]| {
            let checks = judge_set(nodes, &clients(2, false));
            (find(&checks, "guard").level, find(&checks, "guard").text.clone())
        };
        assert_eq!(guard(&nodes).0, Level::Ok, "{:?}", guard(&nodes));
        nodes[1].is_reachable = false;
        assert_eq!(guard(&nodes).0, Level::Note);
        assert!(guard(&nodes).1.ends_with("not known of b"), "{:?}", guard(&nodes));
    }

    #[test]
    fn a_quorum_without_a_spare_vote_is_worth_a_word() {
        let mut nodes = vec![fit("a"), fit("b"), fit("c")];
        nodes[0].state = NodeState::Disconnected;
        let said = |nodes: &[Examined], quorum, level, part: &str| {
            let checks = judge_set(nodes, &clients(quorum, true));
            assert_eq!(find(&checks, "quorum").level, level, "{checks:?}");
            assert!(find(&checks, "quorum").text.contains(part), "{checks:?}");
        };
        said(&nodes, 2, Level::Degraded, "one more failure");
        nodes[0].state = NodeState::Admitted;
        said(&nodes, 3, Level::Note, "every node must answer");
        nodes.push(fit("d"));
        said(&nodes, 3, Level::Note, "an odd number");
        nodes.push(fit("e"));
        said(&nodes, 3, Level::Ok, "new locks survive 2 more failures");
        nodes[0].state = NodeState::Disconnected;
        said(&nodes, 3, Level::Degraded, "new locks survive 1 more failure");
    }

    #[test]
    fn clocks_a_second_apart_are_named() {
        let mut nodes = [fit("a"), fit("b"), fit("c")];
        nodes[2].clock_us = Some(-3_000_000);
        let checks = judge_set(&nodes, &clients(2, true));
        let text = &find(&checks, "clocks").text;
        assert!(text.contains("c is 3.0 s behind"), "{text}");
        assert!(
            text.ends_with(
                "beyond 1.0 s (--max-clock-skew) a node does not vote for locks with a fence"
            ),
            "{text}"
        );
        let patient = Clients { max_clock_skew: Duration::from_secs(5), ..clients(2, true) };
        assert!(find(&judge_set(&nodes, &patient), "clocks").text.ends_with("ends locks early"));
    }

    #[test]
    fn servers_that_the_tests_do_not_know_are_named() {
        let table = [
            ("valkey 9.1.2", true),
            ("valkey 8.1.0", true),
            ("valkey 8.0.9", false),
            ("redis 7.0.15", true),
            ("redis 6.2.1", false),
            ("Redis 10.0", true),
            ("keydb 6.3.4", false),
            ("redis", false),
        ];
        for (server, tested) in table {
            assert_eq!(is_tested(server), tested, "{server}");
        }
        let mut nodes = [fit("a"), fit("b"), fit("c")];
        nodes[1].server = Some("redis 6.2.1".to_owned());
        let checks = judge_set(&nodes, &clients(2, true));
        assert!(find(&checks, "versions").text.ends_with("not on redis 6.2.1"), "{checks:?}");
        assert!(find(&checks, "versions").text.contains("2 x valkey 9.1.2"), "{checks:?}");
    }

    #[test]
    fn nodes_that_are_open_to_everybody_are_named() {
        let mut nodes = [fit("a"), fit("b"), fit("c")];
        nodes[1].has_login = false;
        let checks = judge_set(&nodes, &clients(2, true));
        assert_eq!(find(&checks, "access").level, Level::Note);
        nodes[1].is_local = true;
        let checks = judge_set(&nodes, &clients(2, true));
        assert_eq!(find(&checks, "access").level, Level::Ok);
    }
}

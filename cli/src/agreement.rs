//! Whether all clients of the locks have the settings on which they must agree. The doctor reads
//! the settings from the clients' names at the nodes.

use std::time::Duration;

use redbolt::Cause;
use redbolt::inspect::{Agreement, NodeList};
use serde_json::{Value, json};

use crate::examined::Examined;
use crate::exchange::Step;
use crate::exit::by_text;
use crate::fitness::{Check, Level};
use crate::holders::{client_json, named};
use crate::inspect::{Clients, SeenClient, Unlisted};
use crate::output::{add, ms};

/// The most clients that a report names to people one by one.
pub(crate) const SHOWN_MAX: usize = 20;

/// The doctor's knowledge of the other clients.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) checks: Vec<Check>,
    pub(crate) differing: Vec<Differing>,
    seen: Clients,
}

/// A client with other settings than this command.
#[derive(Debug)]
pub(crate) struct Differing {
    pub(crate) level: Level,
    client: SeenClient,
    settings: Vec<Difference>,
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Difference {
    setting: &'static str,
    theirs: String,
    ours: String,
}

/// Judges the lists of the nodes.
pub(crate) fn judge(seen: Clients, nodes: &[Examined], max_clock_skew: Duration) -> Agreed {
    // If every node keeps every write, no restart forgets a lock, and the guard guards nothing.
    let is_guarded = !nodes.iter().all(|node| node.was_asked() && node.may_forget().is_none());
    // Where no node has replicas, there is no failover to guard against.
    let fails_over = !nodes.iter().all(|node| node.was_asked() && !node.fails_over);
    let mut differing: Vec<Differing> = seen
        .others
        .iter()
        .filter_map(|client| compare(client, &seen.own, (is_guarded, fails_over)))
        .collect();
    let step = Step::of(&seen);
    // The worst come first. The sort is stable, so the others keep their order.
    differing.sort_by_key(|differing| differing.level != Level::Unsafe);
    let (level, text) = verdict(&seen, &differing);
    let mut checks = vec![Check { topic: "agreement", level, text }];
    checks.extend(step.map(|step| step.check(seen.own.max_ttl, max_clock_skew)));
    Agreed { checks, differing, seen }
}

/// How a client differs; `None` if it does not differ, or does not tell its settings.
fn compare(
    client: &SeenClient,
    own: &Agreement,
    (is_guarded, fails_over): (bool, bool),
) -> Option<Differing> {
    let theirs = client.name.agreement.as_ref()?;
    let mut settings = Vec::new();
    let mut level = Level::Note;
    let mut differ = |setting, is_unsafe, theirs: String, ours: String| {
        if theirs != ours {
            settings.push(Difference { setting, theirs, ours });
            if is_unsafe {
                level = Level::Unsafe;
            }
        }
    };
    if theirs.prefix != own.prefix {
        // Its locks are different ones, so nothing else needs to be the same.
        let prefix = |agreement: &Agreement| prefix(agreement.prefix.as_deref());
        differ("prefix", false, prefix(theirs), prefix(own));
    } else {
        let of = |count: u32| count.to_string();
        let (their_lists, own_lists) = (&theirs.lists, &own.lists);
        let in_both = |is_same: fn(&NodeList, &NodeList) -> bool| {
            their_lists.iter().any(|list| own_lists.iter().any(|own| is_same(list, own)))
        };
        let nodes = |lists: &[NodeList]| each(lists, |list| of(list.nodes));
        // Lists with different hashes may still name the same nodes. Lists of different lengths
        // cannot.
        if in_both(|list, own| list.nodes == own.nodes) {
            differ("lists", false, each(their_lists, shown), each(own_lists, shown));
        } else {
            differ("nodes", true, nodes(their_lists), nodes(own_lists));
        }
        // Any two majorities of the same nodes have one node in common.
        let quorum = |lists: &[NodeList]| each(lists, |list| of(list.quorum));
        if !in_both(|list, own| list.quorum == own.quorum) {
            differ("quorum", false, quorum(their_lists), quorum(own_lists));
        }
        differ("max_ttl", is_guarded, exact(theirs.max_ttl), exact(own.max_ttl));
        let guard = |is_on| on_or_off(is_on).to_owned();
        let (restart, failover) = (theirs.restart_guard, theirs.failover_guard);
        differ("restart_guard", is_guarded, guard(restart), guard(own.restart_guard));
        differ("failover_guard", fails_over, guard(failover), guard(own.failover_guard));
    }
    (!settings.is_empty()).then(|| Differing { level, client: client.clone(), settings })
}

/// `5 and next 7`: one property of the list of nodes, and the same property of the next list.
fn each(lists: &[NodeList], show: impl Fn(&NodeList) -> String) -> String {
    lists.iter().map(show).collect::<Vec<_>>().join(" and next ")
}

/// `5 nodes (1a2b3c4d)`.
fn shown(list: &NodeList) -> String {
    format!("{} nodes ({:08x})", list.nodes, list.hash)
}

/// In the form of the option: `30s`.
fn exact(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// `none`, or the beginning of the prefix with its hash.
fn prefix(mark: Option<&str>) -> String {
    let parts = mark.and_then(|mark| mark.split_once('.'));
    parts.map_or_else(|| "none".to_owned(), |(hash, text)| format!("{text} (hash {hash})"))
}

fn verdict(seen: &Clients, differing: &[Differing]) -> (Level, String) {
    let all = seen.others.len();
    let silent = silent(seen);
    let asked = seen.nodes.iter().filter(|(_, why)| why.is_none()).count();
    let rest = left_out(seen);
    if asked == 0 {
        let is_denied =
            |why: &Option<Unlisted>| matches!(why, Some(Unlisted::Refused(Cause::NoPermission)));
        let text = if seen.nodes.iter().any(|(_, why)| is_denied(why)) {
            "not known: this user may not list the clients: grant it +client|list, or log in as a \
             user that may"
                .to_owned()
        } else {
            format!("not known: no node lists its clients: {rest}")
        };
        return (Level::Note, text);
    }
    let mut more = Vec::new();
    if silent > 0 {
        more.push(format!("{silent} of an older version do not tell their settings"));
    }
    if !rest.is_empty() {
        more.push(format!("these nodes were not asked or did not answer: {rest}"));
    }
    let more = more.iter().map(|text| format!("; {text}")).collect::<String>();
    if all == 0 {
        return (Level::Ok, format!("no other client of Redbolt is connected{more}"));
    }
    if differing.is_empty() {
        let (said, words) = (all - silent, words(&seen.own));
        let text =
            format!("{said} of the {all} other clients agree with this command: {words}{more}");
        return (Level::Ok, text);
    }
    let is_unsafe = differing.iter().any(|client| client.level == Level::Unsafe);
    let mut settings: Vec<(&str, usize)> = Vec::new();
    for difference in differing.iter().flat_map(|client| &client.settings) {
        match settings.iter_mut().find(|(name, _)| *name == difference.setting) {
            Some((_, count)) => *count += 1,
            None => settings.push((difference.setting, 1)),
        }
    }
    let list: Vec<String> = settings
        .iter()
        .map(|(setting, count)| format!("{count} in {setting} ({})", remedy(setting)))
        .collect();
    let (differ, list) = (differing.len(), list.join("; "));
    let text = format!("{differ} of {all} other clients differ from this command: {list}{more}");
    (if is_unsafe { Level::Unsafe } else { Level::Note }, text)
}

/// The consequence of a difference, and the remedy.
fn remedy(setting: &str) -> &'static str {
    match setting {
        "nodes" => {
            "name the same nodes to all, with --nodes: else two clients can hold the same lock on \
             different nodes"
        }
        "lists" => {
            "while nodes are replaced or exchanged this is a step on the way; else write the same nodes, \
             in the same way, for all"
        }
        "quorum" => {
            "give all clients the same --quorum: locks are safe, but some clients take a lock with \
             fewer votes"
        }
        "max_ttl" => {
            "give all clients the longest --max-ttl: else a node that forgot a lock in a restart \
             can vote for others while that lock still stands"
        }
        "restart_guard" => {
            "turn it on for all clients, with --restart-guard: without it a node that forgot a \
             lock in a restart votes for others at once"
        }
        "failover_guard" => {
            "turn it on for all clients, with --failover-guard: without it both a master that was \
             cut off and its successor may vote"
        }
        _ => {
            "they share no lock with this command: if they should, give all clients the same \
             --prefix"
        }
    }
}

/// The nodes that have not listed their clients, and why.
fn left_out(seen: &Clients) -> String {
    let nodes = seen.nodes.iter().filter_map(|(node, why)| {
        let text = match (*why)? {
            Unlisted::Refused(cause) => cause.text(),
            Unlisted::TooLong => "more than 16,000 connections",
        };
        Some((&**node, text))
    });
    by_text(nodes, seen.nodes.len()).unwrap_or_default()
}

/// How many clients do not tell their settings.
fn silent(seen: &Clients) -> usize {
    seen.others.iter().filter(|client| client.name.agreement.is_none()).count()
}

/// The settings, for people.
fn words(agreement: &Agreement) -> String {
    let Agreement { lists, max_ttl, restart_guard, failover_guard, .. } = agreement;
    let [restart, failover] = [restart_guard, failover_guard].map(|is_on| on_or_off(*is_on));
    let prefix = prefix(agreement.prefix.as_deref());
    let ttl = exact(*max_ttl);
    let lists = each(lists, |list| format!("{} nodes, quorum {}", list.nodes, list.quorum));
    format!(
        "{lists}, max_ttl {ttl}, restart guard {restart}, failover guard {failover}, prefix {prefix}"
    )
}

const fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// The settings, for JSON.
fn settings_json(agreement: &Agreement) -> Value {
    json!({
        "lists": agreement.lists.iter().map(list_json).collect::<Vec<_>>(),
        "max_ttl_ms": ms(agreement.max_ttl),
        "restart_guard": agreement.restart_guard,
        "failover_guard": agreement.failover_guard,
        "prefix": agreement.prefix,
    })
}

fn list_json(list: &NodeList) -> Value {
    json!({"nodes": list.nodes, "quorum": list.quorum, "hash": format!("{:08x}", list.hash)})
}

impl Differing {
    /// `till on web-7, process 4711, ..: max_ttl 5.0 min, here 30.0 s`.
    pub(crate) fn text(&self) -> String {
        let SeenClient { name, address } = &self.client;
        let who = named(name.client, Some(name), Some(address));
        let settings = self.settings.iter().map(|difference| {
            let Difference { setting, theirs, ours } = difference;
            format!("{setting} {theirs}, here {ours}")
        });
        format!("{who}: {}", settings.collect::<Vec<_>>().join("; "))
    }
}

impl Agreed {
    /// The object `agreement` of the doctor's report.
    pub(crate) fn json(&self) -> Value {
        let differ = self.differing.iter().map(|Differing { level, client, settings }| {
            let mut json = client_json(client);
            let names: Vec<&str> = settings.iter().map(|difference| difference.setting).collect();
            let settings = client.name.agreement.as_ref().map(settings_json);
            add(
                &mut json,
                json!({ "settings": settings, "state": level.word(), "differs_in": names }),
            );
            json
        });
        let differ: Vec<Value> = differ.collect();
        let unlisted = self.seen.nodes.iter();
        let unlisted =
            unlisted.filter_map(|(node, why)| Some(json!({"node": node, "cause": (*why)?.name()})));
        json!({
            "settings": settings_json(&self.seen.own),
            "clients": self.seen.others.len(),
            "silent": silent(&self.seen),
            "differ": differ,
            "unlisted": unlisted.collect::<Vec<_>>(),
        })
    }
}

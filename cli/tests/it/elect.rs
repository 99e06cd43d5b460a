//! `elect` runs its command on one candidate at a time, and `leader` names it.

use redbolt_embedded::Nodes;

use super::cli::{Running, on, redbolt, without_settings};
use super::holders::{at, servers, urls};
use redbolt_rig::{PATIENCE, RealServer, eventually, skip};

/// A command that prints its process number and the token of its term, and then stays.
const STAY: [&str; 4] = ["--", "sh", "-c", "echo $$ $REDBOLT_TOKEN; exec sleep 600"];

const TAKEN_AWAY: &str =
    "no longer leads jobs as web-1: the lock was taken away; waits to lead again";

fn five() -> Nodes {
    Nodes::start(5).expect("nodes start")
}

fn elect(nodes: &Nodes, who: &str, args: &[&str], command: &[&str]) -> Running {
    let own = ["elect", "jobs", "--ttl", "1s", "--name", who];
    Running::start(&nodes.urls(), &[&own, args, command].concat())
}

/// The name of the leader; none if nobody leads, or if its name is not there yet.
fn leader(nodes: &Nodes) -> Option<String> {
    let seen = on(nodes, &["leader", "jobs", "--json"]).expect(0).json();
    seen.pointer("/leader/program")?.as_str().map(str::to_owned)
}

/// The process number and the token that the command of [`STAY`] prints.
fn said(running: &mut Running) -> (String, String) {
    let line = running.line();
    let (pid, token) = line.split_once(' ').expect("two words");
    (pid.to_owned(), token.to_owned())
}

fn is_led_by(nodes: &Nodes, who: &str) -> bool {
    eventually(PATIENCE, || leader(nodes).as_deref() == Some(who))
}

#[test]
fn a_command_that_ends_resigns_and_the_next_candidate_follows() {
    let nodes = five();
    let script = ["--", "sh", "-c", "echo one $REDBOLT_KEY; read line < /dev/null; exit 7"];
    let stay = ["--", "sh", "-c", "echo leads; trap 'exit 7' USR1; while :; do sleep 0.02; done"];
    let mut first = elect(&nodes, "web-1", &[], &stay);
    assert_eq!(first.line(), "leads");
    let mut second = elect(&nodes, "web-2", &[], &script);
    assert!(is_led_by(&nodes, "web-1"));
    first.signal("USR1");
    let ended = first.end();
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert!(ended.err.starts_with("redbolt: leads jobs as web-1\n"), "{ended:?}");
    assert_eq!(second.line(), "one jobs");
    assert_eq!(second.end().code, Some(7));
    let seen = on(&nodes, &["leader", "jobs"]).expect(0);
    assert_eq!(seen.out, "jobs has no leader\n");
    let is_empty = || (0..5).all(|node| nodes.key_count(node).unwrap() == 0);
    assert!(eventually(PATIENCE, is_empty), "keys are left behind");
}

#[test]
fn a_leader_that_is_killed_is_followed_and_its_command_is_gone_by_then() {
    let nodes = five();
    let mut first = elect(&nodes, "web-1", &[], &STAY);
    let (pid, _) = said(&mut first);
    let mut second = elect(&nodes, "web-2", &[], &STAY);
    assert!(is_led_by(&nodes, "web-1"));
    first.signal("KILL");
    said(&mut second);
    assert!(!is_running(&pid), "the command of the dead leader goes on");
    assert!(is_led_by(&nodes, "web-2"));
}

#[test]
fn a_term_that_is_taken_away_ends_the_command_and_the_candidate_campaigns_again() {
    let nodes = five();
    let mut running = elect(&nodes, "web-1", &["--grace", "100ms"], &STAY);
    let (first, token) = said(&mut running);
    on(&nodes, &["unlock", "jobs", "--token", &token]).expect(0);
    let (second, other) = said(&mut running);
    assert_ne!((&first, &token), (&second, &other));
    assert!(!is_running(&first), "two commands of one candidate");
    running.signal("TERM");
    let ended = running.end();
    assert_eq!(ended.code, Some(128 + 15), "{ended:?}");
    assert!(ended.err.contains(TAKEN_AWAY), "{ended:?}");
    assert!(leader(&nodes).is_none());
}

#[test]
fn a_candidate_that_was_stopped_has_no_command_any_more_and_campaigns_again() {
    let nodes = five();
    let mut first = elect(&nodes, "web-1", &[], &STAY);
    let (pid, _) = said(&mut first);
    first.signal("STOP");
    let mut second = elect(&nodes, "web-2", &[], &STAY);
    said(&mut second);
    // The watchdog has ended it.
    assert!(eventually(PATIENCE, || !is_running(&pid)), "the command of a stopped leader goes on");
    first.signal("CONT");
    second.signal("TERM");
    assert_eq!(second.end().code, Some(128 + 15));
    let (other, _) = said(&mut first);
    assert_ne!(other, pid);
    first.signal("TERM");
    assert_eq!(first.end().code, Some(128 + 15));
}

/// Nobody reads what the candidate says, so it stands still between its term and its command. Signals
/// and timers take their time, as on a busy machine.
#[cfg(target_os = "linux")]
#[test]
fn a_command_does_not_begin_once_its_term_is_over() {
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        return skip("strace is not installed", "install it");
    }
    let (nodes, dir) = (five(), tempfile::tempdir().expect("a directory"));
    let file = dir.path().join("ran");
    // So many bytes fill a pipe.
    let script = "head -c 65536 /dev/zero >&2; exec strace -D -f -qq --seccomp-bpf -o /dev/null \
                  -e trace=kill,timerfd_settime -e inject=timerfd_settime:delay_enter=50000 \
                  -e inject=kill:delay_enter=50000:when=2+ \"$0\" elect jobs --ttl 1s --node-timeout 2s -- touch \"$1\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_redbolt")]).arg(&file);
    without_settings(&mut command);
    command.env("REDBOLT_NODES", nodes.urls().join(","));
    let mut first = Running::of(command);
    let verdict = || on(&nodes, &["status", "jobs", "--json"]).expect(0).text("verdict");
    assert!(eventually(PATIENCE, || verdict() == "held"));
    on(&nodes, &["lock", "jobs", "--ttl", "20s", "--wait", "20s"]).expect(0);
    first.err_line("leads jobs");
    first.err_line("jobs");
    assert!(!file.exists(), "it began while another held the lock");
}

/// Whether the process runs. A process that has ended stays in the list until its parent goes on.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn a_signal_ends_a_candidate_that_waits() {
    let nodes = five();
    let mut first = elect(&nodes, "web-1", &[], &STAY);
    said(&mut first);
    let mut second = elect(&nodes, "web-2", &[], &STAY);
    let waits = second.err_line("waits for jobs, held by web-1 on ");
    assert!(waits.contains(") since 20"), "{waits}");
    second.signal("TERM");
    let ended = second.end().expect(128 + 15);
    assert_eq!(ended.out, "");
}

#[test]
fn a_candidate_that_waits_says_who_leads_and_later_that_too_few_nodes_are_left() {
    // Nodes that list their clients.
    let Some(servers) = servers() else { return };
    let elect = |who: &str| {
        let own = ["--restart-guard", "off", "elect", "jobs", "--name", who];
        Running::start(&urls(&servers), &[&own[..], &STAY].concat())
    };
    let mut first = elect("web-1");
    said(&mut first);
    let mut second = elect("web-2");
    let waits = second.err_line("waits for");
    let pid = first.pid();
    assert!(waits.starts_with("redbolt: waits for jobs, held by web-1 on "), "{waits}");
    assert!(waits.contains(&format!(", process {pid}, ")), "{waits}");
    servers.iter().for_each(RealServer::freeze);
    let waits = second.err_line("waits for");
    let expected = "redbolt: waits for jobs: only 0 of 3 nodes can vote, 2 are needed (all: ";
    assert!(waits.starts_with(expected), "{waits}");
    assert!(waits.ends_with("); redbolt doctor says what to do"), "{waits}");
    second.signal("TERM");
    let ended = second.end();
    assert!(!ended.err.contains("waits for"), "each reason once: {ended:?}");
    servers.iter().for_each(RealServer::thaw);
}

#[test]
fn the_leader_is_told_in_a_sentence_as_an_object_and_change_by_change() {
    let nodes = five();
    let mut watch =
        Running::start(&nodes.urls(), &["leader", "jobs", "--watch", "--interval", "10ms"]);
    assert!(watch.line().ends_with("  jobs has no leader"));
    let mut running = elect(&nodes, "web-1", &["--fence"], &STAY);
    let (_, token) = said(&mut running);
    assert!(is_led_by(&nodes, "web-1"));
    // Its name may be there a moment later.
    let mut line = watch.line();
    if line.contains("not said its name") {
        line = watch.line();
    }
    assert!(line.contains("  jobs is led by web-1 on "), "{line}");
    let seen = on(&nodes, &["leader", "jobs"]).expect(0);
    assert!(seen.out.starts_with("jobs is led by web-1 on "), "{seen:?}");
    assert!(seen.out.contains(" since 20") && !seen.out.contains(&token), "{seen:?}");
    let seen = on(&nodes, &["leader", "jobs", "--json"]).expect(0);
    let object = seen.json();
    assert_eq!((object["name"].as_str(), object["verdict"].as_str()), (Some("jobs"), Some("held")));
    assert_eq!(object["leader"]["pid"], running.pid());
    assert!(object["leader"]["since_ms"].as_u64().unwrap() > 1_700_000_000_000, "{object}");
    assert!(object["leader"]["ends_ms"].as_u64().unwrap() <= 1_000, "{object}");
    assert!(!seen.out.contains(&token), "{seen:?}");
    running.signal("TERM");
    running.end();
    assert!(watch.line().ends_with("  jobs has no leader"));
    watch.signal("TERM");
    watch.end().expect(0);
}

#[test]
fn a_watch_says_that_the_leader_is_unknown_once_its_term_is_over_and_nodes_are_away() {
    let nodes = five();
    let mut running = elect(&nodes, "web-1", &[], &STAY);
    said(&mut running);
    assert!(is_led_by(&nodes, "web-1"));
    let args = ["leader", "jobs", "--watch", "--interval", "10ms", "--json"];
    let mut watch = Running::start(&nodes.urls(), &args);
    let mut verdict = || {
        let line: serde_json::Value = serde_json::from_str(&watch.line()).expect("an object");
        line.get("verdict").and_then(|verdict| verdict.as_str()).map(str::to_owned)
    };
    assert_eq!(verdict().as_deref(), Some("held"));
    (0..3).for_each(|node| nodes.kill(node).expect("it runs"));
    assert_eq!(verdict().as_deref(), Some("unknown"));
    let restart = |node| nodes.restart(node, redbolt_embedded::Memory::Kept).expect("it starts");
    (0..3).for_each(restart);
    while verdict().as_deref() != Some("held") {}
}

#[test]
fn a_leader_without_a_name_is_called_after_its_command() {
    let Some(servers) = servers() else { return };
    let args = ["--restart-guard", "off", "elect", "jobs"];
    let mut running = Running::start(&urls(&servers), &[&args[..], &STAY].concat());
    running.line();
    let shows = |args: &[&str]| at(&servers, args).expect(0).out.contains(" elect/sh on ");
    assert!(eventually(PATIENCE, || shows(&["leader", "jobs"])));
    assert!(shows(&["ls"]) && shows(&["status", "jobs"]));
    running.err_line("leads jobs as elect/sh");
}

#[test]
fn too_few_nodes_leave_the_leader_unknown() {
    let nodes = five();
    (0..3).for_each(|node| nodes.kill(node).unwrap());
    let args = ["leader", "jobs", "--json", "--node-timeout", "300ms"];
    let ended = on(&nodes, &args).expect(69);
    assert_eq!(ended.text("verdict"), "unknown");
    assert!(ended.json()["leader"].is_null());
}

#[test]
fn wrong_names_are_told_before_anything_is_begun() {
    let n = ["--nodes", "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3"];
    for (args, text) in [
        (&["elect", "jobs", "--name", "a b", "--", "true"][..], "--name must be"),
        (&["elect", "jobs:elected", "--", "true"], "the name of the holder of 'jobs'"),
        (&["elect", "jobs", "--grace", "2s", "--", "true"], "too little of --ttl"),
        (&["elect", "jobs"], "redbolt elect jobs -- CMD"),
        (&["elect"], "redbolt elect NAME -- CMD"),
        (&["elect", "jobs", "./x", "-v"], "redbolt elect jobs -- ./x"),
        (&["leader", "jobs", "--interval", "1s"], "--watch"),
    ] {
        // The words behind -- belong to the command.
        let ended = redbolt(&[&args[..1], &n, &args[1..]].concat());
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.err.contains(text), "{ended:?}");
    }
}

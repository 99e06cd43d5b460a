//! The claim of `run` beside its locks: its name, and since when it holds them.

use redbolt_embedded::Nodes;
use redbolt_rig::{PATIENCE, eventually};

use super::cli::{Running, STAY, on, on_urls};
use super::holders::{at, servers, urls};

#[test]
fn a_run_says_so_beside_each_of_its_locks_and_leaves_nothing_behind() {
    let nodes = Nodes::start(3).expect("nodes start");
    let mut running = Running::start(&nodes.urls(), &[&["run", "a", "b"][..], &STAY].concat());
    assert_eq!(running.line(), "held");
    for key in ["a", "b"] {
        let holder = || on(&nodes, &["status", key, "--json"]).expect(0).json()["holder"].take();
        assert!(eventually(PATIENCE, || holder()["since_ms"].is_u64()), "{}", holder());
        let (pid, holder) = (running.pid(), holder());
        assert_eq!((&holder["pid"], &holder["program"]), (&pid.into(), &"run/sh".into()));
        let text = on(&nodes, &["status", key]).expect(0).out;
        assert!(text.contains(" now, and for another "), "{text}");
    }
    running.signal("TERM");
    running.end();
    let is_empty = || (0..3).all(|node| nodes.key_count(node).unwrap() == 0);
    assert!(eventually(PATIENCE, is_empty), "keys are left behind");
}

#[test]
fn a_user_that_may_not_write_beside_the_lock_runs_its_command_all_the_same() {
    let Some(servers) = servers() else { return };
    for server in &servers {
        let line = ["ACL", "SETUSER", "u", "on", ">pw", "~k", "~redbolt:since:*", "&*", "+@all"];
        assert_eq!(server.command(&line), b"+OK\r\n");
    }
    let urls: Vec<String> =
        urls(&servers).iter().map(|url| url.replace("://", "://u:pw@")).collect();
    let args = ["--restart-guard", "off", "run", "k", "--ttl", "1s", "--", "sleep", "2"];
    let ended = on_urls(&urls, &args).expect(0);
    assert_eq!(ended.err, "", "nothing is wrong");
    let mut running = Running::start(&urls, &[&args[..4], &STAY].concat());
    running.line();
    let look = at(&servers, &["status", "k", "--json"]).expect(0).json();
    assert!(look["holder"]["pid"].is_u64() && look["holder"]["since_ms"].is_null(), "{look}");
}

//! The end that a signal makes of a command that connects, waits or measures.

use std::net::TcpListener;

use redbolt_embedded::Nodes;
use redbolt_rig::{PATIENCE, eventually};

use super::cli::{Ended, Running};
use super::holders::{servers, urls};

/// The command ends with the code of TERM, and says so in its object.
fn is_told(ended: &Ended) {
    assert_eq!(ended.code, Some(128 + 15), "{ended:?}");
    assert_eq!(ended.text("error"), "interrupted", "{ended:?}");
}

#[test]
fn a_bench_that_a_signal_ends_releases_its_locks_and_says_so() {
    let nodes = Nodes::start(3).expect("nodes start");
    let has_keys = || (0..3).any(|node| nodes.key_count(node).is_ok_and(|count| count > 0));
    for mode in ["latency", "throughput"] {
        let args = ["bench", "--seconds", "60", "--mode", mode, "--json"];
        let running = Running::start(&nodes.urls(), &args);
        assert!(eventually(PATIENCE, has_keys), "{mode}: it takes no lock");
        running.signal("TERM");
        let ended = running.end();
        assert!(!has_keys(), "{mode}: it leaves a key behind: {ended:?}");
        is_told(&ended);
    }
}

#[test]
fn a_doctor_and_a_list_that_wait_end_at_a_signal_and_say_so() {
    // Young servers do not vote.
    let Some(servers) = servers() else { return };
    for (args, asks) in
        [(["doctor", "--wait", "5m", "--json"], "time"), (["ls", "--wait", "5m", "--json"], "scan")]
    {
        let running = Running::start(&urls(&servers), &args);
        assert!(eventually(PATIENCE, || servers.iter().all(|server| server.calls(asks) > 0)));
        running.signal("TERM");
        is_told(&running.end());
    }
}

#[test]
fn a_signal_ends_a_command_that_still_connects() {
    // It accepts connections, and is silent.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", silent.local_addr().expect("an address"));
    for (args, code) in [
        (&["demo"][..], 128 + 15),
        (&["bench"], 128 + 15),
        (&["bench", "--mode", "throughput"], 128 + 15),
        (&["doctor", "--wait", "5m"], 128 + 15),
        (&["status", "k", "--watch"], 0),
        (&["leader", "k", "--watch"], 0),
    ] {
        let running = Running::start(std::slice::from_ref(&url), args);
        let connection = silent.accept().expect("it connects");
        running.signal("TERM");
        let ended = running.end();
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert_eq!(ended.out, "", "{args:?}: it went on: {ended:?}");
        drop(connection);
    }
}

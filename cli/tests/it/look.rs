//! `status`, `doctor`, `bench`, `demo` and `node` from outside.

use redbolt_embedded::{Memory, Nodes, NodesOptions};
use serde_json::Value;

use super::cli::{Ended, Running, command_on, end, on, on_urls, redbolt};
use super::holders::hostname;
use redbolt_rig::{Kind, PATIENCE, RealServer, eventually, kind_or_skip};

const PERCENTILES: [&str; 5] = ["p50", "p90", "p99", "p999", "max"];

fn assert_percentiles(of: &Value) {
    let values =
        PERCENTILES.map(|name| of[name].as_f64().unwrap_or_else(|| panic!("{name}: {of}")));
    assert!(values.is_sorted(), "{of}");
    assert!(values[0] > 0.0, "{of}");
}

/// A server votes some five seconds after its start. As for the longest TTL of other tests, the guard
/// ends between two seconds.
const MAX_TTL: &str = "3800ms";

/// Three real servers that keep nothing; none if one is not installed.
fn servers() -> Option<Vec<RealServer>> {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70];
    let kinds: Option<Vec<Kind>> = kinds.into_iter().map(kind_or_skip).collect();
    let servers: Vec<_> = kinds?.into_iter().map(|kind| RealServer::start(kind, &[])).collect();
    wait_for_votes(&servers);
    Some(servers)
}

/// Another client may learn a little later that a server is old enough, so two looks must see it.
fn wait_for_votes(servers: &[RealServer]) {
    assert!(eventually(PATIENCE, || all_vote(servers) && all_vote(servers)));
}

fn all_vote(servers: &[RealServer]) -> bool {
    let report = on_servers(servers, &["doctor", "--json"]).json();
    let nodes = report.get("nodes").and_then(Value::as_array).expect("a list of nodes");
    nodes.iter().all(|node| node.get("votes") == Some(&Value::Bool(true)))
}

fn on_servers(servers: &[RealServer], args: &[&str]) -> Ended {
    let urls: Vec<String> = servers.iter().map(RealServer::url).collect();
    on_urls(&urls, &[args, &["--max-ttl", MAX_TTL]].concat())
}

/// The nodes in the report of `status`, which ends with this code and verdict.
fn status(servers: &[RealServer], code: i32, verdict: &str) -> Value {
    let ended = on_servers(servers, &["status", "k", "--json"]);
    assert_eq!((ended.code, ended.text("verdict").as_str()), (Some(code), verdict), "{ended:?}");
    ended.json().get("nodes").cloned().unwrap_or_default()
}

#[test]
fn a_key_that_restarted_nodes_may_have_forgotten_is_never_called_free() {
    let Some(mut servers) = servers() else { return };
    let lock = on_servers(&servers, &["lock", "k", "--ttl", MAX_TTL, "--json"]).expect(0);
    // One server restarts: the others still prove the lock.
    servers[0].restart();
    let nodes = status(&servers, 0, "held");
    assert_eq!((&nodes[0]["state"], &nodes[0]["token"]), (&"error".into(), &Value::Null));
    assert_eq!(nodes[0]["cause"], redbolt::Cause::Quarantined.name());
    assert_eq!(nodes[0]["message"], redbolt::Cause::Quarantined.text());
    assert!((1..5_000).contains(&nodes[0]["waits_ms"].as_u64().unwrap()), "{nodes}");
    assert_eq!(nodes[1]["token"], lock.text("token"));
    assert_eq!((&nodes[1]["cause"], &nodes[1]["waits_ms"]), (&Value::Null, &Value::Null));
    // Two restart: the rest may be all that is left of a quorum.
    servers[1].restart();
    status(&servers, 69, "unknown");
    // All restart: nothing is left to see, and the lock still stands.
    servers[2].restart();
    status(&servers, 69, "unknown");
    let text = on_servers(&servers, &["status", "k"]).out;
    assert!(text.contains("k is unknown: too few nodes with a vote answered"), "{text}");
    assert_eq!(text.matches(": may have forgotten locks").count(), 3, "{text}");
    // When they vote again, no such lock can be left.
    wait_for_votes(&servers);
    status(&servers, 0, "free");
    servers[2].restart();
    let nodes = status(&servers, 0, "free");
    assert_eq!((&nodes[0]["state"], &nodes[2]["state"]), (&"free".into(), &"error".into()));
}

#[test]
fn a_list_is_not_called_complete_while_too_few_nodes_vote() {
    let Some(mut servers) = servers() else { return };
    on_servers(&servers, &["lock", "k", "--ttl", MAX_TTL]).expect(0);
    servers[0].restart();
    servers[1].restart();
    for pattern in ["*", "other*"] {
        let listed = on_servers(&servers, &["ls", pattern]).expect(69);
        assert!(listed.err.contains("too few nodes vote"), "{listed:?}");
        assert!(!listed.out.contains("no locks match"), "{listed:?}");
    }
    let doctor = on_servers(&servers, &["doctor"]);
    assert!(doctor.out.contains("not known, because too few nodes vote"), "{doctor:?}");
    // The command looks until the nodes vote again.
    let listed = on_servers(&servers, &["ls", "--wait", "1m"]).expect(0);
    assert_eq!(listed.out, "no locks match *\n");
}

#[test]
fn a_frozen_node_is_said_not_to_answer_yet_beside_the_holder_of_the_lock() {
    let Some(servers) = servers() else { return };
    let urls: Vec<String> = servers.iter().map(RealServer::url).collect();
    let running = Running::holding(&urls, &["k", "--max-ttl", MAX_TTL, "--ttl", MAX_TTL]);
    let pid = running.pid();
    servers[1].freeze();
    let status = |more: &[&str]| {
        let look = ["status", "k", "--node-timeout", "300ms"];
        on_servers(&servers, &[&look[..], more].concat())
    };
    // A look on a busy machine may end only after the connection is given up, or before another node
    // has answered.
    let says = || {
        let ended = status(&["--json"]);
        let look = ended.json();
        if look["verdict"] == "unknown" {
            return false;
        }
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!((&look["verdict"], &look["holder"]["pid"]), (&"held".into(), &pid.into()));
        let node = &look["nodes"][1];
        assert_eq!((&node["state"], &node["token"]), (&"error".into(), &Value::Null));
        node["cause"] == redbolt::Cause::Connecting.name()
    };
    assert!(eventually(PATIENCE, says), "{:?}", status(&["--json"]));
    let by = format!("k is held on 2 of 3 nodes by run/sh on {}, process {pid}, ", hostname());
    let port = format!(":{}", servers[1].port());
    let says = || {
        let text = status(&[]).out;
        if text.starts_with("k is unknown") {
            return false;
        }
        assert!(text.starts_with(&by), "{text}");
        let line = text.lines().find(|line| line.contains(&port));
        line.is_some_and(|line| line.contains("does not answer yet"))
    };
    assert!(eventually(PATIENCE, says), "{:?}", status(&[]));
    servers[1].thaw();
}

#[test]
fn a_token_is_shown_at_a_node_without_a_vote_and_does_not_count() {
    let Some(servers) = servers() else { return };
    // A server takes all data from a master that is not newer.
    let [replica, _, master] = &servers[..] else { panic!("three servers") };
    master.command(&["SET", "k", "one vote", "PX", "60000"]);
    replica.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    assert!(eventually(PATIENCE, || replica.exists("k")));
    let nodes = status(&servers, 69, "unknown");
    assert_eq!((&nodes[0]["state"], &nodes[0]["token"]), (&"held".into(), &"one vote".into()));
    assert_eq!((&nodes[0]["cause"], &nodes[0]["waits_ms"]), (&"replica".into(), &Value::Null));
    let text = on_servers(&servers, &["status", "k"]).out;
    assert!(text.contains("held; is a replica"), "{text}");
}

#[test]
fn a_doctor_finds_fit_nodes_fit() {
    let nodes = Nodes::start(5).unwrap();
    let report = on(&nodes, &["doctor", "--json"]).expect(0).json();
    assert_eq!(report["verdict"], "ok");
    let list = report["nodes"].as_array().unwrap();
    assert_eq!(list.len(), 5);
    for node in list {
        assert_eq!(node["reachable"], true);
        assert_eq!(node["role"], "master");
        assert_eq!(node["eviction"], "noeviction");
        assert_eq!(node["guard"], "votes");
        assert!(node["server"].as_str().unwrap().contains("9.1"), "{node}");
        assert!(node["uptime_s"].as_u64().unwrap() >= 3600, "{node}");
        assert!(node["round_trip_us"].as_u64().is_some(), "{node}");
        assert!(node["clock_offset_us"].as_i64().unwrap().abs() < 1_000_000, "{node}");
        assert!(node["dialect"].as_str().unwrap().contains("DELIFEQ"), "{node}");
    }
    let text = on(&nodes, &["doctor"]).expect(0).out;
    assert!(text.contains("5 of 5 nodes vote, 3 make a lock"), "{text}");
}

#[test]
fn a_doctor_tells_what_is_unsafe_from_nodes_without_a_vote_and_from_no_quorum() {
    let nodes = Nodes::start(5).unwrap();
    let unguarded = on(&nodes, &["doctor", "--restart-guard", "off", "--json"]).expect(78).json();
    assert_eq!(unguarded["verdict"], "unsafe");
    assert!(unguarded["unsafe"][0].as_str().unwrap().contains("appendfsync always"));

    nodes.restart(0, Memory::Lost).unwrap();
    let report = on(&nodes, &["doctor", "--json"]).expect(1).json();
    assert!(report["nodes"][0]["guard"].as_str().unwrap().starts_with("waits "), "{report}");
    nodes.kill(1).unwrap();
    let report = on(&nodes, &["doctor", "--json"]).expect(1).json();
    assert_eq!(
        (&report["verdict"], &report["unsafe"]),
        (&"degraded".into(), &Value::Array(vec![]))
    );
    assert_eq!(report["nodes"][1]["reachable"], false);
    assert!(report["degraded"].to_string().contains("start the server"), "{report}");
    let text = on(&nodes, &["doctor"]).expect(1).out;
    assert!(text.contains("locks on these nodes are safe, but not all nodes vote"), "{text}");
    nodes.kill(2).unwrap();
    let text = on(&nodes, &["doctor"]).expect(78).out;
    assert!(text.contains("no lock can be taken on these nodes now"), "{text}");
    assert!(text.contains("only 2 of 5 nodes can vote, and a lock needs 3"), "{text}");
}

#[test]
fn a_doctor_knows_one_server_under_two_names() {
    let nodes = Nodes::start(2).unwrap();
    let mut urls = nodes.urls();
    urls.push(urls[0].replace("127.0.0.1", "localhost"));
    let text = on_urls(&urls, &["doctor"]).expect(1).out;
    assert!(text.contains("is the same server as another node"), "{text}");
    assert!(text.contains("name each server once"), "{text}");
}

#[test]
fn a_wrong_password_is_named_and_not_shown() {
    let nodes = Nodes::start_with(&NodesOptions::new(3).password("s3cret")).unwrap();
    let lock = on(&nodes, &["lock", "k", "--ttl", "1s"]).expect(77);
    assert!(lock.err.contains("user or password refused"), "{lock:?}");
    let text = on(&nodes, &["doctor"]).expect(78).out;
    assert!(text.contains("--password-file"), "{text}");

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    let option = file.to_str().unwrap();
    std::fs::write(&file, "wr0ng\n").unwrap();
    let lock = on(&nodes, &["lock", "k", "--ttl", "1s", "--password-file", option]).expect(77);
    assert!(!format!("{lock:?}").contains("wr0ng"));
    std::fs::write(&file, "s3cret\n").unwrap();
    on(&nodes, &["lock", "k", "--ttl", "10s", "--password-file", option]).expect(0);
    on(&nodes, &["doctor", "--password-file", option]).expect(0);
}

#[test]
fn a_bench_counts_what_it_did_and_leaves_no_key() {
    let nodes = Nodes::start(5).unwrap();
    let latency = on(&nodes, &["bench", "--iterations", "300", "--json"]).expect(0).json();
    assert_eq!(latency["nodes"], 5);
    assert_eq!(latency["quorum"], 3);
    assert_eq!(latency["mode"], "latency");
    assert_eq!(latency["poll"], "park");
    assert_eq!(latency["in_flight"], 1);
    assert_eq!(latency["cycles"], 300);
    assert_eq!(latency["failures"], 0);
    assert!(latency["cycles_per_s"].as_f64().unwrap() > 0.0);
    assert_percentiles(&latency["acquire_us"]);
    assert_percentiles(&latency["release_us"]);

    let args = ["bench", "--mode", "throughput", "--in-flight", "8", "--iterations", "300"];
    let throughput = on(&nodes, &[&args[..], &["--poll", "spin", "--json"]].concat());
    let throughput = throughput.expect(0).json();
    assert_eq!(throughput["in_flight"], 8);
    assert_eq!(throughput["poll"], "spin");
    assert!(throughput["cycles"].as_u64().unwrap() >= 300);
    assert_percentiles(&throughput["acquire_us"]);
    assert!((0..5).all(|node| nodes.key_count(node).unwrap() == 0));

    let text = on(&nodes, &["bench", "--seconds", "0.1"]).expect(0).out;
    assert!(text.contains("acquire"), "{text}");
    for node in 0..3 {
        nodes.kill(node).unwrap();
    }
    on(&nodes, &["bench", "--seconds", "0.1"]).expect(69);
    let args = ["bench", "--seconds", "0.1", "--mode", "throughput"];
    on(&nodes, &args).expect(69);
}

#[test]
fn without_nodes_a_bench_brings_its_own_and_says_so() {
    // On a busy machine a node may be late.
    let args = ["bench", "--iterations", "50", "--json", "--node-timeout", "2s"];
    let ended = redbolt(&args).expect(0);
    assert!(ended.err.contains("embedded"), "{ended:?}");
    assert_eq!(ended.json()["nodes"], 5);
}

#[test]
fn a_demo_sells_each_piece_once_while_nodes_fail() {
    let ended = redbolt(&["demo", "--stock", "320", "--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let json = ended.json();
    assert_eq!(
        (&json["stock"], &json["sold"], &json["oversold"]),
        (&320.into(), &320.into(), &0.into())
    );
    assert_percentiles(&json["acquire_us"]);
    assert!(json["seconds"].as_f64().unwrap() < 20.0, "{json}");
    for event in ["is killed", "hangs", "starts again"] {
        assert!(ended.err.contains(event), "{ended:?}");
    }
}

#[test]
fn in_a_pipe_a_demo_tells_a_line_for_each_event() {
    let ended = redbolt(&["demo", "--stock", "40"]).expect(0);
    assert!(!ended.out.contains('\x1b'), "{ended:?}");
    assert!(ended.out.contains("sold      40 of 40"), "{ended:?}");
    assert!(ended.out.contains("oversold  0"), "{ended:?}");
}

#[test]
fn without_locks_a_demo_oversells_and_says_so_with_1() {
    let ended = redbolt(&["demo", "--stock", "500", "--no-lock"]).expect(1);
    assert!(ended.out.contains("sold the same") || ended.out.contains("both sold it"), "{ended:?}");
    let ended = redbolt(&["demo", "--stock", "500", "--no-lock", "--json"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.json()["oversold"].as_u64().unwrap() > 0, "{ended:?}");
    assert!(ended.json()["acquire_us"].is_null(), "{ended:?}");
}

#[test]
fn a_demo_on_given_nodes_does_nothing_to_them() {
    let nodes = Nodes::start(3).unwrap();
    let ended = on(&nodes, &["demo", "--stock", "40", "--workers", "4"]).expect(0);
    assert!(ended.out.contains("3 given nodes, no faults"), "{ended:?}");
    assert!((0..3).all(|node| nodes.key_count(node).unwrap() == 0));
    let nobody = ["demo", "--nodes", "127.0.0.1:1,127.0.0.1:2", "--stock", "4"];
    let ended = redbolt(&nobody);
    assert_eq!(ended.code, Some(69), "{ended:?}");
}

#[test]
fn a_demo_that_is_interrupted_ends_at_once_and_leaves_no_key() {
    let nodes = Nodes::start(3).unwrap();
    let mut running = Running::start(&nodes.urls(), &["demo"]);
    assert!(running.line().contains("8 workers"));
    running.signal("INT");
    running.end().expect(130);
    assert!((0..3).all(|node| nodes.key_count(node).unwrap() == 0));
}

#[test]
fn nodes_run_until_they_are_told_to_end() {
    // Another program may have the ports.
    let started = (23_001..24_000).step_by(10).find_map(|port: u16| {
        let port = port.to_string();
        let mut running = Running::start(&[], &["node", "--count", "3", "--port", &port]);
        running.try_line().map(|first| (running, first, port))
    });
    let (mut running, first, port) = started.expect("three ports are free");
    let urls = [first, running.line(), running.line()];
    assert_eq!(urls[0], format!("redis://127.0.0.1:{port}"));
    let token = on_urls(&urls, &["lock", "k", "--ttl", "10s", "--json"]).expect(0).text("token");
    on_urls(&urls, &["unlock", "k", "--token", &token]).expect(0);
    let twice = redbolt(&["node", "--port", &port]).expect(71);
    assert!(twice.err.contains("--port"), "{twice:?}");
    running.signal("TERM");
    running.end().expect(0);
}

#[test]
fn colours_and_live_views_are_for_terminals() {
    let nodes = Nodes::start(3).unwrap();
    for args in [&["status", "k"][..], &["doctor"], &["bench", "--iterations", "10"]] {
        let ended = end(command_on(&nodes.urls(), args)).expect(0);
        assert!(!ended.out.contains('\x1b') && ended.err.is_empty(), "{ended:?}");
    }
}

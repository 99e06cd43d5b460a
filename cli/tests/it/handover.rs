//! `bench --mode handover` on real servers: several processes that want one lock.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use super::cli::{Running, on_urls, redbolt};
use redbolt_rig::{Kind, PATIENCE, RealServer, eventually, kind_or_skip};

const WAYS: [&str; 4] = ["transfer", "wake", "poll", "first"];

/// Five servers, or none where they are not installed.
fn five() -> Option<Vec<RealServer>> {
    let kind = kind_or_skip(Kind::Valkey91)?;
    Some((0..5).map(|_| RealServer::start(kind, &[])).collect())
}

fn urls(servers: &[RealServer]) -> Vec<String> {
    servers.iter().map(RealServer::url).collect()
}

fn handover<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["bench", "--mode", "handover", "--restart-guard", "off", "--json"], more].concat()
}

/// The value at a path; null if there is none.
fn at<'a>(report: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().try_fold(report, |value, name| value.get(name)).unwrap_or(&Value::Null)
}

fn whole(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// What holds for every run in which locks have changed hands.
#[track_caller]
fn assert_plausible(report: &Value, clients: u64, seconds: f64) {
    assert_eq!((whole(&report["clients"]), whole(&report["hold_us"])), (clients, 100), "{report}");
    let (turns, handovers) = (whole(&report["turns"]), whole(&report["handovers"]));
    assert!(0 < handovers && handovers < turns, "the first turn follows none: {report}");
    let by = |way: &str| whole(at(report, &["by", way, "turns"]));
    assert_eq!(WAYS.map(by).iter().sum::<u64>(), turns, "{report}");
    for way in WAYS {
        assert!(at(report, &["by", way, "handover_us"]).is_null() || by(way) > 0, "{report}");
    }
    // Each turn is held for 0.1 ms, and no two overlap.
    assert!(turns as f64 * 1e-4 <= seconds, "{report}");
    let rate = number(&report["handovers_per_s"]);
    assert!((rate * seconds / handovers as f64 - 1.0).abs() < 0.2, "{report}");
    let round_trip = number(&report["round_trip_us"]);
    assert!(round_trip > 0.0, "{report}");
    let mut last = 0.0;
    for quantile in ["p50", "p90", "p99", "p999", "max"] {
        let time = number(at(report, &["handover_us", quantile]));
        assert!(time > 0.0 && time >= last, "{quantile}: {report}");
        last = time;
        let trips = number(at(report, &["handover_round_trips", quantile]));
        assert!((trips - time / round_trip).abs() < 0.01 * trips + 0.02, "{quantile}: {report}");
    }
    assert!((0.0..=1.0).contains(&number(&report["least_served"])), "{report}");
}

#[track_caller]
fn assert_no_key_left<'a>(servers: impl IntoIterator<Item = &'a RealServer>) {
    for server in servers {
        assert_eq!(server.command(&["DBSIZE"]), b":0\r\n", "{}", server.port());
    }
}

#[test]
fn two_and_four_processes_take_turns_and_the_report_adds_up() {
    let Some(servers) = five() else { return };
    for clients in ["2", "4"] {
        let args = handover(&["--clients", clients, "--seconds", "1"]);
        let report = on_urls(&urls(&servers), &args).expect(0).json();
        assert_eq!(whole(&report["failures"]), 0, "{report}");
        assert_plausible(&report, clients.parse().unwrap(), 1.0);
        // Which of the two depends on how far the workers find their nodes to be.
        let by = |way: &str| whole(&report["by"][way]["turns"]);
        assert!(by("transfer") + by("wake") > 0, "{report}");
        assert_no_key_left(&servers);
    }
}

#[test]
fn it_ends_when_one_client_has_had_its_share_of_the_turns() {
    let Some(servers) = five() else { return };
    let report = on_urls(&urls(&servers), &handover(&["--iterations", "90"])).expect(0).json();
    let turns = whole(&report["turns"]);
    assert!((45..=90).contains(&turns), "{report}");
    assert_no_key_left(&servers);
}

#[test]
fn a_node_that_is_down_does_not_stop_it() {
    let Some(mut servers) = five() else { return };
    let urls = urls(&servers);
    servers[1].kill9();
    let args = handover(&["--clients", "4", "--seconds", "1"]);
    let report = on_urls(&urls, &args).expect(0).json();
    assert_eq!(whole(&report["failures"]), 0, "{report}");
    assert_plausible(&report, 4, 1.0);
    assert_no_key_left(
        servers.iter().enumerate().filter(|(node, _)| *node != 1).map(|both| both.1),
    );
}

/// The processes that this one has started.
fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").expect("it is there").filter_map(Result::ok);
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name, which may hold anything: the state, and the parent.
        let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
        behind.split(' ').nth(1) == Some(&parent.to_string())
    };
    pids.filter(is_child).collect()
}

/// How many messages the clients have sent each other: none before they contend.
#[cfg(target_os = "linux")]
fn messages(servers: &[RealServer]) -> u64 {
    servers.iter().map(|server| server.calls("publish")).sum()
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_all_its_processes_and_leaves_no_key() {
    let Some(servers) = five() else { return };
    for name in ["INT", "TERM"] {
        let before = messages(&servers);
        let args = handover(&["--clients", "4", "--seconds", "600"]);
        let bench = Running::start(&urls(&servers), &args);
        assert!(eventually(PATIENCE, || messages(&servers) > before + 50), "{name}");
        let clients = children(bench.pid());
        assert_eq!(clients.len(), 4, "{clients:?}");
        bench.signal(name);
        let ended = bench.end();
        assert_eq!(ended.code, Some(if name == "INT" { 130 } else { 143 }), "{ended:?}");
        assert_eq!(ended.text("error"), "interrupted");
        assert!(ended.took < Duration::from_secs(5), "none had to be killed: {ended:?}");
        for client in clients {
            assert!(!fs::exists(format!("/proc/{client}")).unwrap(), "{client}");
        }
        assert_no_key_left(&servers);
    }
}

/// Nobody is left to tell the clients to end.
#[cfg(target_os = "linux")]
#[test]
fn no_process_outlives_a_bench_that_is_killed() {
    let Some(servers) = five() else { return };
    let args = handover(&["--clients", "4", "--seconds", "600"]);
    let bench = Running::start(&urls(&servers), &args);
    assert!(eventually(PATIENCE, || messages(&servers) > 50));
    let clients = children(bench.pid());
    assert_eq!(clients.len(), 4, "{clients:?}");
    bench.signal("KILL");
    let is_gone = |client: &u32| !fs::exists(format!("/proc/{client}/exe")).unwrap_or(false);
    assert!(eventually(PATIENCE, || clients.iter().all(is_gone)), "{clients:?}");
    assert_no_key_left(&servers);
}

#[test]
fn without_a_quorum_it_says_why_once() {
    let Some(mut servers) = five() else { return };
    let urls = urls(&servers);
    servers.iter_mut().take(3).for_each(RealServer::kill9);
    let ended = on_urls(&urls, &handover(&[])).expect(69);
    assert_eq!(ended.text("error"), "no_quorum");
    assert_eq!(ended.json()["nodes"].as_array().unwrap().len(), 5, "{ended:?}");
    let text = ["bench", "--mode", "handover", "--restart-guard", "off"];
    let ended = on_urls(&urls, &text).expect(69);
    assert!(ended.err.contains("too few nodes can vote"), "{ended:?}");
}

#[test]
fn it_is_drawn_and_stands_beside_a_saved_run_of_the_same_settings_only() {
    let Some(servers) = five() else { return };
    let urls = urls(&servers);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (saved, svg) = (path("saved.json"), path("out.svg"));
    let run = on_urls(&urls, &handover(&["--iterations", "60", "--plot", &svg])).expect(0);
    assert_eq!(run.json()["plot"]["file"], svg);
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.contains("handover among 2 clients, held for 100.0 us"), "{drawn}");
    assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    fs::write(&saved, &run.out).unwrap();
    let args = handover(&["--iterations", "60", "--compare", &saved]);
    let report = on_urls(&urls, &args).expect(0).json();
    let of = |run: &Value| number(&run["handover_us"]["p50"]);
    let ratio = of(&report["compare"]["ratio"]);
    assert!((ratio - of(&report) / of(&run.json())).abs() < 0.001, "{report}");
    for (other, words) in
        [("--clients=3", "clients 2 (now 3)"), ("--hold=1ms", "hold_us 100 (now 1000)")]
    {
        let refused = on_urls(&urls, &handover(&["--compare", &saved, other])).expect(64);
        assert!(
            refused.text("message").ends_with(&format!(
                "settings: {words}; give the same options, or save a new run with --json"
            )),
            "{refused:?}"
        );
    }
    let refused =
        on_urls(&urls, &["bench", "--restart-guard", "off", "--compare", &saved]).expect(64);
    assert!(refused.err.contains("mode handover (now latency)"), "{refused:?}");
    assert!(!refused.err.contains("null"), "{refused:?}");
}

#[test]
fn its_options_are_refused_elsewhere_and_out_of_range() {
    for (args, words) in [
        (&["--clients", "3"][..], "go with --mode handover"),
        (&["--hold", "1ms", "--mode", "throughput"], "go with --mode handover"),
        (&["--mode", "handover", "--in-flight", "2"], "goes with --mode throughput"),
        (&["--mode", "handover", "--hold", "2s"], "at most 1s"),
        (&["--mode", "handover", "--clients", "1"], "from 2 to 64"),
    ] {
        let refused = redbolt(&[&["bench"], args].concat()).expect(64);
        assert!(refused.err.contains(words), "{refused:?}");
    }
}

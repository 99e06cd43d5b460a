//! `lock`, `extend`, `unlock` and `status` tell the truth, in words, JSON and exit codes.

use std::time::Duration;

use redbolt_embedded::{Memory, Nodes};

use super::cli::{Running, command_on, end, on, on_urls, take};

fn five() -> Nodes {
    Nodes::start(5).expect("nodes start")
}

#[test]
fn a_lock_is_taken_shown_extended_and_released() {
    let nodes = five();
    let lock = on(&nodes, &["lock", "sku:42", "--ttl", "10s", "--json"]).expect(0);
    let token = lock.text("token");
    assert_eq!(token.len(), 40);
    assert_eq!(lock.json()["key"], "sku:42");
    assert_eq!(lock.json()["votes"], 5);
    assert_eq!(lock.json()["nodes"], 5);
    let validity = lock.json()["validity_ms"].as_u64().unwrap();
    assert!((9_000..=9_898).contains(&validity), "{validity}");

    let status = on(&nodes, &["status", "sku:42", "--json"]).expect(0).json();
    assert_eq!(status["verdict"], "held");
    for (node, url) in status["nodes"].as_array().unwrap().iter().zip(nodes.urls()) {
        assert_eq!(format!("redis://{}", node["node"].as_str().unwrap()), url);
        assert_eq!(node["state"], "held");
        assert_eq!(node["token"], token);
        assert!((1..=10_000).contains(&node["ttl_ms"].as_u64().unwrap()), "{node}");
    }

    let extend =
        on(&nodes, &["extend", "sku:42", "--token", &token, "--ttl", "30s", "--json"]).expect(0);
    assert_eq!(extend.text("token"), token);
    assert!(extend.json()["votes"].as_u64().unwrap() >= 3);
    assert!(extend.json()["validity_ms"].as_u64().unwrap() > 29_000);

    on(&nodes, &["unlock", "sku:42", "--token", &token]).expect(0);
    let status = on(&nodes, &["status", "sku:42", "--json"]).expect(0).json();
    assert_eq!(status["verdict"], "free");
    assert!(status["nodes"].as_array().unwrap().iter().all(|node| node["state"] == "free"));
    assert!((0..5).all(|node| nodes.key_count(node).unwrap() == 0));
}

#[test]
fn without_json_people_read_the_same() {
    let nodes = five();
    let out = on(&nodes, &["lock", "sku:42", "--ttl", "10s"]).expect(0).out;
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(words[..2], ["key", "sku:42"]);
    assert_eq!(words[2], "token");
    assert!(out.contains("votes     5 of 5"), "{out}");
    let out = on(&nodes, &["status", "sku:42"]).expect(0).out;
    assert!(out.starts_with("sku:42 is held on 5 of 5 nodes"), "{out}");
    assert_eq!(out.matches(words[3]).count(), 5, "{out}");
    assert!(!out.contains('\x1b'), "{out}");
}

#[test]
fn a_taken_lock_ends_with_75_and_leaves_nothing_behind() {
    let nodes = five();
    let token = take(&nodes, "k");
    let taken = on(&nodes, &["lock", "k", "--ttl", "10s"]).expect(75);
    assert!(taken.err.contains("the lock is taken"), "{taken:?}");
    let taken = on(&nodes, &["lock", "k", "--ttl", "10s", "--json"]).expect(75);
    assert_eq!(taken.text("error"), "taken");
    assert_eq!(taken.json()["nodes"].as_array().unwrap().len(), 5);
    on(&nodes, &["unlock", "k", "--token", &token]).expect(0);
    assert!((0..5).all(|node| nodes.key_count(node).unwrap() == 0));
}

#[test]
fn wait_is_a_deadline_and_ends_early_when_the_lock_is_free() {
    let nodes = five();
    let token = take(&nodes, "k");
    let taken = on(&nodes, &["lock", "k", "--ttl", "10s", "--wait", "300ms"]).expect(75);
    assert!(taken.took >= Duration::from_millis(150), "{taken:?}");
    assert!(taken.took < Duration::from_secs(3), "{taken:?}");

    let mut waiting = Running::start(
        &nodes.urls(),
        &["run", "k", "--wait", "30s", "--", "sh", "-c", "echo held"],
    );
    on(&nodes, &["unlock", "k", "--token", &token]).expect(0);
    assert_eq!(waiting.line(), "held");
    waiting.end().expect(0);
}

#[test]
fn waiting_for_the_holder_begins_when_the_nodes_are_connected() {
    let nodes = five();
    // Longer than the wait, and far from the second that connecting may take.
    for (wait, paused_ms) in [("0s", 100), ("200ms", 300)] {
        (0..3).for_each(|node| nodes.pause(node).unwrap());
        let waiting =
            Running::start(&nodes.urls(), &["lock", wait, "--ttl", "10s", "--wait", wait]);
        std::thread::sleep(Duration::from_millis(paused_ms));
        (0..3).for_each(|node| nodes.resume(node).unwrap());
        waiting.end().expect(0);
    }
    take(&nodes, "k");
    on(&nodes, &["lock", "k", "--ttl", "10s", "--wait", "0s"]).expect(75);
}

#[test]
fn a_signal_ends_the_waiting_and_leaves_no_key() {
    let nodes = five();
    let token = take(&nodes, "k");
    let waiting = Running::start(&nodes.urls(), &["lock", "k", "--ttl", "10s", "--wait", "1m"]);
    // Once it has connected it waits: the nodes have denied the first attempt, or soon will.
    on(&nodes, &["lock", "other", "--ttl", "10s"]).expect(0);
    waiting.signal("INT");
    let ended = waiting.end();
    // The command ended itself, or the signal ended it before it took signals over.
    assert!(matches!(ended.code, Some(130) | None), "{ended:?}");
    on(&nodes, &["unlock", "k", "--token", &token]).expect(0);
    on(&nodes, &["lock", "k", "--ttl", "10s"]).expect(0);
}

#[test]
fn what_is_no_longer_held_is_neither_released_nor_extended() {
    let nodes = five();
    let token = take(&nodes, "k");
    let wrong = "0".repeat(40);
    on(&nodes, &["unlock", "k", "--token", &wrong]).expect(70);
    on(&nodes, &["extend", "k", "--token", &wrong, "--ttl", "10s"]).expect(70);
    on(&nodes, &["unlock", "k", "--token", &token]).expect(0);
    let again = on(&nodes, &["unlock", "k", "--token", &token, "--json"]).expect(70);
    assert_eq!(again.text("error"), "not_held");
    let late = on(&nodes, &["extend", "k", "--token", &token, "--ttl", "10s", "--json"]).expect(70);
    assert_eq!(late.text("error"), "lost");
    assert!((0..5).all(|node| nodes.key_count(node).unwrap() == 0));
}

#[test]
fn two_of_five_nodes_away_change_nothing_and_three_end_with_69() {
    let nodes = five();
    nodes.kill(0).unwrap();
    nodes.kill(3).unwrap();
    let token = take(&nodes, "k");
    on(&nodes, &["extend", "k", "--token", &token, "--ttl", "20s"]).expect(0);
    let status = on(&nodes, &["status", "k", "--json"]).expect(0).json();
    assert_eq!(status["verdict"], "held");
    assert_eq!(status["nodes"][0]["state"], "error");
    on(&nodes, &["unlock", "k", "--token", &token]).expect(0);

    nodes.kill(4).unwrap();
    let lock = on(&nodes, &["lock", "k", "--ttl", "10s", "--json"]).expect(69);
    assert_eq!(lock.text("error"), "no_quorum");
    assert_eq!(lock.json()["nodes"][4]["cause"], "connection_refused");
    assert_eq!(lock.json()["nodes"][4]["message"], "connection refused");
    on(&nodes, &["extend", "k", "--token", &token, "--ttl", "10s"]).expect(69);
    let unlock = on(&nodes, &["unlock", "k", "--token", &token]).expect(69);
    assert!(unlock.err.contains("connection refused"), "{unlock:?}");
    let status = on(&nodes, &["status", "k", "--json"]);
    assert_eq!(status.code, Some(69));
    assert_eq!(status.json()["verdict"], "unknown");
    assert_eq!(nodes.key_count(1).unwrap() + nodes.key_count(2).unwrap(), 0);
}

#[test]
fn hung_nodes_cost_no_more_than_their_timeout() {
    let nodes = five();
    let on = |args: &[&str]| on(&nodes, &[&["--node-timeout", "500ms"], args].concat());
    nodes.pause(1).unwrap();
    nodes.pause(2).unwrap();
    let lock = on(&["lock", "k", "--ttl", "10s", "--json"]).expect(0);
    assert_eq!(lock.json()["votes"], 3);
    on(&["unlock", "k", "--token", &lock.text("token")]).expect(0);
    nodes.pause(3).unwrap();
    let lock = on(&["lock", "k", "--ttl", "10s"]).expect(69);
    assert!(lock.took < Duration::from_secs(5), "{lock:?}");
    // The nodes go on and now run the locks, and the releases behind them.
    for node in 1..4 {
        nodes.resume(node).unwrap();
    }
    assert_eq!((0..5).map(|node| nodes.key_count(node).unwrap()).sum::<usize>(), 0);
}

#[test]
fn keys_that_only_a_minority_holds_are_called_split() {
    let nodes = five();
    // Two clients that each know one node only leave these keys behind.
    for node in nodes.urls().chunks(1).skip(3) {
        on_urls(node, &["lock", "k", "--ttl", "30s"]).expect(0);
    }
    let status = on(&nodes, &["status", "k", "--json"]).expect(0).json();
    assert_eq!(status["verdict"], "split");
    assert_eq!(status["nodes"][0]["state"], "free");
    assert_eq!(status["nodes"][4]["state"], "held");
}

#[test]
fn restarted_nodes_are_waited_for_and_the_error_says_how_long() {
    let nodes = five();
    for node in 0..3 {
        nodes.restart(node, Memory::Lost).unwrap();
    }
    let lock = on(&nodes, &["lock", "k", "--ttl", "10s"]).expect(69);
    assert!(lock.err.contains("may have forgotten locks"), "{lock:?}");
    assert!(lock.err.contains("enough nodes may vote in "), "{lock:?}");
    on(&nodes, &["lock", "k", "--ttl", "10s", "--restart-guard", "off"]).expect(0);
}

#[test]
fn a_larger_quorum_and_a_longer_ttl_can_be_asked_for() {
    let nodes = five();
    nodes.kill(0).unwrap();
    on(&nodes, &["lock", "k", "--ttl", "1s", "--quorum", "5"]).expect(69);
    on(&nodes, &["--quorum", "4", "lock", "k", "--ttl", "10s"]).expect(0);
    on(&nodes, &["lock", "j", "--ttl", "1m"]).expect(64);
    on(&nodes, &["lock", "j", "--ttl", "1m", "--max-ttl", "1m"]).expect(0);
}

#[test]
fn keys_may_hold_any_bytes_an_argument_can() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let nodes = five();
    for key in [&b"a\r\nSET x y\r\n"[..], b" ", "ключ".as_bytes(), b"\xff\xfe", b"-rf"] {
        let mut lock = command_on(&nodes.urls(), &["lock", "--ttl", "10s", "--json", "--"]);
        lock.arg(OsStr::from_bytes(key));
        let token = end(lock).expect(0).text("token");
        assert!((0..5).all(|node| nodes.key_count(node).unwrap() == 1));
        let mut unlock = command_on(&nodes.urls(), &["unlock", "--token", &token, "--"]);
        unlock.arg(OsStr::from_bytes(key));
        end(unlock).expect(0);
        assert!((0..5).all(|node| nodes.key_count(node).unwrap() == 0));
    }
}

#[test]
fn a_reader_that_has_gone_is_no_reason_for_noise() {
    let nodes = five();
    let script = format!(
        "{} status k | true; {} doctor | true",
        env!("CARGO_BIN_EXE_redbolt"),
        env!("CARGO_BIN_EXE_redbolt")
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).env("REDBOLT_NODES", nodes.urls().join(","));
    let ended = end(shell);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

#[test]
fn other_data_under_the_name_of_a_lock_is_called_that_and_not_a_holder() {
    let Some(servers) = super::holders::servers() else { return };
    let set = |server: &redbolt_rig::RealServer| server.command(&["HSET", "k", "field", "value"]);
    servers.iter().for_each(|server| drop(set(server)));
    let told = "other data is under this name on 3 of 3 nodes";
    for (args, code) in [
        (&["lock", "k", "--ttl", "1s"][..], 69),
        (&["run", "-n", "-E", "0", "k", "--", "true"], 69),
        (&["status", "k"], 69),
        (&["leader", "k"], 69),
        (&["unlock", "--force", "--yes", "k"], 69),
    ] {
        let ended = super::holders::at(&servers, args).expect(code);
        let all = format!("{}{}", ended.out, ended.err);
        let is_clear = all.contains(told) && !all.contains("doctor") && !all.contains("--wait");
        assert!(is_clear, "{args:?}: {ended:?}");
    }
}

#[test]
fn an_unlock_without_a_result_names_the_nodes_that_left_it_open() {
    let nodes = five();
    let token = take(&nodes, "k");
    (0..3).for_each(|node| nodes.kill(node).expect("it runs"));
    let ended = on(&nodes, &["unlock", "k", "--token", &token, "--json"]).expect(69);
    assert_eq!(ended.text("error"), "unknown");
    let list = ended.json().get("nodes").and_then(|nodes| nodes.as_array().cloned());
    assert_eq!(list.map(|list| list.len()), Some(3), "{ended:?}");
}

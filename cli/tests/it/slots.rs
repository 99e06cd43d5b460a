//! `run` and `lock` with slots, readers and writers.

use redbolt_embedded::Nodes;

use super::cli::{Running, on};

fn three() -> Nodes {
    Nodes::start(3).expect("nodes start")
}

/// A command that reports its lock, and then stays until it is told to end.
const STAY: [&str; 3] = ["--", "sh", "-c"];
const SAY: &str = "echo slot $REDBOLT_SLOT of $REDBOLT_KEY; exec sleep 600";

fn stay(nodes: &Nodes, how: &[&str]) -> Running {
    Running::start(&nodes.urls(), &[&["run", "n"], how, &STAY, &[SAY]].concat())
}

fn stop(running: Running) {
    running.signal("TERM");
    running.end().expect(128 + 15);
}

#[test]
fn at_most_as_many_commands_run_as_the_lock_has_slots() {
    let nodes = three();
    let (mut running, mut lines) = (Vec::new(), Vec::new());
    // One after the other: of two at once, one may hold a slot on a bare quorum.
    for _ in 0..2 {
        let mut command = stay(&nodes, &["--slots", "2"]);
        lines.push(command.line());
        running.push(command);
    }
    lines.sort_unstable();
    assert_eq!(lines, ["slot 0 of n:slot:0", "slot 1 of n:slot:1"]);
    let ended = on(&nodes, &["run", "n", "--slots", "2", "--", "echo", "ran"]).expect(75);
    assert_eq!(ended.out, "");
    assert!(ended.err.contains("others hold the slots that it needs"), "{ended:?}");
    assert!(ended.err.contains("redbolt ls 'n:slot*' shows the holders"), "{ended:?}");
    let status = on(&nodes, &["status", "n:slot:1"]).expect(0);
    assert!(status.out.contains("n:slot:1 is held on 3 of 3 nodes by run/sh"), "{status:?}");
    let waits =
        Running::start(&nodes.urls(), &["run", "n", "--slots", "2", "--wait", "30s", "--", "true"]);
    stop(running.remove(0));
    waits.end().expect(0);
    stop(running.remove(0));
    assert!((0..3).all(|node| nodes.key_count(node).unwrap() == 0));
}

#[test]
fn a_command_that_writes_runs_alone_and_those_that_read_run_together() {
    let nodes = three();
    let mut readers = [stay(&nodes, &["--read"]), stay(&nodes, &["--read"])];
    readers.iter_mut().for_each(|reader| assert!(reader.line().starts_with("slot ")));
    let ended = on(&nodes, &["run", "n", "--write", "--", "true"]).expect(75);
    assert!(ended.err.contains("the lock is taken"), "{ended:?}");
    readers.into_iter().for_each(stop);
    let mut writer = stay(&nodes, &["--write"]);
    assert_eq!(writer.line(), "slot of n:slot");
    on(&nodes, &["run", "n", "--read", "--", "true"]).expect(75);
    on(&nodes, &["run", "n", "--write", "--", "true"]).expect(75);
    stop(writer);
    on(&nodes, &["run", "n", "--read", "--", "true"]).expect(0);
    assert!((0..3).all(|node| nodes.key_count(node).unwrap() == 0));
}

#[test]
fn a_number_of_readers_alone_takes_no_plain_lock() {
    let nodes = three();
    let ended = on(&nodes, &["run", "n", "--readers", "5", "--", "true"]);
    assert!(ended.code == Some(64) && ended.err.contains("--read"), "{ended:?}");
    on(&nodes, &["run", "n", "--readers", "5", "--read", "--", "true"]).expect(0);
}

#[test]
fn a_slot_that_is_left_held_is_released_by_its_key_and_token() {
    let nodes = three();
    let held = on(&nodes, &["lock", "n", "--ttl", "30s", "--slots", "1", "--json"]).expect(0);
    assert_eq!((held.text("key").as_str(), held.json()["slot"].as_u64()), ("n:slot:0", Some(0)));
    let ended = on(&nodes, &["lock", "n", "--ttl", "30s", "--slots", "1"]).expect(75);
    assert!(ended.err.contains("the lock is taken"), "{ended:?}");
    on(&nodes, &["extend", "n:slot:0", "--token", &held.text("token"), "--ttl", "20s"]).expect(0);
    on(&nodes, &["unlock", "n:slot:0", "--token", &held.text("token")]).expect(0);
    let held = on(&nodes, &["lock", "n", "--ttl", "30s", "--slots", "1"]).expect(0);
    assert!(
        held.out.contains("key       n:slot:0") && held.out.contains("slot      0"),
        "{held:?}"
    );
}

#[test]
fn the_doctor_names_the_holders_above_a_smaller_number_of_slots() {
    let nodes = three();
    let all = ["--slots", "3"];
    let mut running = [stay(&nodes, &all), stay(&nodes, &all), stay(&nodes, &all)];
    running.iter_mut().for_each(|run| assert!(run.line().starts_with("slot ")));
    let doctor = |slots| on(&nodes, &["doctor", "--key", "n", "--slots", slots]);
    let ended = doctor("2").expect(78);
    assert!(ended.out.contains("n:slot:2 by run/sh") && !ended.out.contains("slot:1"), "{ended:?}");
    let ended = doctor("3");
    assert!(ended.out.contains("no client holds a slot above the 3 of n"), "{ended:?}");
    running.into_iter().for_each(stop);
    assert!(doctor("1").out.contains("no client holds a slot above the 1 of n"));
}

#[test]
fn what_no_lock_with_slots_can_be_is_a_usage_error() {
    let nodes = three();
    for args in [
        &["run", "n", "--slots", "0", "--", "true"][..],
        &["run", "n", "--slots", "64", "--", "true"],
        &["run", "n", "--slots", "2", "--read", "--", "true"],
        &["run", "n", "--read", "--write", "--", "true"],
        &["run", "n", "--write", "--fence", "--", "true"],
        &["run", "n:slot:0", "--", "true"],
        &["lock", "n:slot", "--ttl", "1s"],
    ] {
        let ended = on(&nodes, args).expect(64);
        assert!(!ended.err.is_empty(), "{args:?}");
    }
}

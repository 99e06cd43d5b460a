//! `status --watch` from outside.

use redbolt_embedded::Nodes;
use serde_json::Value;

use super::cli::{Running, on, take};

#[test]
fn in_a_pipe_each_change_is_a_line() {
    let nodes = Nodes::start(3).unwrap();
    let args = ["status", "k", "--watch", "--interval", "10ms"];
    let mut running = Running::start(&nodes.urls(), &args);
    assert!(running.line().ends_with("k is free"));
    // Looks that find no change leave no line: the next line is about the lock.
    for _ in 0..5 {
        on(&nodes, &["status", "k"]).expect(0);
    }
    let token = take(&nodes, "k");
    // One look may fall between the writes to two nodes.
    let mut line = running.line();
    assert!(!line.contains("free"), "{line}");
    while !line.contains("k is held on 3 of 3") {
        line = running.line();
    }
    on(&nodes, &["unlock", "k", "--token", &token]).expect(0);
    let free = std::iter::repeat_with(|| running.line()).find(|line| line.ends_with("k is free"));
    assert!(free.is_some());
    running.signal("INT");
    let ended = running.end().expect(0);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""), "nothing has changed since");
}

#[test]
fn in_a_pipe_a_change_that_the_line_does_not_show_is_no_line() {
    let nodes = Nodes::start(3).unwrap();
    let args = ["status", "k", "--watch", "--interval", "10ms"];
    let mut running = Running::start(&nodes.urls(), &args);
    assert!(running.line().ends_with("k is free"));
    nodes.kill(0).unwrap();
    for _ in 0..5 {
        on(&nodes, &["status", "k"]).expect(0);
    }
    take(&nodes, "k");
    let line = running.line();
    assert!(!line.contains("free"), "{line}");
}

#[test]
fn with_json_each_look_is_an_object_on_a_line() {
    let nodes = Nodes::start(3).unwrap();
    let args = ["--max-ttl", "2s", "status", "k", "--watch", "--interval", "10ms", "--json"];
    let mut running = Running::start(&nodes.urls(), &args);
    for _ in 0..3 {
        let look: Value = serde_json::from_str(&running.line()).unwrap();
        assert_eq!((&look["key"], &look["verdict"]), (&"k".into(), &"free".into()));
    }
    // The command reports nodes that go, and nodes that come back.
    nodes.kill(0).and_then(|()| nodes.kill(1)).unwrap();
    let mut is = |verdict: &str| {
        let look = |line: String| serde_json::from_str::<Value>(&line).unwrap();
        while look(running.line())["verdict"] != verdict {}
    };
    is("unknown");
    nodes.restart(0, redbolt_embedded::Memory::Kept).unwrap();
    nodes.restart(1, redbolt_embedded::Memory::Kept).unwrap();
    is("free");
}

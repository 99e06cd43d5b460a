//! `run` in the place of `flock`: several locks, no wait, one's own exit codes, a line for the
//! shell, and signals that would end or stop it.

use std::time::Duration;

use redbolt_embedded::Nodes;

use super::cli::{Running, command_on, end, on, take};

fn three() -> Nodes {
    Nodes::start(3).expect("nodes start")
}

fn verdict(nodes: &Nodes, key: &str) -> String {
    on(nodes, &["status", key, "--json"]).expect(0).text("verdict")
}

/// A command that reports that it is up, and then stays until its stdin ends or it is told to end.
const STAY: [&str; 4] = ["--", "sh", "-c", "echo up; exec sleep 600"];

#[test]
fn all_locks_are_held_while_the_command_runs_and_none_after() {
    let nodes = three();
    let args = [&["run", "c", "a", "b", "a", "--ttl", "2s"], &STAY[..]].concat();
    let mut running = Running::start(&nodes.urls(), &args);
    assert_eq!(running.line(), "up");
    // Longer than the TTL: the engine keeps each of them alive.
    let started = redbolt::now();
    while redbolt::now().saturating_since(started) < Duration::from_secs(3) {
        for key in ["a", "b", "c"] {
            assert_eq!(verdict(&nodes, key), "held", "{key}");
        }
    }
    running.signal("TERM");
    running.end().expect(128 + 15);
    assert!((0..3).all(|node| nodes.key_count(node).unwrap() == 0));
}

#[test]
fn the_loss_of_one_of_several_ends_the_command_and_frees_the_others() {
    let nodes = three();
    let args = [&["run", "b", "a", "--ttl", "2s"], &STAY[..]].concat();
    let mut running = Running::start(&nodes.urls(), &args);
    assert_eq!(running.line(), "up");
    let status = on(&nodes, &["status", "b", "--json"]).expect(0).json();
    on(&nodes, &["unlock", "b", "--token", status["nodes"][0]["token"].as_str().unwrap()])
        .expect(0);
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    let why = "redbolt: one of a, b was taken away while the command ran";
    assert!(ended.err.contains(why), "{ended:?}");
    assert_eq!(verdict(&nodes, "a"), "free");
}

#[test]
fn one_of_several_that_is_taken_starts_nothing_and_leaves_nothing() {
    let nodes = three();
    take(&nodes, "b");
    let ended = on(&nodes, &["run", "c", "a", "b", "--", "echo", "ran"]).expect(75);
    assert_eq!(ended.out, "");
    assert!(ended.err.contains("b: the lock is taken"), "{ended:?}");
    assert_eq!(verdict(&nodes, "a"), "free");
    assert_eq!(verdict(&nodes, "c"), "free");
}

/// Each wants two locks that the other wants, named in the other order, again and again.
#[test]
fn commands_that_want_the_same_locks_in_another_order_do_not_block_each_other() {
    let nodes = three();
    // At each turn a command may wait this long for a message to a holder that ends just then.
    let wait = ["--wait", "60s", "--ttl", "5s", "--node-timeout", "200ms", "--", "true"];
    std::thread::scope(|scope| {
        for keys in [["a", "b"], ["b", "a"]] {
            let nodes = &nodes;
            scope.spawn(move || {
                for _ in 0..10 {
                    let ended = on(nodes, &[&["run"], &keys[..], &wait].concat());
                    assert_eq!(ended.code, Some(0), "{ended:?}");
                    // A circle would last for a whole wait.
                    assert!(ended.took < Duration::from_secs(30), "{ended:?}");
                }
            });
        }
    });
}

#[test]
fn the_holder_of_several_locks_is_named_beside_each_and_a_waiter_for_them_is_told() {
    let nodes = three();
    let args = [&["run", "b", "c", "--name", "reconciler"], &STAY[..]].concat();
    let mut running = Running::start(&nodes.urls(), &args);
    assert_eq!(running.line(), "up");
    for key in ["b", "c"] {
        let status = on(&nodes, &["status", key]).expect(0);
        assert!(status.out.contains("reconciler"), "{status:?}");
    }
    let ended = on(&nodes, &["run", "a", "c", "d", "--wait", "3s", "--", "true"]);
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("waits for c, held by reconciler"), "{ended:?}");
    assert!(
        ended.err.contains("c: the lock is taken: held on 3 of 3 nodes by reconciler"),
        "{ended:?}"
    );
    running.signal("TERM");
    running.end().expect(128 + 15);
}

#[test]
fn a_taken_lock_ends_with_the_code_that_was_asked_for() {
    let nodes = three();
    take(&nodes, "k");
    let ended = on(&nodes, &["run", "-n", "-E", "9", "k", "--", "echo", "ran"]).expect(9);
    assert!(ended.err.contains("the lock is taken") && !ended.err.contains("--wait"), "{ended:?}");
    on(&nodes, &["run", "-w", "300ms", "-E", "9", "k", "--", "echo", "ran"]).expect(9);
    // A crontab mails whatever is printed.
    let ended = on(&nodes, &["run", "-n", "-E", "0", "k", "--", "echo", "ran"]).expect(0);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
    let ended = on(&nodes, &["run", "-E", "0", "--json", "k", "--", "echo", "ran"]).expect(0);
    assert_eq!(ended.text("error"), "taken");
    // Only a conflict has that code.
    nodes.kill(0).and_then(|()| nodes.kill(1)).unwrap();
    on(&nodes, &["run", "-E", "9", "k", "--", "echo", "ran"]).expect(69);
}

#[test]
fn a_line_for_the_shell_runs_in_it() {
    let nodes = three();
    let line = "echo one | tr a-z A-Z; exit 4";
    for shell in ["", "/bin/sh"] {
        let mut command = command_on(&nodes.urls(), &["run", "k", "-c", line]);
        command.env("SHELL", shell);
        let ended = end(command).expect(4);
        assert_eq!(ended.out, "ONE\n");
    }
}

#[test]
fn user_signals_reach_the_command() {
    let nodes = three();
    for name in ["USR1", "USR2"] {
        // The shell would report that the signal ended its sleep, which is in the group too.
        let script = format!(
            "exec 2>/dev/null; trap 'echo got; exit 9' {name}; echo up; \
             while :; do sleep 0.01; done"
        );
        let args = ["run", "k", "--", "sh", "-c", &script];
        let mut running = Running::start(&nodes.urls(), &args);
        assert_eq!(running.line(), "up");
        running.signal(name);
        assert_eq!(running.line(), "got", "{name}");
        running.end().expect(9);
    }
}

/// A suspended `run` could not extend the lock, and the command would go on without one.
#[cfg(target_os = "linux")]
#[test]
fn it_does_not_let_itself_be_suspended() {
    let nodes = three();
    let args = [&["run", "k", "--ttl", "2s"], &STAY[..]].concat();
    let mut running = Running::start(&nodes.urls(), &args);
    assert_eq!(running.line(), "up");
    running.signal("TSTP");
    let started = redbolt::now();
    while redbolt::now().saturating_since(started) < Duration::from_secs(3) {
        assert_eq!(verdict(&nodes, "k"), "held");
    }
    running.signal("TERM");
    let ended = running.end().expect(128 + 15);
    assert!(ended.err.contains("cannot be suspended"), "{ended:?}");
}

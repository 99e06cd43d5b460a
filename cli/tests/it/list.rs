//! `ls` and `top`, on real servers.

use std::time::Duration;

use serde_json::Value;

use super::cli::{Running, command_on, on_urls, redbolt};
use super::holders::{NO_GUARD, at, holding, hostname, servers, urls};
use super::pty::Terminal;
use redbolt_rig::{PATIENCE, RealServer, eventually};

fn listed(servers: &[RealServer], args: &[&str]) -> Vec<Value> {
    let ended = at(servers, &[&["ls", "--json"], args].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

fn keys(locks: &[Value]) -> Vec<&str> {
    locks.iter().filter_map(|lock| lock["key"].as_str()).collect()
}

#[test]
fn locks_of_all_kinds_are_listed_and_what_is_no_lock_is_not() {
    let Some(servers) = servers() else { return };
    let running = holding(&servers, "sku:1");
    at(&servers, &["lock", "sku:2", "--ttl", "30s"]).expect(0);
    for server in &servers {
        server.command(&["SET", "sku:3", "8ae2-another-library"]);
        server.command(&["RPUSH", "sku:list", "x"]);
        server.command(&["SET", "sku:1:fence", "17"]);
        server.command(&["SET", "sku:long", &"x".repeat(256)]);
        server.command(&["SET", "redbolt:since:0", "1"]);
    }
    servers[1].command(&["SET", "sku:4", "one vote", "PX", "60000"]);
    let locks = listed(&servers, &["*"]);
    assert_eq!(keys(&locks), ["sku:1", "sku:2", "sku:3", "sku:4"]);
    let [run, lock, other, split] = &locks[..] else { panic!("{locks:?}") };
    assert_eq!(run["holder"]["pid"], running.pid());
    assert_eq!((&lock["verdict"], &lock["holder"]["votes"]), (&"held".into(), &3.into()));
    assert!(lock["ttl_ms"].as_u64().is_some_and(|ttl| ttl <= 30_000), "{lock}");
    assert_eq!((&other["holder"]["client"], &other["ttl_ms"]), (&Value::Null, &Value::Null));
    assert_eq!((&split["verdict"], &split["holder"]), (&"split".into(), &Value::Null));
    assert!(split["ttl_ms"].as_u64().is_some_and(|ttl| ttl <= 60_000), "{split}");
    assert_eq!(keys(&listed(&servers, &["sku:[12]"])), ["sku:1", "sku:2"]);
    assert_eq!(keys(&listed(&servers, &["--prefix", "sku:"])), ["1", "2", "3", "4"]);
    // A prefix is not a pattern.
    assert_eq!(keys(&listed(&servers, &["--prefix", "sk[u]:"])), [""; 0]);
    at(&servers, &["lock", "5", "--prefix", "sk[u]:", "--ttl", "30s"]).expect(0);
    assert_eq!(keys(&listed(&servers, &["--prefix", "sk[u]:"])), ["5"]);
    let text = at(&servers, &["ls"]).expect(0).out;
    assert!(text.contains("held 3/3") && text.contains("a client of another library"), "{text}");
    assert_eq!(at(&servers, &["ls", "nothing*"]).expect(0).out, "no locks match nothing*\n");
}

#[test]
fn more_locks_than_the_limit_are_not_listed_and_it_says_so() {
    let Some(servers) = servers() else { return };
    for server in &servers {
        let mut wire = server.connect();
        for index in 0..1_500 {
            let token = format!("{index:040x}");
            assert_eq!(wire.ask(&["SET", &format!("k:{index}"), &token]).unwrap(), b"+OK\r\n");
        }
    }
    assert_eq!(listed(&servers, &["--limit", "2000"]).len(), 1_500);
    let some = at(&servers, &["ls", "--limit", "700", "--json"]).expect(0);
    assert_eq!(some.out.lines().count(), 700);
    assert!(some.err.contains("there are more locks than 700"), "{some:?}");
}

#[test]
fn a_hung_node_costs_its_timeout_and_is_named() {
    let Some(servers) = servers() else { return };
    for server in &servers[..2] {
        let mut wire = server.connect();
        for index in 0..3_000 {
            assert_eq!(wire.ask(&["SET", &format!("k:{index}"), "token"]).unwrap(), b"+OK\r\n");
        }
    }
    servers[2].freeze();
    let args = ["--restart-guard", "off", "ls", "--limit", "3000", "--node-timeout", "1s"];
    // These are far more steps than the limit allows if each costs a timeout.
    let ended = on_urls(&urls(&servers), &args).expect(0);
    assert!(ended.took < Duration::from_secs(8), "{ended:?}");
    assert_eq!(ended.out.matches("held 2/3").count(), 3_000, "{ended:?}");
    let name = format!("127.0.0.1:{}", servers[2].port());
    assert!(ended.err.starts_with(&format!("redbolt: not searched: {name}: ")), "{ended:?}");
    servers[1].freeze();
    let ended = on_urls(&urls(&servers), &args).expect(69);
    assert!(ended.out.contains("unknown"), "{ended:?}");
    servers[1..].iter().for_each(RealServer::thaw);
}

#[test]
fn a_list_that_waits_ends_with_75_while_a_lock_has_no_vote_to_spare() {
    let Some(servers) = servers() else { return };
    let lock = ["lock", "k", "--ttl", "60s", "--max-ttl", "60s", "--json"];
    let token = at(&servers, &lock).expect(0).text("token");
    // The command may end before its last vote.
    assert!(eventually(PATIENCE, || servers.iter().all(|server| server.exists("k"))));
    let ended = at(&servers, &["ls", "--wait", "30s"]).expect(0);
    assert!(ended.took < PATIENCE && !ended.out.contains("to spare"), "{ended:?}");

    let [.., forgetful] = &servers[..] else { panic!("three servers") };
    assert_eq!(forgetful.command(&["DEL", "k"]), b":1\r\n");
    let none = "1 lock with no vote to spare: one more node that fails or restarts ends it\n";
    let ended = at(&servers, &["ls", "--wait", "1s"]).expect(75);
    assert!(ended.took >= Duration::from_secs(1) && ended.out.ends_with(none), "{ended:?}");
    let ended = at(&servers, &["ls", "other*", "--wait", "30s"]).expect(0);
    assert!(ended.took < PATIENCE, "{ended:?}");
    assert!(at(&servers, &["ls"]).expect(0).out.ends_with(none), "it is told without a wait, too");

    let waits = ["ls", "--wait", "30s"];
    let before = forgetful.calls("scan");
    let waiting = Running::start(&urls(&servers), &[&NO_GUARD[..], &waits].concat());
    assert!(eventually(PATIENCE, || forgetful.calls("scan") >= before + 2), "two looks");
    assert_eq!(forgetful.command(&["SET", "k", &token, "PX", "60000"]), b"+OK\r\n");
    let ended = waiting.end().expect(0);
    assert!(ended.took < PATIENCE && !ended.out.contains("to spare"), "{ended:?}");
}

#[test]
fn a_list_that_waits_ends_with_75_while_a_lock_needs_the_votes_of_all_nodes() {
    let Some(servers) = servers() else { return };
    at(&servers, &["lock", "k", "--ttl", "30s", "--quorum", "3"]).expect(0);
    let ended = at(&servers, &["ls", "--wait", "1s", "--quorum", "3"]).expect(75);
    assert!(ended.out.contains("1 lock with no vote to spare"), "{ended:?}");
    // It is no news to a user who did not ask.
    let ended = at(&servers, &["ls", "--quorum", "3"]).expect(0);
    assert!(!ended.out.contains("to spare"), "{ended:?}");
}

#[test]
fn a_user_without_scan_is_told_so_once_for_all_nodes_and_what_to_grant() {
    let Some(servers) = servers() else { return };
    for server in &servers {
        let line = ["ACL", "SETUSER", "blind", "on", ">pw", "~*", "+@all", "-scan"];
        assert_eq!(server.command(&line), b"+OK\r\n");
    }
    let urls: Vec<String> =
        urls(&servers).iter().map(|url| url.replace("://", "://blind:pw@")).collect();
    let ended = on_urls(&urls, &["--restart-guard", "off", "ls"]).expect(77);
    assert_eq!(ended.out, "", "nobody knows that there are none");
    let denied =
        format!("not searched: all: {}; grant the user +scan", redbolt::Cause::NoPermission);
    assert!(ended.err.contains(&denied), "{ended:?}");
    let ended = on_urls(&urls, &["--restart-guard", "off", "ls", "--json"]).expect(77);
    assert_eq!((ended.text("error").as_str(), ended.err.as_str()), ("no_permission", ""));
    let cause = ended.json().pointer("/nodes/2/cause").cloned();
    assert_eq!(cause, Some("no_permission".into()), "{ended:?}");
}

#[test]
fn top_is_for_terminals() {
    let ended = redbolt(&["top", "--nodes", "127.0.0.1:1"]).expect(64);
    assert!(ended.err.contains("top needs a terminal"), "{ended:?}");
}

#[test]
fn top_draws_the_locks_again_and_again_and_ends_at_a_q() {
    let Some(servers) = servers() else { return };
    let _first = holding(&servers, "first");
    let args = ["--restart-guard", "off", "top", "--interval", "20ms"];
    let mut terminal = Terminal::start(command_on(&urls(&servers), &args));
    terminal.read_until("1 lock; 3 of 3 nodes vote");
    terminal.read_until("first");
    let _second = holding(&servers, "another");
    terminal.read_until("2 locks");
    terminal.read_until("another");
    // These come from later looks than the one that saw it first.
    for _ in 0..3 {
        terminal.forget();
        terminal.read_until("another");
    }
    let text = terminal.text().split("2 locks").last().unwrap().to_owned();
    let place = |lock: &str| text.find(lock);
    assert!(place("first").is_none() || place("first") < place("another"), "{text}");
    terminal.write("q");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("\x1b[?25h"), "the cursor is shown again: {text}");
}

#[test]
fn on_a_narrow_terminal_a_holder_has_a_line_of_its_own() {
    let Some(servers) = servers() else { return };
    let running = holding(&servers, "first");
    let args = ["--restart-guard", "off", "top", "--interval", "20ms"];
    let mut terminal = Terminal::start(command_on(&urls(&servers), &args));
    terminal.resize(60, 24);
    // Looks that begin after the terminal has its width.
    for _ in 0..3 {
        terminal.forget();
        terminal.read_until("q or Ctrl-C ends");
    }
    let line =
        format!("\x1b[K\r\n    holder    run/sh on {}, process {}", hostname(), running.pid());
    assert!(terminal.text().contains(&line), "{}", terminal.text());
    terminal.write("q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn on_a_low_terminal_top_says_how_many_locks_it_does_not_show() {
    let Some(servers) = servers() else { return };
    for server in &servers {
        (0..12).for_each(|index| drop(server.command(&["SET", &format!("k:{index}"), "token"])));
    }
    let args = ["--restart-guard", "off", "top", "--interval", "20ms"];
    let mut terminal = Terminal::start(command_on(&urls(&servers), &args));
    terminal.resize(100, 8);
    // A head, a title, three locks, this line, the time, and one for the cursor.
    terminal.read_until("and 9 more");
    terminal.write("q");
    assert_eq!(terminal.end().0, Some(0));
}

/// The order of the names would be the other one.
#[test]
fn the_lock_that_is_held_longest_comes_first() {
    let Some(servers) = servers() else { return };
    let _older = holding(&servers, "z-older");
    let is_said = |key: &str| {
        let look = || at(&servers, &["status", key, "--json"]).expect(0).json();
        assert!(eventually(PATIENCE, || look()["holder"]["since_ms"].is_u64()), "{}", look());
    };
    is_said("z-older");
    let _newer = holding(&servers, "a-newer");
    is_said("a-newer");
    at(&servers, &["lock", "silent", "--ttl", "30s"]).expect(0);
    let locks = listed(&servers, &["--long"]);
    assert_eq!(keys(&locks), ["z-older", "a-newer", "silent"]);
    assert_eq!(keys(&listed(&servers, &[])), ["a-newer", "silent", "z-older"]);
    let since = |lock: &Value| lock["holder"]["since_ms"].as_u64();
    assert!(since(&locks[0]) < since(&locks[1]) && since(&locks[2]).is_none(), "{locks:?}");

    let args = ["--restart-guard", "off", "top", "--interval", "20ms"];
    let mut terminal = Terminal::start(command_on(&urls(&servers), &args));
    terminal.read_until("3 locks");
    terminal.read_until("silent");
    let text = terminal.text();
    assert!(text.find("z-older") < text.find("a-newer"), "{text}");
    terminal.write("q");
    assert_eq!(terminal.end().0, Some(0));
    let text = at(&servers, &["ls", "--long"]).expect(0).out;
    let line = text.lines().find(|line| line.contains("silent"));
    assert!(line.is_some_and(|line| line.contains("unknown")), "{text}");
}

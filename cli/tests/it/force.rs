//! `unlock --force` takes a lock from the holder that it showed, and from no other.

use std::process::Stdio;
use std::time::Duration;

use super::cli::{Running, STAY, command_on, end};
use super::holders::{at, holding, servers, urls};
use super::pty::Terminal;
use redbolt_rig::RealServer;

#[test]
fn a_lock_is_taken_from_its_holder_and_the_line_on_stderr_says_from_whom() {
    let Some(servers) = servers() else { return };
    let running = holding(&servers, "k");
    let pid = running.pid();
    let taken = at(&servers, &["unlock", "--force", "--yes", "k", "--json"]).expect(0);
    let object = taken.json();
    assert_eq!((&object["released"], &object["holder"]["pid"]), (&true.into(), &pid.into()));
    assert!(taken.err.contains(" took k from run/sh on "), "{taken:?}");
    assert_eq!(running.end().code, Some(70));
    // A lock of another library, which never ends.
    servers.iter().for_each(|server| drop(server.command(&["SET", "k", "forever"])));
    at(&servers, &["unlock", "--force", "--yes", "k"]).expect(0);
    assert!(servers.iter().all(|server| !server.exists("k")));
}

/// The next extension would come after 10 s.
#[test]
fn a_run_whose_lock_is_taken_away_ends_its_command_at_once_and_says_so() {
    let Some(servers) = servers() else { return };
    let args = ["--restart-guard", "off", "k", "--ttl", "30s"];
    let running = Running::holding(&urls(&servers), &args);
    let pid = running.pid();
    let taken = at(&servers, &["unlock", "--force", "--yes", "k"]).expect(0);
    assert!(taken.out.starts_with("k is taken from ") && !taken.out.contains(';'), "{taken:?}");
    assert!(taken.out.contains(&format!(", process {pid}, ")), "{taken:?}");
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    assert!(ended.took < Duration::from_secs(8), "{ended:?}");
    let said: Vec<_> = ended.err.lines().collect();
    let expected = [
        "redbolt: the lock was taken away: ending the command",
        "redbolt: k was taken away while the command ran, so the command was ended",
    ];
    assert_eq!(said, expected);
}

/// It learns of its loss with its next extension, because no client can tell it.
#[test]
fn a_run_that_may_not_hear_messages_still_ends_its_command_and_says_the_same() {
    let Some(servers) = servers() else { return };
    let rules = "ACL SETUSER u on >s3cret ~* resetchannels +@all";
    for server in &servers {
        assert_eq!(server.command(&rules.split(' ').collect::<Vec<_>>()), b"+OK\r\n");
    }
    let login = |url: &String| url.replace("redis://", "redis://u:s3cret@");
    let urls: Vec<String> = urls(&servers).iter().map(login).collect();
    let running = Running::holding(&urls, &["--restart-guard", "off", "k", "--ttl", "3s"]);
    at(&servers, &["unlock", "--force", "--yes", "k"]).expect(0);
    let ended = running.end();
    assert_eq!(ended.code, Some(70), "{ended:?}");
    assert!(ended.err.starts_with("redbolt: the lock was taken away: "), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 2, "{ended:?}");
}

#[test]
fn a_waiter_that_got_a_lock_that_was_taken_away_is_named_as_its_holder() {
    let Some(servers) = servers() else { return };
    let start = || {
        let args = ["--restart-guard", "off", "run", "k", "--wait", "60s"];
        Running::start(&urls(&servers), &[&args[..], &STAY].concat())
    };
    let mut holder = start();
    assert_eq!(holder.line(), "held");
    let mut take_away = |args: &[&str]| {
        let mut next = start();
        next.err_line("waits for k, held by");
        let taken = at(&servers, &[&["unlock", "--force", "--yes", "k"], args].concat()).expect(0);
        assert_eq!(next.line(), "held");
        holder = next;
        (taken, holder.pid())
    };
    // On a loaded machine the look may come before the waiter has the lock.
    let is_named = (0..5).any(|_| {
        let (taken, pid) = take_away(&[]);
        let (_, now) = taken.out.split_once("; now it is held by ").unwrap_or_default();
        now.contains(&format!(", process {pid}, "))
    });
    assert!(is_named);
    let is_named = (0..5).any(|_| {
        let (taken, pid) = take_away(&["--json"]);
        taken.json().pointer("/next/pid").and_then(serde_json::Value::as_u64) == Some(pid.into())
    });
    assert!(is_named, "in the object");
}

#[test]
fn where_nobody_holds_the_lock_nothing_is_deleted() {
    let Some(servers) = servers() else { return };
    let free = at(&servers, &["unlock", "--force", "--yes", "k"]).expect(70);
    assert_eq!(free.err, "redbolt: k is free\n");
    servers[0].command(&["SET", "k", "one vote"]);
    let split = at(&servers, &["unlock", "--force", "--yes", "k"]).expect(70);
    assert!(split.err.contains("k is held by nobody"), "{split:?}");
    // The key of the only vote has no TTL.
    for args in [&["unlock", "--force", "--yes", "k"][..], &["status", "k"]] {
        let ended = at(&servers, args);
        let all = format!("{}{}", ended.out, ended.err);
        assert!(all.contains("never ends: delete it there"), "{ended:?}");
    }
    assert!(servers[0].exists("k"));
}

#[test]
fn without_a_terminal_it_needs_a_yes() {
    let Some(servers) = servers() else { return };
    let _running = holding(&servers, "k");
    let mut command = command_on(&urls(&servers), &["unlock", "--force", "k"]);
    command.stdin(Stdio::null());
    let ended = end(command).expect(64);
    assert!(ended.err.contains("without one it needs --yes"), "{ended:?}");
    assert!(servers.iter().all(|server: &RealServer| server.exists("k")));
}

/// The command asks its question, and gets the answer once the test has had its time.
fn asked(servers: &[RealServer], answer: &str, meanwhile: impl FnOnce()) -> (Option<i32>, String) {
    let args = ["--restart-guard", "off", "unlock", "--force", "k"];
    let mut terminal = Terminal::start(command_on(&urls(servers), &args));
    terminal.read_until("Take k away? [y/N] ");
    meanwhile();
    terminal.write(answer);
    terminal.end()
}

#[test]
fn it_shows_the_holder_and_takes_the_lock_on_a_yes_alone() {
    let Some(servers) = servers() else { return };
    let running = holding(&servers, "k");
    let (code, text) = asked(&servers, "n\n", || {});
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("process {}, ", running.pid())), "{text}");
    assert!(text.contains("redbolt: k stays as it is"), "{text}");
    assert!(servers.iter().all(|server| server.exists("k")));
    let (code, text) = asked(&servers, "\x04", || {});
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("[y/N] \r\nredbolt: k stays"), "the answer has its own line: {text}");
    let (code, text) = asked(&servers, "y\n", || {});
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(running.end().code, Some(70));
}

#[test]
fn a_lock_that_has_gone_to_another_while_it_asked_stays_with_that_one() {
    let Some(servers) = servers() else { return };
    let set = |token: &str| {
        servers.iter().for_each(|server| drop(server.command(&["SET", "k", token])));
    };
    set("first");
    let (code, text) = asked(&servers, "y\n", || set("second"));
    assert_eq!(code, Some(70), "{text}");
    assert!(text.contains("nothing was taken from anybody else"), "{text}");
    assert!(servers.iter().all(|server| server.get("k").as_deref() == Some(b"second")));
}

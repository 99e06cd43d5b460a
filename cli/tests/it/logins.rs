//! Tokens and passwords: the ways in which they come in, and the end of a command whose login is
//! refused.

use std::io::Write as _;
use std::process::Stdio;

use redbolt_embedded::Nodes;
use redbolt_rig::{Kind, PATIENCE, RealServer, available_kinds, eventually, kind_or_skip};

use super::cli::{Ended, Running, command_on, end, on, on_urls, take};

#[test]
fn a_token_comes_from_the_environment_a_file_or_stdin() {
    let nodes = Nodes::start(3).expect("nodes start");
    let dir = tempfile::tempdir().expect("a directory");
    for (command, more) in [("extend", &["--ttl", "20s"][..]), ("unlock", &[])] {
        let token = take(&nodes, "k");
        let mut named = command_on(&nodes.urls(), &[&[command, "k"], more].concat());
        named.env("REDBOLT_TOKEN", &token);
        end(named).expect(0);
        on(&nodes, &["unlock", "k", "--token", &token]).expect(if command == "unlock" {
            70
        } else {
            0
        });

        let token = take(&nodes, "k");
        let file = dir.path().join("token");
        std::fs::write(&file, format!("{token}\r\nmore\n")).expect("a file");
        let file = file.display().to_string();
        let mut filed =
            command_on(&nodes.urls(), &[&[command, "k", "--token-file", &file], more].concat());
        // The token on the command line comes first.
        filed.env("REDBOLT_TOKEN", "of another lock");
        end(filed).expect(0);
        on(&nodes, &["unlock", "k", "--token", &token]).expect(if command == "unlock" {
            70
        } else {
            0
        });

        let token = take(&nodes, "k");
        let args = [&[command, "k", "--token-file", "-"], more].concat();
        let mut piped = command_on(&nodes.urls(), &args);
        let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
        // The pipe stays open: the first line is enough.
        let mut pipe = child.stdin.take().expect("a pipe");
        pipe.write_all(format!("{token}\n").as_bytes()).expect("it reads");
        assert!(child.wait().expect("a child").success());
        on(&nodes, &["unlock", "k", "--token", &token]).expect(if command == "unlock" {
            70
        } else {
            0
        });
    }
    let mut long = command_on(&nodes.urls(), &["unlock", "k", "--token-file", "/dev/zero"]);
    long.stdin(Stdio::null());
    assert!(end(long).expect(64).err.contains("is too long"));
}

/// The variables that a command under these locks finds in its environment.
fn found(nodes: &Nodes, keys: &[&str]) -> String {
    let print = ["--", "sh", "-c", "echo ${REDBOLT_KEY-none} ${REDBOLT_TOKEN-none}"];
    let mut command = command_on(&nodes.urls(), &[&["run"], keys, &print].concat());
    // The variables of a command under another lock.
    command.env("REDBOLT_KEY", "other").env("REDBOLT_TOKEN", "other");
    end(command).expect(0).out.trim().to_owned()
}

#[test]
fn a_command_finds_the_key_and_the_token_of_its_only_lock() {
    let nodes = Nodes::start(3).expect("nodes start");
    let words = found(&nodes, &["sku:42"]);
    let (key, token) = words.split_once(' ').expect("two words");
    assert_eq!((key, token.len()), ("sku:42", 40));
    assert_eq!(found(&nodes, &["w", "--write"]), "w:slot none");
    // The token is that of the lock. The command has its grace to show it.
    let unlock = "trap '' TERM; \"$0\" unlock \"$REDBOLT_KEY\"; exec sleep 600";
    let args = ["run", "k", "--ttl", "30s", "--grace", "10s", "--", "sh", "-c", unlock];
    let mut running =
        Running::start(&nodes.urls(), &[&args[..], &[env!("CARGO_BIN_EXE_redbolt")]].concat());
    assert_eq!(running.line(), "k is released");
    assert_eq!(running.end().code, Some(70));
}

/// Three servers that want a password, and their addresses with it.
fn guarded(passwords: [&str; 3]) -> Option<(Vec<RealServer>, Vec<String>)> {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70];
    let kinds: Option<Vec<Kind>> = kinds.into_iter().map(kind_or_skip).collect();
    let start = |kind| RealServer::start(kind, &["--requirepass", "right"]);
    let servers: Vec<RealServer> = kinds?.into_iter().map(start).collect();
    let with = |(server, password): (&RealServer, &str)| {
        server.url().replace("redis://", &format!("redis://:{password}@"))
    };
    let urls = servers.iter().zip(passwords).map(with).collect();
    Some((servers, urls))
}

fn each_command(urls: &[String]) -> Vec<Ended> {
    let commands: [&[&str]; 7] = [
        &["lock", "k", "--ttl", "5s"],
        &["run", "k", "--wait", "200ms", "--", "true"],
        &["unlock", "k", "--token", "t0ken"],
        &["extend", "k", "--token", "t0ken", "--ttl", "5s"],
        &["status", "k"],
        &["ls"],
        &["bench", "--iterations", "2"],
    ];
    let guard = ["--restart-guard", "off"];
    commands.iter().map(|args| on_urls(urls, &[&guard, *args].concat())).collect()
}

#[test]
fn a_refused_login_ends_with_77_where_the_nodes_that_refuse_it_would_make_a_quorum() {
    let Some((_servers, urls)) = guarded(["wrong", "wrong", "right"]) else { return };
    for ended in each_command(&urls) {
        assert_eq!(ended.code, Some(77), "{ended:?}");
        let all = format!("{}{}", ended.out, ended.err);
        assert!(all.contains("user or password refused"), "{ended:?}");
        assert!(!all.contains("wrong") && !all.contains("t0ken"), "{ended:?}");
    }
    let lock = on_urls(&urls, &["lock", "k", "--ttl", "5s", "--json"]).expect(77).json();
    assert_eq!(lock["error"], "no_permission");
    assert_eq!(lock["nodes"][0]["cause"], "credentials");

    let Some((mut servers, urls)) = guarded(["wrong", "right", "right"]) else { return };
    let guard = ["--restart-guard", "off"];
    on_urls(&urls, &[&["lock", "k", "--ttl", "5s"], &guard[..]].concat()).expect(0);
    // Another is away, then all others: with the right password there would still be no quorum.
    for (server, code) in [(1, 77), (2, 69)] {
        servers[server].kill9();
        for ended in each_command(&urls) {
            assert_eq!(ended.code, Some(code), "{ended:?}");
        }
    }
}

#[test]
fn a_key_that_all_nodes_deny_ends_with_77_also_where_one_waits_for_its_vote() {
    let kinds = available_kinds();
    let Some(kind) = kinds.first() else { return };
    let mut servers: Vec<_> = (0..5).map(|_| RealServer::start(*kind, &[])).collect();
    let rules = |server: &RealServer| {
        let words = "ACL SETUSER u reset on >right ~other:* &* +@all";
        assert_eq!(server.command(&words.split(' ').collect::<Vec<_>>()), b"+OK\r\n");
    };
    servers.iter().for_each(rules);
    let urls: Vec<String> =
        servers.iter().map(|server| server.url().replace("://", "://u:right@")).collect();
    let lock = || on_urls(&urls, &["lock", "k", "--ttl", "1s", "--max-ttl", "2800ms"]);
    assert!(eventually(PATIENCE, || lock().code == Some(77)), "{:?}", lock());
    for unlock in [&["unlock", "k", "--token", "t0ken"][..], &["unlock", "k", "--force", "--yes"]] {
        let ended = on_urls(&urls, &[unlock, &["--max-ttl", "2800ms"]].concat()).expect(77);
        assert!(ended.err.contains(redbolt::Cause::KeyDenied.text()), "{ended:?}");
    }
    servers[0].restart();
    rules(&servers[0]);
    let ended = lock().expect(77);
    assert!(ended.err.contains("may have forgotten locks"), "it waits: {ended:?}");
}

//! Fences: the numbers that `lock` and `run` give out, and the obstacles to them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use redbolt_embedded::Nodes;
use redbolt_rig::{Kind, RealServer, kind_or_skip};

use super::cli::{Ended, command_on, end, on, on_urls};

fn five() -> Nodes {
    Nodes::start(5).expect("nodes start")
}

#[test]
fn a_lock_with_a_fence_shows_it_and_the_next_one_has_a_higher_one() {
    let nodes = five();
    let lock = |more: &[&str]| {
        let lock = on(&nodes, &[&["lock", "k", "--ttl", "10s", "--json"], more].concat()).expect(0);
        on(&nodes, &["unlock", "k", "--token", &lock.text("token")]).expect(0);
        lock
    };
    let first = lock(&["--fence"]).number("fence");
    assert!(lock(&["--fence"]).number("fence") > first);
    assert!(lock(&[]).json()["fence"].is_null());

    let out = on(&nodes, &["lock", "k", "--ttl", "10s", "--fence"]).expect(0).out;
    let shown = out.lines().find_map(|line| line.strip_prefix("fence     "));
    assert!(shown.expect("a fence").parse::<u64>().unwrap() > first, "{out}");
    let out = on(&nodes, &["lock", "j", "--ttl", "10s"]).expect(0).out;
    assert!(!out.contains("fence"), "{out}");
}

#[test]
fn an_extension_knows_no_fence() {
    let nodes = five();
    let lock = on(&nodes, &["lock", "k", "--ttl", "10s", "--fence", "--json"]).expect(0);
    let token = lock.text("token");
    let extended =
        on(&nodes, &["extend", "k", "--token", &token, "--ttl", "10s", "--json"]).expect(0);
    assert!(extended.json()["fence"].is_null(), "{extended:?}");
}

/// The fence that a command under the lock finds in its environment.
fn fence_of(nodes: &Nodes, args: &[&str]) -> String {
    let print = ["--", "sh", "-c", "echo ${REDBOLT_FENCE-none}"];
    let mut command = command_on(&nodes.urls(), &[&["run", "k"], args, &print].concat());
    // The fence of a command under another lock.
    command.env("REDBOLT_FENCE", "5");
    end(command).expect(0).out.trim().to_owned()
}

#[test]
fn a_command_finds_its_fence_in_the_environment_and_it_grows_from_run_to_run() {
    let nodes = five();
    let fences: Vec<u64> =
        (0..3).map(|_| fence_of(&nodes, &["--fence"]).parse().unwrap()).collect();
    assert!(fences.is_sorted_by(|a, b| a < b) && fences[0] > 5, "{fences:?}");
}

#[test]
fn a_command_without_a_fence_has_none_not_even_an_inherited_one() {
    let nodes = five();
    assert_eq!(fence_of(&nodes, &[]), "none");
}

#[test]
fn a_longer_max_ttl_needs_no_word_about_fences() {
    let server =
        on_urls(&["127.0.0.1:1".to_owned()], &["lock", "k", "--ttl", "1s", "--max-ttl", "3d"]);
    // The command got as far as the node, which is not there.
    assert!(server.expect(69).err.contains("connection refused"));
}

/// Asserts that a lock with a fence fails in one line with these words, while a lock without one is
/// taken.
fn only_fences_fail(urls: &[String], name: &str, words: &[&str]) {
    let fenced = ["lock", "k", "--ttl", "5s", "--fence"];
    let ended: Ended = on_urls(urls, &fenced).expect(69);
    for word in [&[name], words].concat() {
        assert!(ended.err.contains(word), "{word}: {ended:?}");
    }
    on_urls(urls, &["lock", "k", "--ttl", "5s"]).expect(0);
}

#[test]
fn clocks_that_are_off_are_named_and_so_is_what_to_do() {
    let nodes = Nodes::start(3).expect("nodes start");
    let mut urls = nodes.urls();
    for url in urls.iter_mut().take(2) {
        *url = years_ahead(url.trim_start_matches("redis://").to_owned());
    }
    only_fences_fail(&urls, &urls[0], &["clock differs too much", "NTP"]);
    let doctor = on_urls(&urls, &["doctor"]).expect(0).out;
    let line = doctor.lines().find(|line| line.contains("clocks: ")).expect("a check");
    assert!(line.starts_with("note") && line.contains(&urls[0]), "{line}");
    assert!(line.contains("does not vote for locks with a fence"), "{line}");
}

/// A relay to the node at `place` that shows its clock decades ahead. Returns the relay's address.
fn years_ahead(place: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let Ok(mut node) = TcpStream::connect(&place) else { return };
            let Ok((mut from, mut to)) =
                client.try_clone().and_then(|it| Ok((it, node.try_clone()?)))
            else {
                return;
            };
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || {
                let mut bytes = vec![0; 65_536];
                while let Ok(len @ 1..) = node.read(&mut bytes) {
                    let answer = String::from_utf8_lossy(bytes.get(..len).unwrap_or_default());
                    // The time in INFO, and the answer to TIME: numbers that begin with a 1.
                    let answer = answer
                        .replace("server_time_usec:1", "server_time_usec:2")
                        .replace("*2\r\n$10\r\n1", "*2\r\n$10\r\n2");
                    if client.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_user_who_may_not_run_scripts_is_told_where_and_what_to_grant() {
    let Some(kind) = kind_or_skip(Kind::Valkey91) else { return };
    let servers: Vec<RealServer> = (0..3).map(|_| RealServer::start(kind, &[])).collect();
    let rules = ["on", ">s3cret", "~*", "&*", "+@all", "-eval"];
    for server in &servers[..2] {
        let words = [&["ACL", "SETUSER", "u", "reset"][..], &rules].concat();
        assert_eq!(server.command(&words), b"+OK\r\n");
    }
    let name = |index: usize| format!("127.0.0.1:{}", servers[index].port());
    let urls = [
        format!("redis://u:s3cret@{}", name(0)),
        format!("redis://u:s3cret@{}", name(1)),
        servers[2].url(),
    ];
    // Servers that have just started vote after the longest TTL. On a busy machine answers are read
    // late, and then the clocks of servers seem to be off.
    let times = ["--max-ttl", "3800ms", "--max-clock-skew", "500ms", "--node-timeout", "500ms"];
    let lock = |key: &str, more: &[&str]| {
        on_urls(&urls, &[&times[..], &["lock", key, "--ttl", "3s"], more].concat())
    };
    let mut ended = lock("k", &["--fence"]);
    let is_old = redbolt_rig::eventually(redbolt_rig::PATIENCE, || {
        ended = lock("k", &["--fence"]);
        !ended.err.contains("may have forgotten")
    });
    assert!(is_old, "{ended:?}");
    let ended = ended.expect(77);
    for words in [&name(0), &name(1), "runs no scripts", "grant the user +eval"] {
        assert!(ended.err.contains(words), "{words}: {ended:?}");
    }
    let doctor = on_urls(&urls, &[&times[..], &["doctor", "--wait", "60s"]].concat()).expect(0).out;
    let line = doctor.lines().find(|line| line.contains("locks with --fence")).expect("a note");
    assert!(line.starts_with(&format!("note      {}, {}: ", name(0), name(1))), "{line}");
    assert!(!format!("{ended:?}{doctor}").contains("s3cret"), "{ended:?}{doctor}");
}

//! `docs/runbook.md`, played on five servers as deployed: each of its commands, in its order.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cli::{Ended, MAX_TTL_TEXT, Running, end};
use super::deployed::{HASH, PASSWORD, start};
use redbolt_rig::{PATIENCE, RealServer, eventually};

const PAGE: &str = include_str!("../../../docs/runbook.md");

/// SHA-256 of `new`.
const NEW_HASH: &str = "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437";

/// The commands of `redbolt` in a section.
#[track_caller]
fn commands(title: &str) -> Vec<&'static str> {
    lines(title, &["redbolt "])
}

/// The lines of a section that begin with one of these.
#[track_caller]
fn lines(title: &str, begin: &[&str]) -> Vec<&'static str> {
    let (_, section) = PAGE.split_once(&format!("\n## {title}\n")).expect("the section is there");
    let section = section.split("\n## ").next().expect("a section");
    let lines = section.lines().map(str::trim);
    let is_wanted = |line: &&str| begin.iter().any(|begin| line.starts_with(begin));
    let commands: Vec<_> = lines.filter(is_wanted).collect();
    assert!(!commands.is_empty());
    commands
}

/// Runs a line of the page in the directory of its files.
fn play(servers: &[RealServer], dir: &Path, line: &str) -> Ended {
    let urls: Vec<String> = servers.iter().map(RealServer::url).collect();
    let patience = if line.contains("--node-timeout") { "" } else { "--node-timeout 1s" };
    let rest = line.strip_prefix("redbolt ").expect("a command of redbolt");
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_redbolt");
    command.args(["-c", &format!("{program} {rest} --max-ttl {MAX_TTL_TEXT} {patience}")]);
    command.env("REDBOLT_NODES", urls.join(",")).current_dir(dir);
    end(command)
}

/// Five servers that vote, and the files with the passwords.
fn site() -> Option<(tempfile::TempDir, Vec<RealServer>)> {
    let dir = tempfile::tempdir().expect("a directory");
    for (file, password) in
        [("password", PASSWORD), ("operator-password", PASSWORD), ("new-password", "new")]
    {
        fs::write(dir.path().join(file), format!("{password}\n")).expect("a file");
    }
    let servers = start(dir.path())?;
    let [doctor, ..] = commands("A node is gone")[..] else { panic!("no commands") };
    play(&servers, dir.path(), &format!("{doctor} --wait 20s")).expect(0);
    Some((dir, servers))
}

fn holding(servers: &[RealServer], key: &str) -> Running {
    holding_by(servers, key, "echo held; exec sleep 600")
}

/// The lock is held while the shell runs this line, which first prints `held`.
fn holding_by(servers: &[RealServer], key: &str, line: &str) -> Running {
    let urls: Vec<String> = servers
        .iter()
        .map(|server| server.url().replace("://", &format!("://redbolt:{PASSWORD}@")))
        .collect();
    let ttl = MAX_TTL_TEXT;
    let args = ["run", key, "--wait", "10s", "--ttl", ttl, "--max-ttl", ttl, "--", "sh", "-c"];
    let mut running = Running::start(&urls, &[&args[..], &[line]].concat());
    assert_eq!(running.line(), "held");
    running
}

#[test]
fn the_holder_is_shown_and_the_lock_is_taken_away() {
    let Some((dir, servers)) = site() else { return };
    let holder = holding(&servers, "sku:42");
    let lines = commands("What blocks this lock");
    let [status, ls, unlock] = lines[..] else { panic!("{lines:?}") };
    let process = format!("process {}, ", holder.pid());
    for line in [status, ls] {
        let ended = play(&servers, dir.path(), line).expect(0);
        assert!(ended.out.contains(&process), "{ended:?}");
    }
    let taken = play(&servers, dir.path(), unlock).expect(0);
    assert!(
        taken.err.contains(&process) && taken.out.starts_with("sku:42 is taken from "),
        "{taken:?}"
    );
    assert_eq!(holder.end().code, Some(70));
    let free = play(&servers, dir.path(), status).expect(0);
    assert!(free.out.starts_with("sku:42 is free"), "{free:?}");
}

/// The command is stopped, and deaf to TERM when it goes on.
#[test]
fn a_command_that_hangs_is_found_and_ended_and_its_lock_is_released() {
    let Some((dir, servers)) = site() else { return };
    let hangs = "trap '' TERM; echo held; kill -s STOP $$; sleep 600; true";
    let mut holder = holding_by(&servers, "sku:42", hangs);
    let lines = lines("What blocks this lock", &["ps ", "kill "]);
    let [ps, term, go_on, kill] = lines[..] else { panic!("{lines:?}") };
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        end(command).expect(0).out
    };
    let pid = holder.pid().to_string();
    let listed = || shell(&ps.replace("PID", &pid));
    // The command, whose group and state `ps` shows, and the watchdog.
    let mut group = String::new();
    assert!(eventually(PATIENCE, || {
        let listed = listed();
        let line = listed.lines().find(|line| line.contains("trap"));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        group = words.get(1).copied().unwrap_or_default().to_owned();
        words.get(2).is_some_and(|state| state.starts_with('T'))
    }));
    assert!(listed().contains("--watchdog"), "{}", listed());
    shell(&term.replace("PID", &pid));
    holder.err_line(&format!("passed TERM on to CMD (process {group}), which still runs"));
    let [status, ..] = commands("What blocks this lock")[..] else { panic!("no commands") };
    let held = play(&servers, dir.path(), status).expect(0);
    assert!(held.out.contains(&format!("process {pid}, ")), "{held:?}");
    shell(&go_on.replace("PGID", &group));
    shell(&kill.replace("PGID", &group));
    assert_eq!(holder.end().code, Some(128 + 9));
    let free = play(&servers, dir.path(), status).expect(0);
    assert!(free.out.starts_with("sku:42 is free"), "{free:?}");
}

#[test]
fn without_a_quorum_the_doctor_names_each_missing_node_and_waits_for_those_that_come_back() {
    let Some((dir, mut servers)) = site() else { return };
    let lines = commands("No lock can be taken");
    let [doctor] = lines[..] else { panic!("{lines:?}") };
    servers[1..4].iter_mut().for_each(RealServer::kill9);
    let told = play(&servers, dir.path(), doctor);
    assert_eq!(told.code, Some(78), "{told:?}");
    for server in &servers[1..4] {
        assert!(told.out.contains(&format!("127.0.0.1:{}", server.port())), "{told:?}");
    }
    servers[1..4].iter_mut().for_each(RealServer::restart);
    play(&servers, dir.path(), &format!("{doctor} --wait 20s")).expect(0);
}

#[test]
fn with_a_node_gone_the_doctor_names_it_and_every_lock_is_still_seen() {
    let Some((dir, mut servers)) = site() else { return };
    let _holder = holding(&servers, "sku:42");
    let name = format!("127.0.0.1:{}", servers[1].port());
    servers[1].kill9();
    let lines = commands("A node is gone");
    let [doctor, ls] = lines[..] else { panic!("{lines:?}") };
    let told = play(&servers, dir.path(), doctor);
    assert!(told.out.contains(&name) && told.out.contains("refused"), "{told:?}");
    let listed = play(&servers, dir.path(), ls);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.out.contains("sku:42") && listed.err.contains(&name), "{listed:?}");
}

#[test]
fn a_client_with_other_settings_is_named_with_what_it_has() {
    let Some((dir, servers)) = site() else { return };
    let lines = commands("Clients disagree");
    let [doctor] = lines[..] else { panic!("{lines:?}") };
    let holder = holding(&servers, "sku:42");
    let agreed = play(&servers, dir.path(), doctor).expect(0).out;
    assert!(
        agreed.contains("agreement: 1 of the 1 other clients agree with this command: 5 nodes"),
        "{agreed}"
    );
    let told = play(&servers, dir.path(), &format!("{doctor} --quorum 4")).expect(0).out;
    let told = told.replace("\n        ", " ");
    assert!(told.contains("1 of 1 other clients differ from this command: 1 in quorum"), "{told}");
    let line = told.lines().find(|line| line.contains(&format!("process {}, ", holder.pid())));
    assert!(line.is_some_and(|line| line.ends_with("quorum 3, here 4")), "{told}");
    drop(holder);
}

#[test]
fn a_slow_node_is_told_from_one_that_is_well() {
    let Some((dir, servers)) = site() else { return };
    let lines = commands("A node is slow");
    let [short, long] = lines[..] else { panic!("{lines:?}") };
    let well = play(&servers, dir.path(), short).expect(0).json();
    let trips = |report: &serde_json::Value| {
        let nodes = report["nodes"].as_array().expect("nodes").iter();
        nodes.filter(|node| node["round_trip_us"].is_u64()).count()
    };
    assert_eq!(trips(&well), 5, "{well}");
    servers[3].freeze();
    let slow = play(&servers, dir.path(), short).json();
    assert_eq!(trips(&slow), 4, "{slow}");
    let name = format!("127.0.0.1:{}", servers[3].port());
    assert!(slow["nodes"][3]["cause"].is_string(), "{slow}");
    let told = play(&servers, dir.path(), long);
    assert!(told.out.contains(&name), "{told:?}");
    servers[3].thaw();
    assert!(eventually(PATIENCE, || play(&servers, dir.path(), long).code == Some(0)));
}

#[test]
fn a_password_is_changed_node_by_node_and_a_client_with_either_always_gets_in() {
    let Some((dir, mut servers)) = site() else { return };
    let lines = commands("Passwords change");
    let [old, new] = lines[..] else { panic!("{lines:?}") };
    let users = dir.path().join("users.acl");
    let now = fs::read_to_string(&users).unwrap();
    // One file serves all five here, so its state is the one that each node reads at its restart.
    let steps = [
        (now.replace(HASH, &format!("{HASH} #{NEW_HASH}")), old),
        (now.replace(HASH, NEW_HASH), new),
    ];
    for (text, doctor) in steps {
        fs::write(&users, text).unwrap();
        for index in 0..servers.len() {
            servers[index].restart();
            let lock = format!("{doctor} --json").replace("doctor", "lock k --ttl 1s --wait 10s");
            play(&servers, dir.path(), &lock).expect(0);
            play(&servers, dir.path(), &format!("{doctor} --wait 20s")).expect(0);
        }
    }
    let refused = play(&servers, dir.path(), old);
    assert_ne!(refused.code, Some(0), "{refused:?}");
}

//! The scripts in `deploy`, from beginning to end on real servers under load: no lock is lost, and at no
//! moment is there no quorum. And `doctor --wait`, on which they rest.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redbolt::{Client, Config, LockOptions, Unlocked, now};
use redbolt_rig::{Kind, PATIENCE, RealServer, StopAtEnd, eventually, kind_or_skip, ms};

use super::cli::{Ended, MAX_TTL, MAX_TTL_TEXT, Running, end, on_urls, without_settings};

/// The most time that a script may take.
const LIMIT: Duration = Duration::from_secs(180);

/// As in `deploy/node.conf`: the servers keep every write. Without these they keep none.
const KEPT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn five(args: &[&str]) -> Option<Vec<RealServer>> {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70, Kind::Valkey81, Kind::Redis80];
    let kinds: Option<Vec<Kind>> = kinds.into_iter().map(kind_or_skip).collect();
    Some(kinds?.into_iter().map(|kind| RealServer::start(kind, args)).collect())
}

fn urls(servers: &[RealServer]) -> Vec<String> {
    servers.iter().map(RealServer::url).collect()
}

fn doctor(urls: &[String], more: &[&str]) -> Ended {
    let settings = ["doctor", "--max-ttl", MAX_TTL_TEXT];
    on_urls(urls, &[&settings[..], more].concat())
}

#[test]
fn a_doctor_waits_until_all_nodes_vote_and_tells_when_they_do_not_in_time() {
    let Some(mut servers) = five(&KEPT) else { return };
    let urls = urls(&servers);
    let ended = doctor(&urls, &["--wait", "60s"]).expect(0);
    assert!(ended.took < Duration::from_secs(30), "{ended:?}");
    servers[3].kill9();
    let report = doctor(&urls, &["--json"]).expect(1).json();
    assert!(report["degraded"].to_string().contains("4 of 5 nodes vote"), "{report}");
    let ended = doctor(&urls, &["--wait", "1s"]).expect(1);
    assert!(ended.took >= Duration::from_secs(1), "{ended:?}");
    let settings = ["doctor", "--max-ttl", MAX_TTL_TEXT, "--wait", "forever", "--json"];
    let waiting = Running::start(&urls, &settings);
    servers[3].restart();
    assert_eq!(waiting.end().expect(0).json()["verdict"], "ok");
}

/// The users of the locks meanwhile.
struct Load {
    cycles: AtomicUsize,
    end: AtomicBool,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.end.load(Ordering::SeqCst)
    }

    /// Takes a lock that no other client wants, again and again: each attempt must have a quorum.
    fn cycle(&self, urls: &[String], name: &str) {
        let client = client(urls);
        for number in 0.. {
            if !self.goes_on() {
                break;
            }
            let lease = client.try_lock(format!("{name}:{number}"), MAX_TTL).wait();
            let lease = lease.unwrap_or_else(|error| panic!("attempt {number}: {error}"));
            assert_eq!(lease.unlock().wait().expect("its own lease"), Unlocked::Released);
            self.cycles.fetch_add(1, Ordering::SeqCst);
            // Other tests need the processors too.
            std::thread::sleep(ms(2));
        }
    }

    /// Holds one lock from beginning to end.
    fn hold(&self, urls: &[String]) {
        let client = client(urls);
        let options = LockOptions::new(MAX_TTL).keep_alive();
        let lease = client.try_lock("held", options).wait().expect("nobody has it");
        while self.goes_on() {
            assert!(lease.lost().wait_for(ms(20)).is_none(), "the lock is lost");
        }
        assert_eq!(lease.unlock().wait().expect("its own lease"), Unlocked::Released);
    }
}

fn client(urls: &[String]) -> Client {
    let config = Config::new(urls).expect("addresses").max_ttl(MAX_TTL).node_timeout(ms(500));
    let client = Client::connect(config).expect("the nodes vote");
    assert!(eventually(PATIENCE, || client.voters().count() as usize == urls.len()));
    client
}

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

/// Asks the test to act, and waits until it has.
fn ask(dir: &Path, what: &str) -> String {
    let (ask, done) =
        (dir.join("ask").display().to_string(), dir.join("done").display().to_string());
    format!(
        "echo {what} >'{ask}.new' && mv '{ask}.new' '{ask}' && \
             while [ ! -e '{done}' ]; do sleep 0.02; done && rm '{done}'"
    )
}

/// Runs a script on these nodes; `act` does what the script asks for.
fn script(name: &str, args: &[&str], urls: &[String], dir: &Path, act: impl FnMut(&str)) -> Ended {
    script_that_waits("60s", name, args, urls, dir, act)
}

/// Runs a script that waits for no longer than `wait` for nodes and locks.
fn script_that_waits(
    wait: &str,
    name: &str,
    args: &[&str],
    urls: &[String],
    dir: &Path,
    mut act: impl FnMut(&str),
) -> Ended {
    let binary = Path::new(env!("CARGO_BIN_EXE_redbolt")).parent().expect("a directory").to_owned();
    let path = std::env::var("PATH").expect("a path");
    let mut command = Command::new(deploy(name));
    without_settings(&mut command);
    command.args(args).stdin(Stdio::null()).env("PATH", format!("{}:{path}", binary.display()));
    command.env("REDBOLT_NODES", urls.join(",")).env("REDBOLT_MAX_TTL", MAX_TTL_TEXT);
    command.env("REDBOLT_NODE_TIMEOUT", "2s").env("WAIT", wait).env("SETTLE", "1");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let stop = StopAtEnd(&is_over);
            let ended = end(command);
            drop(stop);
            ended
        });
        let begin = now();
        while !is_over.load(Ordering::SeqCst) {
            assert!(now().saturating_since(begin) < LIMIT, "{name} does not end");
            let asked = std::fs::read_to_string(dir.join("ask")).unwrap_or_default();
            if asked.is_empty() {
                std::thread::sleep(ms(5));
                continue;
            }
            std::fs::remove_file(dir.join("ask")).expect("it is there");
            act(asked.trim());
            std::fs::write(dir.join("done"), "").expect("a file");
        }
        running.join().expect("no panic")
    })
}

/// Runs `work` while clients take locks and one of them holds a lock.
fn under_load(urls: &[String], work: impl FnOnce()) {
    doctor(urls, &["--wait", "60s"]).expect(0);
    let load = Load { cycles: AtomicUsize::new(0), end: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        scope.spawn(|| load.hold(urls));
        for name in ["a", "b"] {
            let load = &load;
            scope.spawn(move || load.cycle(urls, name));
        }
        let stop = StopAtEnd(&load.end);
        assert!(eventually(PATIENCE, || load.cycles.load(Ordering::SeqCst) > 10));
        work();
        let before = load.cycles.load(Ordering::SeqCst);
        assert!(eventually(PATIENCE, || load.cycles.load(Ordering::SeqCst) > before + 10));
        drop(stop);
    });
}

#[test]
fn a_rolling_restart_loses_no_lock_and_no_quorum() {
    let Some(mut servers) = five(&[]) else { return };
    let (urls, dir) = (urls(&servers), tempfile::tempdir().expect("a directory"));
    let before: Vec<u32> = servers.iter().map(RealServer::pid).collect();
    under_load(&urls, || {
        let command = ask(dir.path(), "\"$PORT\"");
        let ended = script("rolling-restart.sh", &[&command], &urls, dir.path(), |port| {
            let server = servers.iter_mut().find(|server| server.port().to_string() == port);
            server.expect("one of the five").restart();
        });
        assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 5), "{ended:?}");
    });
    assert!(servers.iter().zip(before).all(|(server, pid)| server.pid() != pid));
}

#[test]
fn a_rolling_restart_stops_where_a_command_fails_or_restarts_nothing() {
    let Some(servers) = five(&KEPT) else { return };
    let (urls, dir) = (urls(&servers), tempfile::tempdir().expect("a directory"));
    // Old enough for a server that was not restarted to be known by its age.
    let is_old = || {
        let report = doctor(&urls, &["--json"]).json();
        report["nodes"]
            .as_array()
            .expect("nodes")
            .iter()
            .all(|node| node["uptime_s"].as_u64() > Some(9))
    };
    assert!(eventually(PATIENCE * 2, is_old));
    for (command, code, words) in
        [("exit 3", 3, "0 of 5 nodes have been restarted"), ("true", 1, "did not restart it")]
    {
        let ended = script("rolling-restart.sh", &[command], &urls, dir.path(), |_| {});
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
    }
}

#[test]
fn an_exchange_of_a_server_loses_no_lock_and_no_quorum() {
    let Some(mut servers) = five(&KEPT) else { return };
    let (urls, dir) = (urls(&servers), tempfile::tempdir().expect("a directory"));
    let old = urls[2].clone();
    // Its port is known before it starts, like that of a machine.
    let mut new = RealServer::start(Kind::Valkey91, &KEPT);
    new.kill9();
    let new_url = new.url();
    let mut new_list = urls.clone();
    new_list[2].clone_from(&new_url);
    under_load(&urls, || {
        let (stop, start) = (ask(dir.path(), "stop"), ask(dir.path(), "start"));
        let args = [&*old, &*new_url, &*stop, &*start];
        let ended = script("replace-node.sh", &args, &urls, dir.path(), |what| match what {
            "stop" => servers[2].kill9(),
            _ => new.restart(),
        });
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.out.contains("give the clients the new list"), "{ended:?}");
        // The clients have the old list until now; those with the new one work beside them.
        // How old a server is, each client learns to a round trip.
        doctor(&new_list, &["--wait", "10s"]).expect(0);
        let other = client(&new_list);
        let lease = other.try_lock("other", MAX_TTL).wait().expect("nobody has it");
        assert!(
            other.try_lock("held", MAX_TTL).wait().is_err(),
            "it is held by a client of the old list"
        );
        lease.unlock().wait().expect("its own lease");
    });
}

#[test]
fn an_exchange_is_refused_where_the_steps_are_not_kept() {
    let Some(mut servers) = five(&KEPT) else { return };
    let (urls, dir) = (urls(&servers), tempfile::tempdir().expect("a directory"));
    let new = RealServer::start(Kind::Valkey91, &KEPT);
    let new_url = new.url();
    doctor(&urls, &["--wait", "60s"]).expect(0);
    let stop = ask(dir.path(), "stop");
    for (old, stop, words) in [
        ("redis://127.0.0.1:1", "true", "is not in REDBOLT_NODES"),
        (&urls[2], "true", "still answers"),
        (&urls[2], &stop, "answers already"),
        (&urls[1], "true", "not all other nodes vote"),
    ] {
        let args = [old, &new_url, stop, "exit 9"];
        let ended = script("replace-node.sh", &args, &urls, dir.path(), |_| servers[2].kill9());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
    }
}

#[test]
fn a_script_touches_no_server_while_a_lock_has_no_vote_to_spare() {
    let Some(servers) = five(&KEPT) else { return };
    let (urls, dir) = (urls(&servers), tempfile::tempdir().expect("a directory"));
    doctor(&urls, &["--wait", "60s"]).expect(0);
    let lock = ["lock", "k", "--ttl", "60s", "--max-ttl", "60s", "--restart-guard", "off"];
    on_urls(&urls, &lock).expect(0);
    // The command may end before its last votes.
    assert!(eventually(PATIENCE, || servers.iter().all(|server| server.exists("k"))));
    for server in servers.iter().take(2) {
        assert_eq!(server.command(&["DEL", "k"]), b":1\r\n");
    }
    let touch = format!("touch '{}'", dir.path().join("touched").display());
    let exchange = [&*urls[2], &*urls[2], &*touch, &*touch];
    for (name, args, code, words) in [
        ("replace-node.sh", &exchange[..], 1, "a lock would not survive this: see redbolt ls"),
        ("rolling-restart.sh", &[&*touch], 75, "1 lock with no vote to spare"),
    ] {
        let ended = script_that_waits("1s", name, args, &urls, dir.path(), |_| {});
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
        assert!(!dir.path().join("touched").exists(), "{name}");
    }
}

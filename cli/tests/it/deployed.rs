//! The files in `deploy`. Five real servers, started by the unit's own command line, are fit for
//! locks. Its user has the rights that locks need, and no others.

use std::fs;
use std::path::{Path, PathBuf};

use redbolt::{Client, Config, RestartGuard, Unlocked};

use super::cli::on_urls;
use redbolt_rig::{PATIENCE, RealServer, TTL, available_kinds, eventually, ms};

pub(super) const PASSWORD: &str = "s3cret";

/// SHA-256 of [`PASSWORD`].
pub(super) const HASH: &str = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

/// The server's arguments as the unit has them, with the paths of the files here.
fn arguments(users: &Path) -> Vec<String> {
    let unit = fs::read_to_string(deploy("redbolt-node@.service")).expect("a unit file");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let users = users.display().to_string();
    let conf = deploy("node.conf").display().to_string();
    line.split(' ')
        .skip(1)
        .map(|word| {
            word.replace("/etc/redbolt-node/node.conf", &conf).replace("%d/users.acl", &users)
        })
        .collect()
}

/// The deployed users with a password, in `dir`.
fn users(dir: &Path) -> PathBuf {
    let users = fs::read_to_string(deploy("users.acl")).expect("users");
    let file = dir.join("users.acl");
    let users = users.replace("SHA256-OF-THE-PASSWORD", HASH);
    fs::write(&file, users.replace("SHA256-OF-THE-OPERATORS-PASSWORD", HASH)).expect("a file");
    file
}

fn url(server: &RealServer) -> String {
    server.url().replace("redis://", &format!("redis://redbolt:{PASSWORD}@"))
}

/// Five servers, of all kinds that are installed; none if none is installed.
pub(super) fn start(dir: &Path) -> Option<Vec<RealServer>> {
    let arguments = arguments(&users(dir));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let kinds = available_kinds();
    if kinds.is_empty() {
        return None;
    }
    Some(kinds.iter().cycle().take(5).map(|kind| RealServer::start(*kind, &arguments)).collect())
}

#[test]
fn five_servers_as_deployed_are_clean_to_the_doctor() {
    let dir = tempfile::tempdir().unwrap();
    let Some(servers) = start(dir.path()) else { return };
    let urls: Vec<String> = servers.iter().map(url).collect();
    // First without the guard, and then with it, as soon as it has let the nodes vote.
    let report = on_urls(&urls, &["doctor", "--restart-guard", "off", "--json"]).expect(0).json();
    assert_eq!(report["verdict"], "ok");
    assert_eq!(report["notes"], serde_json::json!([]), "{report}");
    for check in report["checks"].as_array().unwrap() {
        assert_eq!(check["state"], "ok", "{report}");
    }
    let guarded = || on_urls(&urls, &["doctor", "--max-ttl", "1s", "--json"]);
    let is_clean = || {
        let ended = guarded();
        ended.code == Some(0) && ended.json()["notes"] == serde_json::json!([])
    };
    assert!(eventually(PATIENCE, is_clean), "{:?}", guarded());
}

#[test]
fn the_deployed_user_may_do_what_locks_need_and_not_empty_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let Some(servers) = start(dir.path()) else { return };
    let urls = servers.iter().map(url);
    let config = Config::new(urls).unwrap().restart_guard(RestartGuard::Off);
    let client = Client::connect(config.node_timeout(ms(2_000))).unwrap();
    let mut lease = client.try_lock("sku:42", TTL).wait().unwrap();
    lease.extend(TTL).wait().unwrap();
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    for server in &servers {
        let mut wire = server.connect();
        let stranger = wire.ask(&["SET", "k", "v"]).unwrap();
        assert!(stranger.starts_with(b"-NOAUTH"), "{}", stranger.escape_ascii());
        assert_eq!(wire.ask(&["AUTH", "redbolt", PASSWORD]).unwrap(), b"+OK\r\n");
        for command in [&["FLUSHALL"][..], &["CONFIG", "SET", "save", ""], &["SHUTDOWN"]] {
            let reply = wire.ask(command).unwrap();
            assert!(reply.starts_with(b"-NOPERM"), "{command:?}: {}", reply.escape_ascii());
        }
    }
}

#[test]
fn a_server_as_deployed_keeps_its_locks_over_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut servers) = start(dir.path()) else { return };
    let urls: Vec<String> = servers.iter().map(url).collect();
    let settings = ["--restart-guard", "off", "--node-timeout", "2s"];
    on_urls(&urls, &[&["lock", "k", "--ttl", "30s"], &settings[..]].concat()).expect(0);
    for server in &mut servers {
        server.restart();
    }
    let taken = on_urls(&urls, &[&["lock", "k", "--ttl", "30s"], &settings[..]].concat());
    taken.expect(75);
}

#[test]
fn compose_starts_the_same_servers_as_the_unit() {
    let compose = fs::read_to_string(deploy("compose.yaml")).unwrap();
    let commands: Vec<&str> =
        compose.lines().filter_map(|line| line.trim().strip_prefix("command: ")).collect();
    assert_eq!(commands.len(), 5);
    for (port, command) in (7001..).zip(commands) {
        let unit = arguments(Path::new("/etc/redbolt-node/users.acl")).join(" ");
        let conf = deploy("node.conf").display().to_string();
        let expected = unit
            .replace(&conf, "/etc/redbolt-node/node.conf")
            .replace("--port %i", &format!("--port {port} --bind 127.0.0.1"))
            .replace("%S/redbolt-node/%i", "/data");
        assert_eq!(command, format!("valkey-server {expected}"));
    }
}

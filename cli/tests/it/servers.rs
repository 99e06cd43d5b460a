//! Every command on real servers: each version alone, and all versions together, with two stopped
//! and one frozen.

use std::time::Duration;

use super::cli::{Running, on_urls};
use redbolt_rig::{Kind, RealServer, available_kinds, kind_or_skip};

/// With these options the servers' keys survive a restart, so they are fit for locks from their
/// first second on.
fn start(kind: Kind) -> RealServer {
    RealServer::start(kind, &["--appendonly", "yes", "--appendfsync", "always"])
}

fn urls(servers: &[RealServer]) -> Vec<String> {
    servers.iter().map(RealServer::url).collect()
}

fn server(servers: &[RealServer], node: usize) -> &RealServer {
    servers.get(node).expect("a node of that number")
}

/// How long a server may take: on a busy disk saving each write takes its time.
const PATIENT: &str = "5s";

/// How long a server may take if one is frozen, and the command may wait for it.
const BRIEF: &str = "500ms";
/// For one command. The timeouts of its nodes and connections may add up to three seconds beside a
/// frozen node; the rest is for a busy machine.
const LIMIT: Duration = Duration::from_secs(8);

/// All commands. None of them leaves a key behind.
fn all_commands_work(servers: &[RealServer], live: &[usize], node_timeout: &str) {
    let urls = urls(servers);
    // The servers have only just started.
    let settings = ["--restart-guard", "off", "--node-timeout", node_timeout];
    let on = |args: &[&str]| on_urls(&urls, &[args, &settings[..]].concat());
    let quick = |ended: &super::cli::Ended| assert!(ended.took < LIMIT, "{ended:?}");
    let lock = on(&["lock", "a\r\nb", "--ttl", "20s", "--json"]).expect(0);
    quick(&lock);
    let token = lock.text("token");
    let holds =
        |node: &&usize| server(servers, **node).get("a\r\nb").as_deref() == Some(token.as_bytes());
    assert!(lock.number("votes") >= 3, "{lock:?}");
    assert!(live.iter().filter(holds).count() >= 3);
    let status = on(&["status", "a\r\nb", "--json"]).expect(0);
    quick(&status);
    assert_eq!(status.text("verdict"), "held");
    quick(&on(&["lock", "a\r\nb", "--ttl", "20s"]).expect(75));
    let extend = on(&["extend", "a\r\nb", "--token", &token, "--ttl", "30s", "--json"]).expect(0);
    quick(&extend);
    assert!(extend.number("validity_ms") > 25_000);
    quick(&on(&["unlock", "a\r\nb", "--token", &token]).expect(0));
    quick(&on(&["unlock", "a\r\nb", "--token", &token]).expect(70));

    let mut run = urls.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    run.insert_str(0, "--nodes=");
    let args = ["run", "k", &run, "--ttl", "5s"];
    let script = ["--", "sh", "-c", "echo up; read line < /dev/null; exit 3"];
    let mut running = Running::start(&urls, &[&args[..], &settings, &script].concat());
    assert_eq!(running.line(), "up");
    running.end().expect(3);

    let bench = on(&["bench", "--iterations", "50", "--json"]).expect(0);
    assert_eq!(bench.number("failures"), 0, "{bench:?}");
    let args = ["bench", "--iterations", "200", "--mode", "throughput", "--json"];
    assert_eq!(on(&args).expect(0).number("failures"), 0);
    for &node in live {
        assert_eq!(
            server(servers, node).command(&["DBSIZE"]),
            b":0\r\n",
            "{}",
            server(servers, node).kind().name()
        );
    }
}

#[test]
fn all_commands_work_on_five_servers_of_each_version() {
    for kind in available_kinds() {
        let servers: Vec<RealServer> = (0..5).map(|_| start(kind)).collect();
        all_commands_work(&servers, &[0, 1, 2, 3, 4], PATIENT);
        let doctor = on_urls(&urls(&servers), &["doctor", "--restart-guard", "off", "--json"]);
        let doctor = doctor.expect(0).json();
        for node in doctor["nodes"].as_array().unwrap() {
            assert_eq!(node["persistence"], "aof, fsync always");
            let version = kind.name().rsplit('-').next().unwrap();
            assert!(node["server"].as_str().unwrap().contains(version), "{node}");
        }
    }
}

#[test]
fn mixed_versions_work_whole_with_two_stopped_and_with_one_frozen() {
    let mut servers: Vec<RealServer> = available_kinds().into_iter().map(start).collect();
    if servers.len() < 5 {
        return;
    }
    all_commands_work(&servers, &[0, 1, 2, 3, 4], PATIENT);
    servers[1].freeze();
    all_commands_work(&servers, &[0, 2, 3, 4], BRIEF);
    servers[1].thaw();
    servers[0].kill9();
    servers[3].kill9();
    all_commands_work(&servers, &[1, 2, 4], PATIENT);
}

#[test]
fn a_server_that_evicts_is_called_unsafe() {
    for kind in available_kinds() {
        let mut servers = vec![RealServer::start(kind, &["--maxmemory-policy", "allkeys-lru"])];
        servers.extend((0..2).map(|_| start(kind)));
        let doctor = on_urls(&urls(&servers), &["doctor", "--restart-guard", "off"]).expect(78);
        assert!(doctor.out.contains("set maxmemory-policy noeviction there"), "{doctor:?}");
    }
}

#[test]
fn commands_that_go_on_say_once_what_is_wrong_with_a_node() {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70];
    if kinds.into_iter().filter_map(kind_or_skip).count() < kinds.len() {
        return;
    }
    let mut servers: Vec<RealServer> = kinds.into_iter().take(2).map(start).collect();
    servers.push(RealServer::start(Kind::Redis70, &["--requirepass", "right"]));
    let broken = format!("127.0.0.1:{}: user or password refused", server(&servers, 2).port());
    let mut urls = urls(&servers);
    urls[2] = urls[2].replace("redis://", "redis://:wrong@");
    for args in [
        &["run", "k", "--", "sh", "-c", "sleep 0.5"][..],
        &["run", "k", "--wait", "5s", "--", "sh", "-c", "sleep 0.5"],
        &["bench", "--iterations", "200"],
        &["bench", "--iterations", "200", "--mode", "throughput"],
        &["demo", "--stock", "50"],
    ] {
        let (name, rest) = args.split_at(1);
        let settings = ["--restart-guard", "off", "--node-timeout", PATIENT];
        let ended = on_urls(&urls, &[name, &settings, rest].concat()).expect(0);
        assert_eq!(ended.err.matches(&broken).count(), 1, "{args:?}: {ended:?}");
        assert!(ended.err.contains("--password-file") && !ended.err.contains("wrong"), "{ended:?}");
    }
}

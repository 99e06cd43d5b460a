//! Whether all clients have the settings on which they must agree: the doctor's report about
//! clients of real servers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use redbolt::inspect::NodeState;
use redbolt::{Client, Config, FailoverGuard, Quorum, RestartGuard};
use serde_json::Value;

use super::cli::{Ended, on_urls};
use super::holders::urls;
use redbolt_rig::{Kind, PATIENCE, RealServer, eventually, kind_or_skip, ms};

/// Three servers of different kinds; none if one is not installed.
fn three(args: &[&str]) -> Option<Vec<RealServer>> {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70].map(kind_or_skip);
    let kinds: Option<Vec<Kind>> = kinds.into_iter().collect();
    Some(kinds?.into_iter().map(|kind| RealServer::start(kind, args)).collect())
}

/// With these options the servers' keys survive a restart.
const KEPT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn doctor(servers: &[RealServer], more: &[&str]) -> Ended {
    let args = ["doctor", "--restart-guard", "off", "--node-timeout", "1s"];
    on_urls(&urls(servers), &[&args[..], more].concat())
}

/// A client that every node knows.
fn client(urls: Vec<String>, change: impl FnOnce(Config) -> Config) -> Client {
    let config = Config::new(urls).expect("addresses").restart_guard(RestartGuard::Off);
    let client = Client::open(change(config).client_name("till")).expect("a client");
    let is_greeted = |state| {
        !matches!(state, NodeState::Connecting | NodeState::Greeting | NodeState::Disconnected)
    };
    assert!(eventually(PATIENCE, || {
        client.nodes().wait().iter().all(|node| is_greeted(node.state))
    }));
    client
}

fn agreement(report: &Value) -> &Value {
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["check"] == "agreement").expect("it is checked")
}

#[test]
fn a_client_with_other_settings_is_told_with_what_it_has_and_equal_ones_are_not() {
    type Change = fn(Config) -> Config;
    let Some(servers) = three(&KEPT) else { return };
    let of_pid = format!("process {}", std::process::id());
    let equal = client(urls(&servers), |config| config);
    let report = doctor(&servers, &["--json"]).expect(0).json();
    assert_eq!(agreement(&report)["state"], "ok", "{report}");
    assert_eq!(report["agreement"]["clients"], 1, "{report}");
    let table: [(Change, &str, &str); 5] = [
        (|config| config.max_ttl(ms(300_000)), "max_ttl", "max_ttl 5m, here 30s"),
        (|config| config.quorum(Quorum::AtLeast(3)), "quorum", "quorum 3, here 2"),
        (|config| config.key_prefix("eu:"), "prefix", "prefix eu_ (hash 369f6cef), here none"),
        (
            |config| config.restart_guard(RestartGuard::On),
            "restart_guard",
            "restart_guard on, here off",
        ),
        (
            |config| config.failover_guard(FailoverGuard::Off),
            "failover_guard",
            "failover_guard off, here on",
        ),
    ];
    for (change, setting, words) in table {
        let differs = client(urls(&servers), change);
        let report = doctor(&servers, &["--json"]).expect(0).json();
        assert_eq!(agreement(&report)["state"], "note", "{report}");
        let told = report["agreement"]["differ"].as_array().expect("a list");
        assert_eq!(told.len(), 1, "{report}");
        assert_eq!(
            (&told[0]["program"], &told[0]["pid"]),
            (&"till".into(), &std::process::id().into())
        );
        assert_eq!(told[0]["differs_in"], Value::from(vec![setting]), "{report}");
        let text = doctor(&servers, &[]).expect(0).out.replace("\n        ", " ");
        let line = text.lines().find(|line| line.contains(words));
        assert!(
            line.is_some_and(|line| line.contains("till on ") && line.contains(&of_pid)),
            "{text}"
        );
        assert!(text.contains("1 of 2 other clients differ from this command: 1 in "), "{text}");
        drop(differs);
        // The nodes have seen the client go.
        assert!(eventually(PATIENCE, || {
            doctor(&servers, &["--json"]).json()["agreement"]["clients"] == 1
        }));
    }
    drop(equal);
}

#[test]
fn where_two_clients_could_hold_one_lock_the_doctor_calls_it_unsafe() {
    let Some(servers) = three(&KEPT) else { return };
    let mut less = urls(&servers);
    less.pop();
    let _less = client(less, |config| config);
    let report = doctor(&servers, &["--json"]).expect(78).json();
    assert_eq!(agreement(&report)["state"], "unsafe", "{report}");
    assert_eq!(report["agreement"]["differ"][0]["settings"]["lists"][0]["nodes"], 2, "{report}");
    let said = report["unsafe"][0].to_string();
    assert!(
        said.contains("agreement: 1 of 1 other clients differ") && said.contains("--nodes"),
        "{said}"
    );

    // The nodes may forget, and the locks of a client last longer than other clients wait for.
    let Some(servers) = three(&[]) else { return };
    let _longer = client(urls(&servers), |config| config.max_ttl(ms(300_000)));
    let report = on_urls(&urls(&servers), &["doctor", "--json"]).expect(78).json();
    assert_eq!(agreement(&report)["state"], "unsafe", "{report}");
}

#[test]
fn clients_of_other_kinds_are_left_out_and_older_ones_are_counted() {
    let Some(servers) = three(&KEPT) else { return };
    let mut others = Vec::new();
    for name in
        ["till-7", "redbolt:2:00010203fcfdfeff:h:1:p:n9", "redbolt:1:00010203fcfdfeff:h:1:p"]
    {
        let mut other = TcpStream::connect(("127.0.0.1", servers[0].port())).expect("it listens");
        other.write_all(format!("CLIENT SETNAME {name}\r\n").as_bytes()).expect("it reads");
        let mut answer = [0; 5];
        other.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"+OK\r\n");
        others.push(other);
    }
    let report = doctor(&servers, &["--json"]).expect(0).json();
    assert_eq!(agreement(&report)["state"], "ok", "{report}");
    let told = &report["agreement"];
    assert_eq!((&told["clients"], &told["silent"]), (&1.into(), &1.into()), "{report}");
}

#[test]
fn a_user_who_may_not_list_clients_is_told_what_to_do() {
    let Some(servers) = three(&KEPT) else { return };
    for server in &servers {
        let rights = ["+@all", "-client|list"];
        let user =
            [&["ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*"][..], &rights].concat();
        assert_eq!(server.command(&user), b"+OK\r\n");
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "secret\n").expect("it is written");
    let path = file.path().to_str().expect("plain");
    let login = ["--user", "locks", "--password-file", path];
    let report = doctor(&servers, &[&login[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(agreement(&report)["state"], "note", "{report}");
    let text = agreement(&report)["message"].as_str().expect("a text");
    assert!(text.contains("may not list the clients") && text.contains("+client|list"), "{text}");
    assert_eq!(report["agreement"]["unlisted"][0]["cause"], "no_permission", "{report}");
}

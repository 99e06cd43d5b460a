//! `doctor` on real servers, each of which is unfit for its own reason.

use serde_json::Value;

use super::cli::{Ended, on_urls};
use redbolt_rig::{Kind, RealServer, kind_or_skip};

/// Three servers of different kinds; none if one is not installed.
fn three() -> Option<Vec<RealServer>> {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70];
    let kinds: Option<Vec<Kind>> = kinds.into_iter().map(kind_or_skip).collect();
    Some(kinds?.into_iter().map(|kind| RealServer::start(kind, &KEPT)).collect())
}

/// With these options the servers' keys survive a restart, so they are fit for locks from their
/// first second on.
const KEPT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn doctor(urls: &[String], more: &[&str]) -> Ended {
    let args = ["doctor", "--restart-guard", "off", "--node-timeout", "1s"];
    on_urls(urls, &[&args[..], more].concat())
}

fn urls(servers: &[RealServer]) -> Vec<String> {
    servers.iter().map(RealServer::url).collect()
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report.get("checks").and_then(Value::as_array).expect("checks");
    let is_it = |check: &&Value| check.get("check").is_some_and(|check| check == name);
    checks.iter().find(is_it).expect("a check of that name")
}

#[test]
fn fit_servers_get_eight_good_words_and_no_other() {
    let Some(servers) = three() else { return };
    let report = doctor(&urls(&servers), &["--json"]).expect(0).json();
    for name in
        ["quorum", "persistence", "guard", "clocks", "versions", "access", "agreement", "locks"]
    {
        assert_eq!(check(&report, name)["state"], "ok", "{report}");
    }
    for list in ["unsafe", "degraded", "notes"] {
        assert_eq!(report[list], Value::Array(vec![]), "{report}");
    }
    let versions = check(&report, "versions")["message"].to_string();
    assert!(
        versions.contains("1 x Redis 7.0") && versions.contains("1 x Valkey 9.1"),
        "{versions}"
    );
    // The doctor wrote nothing, whatever commands it tried.
    assert!(servers.iter().all(|server| server.command(&["DBSIZE"]) == b":0\r\n"));
}

/// What one node of three is set to, the list in which the doctor names it, how it ends and what it says.
#[test]
fn what_is_wrong_with_one_server_is_said_with_its_name_and_its_remedy() {
    let Some(mut servers) = three() else { return };
    let _ = servers.pop();
    let table: [(&[&str], &str, i32, &str); 5] = [
        (&["--appendonly", "no"], "unsafe", 78, "keeps no append-only file (appendonly no)"),
        (
            &["--appendonly", "yes", "--appendfsync", "everysec"],
            "unsafe",
            78,
            "only once per second",
        ),
        (&["--no-appendfsync-on-rewrite", "yes"], "unsafe", 78, "(no-appendfsync-on-rewrite yes)"),
        (&["--replicaof", "127.0.0.1", "1"], "degraded", 1, "name an independent master"),
        (&["--maxmemory", "1mb"], "notes", 1, "% of its maxmemory"),
    ];
    for (args, list, code, words) in table {
        let odd = RealServer::start(Kind::Redis70, &[&KEPT[..], args].concat());
        let mut urls = urls(&servers);
        urls.push(odd.url());
        let report = doctor(&urls, &["--json"]).expect(code).json();
        let said = &report[list];
        let name = format!("127.0.0.1:{}", odd.port());
        let is_said = |line: &Value| {
            let line = line.as_str().unwrap();
            line.starts_with(&name) && line.contains(words)
        };
        assert!(said.as_array().unwrap().iter().any(is_said), "{args:?}: {report}");
    }
}

#[test]
fn what_a_user_may_not_do_is_said_with_what_to_grant() {
    let Some(servers) = three() else { return };
    // All servers know the names of the categories; only some know the new commands.
    let base = "-@all +@connection +info +time +config|get";
    let table: [(&str, &[&str], i32, &str); 7] = [
        ("~* &* +@read +@pubsub", &[], 78, "may not run SET"),
        ("~* &* +@read +@pubsub +set", &[], 78, "no permitted command can release a lock"),
        ("~lock:* &* +@all", &["--key", "sku:42"], 78, "the user may not touch this key"),
        ("~lock:* &* +@all", &["--key", "lock:1"], 0, "grant ~redbolt:since:*"),
        (
            "~lock:* ~redbolt:since:* &* +@all",
            &["--key", "lock:1"],
            0,
            "the user may do all that locks need",
        ),
        ("~lock:* ~redbolt:since:* &* +@all", &[], 0, "doctor --key NAME"),
        ("~* resetchannels +@all", &[], 0, "grant &redbolt:*"),
    ];
    for (rules, more, code, words) in table {
        for server in &servers {
            let all = format!("ACL SETUSER u reset on >s3cret {base} {rules}");
            let words: Vec<&str> = all.split(' ').collect();
            assert_eq!(server.command(&words), b"+OK\r\n", "{rules}");
        }
        let urls: Vec<String> =
            urls(&servers).iter().map(|url| url.replace("redis://", "redis://u:s3cret@")).collect();
        let ended = doctor(&urls, more).expect(code);
        assert!(ended.out.contains(words), "{rules}: {ended:?}");
        assert!(!format!("{ended:?}").contains("s3cret"), "{ended:?}");
    }
}

#[test]
fn a_user_who_takes_no_locks_is_told_so_and_nothing_of_the_nodes() {
    let Some(servers) = three() else { return };
    let rules = "ACL SETUSER operator reset on >s3cret ~* &* +@connection +@read +@pubsub +info +time \
                 +config|get +client|list +eval +del";
    for server in &servers {
        assert_eq!(server.command(&rules.split(' ').collect::<Vec<_>>()), b"+OK\r\n");
    }
    let login = |url: &String| url.replace("redis://", "redis://operator:s3cret@");
    let urls: Vec<String> = urls(&servers).iter().map(login).collect();
    let report = doctor(&urls, &["--json"]).expect(78).json();
    let quorum = check(&report, "quorum")["message"].as_str().unwrap();
    assert_eq!(
        quorum,
        "3 of 3 nodes vote, and this user may take no locks: run doctor as the user of your \
         clients"
    );
    let wrong = ["unsafe", "degraded"].map(|list| report[list].as_array().unwrap());
    assert_eq!(wrong.map(Vec::len), [1, 3], "{report}");
    let mut wrong = wrong.into_iter().flatten();
    assert!(wrong.all(|text| text.as_str().unwrap().contains("the user of your clients")));
    assert!(!report.to_string().contains("repair"), "{report}");
}

#[test]
fn a_frozen_a_killed_and_a_restarted_server_are_told_apart() {
    let Some(mut servers) = three() else { return };
    servers.push(RealServer::start(Kind::Valkey91, &KEPT));
    servers.push(RealServer::start(Kind::Valkey91, &KEPT));
    servers[0].freeze();
    servers[1].kill9();
    let report = doctor(&urls(&servers), &["--json"]).expect(1).json();
    let notes = report["degraded"].to_string();
    assert!(notes.contains("look whether the server is frozen"), "{report}");
    assert!(notes.contains("connection refused: start the server"), "{report}");
    assert!(
        notes.contains("quorum: 3 of 5 nodes vote, 3 make a lock: one more failure"),
        "{report}"
    );
    servers[2].restart();
    // With the guard on, all of them are as young as that one, and the doctor reports the wait.
    let guarded = on_urls(&urls(&servers), &["doctor"]).expect(78);
    assert!(guarded.out.contains("may have forgotten locks; it votes again in"), "{guarded:?}");
    assert!(!guarded.out.contains(" 0 us"), "{guarded:?}");
    assert!(guarded.out.contains("until enough restarted nodes may vote"), "{guarded:?}");
    servers[0].thaw();
}

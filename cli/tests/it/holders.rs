//! The holder of a lock, as the commands show it, on real servers.

use serde_json::Value;

use super::cli::{Ended, Running, STAY, on_urls};
use redbolt_rig::{Kind, PATIENCE, RealServer, eventually, kind_or_skip};

/// Servers of three kinds that vote at once.
pub(super) fn servers() -> Option<Vec<RealServer>> {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70].map(kind_or_skip);
    let kinds: Option<Vec<Kind>> = kinds.into_iter().collect();
    Some(kinds?.into_iter().map(|kind| RealServer::start(kind, &[])).collect())
}

pub(super) fn urls(servers: &[RealServer]) -> Vec<String> {
    servers.iter().map(RealServer::url).collect()
}

pub(super) const NO_GUARD: [&str; 2] = ["--restart-guard", "off"];

pub(super) fn at(servers: &[RealServer], args: &[&str]) -> Ended {
    on_urls(&urls(servers), &[&NO_GUARD, args].concat())
}

/// A command that holds `key` until the test kills it.
pub(super) fn holding(servers: &[RealServer], key: &str) -> Running {
    Running::holding(&urls(servers), &[&NO_GUARD[..], &[key]].concat())
}

pub(super) fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_owned()
}

#[test]
fn status_names_the_process_that_holds_the_lock_until_it_is_gone() {
    let Some(servers) = servers() else { return };
    let running = holding(&servers, "k");
    let pid = running.pid();
    let look = at(&servers, &["status", "k", "--json"]).expect(0).json();
    let holder = &look["holder"];
    assert_eq!((&look["verdict"], &holder["votes"]), (&"held".into(), &3.into()), "{look}");
    assert_eq!((&holder["pid"], &holder["host"]), (&pid.into(), &hostname().into()));
    assert_eq!(holder["program"], "run/sh");
    assert!(holder["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{holder}");
    let token = look["nodes"][0]["token"].as_str().unwrap();
    assert!(token.starts_with(holder["client"].as_str().unwrap()), "{look}");
    assert!((1..=10_000).contains(&holder["ends_ms"].as_u64().unwrap()), "{holder}");
    let text = at(&servers, &["status", "k"]).expect(0).out;
    let by = format!("k is held on 3 of 3 nodes by run/sh on {}, process {pid}, ", hostname());
    assert!(text.starts_with(&by), "{text}");
    // No node lists a killed process any more; its token tells which client it was.
    running.signal("KILL");
    running.end();
    let look = || at(&servers, &["status", "k", "--json"]).json();
    assert!(eventually(PATIENCE, || look()["holder"]["pid"].is_null()));
    let look = look();
    if look["verdict"] == "held" {
        assert_eq!(look["holder"]["host"], Value::Null);
        assert!(look["holder"]["client"].is_string(), "{look}");
    }
}

/// A user that may not list clients gets the holder's own claim.
#[test]
fn a_user_who_may_not_list_clients_is_told_what_the_holder_says_beside_the_lock() {
    let Some(servers) = servers() else { return };
    for server in &servers {
        let line = ["ACL", "SETUSER", "blind", "on", ">pw", "~*", "&*", "+@all", "-client|list"];
        assert_eq!(server.command(&line), b"+OK\r\n");
    }
    let urls: Vec<String> =
        urls(&servers).iter().map(|url| url.replace("://", "://blind:pw@")).collect();
    let running = holding(&servers, "k");
    let token = at(&servers, &["lock", "silent", "--ttl", "30s", "--json"]).expect(0).text("token");
    let of = |key: &str| {
        on_urls(&urls, &[&NO_GUARD[..], &["status", key, "--json"]].concat()).expect(0).json()
    };
    assert!(eventually(PATIENCE, || of("k")["holder"]["since_ms"].is_u64()), "{}", of("k"));
    let holder = &of("k")["holder"];
    assert_eq!((&holder["pid"], &holder["program"]), (&running.pid().into(), &"run/sh".into()));
    assert_eq!(holder["address"], Value::Null);
    let holder = &of("silent")["holder"];
    assert_eq!((&holder["pid"], &holder["since_ms"]), (&Value::Null, &Value::Null));
    assert_eq!(holder["client"].as_str(), Some(&token[..16]));
}

#[test]
fn a_holder_is_called_as_it_wants_or_by_its_program_without_arguments() {
    let Some(servers) = servers() else { return };
    let own = ["--restart-guard", "off", "k", "--name", "till-7"];
    let named = Running::holding(&urls(&servers), &own);
    let program = || {
        let look = at(&servers, &["status", "k", "--json"]).expect(0).json();
        look["holder"]["program"].as_str().map(str::to_owned)
    };
    assert_eq!(program().as_deref(), Some("till-7"));
    named.signal("TERM");
    named.end();
    // A name has no place for some letters.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s:h x");
    std::os::unix::fs::symlink("/bin/sh", &file).unwrap();
    let own = ["--restart-guard", "off", "run", "k", "--", file.to_str().unwrap()];
    let mut other = Running::start(&urls(&servers), &[&own[..], &STAY[2..]].concat());
    assert_eq!(other.line(), "held");
    assert_eq!(program().as_deref(), Some("run/s_h_x"));
}

#[test]
fn status_says_why_a_holder_is_unknown() {
    let Some(servers) = servers() else { return };
    at(&servers, &["lock", "gone", "--ttl", "30s"]).expect(0);
    for server in &servers {
        server.command(&["SET", "other", "8ae2-another-library", "PX", "30000"]);
    }
    let text = || at(&servers, &["status", "gone"]).expect(0).out;
    let reason = "no node lists this client: it has ended (redbolt lock ends at once), or this \
        user may not run CLIENT LIST";
    assert!(eventually(PATIENCE, || text().contains(reason)), "{}", text());
    let listed = at(&servers, &["ls"]).expect(0);
    assert!(listed.err.contains(reason), "{listed:?}");
    let waits = ["lock", "gone", "--ttl", "1s", "--wait", "60s"];
    let mut waiter = Running::start(&urls(&servers), &[&NO_GUARD[..], &waits].concat());
    let line = waiter.err_line("waits for gone, held by client ");
    assert!(line.ends_with(reason), "{line}");
    let text = at(&servers, &["status", "other"]).expect(0).out;
    assert!(text.contains("held on 3 of 3 nodes by a client of another library"), "{text}");
    // A claim beside the lock names a holder, and does not say that it lives.
    let running = holding(&servers, "killed");
    let text = || at(&servers, &["status", "killed"]).expect(0).out;
    let is_named = || text().contains(&format!("process {}", running.pid()));
    assert!(eventually(PATIENCE, is_named) && !text().contains(reason), "{}", text());
    running.signal("KILL");
    assert!(eventually(PATIENCE, || text().contains(reason)), "{}", text());
    let free = at(&servers, &["status", "free", "--json"]).expect(0).json();
    assert_eq!((&free["verdict"], &free["holder"]), (&"free".into(), &Value::Null));
}

#[test]
fn a_held_lock_that_lost_its_spare_vote_to_a_restart_is_said_to_have_none() {
    let Some(mut servers) = servers() else { return };
    let _running = holding(&servers, "k");
    let none = "no vote to spare: one more node that fails or restarts ends it";
    let says = |servers: &[RealServer], command: &[&str]| {
        let ended = at(servers, command);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        (ended.out + &ended.err).contains(none)
    };
    assert!(!says(&servers, &["status", "k"]) && !says(&servers, &["ls"]));
    let doctor = at(&servers, &["doctor"]).out;
    assert!(doctor.contains("locks: 1 is held, with a vote to spare"), "{doctor}");
    // The server kept nothing, and votes again.
    servers[2].kill9();
    servers[2].restart();
    assert!(
        eventually(PATIENCE, || says(&servers, &["status", "k"])),
        "{:?}",
        at(&servers, &["status", "k"])
    );
    assert!(says(&servers, &["ls"]));
    let doctor = at(&servers, &["doctor"]).out;
    assert!(doctor.contains("new locks survive 1 more failure"), "{doctor}");
    let risk = "locks: k has no vote to spare: it ends if one more node fails or restarts";
    assert!(doctor.contains(risk), "{doctor}");
}

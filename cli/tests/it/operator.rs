//! The rights of the operators of locks: the line of `docs/security.md` suffices on its servers,
//! and the operator misses each of its rights when it is gone.

use std::time::Duration;

use redbolt_rig::{PATIENCE, RealServer, available_kinds, eventually};

use super::cli::{Running, on_urls};
use super::holders::{NO_GUARD, at, urls};

/// The line, as words.
fn line() -> Vec<&'static str> {
    let document = include_str!("../../../docs/security.md");
    let line = document.lines().find(|line| line.starts_with("ACL SETUSER operator "));
    line.expect("a line").split(' ').collect()
}

/// The acts that the operator can do on a server with a held lock. It takes the lock away at the
/// end.
fn operate(servers: &[RealServer; 1]) -> Vec<String> {
    // The holder's next extension is six seconds away: by then a client has told it, or not.
    let extends_at = redbolt_rig::now() + Duration::from_secs(6);
    let running =
        Running::holding(&urls(servers), &[&NO_GUARD[..], &["--ttl", "18s", "k"]].concat());
    let look = || at(servers, &["status", "k", "--json"]).json();
    let is_said = || look().pointer("/holder/since_ms").is_some_and(|since| since.is_u64());
    assert!(eventually(PATIENCE, is_said));
    let url = servers[0].url().replace("://", "://operator:secret@");
    let can = |args: &[&str]| {
        on_urls(std::slice::from_ref(&url), &[&["--restart-guard", "off"], args].concat())
    };
    let told = |json: &serde_json::Value| {
        let holder = &json["holder"];
        let is_known = [&holder["since_ms"], &holder["ends_ms"]].map(serde_json::Value::is_u64);
        format!("{} {} {is_known:?}", holder["program"], holder["address"].is_string())
    };
    let status = can(&["status", "k", "--json"]);
    let listed = can(&["ls", "--json"]);
    let listed = listed.out.lines().map(|lock| told(&serde_json::from_str(lock).expect("JSON")));
    let mut seen = vec![told(&status.json()), listed.collect()];
    seen.push(format!("{:?}", can(&["lock", "other", "--ttl", "30s"]).code));
    let forced = can(&["unlock", "--force", "--yes", "k"]).code;
    seen.push(format!("{forced:?}"));
    if forced != Some(0) {
        running.signal("TERM");
    }
    running.end();
    seen.push(format!("{}", redbolt_rig::now() < extends_at));
    seen
}

#[test]
fn an_operator_sees_locks_and_takes_one_away_and_takes_none() {
    for kind in available_kinds() {
        let servers = [RealServer::start(kind, &[])];
        let line = line();
        let rights_from = line.iter().position(|word| *word == "reset").expect("a reset") + 1;
        let set = |words: &[&str]| {
            servers[0].command(&["ACL", "DELUSER", "operator"]);
            let reply = servers[0].command(words);
            assert_eq!(reply, b"+OK\r\n", "{words:?}: {}", reply.escape_ascii());
        };
        set(&line);
        let whole = operate(&servers);
        let holder = r#""run/sh" true [true, true]"#;
        assert_eq!(whole, [holder, holder, "Some(77)", "Some(0)", "true"]);
        for right in line[rights_from..].iter().filter(|word| word.starts_with(['+', '~', '&'])) {
            let rest: Vec<_> = line.iter().copied().filter(|word| word != right).collect();
            set(&rest);
            assert_ne!(whole, operate(&servers), "{}: {right} is not needed", kind.name());
        }
    }
}

//! The bytes of `--json`, which are promised: names, their order, and what is `null`.

use serde_json::Value;

use super::cli::Ended;
use super::holders::{at, servers};
use redbolt_rig::{PATIENCE, eventually};

/// The line with `N` for each number outside of texts.
fn masked(ended: &Ended) -> String {
    let mut text = String::new();
    let mut is_text = false;
    for character in ended.out.trim_end().chars() {
        is_text ^= character == '"';
        if is_text || !character.is_ascii_digit() {
            text.push(character);
        } else if !text.ends_with('N') {
            text.push('N');
        }
    }
    text
}

#[test]
fn the_lines_of_status_ls_and_leader_are_as_scripts_know_them() {
    let Some(servers) = servers() else { return };
    let free = masked(&at(&servers, &["status", "free", "--json"]).expect(0));
    let nodes: Vec<String> = servers
        .iter()
        .map(|server| {
            let node = server.url().replace("redis://", "");
            format!(
                r#"{{"cause":null,"message":null,"node":"{node}","state":"free","token":null,"ttl_ms":null,"waits_ms":null}}"#
            )
        })
        .collect();
    let nodes = nodes.join(",");
    let expected =
        format!(r#"{{"holder":null,"key":"free","nodes":[{nodes}],"quorum":N,"verdict":"free"}}"#);
    assert_eq!(free, expected);

    let lock = at(&servers, &["lock", "k\\\n", "--ttl", "30s", "--json"]).expect(0);
    let token = lock.text("token");
    let client = &token[..16];
    let holder = format!(
        r#"{{"address":null,"client":"{client}","ends_ms":N,"host":null,"pid":null,"program":null,"since_ms":null,"votes":N}}"#
    );
    let nodes = nodes.replace(r#""state":"free","token":null,"ttl_ms":null"#, "HELD");
    let nodes = nodes.replace("HELD", &format!(r#""state":"held","token":"{token}","ttl_ms":N"#));
    let key = r"k\\\\\\n";
    let expected = format!(
        r#"{{"holder":{holder},"key":"{key}","nodes":[{nodes}],"quorum":N,"verdict":"held"}}"#
    );
    let look = || masked(&at(&servers, &["status", "k\\\n", "--json"]).expect(0));
    // A node may still list the client's connections for a moment.
    assert!(eventually(PATIENCE, || look() == expected), "{}\n{expected}", look());
    let list = masked(&at(&servers, &["ls", "--json"]).expect(0));
    let expected = format!(r#"{{"holder":{holder},"key":"{key}","ttl_ms":N,"verdict":"held"}}"#);
    assert_eq!(list, expected);

    let leader = at(&servers, &["leader", "e", "--json"]).expect(0);
    assert_eq!(masked(&leader), r#"{"leader":null,"name":"e","verdict":"free"}"#);
    let report = at(&servers, &["doctor", "--json"]).json();
    let hash = report.pointer("/agreement/settings/lists/0/hash").expect("a hash");
    let agreement = format!(
        r#"{{"clients":0,"differ":[],"settings":{{"failover_guard":true,"lists":[{{"hash":{hash},"nodes":3,"quorum":2}}],"max_ttl_ms":30000,"prefix":null,"restart_guard":false}},"silent":0,"unlisted":[]}}"#
    );
    assert_eq!(report.get("agreement").map(Value::to_string), Some(agreement));
}

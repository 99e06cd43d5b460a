//! What managed servers hide: each row of the table in `docs/servers.md`, on real servers that hide
//! the same.

use std::thread;
use std::time::Duration;

use redbolt::now;
use redbolt_rig::{Kind, PATIENCE, RealServer, available_kinds, eventually};

use super::cli::on_urls;

const DOCUMENT: &str = include_str!("../../../docs/servers.md");

/// A row, what the servers are started with, and how the doctor ends and what it says there.
struct Row {
    name: &'static str,
    args: &'static [&'static str],
    /// On servers that delete a key by its token without a script, and on the others.
    code: [i32; 2],
    words: &'static str,
}

const fn row(
    name: &'static str,
    args: &'static [&'static str],
    code: i32,
    words: &'static str,
) -> Row {
    Row { name, args, code: [code, code], words }
}

const ROWS: [Row; 9] = [
    row("`CONFIG`", &["--rename-command", "CONFIG", ""], 0, "which the guard covers"),
    row("`CLIENT`", &["--rename-command", "CLIENT", ""], 0, "no node lists its clients"),
    row("`HELLO`", &["--rename-command", "HELLO", ""], 0, "RESP2 only"),
    row("`SUBSCRIBE`", &["--rename-command", "SUBSCRIBE", ""], 0, "a waiter polls"),
    row("`PUBLISH`", &["--rename-command", "PUBLISH", ""], 0, "a waiter polls"),
    row("`TIME`", &["--rename-command", "TIME", ""], 0, "clocks: not known"),
    Row { name: "`EVAL`", args: &["--rename-command", "EVAL", ""], code: [0, 78], words: "+eval" },
    row(
        "`INFO`, or `connected_slaves` in it",
        &["--rename-command", "INFO", ""],
        78,
        "denies INFO",
    ),
    row(
        "`maxmemory-policy`",
        &["--maxmemory-policy", "volatile-lru"],
        78,
        "policy noeviction there",
    ),
];

#[test]
fn what_a_server_hides_is_refused_or_said() {
    let (_, table) = DOCUMENT.split_once("| hidden |").expect("the table");
    let (table, _) = table.split_once("\n\n").expect("its end");
    assert_eq!(table.lines().count(), ROWS.len() + 2, "each row of the table is tried here");
    thread::scope(|scope| {
        for row in &ROWS {
            assert!(table.contains(&format!("\n| {} |", row.name)), "{}", row.name);
            scope.spawn(|| available_kinds().into_iter().for_each(|kind| try_row(row, kind)));
        }
    });
}

fn try_row(row: &Row, kind: Kind) {
    let server = RealServer::start(kind, row.args);
    let is_native = matches!(kind, Kind::Valkey91 | Kind::Redis86);
    let [native, other] = row.code;
    let code = if is_native { native } else { other };
    let doctor =
        || on_urls(&[server.url()], &["doctor", "--max-ttl", "1s", "--node-timeout", "1s"]);
    // A younger server has no vote yet.
    let is_old = now() + Duration::from_millis(2_200);
    assert!(eventually(PATIENCE, || now() >= is_old));
    let mut said = String::new();
    let is_so = || {
        let ended = doctor();
        said = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
        ended.code == Some(code) && said.contains(row.words)
    };
    assert!(eventually(PATIENCE, is_so), "{} {}: {said}", row.name, kind.name());
}

//! A master that was a replica, as the command meets it.

use redbolt_rig::{PATIENCE, RealServer, available_kinds, eventually};

use super::cli::{MAX_TTL_TEXT, on_urls};

/// The command meets the nodes for the first time in each run.
#[test]
fn the_command_locks_each_second_through_a_promotion() {
    let Some(server) = available_kinds().into_iter().next() else { return };
    let (master, server) = (RealServer::start(server, &[]), RealServer::start(server, &[]));
    let lock = |key| {
        let args =
            ["lock", key, "--ttl", "1s", "--max-ttl", MAX_TTL_TEXT, "--failover-guard", "off"];
        on_urls(&[server.url()], &args).code
    };
    // Until the server's own age is no reason to wait.
    assert!(eventually(PATIENCE, || lock("before") == Some(0)));
    server.replicate(&master);
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(lock("k"), Some(69));
    assert!(eventually(PATIENCE, || lock("k") == Some(0)));
    // Its process is older than the wait.
    let doctor =
        || on_urls(&[server.url()], &["doctor", "--max-ttl", "30s", "--failover-guard", "off"]).out;
    assert!(eventually(PATIENCE, || doctor().contains("was promoted and may have forgotten")));
}

/// Nobody gets a lock there, and the command says what to change; told otherwise, it takes locks, and
/// the doctor says what that means.
#[test]
fn a_master_that_would_go_on_after_a_failover_is_refused_unless_told_otherwise() {
    let Some(kind) = available_kinds().into_iter().next() else { return };
    let (server, replica) = (RealServer::start(kind, &[]), RealServer::start(kind, &[]));
    replica.replicate(&server);
    let run =
        |args: &[&str]| on_urls(&[server.url()], &[args, &["--max-ttl", MAX_TTL_TEXT]].concat());
    let lock = ["lock", "k", "--ttl", "1s"];
    let off = ["--failover-guard", "off"];
    let doctor = run(&["doctor"]);
    assert_eq!(doctor.code, Some(78));
    assert!(doctor.out.contains("two holders would be possible"), "{}", doctor.out);
    assert_eq!(run(&lock).code, Some(69));
    assert!(eventually(PATIENCE, || run(&[&lock[..], &off].concat()).code == Some(0)));
    let doctor = run(&[&["doctor"][..], &off].concat());
    assert_eq!(doctor.code, Some(78));
    assert!(doctor.out.contains("two holders are possible"), "{}", doctor.out);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let mut said = String::new();
    let is_fit = || {
        let doctor = run(&["doctor"]);
        said = doctor.out;
        doctor.code == Some(0)
    };
    // A node with a replica waits 13 s longer than another after its start.
    assert!(eventually(PATIENCE * 2, is_fit), "{said}");
    assert!(said.contains("connected replicas: 1."), "{said}");
}

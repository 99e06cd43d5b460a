//! A master that was a replica, as the command meets it.

use redbolt_rig::{PATIENCE, RealServer, available_kinds, eventually};

use super::cli::on_urls;

/// The command meets the nodes for the first time in each run.
#[test]
fn the_command_locks_each_second_through_a_promotion() {
    let Some(server) = available_kinds().into_iter().next() else { return };
    let (master, server) = (RealServer::start(server, &[]), RealServer::start(server, &[]));
    let lock = |key| {
        let args = ["lock", key, "--ttl", "1s", "--max-ttl", "2s"];
        on_urls(&[server.url()], &args).code
    };
    // Until the server's own age is no reason to wait.
    assert!(eventually(PATIENCE, || lock("before") == Some(0)));
    server.replicate(&master);
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(lock("k"), Some(69));
    assert!(eventually(PATIENCE, || lock("k") == Some(0)));
    // Its process is older than the wait.
    let doctor = || on_urls(&[server.url()], &["doctor", "--max-ttl", "30s"]).out;
    assert!(eventually(PATIENCE, || doctor().contains("was promoted and may have forgotten")));
}

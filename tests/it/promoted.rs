//! Masters that were replicas, or had some, as newcomers see them: each client of these tests meets
//! its server for the first time, as each run of the command does.

use std::time::Duration;

use redbolt::{Cause, Client, Config, FailoverGuard, LockError, now};

use super::common::{
    PATIENCE, RealServer, available_kinds, causes, eventually, ms, on_each_kind, settled_nodes,
};

/// The longest TTL of these locks, and so about the time for which a node does not vote.
const MAX_TTL: Duration = Duration::from_secs(2);

/// An old master that is cut off from its replica takes no writes after this time.
const CEASES_WITHIN: Duration = Duration::from_secs(13);

/// Here no old master goes on: so a promoted server waits for `MAX_TTL` alone.
fn config(server: &RealServer) -> Config {
    guarded(server).failover_guard(FailoverGuard::Off)
}

fn guarded(server: &RealServer) -> Config {
    Config::new([server.url()]).expect("an address").max_ttl(MAX_TTL).node_timeout(ms(500))
}

/// The result for a client that has never met the server.
fn newcomer(server: &RealServer) -> Result<(), LockError> {
    newcomer_with(config(server))
}

fn newcomer_with(config: Config) -> Result<(), LockError> {
    let client = Client::open(config).expect("a client");
    settled_nodes(&client);
    client.try_lock("k", MAX_TTL / 2).wait().map(drop)
}

/// Why the server did not vote.
fn refused(result: Result<(), LockError>) -> Vec<Cause> {
    match result {
        Err(LockError::NoQuorum(ballot)) => causes(&ballot),
        result => panic!("{result:?}"),
    }
}

/// Newcomers come again and again. None gets a lock before the locks are over that the server may
/// have lost at `lost_at` on the clock; then one does.
fn is_met_again(server: &RealServer, lost_at: redbolt::Instant) {
    let name = server.kind().name();
    let mut waited = 0;
    let is_let_in = eventually(PATIENCE, || {
        let result = newcomer(server);
        if result.is_err() {
            assert_eq!(refused(result), [Cause::Quarantined], "{name}");
            waited += 1;
            return false;
        }
        true
    });
    assert!(is_let_in, "{name}: nobody is ever let in");
    assert!(lost_at.until(now()) >= MAX_TTL, "{name}: a newcomer was let in too soon");
    assert!(waited > 0, "{name}");
}

/// Waits until the server's own age is no reason to wait.
fn grows_old(server: &RealServer) {
    assert!(eventually(PATIENCE, || newcomer(server).is_ok()), "{}", server.kind().name());
}

#[test]
fn a_promoted_replica_is_not_believed_before_what_it_lost_is_over_and_then_by_all() {
    on_each_kind(|kind| {
        let (master, server) = (RealServer::start(kind, &[]), RealServer::start(kind, &[]));
        grows_old(&server);
        for _ in 0..2 {
            server.replicate(&master);
            // The replica does not vote, and names itself a replica in the greeting.
            assert_eq!(refused(newcomer(&server)), [Cause::Replica]);
            let promoted_at = now();
            server.command(&["REPLICAOF", "NO", "ONE"]);
            is_met_again(&server, promoted_at);
        }
        // FLUSHALL deletes the marker together with the locks.
        let flushed_at = now();
        server.command(&["FLUSHALL"]);
        is_met_again(&server, flushed_at);
    });
}

#[test]
fn a_plain_master_lets_newcomers_in_and_keeps_no_marker() {
    on_each_kind(|kind| {
        let server = RealServer::start(kind, &[]);
        grows_old(&server);
        assert_eq!(server.command(&["DBSIZE"]), b":0\r\n", "{}", kind.name());
    });
}

/// The server reads its second replication id back from its file.
#[test]
fn a_master_with_replicas_is_believed_again_after_its_restart() {
    for (args, save) in [
        (&["--save", "3600 1000000"][..], &["SAVE"][..]),
        (&["--appendonly", "yes"], &["BGREWRITEAOF"]),
    ] {
        on_each_kind(|kind| {
            let mut server = RealServer::start(kind, args);
            let replica = RealServer::start(kind, &[]);
            replica.replicate(&server);
            server.command(&["SET", "other", "x"]);
            server.command(save);
            let is_written = || {
                let info = server.command(&["INFO", "persistence"]);
                let info = String::from_utf8_lossy(&info).into_owned();
                info.contains("aof_rewrite_in_progress:0")
                    && info.contains("aof_rewrite_scheduled:0")
            };
            assert!(eventually(PATIENCE, is_written));
            drop(replica);
            for _ in 0..2 {
                let restarted_at = now();
                server.restart();
                is_met_again(&server, restarted_at);
            }
        });
    }
}

#[test]
fn a_client_that_may_not_write_the_marker_waits_each_time() {
    let Some(kind) = available_kinds().into_iter().next() else { return };
    let (master, server) = (RealServer::start(kind, &[]), RealServer::start(kind, &[]));
    server.replicate(&master);
    server.command(&["REPLICAOF", "NO", "ONE"]);
    let line = ["ACL", "SETUSER", "some", "on", ">pw", "~k", "+@all"];
    assert_eq!(server.command(&line), b"+OK\r\n");
    let denied = || config(&server).username("some").password("pw");
    is_met_again(&server, now());
    for _ in 0..2 {
        assert_eq!(refused(newcomer_with(denied())), [Cause::Quarantined]);
    }
    let client = Client::open(denied()).expect("a client");
    let is_let_in = || client.try_lock("k", MAX_TTL / 2).wait().is_ok();
    assert!(eventually(PATIENCE, is_let_in), "not even where it stays");
}

#[test]
fn a_master_with_replicas_votes_only_if_its_writes_need_all_of_them() {
    on_each_kind(|kind| {
        let (server, name) = (RealServer::start(kind, &[]), kind.name());
        let replicas = [(); 2].map(|()| RealServer::start(kind, &[]));
        grows_old(&server);
        let set = |name, value| {
            assert_eq!(server.command(&["CONFIG", "SET", name, value]), b"+OK\r\n");
        };
        let is_refused =
            || assert_eq!(refused(newcomer_with(guarded(&server))), [Cause::Unguarded]);
        // The server counts its good replicas each second.
        let votes =
            || assert!(eventually(PATIENCE, || newcomer_with(guarded(&server)).is_ok()), "{name}");
        votes();
        replicas[0].replicate(&server);
        is_refused();
        set("min-replicas-to-write", "1");
        votes();
        set("min-replicas-max-lag", "11");
        is_refused();
        set("min-replicas-max-lag", "10");
        replicas[1].replicate(&server);
        // One of them may be promoted while the other stays with the old master.
        is_refused();
        set("min-replicas-to-write", "2");
        votes();
        // Its replicas may have been promoted.
        replicas.iter().for_each(|replica| drop(replica.command(&["REPLICAOF", "NO", "ONE"])));
        assert_eq!(refused(newcomer_with(guarded(&server))), [Cause::NoReplicas], "{name}");
        set("min-replicas-to-write", "0");
        is_refused();
        let is_let_in = || newcomer(&server).is_ok();
        assert!(eventually(PATIENCE, is_let_in), "{name}: without the guard");
    });
}

/// A user who may not read settings, as of a managed server: the client sees that writes need a
/// replica, and not how many.
#[test]
fn where_settings_cannot_be_read_a_master_with_one_replica_votes() {
    let Some(kind) = available_kinds().into_iter().next() else { return };
    let args = ["--min-replicas-to-write", "1", "--rename-command", "CONFIG", ""];
    let (server, replicas) =
        (RealServer::start(kind, &args), [(); 2].map(|()| RealServer::start(kind, &[])));
    replicas[0].replicate(&server);
    grows_old(&server);
    let votes = || newcomer_with(guarded(&server)).is_ok();
    assert!(eventually(CEASES_WITHIN + PATIENCE, votes));
    replicas[1].replicate(&server);
    assert_eq!(refused(newcomer_with(guarded(&server))), [Cause::Unguarded]);
}

/// The client cannot know whether the old master has ended: it may have granted locks until 13 s
/// after the promotion.
#[test]
fn a_promoted_replica_waits_until_its_old_master_has_ceased() {
    on_each_kind(|kind| {
        let args = ["--min-replicas-to-write", "1"];
        let (master, server) = (RealServer::start(kind, &args), RealServer::start(kind, &args));
        server.replicate(&master);
        server.command(&["REPLICAOF", "NO", "ONE"]);
        let promoted_at = now();
        master.replicate(&server);
        let client = Client::open(guarded(&server)).expect("a client");
        let wait = MAX_TTL + CEASES_WITHIN;
        let votes = || client.try_lock("k", MAX_TTL / 2).wait().is_ok();
        assert!(eventually(wait + PATIENCE, votes), "{}", kind.name());
        assert!(promoted_at.until(now()) >= wait, "{}", kind.name());
        // The marker tells the next client of the whole wait, which would be longer than this.
        let is_let_in = || newcomer_with(guarded(&server)).is_ok();
        assert!(eventually(PATIENCE / 2, is_let_in), "{}", kind.name());
    });
}

/// The master fails over and back between two calls of a client that stays connected to it. It keeps
/// nothing of what the other server granted meanwhile.
#[test]
fn a_failover_and_back_behind_an_idle_connection_is_noticed() {
    on_each_kind(|kind| {
        let args = ["--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0"];
        let (server, other) = (RealServer::start(kind, &args), RealServer::start(kind, &args));
        other.replicate(&server);
        let client = Client::open(guarded(&server)).expect("a client");
        let votes = || client.try_lock("k", MAX_TTL / 2).wait().is_ok();
        assert!(eventually(CEASES_WITHIN + PATIENCE, votes), "{}", kind.name());
        for (master, replica) in [(&other, &server), (&server, &other)] {
            master.command(&["REPLICAOF", "NO", "ONE"]);
            replica.replicate(master);
        }
        let promoted_at = now();
        // It looks each second, whether it is used or not.
        let is_noticed = || client.nodes().wait().iter().all(|node| !node.votes);
        assert!(eventually(PATIENCE, is_noticed), "{}", kind.name());
        assert!(eventually(MAX_TTL * 2 + CEASES_WITHIN + PATIENCE, votes), "{}", kind.name());
        assert!(promoted_at.until(now()) >= MAX_TTL + CEASES_WITHIN, "{}", kind.name());
    });
}

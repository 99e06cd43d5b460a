//! The least rights: each line of `docs/security.md` suffices on its servers, and each right of it
//! is needed.

use std::collections::BTreeMap;
use std::time::Duration;

use redbolt::inspect::{NodeState, Query, Reply};
use redbolt::{Cause, Client, Config, LockError, Retry, Unlocked};

use super::common::{
    Cluster, Kind, PATIENCE, RealServer, TTL, available_kinds, causes, eventually, fresh_config,
    ms, wait_released,
};

const DOCUMENT: &str = include_str!("../../docs/security.md");

/// The words of the line below the title that names its servers.
#[track_caller]
fn line_of(title: &str) -> Vec<&'static str> {
    let (_, below) = DOCUMENT.split_once(&format!("\n{title}:\n")).expect("the title is there");
    let line = below.lines().find(|line| line.starts_with("ACL SETUSER")).expect("a line");
    line.split(' ').collect()
}

/// The line for a server that runs its best commands.
fn native_line(kind: Kind) -> Vec<&'static str> {
    line_of(match kind {
        Kind::Valkey91 => "Valkey 9.1 and later, and Valkey 9.0 without `+msetex`",
        Kind::Redis86 => "Redis 8.4 and later",
        Kind::Valkey81 => "Valkey 8.1",
        Kind::Redis70 | Kind::Redis80 => "Redis 7.0 to 8.2",
    })
}

/// The line for a server whose own commands are not allowed.
fn script_line() -> Vec<&'static str> {
    line_of("Redis 7.0 to 8.2")
}

fn config(cluster: &Cluster) -> Config {
    fresh_config(cluster.urls())
        .username("locks")
        .password("secret")
        .retry(Retry::every(Duration::from_secs(60), Duration::ZERO).timeout(PATIENCE))
}

fn set_user(server: &RealServer, line: &[&str]) {
    server.command(&["ACL", "DELUSER", "locks"]);
    let reply = server.command(line);
    assert_eq!(reply, b"+OK\r\n", "{line:?}: {}", reply.escape_ascii());
}

/// Commands that change nothing, and need the same rights as those that do.
const TRIALS: [&str; 7] = [
    "SET lock:k v NX PX 0",
    "SET redbolt:since:k 1 NX PX 0",
    "GET lock:k",
    "PTTL lock:k",
    "PUBLISH redbolt:k m",
    "EVAL return(0) 1 lock:k",
    "DEL redbolt:since:k",
];

/// The trials that the user may not run, for each node.
fn denied(client: &Client) -> Vec<String> {
    let words = |trial: &'static str| trial.split(' ').map(str::as_bytes).collect::<Vec<_>>();
    let query = TRIALS.iter().fold(Query::new(), |query, trial| query.all(&words(trial)));
    let is_denied =
        |reply: &Reply| matches!(reply, Reply::Error(Cause::NoPermission | Cause::KeyDenied));
    let nodes = client.query(&query).wait().expect("answers").into_iter();
    let denied = nodes.map(|node| {
        let trials = TRIALS.iter().zip(node.replies).filter(|(_, reply)| is_denied(reply));
        trials.map(|(trial, _)| *trial).collect::<Vec<_>>().join(", ")
    });
    denied.collect()
}

/// Uses every right, on five servers of one version.
fn does_all(cluster: &Cluster) {
    let connect = || Client::connect(config(cluster)).expect("the rights suffice");
    let client = connect();
    let voters = eventually(PATIENCE, || client.voters().count() == 5);
    assert!(voters, "{:?}", client.nodes().wait());
    for index in 0..20 {
        let key = format!("lock:{index}");
        let mut lease = client.try_lock(&key, TTL).wait().expect("the lock is free");
        lease.extend(TTL).wait().expect("the lease is alive");
        assert_eq!(lease.unlock().wait().expect("the lease is ours"), Unlocked::Released);
    }
    // The first release shows the client which form of it a node allows. The name of a leader is
    // deleted in the form that is known by then.
    assert_eq!(wait_released(&client, PATIENCE), 0);
    let term = client.campaign("lock:led", TTL).wait().expect("the lock is free");
    let program = |client: &Client| {
        let led = client.leader("lock:led").wait().expect("answers");
        led.leader().and_then(|leader| leader.name.clone()?.program)
    };
    assert!(eventually(PATIENCE, || program(&client).is_some()), "the leader has no name");
    assert_eq!(term.unlock().wait().expect("the term is ours"), Unlocked::Released);
    assert!(eventually(PATIENCE, || {
        wait_released(&client, ms(1));
        cluster.holders("lock:led:elected") == 0
    }));
    let lease = client.try_lock("lock:w", TTL).wait().expect("the lock is free");
    let published = |server: &RealServer| {
        let stats = server.command(&["INFO", "commandstats"]);
        String::from_utf8_lossy(&stats).contains("cmdstat_publish:")
    };
    // The waiter looks again in a minute: within the test only a message can wake it.
    let waiter = connect();
    let taken = std::thread::scope(|scope| {
        let waits =
            scope.spawn(move || waiter.lock("lock:w", TTL).wait().map(|lease| (waiter, lease)));
        assert!(eventually(PATIENCE, || {
            wait_released(&client, ms(1));
            cluster.nodes().any(published)
        }));
        assert_eq!(lease.unlock().wait().expect("the lease is ours"), Unlocked::Released);
        assert!(eventually(PATIENCE, || {
            wait_released(&client, ms(1));
            waits.is_finished()
        }));
        waits.join().expect("no panic")
    });
    let (_waiter, lease) = taken.expect("woken");
    assert_eq!(lease.unlock().wait().expect("the lease is ours"), Unlocked::Released);
    cluster.nodes().for_each(RealServer::hang_up);
    assert!(eventually(PATIENCE, || {
        wait_released(&client, ms(10));
        client.try_lock("lock:again", TTL).wait().is_ok() && client.voters().count() == 5
    }));
    assert_eq!(denied(&client), [""; 5]);
    assert!(
        client.nodes().wait().iter().all(|node| node.direct_wake),
        "{:?}",
        client.nodes().wait()
    );
}

#[test]
fn the_documented_rights_suffice_for_all_that_locks_do() {
    for kind in available_kinds() {
        let Some(cluster) = Cluster::start(&[kind; 5], &[]) else { return };
        for line in [native_line(kind), script_line()] {
            cluster.nodes().for_each(|node| set_user(node, &line));
            does_all(&cluster);
            cluster.nodes().for_each(|node| {
                node.command(&["CONFIG", "RESETSTAT"]);
            });
        }
    }
}

/// All that a caller, a notice or `redbolt doctor` can see of a user's rights on one server.
#[derive(Debug, PartialEq)]
struct Seen(BTreeMap<&'static str, String>);

fn see(cluster: &Cluster) -> Seen {
    let mut seen = BTreeMap::new();
    let mut say = |what, value: String| drop(seen.insert(what, value));
    let client = Client::open(config(cluster).node_timeout(ms(500))).expect("a client");
    let connected = client.ready(ms(1_000)).wait();
    say("connected", connected.map_or_else(|error| error.to_string(), |()| "yes".into()));
    let cause = |error: &LockError| {
        if let LockError::NoQuorum(ballot) | LockError::Taken(ballot) = error {
            format!("{:?}", causes(ballot))
        } else {
            error.to_string()
        }
    };
    match client.try_lock("lock:seen", TTL).wait() {
        Err(error) => say("locked", cause(&error)),
        Ok(mut lease) => {
            let extended = lease.extend(TTL).wait();
            say("extended", extended.map_or_else(|error| error.to_string(), |()| "yes".into()));
            say("released", format!("{:?}", lease.unlock().wait()));
            // The client looks at a key of another client, and leaves it alone.
            cluster.node(0).command(&["SET", "lock:other", "x"]);
            say("not ours", format!("{:?}", client.unlock_token("lock:other", "y").wait()));
            cluster.node(0).command(&["DEL", "lock:other"]);
        }
    }
    let node = cluster.node(0);
    node.command(&["CONFIG", "RESETSTAT"]);
    drop(client.try_lock_all(["lock:a", "lock:b"], TTL).wait());
    let stats = node.command(&["INFO", "commandstats"]);
    let at_once = String::from_utf8_lossy(&stats).contains("cmdstat_msetex:calls=1,");
    say("several at once", at_once.to_string());
    wait_released(&client, ms(100));
    say("left", may_leave(cluster).to_string());
    say("denied", denied(&client).remove(0));
    let node = client.nodes().wait().remove(0);
    say("dialect", node.dialect.unwrap_or_default());
    say("woken", node.direct_wake.to_string());
    say("admitted", (node.state == NodeState::Admitted).to_string());
    let notices: Vec<Cause> = client.notices().wait().into_iter().map(|told| told.cause).collect();
    say("notices", format!("{notices:?}"));
    cluster.node(0).command(&["FLUSHALL"]);
    Seen(seen)
}

/// Whether a client that waited for a lock in vain may leave the channel for transfers at its end.
fn may_leave(cluster: &Cluster) -> bool {
    let node = cluster.node(0);
    node.command(&["SET", "lock:waited", &"ab".repeat(20), "PX", "60000"]);
    let retry = Retry::every(ms(1), Duration::ZERO).timeout(ms(50));
    let config = config(cluster).client_name("waits").transfers_in_row(16).retry(retry);
    let Ok(client) = Client::connect(config) else { return false };
    drop(client.lock("lock:waited", TTL).wait());
    node.command(&["ACL", "LOG", "RESET"]);
    client.shutdown(ms(500)).wait();
    let denied = node.command(&["ACL", "LOG"]);
    !String::from_utf8_lossy(&denied).contains("unsubscribe")
}

#[test]
fn each_documented_right_is_missed_when_it_is_gone() {
    for kind in available_kinds() {
        let Some(cluster) = Cluster::start(&[kind], &[]) else { return };
        for line in [native_line(kind)] {
            let node = cluster.node(0);
            set_user(node, &line);
            let whole = see(&cluster);
            assert_eq!(whole, see(&cluster), "what is seen does not depend on chance");
            let rights = line.iter().filter(|word| word.starts_with(['+', '~', '&']));
            for right in rights {
                let rest: Vec<_> = line.iter().copied().filter(|word| word != right).collect();
                set_user(node, &rest);
                let lacking = see(&cluster);
                assert_ne!(whole, lacking, "{}: {right} is not needed", kind.name());
            }
        }
    }
}

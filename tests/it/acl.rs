//! The least rights: each line of `docs/security.md` suffices on its servers, and each right of it
//! is missed when it is gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redbolt::inspect::{Holder, NodePermissions, NodeState, examine, permissions};
use redbolt::{Cause, Client, Config, LockError, Retry, Unlocked};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, RealServer, TTL, available_kinds, causes, eventually,
    fresh_config, ms,
};

const DOCUMENT: &str = include_str!("../../docs/security.md");

/// The line below the title that says which servers it is for, as words.
#[track_caller]
fn line_of(title: &str) -> Vec<&'static str> {
    let (_, below) = DOCUMENT.split_once(&format!("\n{title}:\n")).expect("the title is there");
    let line = below.lines().find(|line| line.starts_with("ACL SETUSER")).expect("a line");
    line.split(' ').collect()
}

/// The line for a server with its best commands.
fn native_line(kind: Kind) -> Vec<&'static str> {
    line_of(match kind {
        Kind::Valkey91 => "Valkey 9.0 and later",
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

/// What the user may not run, the ways of releasing apart, of which one is enough.
fn denied(node: &NodePermissions) -> String {
    let is_denied = |cause: &Cause| matches!(cause, Cause::NoPermission | Cause::KeyDenied);
    let ways_of_release = ["DELIFEQ", "DELEX"];
    let refused = node.refused.iter().filter(|(_, cause)| is_denied(cause));
    let names = refused.map(|(name, _)| *name).filter(|name| !ways_of_release.contains(name));
    names.collect::<Vec<_>>().join(" ")
}

/// All that the rights are for, on five servers of one version.
fn does_all(cluster: &Cluster) {
    let connect = || Client::connect(config(cluster)).expect("the rights suffice");
    let mut client = connect();
    let voters = eventually(PATIENCE, || {
        client.wait_settled(PATIENCE).is_ok() && client.driver().voters().count() == 5
    });
    assert!(voters, "{:?}", client.nodes());
    for index in 0..20 {
        let key = format!("lock:{index}");
        let mut lease = client.try_lock(&key, TTL).expect("the lock is free");
        client.extend(&mut lease, TTL).expect("the lease is alive");
        assert_eq!(client.unlock(lease).expect("the lease is ours"), Unlocked::Released);
    }
    let term = client.campaign("lock:led", TTL).expect("the lock is free");
    let program = |client: &mut Client| {
        client.leader("lock:led").expect("answers").holder.and_then(|leader| leader.program)
    };
    assert!(eventually(PATIENCE, || program(&mut client).is_some()), "the leader has no name");
    assert_eq!(client.resign(term).expect("the term is ours"), Unlocked::Released);
    assert!(eventually(PATIENCE, || {
        client.wait_released(ms(1));
        cluster.holders("lock:led:elected") == 0
    }));
    let lease = client.try_lock("lock:w", TTL).expect("the lock is free");
    let published = |server: &RealServer| {
        let stats = server.command(&["INFO", "commandstats"]);
        String::from_utf8_lossy(&stats).contains("cmdstat_publish:")
    };
    // The waiter looks again in a minute: within the test only a word can wake it.
    let mut waiter = connect();
    let taken = std::thread::scope(|scope| {
        let waits = scope.spawn(move || waiter.lock("lock:w", TTL).map(|lease| (waiter, lease)));
        assert!(eventually(PATIENCE, || {
            client.wait_released(ms(1));
            cluster.nodes().any(published)
        }));
        assert_eq!(client.unlock(lease).expect("the lease is ours"), Unlocked::Released);
        assert!(eventually(PATIENCE, || {
            client.wait_released(ms(1));
            waits.is_finished()
        }));
        waits.join().expect("no panic")
    });
    let (mut waiter, lease) = taken.expect("woken");
    assert_eq!(waiter.unlock(lease).expect("the lease is ours"), Unlocked::Released);
    cluster.nodes().for_each(RealServer::hang_up);
    assert!(eventually(PATIENCE, || {
        client.wait_released(ms(10));
        client.try_lock("lock:again", TTL).is_ok() && client.driver().voters().count() == 5
    }));
    for node in examine(&mut client).expect("answers") {
        assert!(node.health.direct_wake, "{node:?}");
    }
    for node in permissions(&mut client, "lock:k").expect("answers") {
        assert_eq!(denied(&node), "", "{node:?}");
    }
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

/// What a caller, a notice or `redbolt doctor` can see of a user's rights on one server.
#[derive(Debug, PartialEq)]
struct Seen(BTreeMap<&'static str, String>);

fn see(cluster: &Cluster) -> Seen {
    let mut seen = BTreeMap::new();
    let mut say = |what, value: String| drop(seen.insert(what, value));
    // Scripts that others have loaded would hide that this user cannot.
    cluster.node(0).command(&["SCRIPT", "FLUSH"]);
    let mut client = Client::open(config(cluster).node_timeout(ms(500))).expect("a client");
    let connected = client.wait_settled(PATIENCE);
    say("connected", connected.map_or_else(|error| error.to_string(), |()| "yes".into()));
    let cause = |error: &LockError| {
        if let LockError::NoQuorum(ballot) | LockError::Taken(ballot) = error {
            format!("{:?}", causes(ballot))
        } else {
            error.to_string()
        }
    };
    match client.try_lock("lock:seen", TTL) {
        Err(error) => say("locked", cause(&error)),
        Ok(mut lease) => {
            let extended = client.extend(&mut lease, TTL);
            say("extended", extended.map_or_else(|error| error.to_string(), |()| "yes".into()));
            say("released", format!("{:?}", client.unlock(lease)));
            // A key that is somebody else's is looked at, and let go.
            cluster.node(0).command(&["SET", "lock:other", "x"]);
            say("not ours", format!("{:?}", client.unlock_token("lock:other", "y")));
            cluster.node(0).command(&["DEL", "lock:other"]);
        }
    }
    client.wait_released(ms(100));
    say("left", subscriptions_after_a_wait(cluster).to_string());
    let report = examine(&mut client).expect("answers").remove(0);
    say("dialect", report.health.dialect.clone().unwrap_or_default());
    say("denied", denied(&permissions(&mut client, "lock:k").expect("answers").remove(0)));
    say("woken", report.health.direct_wake.to_string());
    say("admitted", (report.health.state == NodeState::Admitted).to_string());
    let notices: Vec<Cause> =
        std::iter::from_fn(|| client.notice()).map(|told| told.cause).collect();
    say("notices", format!("{notices:?}"));
    cluster.node(0).command(&["FLUSHALL"]);
    Seen(seen)
}

/// To how many channels a client is subscribed that has waited for a lock in vain.
fn subscriptions_after_a_wait(cluster: &Cluster) -> usize {
    cluster.node(0).command(&["SET", "lock:waited", &"ab".repeat(20), "PX", "60000"]);
    let retry = Retry::every(ms(1), Duration::ZERO).timeout(ms(50));
    let config = config(cluster).client_name("waits").transfers_in_row(16).retry(retry);
    let Ok(mut client) = Client::connect(config) else { return 0 };
    drop(client.lock("lock:waited", TTL));
    drop(client.status("lock:waited"));
    let clients = cluster.node(0).command(&["CLIENT", "LIST"]);
    let clients = String::from_utf8_lossy(&clients).into_owned();
    let its = clients.lines().find(|line| line.contains(":waits:"));
    let count = its.and_then(|line| line.split(" sub=").nth(1)?.split(' ').next()?.parse().ok());
    count.unwrap_or(0)
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

/// The line for those who look after locks, as words.
fn operator_line() -> Vec<&'static str> {
    let line = DOCUMENT.lines().find(|line| line.starts_with("ACL SETUSER operator "));
    line.expect("a line").split(' ').collect()
}

/// What the operator can do on one server where somebody holds a lock; its last line takes that lock
/// away.
fn operate(cluster: &Cluster) -> Vec<String> {
    let mut holder = cluster.whole(cluster.config().client_name("holder"));
    let lease = holder.try_lock("k", TTL).expect("the lock is free");
    // Scripts that others have loaded would hide that this user cannot.
    cluster.node(0).command(&["SCRIPT", "FLUSH"]);
    let config = cluster.config().username("operator").password("secret").node_timeout(ms(500));
    let mut client = Client::open(config).expect("a client");
    let mut seen = vec![format!("{:?}", client.wait_settled(PATIENCE).is_ok())];
    let is_done = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        // Only a holder that reads can be asked.
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                holder.drive_for(ms(5)).expect("a healthy loop");
            }
        });
        let found = client.holder("k").expect("answers");
        is_done.store(true, Ordering::Relaxed);
        found
    });
    let said = |holder: Holder| (holder.program, holder.ends_in.is_some(), holder.waiters);
    seen.push(format!("{:?}", found.holder.map(said)));
    let listing = client.locks("*", 10).expect("answers");
    let names = listing.locks.iter().map(|lock| lock.holder.as_ref()?.program.clone());
    seen.push(format!("{:?} {:?}", names.collect::<Vec<_>>(), listing.nodes));
    seen.push(format!("{:?}", client.try_lock("other", TTL).is_ok()));
    seen.push(format!("{:?}", client.nodes().remove(0).dialect));
    seen.push(format!("{:?}", client.unlock_token("k", lease.token())));
    drop(lease);
    seen
}

#[test]
fn an_operator_sees_locks_and_takes_one_away_and_takes_none() {
    for kind in available_kinds() {
        let Some(cluster) = Cluster::start(&[kind], &[]) else { return };
        let line = operator_line();
        let rights_from = line.iter().position(|word| *word == "reset").expect("a reset") + 1;
        let set = |words: &[&str]| {
            cluster.node(0).command(&["ACL", "DELUSER", "operator"]);
            let reply = cluster.node(0).command(words);
            assert_eq!(reply, b"+OK\r\n", "{words:?}: {}", reply.escape_ascii());
        };
        set(&line);
        let whole = operate(&cluster);
        let words: Vec<&str> = whole.iter().map(String::as_str).collect();
        let [settled, found, listed, locked, _, unlocked] = words[..] else { panic!("{words:?}") };
        assert_eq!(
            (settled, found),
            ("true", r#"Some((Some("holder"), true, Some(0)))"#),
            "{whole:?}"
        );
        assert!(listed.starts_with(r#"[Some("holder")]"#), "{whole:?}");
        assert_eq!((locked, unlocked), ("false", "Ok(Released)"), "{whole:?}");
        for right in line[rights_from..].iter().filter(|word| word.starts_with(['+', '~', '&'])) {
            let rest: Vec<_> = line.iter().copied().filter(|word| word != right).collect();
            set(&rest);
            assert_ne!(whole, operate(&cluster), "{}: {right} is not needed", kind.name());
        }
    }
}

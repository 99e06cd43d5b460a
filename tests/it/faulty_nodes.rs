//! Faulty nodes: as long as a quorum answers, no caller notices. Without a quorum, a call fails in
//! its time, names the causes, and leaves no key behind.

use std::time::Duration;

use redbolt::driver::{Driver, Outcome};
use redbolt::inspect::NodeState;
use redbolt::{Cause, Client, Guard, LockError, LockOptions, Retry, Unlocked};

use super::common::{
    Clients as _, Cluster, Kind, PATIENCE, RealServer, SLACK, TTL, causes, cycle, ends_within,
    eventually, fresh_config, ms, no_quorum, taken, timed, wait_released,
};

/// Longer than any call with a quorum of healthy nodes may take.
const LONG: Duration = Duration::from_secs(4);

fn health(client: &Client, index: usize) -> (NodeState, Cause) {
    let health = client.nodes().wait().into_iter().nth(index).expect("a node of that number");
    (health.state, health.cause)
}

#[test]
fn one_dead_node_of_three_is_no_obstacle_and_its_fault_is_known() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    cluster.node_mut(0).kill9();
    let client = cluster.client();
    ends_within(Duration::ZERO, || cycle(&client, "k"));
    assert_eq!(health(&client, 0).1, Cause::ConnectionRefused);

    // A node dies under a client while a lease is alive.
    let mut lease = client.try_lock("k2", TTL).wait().unwrap();
    cluster.node_mut(0).restart();
    assert!(eventually(PATIENCE, || {
        drop(client.try_lock("other", TTL).wait());
        health(&client, 0).0 == NodeState::Admitted
    }));
    cluster.node_mut(1).kill9();
    // Of the two nodes that granted, only node 2 is left: the restarted one makes up for the other.
    lease.extend(TTL).wait().unwrap();
    assert!(lease.votes().iter().any(|node| node.index() == 0), "{lease:?}");
    drop(lease);
    ends_within(Duration::ZERO, || cycle(&client, "k3"));
    // Two nodes would suffice, so the other holder is in the way; the error names the fault too.
    cluster.occupy(0, "k4");
    // A node that is about to end may take one more connection.
    assert!(eventually(PATIENCE, || {
        let ballot = taken(client.try_lock("k4", TTL).wait());
        causes(&ballot)[..2] == [Cause::Held, Cause::ConnectionRefused]
    }));
}

#[test]
fn two_dead_nodes_of_three_are_no_quorum_with_both_causes_and_no_key_left() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    cycle(&client, "k");
    cluster.node_mut(0).kill9();
    cluster.node_mut(2).kill9();
    for _ in 0..3 {
        let error = ends_within(Duration::ZERO, || client.try_lock("k", TTL).wait()).unwrap_err();
        let text = error.to_string();
        let ballot = no_quorum(Err::<(), _>(error));
        for (index, cause) in causes(&ballot).into_iter().enumerate() {
            let name = format!("127.0.0.1:{}", cluster.node(index).port());
            if index == 1 {
                assert!(cause == Cause::None, "{text}");
            } else {
                assert!(text.contains(&format!("{name}: {cause}")), "{text}");
                assert!(
                    matches!(
                        cause,
                        Cause::ConnectionRefused
                            | Cause::ConnectionLost
                            | Cause::Closed
                            | Cause::TlsWanted
                    ),
                    "{text}"
                );
            }
        }
        wait_released(&client, PATIENCE);
        assert!(!cluster.node(1).exists("k"));
    }
}

#[test]
fn a_frozen_node_does_not_delay_the_lock() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = Client::connect(cluster.config().node_timeout(LONG)).unwrap();
    cluster.node(1).freeze();
    for index in 0..20 {
        let key = format!("k{index}");
        ends_within(Duration::ZERO, || cycle(&client, &key));
    }
    cluster.node(1).thaw();
    drop(client);
    for index in 0..20 {
        assert!(eventually(PATIENCE, || cluster.holders(&format!("k{index}")) == 0));
    }
}

#[test]
fn two_dead_or_frozen_nodes_of_five_do_not_delay_the_lock() {
    let Some(mut cluster) = Cluster::mixed(5) else { return };
    let client = Client::connect(cluster.config().node_timeout(LONG)).unwrap();
    cluster.node_mut(0).kill9();
    cluster.node(3).freeze();
    for index in 0..20 {
        let key = format!("k{index}");
        ends_within(Duration::ZERO, || cycle(&client, &key));
    }
    cluster.node(3).thaw();
    cluster.node_mut(3).kill9();
    ends_within(Duration::ZERO, || cycle(&client, "k"));

    // One more frozen node is one too many, and the client deletes any key on it as soon as it goes
    // on.
    cluster.node(4).freeze();
    let hasty = cluster.config().connect_timeout(ms(200));
    let error = ends_within(ms(200), || Client::connect(hasty)).unwrap_err();
    assert!(error.to_string().contains("no quorum"), "{error}");
    let error = ends_within(LONG, || client.try_lock("k", TTL).wait()).unwrap_err();
    assert_eq!(causes(&no_quorum(Err::<(), _>(error)))[4], Cause::Timeout);
    cluster.node(4).thaw();
    drop(client);
    assert!(eventually(PATIENCE, || [1, 2, 4].iter().all(|&at| !cluster.node(at).exists("k"))));
}

#[test]
fn two_frozen_nodes_of_three_fail_at_the_node_timeout_and_at_once_when_stalled() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let node_timeout = ms(1_000);
    let client = cluster.whole(cluster.config().node_timeout(node_timeout));
    for index in [0, 2] {
        cluster.node(index).freeze();
    }
    let (result, elapsed) = timed(|| client.try_lock("k", TTL).wait());
    assert_eq!(causes(&no_quorum(result)), [Cause::Timeout, Cause::None, Cause::Timeout]);
    assert!(elapsed >= node_timeout, "{elapsed:?}");
    assert!(elapsed <= node_timeout + SLACK, "{elapsed:?}");
    // The client deletes its own key after the attempt, without waiting for the frozen nodes.
    assert!(eventually(PATIENCE, || !cluster.node(1).exists("k")));

    let stalled = eventually(PATIENCE, || {
        let ballot = no_quorum(client.try_lock("k", TTL).wait());
        causes(&ballot) == [Cause::Stalled, Cause::None, Cause::Stalled]
    });
    assert!(stalled, "{:?}", client.nodes().wait());
    assert_eq!(health(&client, 0).0, NodeState::Stalled);
    for index in [0, 2] {
        cluster.node(index).thaw();
    }
    assert!(eventually(PATIENCE, || client.try_lock("k", TTL).wait().is_ok()));
    drop(client);
    assert!(eventually(PATIENCE, || cluster.holders("k") == 0), "{:?}", cluster.values("k"));
}

#[test]
fn a_node_that_comes_back_is_used_again_by_the_same_client() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    for index in 0..3 {
        cluster.node_mut(index).kill9();
        cycle(&client, "k");
        cluster.node_mut(index).restart();
        let back = eventually(PATIENCE, || {
            cycle(&client, "k");
            health(&client, index) == (NodeState::Admitted, Cause::None)
        });
        assert!(back, "{:?}", client.nodes().wait());
    }
    // All nodes at once: the client is without a single connection.
    for index in 0..3 {
        cluster.node_mut(index).kill9();
    }
    no_quorum(client.try_lock("k", TTL).wait());
    for index in 0..3 {
        cluster.node_mut(index).restart();
    }
    let retry = Retry::every(ms(20), ms(20)).timeout(PATIENCE);
    let lease = client.lock("k", LockOptions::new(TTL).retry(retry)).wait().unwrap();
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
}

/// With two of three nodes in trouble there is no conflict, and the error names the cause. One of
/// three is no obstacle.
#[test]
fn a_node_that_answers_with_an_error_is_no_conflict() {
    type Trouble = (Cause, &'static [&'static [&'static str]], &'static [&'static [&'static str]]);
    let table: [Trouble; 4] = [
        (Cause::Replica, &[&["REPLICAOF", "127.0.0.1", "1"]], &[&["REPLICAOF", "NO", "ONE"]]),
        (
            Cause::OutOfMemory,
            &[&["CONFIG", "SET", "maxmemory", "1"]],
            &[&["CONFIG", "SET", "maxmemory", "0"]],
        ),
        (
            Cause::NoPermission,
            &[&["ACL", "SETUSER", "default", "-set"]],
            &[&["ACL", "SETUSER", "default", "+set"]],
        ),
        (
            Cause::NoReplicas,
            &[&["CONFIG", "SET", "min-replicas-to-write", "1"]],
            &[&["CONFIG", "SET", "min-replicas-to-write", "0"]],
        ),
    ];
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = cluster.client();
    let say = |server: &RealServer, commands: &[&[&str]]| {
        for command in commands {
            assert_eq!(server.command(command), b"+OK\r\n", "{command:?}");
        }
    };
    for (cause, enter, leave) in table {
        say(cluster.node(1), enter);
        let mut lease = client.try_lock("k", TTL).wait().unwrap();
        lease.extend(TTL).wait().unwrap();
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released, "{cause}");
        say(cluster.node(2), enter);
        let ballot = no_quorum(client.try_lock("k", TTL).wait());
        assert_eq!(causes(&ballot), [Cause::None, cause, cause]);
        say(cluster.node(1), leave);
        say(cluster.node(2), leave);
        wait_released(&client, PATIENCE);
        assert_eq!(cluster.holders("k"), 0, "{cause}");
        cycle(&client, "k");
    }
}

#[test]
fn a_node_that_cannot_save_or_is_busy_or_holds_other_data_is_no_obstacle() {
    let Some(cluster) = Cluster::start(
        &[Kind::Valkey81, Kind::Redis86, Kind::Redis70],
        &["--save", "3600 1", "--busy-reply-threshold", "1"],
    ) else {
        return;
    };
    let client = cluster.client();

    // A list under the lock's key keeps the lock from that node, whatever the list is for.
    cluster.node(0).command(&["RPUSH", "list", "x"]);
    cycle(&client, "list");
    cluster.node(1).command(&["RPUSH", "list", "x"]);
    taken(client.try_lock("list", TTL).wait());
    assert!(cluster.node(0).exists("list") && cluster.node(1).exists("list"));

    let node = cluster.node(2);
    let mut busy = node.connect();
    busy.send(&super::common::request(&["EVAL", "while true do end", "0"])).unwrap();
    assert!(eventually(PATIENCE, || node.command(&["PING"]).starts_with(b"-BUSY")));
    cycle(&client, "k");
    cluster.occupy(0, "k");
    let ballot = taken(client.try_lock("k", TTL).wait());
    assert_eq!(causes(&ballot)[2], Cause::Busy);
    assert_eq!(node.command(&["SCRIPT", "KILL"]), b"+OK\r\n");
    cluster.node(0).command(&["DEL", "k"]);

    node.command(&["SET", "dirty", "x"]);
    std::fs::remove_dir_all(node.dir()).unwrap();
    node.command(&["BGSAVE"]);
    assert!(eventually(PATIENCE, || node.command(&["PING"]).starts_with(b"-MISCONF")));
    cycle(&client, "k");
    cluster.occupy(0, "k");
    let ballot = taken(client.try_lock("k", TTL).wait());
    assert_eq!(causes(&ballot)[2], Cause::SaveFailed);
    wait_released(&client, ms(500));
    assert!(!cluster.node(1).exists("k"));
}

#[test]
fn a_killed_connection_costs_the_next_call_nothing() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    for (index, node) in cluster.nodes().enumerate() {
        let victim = |name: &str| Client::connect(cluster.config().client_name(name)).unwrap();
        let client = victim("lock");
        kill_connections_of(node, "lock");
        cycle(&client, "k");

        let client = victim("extend");
        let mut lease = client.try_lock("k", TTL).wait().unwrap();
        kill_connections_of(node, "extend");
        lease.extend(TTL).wait().unwrap();
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        wait_released(&client, PATIENCE);

        let client = victim("unlock");
        let lease = client.try_lock("k", TTL).wait().unwrap();
        kill_connections_of(node, "unlock");
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        wait_released(&client, PATIENCE);
        assert_eq!(cluster.holders("k"), 0, "{index}: {:?}", client.nodes().wait());
    }
}

/// A client that has lost every connection since its last call, which was longer than
/// `node_timeout` ago.
fn orphan(cluster: &Cluster) -> (Client, Guard) {
    let pause = ms(500);
    let client = cluster.whole(cluster.config().client_name("victim").node_timeout(pause));
    let lease = client.try_lock("held", TTL).wait().expect("the lock is free");
    wait_released(&client, PATIENCE);
    cluster.nodes().for_each(|node| kill_connections_of(node, "victim"));
    std::thread::sleep(pause * 2);
    (client, lease)
}

#[test]
fn a_lock_after_a_pause_does_not_mind_that_every_connection_was_killed() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (client, _lease) = orphan(&cluster);
    cycle(&client, "k");
}

#[test]
fn an_extension_after_a_pause_does_not_mind_that_every_connection_was_killed() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (_client, mut lease) = orphan(&cluster);
    lease.extend(TTL).wait().unwrap();
}

#[test]
fn an_unlock_after_a_pause_does_not_mind_that_every_connection_was_killed() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (client, lease) = orphan(&cluster);
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
    wait_released(&client, PATIENCE);
    assert_eq!(cluster.holders("held"), 0);
}

/// The connections to a node of the clients with this name.
fn ids_of(node: &RealServer, name: &str) -> Vec<String> {
    let list = String::from_utf8(node.command(&["CLIENT", "LIST"])).expect("lines of text");
    let named = list.lines().filter(|line| line.contains(&format!(":{name} ")));
    let ids = named.map(|line| line.split("id=").nth(1).and_then(|rest| rest.split(' ').next()));
    ids.map(|id| id.expect("each client has an id").to_owned()).collect()
}

fn kill_connections_of(node: &RealServer, name: &str) {
    for id in ids_of(node, name) {
        node.command(&["CLIENT", "KILL", "ID", &id]);
    }
}

#[test]
fn a_client_whose_servers_hung_up_while_it_was_idle_gets_its_lock_at_the_first_call() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    // A server never hangs up on connections that subscribe.
    let config = || cluster.config().client_name("idle").direct_wake(false);
    let clients: Vec<_> = (0..2).map(|_| cluster.whole(config())).collect();
    let ids = || -> Vec<_> { cluster.nodes().map(|node| ids_of(node, "idle")).collect() };
    let before = ids();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "timeout", "1"]);
    }
    let is_new =
        |(now, before): (&Vec<String>, &Vec<String>)| now.iter().all(|id| !before.contains(id));
    assert!(eventually(PATIENCE, || ids().iter().zip(&before).all(is_new)), "{before:?}");
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "timeout", "0"]);
    }
    for client in &clients {
        cycle(client, "k");
    }
}

#[test]
fn late_replies_of_a_frozen_node_become_votes_and_their_keys_are_released_too() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    for index in 0..3 {
        let client = cluster.client();
        cluster.node(index).freeze();
        let lease = client.try_lock("k", TTL).wait().unwrap();
        assert_eq!(lease.votes().count(), 2);
        cluster.node(index).thaw();
        let grew = eventually(PATIENCE, || {
            client.leader("k").wait().unwrap();
            lease.votes().count() == 3
        });
        assert!(grew, "{lease:?}");
        assert_eq!(lease.votes().bits(), 0b111);
        assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);
        wait_released(&client, PATIENCE);
        assert_eq!(cluster.holders("k"), 0);
    }
}

/// The SET lies in the frozen server's buffer and runs after the thaw, so its release must run
/// behind it.
#[test]
fn an_attempt_that_failed_while_nodes_were_frozen_leaves_no_key_after_the_thaw() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    for closes in [false, true] {
        let config = || cluster.config().node_timeout(ms(200));
        let client = Client::connect(config()).unwrap();
        cluster.node(0).freeze();
        cluster.node(1).freeze();
        no_quorum(client.try_lock("k", TTL).wait());
        if closes {
            ends_within(ms(200), || drop(client));
            cluster.node(0).thaw();
            cluster.node(1).thaw();
        } else {
            cluster.node(0).thaw();
            cluster.node(1).thaw();
            let mut probe = None;
            assert!(eventually(PATIENCE, || {
                probe = client.try_lock("probe", TTL).wait().ok();
                probe.is_some()
            }));
        }
        assert!(eventually(PATIENCE, || cluster.holders("k") == 0), "{:?}", cluster.values("k"));
    }
}

#[test]
fn a_cancelled_attempt_says_so_and_leaves_no_key_after_the_thaw() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut driver = Driver::standalone(cluster.config()).unwrap();
    let lock = |driver: &mut Driver, key: &str| -> Option<redbolt::Lease> {
        let id = driver.try_lock(key, TTL).unwrap();
        let mut lease = None;
        assert!(eventually(PATIENCE, || {
            driver.drive();
            let Some(done) = driver.completion() else { return false };
            assert_eq!(done.id, id);
            let Outcome::Lock(result) = done.result else { panic!("{done:?}") };
            lease = result.ok();
            true
        }));
        lease
    };
    assert!(eventually(PATIENCE, || {
        driver.drive();
        driver.voters().count() == 3
    }));
    assert!(eventually(PATIENCE, || lock(&mut driver, "warm").is_some()));
    cluster.node(0).freeze();
    cluster.node(1).freeze();
    let id = driver.try_lock("k", TTL).unwrap();
    driver.drive();
    assert!(eventually(PATIENCE, || {
        driver.drive();
        cluster.node(2).exists("k")
    }));
    driver.cancel(id);
    let done = driver.completion().unwrap();
    assert_eq!(done.id, id);
    assert!(matches!(done.result, Outcome::Lock(Err(LockError::Cancelled))), "{done:?}");
    cluster.node(0).thaw();
    cluster.node(1).thaw();
    assert!(eventually(PATIENCE, || {
        driver.drive();
        cluster.holders("k") == 0 && cluster.set_count(0) >= 2
    }));
    driver.cancel(id);
    driver.drive();
    assert!(driver.completion().is_none(), "an operation ends once");
}

/// The nodes appear after the client was opened: the call waits for them, within its deadline.
#[test]
fn a_call_waits_for_nodes_on_their_way_but_not_beyond_its_deadline() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let client = Client::open(cluster.config()).unwrap();
    let lease = client.try_lock("k", TTL).wait().unwrap();
    assert_eq!(lease.unlock().wait().unwrap(), Unlocked::Released);

    for index in 0..3 {
        cluster.node(index).freeze();
    }
    let client = Client::open(fresh_config(cluster.urls()).connect_timeout(ms(400))).unwrap();
    let short = LockOptions::new(TTL).timeout(ms(100));
    ends_within(ms(100), || no_quorum(client.try_lock("k", short).wait()));
    let ballot = ends_within(ms(400), || no_quorum(client.try_lock("k", TTL).wait()));
    let blames = |cause: &&Cause| matches!(cause, Cause::ConnectTimeout | Cause::Connecting);
    assert!(causes(&ballot).iter().filter(blames).count() >= 2, "{ballot}");
    for index in 0..3 {
        cluster.node(index).thaw();
    }
    assert!(eventually(PATIENCE, || client.try_lock("k", TTL).wait().is_ok()));
}

//! Locks whose nodes tell their holder at once when somebody else takes them away.

use std::time::Duration;

use redbolt::{Client, KeepAlive, Lease, LockError, LockOptions, UnlockError, Unlocked, now};
use redbolt_embedded::Nodes;

use super::common::{
    Clients as _, Cluster, FOREIGN, Kind, PATIENCE, RealServer, TTL, Wire, eventually,
    fresh_config, ms,
};

fn watched(ttl: Duration) -> LockOptions {
    LockOptions::new(ttl).watch(true)
}

/// A lease that all nodes tell of.
#[track_caller]
fn watched_lease(client: &mut Client, acquire: LockOptions, nodes: u32) -> Lease {
    let lease = client.try_lock("k", acquire).expect("the lock is free");
    let is_watched = eventually(PATIENCE, || {
        client.drive().expect("a healthy loop");
        client.driver().watched_by(&lease).count() == nodes
    });
    assert!(is_watched, "{:?}", client.driver().watched_by(&lease));
    lease
}

/// Drives the client until `lease` is lost, which must be long before its end.
#[track_caller]
fn lost_at_once(client: &mut Client, lease: &Lease, what: &str) {
    let end = lease.deadline();
    assert!(!client.drive_for(PATIENCE).expect("a healthy loop"), "{what}: not told");
    assert!(lease.is_lost() && !lease.is_valid(), "{what}");
    assert!(now() + TTL / 3 < end, "{what}: told at the end");
}

/// Nothing extends the lease here: only a push can tell of the loss before its end.
#[test]
fn a_lock_that_is_taken_away_is_lost_at_once() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let mut client = cluster.client();
    type Take = fn(&Cluster, usize);
    let take: [(&str, Take); 6] = [
        ("DEL", |cluster, index| drop(cluster.node(index).command(&["DEL", "k"]))),
        ("FLUSHALL", |cluster, index| drop(cluster.node(index).command(&["FLUSHALL"]))),
        ("RENAME", |cluster, index| drop(cluster.node(index).command(&["RENAME", "k", "x"]))),
        ("PEXPIRE", |cluster, index| drop(cluster.node(index).command(&["PEXPIRE", "k", "1"]))),
        ("takeover", |cluster, index| cluster.occupy(index, "k")),
        ("another holder's release", |cluster, index| {
            let script = "return redis.call('del', KEYS[1])";
            drop(cluster.node(index).command(&["EVAL", script, "1", "k"]));
        }),
    ];
    for (what, take) in take {
        let lease = watched_lease(&mut client, watched(TTL), 5);
        (0..2).for_each(|index| take(&cluster, index));
        assert!(client.drive_for(ms(50)).unwrap() && lease.is_valid(), "{what}: three are left");
        take(&cluster, 2);
        lost_at_once(&mut client, &lease, what);
        // What is left of it is released; what others put there is not.
        let _ = client.unlock(lease);
        client.wait_released(PATIENCE);
        let values = cluster.values("k");
        assert!(values.iter().flatten().all(|value| value == FOREIGN.as_bytes()), "{what}");
        cluster.nodes().for_each(|node| drop(node.command(&["FLUSHALL"])));
        client.drive().unwrap();
    }
}

#[test]
fn an_evicted_lock_is_lost_at_once() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut client = cluster.client();
    let lease = watched_lease(&mut client, watched(TTL), 3);
    for node in cluster.nodes().take(2) {
        node.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
        node.command(&["CONFIG", "SET", "maxmemory", "1"]);
        assert!(eventually(PATIENCE, || {
            node.command(&["SET", "filler", "x"]);
            !node.exists("k")
        }));
    }
    lost_at_once(&mut client, &lease, "eviction");
}

/// Whoever comes back without memory is asked, and has nothing.
#[test]
fn a_lock_that_restarts_forgot_is_lost_as_soon_as_they_are_back() {
    let Some(mut cluster) = Cluster::mixed(3) else { return };
    let mut client = cluster.client();
    let lease = watched_lease(&mut client, watched(TTL), 3);
    (0..2).for_each(|index| cluster.node_mut(index).restart());
    lost_at_once(&mut client, &lease, "restart");
}

/// The holder's own extensions drop the tracking of the key, and set it up anew.
#[test]
fn a_watched_lock_outlives_its_own_extensions_and_is_watched_all_the_time() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let mut client = cluster.client();
    let ttl = ms(1_500);
    let acquire = watched(ttl).keep_alive(KeepAlive::new());
    let mut lease = watched_lease(&mut client, acquire, 5);
    assert!(client.drive_for(ttl * 2).unwrap());
    client.extend(&mut lease, TTL * 5 / 4).unwrap();
    assert!(client.drive_for(ms(100)).unwrap() && lease.is_valid());
    assert_eq!(client.driver().watched_by(&lease).bits(), 0b11111);
    (1..4).for_each(|index| drop(cluster.node(index).command(&["DEL", "k"])));
    lost_at_once(&mut client, &lease, "after an extension");
    drop(lease);
    client.wait_released(PATIENCE);
    assert_eq!(cluster.holders("k"), 0);
}

#[test]
fn embedded_nodes_tell_of_a_lock_that_is_taken_away() {
    let nodes = Nodes::start(3).unwrap();
    let mut client = Client::connect(fresh_config(nodes.urls())).unwrap();
    for request in [&["DEL", "k"][..], &["FLUSHALL"]] {
        let lease = watched_lease(&mut client, watched(TTL), 3);
        for url in &nodes.urls()[..2] {
            assert!(client.drive_for(ms(50)).unwrap() && lease.is_valid(), "{request:?}");
            Wire::connect_url(url).unwrap().ask(request).unwrap();
        }
        lost_at_once(&mut client, &lease, request[0]);
        assert_eq!(client.unlock(lease), Err(UnlockError::NotHeld));
        client.wait_released(PATIENCE);
    }
}

/// What a node told falsely, or of another's extension, is set right by an extension.
#[test]
fn an_extension_shows_that_a_node_holds_the_key_after_all() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut client = cluster.client();
    let mut lease = watched_lease(&mut client, watched(TTL), 3);
    // The nodes' answers and messages come one by one.
    let is_watched = |client: &mut Client, lease: &Lease, nodes: u32| {
        eventually(PATIENCE, || {
            client.drive().unwrap();
            client.driver().watched_by(lease).bits() == nodes
        })
    };
    cluster.node(0).command(&["PEXPIRE", "k", "60000"]);
    assert!(is_watched(&mut client, &lease, 0b110), "it tells once");
    client.extend(&mut lease, TTL).unwrap();
    assert!(is_watched(&mut client, &lease, 0b111), "{:?}", client.driver().watched_by(&lease));
    // The next one is not too many.
    cluster.node(1).command(&["DEL", "k"]);
    assert!(client.drive_for(ms(50)).unwrap() && lease.is_valid());
    cluster.node(0).command(&["DEL", "k"]);
    lost_at_once(&mut client, &lease, "two of three");
}

/// A node that denies tracking tells nothing; the lock works, and the others tell.
#[test]
fn a_node_that_denies_tracking_is_watched_no_further() {
    let kinds = [Kind::Valkey91, Kind::Redis86, Kind::Redis70];
    let Some(cluster) = Cluster::start(&kinds, &[]) else { return };
    for node in cluster.nodes().take(1) {
        node.command(&[
            "ACL",
            "SETUSER",
            "default",
            "on",
            "nopass",
            "~*",
            "&*",
            "+@all",
            "-client|tracking",
        ]);
    }
    let mut client = cluster.client();
    let lease = watched_lease(&mut client, watched(TTL), 2);
    assert_eq!(client.driver().watched_by(&lease).bits(), 0b110);
    (1..3).for_each(|index| drop(cluster.node(index).command(&["DEL", "k"])));
    lost_at_once(&mut client, &lease, "by the others");
    drop(lease);
    let lease = client.try_lock("k", watched(TTL)).unwrap();
    assert_eq!(client.unlock(lease).unwrap(), Unlocked::Released);
}

#[test]
fn the_work_under_a_watched_lock_learns_at_once_that_it_is_lost() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut client = cluster.client();
    let result = client.with_lock("k", watched(TTL), |held| {
        cluster.nodes().for_each(|node: &RealServer| drop(node.command(&["DEL", "k"])));
        assert!(eventually(PATIENCE, || held.check().is_err()));
        assert!(!held.is_valid());
        Ok::<_, LockError>(())
    });
    assert!(matches!(result, Err(LockError::Lost)), "{result:?}");
}

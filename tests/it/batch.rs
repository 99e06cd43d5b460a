//! Batches: many operations of one client at once, and what becomes of those that are given up.

use std::collections::HashSet;

use redbolt::driver::Outcome;
use redbolt::{Config, Lease, LockError, LockOptions, Retry, UnlockError, Unlocked};
use redbolt_embedded::Nodes;

use super::common::{
    Clients as _, Cluster, PATIENCE, TTL, ends_within, eventually, fresh_config, ms, taken,
};

/// Every lock of a batch is won, on every node, and each result belongs to what was submitted.
#[test]
fn a_batch_wins_and_releases_every_lock() {
    let Some(cluster) = Cluster::mixed(5) else { return };
    let mut client = cluster.client();
    let mut batch = client.batch();
    let keys: Vec<_> = (0..100).map(|index| format!("k{index}")).collect();
    let ops: Vec<_> = keys.iter().map(|key| batch.try_lock(key, TTL).unwrap()).collect();
    let places: HashSet<_> = ops.iter().map(|op| op.index()).collect();
    assert_eq!((batch.in_flight(), places.len()), (100, 100));
    let mut leases: Vec<Lease> = Vec::new();
    while let Some(done) = batch.wait_completion().unwrap() {
        let Outcome::Lock(Ok(lease)) = done.result else { panic!("{:?}", done.result) };
        let place = ops.iter().position(|op| *op == done.id).unwrap();
        assert_eq!(lease.key(), keys[place].as_bytes());
        leases.push(lease);
    }
    assert_eq!((batch.in_flight(), leases.len()), (0, 100));
    for lease in &leases {
        batch.extend(lease, TTL).unwrap();
    }
    for lease in leases.drain(50..) {
        batch.unlock(lease).unwrap();
    }
    let mut ended = [0, 0];
    while let Some(done) = batch.wait_completion().unwrap() {
        match done.result {
            Outcome::Extend(result) => ended[0] += i32::from(result.is_ok()),
            Outcome::Unlock(result) => ended[1] += i32::from(result == Ok(Unlocked::Released)),
            other @ (Outcome::Lock(_) | Outcome::Adopt(_) | _) => panic!("{other:?}"),
        }
    }
    // A release ends the extension of its lease, where that is not decided yet.
    assert!(ended[0] >= 50 && ended[1] == 50, "{ended:?}");
    // Leases live longer than their batch.
    drop(batch);
    assert!(eventually(PATIENCE, || cluster.holders("k0") == 5));
    drop(leases);
    client.wait_released(PATIENCE);
    assert!(cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n"));
}

#[test]
fn a_batch_that_is_dropped_leaves_no_key_behind() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let (mut client, mut other) = (cluster.client(), cluster.client());
    let held = other.try_lock("held", TTL).unwrap();
    for is_written in [false, true] {
        let mut batch = client.batch();
        for index in 0..20 {
            batch.try_lock(format!("k{index}"), TTL).unwrap();
        }
        // One that would go on trying for ten seconds.
        let patient = LockOptions::new(TTL).retry(Retry::default());
        batch.lock("held", patient).unwrap();
        if is_written {
            batch.flush();
            let won = batch.wait_completion().unwrap().unwrap();
            assert!(matches!(won.result, Outcome::Lock(Ok(_))));
        }
        ends_within(ms(0), || drop(batch));
        client.wait_released(PATIENCE);
        assert!(cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":1\r\n"));
    }
    other.unlock(held).unwrap();
    // What was given up neither holds the lock now nor comes back for it.
    let lease = other.try_lock("held", TTL).unwrap();
    assert!(client.try_lock("k0", TTL).is_ok());
    taken(client.try_lock("held", TTL));
    drop(lease);
}

/// Results of a batch that was forgotten go to nobody, and their leases are released.
#[test]
fn a_batch_that_is_forgotten_holds_nothing_up() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let mut client = cluster.client();
    let mut batch = client.batch();
    for index in 0..20 {
        batch.try_lock(format!("k{index}"), TTL).unwrap();
    }
    batch.flush();
    std::mem::forget(batch);
    let mut batch = client.batch();
    batch.try_lock("mine", TTL).unwrap();
    let mine = batch.wait_completion().unwrap().unwrap();
    let Outcome::Lock(Ok(mine)) = mine.result else { panic!("{:?}", mine.result) };
    assert_eq!(mine.key(), b"mine");
    assert!(batch.wait_completion().unwrap().is_none());
    drop((batch, mine));
    assert_eq!(client.unlock_token("x", [0; 20]), Err(UnlockError::NotHeld));
    client.wait_released(PATIENCE);
    assert!(cluster.nodes().all(|node| node.command(&["DBSIZE"]) == b":0\r\n"));
}

#[test]
fn a_batch_ends_while_a_node_hangs() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    let config = cluster.config().node_timeout(PATIENCE);
    let mut client = redbolt::Client::connect(config).unwrap();
    cluster.node(2).freeze();
    for _ in 0..3 {
        let mut batch = client.batch();
        for index in 0..64 {
            batch.try_lock(format!("k{index}"), TTL).unwrap();
        }
        ends_within(ms(0), || {
            while let Some(done) = batch.wait_completion().unwrap() {
                if let Outcome::Lock(result) = done.result {
                    batch.unlock(result.unwrap()).unwrap();
                }
            }
        });
    }
    cluster.node(2).thaw();
}

#[test]
fn a_batch_is_refused_at_its_bound_and_goes_on_after_it() {
    let nodes = Nodes::start(3).unwrap();
    let config = Config::new(nodes.urls()).unwrap().node_timeout(ms(2_000)).in_flight_max(8);
    let mut client = redbolt::Client::connect(config).unwrap();
    let mut batch = client.batch();
    for index in 0..8 {
        batch.try_lock(format!("k{index}"), TTL).unwrap();
    }
    assert!(matches!(batch.try_lock("k8", TTL), Err(LockError::Full)));
    while let Some(done) = batch.wait_completion().unwrap() {
        assert!(matches!(done.result, Outcome::Lock(Ok(_))), "{:?}", done.result);
    }
    assert!(batch.try_lock("k8", TTL).is_ok());
}

/// More than the sockets and servers take at once: what waits is written as they take more.
#[test]
fn a_batch_larger_than_a_socket_takes_is_written_to_its_end() {
    let Some(cluster) = Cluster::mixed(3) else { return };
    // A unix socket takes some 200 KiB; locks and releases together stay below what may wait.
    let urls = cluster.nodes().map(|node| node.unix_url()).collect();
    let mut client = redbolt::Client::connect(fresh_config(urls)).unwrap();
    let long = "k".repeat(4000);
    for round in 0..4 {
        let mut batch = client.batch();
        cluster.nodes().for_each(|node| node.freeze());
        for index in 0..60 {
            batch.try_lock(format!("{index}{long}"), TTL).unwrap();
        }
        batch.flush();
        cluster.nodes().for_each(|node| node.thaw());
        let mut won = 0;
        while let Some(done) = batch.wait_completion().unwrap() {
            match done.result {
                Outcome::Lock(Ok(lease)) => {
                    won += 1;
                    batch.unlock(lease).unwrap();
                }
                Outcome::Unlock(unlocked) => assert_eq!(unlocked, Ok(Unlocked::Released)),
                other @ (Outcome::Lock(_) | Outcome::Extend(_) | Outcome::Adopt(_) | _) => {
                    panic!("round {round}: {other:?}")
                }
            }
        }
        assert_eq!(won, 60);
    }
}
